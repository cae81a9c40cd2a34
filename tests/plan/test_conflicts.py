"""Parts that would touch each other's outputs: found by element, named, and run undivided."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.geometry import Box, cut
from coexec.graph.call import describe
from coexec.plan.conflicts import apart, find_conflict
from coexec.program.call import DEFAULT
from coexec.program.view import extract
from coexec.testing.graphs import GraphBuilder
from tests.devices import TWO


def run(kernel, *args):
    kernel.using(devices=TWO, policy="even")(*args)


@pytest.mark.parametrize(
    ("mapper", "where"),
    [
        (cx.all, r"\[0:8\]"),
        (cx.fixed(slice(2, 5)), r"\[2:5\]"),
        (cx.halo(1), r"\[3:5\]"),
        (lambda c: slice(0, c.hi[0]), r"\[0:4\]"),
        (lambda c: [slice(c.lo[0], c.hi[0]), 7], r"\[7:8\]"),
    ],
)
def test_overlapping_writes_run_undivided_and_the_warning_names_them(mapper, where) -> None:
    @cx.kernel(split=0, over=8, x=cx.update(mapper))
    def wide(x):
        x += 1

    with cx.Runtime(TWO):
        x = cx.zeros(8)
        message = rf"kernel 'wide' .*undivided: part \[0:4\] writes .* as 'x' and part \[4:8\] writes .* share {where}"
        with pytest.warns(cx.CoexecWarning, match=message):
            run(wide, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(wide, x)  # said once
        assert np.asarray(x).max() == 2.0


def test_an_axis_that_comes_whole_is_written_by_everybody() -> None:
    @cx.kernel(split=1, x=cx.read, sums=cx.write(cx.axis(1)), out=cx.write)
    def rows(x, sums, out):
        sums[...] = x.sum(axis=1, keepdims=True)
        out[...] = x

    with cx.Runtime(TWO):
        x, sums = cx.ones((4, 6)), cx.empty((4, 6))
        with pytest.warns(cx.CoexecWarning, match=r"as 'sums' .* share \[0:4, 0:6\]"):
            rows.using(devices=TWO, policy="even")(x, sums, cx.empty((4, 6)))
        assert np.asarray(sums).tolist() == [[6.0] * 6] * 4


def test_an_output_without_the_axis_that_is_cut_is_written_by_everybody() -> None:
    @cx.kernel(split=1, over="x", x=cx.read, sums=cx.write)
    def rows(x, sums):
        sums[...] = x.sum(axis=1)

    with cx.Runtime(TWO):
        sums = cx.empty(4)
        with pytest.warns(cx.CoexecWarning, match=r"share \[0:4\]"):
            run(rows, cx.ones((4, 6)), sums)
        assert np.asarray(sums).tolist() == [6.0] * 4


def test_a_reduction_whose_blocks_would_overlap_is_one_block() -> None:
    @cx.kernel(split=0, over="x", x=cx.read, seen=cx.update(cx.all), total=cx.reduce("sum"))
    def count(x, seen, total):
        seen += 1
        total += x.sum()

    with cx.Runtime(TWO):
        x, seen, total = cx.ones(1 << 18), cx.zeros(3), cx.zeros(())
        with pytest.warns(cx.CoexecWarning, match="as 'seen'"):
            run(count, x, seen, total)
        assert float(total) == 1 << 18
        assert np.asarray(seen).tolist() == [1.0] * 3


def test_red_and_black_points_of_one_array_are_not_in_each_others_way() -> None:
    @cx.kernel(split=0, red=cx.update, black=cx.read)
    def sweep(red, black):
        red += black

    with cx.Runtime(TWO), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = cx.array(np.arange(16.0))
        run(sweep, x[::2], x[1::2])
        assert np.asarray(x)[::2].tolist() == [4.0 * i + 1 for i in range(8)]


@given(st.data())
def test_conflicts_are_found_exactly_if_parts_share_an_element(data) -> None:
    number = st.integers(0, 5)

    def mapper():
        kind = data.draw(st.sampled_from(["same", "all", "halo", "axes", "fixed", "boxes"]))
        a, b, n = data.draw(number), data.draw(number), data.draw(st.integers(0, 2))
        return {
            "same": cx.same,
            "all": cx.all,
            "halo": cx.halo(n),
            "axes": cx.halo(n, shape="axes"),
            "fixed": cx.fixed(slice(min(a, b), max(a, b))),
            "boxes": lambda c: [slice(c.lo[0] - a, c.hi[0] - a), slice(c.lo[0] + b, c.hi[0] + b)],
        }[kind]

    def view():
        array = arrays[data.draw(st.integers(0, 1))]
        cuts = [(slice(None), slice(None)), (slice(None, None, 2), slice(None)), (slice(1, None, 2), slice(None))]
        return array[data.draw(st.sampled_from(cuts))]

    g = GraphBuilder(1)
    arrays = [g.array((12, 4)), g.array((12, 4))]
    with g:
        first, second = view(), view()
        space = (min(first.shape[0], second.shape[0]), 4)
        first, second = first[: space[0]], second[: space[0]]

        @cx.kernel(split=(0, 1), over=space, x=cx.read(mapper()), y=cx.update(mapper()))
        def use(x, y):
            pass

        task = describe(use, [first, second], {}, DEFAULT, g)
    axis = data.draw(st.integers(0, 1))
    parts = cut(task.domain, axis, data.draw(st.integers(2, 4)))
    touched = [[_elements(task, p, a, part) for p, a in zip(task.accesses, task.arrays, strict=True)] for part in parts]
    shared = any(
        mine & theirs
        for i, part in enumerate(touched)
        for j, other in enumerate(touched)
        if i != j
        for theirs, mine in [(part[1], other[0]), (part[1], other[1])]
    )
    assert (find_conflict(task, parts) is not None) == shared
    if apart(task) and first._storage is not second._storage:
        assert not shared


def _elements(task, param, array, part: Box) -> set[tuple[int, int]]:
    """Return what a part touches: the storage, and the number of the element in it."""
    numbers = np.arange(array._storage.box.volume).reshape(array._storage.box.shape)
    seen = extract(numbers, (0, 0), array._box, array._cut)
    boxes = param.access.mapper.boxes(part, task.extents, array.shape)
    return {(array._storage.id, int(n)) for box in boxes for n in seen[box.slices((0, 0))].ravel()}
