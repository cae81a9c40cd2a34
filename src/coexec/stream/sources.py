"""Where a stream's items come from: any iterable, from some item on, one by one or stacked, or whatever is newest.

Before: errors.py, stream/trees.py.  After: stream/stream.py.  Knows no stage and no device.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ..errors import ArgumentError, ShapeError
from .trees import is_sparse, kept, leaves, mapped


class Pulled(NamedTuple):
    """What one call of the function computes: an item, or several that are stacked."""

    index: int  # type: ignore[assignment]  # of the first; tuples look for values, nobody asks these to
    item: Any
    stacked: tuple[Pulled, ...] = ()  # the items themselves, if they are several; numbers may be missing between them


class BatchSize(NamedTuple):
    """How many items are stacked, and how many seconds the first may wait for the last."""

    size: int
    wait: float

    @classmethod
    def of(cls, given: Any) -> BatchSize | None:
        """Return what a user says, checked."""
        if given is None:
            return None
        pair = given if isinstance(given, tuple | list) and len(given) == 2 else None
        numbers = pair is not None and all(isinstance(n, int | float) and not isinstance(n, bool) for n in pair)
        if pair is None or not numbers or not isinstance(pair[0], int) or pair[0] < 1 or not pair[1] >= 0:
            raise ArgumentError(f"batch={given!r}; give (number of items from 1, seconds to wait for them)")
        return cls(pair[0], float(pair[1]))


def started(items: Any, after: Any) -> tuple[Iterator[Any], int]:
    """Return an iterator over what comes after item number `after`, and the number of the first of them."""
    first = first_after(after)
    if first and isinstance(items, Sequence):
        return iter(items[first:]), first
    iterator = iter(items)
    for _ in range(first):
        if next(iterator, iterator) is iterator:
            break
    return iterator, first


def first_after(after: Any) -> int:
    """Return the number of the first item after the one that a user says, checked."""
    if after is None:
        return 0
    if isinstance(after, bool) or not isinstance(after, int) or after < -1:
        raise ArgumentError(f"after={after!r}; give the number of the last item that is done, counted from 0")
    return after + 1


class ItemSource(Protocol):
    """What a stream takes its items from."""

    @property
    def over(self) -> bool:
        """Whether nothing will come any more."""

    @property
    def error(self) -> BaseException | None:
        """What the iterable raised: told when everything before it is handed over."""

    @property
    def dropped(self) -> int:
        """How many items newer ones have taken the place of."""

    @property
    def at_once(self) -> bool:
        """Whether pulling does not wait for an item that is only to come, as far as that can be known."""

    def pull(self, within: float | None = None) -> Pulled | None:
        """Return what comes next; None if there is nothing any more, or, where that is possible, within so many seconds."""

    def close(self) -> None:
        """Take nothing more."""


class Source:
    """Items of a plain iterable, in order. What it raises is kept until everything before it is handed over."""

    dropped = 0
    at_once = True

    def __init__(self, items: Iterable[Any], after: int | None = None) -> None:
        self._iterator, self._index = started(items, after)
        self.over = False
        self.error: BaseException | None = None
        self._in_use = threading.Lock()  # held while the iterable computes its next item, on whichever thread
        self._closing = False

    def pull(self, within: float | None = None) -> Pulled | None:
        """Return what comes next; None if there is nothing any more. Waits as long as the iterable does."""
        del within
        try:
            with self._in_use:
                return self._one()
        finally:
            if self._closing:
                self.close()

    def _one(self) -> Pulled | None:
        if self.over:
            return None
        try:
            item = next(self._iterator)
        except StopIteration:
            self.over = True
            return None
        except Exception as error:  # noqa: BLE001 - told when everything before it is handed over
            error.add_note(f"raised by the iterable of a stream in the place of item {self._index}")
            self.over, self.error = True, error
            return None
        self._index += 1
        return Pulled(self._index - 1, item)

    def close(self) -> None:
        """Take nothing more; a generator is closed, as soon as nobody waits for its next item. Idempotent."""
        self.over = True
        self._closing = True
        if self._in_use.acquire(blocking=False):
            try:
                close = getattr(self._iterator, "close", None)
                if close is not None:
                    close()
            finally:
                self._in_use.release()


class SourceEnding(Protocol):
    """What is known of a source, whether it is asked or awaited."""

    @property
    def over(self) -> bool:
        """Whether nothing will come any more."""

    @property
    def error(self) -> BaseException | None:
        """What the iterable raised."""

    @property
    def dropped(self) -> int:
        """Items that newer ones have taken the place of."""


S = TypeVar("S", bound=SourceEnding)


class Filling:
    """A stack to which items are added, until it is full or the first one has waited long enough."""

    def __init__(self, batch: BatchSize, within: float | None) -> None:
        """Begin; the first item may take `within` seconds, None: as long as it wants."""
        self._batch, self.within = batch, within
        self._found: list[Pulled] = []
        self._end = 0.0  # on the clock, once there is an item

    def add(self, one: Pulled | None) -> bool:
        """Add what came, None if nothing did; tell whether another one has a place."""
        if one is None:
            return False
        self._end = self._end or time.monotonic() + self._batch.wait
        self._found.append(one._replace(item=kept(one.item)))
        self.within = max(0.0, self._end - time.monotonic())
        return len(self._found) < self._batch.size

    @property
    def late(self) -> bool:
        """Whether the first item has waited long enough."""
        return self.within == 0.0

    def stack(self) -> Pulled | None:
        """Return the items as one; None if there are none."""
        return stacked(self._found) if self._found else None


class Stacking(Generic[S]):
    """A source whose items are those of another, some at a time."""

    def __init__(self, source: S, batch: BatchSize) -> None:
        self._source, self._batch = source, batch

    @property
    def over(self) -> bool:
        """Whether nothing will come any more."""
        return self._source.over

    @property
    def error(self) -> BaseException | None:
        """What the iterable raised."""
        return self._source.error

    @property
    def dropped(self) -> int:
        """Items that newer ones have taken the place of."""
        return self._source.dropped


class Stacks(Stacking[ItemSource]):
    """Items of a source, as many at a time as there are within some seconds of the first, up to some number."""

    def __init__(self, source: ItemSource, batch: BatchSize) -> None:
        super().__init__(source, batch)
        self.close = source.close

    @property
    def at_once(self) -> bool:
        """Whether the first item of a stack is there, as far as that can be known."""
        return self._source.at_once

    def pull(self, within: float | None = None) -> Pulled | None:
        """Return the next stack; None if there is nothing any more."""
        filling = Filling(self._batch, within)
        while filling.add(self._source.pull(filling.within)) and not filling.late:
            pass
        return filling.stack()


def source_of(
    items: Iterable[Any], after: int | None, batch: BatchSize | None, room: int | None
) -> Source | Newest | Stacks:
    """Return where the items of a stream come from; only the newest `room` of them, if that is given."""
    source: Source | Newest = Source(items, after)
    if room is not None:
        assert isinstance(source, Source)
        source = Newest(source, room)
    return source if batch is None else Stacks(source, batch)


class Unlike(NamedTuple):
    """In the place of a stack: its items cannot be stacked, so each is computed by itself."""

    why: Exception


def stacked(found: Sequence[Pulled]) -> Pulled:
    """Return items as one whose arrays have one more axis, the first; `Unlike` where they do not fit together."""
    items = [one.item for one in found]
    try:
        stack = _stack(items, found[0].index)
    except (ShapeError, ArgumentError) as error:
        stack = Unlike(error)
    return Pulled(found[0].index, stack, tuple(found))


def _stack(items: Sequence[Any], first: int) -> Any:
    columns = [list(leaves(item)) for item in items]
    if any(len(column) != len(columns[0]) for column in columns):
        raise ShapeError(f"items {first} to {first + len(items) - 1} differ in structure and cannot be stacked")
    rows = iter(zip(*columns, strict=True))

    def leaf(_: Any) -> Any:
        entries = next(rows)
        if is_sparse(entries[0]) or not isinstance(entries[0], np.ndarray | int | float | complex | np.generic):
            raise ArgumentError(f"batch= stacks NumPy arrays and numbers; an item has a {type(entries[0]).__name__}")
        try:
            return np.stack([np.asarray(entry) for entry in entries])
        except ValueError as error:
            raise ShapeError(f"items {first} to {first + len(items) - 1} cannot be stacked: {error}") from None

    return mapped(items[0], leaf)


def unstacked(result: Any, count: int) -> list[Any]:
    """Return the results of stacked items, one by one: each array's first axis are the items."""
    for leaf in leaves(result):
        if np.ndim(leaf) < 1 or len(leaf) != count:
            shape = np.shape(leaf)
            raise ShapeError(
                f"a result of {count} stacked items has shape {shape}; with batch= the function treats the first axis as items, "
                "and each of its results has it"
            )
    return [mapped(result, itemgetter(at)) for at in range(count)]


class Newest:
    """Takes items from a source on a thread of its own, and keeps the newest ones only."""

    def __init__(self, source: Source, room: int) -> None:
        self._source, self._room = source, room
        self.dropped = 0
        self.error: BaseException | None = None
        self._queue: deque[Pulled] = deque()
        self._change = threading.Condition()
        self._read = False  # nothing more will come
        self._thread = threading.Thread(target=self._run, name="coexec-stream-source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while (pulled := self._source.pull()) is not None:
                pulled = pulled._replace(item=kept(pulled.item))
                with self._change:
                    if self._read:
                        return
                    if len(self._queue) >= self._room:
                        self._queue.popleft()
                        self.dropped += 1
                    self._queue.append(pulled)
                    self._change.notify_all()
            self.error = self._source.error
        except BaseException as error:  # noqa: BLE001 - whoever takes the results is told; nobody waits for ever
            self.error = error
        finally:
            with self._change:
                self._read = True
                self._change.notify_all()

    @property
    def over(self) -> bool:
        """Whether nothing is left and nothing will come."""
        with self._change:
            return self._read and not self._queue

    @property
    def at_once(self) -> bool:
        """Whether an item is there."""
        with self._change:
            return bool(self._queue)

    def pull(self, within: float | None = None) -> Pulled | None:
        """Return the oldest item that was kept, and wait for one; None if none comes, or not within so many seconds."""
        with self._change:
            self._change.wait_for(lambda: self._queue or self._read, within)
            return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Take nothing more. The thread ends when the iterable returns, and then closes it."""
        self._source.close()
        with self._change:
            self._read = True
            self._queue.clear()
            self._change.notify_all()
