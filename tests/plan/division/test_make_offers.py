"""Where arrays are, in one pass over their pieces, against looking at every memory by itself."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.geometry import Box, RegionMap, cut, whole
from coexec.plan.division.make_offers import Places, memories
from tests.geometry.brute import SIDE, boxes

MEMORIES = (1, 2, 3, 70, 200)
masks = st.sets(st.sampled_from(MEMORIES)).map(lambda some: sum(1 << memory for memory in some))
cases = st.integers(1, 2).flatmap(
    lambda ndim: st.tuples(st.lists(st.tuples(boxes(ndim), masks), max_size=8), st.integers(0, ndim - 1), st.just(ndim))
)


def holes(pieces, memory):
    return [box for box, mask in pieces if mask and not mask >> memory & 1]


def longest(pieces, memory, axis, start, rows):
    """Return the longest run of rows without a hole, row by row."""
    lacking = holes(pieces, memory)
    free = [not any(box.lo[axis] <= row + start < box.hi[axis] for box in lacking) for row in range(rows)]
    runs = [(lo, hi) for lo in range(rows) for hi in range(lo + 1, rows + 1) if all(free[lo:hi])]
    return min(runs, key=lambda run: (run[0] - run[1], run[0]), default=(0, 0))


@given(cases, st.integers(0, 3), st.integers(0, SIDE))
def test_what_a_memory_lacks_and_has_is_what_looking_at_it_alone_shows(case, start, rows):
    steps, axis, ndim = case
    table = RegionMap(whole((SIDE,) * ndim), 0)
    for box, mask in steps:
        table.set(box, mask)
    pieces = table.entries()
    rows = min(rows, SIDE - start)
    places = Places(pieces, axis, start, rows)
    for memory in (*MEMORIES, 5):  # nobody has anything in memory 5
        assert places.absent(memory) == sum(box.volume for box in holes(pieces, memory))
        assert places.present(memory) == longest(pieces, memory, axis, start, rows)


def test_what_is_lacking_comes_from_those_who_have_the_rows_next_to_it() -> None:
    bands = cut(whole((12, 4)), 0, 3)
    places = Places([(band, 1 << 2 + i) for i, band in enumerate(bands)], 0, 0, 12)
    assert places.sources(2) == [1 << 3]
    assert places.sources(3) == [1 << 2, 1 << 4]
    assert places.sources(9) == []  # it has nothing, and the rows are spread
    assert places.anybody(9) == 1 << 2 and places.anybody(2) == 1 << 3


def test_the_widest_piece_stands_for_a_row() -> None:
    """A rim that only the host has does not hide where the rest is."""
    rims, parts = cut(Box((0, 0), (8, 1)), 0, 2), cut(Box((0, 1), (8, 8)), 0, 2)
    places = Places([(rims[0], 0b110), (rims[1], 0b10), (parts[0], 0b100), (parts[1], 0b1000)], 0, 0, 8)
    assert places.present(2) == (0, 4) and places.sources(2) == [0b1000]


def test_what_one_memory_has_comes_from_there() -> None:
    places = Places([(whole((8,)), 0b1100)], 0, 0, 8)
    assert places.sources(4) == [0b1100]
    assert places.present(2) == (0, 8) and not places.absent(3)


def test_the_bits_of_a_mask_are_its_memories() -> None:
    assert list(memories(0)) == [] and list(memories(1 | 1 << 62 | 1 << 300)) == [0, 62, 300]
