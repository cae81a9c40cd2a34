"""What a shelf finds is what looking at all entries finds, in their order: it does not depend on what was filed before."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.geometry import Box, overlaps
from coexec.geometry.shelf import Shelf, meeting


def boxes() -> st.SearchStrategy[Box]:
    corner = st.tuples(st.integers(0, 40), st.integers(0, 6))
    return st.tuples(corner, st.integers(1, 20), st.integers(1, 3)).map(
        lambda drawn: Box(drawn[0], (drawn[0][0] + drawn[1], drawn[0][1] + drawn[2]))
    )


@given(st.lists(st.tuples(st.booleans(), boxes()), max_size=60), boxes())
def test_entries_are_found_in_the_order_of_the_dictionary_whatever_was_filed_before(
    changes: list[tuple[bool, Box]], asked: Box
) -> None:
    shelf: Shelf[int] = Shelf({})
    for number, (kept, box) in enumerate(changes):
        if kept or box not in shelf:
            shelf[box] = number
        else:
            del shelf[box]
    expected = [(box, value) for box, value in shelf.items() if overlaps(box, asked)]
    assert meeting(shelf, asked) == expected
    assert meeting(Shelf(dict(shelf)), asked) == expected
