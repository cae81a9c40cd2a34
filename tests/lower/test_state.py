"""Who touched a backing last is told without unfolding what is remembered of its array."""

from __future__ import annotations

import numpy as np

from coexec.geometry import Box
from coexec.geometry.region_map import Pattern
from coexec.graph.instruction import Allocation
from coexec.lower.state import ArrayState, Backing, StateForm


def backing() -> Backing:
    return Backing(Allocation(0, 1, 7, Box((0,), (8,)), np.dtype("f4")), 5)


def test_a_backing_tells_who_touched_it_from_its_tracker() -> None:
    found = backing()
    assert found.touched_by({5, 6}) and not found.touched_by({6})


def test_a_folded_backing_tells_it_from_the_ids_of_its_form_which_stays() -> None:
    found = backing()
    state: ArrayState = ArrayState(7, found.box, np.dtype("f4"), None)
    state.fold(StateForm(Pattern(state.valid), (), 2, frozenset({1})), [3, [4, 8]])
    found.state = state
    assert [id for id in range(10) if found.touched_by({id})] == [3, 4, 8]
    assert state.form is not None
