"""Streams in asyncio: items from plain or asynchronous iterables, while the event loop goes on.

Before: stream/stream.py.  After: stream/pipeline.py.  Adds nothing but who waits where: everything that may block is on another thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .sources import BatchSize, Filling, ItemSource, Pulled, Stacking, first_after
from .trees import kept
from .window import NOTHING

if TYPE_CHECKING:
    from .stream import AsyncItems, Stream

LOOK_AGAIN = 0.5  # seconds: a wait for tasks that nobody wants any more ends by then


class AsyncSource:
    """Items of an asynchronous iterable. `pull` belongs to the other kind, and is refused."""

    dropped = 0
    at_once = True

    def __init__(self, items: AsyncIterable[Any], after: int | None) -> None:
        self._iterator = aiter(items)
        self._skip, self._index = first_after(after), 0
        self._pulling: asyncio.Future[Any] | None = None
        self.over = False
        self.error: BaseException | None = None

    def pull(self, within: float | None = None) -> Pulled | None:
        """Raise: an asynchronous iterable needs an event loop."""
        raise ArgumentError("the items come from an asynchronous iterable; take the results with `async for`")

    async def next(self, within: float | None = None) -> Pulled | None:
        """Return one item; None if there is none any more, or within so many seconds."""
        while not self.over:
            if self._pulling is None:
                self._pulling = asyncio.ensure_future(anext(self._iterator))
            done, _ = await asyncio.wait({self._pulling}, timeout=within)
            if not done:
                return None
            pulling, self._pulling = self._pulling, None
            try:
                item = pulling.result()
            except StopAsyncIteration:
                self.over = True
                return None
            except Exception as error:  # noqa: BLE001 - told when everything before it is handed over
                error.add_note(f"raised by the iterable of a stream in the place of item {self._index}")
                self.over, self.error = True, error
                return None
            self._index += 1
            if self._index > self._skip:
                return Pulled(self._index - 1, item)
        return None

    def close(self) -> None:
        """Take nothing more."""
        self.over = True

    async def aclose(self) -> None:
        """Take nothing more, and close the iterable, if it is a generator."""
        self.over = True
        if self._pulling is not None:
            await _cancelled(self._pulling)
            self._pulling = None
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


class AsyncNewest:
    """Takes items from an asynchronous source as they come, and keeps the newest ones only."""

    at_once = True

    def __init__(self, source: AsyncSource, room: int) -> None:
        self._source, self._room = source, room
        self.dropped = 0
        self._queue: deque[Pulled] = deque()
        self._change = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self.pull = source.pull

    @property
    def over(self) -> bool:
        """Whether nothing is left and nothing will come."""
        return self._source.over and not self._queue

    @property
    def error(self) -> BaseException | None:
        """What the iterable raised."""
        return self._source.error

    async def _read(self) -> None:
        try:
            while (pulled := await self._source.next()) is not None:
                if len(self._queue) >= self._room:
                    self._queue.popleft()
                    self.dropped += 1
                self._queue.append(pulled._replace(item=kept(pulled.item)))
                self._change.set()
        finally:
            self._source.over = True
            self._change.set()

    async def next(self, within: float | None = None) -> Pulled | None:
        """Return the oldest item that was kept, and wait for one; None if none comes, or not within so many seconds."""
        if self._reader is None:
            self._reader = asyncio.ensure_future(self._read())
        try:
            async with asyncio.timeout(within):
                while not self._queue and not self._source.over:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            return None
        return self._queue.popleft() if self._queue else None

    def close(self) -> None:
        """Take nothing more."""
        self._source.close()
        self._queue.clear()

    async def aclose(self) -> None:
        """Take nothing more, and close the iterable."""
        self._queue.clear()
        if self._reader is not None:
            await _cancelled(self._reader)
        await self._source.aclose()


class AsyncStacks(Stacking["AsyncItems"]):
    """Items of an asynchronous source, as many at a time as there are within some seconds of the first."""

    at_once = True

    def __init__(self, source: AsyncItems, batch: BatchSize) -> None:
        super().__init__(source, batch)
        self.pull, self.close, self.aclose = source.pull, source.close, source.aclose

    async def next(self, within: float | None = None) -> Pulled | None:
        """Return the next stack; None if there is nothing any more."""
        filling = Filling(self._batch, within)
        while filling.add(await self._source.next(filling.within)):
            pass
        return filling.stack()


def source_of(
    items: AsyncIterable[Any], after: int | None, batch: BatchSize | None, room: int | None
) -> AsyncSource | AsyncNewest | AsyncStacks:
    """Return where the items of a stream come from; only the newest `room` of them, if that is given."""
    source: AsyncSource | AsyncNewest = AsyncSource(items, after)
    if room is not None:
        assert isinstance(source, AsyncSource)
        source = AsyncNewest(source, room)
    return source if batch is None else AsyncStacks(source, batch)


async def _cancelled(future: asyncio.Future[Any]) -> None:
    """Cancel something, and wait until it is over; what it raises is nobody's."""
    future.cancel()
    await asyncio.wait({future})
    if not future.cancelled():
        future.exception()


def _aside(function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Call something that may block, on another thread, in the caller's context."""
    context = copy_context()
    return asyncio.get_running_loop().run_in_executor(None, lambda: context.run(function, *args))


async def ended(stream: Stream) -> None:
    """Close a stream and its source, while the event loop goes on."""
    source = stream._source
    try:
        if isinstance(source, AsyncSource | AsyncNewest | AsyncStacks):
            await source.aclose()
    finally:
        await _aside(stream.close)


def _pulled(source: ItemSource) -> asyncio.Future[Any]:
    """Begin to take what comes next."""
    if isinstance(source, AsyncSource | AsyncNewest | AsyncStacks):
        return asyncio.ensure_future(source.next())
    return _aside(source.pull)


async def results(stream: Stream) -> AsyncIterator[Any]:
    """Yield the results of a stream. The event loop never waits for a device or for a plain iterable."""
    pulling: asyncio.Future[Any] | None = None
    waiting: asyncio.Future[Any] | None = None
    source, window = stream._source, stream._window
    try:
        while not stream.closed:
            result = await _aside(stream._deliver)
            if result is not NOTHING:
                stream.consumer.left()
                yield result
                stream.consumer.asked()
                continue
            if pulling is None and await _aside(stream._finished):
                break
            if pulling is None and window.has_room and not source.over:
                pulling = _pulled(source)
            if waiting is None and window.runs:
                waiting = _aside(window.wait, LOOK_AGAIN)  # at once over if an item has ended meanwhile
            pending = {future for future in (pulling, waiting) if future is not None}
            if pending:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if pulling is not None and pulling.done():
                pulled, pulling = pulling.result(), None
                if pulled is not None:
                    await _aside(stream.begin, pulled)
            if waiting is not None and waiting.done():
                waiting.result()
                waiting = None
    finally:
        if waiting is not None:
            await asyncio.wait({waiting})
        if isinstance(pulling, asyncio.Task):
            await _cancelled(pulling)
        await ended(stream)


__all__ = ["AsyncNewest", "AsyncSource", "AsyncStacks", "ended", "results", "source_of"]
