"""Whether all ranks wait for each other: the judge, and what it must not take for a hang."""

from __future__ import annotations

import random

import pytest

from coexec.cluster.watching import Judge, Standing, Waiting, as_words, read_words


def standing(sent: int, taken: int) -> Standing:
    return Standing(sent, taken, 0, Waiting("a read", "app.py:3"), "")


def told(judge: Judge, *ranks: Standing, times: int = 1) -> bool:
    """Let every rank answer the present question so often; return whether that is a hang."""
    for _ in range(times):
        for rank, one in enumerate(ranks):
            judge.heard(rank, judge.asked, one)
    return judge.hung


def test_ranks_that_all_wait_with_nothing_on_its_way_hang() -> None:
    judge = Judge(2)
    assert not told(judge, standing(3, 4), standing(4, 3))
    assert not told(judge, standing(3, 4), standing(4, 3))
    assert told(judge, standing(3, 4), standing(4, 3))


def test_a_packet_on_its_way_is_no_hang_however_often_all_say_that_they_wait() -> None:
    assert not told(Judge(2), standing(3, 4), standing(5, 3), times=10)


def test_a_rank_that_says_nothing_computes() -> None:
    assert not told(Judge(3), standing(1, 1), standing(1, 1), times=10)


def test_what_was_said_before_the_last_news_does_not_count() -> None:
    judge = Judge(2)
    told(judge, standing(0, 0), standing(0, 0), times=2)
    old = judge.asked
    judge.heard(0, old, standing(1, 1))  # rank 0 went on: it sent something, and got an answer
    for _ in range(5):
        judge.heard(0, judge.asked, standing(1, 1))
        judge.heard(1, old, standing(0, 0))  # said before rank 1 took what rank 0 sent
    assert not judge.hung


@pytest.mark.parametrize("seed", range(40))
def test_ranks_that_go_on_are_never_taken_for_hung(seed: int) -> None:
    """Ranks exchange tokens, notes and questions arrive late but in order; nobody is hung before the last token is lost."""
    rng = random.Random(seed)
    ranks = rng.randint(2, 4)
    judge, asked = Judge(ranks), [0] * ranks
    sent, taken, holds = [0] * ranks, [0] * ranks, [rng.random() < 0.5 for _ in range(ranks)]
    wires: dict[tuple[int, int], list[tuple[str, int, Standing | None]]] = {}

    def put(a: int, b: int, what: str, number: int = 0, one: Standing | None = None) -> None:
        wires.setdefault((a, b), []).append((what, number, one))

    for _ in range(600):
        rank = rng.randrange(ranks)
        if holds[rank] and rng.random() < 0.5:
            to = rng.choice([r for r in range(ranks) if r != rank])
            sent[rank] += 1
            holds[rank] = False
            put(rank, to, "token")
        elif not holds[rank]:
            put(rank, 0, "note", asked[rank], standing(sent[rank], taken[rank]))
        pair = rng.choice(list(wires) or [(0, 0)])
        if wires.get(pair):
            what, number, one = wires[pair].pop(0)
            to = pair[1]
            if what == "token":
                taken[to] += 1
                holds[to] = True
            elif what == "question":
                asked[to] = number
            elif one is not None and judge.heard(pair[0], number, one):
                for other in range(ranks):
                    put(0, other, "question", judge.asked)
        alive = any(holds) or any(what == "token" for wire in wires.values() for what, *_ in wire)
        assert alive or not any(holds)
        if judge.hung:
            assert not alive
            return


def test_a_note_is_read_as_it_was_written_and_anything_else_is_no_note() -> None:
    one = standing(5, 6)
    assert read_words(as_words(one, 7)) == (7, one)
    for words in ("", "[]", "[1, 2]", '{"a": 1}', '["a", 1, 2, 3, "x", "y", "z"]'):
        assert read_words(words) is None
