"""Loops in which one thing changes in the middle: replay ends there, and results are NumPy's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from tests.devices import TWO
from tests.inside import planner_of
from tests.small_loops import SIZE, axpy, mixed, opened, values

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")

FACTOR = 1.0


class Reach:
    """What a range mapper takes from outside."""

    by = 1


@cx.kernel(split=0, x=cx.read(lambda c: slice(max(0, c.lo[0] - Reach.by), c.hi[0])), y=cx.update)
def behind(x: Any, y: Any) -> None:
    y += FACTOR * x[len(x) - len(y) :] + x[0] * 0


@cx.kernel(split=0, x=cx.read, y=cx.update, flops=lambda n: 10.0 * n)
def featured(x: Any, y: Any, n: int) -> None:
    y += n * x


class Changing:
    """A loop of which one thing changes, and what NumPy makes of it."""

    def __init__(self, numpy: bool) -> None:
        self.numpy = numpy
        self.x, self.y, self.z = (self.array(values() * k) for k in (1, 2, 3))
        self.s, self.t = self.array(np.array(2.0)), self.array(np.array(3.0))
        self.seen: list[float] = []

    def array(self, data: Any) -> Any:
        return np.array(data) if self.numpy else cx.array(data)

    def call(self, kernel: Any, *args: Any, **options: Any) -> Any:
        if self.numpy:
            return kernel.function(*args)
        return kernel.using(**options)(*args) if options else kernel(*args)

    def turn(self, change: str, changed: bool) -> None:
        """Do one turn; everything but what changes is the same in each."""
        on = changed and change
        options: dict[str, Any] = {}
        x, y, z, count, a = self.x, self.y, self.z, 2, 0.5
        if on == "devices":
            options = {"devices": "cpu:0"}
        elif on == "priority":
            options = {"priority": 2}
        elif on == "policy":
            options = {"policy": "even"}
        elif on == "undivided":
            options = {"split": False}
        elif on == "aliasing":
            z = y
        elif on == "swapped":
            x, z = z, x
        elif on == "view":
            x, y = x[100:300], y[200:400]
        elif on == "strides":
            x, y = x[::2], y[1::2]
        elif on == "shape":
            x, y = self.array(values()[:77]), self.array(values()[:77])
        elif on == "dtype":
            x = self.array(values().astype(np.float32))
        elif on == "scalar":
            a = -3
        elif on == "feature":
            count = 5
        if on in ("shape", "view", "strides"):
            self.call(axpy, x, y, a)
            self.seen.append(float(y[3]))
        else:
            self.call(axpy, x, y, a, **options)
            if z is not y:
                self.call(axpy, y, z, 1e-3)
            else:
                self.call(axpy, y, y, 1e-3)
        self.call(behind, self.x, self.y)
        self.call(featured, self.x, self.z, count)
        first, second = (2.0, self.s) if on == "who is an array" else (self.s, 2.0)
        if self.numpy:
            mixed.function(self.x, self.y, float(first), float(second))
        else:
            mixed(self.x, self.y, first, second)
        born = self.array(np.full(SIZE, 7.0 if on == "first contents" else 1.0))
        filled = (np.full if self.numpy else cx.full)(SIZE, 5.0 if on == "first value" else 1.0)
        self.call(axpy, born, self.z, 0.125)
        self.call(axpy, filled, self.z, 0.125)


CHANGES = [
    "devices", "priority", "policy", "undivided", "aliasing", "swapped", "view", "strides", "shape", "dtype", "scalar",
    "feature", "who is an array", "first contents", "first value", "captured", "mapper", "a variant off", "wait", "plan",
]  # fmt: skip


def outside(change: str, changed: bool) -> None:
    global FACTOR
    FACTOR = 3.0 if changed and change == "captured" else 1.0
    Reach.by = 5 if changed and change == "mapper" else 1


def compare(changes: dict[int, str], turns: int) -> int:
    """Run a loop with the changes of some turns, in NumPy and here; return how many steps were replayed."""
    results = []
    for numpy in (True, False):
        with opened(TWO) as runtime:
            loop = Changing(numpy)
            for turn in range(turns):
                change = changes.get(turn, "")
                outside(change, changed=True)
                if not numpy:
                    disturb(runtime, loop, change)
                loop.turn(change, changed=True)
            outside("", changed=False)
            results.append([np.asarray(array) for array in (loop.x, loop.y, loop.z)] + [np.array(loop.seen)])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    return runtime._driver.scheduler.counts.replayed


def disturb(runtime: cx.Runtime, loop: Changing, change: str) -> None:
    """Do what changes nothing in the results."""
    if change == "wait":
        cx.wait()
    elif change == "plan":
        axpy.plan(loop.x, loop.y, 0.5)
    elif change == "a variant off":
        planner_of(runtime)._candidates.forget()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", [{9}, {8, 9, 14}, set(range(12, 40))])
def test_one_change_in_the_middle_is_seen(change: str, at: set[int]) -> None:
    assert compare(dict.fromkeys(at, change), 18) > 0


def test_contents_that_come_first_in_a_step_belong_to_it_when_one_is_analysed_again() -> None:
    assert compare({0: "who is an array"}, 40) > 20


@settings(max_examples=20)
@given(st.dictionaries(st.integers(0, 24), st.sampled_from(CHANGES), max_size=6), st.integers(8, 24))
def test_any_changes_in_any_turns_are_seen(changes: dict[int, str], turns: int) -> None:
    compare(changes, turns)


@pytest.mark.parametrize("named", [False, True])
def test_arrays_made_and_dropped_while_calls_are_held_back_disturb_no_loop(named: bool) -> None:
    """In each turn of the loop something is held back by lookahead while other arrays come and go."""
    with cx.Runtime("simulated:2", diagnostics="off") as runtime:
        x, last = cx.ones(400_000), cx.zeros(())
        for i in range(12):
            with cx.record() if named else nullcontext():
                o: Any = cx.array(np.arange(400_000.0))
                axpy(x, o, 1.0)
                np.add(o, o, out=o)
                z = cx.array(np.ones(4))
                last[...] = i
        del o, z
        for _ in range(2):  # instructions that are not over hold arrays
            cx.wait()
        assert len(runtime._driver.scheduler.lowering.states()) == len(runtime._driver.scheduler.lowering.states()) == 2
