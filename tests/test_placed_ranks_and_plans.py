"""Placed calls on ranks, in saved plans and in small memories: results are NumPy's, parts are where the program said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import PlanError
from coexec.testing import on_teams
from tests.clusters import cluster
from tests.test_placed_calls import GPUS, axpy, heat, judged, opened, parts


@st.composite
def on_nodes(draw: Any) -> cx.Placement:
    """Return a placement over the devices of three nodes with two GPUs each, or over those of each node."""
    names = [f"n{node}/gpu:{i}" for node in range(3) for i in range(2)]
    cut = draw(st.sampled_from([{0: 6}, {0: 3, 1: 2}, {0: [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]}, {0: 1}, {0: 2, 1: 1}]))
    count = int(np.prod([parts if isinstance(parts, int) else len(parts) for parts in cut.values()]))
    members = draw(st.sampled_from([names[:count], names[-count:], *([["gpu"]] if count == 2 else [])]))
    rotate = draw(st.sampled_from([None, 1])) if 1 not in cut else None
    return cx.Placement(members, cut, rotate=rotate)


@given(placements=st.lists(on_nodes(), min_size=1, max_size=3), shape=st.tuples(st.integers(3, 40), st.integers(3, 40)))
@settings(max_examples=20)
def test_ranks_compute_what_a_placement_gives_to_their_devices(
    placements: list[cx.Placement], shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape[0])
    x, y, u = (rng.integers(-9, 9, shape).astype(float) for _ in range(3))
    total = 0.0
    with cx.Runtime(platform=cluster(3, 2), ranks=3, execute=True):
        ours, mine, field, s, most = cx.array(x), cx.array(y), cx.array(u), cx.zeros(()), cx.full((), -np.inf)
        label = cx.empty(shape, bool)
        for placement in placements:
            with cx.placed(placement):
                axpy(2.0, ours, mine)
                heat(mine, field, 0.25)
                judged(field, label, s, most)
            y += 2.0 * x
            u[1:-1, 1:-1] = y[1:-1, 1:-1] + 0.25 * (y[:-2, 1:-1] + y[2:, 1:-1] - 2 * y[1:-1, 1:-1])
            total += u.sum()
        np.testing.assert_array_equal(np.asarray(mine), y)
        np.testing.assert_array_equal(np.asarray(field), u)
        np.testing.assert_array_equal(np.asarray(label), u > 0)
        assert float(s) == total


def test_the_plan_of_ranks_is_what_the_placement_says() -> None:
    names = ["n0/gpu:0", "n0/gpu:1", "n2/gpu:1"]
    with cx.Runtime(platform=cluster(3, 2), ranks=3, execute=True):
        x, y = cx.zeros((100, 8)), cx.zeros((100, 8))
        placed = axpy.using(placement=cx.Placement(names, {0: (0.2, 0.3, 0.5)}))
        assert parts(placed.plan(1.0, x, y)) == [
            ("n0/gpu:0", (0, 0), (20, 8)), ("n0/gpu:1", (20, 0), (50, 8)), ("n2/gpu:1", (50, 0), (100, 8))
        ]  # fmt: skip
        alone = axpy.using(placement=cx.Placement("n1/gpu:1", 0)).plan(1.0, x, y)
        assert parts(alone) == [("n1/gpu:1", (0, 0), (100, 8))]
        with pytest.raises(PlanError, match="do not make up a box"):
            axpy.using(placement=cx.Placement("n0/gpu:0,n1/gpu:0,n0/gpu:1", 0))(1.0, x, y)
        with pytest.raises(PlanError, match="axis 2 cannot be cut"):
            axpy.using(placement=cx.Placement(names, 2))(1.0, x, y)


def test_a_saved_plan_of_a_placed_call_is_followed_without_the_placement(tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    x = np.arange(64.0 * 48).reshape(64, 48)
    for placement in (cx.Placement(GPUS, {0: 2, 1: 2}), cx.Placement(GPUS[:3], {0: (0.5, 0.25, 0.25)}, rotate=1)):
        with opened():
            said = axpy.using(placement=placement).plan(1.0, cx.array(x), cx.zeros(x.shape))
            said.save(file)
        with opened(plan=file):
            ours, y = cx.array(x), cx.zeros(x.shape)
            again = axpy.plan(1.0, ours, y)
            assert again.why == "as the plan says" and parts(again) == parts(said)
            axpy(1.0, ours, y)
            np.testing.assert_array_equal(np.asarray(y), x)


def test_a_saved_plan_of_a_reduction_along_another_axis_gives_the_same_sums(tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    x = np.random.default_rng(5).integers(-9, 9, (400, 500)).astype(float)

    def run(kernel: Any) -> tuple[float, Any]:
        label, s, most = cx.empty(x.shape, bool), cx.zeros(()), cx.full((), -np.inf)
        kernel(cx.array(x), label, s, most)
        return float(s), np.asarray(label)

    placed = judged.using(placement=cx.Placement(GPUS, 1))
    with opened():
        placed.plan(cx.array(x), cx.empty(x.shape, bool), cx.zeros(()), cx.zeros(())).save(file)
    for kernel in (placed, judged):
        with opened(plan=file):
            total, label = run(kernel)
            assert total == x.sum()
            np.testing.assert_array_equal(label, x > 0)


def test_a_member_without_room_for_any_part_is_named() -> None:
    with opened(memory={"gpu:1": "8"}):
        x, y = cx.ones((64, 64)), cx.zeros((64, 64))
        with pytest.raises(PlanError, match=r"gpu:1 cannot run it: it has no variant or no memory for it"):
            axpy.using(placement=cx.Placement("gpu:0,gpu:1", 0))(1.0, x, y)
        with cx.placed(cx.Placement("gpu:0,gpu:1", 0)):
            axpy(1.0, x, y)
            assert "not cut as placed: gpu:1 cannot run it" in axpy.plan(1.0, x, y).why
        assert (np.asarray(y) == 1.0).all()


def test_parts_that_do_not_fit_at_once_are_computed_in_rounds() -> None:
    a = np.random.default_rng(6).standard_normal((512, 64))
    with opened(memory={"gpu:0": "200KB", "gpu:1": "200KB"}):
        x, y = cx.array(a), cx.zeros(a.shape)
        for _ in range(3):
            axpy.using(placement=cx.Placement("gpu:0,gpu:1", {0: (0.8, 0.2)}))(1.0, x, y)
        np.testing.assert_array_equal(np.asarray(y), a + a + a)


@pytest.mark.parametrize(
    "placement",
    [
        cx.Placement("n0/cpu:0,n1/cpu:0,n2/cpu:0", {0: (0.5, 0.2, 0.3)}),
        cx.Placement("n2/cpu:0,n0/cpu:0", 0, rotate=1),
        cx.Placement("n1/cpu:0", 1),
        cx.Placement("cpu:0", 0),
    ],
    ids=str,
)
def test_ranks_with_processes_of_their_own_compute_their_parts(placement: cx.Placement) -> None:
    x = np.random.default_rng(8).integers(-9, 9, (60, 40)).astype(float)

    def run() -> Any:
        with cx.Runtime("cpu:0", store="off"):
            ours, y, label = cx.array(x), cx.zeros(x.shape), cx.empty(x.shape, bool)
            s, most = cx.zeros(()), cx.full((), -np.inf)
            with cx.placed(placement):
                shares = axpy.plan(2.0, ours, y).shares
                axpy(2.0, ours, y)
                judged(y, label, s, most)
                z = np.sqrt(y * y + 1.0)
            return shares, np.asarray(y), float(s), float(most), np.asarray(z), np.asarray(label)

    found = on_teams(3, run)
    for _, y, total, most, z, label in found:
        np.testing.assert_array_equal(y, 2 * x)
        assert (total, most) == (2 * x.sum(), 2 * x.max())
        np.testing.assert_allclose(z, np.sqrt(4 * x * x + 1.0))
        np.testing.assert_array_equal(label, x > 0)
    if placement.cut[0][1] == (0.5, 0.2, 0.3):
        assert found[0][0] == pytest.approx({"n0/cpu:0": 0.5, "n1/cpu:0": 0.2, "n2/cpu:0": 0.3})
