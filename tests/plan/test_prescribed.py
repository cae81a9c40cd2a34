"""Placements as plain data: what they refuse, and into which parts they cut a call."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, PlanError
from coexec.geometry import Box, overlaps
from coexec.graph.call import describe
from coexec.graph.task import Task
from coexec.plan.prescribed import MemberPart, placed_parts
from coexec.plan.split import blocks
from coexec.program.array import Array
from coexec.program.call import DEFAULT
from coexec.program.kernel import Kernel
from coexec.program.storage import Storage


class Nobody:
    """Owns arrays that hold nothing."""

    checks = False
    closed = False

    def dropped(self, storage_id: int) -> None:
        """Forget nothing."""


NOBODY: Any = Nobody()


@cx.kernel(split=(0, 1), x=cx.read, out=cx.write)
def copied(x, out):
    out[...] = x


@cx.kernel(split=(0, 1), over="x", x=cx.read, s=cx.reduce("sum"))
def summed(x, s):
    s += x.sum()


@cx.kernel(split=0, x=cx.read, out=cx.write, weight=lambda rows: rows + 1.0)
def triangle(x, out):
    out[...] = x


@cx.kernel(split=0, granule=8, x=cx.read, out=cx.write)
def in_eights(x, out):
    out[...] = x


def array(*shape: int) -> Array:
    storage = Storage(NOBODY, shape, np.dtype(float))
    return Array(storage, storage.box, None)


def task_of(kernel: Kernel, *shape: int) -> Task:
    out = array() if kernel.reduces else array(*shape)
    return describe(kernel, [array(*shape), out], {}, DEFAULT, NOBODY)


def parts_of(task: Task, placement: cx.Placement, members: int) -> list[MemberPart]:
    return placed_parts(task, task.domain, placement, members)


def rows_of(parts: list[MemberPart], axis: int = 0) -> list[tuple[int, int]]:
    return [(p.box.lo[axis], p.box.hi[axis]) for p in sorted(parts, key=lambda p: p.member)]


def check_covered(box: Box, parts: list[MemberPart]) -> None:
    assert sum(p.box.volume for p in parts) == box.volume
    assert not any(overlaps(a.box, b.box) for a, b in combinations(parts, 2))
    assert sorted(p.slot for p in parts) == list(range(len(parts)))
    assert not any(p.box.empty for p in parts)


@st.composite
def placements(draw: Any) -> tuple[cx.Placement, int]:
    counts = draw(st.sampled_from([{0: 3}, {1: 4}, {0: 2, 1: 2}, {1: 2, 0: 3}, {0: 1, 1: 5}]))
    cut: dict[int, Any] = {}
    for axis, count in counts.items():
        weights = draw(st.none() | st.lists(st.integers(0, 9), min_size=count, max_size=count).filter(any))
        cut[axis] = count if weights is None else [w / sum(weights) for w in weights]
    members = int(np.prod(list(counts.values())))
    other = [axis for axis in (0, 1) if axis not in cut]
    rotate = draw(st.sampled_from([None, *other]))
    return cx.Placement([f"d{i}" for i in range(members)], cut, rotate=rotate), members


@given(placed=placements(), shape=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_every_point_belongs_to_one_member(placed: tuple[cx.Placement, int], shape: tuple[int, int]) -> None:
    placement, members = placed
    task = task_of(copied, *shape)
    parts = parts_of(task, placement, members)
    check_covered(task.domain, parts)
    assert all(0 <= p.member < members for p in parts)


@given(placed=placements(), shape=st.tuples(st.integers(1, 900), st.integers(1, 900)))
@settings(max_examples=40)
def test_a_reduction_keeps_its_blocks_along_its_first_axis(
    placed: tuple[cx.Placement, int], shape: tuple[int, int]
) -> None:
    placement, members = placed
    task = task_of(summed, *shape)
    parts = parts_of(task, placement, members)
    check_covered(task.domain, parts)
    axis = 0 if shape[0] > 1 else 1
    fixed = {(b.lo[axis], b.hi[axis]) for b in blocks(task.domain, axis)}
    assert {(p.box.lo[axis], p.box.hi[axis]) for p in parts} == fixed
    in_order = [p.box.lo for p in sorted(parts, key=lambda p: p.slot)]
    assert in_order == sorted(in_order)


def test_uneven_parts_by_share_and_by_rows() -> None:
    task = task_of(copied, 100, 7)
    assert rows_of(parts_of(task, cx.Placement("a,b,c", {0: (0.5, 0.3, 0.2)}), 3)) == [(0, 50), (50, 80), (80, 100)]
    assert rows_of(parts_of(task, cx.Placement("a,b,c", {0: (1, 98, 1)}), 3)) == [(0, 1), (1, 99), (99, 100)]
    assert rows_of(parts_of(task, cx.Placement("a,b,c", {0: (0.0, 0.999, 0.001)}), 3)) == [(0, 100)]


def test_shares_are_of_the_work() -> None:
    parts = parts_of(task_of(triangle, 100), cx.Placement("a,b", {0: (0.5, 0.5)}), 2)
    assert rows_of(parts) == [(0, 71), (71, 100)]


def test_parts_begin_at_granules() -> None:
    task = task_of(in_eights, 100)
    assert rows_of(parts_of(task, cx.Placement("a,b", {0: (0.5, 0.5)}), 2)) == [(0, 48), (48, 100)]
    with pytest.raises(PlanError, match="multiples of 8"):
        parts_of(task, cx.Placement("a,b", {0: (50, 50)}), 2)


def test_more_parts_than_rows_leave_members_without_work() -> None:
    parts = parts_of(task_of(copied, 3, 5), cx.Placement([f"d{i}" for i in range(8)], 0), 8)
    assert rows_of(parts) == [(0, 1), (1, 2), (2, 3)]


def test_members_take_the_cells_of_a_grid_in_order() -> None:
    parts = parts_of(task_of(copied, 4, 6), cx.Placement("a,b,c,d", {0: 2, 1: 2}), 4)
    assert [(p.member, p.box.lo) for p in parts] == [(0, (0, 0)), (1, (0, 3)), (2, (2, 0)), (3, (2, 3))]


def test_shards_go_around_a_ring() -> None:
    parts = parts_of(task_of(copied, 4, 8), cx.Placement("a,b,c,d", 0, rotate=1), 4)
    assert len(parts) == 16
    for phase in range(4):
        now = [p for p in parts if p.phase == phase]
        shards = {p.member: p.box.lo[1] // 2 for p in now}
        assert shards == {m: (m + phase) % 4 for m in range(4)}  # each with one member, then with its neighbour
        assert [p.box.lo[0] for p in now] == [0, 1, 2, 3]
    assert [p.phase for p in parts] == sorted(p.phase for p in parts)


@cx.kernel(split=(0, 1, 2), x=cx.read, out=cx.write)
def copied_3d(x, out):
    out[...] = x


def test_a_ring_of_those_that_differ_along_one_axis() -> None:
    placement = cx.Placement("a,b,c,d", {0: 2, 1: 2}, rotate=(2, 0))
    parts = parts_of(task_of(copied_3d, 2, 2, 2), placement, 4)
    check_covered(Box((0, 0, 0), (2, 2, 2)), parts)
    first = {p.member: p.box.lo for p in parts if p.phase == 0}
    assert first == {0: (0, 0, 0), 1: (0, 1, 0), 2: (1, 0, 1), 3: (1, 1, 1)}


def test_replicas_take_turns() -> None:
    placement = cx.Placement("a,b,c,d", 0, replicas=2)
    assert [placement.at(i).names for i in range(4)] == ["a,b", "c,d", "a,b", "c,d"]
    assert placement.at(0) == placement.at(2) == cx.Placement("a,b", 0)
    assert hash(placement.at(0)) == hash(placement.at(2))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: cx.Placement(""), "at least one device"),
        (lambda: cx.Placement("a,b", -1), "by number, from 0, not -1"),
        (lambda: cx.Placement("a,b", True), "by number"),
        (lambda: cx.Placement("a,b", {0: (0.5, 0.4)}), "whose sum is 1"),
        (lambda: cx.Placement("a,b", {0: (1.5, -0.5)}), "whose sum is 1"),
        (lambda: cx.Placement("a,b", {0: (float("nan"), 1.0)}), "whose sum is 1"),
        (lambda: cx.Placement("a,b", {0: (-1, 3)}), "less than no rows"),
        (lambda: cx.Placement("a,b", {0: "12"}), "neither a number of parts"),  # type: ignore[dict-item]
        (lambda: cx.Placement("a,b", {0: ()}), "neither a number of parts"),
        (lambda: cx.Placement("a,b,c,d", (0, 1)), "into how many parts each axis is cut"),
        (lambda: cx.Placement("a,b", (0, 0)), "an axis twice"),
        (lambda: cx.Placement("a,b", rotate=1), "cut one, as in cut=0"),
        (lambda: cx.Placement("a,b", 1, rotate=1), "cut one, as in cut=0"),
        (lambda: cx.Placement("a,b", 0, rotate=(1, 2)), "members differ along the axes"),
        (lambda: cx.Placement("a,b,c", replicas=2), "into equal groups"),
        (lambda: cx.Placement("a,b", replicas=0), "into equal groups"),
        (lambda: cx.Placement("a,b", replicas=2).at(-1), "numbered from 0"),
        (lambda: copied.using(placement="a,b"), "made by cx.Placement"),  # type: ignore[arg-type]
        (lambda: copied.using(placement=cx.Placement("a,b", replicas=2)), "placement.at"),
        (lambda: copied.using(placement=cx.Placement("a,b", 0), devices="a"), "name them in the placement"),
        (lambda: copied.using(placement=cx.Placement("a,b", 0), split=False), "split=False"),
        (lambda: copied.using(placement=cx.Placement("a,b", 0), policy="dynamic"), "cuts otherwise"),
        (lambda: copied.using(placement=cx.Placement("a,b", 0, rotate=1), oversubscribe=2), "order in which shards"),
    ],
)
def test_what_is_no_placement_is_refused(make: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        make()


@pytest.mark.parametrize(
    ("placement", "members", "what"),
    [
        (cx.Placement("a,b,c", {0: 2}), 3, "2 parts for 3 devices"),
        (cx.Placement("a,b,c,d", {0: 2, 1: 3}), 4, "2 x 3 parts for 4 devices"),
        (cx.Placement("a,b", 2), 2, "axis 2 cannot be cut: the kernel declares split="),
        (cx.Placement("a,b", {0: (4, 4)}), 2, "has 9 rows, and the parts .* have 8"),
        (cx.Placement("a,b", 0, rotate=3), 2, "axis 3 cannot be cut"),
    ],
)
def test_a_placement_that_does_not_fit_the_call_is_explained(placement: cx.Placement, members: int, what: str) -> None:
    with pytest.raises(PlanError, match=what):
        parts_of(task_of(copied, 9, 9), placement, members)


@given(placed=placements())
def test_a_placement_is_plain_data(placed: tuple[cx.Placement, int]) -> None:
    placement = placed[0]
    again = cx.Placement.from_dict(json.loads(json.dumps(placement.as_dict())))
    assert again == placement
    with pytest.raises(AttributeError):
        placement.replicas = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "data",
    [{}, {"devices": 3}, {"devices": "a", "cut": []}, {"devices": "a", "cuts": {}}, {"devices": "a", "rotate": [1]}],
)
def test_what_was_no_placement_is_refused_in_files(data: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="this is no placement"):
        cx.Placement.from_dict(data)
