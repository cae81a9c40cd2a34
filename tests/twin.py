"""A random program, run twice: by coexec and, step by step, by NumPy. Both must agree at every look.

A program is a list of steps of plain integers; each step is read against what exists at that moment, so that any list
is a program and shrinking stays quick. `bad` marks elements that a failed or cancelled task would have written.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np

import coexec as cx
from tests.holding import Gate, closed_gate, pass_gate

LENGTH = 16
SHAPES: tuple[tuple[int, ...], ...] = ((LENGTH,), (LENGTH, 3))
MOST = 8  # elements of a view along the first axis
BORDERS: dict[Any, dict[str, Any] | None] = {
    "edge": {"mode": "edge"},
    "wrap": {"mode": "wrap"},
    "inside": None,
    5: {"mode": "constant", "constant_values": 5},
}
GONE = (cx.TaskFailed, cx.TaskCancelled)


def axpy_body(a, x, y):
    y += a * x


def scale_body(y, by):
    y *= by
    y %= 1009


def for_axes(body: Any, source: str, **accesses: Any) -> dict[int, Any]:
    """Return a kernel per number of axes, each with its OpenCL variant."""
    made = {}
    for ndim, index in ((1, "i"), (2, "i, j")):
        made[ndim] = cx.kernel(split=0, name=body.__name__.removesuffix("_body"), **accesses)(body)
        made[ndim].opencl(source.replace("@", index))
    return made


AXPY = for_axes(axpy_body, "y(@) += a * x(@);", x=cx.read, y=cx.update)
SCALE = for_axes(scale_body, "y(@) = ((y(@) * by) % 1009 + 1009) % 1009;", y=cx.update)


@cx.kernel(split=0, x=cx.read, y=cx.write)
def shifted(x, y, by):
    y[...] = x + by


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def total_of(x, total):
    total += x.sum()


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum", fresh=True))
def fresh_total_of(x, total):
    total += x.sum()


@cx.kernel(y=cx.update)
def fail(y):
    raise ValueError("drawn")


@cx.kernel(y=cx.update)
def held(y, gate):
    pass_gate(gate)
    y += 1


def stencil_body(u, out):
    out[...] = u[:-2] + 2 * u[1:-1] - u[2:]


def stencil(border: Any) -> Any:
    return cx.kernel(split=0, u=cx.read(cx.halo([(1, 1)], border=border)), out=cx.update, name=f"stencil_{border}")(
        stencil_body
    )


STENCILS = {border: stencil(border) for border in BORDERS}


class View(NamedTuple):
    """A view of array number `at`, by NumPy's key."""

    at: int
    key: tuple[slice, ...]


class Twin:
    """One program in progress."""

    def __init__(
        self,
        *,
        devices: tuple[str | None, ...] = (None,),
        overlap: bool = True,
        steps: tuple[int, ...] = (1, 1, 2, -1),
        split: bool = True,
    ) -> None:
        self.devices = devices  # what calls may name
        self.overlap = overlap  # whether one call may see one array through two overlapping views
        self.steps = steps
        self.split = split  # undivided, a task fails or is cancelled as a whole
        self.ours: list[Any] = []
        self.theirs: list[np.ndarray[Any, Any]] = []
        self.bad: list[np.ndarray[Any, Any]] = []
        self.log: list[int] = []
        self.expected_log: list[int] = []
        self.sums = cx.zeros(4, int)
        self.sums_theirs, self.sums_bad = np.zeros(4, int), np.zeros(4, bool)
        self.note = cx.host_task(x=cx.read)(lambda x: self.log.append(int(x.sum())))
        self._gates = ExitStack()
        self._gate: Gate | None = None
        for family in range(4):
            self.new(family, 0, 0)

    # Views --------------------------------------------------------------------------------------------------------------

    def pick(self, a: int, b: int, family: int | None = None, count: int | None = None) -> View:
        """Return a view of some array, of `count` rows if given."""
        shape = SHAPES[(a if family is None else family) % 2]
        fitting = [i for i, array in enumerate(self.theirs) if array.shape == shape]
        at = fitting[a // 2 % len(fitting)]
        count = b % (MOST + 1) if count is None else count
        step = self.steps[b // 9 % len(self.steps)]
        first = b // 40 % (LENGTH - max(0, count - 1) * abs(step))
        rows = slice(first, first + count * abs(step), abs(step))
        if step < 0 and count:
            last = first + (count - 1)
            rows = slice(last, first - 1 if first else None, -1)
        return View(at, (rows,) if len(shape) == 1 or b % 3 else (rows, slice(0, 3)))

    def pair(self, a: int, b: int, c: int, *, whole: bool = True) -> tuple[View, View] | None:
        """Return two views of one shape; None if they overlap, or are poisoned in part, where that is not wanted."""
        x = self.pick(a, b)
        family = self.theirs[x.at].ndim - 1
        y = self.pick(c, b // 7 + c, family, len(self.theirs[x.at][x.key]))
        clash = x.at == y.at and x.key != y.key
        # Operators and assignments may be divided at any time: half a poisoned input would poison half of the output.
        partly = not whole and self._bad(x, y) and not all(bool(self.bad[v.at][v.key].all()) for v in (x, y))
        return None if partly or (clash and not self.overlap) else (x, y)

    def device(self, a: int) -> str | None:
        return self.devices[a % len(self.devices)]

    def _bad(self, *views: View) -> bool:
        return any(bool(self.bad[view.at][view.key].any()) for view in views)

    def _mine(self, view: View) -> Any:
        return self.ours[view.at][view.key]

    def _other(self, view: View) -> np.ndarray[Any, Any]:
        return self.theirs[view.at][view.key]

    def call(self, kernel: Any, device: str | None, *args: Any) -> Any:
        """Submit a call; a runtime in sync mode raises here what others raise later."""
        try:
            return kernel.using(devices=device, split=self.split)(*args)
        except GONE:
            return None

    def wrote(self, view: View, bad: bool, values: Any) -> None:
        """Note what a step writes: `values` is a function, for it may not be computable."""
        self.bad[view.at][view.key] = bad
        if not bad:
            self.theirs[view.at][view.key] = values()

    # Steps ----------------------------------------------------------------------------------------------------------------

    def new(self, a: int, b: int, c: int) -> None:
        shape = SHAPES[a % 2]
        data = (np.arange(int(np.prod(shape))).reshape(shape) * (b % 7 + 1) + c) % 1009
        makers = (lambda: cx.array(data), lambda: cx.asarray(data.copy()), lambda: cx.full(shape, c % 50))
        self.ours.append(makers[a // 2 % 3]())
        self.theirs.append(data if a // 2 % 3 < 2 else np.full(shape, c % 50))
        self.bad.append(np.zeros(shape, bool))

    def drop(self, a: int, b: int, c: int) -> None:
        at = a % len(self.ours)
        if sum(array.shape == self.theirs[at].shape for array in self.theirs) > 1:
            del self.ours[at], self.theirs[at], self.bad[at]

    def axpy(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c)) is None:
            return
        x, y = both
        self.call(AXPY[self._mine(y).ndim], self.device(c), c % 5, self._mine(x), self._mine(y))
        self.wrote(y, self._bad(x, y), lambda: self._other(y) + c % 5 * self._other(x))

    def shifted(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c)) is None:
            return
        x, y = both
        self.call(shifted, None, self._mine(x), self._mine(y), c % 11)
        self.wrote(y, self._bad(x), lambda: self._other(x) + c % 11)

    def stencil(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c)) is None:
            return
        u, out = both
        border = list(BORDERS)[a % len(BORDERS)]
        rows = len(self._other(u))
        if not rows:
            return
        device = self.device(c)
        self.call(
            STENCILS[border],
            device if device is None or "opencl" not in device else None,
            self._mine(u),
            self._mine(out),
        )
        if border == "inside":
            self._stencil_inside(u, out)
            return
        padded = np.pad(self._other(u), [(1, 1)] + [(0, 0)] * (self._other(u).ndim - 1), **(BORDERS[border] or {}))
        self.wrote(out, self._bad(u, out), lambda: padded[:-2] + 2 * padded[1:-1] - padded[2:])

    def _stencil_inside(self, u: View, out: View) -> None:
        values = self._other(u)
        if len(values) >= 3:
            bad = self._bad(u) or bool(self.bad[out.at][out.key][1:-1].any())
            result = values[:-2] + 2 * values[1:-1] - values[2:]
            self.bad[out.at][out.key][1:-1] = bad
            if not bad:
                self._other(out)[1:-1] = result

    def scale(self, a: int, b: int, c: int) -> None:
        y = self.pick(a, b)
        by = self.sums[c % 4] if c % 3 == 0 else c % 6
        bad = self._bad(y) or (c % 3 == 0 and bool(self.sums_bad[c % 4]))
        self.call(SCALE[self._mine(y).ndim], self.device(c), self._mine(y), by)
        factor = self.sums_theirs[c % 4] if c % 3 == 0 else c % 6
        self.wrote(y, bad and bool(self._other(y).size), lambda: self._other(y) * factor % 1009)

    def reduce(self, a: int, b: int, c: int) -> None:
        x, slot, fresh = self.pick(a, b), c % 4, bool(c // 4 % 2)
        self.call(fresh_total_of if fresh else total_of, None, self._mine(x), self.sums[slot, ...])
        bad = self._bad(x) or (not fresh and bool(self.sums_bad[slot]))
        self.sums_bad[slot] = bad
        if not bad:
            before = 0 if fresh else self.sums_theirs[slot]
            self.sums_theirs[slot] = before + self._other(x).sum()

    def assign(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c, whole=False)) is None:
            return
        source, target = both
        how = c % 3
        values = (c % 100, np.full(self._other(target).shape, c % 77), self._mine(source))
        with suppress(*GONE):
            self._mine(target)[...] = values[how]
        bad = how == 2 and self._bad(source)
        self.wrote(target, bad, lambda: (c % 100, c % 77, self._other(source).copy())[how])

    def ufunc(self, a: int, b: int, c: int) -> None:
        if (both := self.pair(a, b, c, whole=False)) is None or len(self.ours) > 8:
            return
        x, y = both
        try:
            made = (self._mine(x) * 3 + self._mine(y)) % 1009
        except GONE:
            return
        whole = np.zeros(SHAPES[self._other(x).ndim - 1], int)
        wider = cx.zeros(whole.shape, int)
        with suppress(*GONE):
            wider[: len(self._other(x))] = made
        self.ours.append(wider)
        self.theirs.append(whole)
        self.bad.append(np.zeros(whole.shape, bool))
        made_at = View(len(self.ours) - 1, (slice(0, len(self._other(x))),))
        self.wrote(made_at, self._bad(x, y), lambda: (self._other(x) * 3 + self._other(y)) % 1009)

    def fail(self, a: int, b: int, c: int) -> None:
        y = self.pick(a, b)
        self.call(fail, None, self._mine(y))
        self.bad[y.at][y.key] = True

    def cancel(self, a: int, b: int, c: int) -> None:
        y = self.pick(a, b)
        bad = self._bad(y)
        task = self.call(SCALE[self._mine(y).ndim], self.devices[0], self._mine(y), 3)
        bad |= task is None or task.cancel()
        self.wrote(y, bad, lambda: self._other(y) * 3 % 1009)

    def hold(self, a: int, b: int, c: int) -> None:
        """Hold a task in mid-body until the next look: everything submitted meanwhile meets it there."""
        y = self.pick(a, b)
        if self._gate is None:
            self._gate = self._gates.enter_context(closed_gate(f"twin {id(self)}"))
        self.call(held, None, self._mine(y), f"twin {id(self)}")
        self.wrote(y, self._bad(y), lambda: self._other(y) + 1)

    def release(self, a: int = 0, b: int = 0, c: int = 0) -> None:
        self._gate = None
        self._gates.close()

    def host_task(self, a: int, b: int, c: int) -> None:
        x = self.pick(a, b)
        with suppress(*GONE):
            self.note(self._mine(x))
        if not self._bad(x):
            self.expected_log.append(int(self._other(x).sum()))

    def look(self, a: int, b: int, c: int) -> None:
        self.release()
        self.compare(self.pick(a, b))

    def compare(self, view: View) -> None:
        """Assert that both sides hold the same, or that ours raises where it must."""
        if self._bad(view):
            try:
                got = np.asarray(self._mine(view))
            except GONE:
                return
            raise AssertionError(f"reading {view} should raise, gave {got}")
        np.testing.assert_array_equal(np.asarray(self._mine(view)), self._other(view))

    def look_at_sum(self, a: int, b: int, c: int) -> None:
        self.release()
        slot = a % 4
        if not self.sums_bad[slot]:
            assert int(self.sums[slot]) == self.sums_theirs[slot]

    def wait(self, a: int = 0, b: int = 0, c: int = 0) -> None:
        self.release()
        try:
            cx.wait()
        except ExceptionGroup as group:
            if not all(isinstance(error, ValueError) for error in group.exceptions):
                raise

    def finish(self) -> None:
        """Compare everything that is left."""
        self.wait()
        assert self.log == self.expected_log
        for at, mask in enumerate(self.bad):
            self.compare(View(at, (slice(None),)))
            for row in range(0, LENGTH, 3):
                self.compare(View(at, (slice(row, row + 2),)))
            assert mask.shape == self.ours[at].shape

    def run(self, program: list[tuple[str, int, int, int]]) -> None:
        """Run a program to its end."""
        try:
            for name, a, b, c in program:
                getattr(self, name)(a, b, c)
            self.finish()
        finally:
            self.release()
