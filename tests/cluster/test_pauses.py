"""How long a thread rests between two looks: little use of a core, and short waits."""

from __future__ import annotations

import pytest

from coexec.cluster.pauses import BRISK, LEAST, LONGEST, pause

LOOK = 20e-6  # s; what one look at a library takes


@pytest.mark.parametrize(("waits", "free"), [(0.05, False), (1.0, False), (60.0, False), (0.5, True), (60.0, True)])
def test_a_rank_that_waits_uses_less_than_five_percent_of_a_core(waits: float, free: bool) -> None:
    idle, used = 0.0, 0.0
    while idle < waits:
        rest = pause(idle, free=free)
        used += LOOK
        idle += LOOK + rest
    assert used < 0.05 * waits


def test_a_wait_is_noticed_soon_after_its_end() -> None:
    for waited in (1e-5, 1e-4, 1e-3, 1e-2):  # s
        assert pause(waited) <= 0.2 * waited
    assert pause(0.0) == 0.0 and pause(3600.0) == LONGEST


def test_a_rank_that_waits_for_messages_alone_looks_without_a_pause_for_a_while() -> None:
    assert pause(BRISK / 2, free=True) == 0.0 < pause(BRISK / 2)
    assert pause(2 * BRISK, free=True) == pause(2 * BRISK) > 0.0


def test_where_other_programs_want_the_core_a_rank_sleeps_between_looks() -> None:
    assert pause(0.0, crowded=True) == pause(BRISK / 100, free=True, crowded=True) == LEAST
    assert pause(BRISK / 2, free=True, crowded=True) == pause(BRISK / 2) > LEAST
    assert pause(3600.0, crowded=True) == LONGEST


def test_where_nothing_can_happen_without_a_ring_a_rank_that_computes_does_not_look() -> None:
    assert pause(0.0, rung=True) == pause(BRISK / 2, rung=True) == LONGEST
    assert pause(BRISK / 2, free=True, rung=True) == 0.0  # who has nothing else to do is faster without a ring
    assert pause(BRISK / 2, free=True, rung=True, crowded=True) == LONGEST
