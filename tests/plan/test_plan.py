"""A plan as data: what it says of every device, and the file it is kept in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import PlanError
from coexec.geometry import Box
from coexec.plan.lessons import outcome_key
from coexec.plan.plan import VERSION, Part, Plan, load_plans, save_plans
from coexec.plan.split import BLOCK_ELEMENTS, BLOCKS
from coexec.predict.features import work_of_part
from coexec.testing import GraphBuilder
from tests.devices import TWO
from tests.plan.planning import Planning, unlike

ROWS = 10_000
FAST, SLOW = 1e6, 1e6 / 3


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double(x, y):
    y[...] = 2 * x


seconds = st.one_of(st.none(), st.floats(0, 1e6))
texts = st.text(max_size=20)
indices = st.tuples(st.integers(0, 9), st.integers(0, 9))
parts = st.builds(
    Part, texts, texts, indices, indices, st.floats(0, 1), st.floats(0, 9), seconds, st.floats(0, 9), seconds, st.floats(0, 9), texts
)  # fmt: skip
plans = st.builds(
    Plan,
    st.sampled_from(["kernel", "pipeline", "model"]),
    texts,
    texts,
    indices,
    st.lists(parts, max_size=3).map(tuple),
    seconds,
    spread=st.floats(0, 9),
    joules=seconds,
    axis=st.one_of(st.none(), st.integers(0, 3)),
    single=st.dictionaries(texts, st.one_of(st.floats(0, 1e6), st.just(float("inf"))), max_size=3),
    left_out=st.dictionaries(texts, texts, max_size=3),
    why=texts,
    limit_s=seconds,
)


@given(plans)
def test_a_plan_survives_the_way_through_json(plan: Plan) -> None:
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan


@given(plans)
def test_every_plan_can_be_explained(plan: Plan) -> None:
    text = plan.explain()
    assert all(device in text for device in (*plan.left_out, *(part.device for part in plan.parts)))
    assert (plan.predicted is None) == (plan.seconds is None)
    assert sum(plan.shares.values()) == pytest.approx(sum(part.share for part in plan.parts))


def test_plans_are_kept_in_one_file(tmp_path: Path) -> None:
    planning = learnt()
    plan = planning.planner.preview(planning.task(double, planning.on_host(ROWS), planning.on_host(ROWS)))
    plan.save(tmp_path / "one.json")
    assert Plan.load(tmp_path / "one.json") == plan
    save_plans([plan, plan], tmp_path / "two.json")
    assert load_plans(tmp_path / "two.json") == [plan, plan]
    with pytest.raises(PlanError, match="holds 2 plans"):
        Plan.load(tmp_path / "two.json")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["one.json", "two.json"], (
        "no half-written file is left"
    )


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "null",
        "3",
        '"plan"',
        "[1]",
        "[[]]",
        "{}",
        json.dumps({"coexec_plan": VERSION + 1}),
        json.dumps({"coexec_plan": VERSION}),
        json.dumps({"coexec_plan": VERSION, "parts": 3, "single": {}}),
        json.dumps({"coexec_plan": VERSION, "parts": [{}], "single": {}}),
        json.dumps({"coexec_plan": VERSION, "parts": [], "single": []}),
        json.dumps({"coexec_plan": VERSION, "parts": [], "single": {}, "space": 3}),
        json.dumps({"coexec_plan": VERSION, "parts": [], "single": {}, "space": [], "surprise": 1}),
        "\x00\x01",
    ],
)
def test_a_damaged_file_is_a_plan_error(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(PlanError):
        Plan.load(path)


def test_a_file_that_is_not_there_or_not_text_is_a_plan_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "nowhere.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "binary")
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path)


# Previews -----------------------------------------------------------------------------------------------------------------


def learnt(*rates: float, **options: object) -> Planning:
    planning = Planning(platform=unlike(own=(False,) * len(rates or (FAST, SLOW))), placement="earliest-finish")
    both = planning.on_host(ROWS), planning.on_host(ROWS)
    planning.teach(double, both, {f"dev:{i}": rate for i, rate in enumerate(rates or (FAST, SLOW))})
    return planning


def preview(planning: Planning, **options: object) -> Plan:
    return planning.planner.preview(planning.task(double, planning.on_host(ROWS), planning.on_host(ROWS), **options))


def test_a_preview_says_shares_times_and_the_limit() -> None:
    plan = preview(learnt())
    assert plan.shares == {"dev:0": pytest.approx(0.75, abs=0.02), "dev:1": pytest.approx(0.25, abs=0.02)}
    assert sum(plan.shares.values()) == 1.0 and plan.axis == 0 and plan.policy == "static"
    assert plan.seconds == pytest.approx(ROWS / (FAST + SLOW), rel=0.05)
    assert plan.limit_seconds == pytest.approx(ROWS / (FAST + SLOW), rel=0.01)
    assert plan.seconds is not None and plan.limit_seconds is not None and plan.seconds > plan.limit_seconds
    assert plan.single == {"dev:0": pytest.approx(ROWS / FAST), "dev:1": pytest.approx(ROWS / SLOW)}
    text = plan.explain()
    assert "dev:0 7" in text and "dev:1 2" in text and "the limit with all of them" in text


def test_a_preview_says_why_a_device_does_nothing() -> None:
    plan = preview(learnt(FAST, 1.0))
    assert plan.shares == {"dev:0": 1.0}
    assert "dev:1 does nothing: one row would take it" in plan.explain()
    planning = learnt()
    planning.candidates.lose("dev:1", "smoke")
    plan = preview(planning)
    assert plan.left_out == {"dev:1": "it failed: smoke"} and "dev:1 does nothing: it failed: smoke" in plan.explain()
    unknown = Planning(3)
    text = preview(unknown).explain()
    assert all(device in text for device in unknown.names)


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def sum_up(x, total):
    total += x.sum()


def faster_as_one() -> Planning:
    """Return cores that are slower one by one than all of them as one device."""
    platform = unlike(wide=True)
    cores = [replace(d, cores=(0, 1) if d.wide else (i,)) for i, d in enumerate(platform.devices)]
    planning = Planning(platform=replace(platform, devices=tuple(cores)), placement="earliest-finish")
    planning.teach(
        double, (planning.on_host(ROWS), planning.on_host(ROWS)), {"dev:0": SLOW, "dev:1": SLOW, "dev:all": FAST}
    )
    return planning


def faster_in_parts() -> Planning:
    """Return devices whose parts fit into a cache, so that half of the rows take a quarter of the time."""
    planning = learnt(SLOW, SLOW)
    task = planning.task(double, planning.on_host(ROWS), planning.on_host(ROWS))
    for candidate in planning.candidates.of(double, None).all:
        for rows in (ROWS // 4, ROWS // 2, 3 * ROWS // 4):
            for _ in range(9):
                work = work_of_part(task, Box((0,), (rows,)))
                candidate.model.learn(work, (rows / ROWS) ** 2 * ROWS / SLOW, together=True)
    return planning


def far_away() -> Planning:
    """Return devices to which nothing need be copied but by who does all of it."""
    platform = unlike(own=(True, True))
    links = {pair: replace(link, bandwidth=1e7) for pair, link in platform.links.items()}
    planning = Planning(platform=replace(platform, links=links), placement="earliest-finish")
    planning.teach(double, (planning.on_host(ROWS), planning.on_host(ROWS)), {"dev:0": FAST, "dev:1": FAST})
    return planning


@pytest.mark.parametrize("planning", [faster_as_one, faster_in_parts, far_away, learnt])
@pytest.mark.parametrize("options", [{}, {"policy": "even"}, {"split": False}, {"oversubscribe": 3}])
def test_no_plan_is_predicted_to_be_faster_than_its_limit(planning: Callable[[], Planning], options: Any) -> None:
    made = planning()
    x, y = made.array(ROWS), made.array(ROWS)
    made.g.call("left", writes=x[: ROWS // 2], on="dev:0")
    made.g.call("right", writes=x[ROWS // 2 :], on="dev:1")
    for plan in (preview(made, **options), made.planner.preview(made.task(double, x, y, **options))):
        assert plan.seconds is not None and plan.limit_seconds is not None
        assert plan.seconds >= plan.limit_seconds * (1 - 1e-9), plan.explain()


def test_the_blocks_of_one_device_are_predicted_to_take_as_long_as_all_of_them() -> None:
    planning = Planning(platform=unlike())
    size = 40 * BLOCK_ELEMENTS
    x, total = planning.on_host(size), planning.array()
    for candidate in planning.candidates.of(sum_up, None).all:
        for rows in (size // BLOCKS, size // 2, size):
            for together in (False, True):
                work = work_of_part(planning.task(sum_up, x, total), Box((0,), (rows,)))
                candidate.model.learn(work, rows / 1e9, together=together)
    plan = planning.planner.preview(planning.task(sum_up, x, total))
    assert len(plan.parts) == BLOCKS and plan.seconds == pytest.approx(size / 2e9, rel=0.1)
    assert (
        plan.seconds is not None and plan.limit_seconds is not None and plan.limit_seconds <= plan.seconds * (1 + 1e-9)
    )


def test_a_plan_that_is_not_divided_says_why_it_is_not() -> None:
    """One device is not the only one that can run it because undivided was measured to be faster."""
    planning = learnt()
    x, y = planning.on_host(ROWS), planning.on_host(ROWS)
    task = planning.task(double, x, y)
    for divided, seconds in ((True, 0.02), (False, 0.008)):
        for _ in range(9):
            planning.loads.outcomes.learn(outcome_key(task), seconds=seconds, divided=divided)
    plan = planning.planner.preview(task)
    assert plan.shares == {"dev:0": 1.0}
    assert plan.why == "undivided was measured to be faster, and dev:0 is the fastest alone"
    assert plan.left_out == {"dev:1": "undivided was measured to be faster"}
    alone = planning.planner.preview(planning.task(double, x, y, devices="dev:1"))
    assert alone.why == "of the devices that the call names, the only one that can run it"


def test_a_preview_changes_nothing() -> None:
    planning = learnt()
    x, y = planning.on_host(ROWS), planning.on_host(ROWS)
    loads = dict(planning.loads.seconds)
    first = planning.planner.preview(planning.task(double, x, y))
    planning.planner.preview(planning.task(double, x, y, devices="dev:1"))
    assert planning.planner.preview(planning.task(double, x, y)) == first
    assert planning.loads.seconds == loads and not any(planning.loads.tasks.values())
    assert x._storage.cuts is None and y._storage.cuts is None


@pytest.mark.parametrize("policy", ["static", "dynamic", "auto", "even"])
def test_a_preview_names_its_policy(policy: str) -> None:
    assert preview(learnt(), policy=policy).policy == policy


def test_a_kernel_plans_in_the_current_runtime_and_runs_nothing(tmp_path: Path) -> None:
    with cx.Runtime(TWO):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        plan = double.using(devices=TWO).plan(x, y)
        assert sum(plan.shares.values()) == pytest.approx(1.0) and set(plan.shares) <= set(TWO.split(","))
        assert plan.seconds is None or plan.predicted is not None
        assert np.asarray(y).sum() == 0
        plan.save(tmp_path / "plan.json")
        assert Plan.load(tmp_path / "plan.json") == plan
    with GraphBuilder(2) as g:
        made = double.using(devices="dev:0,dev:1").plan(g.array(10), g.array(10))
        assert made.shares == {"dev:0": 0.5, "dev:1": 0.5} and made.seconds is None
        assert not g.tasks
