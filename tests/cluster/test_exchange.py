"""Which ranks hold what, and what is sent so that each has what it reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from coexec.cluster.exchange import Exchange
from coexec.geometry import Box

WHOLE = Box((0,), (12,))


def line(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def test_a_new_array_is_everywhere_so_nothing_is_sent():
    exchange = Exchange(3)
    assert exchange.read(1, WHOLE, {0: [WHOLE], 2: [line(3, 5)]}) == {}


def test_what_a_rank_wrote_is_sent_to_each_reader_once():
    exchange = Exchange(3)
    exchange.wrote(1, WHOLE, {0: [line(0, 4)], 1: [line(4, 8)], 2: [line(8, 12)]})
    assert exchange.read(1, WHOLE, {0: [line(0, 5)], 1: [line(3, 9)]}) == {
        (0, 1): (line(3, 4),),
        (1, 0): (line(4, 5),),
        (2, 1): (line(8, 9),),
    }
    assert exchange.read(1, WHOLE, {0: [line(0, 5)], 1: [line(3, 9)]}) == {}
    exchange.wrote(1, WHOLE, {1: [line(4, 8)]})
    assert exchange.read(1, WHOLE, {0: [line(0, 5)]}) == {(1, 0): (line(4, 5),)}


def test_readers_of_one_element_are_served_by_holders_near_them():
    exchange = Exchange(4)
    exchange.wrote(1, WHOLE, {0: [WHOLE]})
    assert set(exchange.read(1, WHOLE, {2: [line(0, 1)]})) == {(0, 2)}
    assert set(exchange.read(1, WHOLE, {3: [line(0, 1)]})) == {(2, 3)}


def test_what_two_tasks_wrote_is_sent_apart():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, {0: [line(0, 4)]})
    exchange.wrote(1, WHOLE, {0: [line(4, 6)]})
    assert exchange.read(1, WHOLE, {1: [line(0, 6)]}) == {(0, 1): (line(0, 4), line(4, 6))}


def test_overlapping_reads_of_one_rank_are_sent_once():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, {0: [WHOLE]})
    assert exchange.read(1, WHOLE, {1: [line(0, 4), line(2, 6)]}) == {(0, 1): (line(0, 6),)}


def test_what_all_ranks_agree_on_is_sent_to_nobody():
    exchange = Exchange(3)
    exchange.wrote(1, WHOLE, {0: [WHOLE]})
    exchange.agreed(1, WHOLE, [line(2, 8)])
    assert exchange.volume(1, WHOLE, [WHOLE]) == [12, 6, 6]
    assert exchange.read(1, WHOLE, {1: [line(3, 5)], 2: [line(2, 8)]}) == {}


spans = st.tuples(st.integers(0, 11), st.integers(1, 12)).map(lambda s: line(min(s), max(*s, min(s) + 1)))
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), spans), max_size=20)


@given(steps)
def test_whatever_happens_each_reader_gets_exactly_what_it_lacks_from_somebody_who_has_it(program):
    exchange = Exchange(4)
    holds = np.ones((4, 12), bool)
    for writes, rank, box in program:
        here = slice(box.lo[0], box.hi[0])
        if writes:
            exchange.wrote(1, WHOLE, {rank: [box]})
            holds[:, here] = False
        else:
            sent = np.zeros(12, int)
            for (sender, receiver), boxes in exchange.read(1, WHOLE, {rank: [box]}).items():
                assert receiver == rank
                for part in boxes:
                    assert holds[sender, part.lo[0] : part.hi[0]].all()
                    sent[part.lo[0] : part.hi[0]] += 1
            lacked = np.zeros(12, bool)
            lacked[here] = ~holds[rank, here]
            assert (sent == lacked).all()
        holds[rank, here] = True
