"""Replay makes the instructions that analysis would have made, whatever repeats and whatever ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import DoesNotFit
from coexec.testing import GraphBuilder
from coexec.testing.model_memory import at_random, run_all
from tests.lower.loops import SIZE, Loop, Reach, Step, both, normalised, steps

STENCIL: list[Step] = [("smooth", 0, 1, 2)]


def alike(plain: Any, replayed: Any) -> None:
    a, b = normalised(plain.g.emitted), normalised(replayed.g.emitted)
    for number, (expected, found) in enumerate(zip(a, b, strict=False)):
        assert expected == found, f"instruction {number} of {len(a)} and {len(b)}"
    assert len(a) == len(b)


def turns(body: list[Step], count: int) -> Callable[[Loop], None]:
    def program(loop: Loop) -> None:
        for _ in range(count):
            loop.turn(body)

    return program


def test_a_stencil_that_swaps_its_arrays_is_replayed_after_three_turns() -> None:
    plain, replayed = both(4, peers=True, program=turns(STENCIL, 20))
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 10
    replayed.g.verify()


def test_new_arrays_take_the_place_of_dropped_ones() -> None:
    body: list[Step] = [("half", 0, 2, 2), ("add", 2, 3, 2)]
    plain, replayed = both(2, peers=True, program=turns(body, 20))
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 16


def test_a_host_read_in_each_turn_does_not_end_it() -> None:
    body: list[Step] = [("smooth", 0, 1, 2), ("total", 1, 0, 2), ("read", 1, 0, 0)]
    plain, replayed = both(2, peers=False, program=turns(body, 20))
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 5


def test_almost_all_of_many_turns_come_from_recipes() -> None:
    plain, replayed = both(2, peers=True, program=turns(STENCIL, 700))
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 690


def test_horizons_between_steps_do_not_end_it() -> None:
    def program(loop: Loop) -> None:
        for number in range(40):
            loop.turn(STENCIL)
            if number % 10 == 9:
                loop.g.horizon()

    plain, replayed = both(4, peers=True, program=program)
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 30


@pytest.mark.parametrize("turn", range(4, 9))
def test_a_range_mapper_that_answers_differently_ends_it(turn: int) -> None:
    def program(loop: Loop) -> None:
        try:
            for number in range(12):
                Reach.by = 3 if number == turn else 1
                loop.turn([("behind", 0, 1, 2), ("add", 1, 2, 2)])
        finally:
            Reach.by = 1

    alike(*both(2, peers=True, program=program))


def test_an_array_dropped_behind_calls_that_are_held_back_is_there_until_its_end_is_lowered() -> None:
    g = GraphBuilder(lookahead="auto", replay=True)
    large = g.array(8 * SIZE, 0.0)
    g.call("part", updates=large[:SIZE])  # held back: more of it may be needed
    for _ in range(6):
        g.drop(g.array(4, 0.0))
    assert g.lookahead.holding and len(g.lowering.states()) == 7
    g.flush()
    assert list(g.lowering.states()) == [large._storage.id]


BODIES = st.lists(steps(), min_size=1, max_size=6)


@settings(max_examples=150)
@given(st.data())
def test_any_loop_gives_the_same_instructions_whatever_interrupts_it(data: st.DataObject) -> None:
    devices, peers = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    body = data.draw(BODIES)
    turns = data.draw(st.integers(4, 12))
    others = data.draw(st.dictionaries(st.integers(3, turns), st.lists(steps(), max_size=3), max_size=2))
    cut = data.draw(st.dictionaries(st.integers(3, turns), st.integers(0, len(body)), max_size=1))
    horizons = data.draw(st.sets(st.integers(1, turns), max_size=4))
    lookahead = data.draw(st.sampled_from(["none", "auto"]))

    def program(loop: Loop) -> None:
        for number in range(turns):
            loop.turn(body[: cut.get(number, len(body))])
            if number in others:
                loop.turn(others[number])
            if number in horizons:
                loop.g.horizon()

    plain, replayed = both(devices, peers=peers, program=program, lookahead=lookahead)
    replayed.g.verify()
    if lookahead == "none":  # else a recipe does not wait to see how large an allocation becomes
        alike(plain, replayed)


@pytest.mark.parametrize("peers", [True, False])
def test_a_loop_whose_arrays_are_larger_than_a_memory_is_replayed_once_it_allocates_nothing(peers: bool) -> None:
    whole = 8 * SIZE
    plain, replayed = both(4, peers=peers, program=turns(STENCIL, 30), capacity=whole)  # of both arrays half fits
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 20
    replayed.g.verify()


@settings(max_examples=25)
@given(st.data())
def test_any_loop_in_limited_memories_gives_the_same_instructions(data: st.DataObject) -> None:
    devices, peers = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    body, turns = data.draw(BODIES), data.draw(st.integers(4, 12))
    others = data.draw(st.dictionaries(st.integers(3, turns), st.lists(steps(), max_size=3), max_size=2))
    horizons = data.draw(st.sets(st.integers(1, turns), max_size=4))
    capacity = 8 * data.draw(st.integers(SIZE, 8 * SIZE))

    def program(loop: Loop) -> None:
        with suppress(DoesNotFit):
            for number in range(turns):
                loop.turn(body)
                if number in others:
                    loop.turn(others[number])
                if number in horizons:
                    loop.g.horizon()

    plain, replayed = both(devices, peers=peers, program=program, capacity=capacity)
    replayed.g.verify()
    alike(plain, replayed)


@settings(max_examples=60)
@given(BODIES, st.integers(0, 2**16))
def test_replayed_instructions_compute_the_same_in_any_legal_order(body: list[Step], seed: int) -> None:
    def program(loop: Loop) -> None:
        for _ in range(8):
            loop.turn(body)
        loop.last = [loop.g.read(array) for array in loop.arrays]  # type: ignore[attr-defined]

    plain, replayed = both(2, peers=True, program=program)
    results = []
    for loop in (plain, replayed):
        assert run_all(loop.g.emitted, at_random(seed)) == {}
        results.append([loop.g.delivered[task.id] for task in loop.last])  # type: ignore[attr-defined]
    for expected, found in zip(*results, strict=True):
        np.testing.assert_array_equal(expected, found)


def test_a_horizon_that_stands_for_readers_is_waited_for_after_a_recipe_too() -> None:
    """A reader from before the horizon is gone from the tracker; whoever writes next waits for the horizon instead."""
    body: list[Step] = [("read", 3, 3, 3), ("ring", 1, 1, 0), ("behind", 1, 3, 2), ("odd", 0, 2, 0), ("read", 0, 3, 2)]

    def program(loop: Loop) -> None:
        for turn in range(9):
            loop.turn(body)
            if turn == 6:
                loop.turn([("add", 3, 1, 0)])
            if turn in (1, 6):
                loop.g.horizon()

    plain, replayed = both(1, peers=True, program=program)
    alike(plain, replayed)
    replayed.g.verify()
