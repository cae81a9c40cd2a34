from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, strategies as st

from coexec.backend.opencl.layout import (
    StripCopy,
    binding_layout,
    dense_strides,
    dividing_group,
    folded,
    launches,
    rounded,
    strips,
)
from coexec.geometry import Box, whole
from coexec.program.view import Cut, extract


class Cutout(NamedTuple):
    steps: tuple[int, ...]
    axes: tuple[int, ...]


@st.composite
def boxes_within(draw, shape):
    lo = tuple(draw(st.integers(0, extent - 1)) for extent in shape)
    return Box(lo, tuple(draw(st.integers(low + 1, extent)) for low, extent in zip(lo, shape, strict=True)))


@st.composite
def cuts(draw):
    """An allocation's box, a tight hull inside it, and a cut."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    held = whole(shape).translate(tuple(draw(st.integers(0, 5)) for _ in shape))
    hull = draw(boxes_within(shape)).translate(held.lo)
    steps = tuple(draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape)
    tight = tuple(lo + (hi - 1 - lo) // abs(s) * abs(s) + 1 for lo, hi, s in zip(*hull, steps, strict=True))
    hull = Box(hull.lo, tight)
    dropped = [a for a in range(len(shape)) if hull.shape[a] == 1 and draw(st.booleans())]
    axes = draw(st.permutations([a for a in range(len(shape)) if a not in dropped] + [-1] * draw(st.integers(0, 1))))
    return held, hull, Cut(steps, tuple(axes))


@given(cuts())
def test_start_and_strides_find_the_elements_that_numpy_finds(case):
    held, hull, cut = case
    data = np.arange(held.volume).reshape(held.shape)
    layout = binding_layout(held, hull, cut)
    expected = extract(data, held.lo, hull, cut)
    assert layout.shape == expected.shape
    for index in np.ndindex(layout.shape):
        at = layout.start + sum(i * stride for i, stride in zip(index, layout.strides, strict=True))
        assert data.reshape(-1)[at] == expected[index]


def test_without_a_cut_the_hull_itself_is_the_parameter():
    assert binding_layout(Box((2, 0), (6, 5)), Box((3, 1), (5, 4)), None) == (6, (5, 1), (2, 3))


def test_a_cut_needs_only_steps_and_axes():
    assert binding_layout(whole((6,)), whole((6,)), Cutout((-1,), (0,))) == (5, (-1,), (6,))
    assert binding_layout(whole((6, 2)), Box((3, 1), (4, 2)), Cutout((1, 1), ())) == (7, (), ())


@st.composite
def moves(draw):
    """A box, and two allocations that hold it."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=5)))
    box = whole(shape).translate((7,) * len(shape))

    def around(box):
        below, above = ([draw(st.sampled_from([0, 0, 1, 2])) for _ in shape] for _ in range(2))
        return box.grow(tuple(below), tuple(above))

    return box, around(box), around(box), draw(st.sampled_from([1, 4, 12]))


def offsets(start: int, pitches: tuple[int, int], strip: StripCopy) -> Any:
    z, y, x = np.ogrid[: strip.slices, : strip.rows, : strip.run]
    return (start + z * pitches[1] + y * pitches[0] + x).reshape(-1)


@given(moves())
def test_strips_move_every_byte_of_the_box_once_and_no_other(case):
    box, source, target, itemsize = case
    before = np.arange(source.volume * itemsize).reshape(*source.shape, itemsize)
    after = np.full(target.volume * itemsize, -1)
    for strip in strips(box, source, target, itemsize):
        to = offsets(strip.target, strip.target_pitches, strip)
        assert (after[to] == -1).all()
        after[to] = before.reshape(-1)[offsets(strip.source, strip.source_pitches, strip)]
    after = after.reshape(*target.shape, itemsize)
    assert np.array_equal(after[box.slices(target.lo)], before[box.slices(source.lo)])
    assert (after == -1).sum() == (target.volume - box.volume) * itemsize


@given(moves())
def test_strips_are_legal_rectangles_for_opencl(case):
    for strip in strips(*case):
        for row, plane in (strip.source_pitches, strip.target_pitches):
            if strip.rows * strip.slices > 1:
                assert row >= strip.run and plane >= row * strip.rows and plane % row == 0


def test_what_is_contiguous_on_both_sides_is_one_run():
    whole_rows = Box((2, 0, 0), (5, 4, 6))
    assert list(strips(whole_rows, Box((0, 0, 0), (9, 4, 6)), whole_rows, 4)) == [StripCopy(2 * 24 * 4, 0, 3 * 24 * 4)]


def test_a_part_of_a_cube_is_one_rectangle():
    found = list(strips(Box((1, 1, 1), (3, 3, 3)), whole((4, 4, 4)), whole((5, 5, 5)), 2))
    assert found == [StripCopy(42, 62, 4, 2, 2, (8, 32), (10, 50))]


def covered(shape: tuple[int, ...], **options) -> np.ndarray:
    """Count how often each point of the folded index space is visited."""
    size = folded(shape)
    count = np.zeros(size, int)
    for launch in launches(shape, **options):
        assert launch.group is not None and np.prod(launch.group) <= options["largest"]
        assert all(extent % block == 0 for extent, block in zip(launch.size, launch.group, strict=True))
        inside = [(o, min(o + s, n)) for o, s, n in zip(launch.offset, launch.size, size, strict=True)]
        outside = any(o + s > n for o, s, n in zip(launch.offset, launch.size, size, strict=True))
        assert launch.checked or not outside
        count[tuple(slice(a, b) for a, b in inside)] += 1
    return count


@given(st.lists(st.integers(1, 9), max_size=3), st.sampled_from([0, 63, 64, 1000, 2500]), st.booleans())
def test_launches_visit_every_point_once(shape, extra, exact):
    shape = (*shape, extra) if extra else tuple(shape)
    assert (covered(shape, exact=exact, largest=256) == 1).all()
    assert (covered(shape, exact=exact, largest=4096) == 1).all()


def test_on_a_cpu_all_but_a_rest_runs_without_a_check():
    assert [
        (launch.size, launch.group, launch.checked) for launch in launches((10_000,), exact=True, largest=4096)
    ] == [
        ((9216,), (1024,), False),
        ((768,), (64,), False),
        ((64,), (64,), True),
    ]


def test_elsewhere_one_launch_does_it_all():
    assert [launch.size for launch in launches((10_000,), exact=False, largest=256)] == [(10_048,)]


def test_many_rows_of_few_columns_are_grouped_along_the_rows():
    assert launches((4096, 3), exact=True, largest=4096)[0].group == (1, 1024)


def test_a_device_without_groups_gets_groups_of_one():
    assert [launch.group for launch in launches((10,), exact=True, largest=1)] == [(1,)]


def test_small_helpers():
    assert dense_strides((2, 0, 3)) == (3, 3, 1)
    assert folded(()) == (1,) and folded((2, 3, 4, 5)) == (5, 4, 6)
    assert rounded((10, 3), (4, 1)) == (12, 3)
    assert dividing_group((80, 7), 4096) == (16, 1) and dividing_group((7,), 4096) == (1,)
