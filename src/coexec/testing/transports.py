"""The transport contract as a test: `check_transport` for any transport, inside this repository or outside.

Before: cluster/transport.py, collectives.py.  After: the tests of whoever writes a transport.  Knows no library.

Every rank calls it, in a process or a thread of its own, as every rank runs the same program:

    check_transport(lambda: MyTransport())      # on each of two ranks or more

`on_ranks` does that for transports whose ranks are threads of one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..cluster.collectives import allgather, allgather_arrays, barrier, broadcast, fold
from ..cluster.transport import Transfer, Transport
from ..errors import ArgumentError, RankAborted, RankLost, RanksDiverge, RemoteFailure, RuntimeClosed

Result = TypeVar("Result")
PATIENCE = 60.0  # s; how long anything here may take on a busy machine before it counts as a hang


def check_transport(open: Callable[[], Transport]) -> None:
    """Raise AssertionError, naming the broken promise, unless the transports that `open` returns keep the contract.

    Every rank calls this at the same time. `open` is called several times, on all ranks in the same order.
    """
    for check in CHECKS:
        check(open)


def on_ranks(transports: Sequence[Transport], program: Callable[[Transport], Result]) -> list[Result]:
    """Run a program on every transport, each in a thread of its own; return the results, or raise the first error."""
    found: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            found[rank] = program(transports[rank])
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(transports))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    hung = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if errors:
        raise errors[min(errors)]
    _require(not hung, f"ranks {hung} end")
    return [found[rank] for rank in range(len(transports))]


def _require(promise: bool, words: str) -> None:
    if not promise:
        raise AssertionError(words)


def _wait(*transfers: Transfer) -> None:
    for transfer in transfers:
        _require(transfer.wait(PATIENCE), f"the {transfer} ends")


def _fails(kind: type[BaseException], transfer: Transfer | Callable[[], Any]) -> BaseException:
    """Return the error with which a transfer or call fails."""
    try:
        if isinstance(transfer, Transfer):
            _wait(transfer)
        else:
            transfer()
    except kind as error:
        return error
    raise AssertionError(f"{transfer} fails with {kind.__name__}")


def _numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Return an array of any type whose bytes depend on the seed."""
    plain = np.dtype(dtype)
    size = int(np.prod(shape, dtype=int)) * plain.itemsize
    found = np.random.default_rng(seed).integers(0, 2 if plain.kind == "b" else 120, size, np.uint8)
    return np.ndarray(shape, plain, found.tobytes()).copy()


def boxes(whole: Any) -> list[Any]:
    """Return views of a three-dimensional array with every kind of stride, empty and 0-d ones too."""
    return [
        whole,
        whole[1:3],
        whole[:, 2:5, 1:4],
        whole[:, :, 3:4],
        whole[::2, ::3, ::2],
        whole[::-1, :, ::-2],
        whole.transpose(2, 0, 1)[1:, :, 2:],
        whole[1, 2],
        whole[2, 1, 3:4].reshape(()),
        whole[2:2],
        whole[:, :, :0],
    ]


DTYPES = ("u1", "f8", "c16", "?", "M8[s]", "S3", [("a", "i4"), ("b", "f8")])


def _carries_boxes(open: Callable[[], Transport]) -> None:
    transport = open()
    rank, size = transport.rank, transport.size
    _require(0 <= rank < size and size > 1, f"rank {rank} of {size} is one of two or more")
    above, below = (rank + 1) % size, (rank - 1) % size
    for number, dtype in enumerate(DTYPES):
        sent, expected = (_numbers((4, 6, 9), dtype, 100 * number + who) for who in (rank, below))
        views = len(boxes(sent))
        for view in range(views):
            blank = _numbers((4, 6, 9), dtype, 7)
            into, before = blank.copy(), blank.copy()
            boxes(before)[view][...] = boxes(expected)[view]
            key = number * views + view
            _wait(transport.receive(below, key, boxes(into)[view]), transport.send(above, key, boxes(sent)[view]))
            words = f"box {view} of type {dtype} arrives as it is, and nothing else is written"
            _require(into.tobytes() == before.tobytes(), words)
    transport.close(PATIENCE)


def _carries_large_ones(open: Callable[[], Transport]) -> None:
    transport = open()
    rank, size = transport.rank, transport.size
    above, below = (rank + 1) % size, (rank - 1) % size
    views: Any = (np.s_[:], np.s_[:, 100:900], np.s_[::-2, ::2], np.s_[:, 5])
    for key, view in enumerate(views):
        sent, expected = (np.arange(200_000.0).reshape(200, 1000) * (who + 1) for who in (rank, below))
        sent.flags.writeable = False
        into = np.zeros_like(sent)
        wanted = into.copy()
        wanted[view] = expected[view]
        _wait(transport.receive(below, key, into[view]), transport.send(above, key, sent[view]))
        _require(np.array_equal(into, wanted), f"a large box {view} arrives as it is, and nothing else is written")
    transport.close(PATIENCE)


def _finds_messages_by_key(open: Callable[[], Transport]) -> None:
    transport = open()
    rank, size = transport.rank, transport.size
    others = [other for other in range(size) if other != rank]
    number = 40
    into = {(other, key): np.zeros(_length(key)) for other in others for key in range(number)}
    order = np.random.default_rng(rank)
    early = {(other, key) for other, key in into if key % 3}
    transfers = [transport.receive(other, key, into[other, key]) for other, key in sorted(early)]
    for other, key in order.permutation([(other, key) for other in others for key in range(number)]).tolist():
        transfers.append(transport.send(other, key, np.full(_length(key), float(rank * 1000 + key))))
    late = sorted(into.keys() - early)
    for position in order.permutation(len(late)).tolist():
        other, key = late[position]
        transfers.append(transport.receive(other, key, into[other, key]))
    _wait(*transfers)
    for (other, key), found in into.items():
        _require(bool((found == other * 1000 + key).all()), "messages are found by sender and key, in any order")
    transport.close(PATIENCE)


def _length(key: int) -> int:
    return (0, 3, 100, 5000)[key % 4]


def _tells_once(open: Callable[[], Transport]) -> None:
    transport = open()
    told: list[tuple[Transfer, int]] = []
    posting = threading.Lock()

    def then(transfer: Transfer) -> None:
        _require(posting.acquire(timeout=PATIENCE), "`then` is called with no lock held")
        posting.release()
        told.append((transfer, threading.get_ident()))

    other = (transport.rank + 1) % transport.size
    below = (transport.rank - 1) % transport.size
    into = np.zeros((20, 300))
    transfers = []
    for key in range(20):
        with posting:
            transfers.append(transport.send(other, key, np.ones(300), then=then))
            transfers.append(transport.receive(below, key, into[key], then=then))
    _wait(*transfers)
    transport.close(PATIENCE)
    _require(bool(into.all()), "what was received is there when `then` is called")
    _require({id(t) for t, _ in told} == {id(t) for t in transfers}, "`then` is called for every transfer")
    _require(len(told) == len(transfers), "`then` is called once")
    _require(all(thread != threading.get_ident() for _, thread in told), "`then` is never called inside a call")


def _tells_failures(open: Callable[[], Transport]) -> None:
    transport = open()
    other, below = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    for key, length in enumerate((0, 3, 20_000)):
        into = np.zeros(length)
        receive = transport.receive(below, 2 * key, into)
        _wait(transport.fail(other, 2 * key, into.nbytes, f"no {length} on rank {transport.rank} \N{PILE OF POO}" * 3))
        error = _fails(RemoteFailure, receive)
        _require(f"no {length} on rank {below}" in str(error), f"a failure says why: {error}")
        _require(not into.any(), "a failed message writes nothing")
        _wait(transport.receive(below, 2 * key + 1, into), transport.send(other, 2 * key + 1, np.ones(length)))
        _require(bool(into.all()), "messages after a failed one arrive")
    transport.close(PATIENCE)


def _refuses_bad_calls(open: Callable[[], Transport]) -> None:
    transport = open()
    one, other = np.zeros(4), (transport.rank + 1) % transport.size
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    nonsense: Any = [1, 2]
    for bad in (
        lambda: transport.send(transport.rank, 0, one),
        lambda: transport.send(transport.size, 0, one),
        lambda: transport.receive(-1, 0, one),
        lambda: transport.send(other, -1, one),
        lambda: transport.send(other, 1 << 64, one),
        lambda: transport.send(other, 0, nonsense),
        lambda: transport.send(other, 0, np.array([{}], object)),
        lambda: transport.receive(other, 0, frozen),
    ):
        _fails(ArgumentError, bad)
    barrier(transport)
    transport.close(PATIENCE)
    transport.close(PATIENCE)
    _fails(RuntimeClosed, lambda: transport.send(other, 0, one))


def _compares_sizes_and_stamps(open: Callable[[], Transport]) -> None:
    for sends, awaits, stamps in ((10, 11, (0, 0)), (4, 9000, (0, 0)), (9000, 4, (0, 0)), (9000, 9001, (0, 0)),
                                  (8, 8, (5, 6)), (9000, 9000, (5, 6))):  # fmt: skip
        transport = open()
        if transport.rank == 0:
            transfer = transport.send(1, 3, np.ones(sends, np.uint8), stamp=stamps[0])
        elif transport.rank == 1:
            transfer = transport.receive(0, 3, np.zeros(awaits, np.uint8), stamp=stamps[1])
        else:
            transfer = transport.receive(1, 3, np.zeros(1))
        never = transport.receive((transport.rank + 1) % transport.size, 77, np.zeros(1))
        error = _fails(RanksDiverge, never)
        if transport.rank < 2:
            _require(transfer.error is error or transport.rank == 0, "the receive fails with the error that all get")
        words = str(error)
        _require("key 3" in words and "rank 0" in words and "rank 1" in words, f"the error names both ranks: {words}")
        _fails(RanksDiverge, partial(transport.close, PATIENCE))


def _is_told_of_an_abort(open: Callable[[], Transport]) -> None:
    transport = open()
    last = transport.size - 1
    if transport.rank == last:
        transport.abort("the disk is full")
    else:
        waiting = transport.receive(last, 5, np.zeros(3)), transport.send(last, 5, np.zeros(9000))
        for transfer in waiting:
            error = _fails(RankAborted, transfer)
            _require(
                f"rank {last}" in str(error) and "the disk is full" in str(error), f"an abort says who and why: {error}"
            )
            _require(getattr(error, "rank", None) == last, "the error knows the rank")
    _fails(RankAborted, lambda: transport.close(PATIENCE))


def _is_told_of_an_end(open: Callable[[], Transport]) -> None:
    transport = open()
    barrier(transport)
    if transport.rank:
        into = np.zeros(5)
        if transport.rank == 1:
            _wait(transport.receive(0, 1, into))
            _require(bool(into.all()), "what a rank sent before it ended arrives")
        error = _fails(RankLost, transport.receive(0, 2, into))
        _require("rank 0" in str(error) and "key 2" in str(error), f"the error says who has ended: {error}")
        _fails(RankLost, transport.send(0, 2, np.zeros(9000)))
    else:
        _wait(transport.send(1, 1, np.ones(5)))
    transport.close(PATIENCE)


def _is_told_of_a_loss(open: Callable[[], Transport]) -> None:
    transport = open()
    last = transport.size - 1
    if transport.rank == 0:
        transport.lose(last, "it was seen to vanish")
    error = _fails(RankLost, transport.receive((transport.rank + 1) % transport.size, 2, np.zeros(1)))
    _require(f"rank {last} is gone" in str(error).replace(transport.hosts[last], "").replace(" on ", ""), f"{error}")
    _fails(RankLost, lambda: transport.close(PATIENCE))


def _does_things_together(open: Callable[[], Transport]) -> None:
    transport = open()
    rank, size = transport.rank, transport.size
    barrier(transport)
    _require(allgather(transport, b"x" * rank) == [b"x" * other for other in range(size)], "allgather is by rank")
    for root in range(size):
        data = np.full((3, 700), float(rank))
        broadcast(transport, data, root)
        _require(bool((data == root).all()), "a broadcast gives all what its root has")
    shapes = [(other, 2) for other in range(size)]
    found = allgather_arrays(transport, np.full((rank, 2), rank), shapes)
    _require([a.shape for a in found] == shapes, "arrays are gathered by rank")
    _require(all((a == other).all() for other, a in enumerate(found)), "arrays are gathered by rank")
    for length in (3, 40_000):
        _folds(transport, length)
    transport.close(PATIENCE)


def _folds(transport: Transport, length: int) -> None:
    rank, size = transport.rank, transport.size
    counts = [(5 * other + 2) % 4 for other in range(size)]
    blocks = np.random.default_rng(length).normal(size=(sum(counts), length)).astype(np.float32) * 1e4
    expected = np.ones(length, np.float32)
    for block in blocks:
        np.add(expected, block, out=expected)
    into = np.ones(length, np.float32)
    first = sum(counts[:rank])
    fold(transport, blocks[first : first + counts[rank]], counts, into, np.add)
    _require(into.tobytes() == expected.tobytes(), f"a fold of {length} has the bits of one loop over all blocks")


CHECKS = (
    _carries_boxes,
    _carries_large_ones,
    _finds_messages_by_key,
    _tells_once,
    _tells_failures,
    _refuses_bad_calls,
    _does_things_together,
    _compares_sizes_and_stamps,
    _is_told_of_an_abort,
    _is_told_of_an_end,
    _is_told_of_a_loss,
)
