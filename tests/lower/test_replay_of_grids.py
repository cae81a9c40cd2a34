"""Loops over grids give the same instructions with replay and without, in every mode and with little memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import DoesNotFit
from coexec.testing import at_random, run_all
from tests.lower.test_replay import alike
from tests.lower.wide_loops import Step, Wide, steps

BODIES = st.lists(steps(), min_size=1, max_size=6)


def both(devices: int, program: Callable[[Wide], None], **options: Any) -> tuple[Wide, Wide]:
    """Run a program without replay and with it; both may end for lack of memory, at the same place."""
    loops = Wide(devices, replay=False, **options), Wide(devices, replay=True, **options)
    ends = []
    for loop in loops:
        try:
            program(loop)
            ends.append("")
        except DoesNotFit as error:
            ends.append(str(error))
    assert bool(ends[0]) == bool(ends[1]), ends
    return loops


LEAPFROG: list[Step] = [("leap", 1, 3, 2), ("measure", 3, 0, 2), ("read", 0, 0, 0)]


@pytest.mark.parametrize("named", [False, True])
def test_arrays_that_are_old_for_two_turns_are_replayed(named: bool) -> None:
    def program(loop: Wide) -> None:
        for _ in range(24):
            loop.turn(LEAPFROG)

    plain, replayed = both(3, program, named=named)
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 3
    assert replayed.step is None or replayed.step.replayed >= 9


@pytest.mark.parametrize("what", ["given", "keep"])
def test_arrays_that_come_with_contents_are_replayed(what: str) -> None:
    def program(loop: Wide) -> None:
        for _ in range(60):
            loop.turn([(what, 1, 0, 2), ("tiles", 0, 3, 2)])

    plain, replayed = both(2, program)
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 5


@pytest.mark.parametrize("turns", range(5, 12))
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_horizon_finds_arrays_that_were_made_several_turns_ago(turns: int, place: int) -> None:
    def program(loop: Wide) -> None:
        for _ in range(turns):
            loop.turn([("touch", 3, 3, 0), ("touch", 1, 1, 1), ("lent", 2, place, 2)])
        loop.g.horizon()
        for array in loop.arrays:
            loop.g.read(array)

    alike(*both(2, program, named=True))


def test_an_array_that_a_kernel_reads_twice_has_it_as_its_reader_once() -> None:
    def program(loop: Wide) -> None:
        for _ in range(7):
            loop.turn([("cross", 1, 0, 0), ("leap", 0, 1, 0)])

    plain, replayed = both(1, program)
    replayed.g.verify()
    alike(plain, replayed)


def test_copies_of_many_pieces_come_in_the_order_in_which_these_were_written() -> None:
    def program(loop: Wide) -> None:
        for number in range(8):
            loop.turn([("moving", 1, 3, 1), ("cross", 1, 2, 2), ("part", 0, 3, 0)])
            if number == 3:
                loop.turn([])

    alike(*both(3, program, peers=False))


@settings(max_examples=120)
@given(st.data())
def test_any_loop_over_grids_gives_the_same_instructions(data: st.DataObject) -> None:
    body = data.draw(BODIES)
    turns = data.draw(st.integers(6, 16))
    others = data.draw(st.dictionaries(st.integers(3, turns), st.lists(steps(), max_size=2), max_size=2))
    marks = data.draw(st.dictionaries(st.integers(1, turns), st.sampled_from(["horizon", "epoch", "both"]), max_size=3))
    cut = data.draw(st.dictionaries(st.integers(3, turns), st.integers(0, len(body)), max_size=1))
    options = {
        "named": data.draw(st.booleans()),
        "peers": data.draw(st.booleans()),
        "lookahead": data.draw(st.sampled_from(["none", "none", "auto"])),
        "capacity": data.draw(st.sampled_from([None, None, 6000, 3000])),
    }

    def program(loop: Wide) -> None:
        for number in range(turns):
            loop.turn(body[: cut.get(number, len(body))])
            if number in others:
                loop.turn(others[number])
            if marks.get(number) in ("horizon", "both"):
                loop.g.horizon()
            if marks.get(number) in ("epoch", "both"):
                loop.g.epoch()
        loop.g.flush()

    plain, replayed = both(data.draw(st.integers(1, 3)), program, **options)
    replayed.g.verify()
    if options["lookahead"] == "none":  # else a recipe does not wait to see how large an allocation becomes
        alike(plain, replayed)


@settings(max_examples=40)
@given(BODIES, st.integers(0, 2**16), st.sampled_from([1, 2, 3, 5]))
def test_replayed_grids_hold_the_same_values_in_any_legal_order(body: list[Step], seed: int, horizon: int) -> None:
    results = []
    for replay in (False, True):
        loop = Wide(2, replay=replay)
        for number in range(10):
            loop.turn(body)
            if number % horizon == horizon - 1:
                loop.g.horizon()
        last = [loop.g.read(array) for array in (*loop.arrays, loop.low, loop.sums)]
        assert run_all(loop.g.emitted, at_random(seed)) == {}
        results.append([loop.g.delivered[task.id] for task in last])
    for expected, found in zip(*results, strict=True):
        np.testing.assert_array_equal(expected, found)


def test_a_range_mapper_that_raises_leaves_the_replay_as_it_was() -> None:
    class Mood:
        good = True

    def mapped(chunk: Any) -> slice:
        if not Mood.good:
            raise RuntimeError("not today")
        return slice(chunk.lo[0], chunk.hi[0])

    @cx.kernel(split=0, u=cx.read(mapped), out=cx.update)
    def moody(u: Any, out: Any) -> None:
        out += u

    def program(loop: Wide) -> None:
        with loop.g:
            for turn in range(16):
                moody.using(devices=",".join(loop.g.devices))(loop.arrays[0], loop.arrays[1])
                Mood.good = turn not in (8, 9)
                if not Mood.good:
                    with pytest.raises(RuntimeError, match="not today"):
                        moody.using(devices=",".join(loop.g.devices))(loop.arrays[1], loop.arrays[0])
                    Mood.good = True
                moody.using(devices=",".join(loop.g.devices))(loop.arrays[1], loop.arrays[0])

    plain, replayed = both(2, program)
    alike(plain, replayed)
    assert replayed.g.recipes.recalled >= 3
