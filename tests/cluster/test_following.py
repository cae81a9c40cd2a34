"""Saved plans on several ranks: each rank does its part of a plan that was made on as many, and no other number will do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ConfigError, PlanError
from coexec.plan.plan import Plan, save_plans
from coexec.testing.teams import on_teams
from tests.clusters import cluster

X = np.random.default_rng(3).integers(-9, 9, (4000, 200)).astype(float)


@cx.kernel(split=0, x=cx.read, y=cx.write)
def scaled(x: Any, y: Any, k: float) -> None:
    y[...] = x * k + 1


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="wrap")), y=cx.write)
def around(x: Any, y: Any) -> None:
    y[...] = x[:-2, 1:-1] + x[2:, 1:-1]


@cx.kernel(split=0, x=cx.read, total=cx.reduce("sum"))
def summed(x: Any, total: Any) -> None:
    total[...] = x.sum()


def opened(**options: Any) -> cx.Runtime:
    return cx.Runtime(store="off", diagnostics="off", devices="cpu:0", **options)


def parts(plan: Plan) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [(part.device, part.lo, part.hi) for part in plan.parts]


def unlike(ranks: int) -> cx.Placement:
    """Return parts that no rank would choose by itself: the first is ten times as large as the others."""
    whole = 9.0 + ranks
    return cx.Placement([f"n{rank}/cpu:0" for rank in range(ranks)], {0: (10.0 / whole, *[1.0 / whole] * (ranks - 1))})


def made(ranks: int) -> list[Plan]:
    """Return plans of all calls of the program, on this rank."""
    with opened():
        x, y, total = cx.array(X), cx.empty(X.shape), cx.zeros(())
        placement = unlike(ranks)
        return [
            scaled.using(placement=placement).plan(x, y, 2.0),
            around.using(placement=placement).plan(y, x),
            summed.using(placement=placement).plan(x, total),
        ]


def program() -> tuple[Any, float]:
    x, y, total = cx.array(X), cx.empty(X.shape), cx.zeros(())
    for _ in range(3):
        scaled(x, y, 2.0)
        around(y, x)
    summed(x, total)
    return np.asarray(x), float(total)


def plain() -> tuple[Any, float]:
    x = X
    for _ in range(3):
        y = x * 2.0 + 1
        x = np.roll(y, 1, 0) + np.roll(y, -1, 0)
    return x, float(x.sum())


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_plan_saved_on_some_ranks_is_followed_by_as_many_and_gives_the_same_results(
    ranks: int, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    said = on_teams(ranks, lambda: made(ranks))
    assert all(plans == said[0] for plans in said), "every rank has the whole plan"
    assert all(plan.ranks == ranks for plan in said[0])
    assert [len(plan.parts) for plan in said[0]][:2] == [ranks, ranks] and len(said[0][2].parts) > 1
    save_plans(said[0], file)

    def followed() -> tuple[Any, ...]:
        with opened(plan=str(file)):
            x, y, total = cx.array(X), cx.empty(X.shape), cx.zeros(())
            again = [scaled.plan(x, y, 2.0), around.plan(y, x), summed.plan(x, total)]
            return program(), again

    expected, total = plain()
    for (found, of_all), again in on_teams(ranks, followed):
        assert [parts(plan) for plan in again] == [parts(plan) for plan in said[0]]
        assert all("as the plan says" in plan.why for plan in again)
        np.testing.assert_array_equal(found, expected)
        assert of_all == total


def test_a_call_that_one_rank_has_alone_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"

    def alone() -> Plan:
        with opened():
            x, y = cx.array(X), cx.empty(X.shape)
            found: Plan = scaled.using(devices="n1/cpu:0").plan(x, y, 2.0)
            return found

    on_teams(2, alone)[0].save(file)

    def followed() -> Any:
        with opened(plan=str(file)):
            x, y = cx.array(X), cx.empty(X.shape)
            scaled(x, y, 2.0)
            return parts(scaled.plan(x, y, 2.0)), np.asarray(y)

    for where, y in on_teams(2, followed):
        assert where == [("n1/cpu:0", (0, 0), X.shape)]
        np.testing.assert_array_equal(y, X * 2.0 + 1)


def test_plans_are_followed_from_now_on_by_all_ranks() -> None:
    def run() -> Any:
        with opened() as runtime:
            x, y = cx.array(X), cx.empty(X.shape)
            plan = scaled.using(placement=unlike(2)).plan(x, y, 2.0)
            scaled(x, y, 2.0)
            runtime.follow(plan)
            scaled(y, x, 2.0)
            return parts(plan) == parts(scaled.plan(x, y, 2.0)), np.asarray(x)

    for same, x in on_teams(2, run):
        assert same
        np.testing.assert_array_equal(x, (X * 2.0 + 1) * 2.0 + 1)


def test_a_call_whose_arguments_overlap_is_divided_as_if_there_were_no_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    save_plans(on_teams(2, lambda: made(2))[0], file)

    def run() -> Any:
        with opened(plan=str(file)):
            x, total = cx.array(X), cx.zeros(())
            around(x, x)
            scaled(x, x, 2.0)
            summed(x, total)
            return np.asarray(x), float(total)

    expected = (np.roll(X, 1, 0) + np.roll(X, -1, 0)) * 2.0 + 1
    for found, total in on_teams(2, run):
        np.testing.assert_array_equal(found, expected)
        assert total == expected.sum()


def test_ranks_with_different_plans_are_told(tmp_path: Path) -> None:
    plans = on_teams(2, lambda: made(2))[0]
    save_plans(plans, tmp_path / "all.json")
    save_plans(plans[:1], tmp_path / "one.json")

    def run() -> None:
        name = "all" if cx.rank() else "one"
        with opened(plan=str(tmp_path / f"{name}.json")):
            pass

    with pytest.raises(ConfigError, match=r"rank 0 has plan=.* and rank 1 has plan=.*; all ranks need the same"):
        on_teams(2, run)


def test_another_number_of_ranks_is_refused_and_named(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    save_plans(on_teams(2, lambda: made(2))[0], file)

    def run() -> None:
        with opened(plan=str(file)):
            pass

    with pytest.raises(PlanError, match="'scaled' was made on 2 ranks, and this run has 3 ranks"):
        on_teams(3, run)
    with pytest.raises(PlanError, match="'scaled' was made on 2 ranks, and this run has 1 rank;"):
        run()
    with opened() as runtime, pytest.raises(PlanError, match="made on 2 ranks"):
        runtime.follow(Plan.from_dict(made_on_two(file)))


def made_on_two(file: Path) -> Any:
    """Return the first plan of a file as plain data."""
    found = json.loads(file.read_text(encoding="utf-8"))[0]
    assert found["ranks"] == 2
    return found


def test_a_plan_of_one_process_is_refused_on_ranks(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with opened():
        scaled.plan(cx.array(X), cx.empty(X.shape), 2.0).save(file)

    def run() -> None:
        with opened(plan=str(file)):
            pass

    with pytest.raises(PlanError, match="made on 1 rank, and this run has 2 ranks"):
        on_teams(2, run)


def test_simulated_ranks_follow_plans_too(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    placement = cx.Placement(["n0/gpu:0", "n0/gpu:1", "n1/gpu:1"], {0: (0.2, 0.3, 0.5)})
    with cx.Runtime(platform=cluster(2, 2), ranks=2, execute=True):
        x, y, total = cx.array(X), cx.zeros(X.shape), cx.zeros(())
        said = [
            scaled.using(placement=placement).plan(x, y, 2.0),
            summed.using(placement=placement).plan(y, total),
        ]
        save_plans(said, file)
    with cx.Runtime(platform=cluster(2, 2), ranks=2, execute=True, plan=str(file)):
        x, y, total = cx.array(X), cx.zeros(X.shape), cx.zeros(())
        again = [scaled.plan(x, y, 2.0), summed.plan(y, total)]
        assert [parts(plan) for plan in again] == [parts(plan) for plan in said]
        assert len(said[1].parts) > 2, "one rank has blocks on two devices"
        scaled(x, y, 2.0)
        summed(y, total)
        np.testing.assert_array_equal(np.asarray(y), X * 2.0 + 1)
        assert float(total) == (X * 2.0 + 1).sum()
    with pytest.raises(PlanError, match="made on 2 ranks, and this run has 3 ranks"):
        cx.Runtime(platform=cluster(3, 2), ranks=3, execute=True, plan=str(file))
