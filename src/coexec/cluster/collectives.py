"""What all ranks do together, out of messages between two: barrier, allgather, broadcast, and folds in block order.

Before: cluster/transport.py.  After: cluster/opening.py, launchers and whoever exchanges small data.  Each rank calls the
same functions in the same order. The schedules are data, computed by each rank alone: who sends what to whom, and when.

Folds give the bits of one loop over all blocks, in their order, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from .parts import as_bytes
from .transport import Transfer, Transport

SEGMENT = 1 << 20
"""Bytes of a fold that travel from rank to rank at once: while one rank combines some, its neighbour combines others."""
SMALL = 1 << 14
"""Bytes of partial results, of all ranks together, up to which everybody gets all of them and combines them alone."""


class GatherRound(NamedTuple):
    """One round of an allgather: blocks counted from this rank's own."""

    to: int
    source: int
    first: int  # the block that is received first; those sent are 0 ... number - 1
    number: int


def gather_rounds(rank: int, size: int) -> list[GatherRound]:
    """Return the rounds of an allgather: each doubles what a rank has, so there are log2(size) of them, rounded up.

    A rank holds blocks rank, rank + 1, ... (modulo size); in each round it gives all it has to a rank below it.
    """
    rounds = []
    have = 1
    while have < size:
        number = min(have, size - have)
        rounds.append(GatherRound((rank - have) % size, (rank + have) % size, have, number))
        have += number
    return rounds


def tree(rank: int, size: int, root: int) -> tuple[int | None, list[int]]:
    """Return who gives a rank what `root` has, and to whom it goes on, farthest first: a binomial tree."""
    position = (rank - root) % size
    reach = 1
    while reach < size:
        reach *= 2
    parent, children = None, []
    while reach > 1:
        reach //= 2
        if position % (2 * reach) == reach:
            parent = position - reach
        elif position % (2 * reach) == 0 and position + reach < size:
            children.append(position + reach)
    return None if parent is None else (parent + root) % size, [(child + root) % size for child in children]


def allgather(transport: Transport, data: bytes, stamp: int = 0) -> list[bytes]:
    """Return what every rank gave, by rank; sizes may differ. Waits for all ranks, which must give the same `stamp`."""
    sizes = _gather(transport, [np.frombuffer(np.int64(len(data)).tobytes(), np.uint8)], [8] * transport.size, stamp)
    lengths = [int(np.frombuffer(block.tobytes(), np.int64)[0]) for block in sizes]
    return [block.tobytes() for block in _gather(transport, [np.frombuffer(data, np.uint8)], lengths, stamp)]


def barrier(transport: Transport) -> None:
    """Wait until every rank is here."""
    rank, size = transport.rank, transport.size
    rounds = gather_rounds(rank, size)
    key = transport.collective_keys(len(rounds))
    for number, round in enumerate(rounds):
        _wait(
            transport.receive(round.source, key + number, np.empty(0, np.uint8)),
            transport.send(round.to, key + number, np.empty(0, np.uint8)),
        )


def broadcast(transport: Transport, data: Any, root: int = 0) -> None:
    """Give every rank what `root` has in `data`, an ndarray of the same shape and type on all ranks."""
    parent, children = tree(transport.rank, transport.size, root)
    key = transport.collective_keys(1)
    if parent is not None:
        _wait(transport.receive(parent, key, data))
    _wait(*[transport.send(child, key, data) for child in children])


def allgather_arrays(transport: Transport, part: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return every rank's array, by rank; `shapes` are theirs, and all have the type of `part`."""
    if part.shape != tuple(shapes[transport.rank]):
        raise ShapeError(f"rank {transport.rank} gives an array of shape {part.shape}, not {shapes[transport.rank]}")
    sizes = [int(np.prod(shape, dtype=np.int64)) * part.dtype.itemsize for shape in shapes]
    found = _gather(transport, [as_bytes(np.ascontiguousarray(part))], sizes)
    return [np.ndarray(shape, part.dtype, block) for shape, block in zip(shapes, found, strict=True)]


def _gather(transport: Transport, own: list[Any], sizes: Sequence[int], stamp: int = 0) -> list[Any]:
    """Return every rank's bytes; `sizes` are how many each rank has."""
    rank, size = transport.rank, transport.size
    rounds = gather_rounds(rank, size)
    key = transport.collective_keys(len(rounds))
    blocks = list(own)  # rank's, rank + 1's, ...
    for number, round in enumerate(rounds):
        lengths = [sizes[(rank + round.first + block) % size] for block in range(round.number)]
        into = np.empty(sum(lengths), np.uint8)
        out = np.concatenate(blocks[: round.number])
        _wait(
            transport.receive(round.source, key + number, into, stamp=stamp),
            transport.send(round.to, key + number, out, stamp=stamp),
        )
        blocks += np.split(into, np.cumsum(lengths)[:-1])
    return [blocks[(other - rank) % size] for other in range(size)]


def fold(transport: Transport, blocks: Any, counts: Sequence[int], into: Any, combine: Callable[..., Any]) -> None:
    """Combine the blocks of all ranks into `into`, on every rank: `combine(into, block, out=into)`, block by block.

    `blocks` has this rank's blocks along its first axis, `counts` is how many each rank has, in the order of ranks;
    `into` holds the same start on every rank. All sizes are known everywhere, so all ranks choose the same way.
    """
    if blocks.shape != (counts[transport.rank], *into.shape):
        expected = (counts[transport.rank], *into.shape)
        raise ShapeError(f"rank {transport.rank} gives blocks of shape {blocks.shape}, not {expected}")
    if sum(counts) * into.nbytes <= SMALL:
        shapes = [(count, *into.shape) for count in counts]
        for part in allgather_arrays(transport, blocks, shapes):
            _combine(part, into, combine)
    else:
        _chain(transport, blocks, into, combine)


def _chain(transport: Transport, blocks: Any, into: Any, combine: Callable[..., Any]) -> None:
    """Combine along the ranks, and pass the result back: 2 messages per segment and rank, however many ranks there are."""
    rank, size = transport.rank, transport.size
    step = max(1, SEGMENT // into.dtype.itemsize)
    flat, rows = into.reshape(-1).copy(), blocks.reshape(len(blocks), into.size)
    pieces = [slice(first, min(first + step, flat.size)) for first in range(0, flat.size, step)]
    key = transport.collective_keys(2 * len(pieces))
    back = key + len(pieces)
    coming = [transport.receive(rank - 1, key + i, flat[piece]) for i, piece in enumerate(pieces)] if rank else []
    sent: list[Transfer] = []
    for i, piece in enumerate(pieces):
        if coming:
            coming[i].wait()
        _combine([row[piece] for row in rows], flat[piece], combine)
        if rank < size - 1:
            sent.append(transport.send(rank + 1, key + i, flat[piece]))
        elif rank:
            sent.append(transport.send(rank - 1, back + i, flat[piece]))
    _wait(*sent)
    if rank < size - 1:
        returning = [transport.receive(rank + 1, back + i, flat[piece]) for i, piece in enumerate(pieces)]
        sent = []
        for i, piece in enumerate(pieces):
            returning[i].wait()
            if rank:
                sent.append(transport.send(rank - 1, back + i, flat[piece]))
        _wait(*sent)
    into[...] = flat.reshape(into.shape)


def _combine(parts: Any, into: Any, combine: Callable[..., Any]) -> None:
    for part in parts:
        combine(into, part, out=into)


def _wait(*transfers: Transfer) -> None:
    for transfer in transfers:
        transfer.wait()
