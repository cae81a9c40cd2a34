from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from coexec.errors import ArgumentError, PlanError, UnknownName
from coexec.plan.pipeline import PipelineFront, PipelinePoint, PipelineStage, judged, plan_pipeline
from coexec.plan.pipeline.front import OBJECTIVES, best
from tests.plan.pipeline import invented


def point(period, active, latency=1.0, idle=0.0):
    stage = PipelineStage(("k",), (("f", 1),), "alone", 0, compute=period)
    return PipelinePoint((stage,), period, active, latency, idle, idle)


def front(*points):
    return PipelineFront(best(points), best(points, active=True))


def planned(seed, **options):
    draw = random.Random(seed)
    machine = invented.system(draw, (2, 2))
    return plan_pipeline(invented.chain(draw, machine), machine, **options)


def test_points_are_in_order_and_none_dominates_another():
    for seed in (1, 2, 3, 5, 8):
        points = planned(seed).points
        for a, b in pairwise(points):
            assert a.period < b.period and a.energy > b.energy


@pytest.mark.parametrize("options", [{}, {"latency": True}, {"idle": "used"}])
def test_items_that_come_slowly_are_planned_for_as_if_their_pace_had_been_known(options):
    for seed in (1, 2, 3, 5, 8):
        draw = random.Random(seed)
        machine = invented.system(draw, (2, 2))
        work = invented.chain(draw, machine)
        free = plan_pipeline(work, machine, **options)
        for pace in (free.points[0].period / 2, free.points[0].period * 1.5, 2 * free.points[-1].period):
            slowed, planned = free.paced(pace), plan_pipeline(replace(work, pace=pace), machine, **options)
            third = "latency" in options
            assert figures(slowed, third) == [pytest.approx(row) for row in figures(planned, third)]
            assert all(p.period >= pace for p in slowed.points)
            for p in slowed.points:  # what is worked out from the stages says the same
                assert judged(replace(work, pace=pace), machine, p.stages).energy == pytest.approx(p.energy)
    with pytest.raises(ArgumentError, match="pace=-1"):
        replace(work, pace=-1.0)


def figures(found, latency):
    return [(p.period, p.energy, p.energy_used, p.latency if latency else 0.0) for p in found.points]


def test_each_objective_chooses_from_the_front():
    found = planned(3, latency=True)
    for objective in OBJECTIVES:
        assert found.choose(objective) in found.points
    assert found.choose("throughput").period == min(p.period for p in found.points)
    assert found.choose("energy").energy == min(p.energy for p in found.points)
    assert found.choose("latency").latency == min(p.latency for p in found.points)
    assert found.choose("balanced").energy <= found.choose("throughput").energy
    with pytest.raises(UnknownName, match="did you mean 'energy'"):
        found.choose("enrgy")


def test_a_limit_of_watts_is_met_by_slowing_down():
    only = front(point(1.0, 100.0, idle=10.0))
    slowed = only.choose(power=60.0)
    assert slowed.period == 2.0 and slowed.power == pytest.approx(60.0)
    assert slowed.energy == 120.0 and slowed.stages == only.points[0].stages
    assert only.choose(power=500.0) == only.points[0]


def test_under_a_limit_of_watts_a_pipeline_counts_that_is_dominated_without_one():
    quick, frugal = point(1.0, 100.0, idle=100.0), point(1.9, 60.0, idle=100.0)
    assert quick.energy < frugal.energy, "so it is not on the front"
    found = front(quick, frugal)
    assert found.points == (quick,) and found.wide == (quick, frugal)
    assert found.choose(power=120.0).active == 60.0


def test_no_pipeline_draws_less_than_devices_that_wait():
    with pytest.raises(PlanError, match=r"draw 100 W while they wait"):
        front(point(1.0, 1.0, idle=100.0)).throttled(90.0)


def test_a_front_is_plain_data():
    told = json.loads(json.dumps(planned(2).as_dict()))
    assert told["error"] == 0.0 and told["orders"] is None
    stage = told["points"][0]["stages"][0]
    assert {"kernels", "group", "mode", "slot", "seconds", "memory"} <= stage.keys()


def test_under_a_limit_of_watts_latency_stays_a_criterion():
    # In energy and in the period that 60 W allow the second is worse: only its latency is a reason to keep it.
    thrifty, prompt = point(1.0, 100.0, latency=5.0, idle=10.0), point(1.0, 150.0, latency=1.0, idle=10.0)
    points = (thrifty, prompt)
    by_three = PipelineFront(best(points, latency=True), best(points, latency=True, active=True), latency=True)
    assert [p.latency for p in by_three.throttled(60.0)] == [5.0, 1.0]
    slowed = by_three.choose("latency", power=60.0)
    assert (slowed.latency, slowed.period) == (1.0, 3.0) and slowed.power == pytest.approx(60.0)
    by_two = PipelineFront(best(points), best(points, active=True))
    assert [p.latency for p in by_two.throttled(60.0)] == [5.0]


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_a_limit_of_latency_and_one_of_watts_are_met_together_as_well_as_can_be(seed):
    free = planned(seed, latency=True)
    limit = (free.choose("latency").latency + max(p.latency for p in free.points)) / 2
    idle = free.wide[0].idle_watts
    watts = idle + max(1.0, 0.5 * (max(p.power for p in free.points) - idle))
    found = planned(seed, latency=limit)
    slowed = found.choose("throughput", power=watts)
    assert slowed.latency <= limit and slowed.power <= watts * (1 + 1e-9)
    for p in free.wide:  # no other pipeline within the limit is quicker under the watts
        if p.latency <= limit:
            assert slowed.period <= max(p.period, p.active / (watts - p.idle_watts)) * (1 + 1e-9)
