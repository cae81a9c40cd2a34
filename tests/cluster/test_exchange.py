"""Which ranks hold what, and what is sent so that each has what it reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from coexec.cluster.exchange import Exchange
from coexec.geometry import Box
from coexec.graph.command import Parcel

WHOLE = Box((0,), (12,))


def line(lo: int, hi: int) -> Box:
    return Box((lo,), (hi,))


def dense(writes):
    return {rank: [(box, None) for box in boxes] for rank, boxes in writes.items()}


def sent(*boxes: Box) -> tuple[Parcel, ...]:
    return tuple([Parcel(box) for box in boxes])


def test_a_new_array_is_everywhere_so_nothing_is_sent():
    exchange = Exchange(3)
    assert exchange.read(1, WHOLE, {0: [WHOLE], 2: [line(3, 5)]}) == {}


def test_what_a_rank_wrote_is_sent_to_each_reader_once():
    exchange = Exchange(3)
    exchange.wrote(1, WHOLE, dense({0: [line(0, 4)], 1: [line(4, 8)], 2: [line(8, 12)]}))
    assert exchange.read(1, WHOLE, {0: [line(0, 5)], 1: [line(3, 9)]}) == {
        (0, 1): sent(line(3, 4)),
        (1, 0): sent(line(4, 5)),
        (2, 1): sent(line(8, 9)),
    }
    assert exchange.read(1, WHOLE, {0: [line(0, 5)], 1: [line(3, 9)]}) == {}
    exchange.wrote(1, WHOLE, dense({1: [line(4, 8)]}))
    assert exchange.read(1, WHOLE, {0: [line(0, 5)]}) == {(1, 0): sent(line(4, 5))}


def test_readers_of_one_element_are_served_by_holders_near_them():
    exchange = Exchange(4)
    exchange.wrote(1, WHOLE, dense({0: [WHOLE]}))
    assert set(exchange.read(1, WHOLE, {2: [line(0, 1)]})) == {(0, 2)}
    assert set(exchange.read(1, WHOLE, {3: [line(0, 1)]})) == {(2, 3)}


def follow(steps, blocks):
    """Return what each rank holds in the end, and how many boxes were sent; check that senders have what they send."""
    holds = [set(block) for block in blocks]
    boxes = 0
    for moves in steps:
        had = [set(held) for held in holds]
        for (sender, receiver), parcels in moves.items():
            for (lo, hi), over in [((parcel.box.lo[0], parcel.box.hi[0]), parcel.over) for parcel in parcels]:
                assert not over and set(range(lo, hi)) <= had[sender] and not set(range(lo, hi)) & holds[receiver]
                holds[receiver] |= set(range(lo, hi))
                boxes += 1
    return holds, boxes


@given(st.integers(1, 16), st.data())
def test_what_all_ranks_read_is_passed_on_to_each_of_them_once(ranks, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, 40), min_size=ranks - 1, max_size=ranks - 1)))
    spans = list(zip([0, *cuts], [*cuts, 40], strict=True))
    extent = line(0, 40)
    exchange = Exchange(ranks)
    exchange.wrote(1, extent, dense({rank: [line(*span)] for rank, span in enumerate(spans) if span[0] < span[1]}))
    steps = exchange.steps(1, extent, {rank: [extent] for rank in range(ranks)})
    holds, boxes = follow(steps, [range(*span) for span in spans])
    assert holds == [set(range(40))] * ranks
    pairs = [pair for moves in steps for pair in moves]
    assert len(pairs) == len(set(pairs))  # keys of messages count on it
    if ranks >= 4:
        assert len(steps) == (ranks - 1).bit_length() and boxes <= ranks * len(steps) + ranks
    assert exchange.steps(1, extent, {rank: [extent] for rank in range(ranks)}) == ()


def test_what_differs_between_readers_or_writers_is_not_passed_on():
    for write, reads in (
        ({0: [line(0, 3)], 1: [line(3, 12)]}, {0: [WHOLE], 1: [WHOLE], 2: [WHOLE], 3: [line(0, 11)]}),
        ({0: [line(0, 3)], 1: [line(3, 8)]}, {rank: [WHOLE] for rank in range(4)}),  # the rest is everywhere
    ):
        exchange = Exchange(4)
        exchange.wrote(1, WHOLE, dense(write))
        assert len(exchange.steps(1, WHOLE, reads)) == 1
    exchange.wrote(1, WHOLE, dense({0: [line(0, 6)]}))
    exchange.wrote(1, WHOLE, dense({1: [line(6, 12)]}))  # it may have failed alone
    assert len(exchange.steps(1, WHOLE, {rank: [WHOLE] for rank in range(4)})) == 1


def test_what_two_tasks_wrote_is_sent_apart():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, dense({0: [line(0, 4)]}))
    exchange.wrote(1, WHOLE, dense({0: [line(4, 6)]}))
    assert exchange.read(1, WHOLE, {1: [line(0, 6)]}) == {(0, 1): sent(line(0, 4), line(4, 6))}


def test_overlapping_reads_of_one_rank_are_sent_once():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, dense({0: [WHOLE]}))
    assert exchange.read(1, WHOLE, {1: [line(0, 4), line(2, 6)]}) == {(0, 1): sent(line(0, 6))}


def test_what_all_ranks_agree_on_is_sent_to_nobody():
    exchange = Exchange(3)
    exchange.wrote(1, WHOLE, dense({0: [WHOLE]}))
    exchange.agreed(1, WHOLE, [(line(2, 8), None)])
    assert exchange.volume(1, WHOLE, [WHOLE]) == [12, 6, 6]
    assert exchange.read(1, WHOLE, {1: [line(3, 5)], 2: [line(2, 8)]}) == {}


def test_a_strided_set_is_named_beside_the_box_that_it_travels_with():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, dense({0: [line(0, 6)]}))
    exchange.wrote(1, WHOLE, dense({1: [line(6, 12)]}))
    assert exchange.read(1, WHOLE, {0: [line(6, 9)]}) == {(1, 0): sent(line(6, 9))}
    exchange.wrote(1, WHOLE, {0: [(line(1, 8), ((1, 3),))]})
    assert exchange.read(1, WHOLE, {1: [line(0, 8)]}) == {
        (0, 1): (Parcel(line(0, 6), ((line(1, 6), ((1, 3),)),)), Parcel(line(6, 8), ((line(6, 8), ((1, 3),)),)))
    }


def test_what_is_written_over_a_strided_set_is_named_no_more():
    exchange = Exchange(2)
    exchange.wrote(1, WHOLE, {0: [(WHOLE, ((0, 2),))]})
    exchange.wrote(1, WHOLE, {0: [(WHOLE, ((0, 1),))]})
    assert exchange.read(1, WHOLE, {1: [WHOLE]}) == {(0, 1): sent(WHOLE)}
    exchange.wrote(1, WHOLE, {0: [(WHOLE, ((1, 4),))]})
    exchange.wrote(1, WHOLE, {0: [(line(0, 12), ((1, 2),))]})
    assert exchange.read(1, WHOLE, {1: [WHOLE]}) == {(0, 1): (Parcel(WHOLE, ((WHOLE, ((1, 2),)),)),)}
    exchange.wrote(1, WHOLE, dense({0: [line(0, 7)]}))
    _, strided = exchange.pattern(1, WHOLE)
    assert strided == ((line(7, 12), ((1, 2),)),)
    exchange.wrote(1, WHOLE, dense({0: [WHOLE]}))
    assert exchange.pattern(1, WHOLE)[1] == ()


def test_many_strided_sets_are_not_all_remembered():
    exchange = Exchange(2)
    for start in range(50):
        exchange.wrote(1, line(0, 200), {0: [(line(start, 200), ((start, 50),))]})
    ((parcel,),) = exchange.read(1, line(0, 200), {1: [line(0, 200)]}).values()
    assert [grid for _, grid in parcel.over] == [((start, 50),) for start in range(34, 50)]


spans = st.tuples(st.integers(0, 11), st.integers(1, 12)).map(lambda s: line(min(s), max(*s, min(s) + 1)))
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), spans), max_size=20)


@given(steps)
def test_whatever_happens_each_reader_gets_exactly_what_it_lacks_from_somebody_who_has_it(program):
    exchange = Exchange(4)
    holds = np.ones((4, 12), bool)
    for writes, rank, box in program:
        here = slice(box.lo[0], box.hi[0])
        if writes:
            exchange.wrote(1, WHOLE, dense({rank: [box]}))
            holds[:, here] = False
        else:
            sent = np.zeros(12, int)
            for (sender, receiver), parcels in exchange.read(1, WHOLE, {rank: [box]}).items():
                assert receiver == rank
                for part, _ in parcels:
                    assert holds[sender, part.lo[0] : part.hi[0]].all()
                    sent[part.lo[0] : part.hi[0]] += 1
            lacked = np.zeros(12, bool)
            lacked[here] = ~holds[rank, here]
            assert (sent == lacked).all()
        holds[rank, here] = True
