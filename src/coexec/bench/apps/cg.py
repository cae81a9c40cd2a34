"""Conjugate gradients: a stencil and two reductions per step, and a number that the host reads in every one.

Before: app.py, examples/cg.py.  After: harness.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .app import App, Results
from .programs import load
from .team import Team

SIDE, STEPS = 2048, 12
QUICK_SIDE, QUICK_STEPS = 220, 4


def make(quick: bool) -> App:
    """Return the application: a given number of steps, each with its test for convergence."""
    side, steps = (QUICK_SIDE, QUICK_STEPS) if quick else (SIDE, STEPS)
    example: Any = load("cg")

    def hand(team: Team, x: Any, r: Any, p: Any, q: Any, rr: Any) -> Results:
        along, left = np.zeros(team.size), np.zeros(team.size)  # what each thread adds to p . q and r . r

        def share(rank: int) -> None:
            inside, part = team.part(side, rank), team.part(side + 2, rank)
            length = float(rr)
            for _ in range(steps):
                along[rank] = left[rank] = 0.0
                near = p[inside.start : inside.stop + 2]
                example.apply.function(near, q[1:-1, 1:-1][inside], along[rank, ...])
                team.barrier()
                rows = p[part], q[part], along.sum(), length, x[part], r[part]
                example.advance.function(*rows, left[rank, ...])
                team.barrier()
                new = float(left.sum())
                example.turn.function(r[part], p[part], new, length)
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
