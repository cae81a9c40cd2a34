from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain as chained
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import ArgumentError, PlanError
from coexec.plan.pipeline import (
    DeviceClass,
    Hop,
    StreamKernel,
    StreamSystem,
    StreamValue,
    StreamWork,
    downsets,
    judged,
    plan_pipeline,
    shared as shared_search,
)
from tests.plan.pipeline import invented
from tests.plan.pipeline.exhaustive import Everything, front

KINDS = {  # what is planned, and how often in the quick tests
    "chains": (invented.chain, {}, 90),
    "chains, idle power of used devices only": (invented.chain, {"used": True}, 60),
    "kernels that draw unlike watts": (invented.uneven, {}, 60),
    "the same, used devices only": (invented.uneven, {"used": True}, 30),
    "the same in mixed groups": (invented.uneven, {"mixed": True}, 20),
    "the same in groups that serve several stages": (invented.uneven, {"shared": True}, 30),
    "graphs": (invented.graph, {}, 40),
    "graphs with latency": (invented.graph, {"latency": True}, 30),
    "mixed groups": (invented.chain, {"mixed": True}, 30),
    "mixed groups with latency": (invented.graph, {"mixed": True, "latency": True}, 20),
    "groups that serve several stages": (invented.chain, {"shared": True}, 30),
    "the same in graphs, used devices only": (invented.graph, {"shared": True, "used": True}, 20),
    "the same with latency": (invented.chain, {"shared": True, "latency": True}, 20),
}
MORE = 20  # times as many in the slow tests
AT_ONCE = Hop()
SMALL = [(1, 1), (2, 1), (1, 2), (2, 2), (3,), (1, 1, 1)]


def agree(found, expected):
    assert len(found) == len(expected), (found, expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-8), (found, expected)


def figures(points, *, latency=False, used=False):
    return [(p.period, p.energy_used if used else p.energy, *((p.latency,) if latency else ())) for p in points]


def compare(seed, make, *, latency=False, mixed=False, shared=False, used=False):
    """Plan one random case and compare the front with that of all pipelines there are."""
    draw = random.Random(seed)
    machine = invented.system(draw, draw.choice(SMALL) if latency or mixed or shared else None)
    work = make(draw, machine)
    everything = Everything(work, machine, mixed=mixed)
    every = chained(everything.consecutive(), everything.shared()) if shared else everything.consecutive()
    expected = front(every, None if used else machine.idle_watts, latency=latency)
    options = {"latency": latency, "mixed": mixed, "shared": shared, "idle": "used" if used else "all", "error": 0.0}
    if not expected:
        with pytest.raises(PlanError):
            plan_pipeline(work, machine, **options)
        return
    found = plan_pipeline(work, machine, **options)
    agree(figures(found.points, latency=latency, used=used), expected)
    for point in found.points:
        assert judged(work, machine, point.stages) == point
    assert found.error == found.shared_error == 0.0 and found.orders is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_front_is_that_of_all_pipelines(kind):
    make, options, often = KINDS[kind]
    for seed in range(often):
        compare(seed, make, **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_front_is_that_of_all_pipelines_in_thousands_of_systems(kind):
    make, options, often = KINDS[kind]
    for seed in range(often, often * MORE):
        compare(seed, make, **options)


def pareto(entries):
    """Keep what no other entry dominates in period and active energy."""
    kept: list[Any] = []
    for entry in sorted(entries, key=lambda e: (e[0].period, e[0].active)):
        if not kept or entry[0].active < kept[-1][0].active:
            kept.append(entry)
    return kept


def one_best(entries):
    return [min(entries, key=lambda e: (e[0].period, e[0].active))]


def test_programs_that_keep_less_miss_part_of_the_front():
    wrong = {"one entry": 0, "two entries": 0, "fronts without the last group": 0, "fronts with it": 0}
    cases = 0
    for seed in range(1000):
        draw = random.Random(seed)
        machine = invented.system(draw, (2, 2), budgets=False)
        machine = StreamSystem(tuple(replace(c, memory=inf) for c in machine.classes), machine.hops)
        everything = Everything(invented.chain(draw, machine), machine)
        if len(everything.workload.kernels) < 4:
            continue
        cases += 1
        idle = machine.idle_watts
        expected = front(everything.consecutive(), idle)

        def two_best(entries, idle=idle):
            least = min(entries, key=lambda e: (e[0].active + idle * e[0].period, e[0].period))
            return [*one_best(entries), least]

        programs = {
            "one entry": (one_best, False),
            "two entries": (two_best, False),
            "fronts without the last group": (pareto, False),
            "fronts with it": (pareto, True),
        }
        for name, (keep, last) in programs.items():
            wrong[name] += front(everything.dynamic(keep, last=last), idle) != expected
        if cases == 25:
            break
    assert wrong["fronts with it"] == 0
    assert wrong["one entry"] >= wrong["two entries"] >= wrong["fronts without the last group"] > 0


def two(f=1, g=1, *, idle=0.0, watts=10.0, fast=AT_ONCE):
    ends = [("host", "f"), ("f", "host"), ("host", "g"), ("g", "host"), ("f", "g"), ("g", "f")]
    classes = (DeviceClass("f", f, watts + idle, idle), DeviceClass("g", g, watts + idle, idle))
    return StreamSystem(classes, dict.fromkeys(ends, fast))


def kernels(*pairs, **options):
    return [StreamKernel(f"k{i}", {"f": a, "g": b}, **options) for i, (a, b) in enumerate(pairs)]


def test_alternating_kernels_are_served_by_their_own_groups():
    work = StreamWork.chain(kernels((2.0, 6.0), (9.0, 3.0), (2.0, 6.0), (9.0, 3.0)), [0.0] * 5)
    assert plan_pipeline(work, two(), shared=False).choose().period == 11.0
    best = plan_pipeline(work, two()).choose()
    assert best.period == 6.0 and best.busy == {0: 4.0, 1: 6.0}
    assert [stage.slot for stage in best.stages] == [0, 1, 0, 1] and best.bottleneck == 1


def test_workers_are_split_by_the_seconds_of_their_stages():
    workers = DeviceClass("w", 126, memory=1.5)  # too little for the weights of both
    machine = StreamSystem((workers,), {("host", "w"): Hop(), ("w", "host"): Hop()})
    stages = [StreamKernel("a", {"w": 0.17}, weights=1.0), StreamKernel("b", {"w": 0.21}, weights=1.0)]
    best = plan_pipeline(StreamWork.chain(stages, [0.0] * 3), machine, shared=False).choose()
    assert [stage.devices for stage in best.stages] == [56, 70] and 1 / best.period == pytest.approx(329.4, rel=1e-3)


def test_two_ends_of_the_stream_cost_their_copies():
    work = StreamWork.chain(kernels((1.0, 1.0)), [4e6, 6e6])
    machine = two(fast=Hop(0.5, 1e6))
    point = plan_pipeline(work, machine).choose()
    assert point.period == 6.5 and point.bottleneck is None and point.stages[0].transfer == 4.5
    assert point.latency == 4.5 + 1.0 + 6.5


def test_what_skips_a_stage_travels_with_the_item():
    names = ("a", "b", "c")
    work = StreamWork(
        tuple(StreamKernel(n, {"f": 1.0, "g": 1.0}) for n in names),
        (
            StreamValue(1e6, None, ("a", "c")),
            StreamValue(2e6, "a", ("b",)),
            StreamValue(3e6, "b", ("c",)),
            StreamValue(1e6, "c", (), result=True),
        ),
    )
    assert [work.alive(mask) for mask in (0b000, 0b001, 0b011, 0b111)] == [1e6, 3e6, 4e6, 1e6]


def test_memory_forbids_the_best_plan():
    work = StreamWork.chain(kernels((1.0, 5.0), (1.0, 5.0), weights=3e6), [0.0] * 3)
    machine = two(fast=Hop(2.0, inf))
    small = StreamSystem((replace(machine.classes[0], memory=4e6), machine.classes[1]), machine.hops)
    assert plan_pipeline(work, machine).choose().period == 2.0
    best = plan_pipeline(work, small).choose()
    assert best.period == 5.0 and {stage.group[0][0] for stage in best.stages} == {"f", "g"}


def test_a_stateful_kernel_is_never_replicated():
    work = StreamWork.chain([StreamKernel("k", {"f": (4.0, 3.0), "g": 100.0}, replicable=False)], [0.0, 0.0])
    best = plan_pipeline(work, two(f=2)).choose()
    assert best.period == 3.0 and best.stages[0].mode == "divided"
    free = StreamWork.chain([StreamKernel("k", {"f": (4.0, 3.0), "g": 100.0})], [0.0, 0.0])
    assert plan_pipeline(free, two(f=2)).choose().stages[0].mode == "in turn"


def test_devices_of_one_silicon_are_one_budget():
    cores = DeviceClass("core", 4, 10.0, 2.0, budget="cores")
    wide = DeviceClass("all", 1, 40.0, 8.0, budget="cores", units=4)
    free = {(a, b): Hop() for a in ("host", "core", "all") for b in ("host", "core", "all") if a != b or a != "host"}
    machine = StreamSystem((cores, wide), free)
    assert machine.idle_watts == 8.0
    work = StreamWork.chain([StreamKernel(n, {"core": 4.0, "all": 1.5}) for n in "ab"], [0.0] * 3)
    best = plan_pipeline(work, machine).choose()
    assert best.period == 2.0, "either the wide device for both, 3 s, or four cores in turn, 8/4 s, but never both"
    assert all(stage.group[0][0] == "core" for stage in best.stages)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_another_device_never_makes_the_best_period_longer(seed):
    draw = random.Random(seed)
    machine = invented.system(draw, draw.choice(SMALL), budgets=False)
    work = invented.chain(draw, machine)
    more = StreamSystem(
        (replace(machine.classes[0], count=machine.classes[0].count + 1), *machine.classes[1:]), machine.hops
    )
    try:
        before = plan_pipeline(work, machine, shared=False)
    except PlanError:
        return
    after = plan_pipeline(work, more, shared=False)
    assert after.choose().period <= before.choose().period * (1 + 1e-9)
    used = [plan_pipeline(work, m, shared=False, idle="used") for m in (machine, more)]
    least = [min(point.energy_used for point in found.points) for found in used]
    assert least[1] <= least[0] * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.randoms())
def test_names_and_their_order_change_nothing(seed, shuffle):
    draw = random.Random(seed)
    machine = invented.system(draw, draw.choice(SMALL))
    work = invented.graph(draw, machine)
    names = {c.name: f"x{i}" for i, c in enumerate(shuffle.sample(machine.classes, len(machine.classes)))}
    classes = [replace(c, name=names[c.name], budget=c.budget and "other") for c in machine.classes]
    shuffle.shuffle(classes)
    hops = {(names.get(a, a), names.get(b, b)): hop for (a, b), hop in machine.hops.items()}
    kernels = [replace(k, seconds={names[c]: t for c, t in k.seconds.items()}) for k in work.kernels]
    shuffle.shuffle(kernels)
    try:
        before = plan_pipeline(work, machine, latency=True, shared=False)
    except PlanError:
        return
    after = plan_pipeline(
        StreamWork(tuple(kernels), work.values), StreamSystem(tuple(classes), hops), latency=True, shared=False
    )
    agree(figures(after.points, latency=True), figures(before.points, latency=True))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.1, 0.5]), st.booleans())
def test_a_search_with_an_error_stays_within_it(seed, error, latency):
    draw = random.Random(seed)
    machine = invented.system(draw, draw.choice(SMALL))
    work = invented.graph(draw, machine)
    options = {"latency": latency, "shared": False}
    try:
        exact = plan_pipeline(work, machine, error=0.0, **options)
    except PlanError:
        return
    near = plan_pipeline(work, machine, error=error, **options)
    assert near.error == error
    for best in figures(exact.points, latency=latency):
        limit = [x * (1 + error) * (1 + 1e-9) for x in best]
        assert any(all(a <= b for a, b in zip(p, limit, strict=True)) for p in figures(near.points, latency=latency))


def test_too_many_labels_are_merged_and_the_error_is_told(monkeypatch):
    draw = random.Random(3)
    machine = two(2, 2, idle=3.0, fast=Hop(0.1, 1e6))
    work = StreamWork.chain(
        [StreamKernel(f"k{i}", {"f": draw.uniform(1, 9), "g": draw.uniform(1, 9)}) for i in range(7)], [1e6] * 8
    )
    exact = plan_pipeline(work, machine, shared=True)
    monkeypatch.setattr(shared_search, "MOST_LABELS", 2)
    near = plan_pipeline(work, machine, shared=True)
    assert exact.shared_error == 0.0 < near.shared_error
    for point in exact.points:
        limit = point.period * (1 + near.shared_error), point.energy * (1 + near.shared_error)
        assert any(p.period <= limit[0] and p.energy <= limit[1] for p in near.points)


def test_a_graph_of_too_many_orders_says_how_many_were_tried(monkeypatch):
    names = [f"k{i}" for i in range(6)]
    machine = two()
    values = [StreamValue(1e3, None, tuple(names)), *(StreamValue(1e3, n, (), result=True) for n in names)]
    work = StreamWork(tuple(StreamKernel(n, {"f": 1.0 + i, "g": 7.0 - i}) for i, n in enumerate(names)), tuple(values))
    every = plan_pipeline(work, machine)
    assert every.orders is None and not every.notes
    monkeypatch.setattr(downsets, "MOST", 20)
    some = plan_pipeline(work, machine)
    assert some.orders is not None and 1 < some.orders <= downsets.ORDERS and "orders" in some.notes[0]
    assert some.choose().period >= every.choose().period


def test_many_kernels_are_planned_within_the_error_that_is_told():
    work = StreamWork.chain(kernels(*[(1.0 + i % 5, 6.0 - i % 5) for i in range(40)]), [1e3] * 41)
    found = plan_pipeline(work, two(2, 2, fast=Hop(0.0, 1e9)), latency=True)
    assert found.error == 0.01 and not found.shared and "shared=True" in found.notes[0]


def test_a_limit_of_latency_is_kept():
    work = StreamWork.chain([StreamKernel("k", {"f": (6.0, 4.0)})], [0.0] * 2)
    machine = two(f=2)
    free, bound = plan_pipeline(work, machine).choose(), plan_pipeline(work, machine, latency=5.0).choose()
    assert (free.period, free.latency, free.stages[0].mode) == (3.0, 6.0, "in turn")
    assert (bound.period, bound.latency, bound.stages[0].mode) == (4.0, 4.0, "divided")
    with pytest.raises(PlanError, match=r"within 3 s of latency"):
        plan_pipeline(work, machine, latency=3.0)


def test_what_cannot_be_planned_is_said():
    work = StreamWork.chain([StreamKernel("k", {"npu": 1.0})], [0.0, 0.0])
    with pytest.raises(PlanError, match=r"'k' runs on npu, and the system has f, g"):
        plan_pipeline(work, two())
    with pytest.raises(PlanError, match="too little memory"):
        plan_pipeline(
            StreamWork.chain(kernels((1.0, 1.0), weights=5.0), [0.0, 0.0]),
            StreamSystem(tuple(replace(c, memory=1.0) for c in two().classes), two().hops),
        )
    for wrong in ({"idle": "some"}, {"error": -1.0}, {"latency": 0.0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            plan_pipeline(work, two(), **wrong)
