"""From shapes to numbers: what a task, and a part of it, asks of a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ArgumentError
from coexec.geometry import Box, whole
from coexec.graph.call import describe
from coexec.graph.task import Task
from coexec.predict.features import (
    Rows,
    Sized,
    check_features,
    feature_names,
    flops_at,
    part_of,
    share_of_work,
    work_of,
    work_of_part,
)
from coexec.program.call import DEFAULT
from coexec.program.kernel import Kernel
from coexec.testing import GraphBuilder

G = GraphBuilder()


def task_of(kernel: Kernel, *arguments: object) -> Task:
    arrays, scalars = kernel.bind(arguments, {})
    task = Task(1, kernel.name, kernel, None)
    task.accesses, task.arrays, task.scalars = kernel.array_params, arrays, scalars
    task.extents, task.domain, task.key = kernel.space(arrays, scalars)
    return task


@cx.kernel(split=0, x=cx.read(cx.halo([(1, 1)], border="clip")), y=cx.write)
def plain(x, y):
    y[...] = x


@cx.kernel(
    split=0,
    x=cx.read,
    y=cx.write,
    flops=lambda x, times: 2.0 * x.size * times,
    features={"rows": lambda y: y.shape[0], "word": lambda y: y.dtype.itemsize},
)
def told(x, y, times, other):
    y[...] = x


@cx.kernel(split=0, y=cx.write, flops=3)
def per_point(y):
    y[...] = 0


def test_without_a_word_features_are_bytes_and_points() -> None:
    assert feature_names(plain) == ("bytes", "points", "bytes of x", "bytes of y")
    assert flops_at(plain) is None
    work = work_of(task_of(plain, G.array((10, 4)), G.array((10, 4))))
    assert work.features == (640.0, 40.0, 320.0, 320.0) and work.size == 640.0
    assert work.kind == "<f8 <f8"


def test_declared_functions_see_the_shapes_of_the_part_and_the_scalars() -> None:
    task = task_of(told, G.array((10, 4)), G.array((10, 4)), 7, 8)
    assert feature_names(told) == ("bytes", "points", "bytes of x", "bytes of y", "flops", "rows", "word")
    assert flops_at(told) == 4
    assert work_of(task).features[4:] == (2.0 * 40 * 7, 10.0, 8.0)
    part = work_of_part(task, Box((2, 0), (5, 4)))
    assert part.features[:2] == (2 * 12 * 8.0, 12.0) and part.features[4:] == (2.0 * 12 * 7, 3.0, 8.0)


def test_a_plain_number_counts_operations_per_point() -> None:
    assert work_of(task_of(per_point, G.array(50))).features[flops_at(per_point) or 0] == 150.0


def test_a_part_touches_what_its_range_mapper_says() -> None:
    task = task_of(plain, G.array((10, 4)), G.array((10, 4)))
    inner, edge = work_of_part(task, Box((4, 0), (6, 4))), work_of_part(task, Box((0, 0), (2, 4)))
    assert inner.features[2] == 4 * 4 * 8 and edge.features[2] == 3 * 4 * 8


def test_calls_are_alike_by_shape_and_by_the_scalars_that_features_look_at() -> None:
    a, b, c = (task_of(told, G.array(10), G.array(10), times, other) for times, other in ((1, 1), (1, 2), (2, 1)))
    assert work_of(a).key == work_of(b).key != work_of(c).key
    assert work_of(task_of(plain, G.array(10), G.array(10))) is work_of(task_of(plain, G.array(10), G.array(10)))
    half = work_of_part(a, Box((0,), (5,)))
    assert half.key == work_of_part(b, Box((5,), (10,))).key != work_of(a).key


def test_weighed_parts_have_no_history_of_their_shape() -> None:
    @cx.kernel(split=0, y=cx.write, flops=3.0, weight=lambda rows: np.where(rows < 5, 1.0, 3.0))
    def steep(y):
        y[...] = 1

    task = task_of(steep, G.array(10))
    heavy = work_of_part(task, Box((5,), (10,)))
    assert heavy.key is None and heavy.features[1] == 7.5 and heavy.features[-1] == 22.5
    assert work_of_part(task, task.domain).features[1] == 10.0, "the whole is its own average"
    assert work_of_part(task, Box((5,), (5,))).features[1] == 0.0


def test_the_shares_of_work_of_parts_that_make_up_a_task_add_up_to_one() -> None:
    @cx.kernel(split=(0, 1), y=cx.write, weight=lambda rows: rows + 1.0)
    def steep(y):
        y[...] = 1

    task = task_of(steep, G.array((6, 4)))
    tiles = [Box((i, j), (i + 3, j + 2)) for i in (0, 3) for j in (0, 2)]
    shares = [share_of_work(task, tile) for tile in tiles]
    assert sum(shares) == pytest.approx(1.0) and sorted(shares) == shares
    assert share_of_work(task, Box((0, 0), (3, 4))) == pytest.approx(6 / 21)
    assert share_of_work(task_of(per_point, G.array(10)), Box((0,), (3,))) == pytest.approx(0.3)


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), -float("inf")])
def test_features_that_make_no_sense_are_named(value) -> None:
    with pytest.raises(ArgumentError, match="kernel 'k': feature 'b' is"):
        check_features("k", ("a", "b"), (1.0, value))
    check_features("k", ("a", "b"), (0.0, 1e300))


def test_a_feature_that_asks_for_what_is_no_parameter_is_an_error() -> None:
    @cx.kernel(split=0, y=cx.write, flops=lambda nothing: 1.0)
    def lost(y):
        y[...] = 0

    with pytest.raises(ArgumentError, match=r"flops asks for 'nothing'.*\(y\)"):
        work_of(task_of(lost, G.array(3)))


def test_a_sized_array_shows_shapes_and_no_data() -> None:
    sized = Sized((3, 4), np.dtype("f4"))
    assert (sized.size, sized.nbytes, sized.ndim) == (12, 48, 2)


# Rows ---------------------------------------------------------------------------------------------------------------------


def weighed(rows: int, weights: np.ndarray | None, lo: int = 0) -> Rows:
    weight = None if weights is None else lambda at: weights[at - lo]
    kernel = cx.kernel(split=0, y=cx.write, weight=weight)(lambda y: None)
    return Rows(task_of(kernel, G.array(lo + rows)), Box((lo,), (lo + rows,)), 0)


def test_even_rows_are_their_own_work() -> None:
    rows = weighed(10, None)
    assert rows.even and rows.work(3.5) == 3.5 and rows.position(7) == 7


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30).filter(any), st.integers(0, 5))
def test_position_and_work_are_each_others_inverse(weights, lo) -> None:
    array = np.array(weights)
    if not (array > 1e-9).any():
        return
    rows = weighed(len(weights), array, lo)
    assert rows.work(0) == 0 and rows.work(len(weights)) == pytest.approx(len(weights))
    steps = [rows.work(i) for i in range(len(weights) + 1)]
    assert steps == sorted(steps)
    np.testing.assert_allclose(np.diff(steps), array / array.sum() * len(weights), atol=1e-9)
    for share in (0.1, 0.5, 0.9):
        work = share * len(weights)
        assert rows.work(rows.position(work)) == pytest.approx(work, abs=1e-9)


def test_long_axes_are_looked_at_in_steps() -> None:
    rows = 1_000_000
    found = Rows(
        task_of(cx.kernel(split=0, y=cx.write, weight=lambda at: at + 1.0)(lambda y: None), G.array(rows)),
        whole((rows,)),
        0,
    )
    assert found.position(rows / 2) == pytest.approx(rows * np.sqrt(0.5), rel=1e-3)


def test_a_part_of_a_box_counts_from_its_own_beginning() -> None:
    assert part_of(Box((5, 2), (9, 8)), 1, 1, 3) == Box((5, 3), (9, 5))


def test_a_feature_may_ask_for_the_length_of_an_array() -> None:
    """len() is the extent of the first axis, as NumPy has it."""

    @cx.kernel(split=0, x=cx.read(cx.all), y=cx.write, flops=lambda x, y: 20.0 * len(x) * len(y))
    def pairs(x: Any, y: Any) -> None:
        y[...] = x.sum()

    g = GraphBuilder()
    task = describe(pairs, [g.array((30, 3)), g.array(50)], {}, DEFAULT, g)
    assert work_of(task).features[-1] == 20.0 * 30 * 50


def test_a_part_that_is_the_whole_task_is_known_as_the_task_is() -> None:
    @cx.kernel(
        split=0, x=cx.read(cx.halo(1, border="inside")), y=cx.write, total=cx.reduce("sum", fresh=True), flops=2.0
    )
    def add(x: Any, y: Any, total: Any) -> None:
        y[...] = x[1:-1]
        total += y.sum()

    task = task_of(add, G.array((66,)), G.array((66,)), G.array(()))
    assert work_of_part(task, task.domain) is work_of(task)
    assert work_of_part(task, part_of(task.domain, 0, 0, 32)) != work_of(task)
