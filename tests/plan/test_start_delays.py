"""How late devices begin is a median of what was measured; what was kept waiting by something else does not count."""

from __future__ import annotations

from typing import Any

import pytest

import coexec as cx
from coexec.bench.plan.program import ArrayMaker
from coexec.plan.lessons import LATEST, USUAL, Lessons, Outcomes, StartDelays
from tests.plan.planning import Planning
from tests.plan.test_step_choice import machine_of

ROWS = 10_000


@cx.kernel(split=0, y=cx.update)
def increment(y: Any) -> None:
    y += 1


def test_a_device_nobody_measured_begins_as_late_as_usual() -> None:
    assert StartDelays().of("cpu:0") == USUAL and StartDelays().measured() == {}


def test_the_median_counts_and_one_outlier_does_not_move_it() -> None:
    start_delays = StartDelays()
    for seconds in (1e-3, 1.1e-3, 4.9e-3, 0.9e-3, 1e-3):
        start_delays.learn("gpu", seconds)
    assert start_delays.of("gpu") == pytest.approx(1e-3) and start_delays.measured() == {"gpu": pytest.approx(1e-3)}
    start_delays.learn("gpu", LATEST * 2)
    assert start_delays.of("gpu") == pytest.approx(1e-3), "something else kept it"


def test_first_calls_count_until_the_like_of_one_is_made_again() -> None:
    start_delays = StartDelays()
    start_delays.learn("gpu", 3e-3, again=False)
    start_delays.learn("cpu", 2e-3, again=False)
    assert start_delays.of("gpu") == 3e-3
    start_delays.learn("gpu", 0.5e-3)
    start_delays.learn("gpu", 4e-3, again=False)
    assert start_delays.of("gpu") == 0.5e-3 and start_delays.of("cpu") == 2e-3
    kept = StartDelays()
    kept.load(start_delays.measured())
    kept.learn("gpu", 4e-3, again=False)
    assert kept.of("gpu") == 0.5e-3, "the store has it of calls that were made again"


def test_calls_that_repeat_a_division_teach_how_late_devices_begin() -> None:
    lessons = Lessons(StartDelays(), Outcomes())
    taught: list[bool] = []
    honest = lessons._start_delays.learn

    def learn(device: str, seconds: float, *, again: bool = True) -> None:
        taught.append(again)
        honest(device, seconds, again=again)

    lessons._start_delays.learn = learn  # type: ignore[method-assign]
    platform = machine_of(2, [], 12e9)
    with cx.Runtime("cpu:0,cpu:1", platform=platform, store="off", diagnostics="off") as runtime:
        plan = runtime._driver.scheduler.plan
        plan.lessons = plan.decisions.lessons = lessons
        y = ArrayMaker(runtime._driver)(3_000_000)
        for _ in range(12):
            increment(y)
            runtime.wait()
    assert not lessons.open and taught[0] is False and taught.count(True) > taught.count(False)


def test_a_kernel_that_began_before_its_predicted_copies_were_over_was_not_late() -> None:
    start_delays = StartDelays()
    start_delays.learn("gpu", -1e-3)
    assert start_delays.of("gpu") == 0.0


def test_what_a_store_kept_counts_until_something_is_measured() -> None:
    start_delays = StartDelays()
    start_delays.load({"gpu": 2e-3, "odd": 7.0, "negative": -1.0})
    assert start_delays.of("gpu") == 2e-3 and start_delays.of("odd") == start_delays.of("negative") == USUAL
    start_delays.learn("gpu", 1e-3)
    assert start_delays.of("gpu") == 1e-3


def test_lags_count_for_tasks_that_find_nothing_under_way_and_are_hidden_behind_others() -> None:
    made = Planning()
    made.loads.start_delays.load({"dev:0": 0.0, "dev:1": 4e-3})
    made.teach(increment, [made.on_host(ROWS)], {"dev:0": 1e6, "dev:1": 1e6})
    alone = made.plan(increment, made.on_host(ROWS))
    rows = [chunk.box.volume for chunk in alone.command.chunks]
    assert rows[0] > 1.1 * rows[1], "the second begins late"
    queued = made.plan(increment, made.on_host(ROWS))
    more = [chunk.box.volume for chunk in queued.command.chunks]
    assert abs(rows[0] + more[0] - rows[1] - more[1]) < 0.1 * ROWS, "by then it has begun"
