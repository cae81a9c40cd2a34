"""Tiled Cholesky: a graph of four kinds of task. By hand, threads take the next ready task from a common list.

Before: app.py, examples/cholesky.py.  After: harness.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from .app import App, Results
from .programs import load
from .team import ThreadTeam

SIZE, TILE = 2048, 256
QUICK_SIZE, QUICK_TILE = 200, 64
Place = tuple[int, int]


class TileTask(NamedTuple):
    """One task of the factorisation: a kernel's name, and the tiles it reads and the one it changes."""

    name: str
    reads: tuple[Place, ...]
    tile: Place
    priority: int = 0


def jobs(tiles: int) -> Iterator[TileTask]:
    """Yield the tasks in the order of the example's program; (k, -1) is the inverse of tile (k, k)."""
    for k in range(tiles):
        yield TileTask("potrf", (), (k, k), 3)
        for i in range(k + 1, tiles):
            yield TileTask("trsm", ((k, -1),), (i, k), 2)
        for i in range(k + 1, tiles):
            yield TileTask("syrk", ((i, k),), (i, i), 1)
            for j in range(k + 1, i):
                yield TileTask("gemm", ((i, k), (j, k)), (i, j))


class ReadyTasks:
    """The tasks that may run, the most urgent first; threads take from it until all are done."""

    def __init__(self, program: list[TileTask]) -> None:
        self._program = program
        self._children: list[list[int]] = [[] for _ in program]
        self._missing = [0] * len(program)
        self._heap: list[tuple[int, int]] = []
        self._left = len(program)
        self._changed = threading.Condition()
        writer: dict[Place, int] = {}
        for number, job in enumerate(program):  # tiles are read only after their last change: no other dependencies
            parents = {writer[place] for place in (*job.reads, job.tile) if place in writer}
            for parent in parents:
                self._children[parent].append(number)
            self._missing[number] = len(parents)
            writer[job.tile] = number
            if job.name == "potrf":
                writer[job.tile[0], -1] = number
            if not parents:
                heappush(self._heap, (-job.priority, number))

    def work(self, run: Callable[[TileTask], None]) -> None:
        """Run tasks until none is left. Called by every thread."""
        try:
            number = self._next()
            while number is not None:
                run(self._program[number])
                number = self._next(number)
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        with self._changed:
            self._left = 0
            self._heap.clear()
            self._changed.notify_all()

    def _next(self, finished: int | None = None) -> int | None:
        """Note what is finished, and return the next task; wait if none is ready."""
        with self._changed:
            if finished is not None:
                self._left -= 1
                for child in self._children[finished]:
                    self._missing[child] -= 1
                    if not self._missing[child]:
                        heappush(self._heap, (-self._program[child].priority, child))
                self._changed.notify_all()
            while not self._heap and self._left:
                self._changed.wait()
            return heappop(self._heap)[1] if self._heap else None


def make(quick: bool) -> App:
    """Return the application."""
    size, tile = (QUICK_SIZE, QUICK_TILE) if quick else (SIZE, TILE)
    example: Any = load("cholesky")
    cuts = [slice(lo, min(lo + tile, size)) for lo in range(0, size, tile)]
    program = list(jobs(len(cuts)))

    def hand(team: ThreadTeam, a: Any) -> Results:
        ready = ReadyTasks(program)
        inverses = [np.empty_like(a[cut, cut]) for cut in cuts]

        def at(place: Place) -> Any:
            row, column = place
            return inverses[row] if column < 0 else a[cuts[row], cuts[column]]

        def run(job: TileTask) -> None:
            row = job.tile[0]
            further = (inverses[row],) if job.name == "potrf" else ()
            team.compute(getattr(example, job.name), *map(at, job.reads), at(job.tile), *further)
            if further and row + 1 < len(cuts):
                a[cuts[row], cuts[row].stop :] = 0.0

        team.run(lambda _: ready.work(run))
        return (a,)

    inputs = example.start(size)
    touched = sum(
        len(job.reads) + 2 + (job.name == "potrf") for job in program
    )  # a tile that changes is read and written
    return App(
        "cholesky",
        f"{size} x {size}, tiles of {tile}",
        inputs,
        example.reference,
        lambda a: example.compute(a, tile),
        hand,
        nbytes=float(touched * tile * tile * inputs[0].itemsize),
        rewritten=(0,),
        libraries=True,
    )
