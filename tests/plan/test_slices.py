"""Planning goes on for a moment at a time: how much of it fits into one, by exact counts and a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import coexec as cx
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.steps.looking import FIRST, SLICE
from coexec.plan.steps.planner import StepPlanner
from coexec.plan.steps.slices import VISIT, Slice, Work, done

TICK = 5e-6  # seconds that pass whenever the clock is looked at


class Ticking:
    """A clock that is looked at after each unit of work, which takes as long as a tick."""

    def __init__(self) -> None:
        self.now, self.ticks = 0.0, 0

    def __call__(self) -> float:
        self.now += TICK
        self.ticks += 1
        return self.now


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u: Any, out: Any) -> None:
    out[...] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


@cx.kernel(x=cx.read, out=cx.write, flops=2000)
def whole(x: Any, out: Any) -> None:
    out[...] = x


def units(count: int) -> Work[str]:
    for _ in range(count):
        yield 1.0
    return "over"


def test_work_that_is_done_at_once_returns_what_it_was_for() -> None:
    assert done(units(3)) == "over"


@pytest.mark.parametrize(("visits", "most"), [(1, 1), (7, 7), (100, 50)])
def test_a_moment_without_a_clock_ends_after_as_many_visits_as_fit_into_it(visits: int, most: int) -> None:
    work, moment = units(visits), Slice(50 * VISIT, None)
    assert moment.advance(work) == (visits > 50)
    assert moment.took == pytest.approx(most * VISIT)
    assert len(list(work)) == visits - most


def test_a_moment_with_a_clock_ends_when_the_clock_says_so_and_work_goes_on_where_it_was() -> None:
    work, clock = units(100), Ticking()
    lengths = []
    for _ in range(5):
        before, moment = clock.ticks, Slice(4.5 * TICK, clock)
        more = moment.advance(work)
        lengths.append(clock.ticks - before)
        assert more
    assert lengths == [6] * 5  # one when it begins, and five of 5 us
    assert len(list(work)) == 100 - 5 * 4


def test_work_that_waits_ends_a_moment_and_goes_on_in_the_next() -> None:
    def waiting() -> Iterator[float | None]:
        yield 1.0
        yield None
        yield 2.0

    work: Any = waiting()
    assert not Slice(1.0, None).advance(work)
    moment = Slice(1.0, None)
    assert not moment.advance(work)
    assert moment.took == pytest.approx(2.0 * VISIT)


def looked(calls: int, turns: int, clock: Ticking | None, preset: str = "workstation") -> tuple[Any, list[float]]:
    """Return what plans the steps of a program of many unlike calls, and the seconds that each look took."""
    with cx.Runtime("", platform=preset, store="off", diagnostics="off") as runtime:
        steps: Any = runtime._driver.scheduler.plan.steps
        steps._clock = clock
        given, found = ArrayMaker(runtime._driver), []
        spend = steps._spend

        def spent(seconds: float, *, later: bool) -> None:
            found.append(seconds)
            spend(seconds, later=later)

        steps._spend = spent
        arrays = [(given(600 + 8 * n, 600), given(600 + 8 * n, 600)) for n in range(calls)]
        for _ in range(turns):
            for number, (u, v) in enumerate(arrays):
                (whole if number % 5 == 4 else smooth)(u, v)
        runtime.wait()
        return steps, found


def test_no_look_at_a_step_of_many_calls_keeps_the_program_waiting() -> None:
    """What is bounded by a clock is looked at after each unit: a unit is a call on some devices, and nothing in it grows with the step."""
    steps, found = looked(64, 24, Ticking())
    assert max(found) <= FIRST + 2 * TICK
    assert max(found) > FIRST - 2 * TICK  # it would have taken longer
    longer = [seconds for seconds in found if seconds > SLICE + 2 * TICK]
    assert 1 <= len(longer) <= 3  # the first looks at windows before the step, and at the step
    assert steps.longest == max(found)
    assert steps._search is not None and all(entry.account or entry.why for entry in steps.considered)


def test_a_look_goes_on_within_a_turn_as_long_as_devices_have_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of many calls is long: looks at its end alone would take as many turns as they have moments."""
    quick, _ = looked(64, 5, Ticking())
    monkeypatch.setattr(StepPlanner, "_meanwhile", lambda planner: None)
    slow, _ = looked(64, 5, Ticking())
    assert quick.planning > slow.planning


def test_how_a_look_is_sliced_does_not_change_what_it_finds() -> None:
    by_count, _ = looked(20, 24, None)
    by_clock, slices = looked(20, 24, Ticking())
    assert len(slices) > 3
    sliced = {entry.devices: entry.account for entry in by_clock.considered if entry.account is not None}
    whole_ = {entry.devices: entry.account for entry in by_count.considered if entry.account is not None}
    both = [devices for devices in sliced if devices in whole_ and devices != by_clock.present.devices]
    assert both
    for devices in both:
        assert sliced[devices].plan == whole_[devices].plan
        assert sliced[devices].estimated.period == pytest.approx(whole_[devices].estimated.period)


def test_a_told_step_that_takes_too_long_to_look_at_is_not_waited_for() -> None:
    with cx.Runtime("", platform="workstation", store="off", diagnostics="off") as runtime:
        steps: Any = runtime._driver.scheduler.plan.steps
        clock = Ticking()
        steps._clock = clock
        given = ArrayMaker(runtime._driver)
        arrays = [(given(600 + 8 * n, 600), given(600 + 8 * n, 600)) for n in range(100)]
        step = cx.record(times=12)
        for _ in range(12):
            with step:
                for u, v in arrays:
                    smooth(u, v)
        runtime.wait()
        assert steps.longest <= FIRST + 2 * TICK
        assert steps._search is not None  # planned as any other step that the program repeats
