"""How often threads take turns: short turns for whoever asks, the program's own afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from coexec.machine import switching
from coexec.machine.switching import restore_turns, shorten_turns


@pytest.fixture
def own_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Nobody has asked for short turns yet, and the program's own are those of Python, in seconds."""
    before = sys.getswitchinterval()
    monkeypatch.setattr(switching, "_asked", {})
    sys.setswitchinterval(5e-3)
    yield sys.getswitchinterval()
    sys.setswitchinterval(before)


def test_threads_get_short_turns_while_somebody_asks_and_the_programs_own_afterwards(own_turns: float) -> None:
    one, other = object(), object()
    shorten_turns(one, 1e-3)
    shorten_turns(other, 2e-4)
    assert sys.getswitchinterval() == pytest.approx(2e-4)
    restore_turns(other)
    assert sys.getswitchinterval() == pytest.approx(1e-3)
    restore_turns(other)
    restore_turns(one)
    assert sys.getswitchinterval() == own_turns


def test_turns_that_the_program_sets_while_somebody_asks_are_its_own_afterwards(own_turns: float) -> None:
    one, other = object(), object()
    sys.setswitchinterval(1e-5)
    shorten_turns(one, 1e-3)
    sys.setswitchinterval(own_turns)  # as a test does that wanted short turns for a while
    shorten_turns(other, 2e-4)
    assert sys.getswitchinterval() == pytest.approx(2e-4)
    restore_turns(other)
    restore_turns(one)
    assert sys.getswitchinterval() == own_turns
