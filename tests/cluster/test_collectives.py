"""Collectives on any number of ranks: who has what in the end, in how few messages, and with which bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.cluster import collectives
from coexec.cluster.collectives import allgather, allgather_arrays, broadcast, fold, gather_rounds, tree
from coexec.cluster.loopback import loopback
from coexec.cluster.transport import KEYS, Transport
from coexec.errors import ShapeError
from coexec.testing import on_ranks


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 13, 64])
def test_an_allgather_doubles_what_a_rank_has(size: int) -> None:
    have = [[rank] for rank in range(size)]
    for number in range(len(gather_rounds(0, size))):
        rounds = [gather_rounds(rank, size)[number] for rank in range(size)]
        before = [list(blocks) for blocks in have]
        for rank, round in enumerate(rounds):
            assert rounds[round.source].to == rank
            have[rank] += before[round.source][: round.number]
    assert have == [[(rank + i) % size for i in range(size)] for rank in range(size)]
    assert len(gather_rounds(0, size)) == (size - 1).bit_length()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 9, 16])
def test_a_tree_reaches_every_rank_once_in_few_steps(size: int) -> None:
    for root in {0, size // 2, size - 1}:
        depth = {root: 0}
        for _ in range(size):
            for rank in list(depth):
                for child in tree(rank, size, root)[1]:
                    assert tree(child, size, root)[0] == rank
                    depth.setdefault(child, depth[rank] + 1)
        assert sorted(depth) == list(range(size))
        assert tree(root, size, root)[0] is None
        assert max(depth.values()) <= (size - 1).bit_length()
        assert sum(len(tree(rank, size, root)[1]) for rank in range(size)) == size - 1


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_everybody_gets_what_everybody_gave(size: int) -> None:
    def program(transport: Transport) -> tuple[list[bytes], Any]:
        found = allgather(transport, bytes(range(transport.rank)) * 1000)
        data = np.full(700, transport.rank)
        broadcast(transport, data, root=size - 1)
        transport.close()
        return found, data

    for found, data in on_ranks(loopback(size, part=999), program):
        assert found == [bytes(range(rank)) * 1000 for rank in range(size)]
        assert (data == size - 1).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(), (3,), (40, 200)])
def test_a_fold_has_the_bits_of_one_loop(size: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "SEGMENT", 5000)
    counts = [(3 * rank + 1) % 4 for rank in range(size)]
    blocks = np.random.default_rng(size).normal(size=(sum(counts), *shape)).astype(np.float32) * 1e6

    def program(transport: Transport) -> Any:
        first = sum(counts[: transport.rank])
        into = np.full(shape, 0.1, np.float32)
        fold(transport, blocks[first : first + counts[transport.rank]], counts, into, np.subtract)
        transport.close()
        return into

    expected = np.full(shape, 0.1, np.float32)
    for block in blocks:
        np.subtract(expected, block, out=expected)
    for found in on_ranks(loopback(size), program):
        assert found.tobytes() == expected.tobytes()


def test_a_large_fold_sends_each_segment_along_the_ranks_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "SEGMENT", 8000)
    sent: list[tuple[int, int]] = []

    def program(transport: Any) -> None:
        plain = transport.send

        def counted(to: int, key: int, data: Any) -> Any:
            sent.append((transport.rank, to))
            return plain(to, key, data)

        transport.send = counted
        fold(transport, np.ones((1, 4000)), [1] * 4, into := np.zeros(4000), np.add)
        assert (into == 4).all()
        transport.close()

    on_ranks(loopback(4), program)
    assert sorted(sent) == sorted([(a, a + 1) for a in range(3)] * 4 + [(a + 1, a) for a in range(3)] * 4)


def test_shapes_that_do_not_fit_are_named() -> None:
    (alone,) = loopback(1)
    with pytest.raises(ShapeError, match=r"blocks of shape \(2, 3\), not \(1, 3\)"):
        fold(alone, np.zeros((2, 3)), [1], np.zeros(3), np.add)
    with pytest.raises(ShapeError, match=r"shape \(2,\), not \(3,\)"):
        allgather_arrays(alone, np.zeros(2), [(3,)])
    alone.close()


def test_keys_of_collectives_begin_again_when_they_run_out() -> None:
    (alone,) = loopback(1)
    first = alone.collective_keys(3)
    assert (first, alone.collective_keys(1)) == (KEYS, KEYS + 3)
    alone._next_key = 2 * KEYS - 2
    assert alone.collective_keys(2) == 2 * KEYS - 2
    assert alone.collective_keys(5) == KEYS
    alone.close()
