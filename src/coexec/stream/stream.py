"""A stream: results of a function for one item after the other, many items being under way at once.

Before: stream/window.py, stream/sources.py, stream/failures.py.  After: stream/pipeline.py.  Plans nothing.

Nothing happens unless the consumer asks for a result, or has asked: devices work on what they were given, up to `ahead`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self

from ..errors import ProgramError
from .failures import FailurePolicy, StreamFailure
from .item import ItemRun
from .sources import ItemSource, Pulled, Unlike, unstacked
from .window import NOTHING, Window

PATIENCE = 200e-6  # seconds that a source takes for an item, from which on devices do not wait for the next one


class AsyncItems(ItemSource, Protocol):
    """Items that only an event loop can wait for: `pull` raises."""

    async def next(self, within: float | None = None) -> Pulled | None:
        """Return what comes next; None if there is nothing any more, or within so many seconds."""

    async def aclose(self) -> None:
        """Take nothing more, and close the iterable."""


class Consumer(Protocol):
    """Is told when the consumer asks for a result, and when it has one."""

    def asked(self) -> None:
        """Note that the consumer waits from now on."""

    def left(self) -> None:
        """Note that the consumer does something else from now on."""


class _OfStack(NamedTuple):
    """One item of a stack that is over: its result, or the item itself, if it is to be computed by itself."""

    pulled: Pulled
    alone: bool
    result: Any = None


class Stream(Iterator[Any]):
    """Gives results one by one. `close`, or the end of a `with` block, ends it early."""

    def __init__(
        self,
        source: ItemSource,
        window: Window,
        policy: FailurePolicy,
        *,
        stage_of: Callable[[BaseException], str],
        ended: Callable[[], None],
        told: Callable[[int], None],
        consumer: Consumer,
    ) -> None:
        """Begin. `stage_of` names the stage of a failure, `ended` is called once, `told` with each item that is over."""
        self.consumer = consumer
        self._source, self._window, self._policy = source, window, policy
        self._stage_of, self._ended, self._told = stage_of, ended, told
        self._stacks: dict[int, tuple[Pulled, ...]] = {}  # items of a stack, by the index of the first
        self._out: deque[_OfStack] = deque()  # items of a stack that were not handed over
        self._checked = False  # a stack gave what its items give
        self._last = -1  # the largest number of an item that was handed over
        self.position = -1  # this item and all before it were handed over, or dropped
        self.closed = False
        self._taking = threading.Lock()

    @property
    def failures(self) -> list[StreamFailure]:
        """The items that have no result."""
        return self._policy.failures

    @property
    def dropped(self) -> int:
        """How many items were dropped, since newer ones had come."""
        return self._source.dropped

    @property
    def in_flight(self) -> int:
        """How many items have begun and were not handed over."""
        return len(self._window.runs)

    # The consumer's side ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._taking.acquire(blocking=False):
            raise ProgramError("another thread is taking a result of this stream; take them from one thread at a time")
        try:
            self.consumer.asked()
            result = self._next()
            self.consumer.left()
        except BaseException:  # the end, a failure, or Ctrl-C at any moment
            self.close()
            self.consumer.left()
            raise
        finally:
            self._taking.release()
        return result

    def _next(self) -> Any:
        while not self.closed:
            self._fill()
            result = self._deliver()
            if result is not NOTHING:
                return result
            if self._finished():
                break
            if not self._window.advance():
                self._window.wait()
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Any]:
        from .asynchronous import results

        return results(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the stream as `close` does, without keeping the event loop waiting."""
        from .asynchronous import ended

        await ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the stream: nothing more is taken, and what is under way is waited for and thrown away. Idempotent."""
        if self.closed:
            return
        self.closed = True
        try:
            self._window.close(self._source)
        finally:
            self._window.abandon()
            self._ended()

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()

    # Steps ------------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Begin with items as long as there is room. Once a result is there, it does not wait for more than one."""
        window = self._window
        if window.waits_for_room and self._is_ready():
            return
        begun, waited = 0, 0.0
        window.gathering = True
        try:
            while window.has_room and not self._source.over:
                if begun and (begun >= window.together or waited > PATIENCE) and self._is_ready():
                    return
                if window.runs and not self._source.at_once:
                    return
                start = perf_counter()
                pulled = window.pull(self._source)
                waited = perf_counter() - start
                if pulled is None:
                    return
                self.begin(pulled)
                begun += 1
                if waited > PATIENCE:  # the next one may take as long: nobody waits for it
                    window.flush()
        finally:
            window.gathering = False
            window.flush()

    def _is_ready(self) -> bool:
        runs = self._window.runs
        return bool(self._out) or (bool(runs) and runs[0].over)

    def begin(self, pulled: Pulled) -> None:
        """Begin with an item, or with a stack of them; with each item of a stack that is none."""
        if isinstance(pulled.item, Unlike):
            for one in pulled.stacked:
                self._window.begin(one.index, one.item)
            return
        if pulled.stacked:
            self._stacks[pulled.index] = pulled.stacked
        self._window.begin(pulled.index, pulled.item)

    def _finished(self) -> bool:
        """Tell whether nothing is left; raise what the iterable raised, once everything before it is handed over."""
        if self._window.runs or self._out or not self._source.over:
            return False
        if self._source.error is not None:
            raise self._source.error
        return True

    def _deliver(self) -> Any:
        """Return the next result, or NOTHING."""
        while True:
            while self._out:
                result = self._out_of_stack(self._out.popleft())
                if result is not NOTHING:
                    return result
            while self._window.advance():
                pass
            run = self._window.take()
            if run is None:
                return NOTHING
            items = self._stacks.pop(run.index, ())
            if items:
                self._out.extend(self._of_stack(run, items))
                continue
            result = self._outcome(run)
            if result is not NOTHING:
                return result

    def _handed_over(self, index: int) -> None:
        """Count an item that is over, and say up to which one all are."""
        self._last = max(self._last, index)
        runs = self._window.runs
        left = self._last + 1
        if runs:
            left = runs[0].index if self._window.in_order else min([run.index for run in runs])
        if self._out:
            left = min(left, *[entry.pulled.index for entry in self._out])
        self.position = min(self._last, left - 1)
        self._told(index)

    def _outcome(self, run: ItemRun) -> Any:
        """Return the result of an item, or what stands in its place; NOTHING if nothing does."""
        self._handed_over(run.index)
        if run.failure is None:
            self._policy.passed()
            return run.value()
        error = run.told()
        stage = self._stage_of(error)
        stand_in = self._policy.failed(StreamFailure(run.index, stage, error))
        return NOTHING if stand_in is None else stand_in

    # Stacked items ----------------------------------------------------------------------------------------------------

    def _of_stack(self, run: ItemRun, items: tuple[Pulled, ...]) -> list[_OfStack]:
        """Return the items of a stack with their results; if they fail together, each is computed by itself later."""
        if run.failure is not None:
            run.told()
            return [_OfStack(item, alone=True) for item in items]
        results = unstacked(run.value(), len(items))
        if not self._checked and len(items) > 1:
            self._checked = True
            self._check(results[-1], self._window.alone(*items[-1][:2]))
        return [_OfStack(item, False, result) for item, result in zip(items, results, strict=True)]

    def _out_of_stack(self, entry: _OfStack) -> Any:
        """Return the result of an item of a stack, or what stands in its place; NOTHING if nothing does."""
        if entry.alone:
            return self._outcome(self._window.alone(*entry.pulled[:2]))
        self._handed_over(entry.pulled.index)
        self._policy.passed()
        return entry.result

    def _check(self, stacked: Any, run: ItemRun) -> None:
        """Raise unless an item's part of a stacked result is what the function gives for the item alone."""
        import numpy as np

        from .trees import leaves

        expected = run.value() if run.failure is None else None
        pairs = zip(leaves(stacked), leaves(expected), strict=False)
        same = run.failure is None and all(
            np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-3, atol=1e-6, equal_nan=True) for a, b in pairs
        )
        if not same:
            raise ProgramError(
                f"with batch= item {run.index} has another result than by itself, so the function does not treat the first axis "
                "of its arrays as items; leave batch= away"
            )
