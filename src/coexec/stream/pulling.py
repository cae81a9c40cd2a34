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

    def pull(self, source: ItemSource) -> Pulled | None:
        """Return what comes next from a source."""
        self.runtime = cast(
            "Runtime", session.current()
        )  # as ever, the source's calls are those of the block around it
        before, placed = _blocks.get(), placed_now.get()
        mine = (*before, self)
        _blocks.set(mine)
        within = SEEN if placed is DEFAULT else placed
        placed_now.set(within)
        try:
            return source.pull()
        finally:  # a generator may be in the middle of a block of its own, which goes on
            now = _blocks.get()
            _blocks.set(before if now is mine else tuple([block for block in now if block is not self]))
            if placed_now.get() is within:
                placed_now.set(placed)

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
