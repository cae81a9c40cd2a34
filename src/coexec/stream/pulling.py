"""The session in which a source computes its next item, while others wait for theirs to be given to a device.

Before: in_front.py, stream/item_session.py.  After: stream/stream.py.  Knows no item.

A source is a program: it may write arrays that the function reads. What was begun before that is to see what was there before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from ..in_front import InFront
from ..program import session
from ..program.call import DEFAULT, Options, placed_now
from ..program.fuse import Operation
from ..program.kernel import Kernel
from ..runtime import Runtime
from .item_session import SEEN
from .sources import ItemSource, Pulled

_blocks = session._blocks


class Pulling(InFront):
    """Stands before a runtime while a source is asked: what waits goes to its device before any call of the source."""

    def __init__(self, runtime: Runtime, flush: Callable[[], None]) -> None:
        """Take what gives items that wait to a device."""
        super().__init__(runtime)
        self._flush = flush
        self.used = False  # a generator may be in a block that it began behind this, and is to end it behind this

    def pull(self, source: ItemSource) -> Pulled | None:
        """Return what comes next from a source."""
        self.used = True
        before = self._begin()
        try:
            return source.pull()
        finally:
            self._end(before)

    def close(self, source: ItemSource) -> None:
        """Take nothing more from a source, which ends its blocks."""
        before = self._begin()
        try:
            source.close()
        finally:
            self._end(before)

    def _begin(self) -> tuple[tuple[Any, ...], Options]:
        """Stand before the runtime; return the blocks and the options that are in force."""
        self.runtime = cast("Runtime", session.current())  # as ever, the source's calls are those of the block around
        blocks, placed = _blocks.get(), placed_now.get()
        _blocks.set((*blocks, self))
        if placed is DEFAULT:
            placed_now.set(SEEN)
        return blocks, placed

    def _end(self, before: tuple[tuple[Any, ...], Options]) -> None:
        """Stand there no more. A generator may be in the middle of a block of its own, which goes on, or have ended one of an earlier turn."""
        blocks, placed = before
        now = _blocks.get()
        _blocks.set(blocks if now == (*blocks, self) else tuple([block for block in now if block is not self]))
        if placed is not SEEN and placed_now.get() is SEEN:
            placed_now.set(DEFAULT)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call, after everything that waits."""
        self._flush()
        return self.runtime.submit(kernel, args, kwargs, options)

    def fuse(self, operation: Operation) -> bool:
        """Hold an operation back, after everything that waits."""
        self._flush()
        return self.runtime.fuse(operation)

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names, after everything that waits."""
        self._flush()
        return self.runtime.begin_step(times)

    def wait(self) -> None:
        """Wait for everything, also for what waits."""
        self._flush()
        self.runtime.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)
