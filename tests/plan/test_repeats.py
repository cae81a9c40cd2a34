"""Repetition in what a program does: found by what happens to which arrays, new ones in the place of old ones."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from coexec.plan.repeats import LONGEST, Event, Repeats, repeats


class Program:
    """Events as a program would make them."""

    def __init__(self) -> None:
        self.found = Repeats()
        self.born = 0

    def made(self) -> int:
        event = Event("made", (self.born + 1,), self.born)
        self.born += 1
        self.found.add(event)
        return self.born

    def called(self, what: str, *arrays: int, views: tuple[object, ...] = ()) -> None:
        self.found.add(Event((what, views), arrays, self.born))

    @property
    def now(self) -> tuple[int, int]:
        return self.found.period, self.found.run


def test_nothing_repeats_at_first() -> None:
    program = Program()
    program.called("f", 1)
    program.called("g", 1)
    assert program.now == (0, 0)


def test_a_call_on_the_same_array_repeats_the_one_before() -> None:
    program = Program()
    for _ in range(4):
        program.called("f", 1)
    assert program.now == (1, 3)


def test_two_calls_that_take_turns_have_a_period_of_two() -> None:
    program = Program()
    for _ in range(4):
        program.called("f", 1)
        program.called("g", 2)
    assert program.now == (2, 6)


def test_swapped_arrays_come_back_after_two_turns() -> None:
    program = Program()
    a, b = 1, 2
    for _ in range(6):
        program.called("f", a, b)
        a, b = b, a
    assert program.now == (2, 4)


def test_new_arrays_stand_for_those_that_were_made_a_turn_ago() -> None:
    program = Program()
    for _ in range(5):
        new = program.made()
        program.called("f", 1, new)
    assert program.now == (2, 8)


def test_an_array_that_is_neither_the_same_nor_as_young_is_no_repetition() -> None:
    program = Program()
    arrays = []
    for turn in range(6):
        arrays.append(program.made())
        program.called("f", arrays[0 if turn == 5 else turn])
    assert program.now == (10, 1)  # it repeats the first turn at most


def test_other_arrays_and_other_calls_are_no_repetition() -> None:
    first = Event("f", (1,), 1)
    assert repeats(first, first)
    assert not repeats(first._replace(what="g"), first)
    assert not repeats(first._replace(arrays=(1, 1)), first)
    assert not repeats(first._replace(arrays=(2,)), first)
    assert repeats(first._replace(arrays=(2,), births=2), first)
    assert repeats(first._replace(births=2), first)


def test_what_differs_begins_the_count_anew() -> None:
    program = Program()
    for _ in range(5):
        program.called("f", 1)
    program.called("g", 1)
    assert program.now == (0, 0)
    program.called("f", 1)
    program.called("g", 1)
    assert program.now == (2, 2)


def test_repetitions_that_are_too_long_are_not_seen() -> None:
    program = Program()
    for _ in range(3):
        for number in range(LONGEST + 1):
            program.called(f"f{number}", 1)
    assert program.now == (0, 0)


def test_what_is_remembered_stays_bounded() -> None:
    program = Program()
    for number in range(20 * LONGEST):
        program.called(f"f{number % 1000}", 1)
    assert len(program.found._log) <= 4 * LONGEST
    assert sum(map(len, program.found._seen.values())) <= 4 * LONGEST
    assert len(program.found.last(7)) == 7


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("fgh"), st.integers(-3, 4)), min_size=1, max_size=6), st.integers(3, 6))
def test_a_repeated_body_is_found_and_what_is_found_is_true(body: list[tuple[str, int]], turns: int) -> None:
    program, log = Program(), []
    for _ in range(turns):
        made = [program.made()]
        log.append(program.found.last(1)[0])
        for what, which in body:
            program.called(what, which + 4 if which >= 0 else made[0])
            log.append(program.found.last(1)[0])
    period, run = program.now
    assert period and run >= (turns - 1) * (len(body) + 1) - 1
    assert all(repeats(log[-i], log[-i - period]) for i in range(1, run + 1))
