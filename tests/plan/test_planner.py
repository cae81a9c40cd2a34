"""The planner: who computes which part, on plain data; no device is there."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import CoexecWarning, PlanError, UnknownName
from coexec.geometry import Box, Region, whole
from coexec.plan.split import BLOCK_ELEMENTS, BLOCKS, blocks, deal, deal_evenly, even
from coexec.predict.features import work_of
from tests.plan.planning import Planning

LARGE = 1_000_000


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(a, x, y):
    y += a * x


@cx.kernel(x=cx.read, y=cx.write)
def whole_only(x, y):
    y[...] = x


@cx.kernel(split=0, x=cx.update(cx.halo(1)))
def overlapping(x):
    x += 1


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def sum_up(x, total):
    total += x.sum()


@cx.kernel(split=(0, 1), y=cx.write)
def second_axis(y):
    y[...] = 1


def test_a_large_task_nobody_measured_is_divided_evenly_and_a_small_one_is_not() -> None:
    planning = Planning(2)
    x, y = planning.array(LARGE), planning.array(LARGE)
    planned = planning.plan(axpy, 2.0, x, y)
    assert [chunk.box for chunk in planned.command.chunks] == [Box((0,), (LARGE // 2,)), Box((LARGE // 2,), (LARGE,))]
    assert [chunk.device for chunk in planned.command.chunks] == ["dev:0", "dev:1"]
    assert [share.work.size for share in planned.shares if share.work is not None] == [8 * LARGE] * 2  # bytes touched
    assert "a first guess" in planned.command.why
    assert len(planning.devices(axpy, 2.0, x[:100], y[:100])) == 1


def test_measurements_decide_what_is_worth_dividing() -> None:
    planning = Planning(2)
    x, y = planning.array(1000), planning.array(1000)
    assert len(planning.devices(axpy, 2.0, x, y)) == 1
    share = planning.plan(axpy, 2.0, x, y).shares[0]
    assert share.model is not None and share.work is not None
    for _ in range(3):
        share.model.learn(share.work, 1e-2)
    assert len(planning.devices(axpy, 2.0, x, y)) == 2


def test_named_devices_share_a_task_however_small_unless_told_not_to() -> None:
    planning = Planning(3)
    x, y = planning.array(10), planning.array(10)
    assert planning.devices(axpy, 2.0, x, y, devices="dev:0,dev:2") == ["dev:0", "dev:2"]
    assert len(planning.devices(axpy, 2.0, x, y, devices="dev:0,dev:2", split=False)) == 1
    assert planning.devices(axpy, 2.0, x, y, devices="dev:1") == ["dev:1"]
    planning = Planning(3)
    x, y = planning.array(10), planning.array(10)
    assert planning.devices(axpy, 2.0, x, y, devices="null") == ["dev:0", "dev:1", "dev:2"]
    with pytest.raises(UnknownName, match=r"dev:9.*known: dev:0, dev:1, dev:2"):
        planning.plan(axpy, 2.0, x, y, devices="dev:9")


def test_an_indivisible_kernel_stays_whole() -> None:
    planning = Planning(2)
    x, y = planning.array(LARGE), planning.array(LARGE)
    assert [planning.devices(whole_only, x, y) for _ in range(3)] == [["dev:0"], ["dev:1"], ["dev:0"]]


def test_an_axis_of_one_row_is_left_for_the_next_one() -> None:
    planned = Planning(2).plan(second_axis, Planning(2).array(1, LARGE))
    assert [chunk.box.shape for chunk in planned.command.chunks] == [(1, LARGE // 2)] * 2


def test_chunks_that_would_touch_each_other_run_undivided_with_one_warning() -> None:
    planning = Planning(2)
    x = planning.array(LARGE)
    with pytest.warns(CoexecWarning, match="runs undivided"):
        assert len(planning.devices(overlapping, x)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(planning.devices(overlapping, x)) == 1


def test_the_same_array_twice_is_divided_only_if_the_parts_stay_apart() -> None:
    planning = Planning(2)
    x = planning.array(LARGE)
    assert len(planning.devices(axpy, 2.0, x, x)) == 2
    with pytest.warns(CoexecWarning, match="same array twice"):
        assert len(planning.devices(axpy, 2.0, x[1:], x[:-1])) == 1


def test_a_reduction_is_cut_into_blocks_that_depend_on_the_shape_alone() -> None:
    cuts = []
    for devices in (1, 2, 3):
        planning = Planning(devices)
        x, total = planning.array(LARGE), planning.array()
        chunks = planning.plan(sum_up, x, total).command.chunks
        cuts.append([chunk.box for chunk in chunks])
        assert sorted({chunk.device for chunk in chunks}) == planning.g.devices
        assert [chunk.slot for chunk in chunks] == list(range(len(chunks)))
    assert cuts[0] == cuts[1] == cuts[2]


def test_a_device_that_cannot_hold_a_type_is_left_out_and_no_device_is_an_error() -> None:
    planning = Planning(2)
    x, y = planning.array(10), planning.array(10)
    planning.unsupported.add("float64")
    with pytest.raises(PlanError, match=r"axpy.*can hold float64"):
        planning.plan(axpy, 2.0, x, y)


def test_a_host_task_goes_to_the_host() -> None:
    @cx.host_task(x=cx.read)
    def show(x):
        pass

    planning = Planning(2)
    assert planning.devices(show, planning.array(LARGE)) == ["host"]


def test_policies_that_know_no_variants_choose_among_devices() -> None:
    """Round-robin goes from device to device, whatever the number of variants; the quicker variant is taken."""

    @cx.kernel(x=cx.update)
    def work(x):
        pass

    quick = work.variant(lambda x: None, name="quick")
    del quick
    work.variants[1].kind = "python"
    planning = Planning(2)
    x = planning.array(1 << 20)
    assert [planning.devices(work, x)[0] for _ in range(4)] == ["dev:0", "dev:1", "dev:0", "dev:1"]
    for pair in planning.planner._candidates.of(work, None).all:
        for _ in range(3):
            pair.model.learn(work_of(planning.task(work, x)), 1e-4 if pair.variant.name == "quick" else 1e-2)
    assert {planning.plan(work, x).shares[0].variant.name for _ in range(2)} == {"quick"}


def test_loads_count_every_chunk() -> None:
    planning = Planning(2)
    planning.plan(axpy, 2.0, planning.array(LARGE), planning.array(LARGE))
    assert planning.loads.tasks == {"dev:0": 1, "dev:1": 1}


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 1), st.integers(1, 9))
def test_even_parts_tile_the_box_and_differ_by_one_row_at_most(rows: int, columns: int, axis: int, count: int) -> None:
    box = whole((rows, columns))
    chunks = even(box, [axis], [f"d{i}" for i in range(count)])
    sizes = [chunk.box.shape[axis] for chunk in chunks]
    assert Region([chunk.box for chunk in chunks]) == Region([box]) and sum(c.box.volume for c in chunks) == box.volume
    assert max(sizes) - min(sizes) <= 1 and len(chunks) == min(count, box.shape[axis])
    assert len({chunk.device for chunk in chunks}) == len(chunks)


@given(st.integers(1, 50 * BLOCK_ELEMENTS), st.integers(1, 5), st.lists(st.floats(0, 1), max_size=4))
def test_blocks_are_bounded_and_dealt_in_runs(size: int, count: int, at: list[float]) -> None:
    parts = blocks(whole((size,)), 0)
    assert 1 <= len(parts) <= BLOCKS
    assert all(a.hi == b.lo for a, b in pairwise(parts))
    names = [f"d{i}" for i in range(count)]
    cuts = [0.0, *sorted(size * a for a in at), float(size)]
    for chunks in (deal_evenly(parts, names), deal(parts, 0, [f"d{i}" for i in range(len(cuts) - 1)], cuts)):
        assert [chunk.box for chunk in chunks] == parts
        devices = [chunk.device for chunk in chunks]
        assert devices == sorted(devices)
