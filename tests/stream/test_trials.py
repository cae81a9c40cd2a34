"""Short streams that are tried before a plan is chosen: what they show is what the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.plan.pipeline.front import OBJECTIVES
from coexec.stream import trials
from coexec.stream.as_plan import one_more
from coexec.stream.planning import PreparedFront
from coexec.stream.rescheduling import CHANGE, KEEP, Adviser
from tests.stream.functions import running_sum
from tests.stream.test_baselines import prepared
from tests.stream.test_results import opened

ONES = np.ones((16, 16), np.float32)


def product(x: Any, w: Any) -> Any:
    return np.tanh(cx.matmul(x, w))


def shapes(found: PreparedFront) -> dict[str, Any]:
    """Return what the quickest pipeline places where, and what each device alone does."""
    return {"best": found.front.points[0].shape, **{name: p.shape for name, p in found.singles().items()}}


def test_a_pipeline_that_was_tried_has_the_period_that_its_stream_had() -> None:
    free = prepared(0.0)
    best = free.front.choose("throughput")
    seen = free.tried({best.shape: 1.5}).front.choose("throughput")
    assert (seen.shape, seen.period, seen.quickest) == (best.shape, 1.5 * best.period, best.quickest)
    assert seen.energy == pytest.approx(best.active + best.idle_watts * 1.5 * best.period)


def test_the_one_whose_stream_was_quickest_is_chosen_whatever_the_stages_promise() -> None:
    free = prepared(0.0)
    names = shapes(free)
    seen = free.tried({names["best"]: 9.0, names["big"]: 1.0})
    chosen = seen.front.choose("throughput")
    assert chosen.shape == names["big"] and chosen.period == 2.0
    assert seen.singles()["big"].period == 2.0 and seen.one_class("throughput")["big"].period == 2.0


def test_pipelines_that_were_not_tried_are_as_slow_as_most_of_those_that_were() -> None:
    free = prepared(3.0)
    names = shapes(free)
    seen = free.tried({names["best"]: 2.0, names["big"]: 4.0})
    small = free.singles()["small"]
    assert small.shape not in seen.drags and seen.as_tried(small).period == 3.0 * max(small.quickest, 3.0)


def test_a_stream_that_takes_less_than_its_stages_promise_counts_as_it_is() -> None:
    free = prepared(0.0)
    best = free.front.choose("throughput")
    assert free.tried({best.shape: 0.5}).front.choose("throughput").period == 0.5 * best.period


def test_pipelines_of_other_items_do_not_count_and_neither_do_those_that_take_too_long() -> None:
    free = prepared(0.0)
    other = ((("0.a", "7.z"), (("big", 1),), "alone", 0),)
    assert free.tried({other: 1.0}).front.points == free.front.points  # type: ignore[dict-item]
    limited = replace(free, most_latency=1.5)
    big = free.singles()["big"].shape
    assert big not in [p.shape for p in limited.tried({big: 0.1}).front.points]


def test_what_was_tried_decides_about_a_change_of_plans() -> None:
    free = prepared(0.0)
    names, key = shapes(free), (("size", 1),)
    for drags, what in (
        ({names["best"]: 0.5, names["big"]: 1.0}, CHANGE),
        ({names["best"]: 4.0, names["big"]: 1.0}, KEEP),
    ):
        adviser = Adviser("throughput", None)
        adviser.learn(key, free.tried(drags))
        for _ in range(32):
            adviser.seen(key)
        decision, _ = adviser.decide(key, free.singles()["big"])
        assert decision.what == what


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:1"])
def test_on_real_devices_plans_are_chosen_by_what_short_streams_took(devices: str) -> None:
    with opened(devices=devices):
        pipe = cx.Pipeline(product, w=ONES)
        (plan, *_) = pipe.plan(ONES)
        found = pipe.planned
        chosen = found.front.choose("throughput")
        assert chosen.shape in found.drags and "a short stream took" in plan.why
        tried = [found.singles()["cpu"], chosen]
        assert chosen == min(tried, key=OBJECTIVES["throughput"])
        assert chosen.period == found.drags[chosen.shape] * max(chosen.quickest, found.host)
        np.testing.assert_allclose(pipe.map([ONES] * 3)[2], product(ONES, ONES), rtol=1e-5)


def drags(function: Any, options: Mapping[str, Any], **constants: Any) -> Any:
    with opened(**options):
        pipe = cx.Pipeline(function, **constants)
        pipe.plan(ONES)
        return pipe.planned.drags


def test_nothing_is_tried_where_time_is_virtual() -> None:
    assert not drags(product, {"platform": "workstation"}, w=ONES)


def test_functions_with_a_state_or_with_host_tasks_are_not_run_more_often_than_they_must() -> None:
    @cx.host_task(x=cx.read)
    def look(x: Any) -> None:
        del x

    def with_task(x: Any) -> Any:
        look(x)
        return cx.relu(x)

    assert not drags(running_sum, {"devices": "cpu:0"}, total=np.zeros(ONES.shape, np.float32))
    assert not drags(with_task, {"devices": "cpu:0"})


def test_what_planning_tries_is_not_held_against_the_program() -> None:
    with cx.Runtime(devices="cpu:0,cpu:1", store="off") as runtime:
        told: list[bool] = []
        unpaced = runtime._driver.diagnostics

        def looks(x: Any, w: Any) -> Any:
            told.append(unpaced._pace is None)
            return product(x, w)

        pipe = cx.Pipeline(looks, w=ONES)
        pipe.plan(ONES)
        assert told and all(told)
        assert unpaced._pace is not None


def test_one_more_device_never_brings_less() -> None:
    free = prepared(0.0)
    best = free.front.choose("throughput")
    slow = free.tried({best.shape: 0.1, **{p.shape: 5.0 for p in free.singles().values()}})
    told = one_more(slow, slow.as_tried(best), "throughput")
    assert told and all("no more than" in line for line in told)


class HiddenCount:
    """A count that nobody can see from outside, so that a function that counts is taken for one without effects."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def test_items_that_fail_in_a_trial_are_no_failure_of_the_plan() -> None:
    runs = HiddenCount()

    def breaks(x: Any) -> Any:
        runs.count += 1
        if runs.count > 22:  # recording and the rehearsals before are over
            raise ValueError("no more")
        return cx.relu(x)

    assert not drags(breaks, {"devices": "cpu:0"})
    assert runs.count > 22


def test_functions_that_sleep_are_not_tried_for_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs = [0.0], []

    def reads_a_file(x: Any) -> Any:
        runs.append(1)
        now[0] += 0.5  # seconds in which no processor is busy
        return cx.relu(x)

    monkeypatch.setattr("coexec.stream.rehearsing.perf_counter", lambda: now[0])
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(reads_a_file)
        (plan, *_) = pipe.plan(ONES)
        assert not pipe.planned.drags
        assert plan.period == 0.5
    assert len(runs) <= 12, "recorded, measured and rehearsed"


def test_streams_that_were_disturbed_by_a_compiler_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [prepared(0.0).front.points[0]]
    clock, compiling, seconds = [0.0], [5.0], iter([9.0, *[2.0] * 99])
    monkeypatch.setattr(trials, "perf_counter", lambda: clock[0])

    def compiled() -> None:
        clock[0] += compiling.pop() if compiling else 0.0

    took = trials._compared(points, lambda _: next(seconds), compiled)
    assert took == {points[0].shape: 2.0}, "the first stream took 9 seconds, while something was compiled"
