"""Four applications on ranks: the same calls as on one, the same algorithm by hand with mpi4py and NumPy, and what must be sent.

Before: bench/apps/, examples/.  After: on_rank.py.  Knows sizes and arithmetic; neither time nor coexec's messages.

Every rank begins with all first contents, so the first step sends nothing. `bytes_minimum` counts, for all ranks together,
each element once for each rank that reads it and did not write it; results of reductions are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ..apps.cg import advance_by_hand, apply_by_hand
from ..apps.programs import load

Arrays = tuple[Any, ...]


class RankApp(NamedTuple):
    """One application at one size."""

    name: str
    steps: int
    inputs: Arrays  # first contents, the same on every rank
    coexec: Callable[..., Any]  # (*coexec arrays): the calls; returns the result
    hand: Callable[..., Any]  # (communicator, *arrays): all steps; returns this rank's rows of the result
    bytes_minimum: int  # of all ranks together
    tolerance: float


def rows_of(rows: int, rank: int, ranks: int) -> slice:
    """Return the rows of a rank: in order, as even as they get, the longer parts first."""
    base, extra = divmod(rows, ranks)
    first = rank * base + min(rank, extra)
    return slice(first, first + base + (rank < extra))


def halo_bytes(steps: int, ranks: int, row: int) -> int:
    """Return what neighbours give each other: after the first step, a row of so many bytes each way in each step."""
    return (steps - 1) * 2 * (ranks - 1) * row


def all_bytes(steps: int, ranks: int, whole: int) -> int:
    """Return what is sent if, after the first step, every rank reads all of an array of so many bytes that all write."""
    return (steps - 1) * (ranks - 1) * whole


def _halo(comm: Any, own: Any, above: Any, below: Any) -> None:
    """Give neighbours this rank's first and last row, and take theirs."""
    up = comm.rank - 1 if comm.rank else NOBODY
    down = comm.rank + 1 if comm.rank < comm.size - 1 else NOBODY
    comm.Sendrecv(own[0], up, 1, below, down, 1)
    comm.Sendrecv(own[-1], down, 2, above, up, 2)


NOBODY = -1  # MPI.PROC_NULL of MPICH and of Open MPI is set by on_rank.py


def wave_sim(side: int, steps: int, ranks: int) -> RankApp:
    """Return the stencil over two arrays that swap their roles."""
    example: Any = load("wave_sim")

    def hand(comm: Any, before: Any, now: Any) -> Any:
        mine = rows_of(side - 2, comm.rank, comm.size)
        old, new = before, now
        for step in range(steps):
            part = new[mine.start : mine.stop + 2]
            if step:
                _halo(comm, part[1:-1], part[0], part[-1])
            example.step.function(part, old[1:-1, 1:-1][mine], example.SPEED)
            old, new = new, old
        return new[1:-1][mine]

    def coexec(before: Any, now: Any) -> Any:
        return example.compute(before, now, steps)[1][1:-1]

    minimum = halo_bytes(steps, ranks, (side - 2) * 4)  # the rim never changes, so everybody has it
    return RankApp("wave_sim", steps, example.start(side), coexec, hand, minimum, 1e-5)


def nbody(bodies: int, steps: int, ranks: int) -> RankApp:
    """Return bodies that all pull each other: each part reads all places."""
    example: Any = load("nbody")

    def hand(comm: Any, place: Any, next: Any, speed: Any, mass: Any) -> Any:
        mine = rows_of(bodies, comm.rank, comm.size)
        counts = [
            3 * (rows_of(bodies, r, comm.size).stop - rows_of(bodies, r, comm.size).start) for r in range(comm.size)
        ]
        for step in range(steps):
            if step:
                comm.Allgatherv(place[mine].copy(), [place, counts])
            example.move.function(place, mass, place[mine], speed[mine], next[mine], example.DT)
            place, next = next, place
        return place[mine]

    def coexec(*arrays: Any) -> Any:
        return example.compute(*arrays, steps)[0]

    return RankApp("nbody", steps, example.start(bodies), coexec, hand, all_bytes(steps, ranks, bodies * 3 * 8), 1e-9)


def cg(side: int, steps: int, ranks: int) -> RankApp:
    """Return conjugate gradients: a stencil and two reductions per step, of which the program reads one."""
    example: Any = load("cg")

    def hand(comm: Any, x: Any, r: Any, p: Any, q: Any, rr: Any) -> Any:
        mine = rows_of(side + 2, comm.rank, comm.size)
        inside = slice(max(mine.start, 1), min(mine.stop, side + 1))
        length, along, left, total = float(rr), np.zeros(()), np.zeros(()), np.zeros(())
        for step in range(steps):
            near = p[inside.start - 1 : inside.stop + 1]
            if step:
                _halo(comm, p[mine], near[0], near[-1])
            along[...] = left[...] = 0.0
            apply_by_hand(near, q[inside, 1:-1], along)
            comm.Allreduce(along, total)
            advance_by_hand(p[mine], q[mine], float(total), length, x[mine], r[mine], left)
            comm.Allreduce(left, total)
            example.turn.function(r[mine], p[mine], float(total), length)
            length = float(total)
        return x[mine]

    def coexec(*arrays: Any) -> Any:
        return example.compute(*arrays, tolerance=0.0, most=steps)[0]

    return RankApp("cg", steps, example.start(side), coexec, hand, halo_bytes(steps, ranks, (side + 2) * 8), 1e-9)


def matmul(side: int, steps: int, ranks: int) -> RankApp:
    """Return products of a matrix with the product before."""
    random = np.random.default_rng(5)
    a, b = (random.random((side, side)) / side for _ in range(2))

    def hand(comm: Any, a: Any, x: Any, y: Any) -> Any:
        mine = rows_of(side, comm.rank, comm.size)
        counts = [
            side * (rows_of(side, r, comm.size).stop - rows_of(side, r, comm.size).start) for r in range(comm.size)
        ]
        for step in range(steps):
            if step:
                comm.Allgatherv(x[mine].copy(), [x, counts])
            np.matmul(a[mine], x, out=y[mine])
            x, y = y, x
        return x[mine]

    def coexec(a: Any, x: Any, y: Any) -> Any:
        for _ in range(steps):
            cx.matmul(a, x, y)
            x, y = y, x
        return x

    minimum = all_bytes(steps, ranks, side * side * 8)
    return RankApp("matmul", steps, (a, b, np.zeros_like(a)), coexec, hand, minimum, 1e-9)


APPS: dict[str, Callable[[int, int, int], RankApp]] = {
    "wave_sim": wave_sim,
    "nbody": nbody,
    "cg": cg,
    "matmul": matmul,
}
"""By name: how to make one from its size, its number of steps and the number of ranks."""
FULL = {"wave_sim": (2048, 40), "nbody": (2048, 8), "cg": (1536, 12), "matmul": (1024, 8)}
QUICK = {"wave_sim": (600, 12), "nbody": (600, 4), "cg": (400, 6), "matmul": (300, 4)}
TINY = {"wave_sim": (40, 3), "nbody": (20, 2), "cg": (30, 3), "matmul": (20, 2)}
EMPTY = {"wave_sim": (34, 200), "nbody": (16, 100), "cg": (30, 60), "matmul": (16, 100)}
"""Sizes and steps. Of the last ones, kernels take next to nothing: what remains is what a step costs by itself."""
