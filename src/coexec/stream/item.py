"""One item of a stream on its way: the function's calls, what it waits for, and its result on the host.

Before: stream/item_session.py, stream/turns.py, stream/trees.py.  After: stream/window.py.  Knows no other item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..driver import Driver
from ..errors import DeviceLost, Reported
from ..graph.instruction import IfComputed
from ..graph.task import Task, mark_reported, seen
from ..program import session
from ..runtime import Runtime
from .item_session import ItemSession, Route, Watched, inside
from .trees import nbytes, on_host, result_arrays, storages, taken
from .turns import Turn

Function = Callable[..., Any]


class ItemRun:
    """Computes one item. Begin it, advance it whenever `waits_for` is over, and take its outcome."""

    def __init__(
        self,
        runtime: Runtime,
        function: Function,
        constants: Mapping[str, Any],
        index: int,
        item: Any,
    ) -> None:
        """Take an item."""
        self.index = index
        self.session: ItemSession | None = None
        self.begun = 0  # how often it was computed
        self.error: BaseException | None = None  # what the function raised itself
        self._runtime, self._driver = runtime, driver_of(runtime)
        self._function, self._constants = function, constants
        self.item: Any = None
        self._size = 0
        self._result: Any = None
        self._reads: list[tuple[Task, list[Any]]] = []
        self._turn: Turn | None = None
        self._told = Reported(held=True)
        self.borrowed = frozenset([storage.id for storage in storages(item)])  # arrays that it was given as they are
        try:
            with session.within(runtime):
                self.item = taken(item)
            self._size = nbytes(self.item)
        except Exception as error:  # noqa: BLE001 - the stream's policy decides what becomes of it
            self.error = error

    def begin(self, route: Route, watched: Watched, *, threaded: bool) -> None:
        """Make the function's calls, up to its end; if it is `threaded`, up to its first wait."""
        self.begun += 1
        self.error, self._reads, self._result = None, [], None
        self._told = Reported(held=True)
        own = list(storages(self.item))
        self.session = ItemSession(self._runtime, self.index, route, watched, own)
        if threaded:
            self._turn = Turn(self._call, f"coexec-item-{self.index}", self._driver.signals.deferred)
            self.advance()
        else:
            self._ended(self._call)

    def _call(self) -> Any:
        assert self.session is not None
        with inside(self.session), session.answering(self._told):
            return self._function(self.item, **self._constants)

    def _ended(self, result: Callable[[], Any]) -> None:
        """Take what the function returned, and have it brought to the host."""
        try:
            self._result = result()
            with session.answering(self._told):
                self._reads = [
                    self._driver.begin_read(array, box=IfComputed()) for array in result_arrays(self._result)
                ]
                self._runtime.flush()
        except Exception as error:  # noqa: BLE001 - the stream's policy decides what becomes of it
            mark_reported(error)
            self.error = error

    def advance(self) -> None:
        """Go on with a function that waited."""
        turn = self._turn
        if turn is not None:
            turn.resume()
            if turn.over:
                self._turn = None
                self._ended(turn.result)

    @property
    def bytes(self) -> int:
        """How much memory its arrays take, as far as they were made."""
        return self._size + (self.session.bytes if self.session is not None else 0)

    @property
    def result(self) -> Any:
        """What the function returned, with coexec arrays."""
        return self._result

    @property
    def suspended(self) -> bool:
        """Whether the function waits in the middle."""
        return self._turn is not None

    @property
    def waits_for(self) -> Task | None:
        """The task without which it cannot go on; None if it can, or if it is over."""
        if self._turn is not None:
            task: Task | None = self._turn.waiting_for
            return None if task is None or task.finished else task
        return next((task for task, _ in self._reads if not task.finished), None)

    @property
    def over(self) -> bool:
        """Whether its outcome is known."""
        return self._turn is None and (self.error is not None or self.waits_for is None)

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, once it is over."""
        return self.error or next((task.failure for task, _ in self._reads if task.failure is not None), None)

    @property
    def can_begin_again(self) -> bool:
        """Whether nothing but a lost device kept it from its result, and nothing that it needs has changed."""
        changed = self.session is not None and self.session.wrote_item
        return isinstance(self.failure, DeviceLost) and not changed

    def value(self) -> Any:
        """Return its result with arrays on the host. It is over and has not failed.

        A simulation that computes no values gives the arrays as they are.
        """
        self._told.held = False
        if not all(box for _, box in self._reads):
            return self._result
        return on_host(self._result, iter([box.pop() for _, box in self._reads]))

    def told(self) -> BaseException:
        """Return its failure, which counts as reported from now on."""
        failure = self.failure
        assert failure is not None
        self._told.yes = True
        for task, _ in self._reads:
            mark_reported(task.failure)
        return failure if failure is self.error else seen(failure)

    def abandon(self) -> None:
        """End it: nobody wants its result. Waits for what has begun."""
        self._told.yes = True
        if self._turn is not None:
            self._turn.abandon()
            self._turn = None
        for task, _ in self._reads:
            self._driver.wait_because(task, "stream")
            mark_reported(task.failure)
        self._reads = []


def driver_of(runtime: Runtime) -> Driver:
    """Return what drives a runtime of one rank; streams run on these."""
    return runtime._driver


__all__ = ["ItemRun", "driver_of"]
