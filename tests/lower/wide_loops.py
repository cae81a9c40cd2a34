"""Loops over grids: halos along axes, tiles, moving views, several reductions, orders, arrays that come with contents."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import coexec as cx
from coexec.testing import GraphBuilder

SHAPE = (8, 12)


@cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border="edge", shape="axes")), out=cx.write)
def cross(u: Any, out: Any) -> None:
    out[...] = 0.2 * (u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


@cx.kernel(split=0, u=cx.read(cx.halo((1, 2), border="clip")), v=cx.read, out=cx.update)
def leap(u: Any, v: Any, out: Any) -> None:
    out += u.mean() - v


@cx.kernel(split=(0, 1), u=cx.read, out=cx.update)
def tiles(u: Any, out: Any) -> None:
    out += u


@cx.kernel(split=0, over="u", u=cx.read, low=cx.reduce("min"), sums=cx.reduce("sum"))
def measure(u: Any, low: Any, sums: Any) -> None:
    np.minimum(low, u.min(initial=np.inf), out=low)
    sums += u.sum(axis=0)


@cx.kernel(split=0, u=cx.read, out=cx.update)
def mixed(u: Any, out: Any, a: Any, b: Any) -> None:
    out += a * u + b


@cx.host_task(u=cx.read, order="log")
def log(u: Any) -> None:
    u.sum()


@cx.host_task(u=cx.update, order="log")
def touch(u: Any) -> None:
    u += 1


Step = tuple[str, int, int, int]
CALLS = (
    "cross",
    "leap",
    "tiles",
    "measure",
    "mixed",
    "log",
    "touch",
    "part",
    "moving",
    "given",
    "lent",
    "keep",
    "read",
)


def steps() -> st.SearchStrategy[Step]:
    """Return something that the body of a loop does."""
    return st.tuples(st.sampled_from(CALLS), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


class Wide:
    """Four grids, two 0-d arrays, sums of columns; the last two grids are those of the turns before."""

    def __init__(self, devices: int, *, replay: bool, named: bool = False, **options: Any) -> None:
        self.g = GraphBuilder(devices, replay=replay, **options)
        values = np.arange(96.0).reshape(SHAPE)
        self.arrays: list[Any] = [self.g.array(SHAPE, data=values + i) for i in range(4)]
        self.low, self.scale = self.g.array((), 0.0), self.g.array((), data=2.0)
        self.sums = self.g.array(SHAPE[1], 0.0)
        self.step = cx.record() if named else None
        every = ",".join(self.g.devices)
        self.places = [self.g.devices[0], self.g.devices[-1], every, every]
        self.turns = 0

    def turn(self, body: list[Step]) -> None:
        """Run the body of the loop once; then what was new is old."""
        with self.g:
            if self.step is None:
                self._do_all(body)
            else:
                with self.step:
                    self._do_all(body)
        self.turns += 1
        self.arrays[1], self.arrays[2], self.arrays[3] = self.arrays[3], self.arrays[1], self.arrays[2]

    def _do_all(self, body: list[Step]) -> None:
        for what, first, second, place in body:
            self._do(what, self.arrays[first], self.arrays[second], second, self.places[place])

    def _do(self, what: str, x: Any, y: Any, second: int, on: str) -> None:
        if what == "measure":
            measure.using(devices=on)(x, self.low, self.sums)
        elif what in ("log", "touch"):
            (log if what == "log" else touch)(x)
        elif what == "read":
            self.g.read(x if second else self.low)
        elif what in ("given", "lent", "keep"):
            self._new(what, x, second, on)
        elif x is y:
            return
        elif what == "leap":
            leap.using(devices=on)(x, self.arrays[0], y)
        elif what == "mixed":
            one, other = (self.scale, 1.0) if second % 2 else (1.0, self.scale)
            mixed.using(devices=on)(x, y, one, other)
        elif what in ("part", "moving"):
            row = self.turns % 5 if what == "moving" else 1
            tiles.using(devices=on)(x[row : row + 3, ::2], y[4:7, 1::2])
        else:
            (cross if what == "cross" else tiles).using(devices=on)(x, y)

    def _new(self, what: str, x: Any, second: int, on: str) -> None:
        """Put a new array in the place of an old one."""
        if what == "keep":
            made = self.g.array(SHAPE, 1.5)
            tiles.using(devices=on)(x, made)
        else:
            made = self.g.array(SHAPE, data=np.full(SHAPE, 3.0), borrowed=what == "lent")
        old, self.arrays[second] = self.arrays[second], made
        if all(old is not array for array in self.arrays):
            self.g.drop(old)
