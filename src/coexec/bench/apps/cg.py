"""Conjugate gradients: a stencil and two reductions per step, and a number that the host reads in every one.

Before: app.py, examples/cg.py.  After: harness.py.  The example's bodies are plain formulas, which coexec compiles; threads get
bodies that were tuned by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .app import App, Results
from .programs import load
from .team import ThreadTeam

SIDE, STEPS = 2048, 12
QUICK_SIDE, QUICK_STEPS = 220, 4
POINTS = 1 << 16  # that hand-written bodies compute at a time: the few arrays of so many numbers stay in the cache


def _bands(array: Any) -> list[slice]:
    rows = max(1, POINTS // array.shape[1])
    return [slice(lo, lo + rows) for lo in range(0, len(array), rows)]


def apply_by_hand(p: Any, q: Any, pq: Any) -> None:
    """Do what the example's `apply` does, in bands of rows and without arrays in between."""
    for rows in _bands(q):
        out, near = q[rows], p[rows.start : rows.stop + 2]
        middle = near[1:-1, 1:-1]
        np.multiply(middle, 4.0, out=out)
        for neighbour in (near[:-2, 1:-1], near[2:, 1:-1], near[1:-1, :-2], near[1:-1, 2:]):
            out -= neighbour
        pq += np.einsum("ij,ij->", middle, out)


def advance_by_hand(p: Any, q: Any, pq: Any, rr: Any, x: Any, r: Any, new: Any) -> None:
    """Do what the example's `advance` does, in bands of rows."""
    length = rr / pq
    for rows in _bands(r):
        x[rows] += length * p[rows]
        r[rows] -= length * q[rows]
        new += np.einsum("ij,ij->", r[rows], r[rows])


def make(quick: bool) -> App:
    """Return the application: a given number of steps, each with its test for convergence."""
    side, steps = (QUICK_SIDE, QUICK_STEPS) if quick else (SIDE, STEPS)
    example: Any = load("cg")

    def hand(team: ThreadTeam, x: Any, r: Any, p: Any, q: Any, rr: Any) -> Results:
        along, left = np.zeros(team.size), np.zeros(team.size)  # what each thread adds to p . q and r . r

        def share(rank: int) -> None:
            inside, part = team.part(side, rank), team.part(side + 2, rank)
            length = float(rr)
            for _ in range(steps):
                along[rank] = left[rank] = 0.0
                near = p[inside.start : inside.stop + 2]
                inner = q[1:-1, 1:-1][inside]
                team.compute(example.apply, near, inner, along[rank, ...], tuned=apply_by_hand)
                team.barrier()
                rows = p[part], q[part], along.sum(), length, x[part], r[part], left[rank, ...]
                team.compute(example.advance, *rows, tuned=advance_by_hand)
                team.barrier()
                new = float(left.sum())
                team.compute(example.turn, r[part], p[part], new, length)
                length = new
                team.barrier()

        team.run(share)
        return x, steps

    inputs = example.start(side)
    return App(
        "cg",
        f"{side} x {side} unknowns, {steps} steps",
        inputs,
        lambda *arrays: example.reference(*arrays, tolerance=0.0, most=steps),
        lambda *arrays: example.compute(*arrays, tolerance=0.0, most=steps),
        hand,
        nbytes=11.0 * inputs[0].nbytes * steps,  # p, q; p, q, x, r, x, r; r, p, p
        rewritten=(0, 1, 2, 4),
        libraries=True,
    )
