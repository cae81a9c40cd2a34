"""Which elements a chunk touches, exactly: every range mapper against sets of elements counted one by one."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.geometry import Box, bounding, overlaps, whole
from coexec.program.mapper import Mapper
from coexec.program.user_mappers import as_mapper

Cells = set[tuple[int, ...]]
MODES: dict[Any, str | None] = {
    "clip": None,
    "inside": None,
    3.5: None,
    "wrap": "wrap",
    "edge": "edge",
    "reflect": "reflect",
}


def cells(box: Box) -> Cells:
    return set(product(*(range(lo, hi) for lo, hi in zip(box.lo, box.hi, strict=True))))


def check(mapper: Mapper, chunk: Box, space: tuple[int, ...], shape: tuple[int, ...], expected: Cells) -> None:
    """Compare boxes and hull with the elements that are expected."""
    boxes = mapper.boxes(chunk, space, shape)
    assert not any(box.empty for box in boxes)
    assert not any(overlaps(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert set().union(*map(cells, boxes)) == expected
    hull = mapper.box(chunk, space, shape)
    assert hull == bounding(boxes) if boxes else hull.empty


@st.composite
def chunks(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    """Draw a box inside an array that is not empty."""
    lo = tuple(draw(st.integers(0, size - 1)) for size in shape)
    return Box(lo, tuple(draw(st.integers(a + 1, size)) for a, size in zip(lo, shape, strict=True)))


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize("form", ["box", "axes"])
@pytest.mark.parametrize("border", MODES)
@given(st.data())
def test_a_halo_is_what_each_point_of_the_chunk_needs(border, form, data) -> None:
    shape = data.draw(shapes)
    chunk = data.draw(chunks(shape))
    widths = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=len(shape)))
    widths += [(0, 0)] * (len(shape) - len(widths))
    mode = MODES[border]
    numbers = np.arange(np.prod(shape)).reshape(shape)
    how: dict[str, Any] = {"mode": mode} if mode else {"mode": "constant", "constant_values": -1}
    padded = np.pad(numbers, widths, **how)
    expected: Cells = set()
    for offsets in product(*(range(-before, after + 1) for before, after in widths)):
        if form == "box" or sum(o != 0 for o in offsets) <= 1:
            seen = padded[tuple(slice(*[e + o + w[0] for e in ends]) for ends, o, w in zip(
                zip(chunk.lo, chunk.hi, strict=True), offsets, widths, strict=True))]  # fmt: skip
            expected |= {tuple(map(int, np.unravel_index(n, shape))) for n in seen.ravel() if n >= 0}
    check(cx.halo(widths, border, shape=form), chunk, shape, shape, expected)


@given(st.data())
def test_a_halo_takes_further_axes_whole(data) -> None:
    shape = data.draw(shapes)
    more = data.draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    chunk = data.draw(chunks(shape))
    mapper = cx.halo(1, shape="axes")
    inner = mapper.boxes(chunk, shape, shape)
    expected = {c + m for box in inner for c in cells(box) for m in cells(whole(more))}
    check(mapper, chunk, shape, shape + more, expected)


@given(st.data())
def test_other_mappers_name_one_box(data) -> None:
    shape = data.draw(shapes)
    chunk = data.draw(chunks(shape))
    axis = data.draw(st.integers(0, len(shape) - 1))
    check(cx.same, chunk, shape, shape, cells(chunk))
    check(cx.all, chunk, shape, shape, cells(whole(shape)))
    line = {(*c[:axis], i, *c[axis + 1 :]) for c in cells(chunk) for i in range(shape[axis])}
    check(cx.axis(axis), chunk, shape, shape, line)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 5), st.data())
def test_even_deals_granules_to_the_first_and_the_rest_to_the_last(points, rows, granularity, data) -> None:
    mapper = cx.even(granularity)
    slabs = [mapper.box(Box((i,), (i + 1,)), (points,), (rows, 2)) for i in range(points)]
    assert slabs[0].lo == (0, 0) and slabs[-1].hi == (rows, 2)
    assert all(a.hi[0] == b.lo[0] for a, b in pairwise(slabs))
    granules = [slab.shape[0] // granularity for slab in slabs]
    base, extra = divmod(rows // granularity, points)
    assert granules == [base + (i < extra) for i in range(points)]
    assert all(slab.shape[0] % granularity == 0 for slab in slabs[:-1])
    chunk = data.draw(chunks((points,)))
    expected = set().union(*(cells(slab) for slab in slabs[chunk.lo[0] : chunk.hi[0]]))
    check(mapper, chunk, (points,), (rows, 2), expected)


def test_even_needs_a_one_dimensional_index_space() -> None:
    for shape, space in (((4,), (2, 2)), ((), (2,))):
        with pytest.raises(ShapeError, match=r"cx\.even"):
            cx.even().check("x", shape, space)
    with pytest.raises(ArgumentError, match="granularity"):
        cx.even(0)


@st.composite
def answers(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, Cells]:
    """Draw what a function might return, and the elements that it means."""
    parts, expected = [], set()
    for _ in range(draw(st.integers(0, 4))):
        entries: list[Any] = []
        picked = []
        for size in shape[: draw(st.integers(0, len(shape)))]:
            start, stop = draw(st.integers(-2, size + 2)), draw(st.integers(-2, size + 2))
            kind = draw(st.sampled_from(["slice", "integer", "numpy", "open"]))
            if kind == "slice":
                entries.append(slice(start, stop))
                picked.append([i for i in range(size) if start <= i < stop])
            elif kind == "open":
                entries.append(slice(None))
                picked.append(list(range(size)))
            else:
                entries.append(start if kind == "integer" else np.int64(start))
                picked.append([i for i in range(size) if i == start])
        picked += [list(range(size)) for size in shape[len(entries) :]]
        parts.append(tuple(entries))
        expected |= set(product(*picked))
    return parts, expected


@given(st.data())
def test_a_function_means_exactly_the_boxes_that_it_names(data) -> None:
    shape = data.draw(shapes)
    answer, expected = data.draw(answers(shape))
    check(as_mapper(lambda chunk: answer), whole(shape), shape, shape, expected)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("rows", "neither an integer nor a slice"),
        (1.5, "neither an integer nor a slice"),
        (slice(0.5, 2), "neither an integer nor a slice"),
        (slice(0, 4, 2), "no step"),
        ((0, 0, 0), "2 axes"),
        ([slice(0, 1), None], "neither an integer nor a slice"),
    ],
)
def test_a_function_that_returns_nonsense_is_told_what_for_which_chunk(answer, why) -> None:
    def pick(chunk):
        return answer

    with pytest.raises(ArgumentError, match=rf"range mapper pick returned .* for chunk \[0:2, 0:3\]: .*{why}"):
        as_mapper(pick).boxes(whole((2, 3)), (2, 3), (2, 3))


def test_mappers_are_equal_when_they_map_alike() -> None:
    assert cx.halo(1, shape="axes") == cx.halo(1, shape="axes") != cx.halo(1)
    assert cx.even(2) == cx.even(2) != cx.even(3)
    assert repr(cx.halo(1, shape="axes")).endswith("shape='axes')") and repr(cx.even(2)) == "even(2)"
    with pytest.raises(ArgumentError, match="shape='cross' is not one of box, axes"):
        cx.halo(1, shape="cross")
