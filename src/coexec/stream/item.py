"""One item of a stream on its way: the function's calls, what it waits for, and its result on the host.

Before: stream/item_session.py, stream/turns.py, stream/trees.py.  After: stream/window.py.  Knows no other item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from ..driver import Driver
from ..errors import DeviceLost, Reported
from ..graph.instruction import IfComputed
from ..graph.task import Task, mark_reported, seen
from ..program import session
from ..program.array import Array
from ..runtime import Runtime
from .bundles import Bundle, FollowedItem, KnownItems, Tapes, kind_of
from .item_session import ItemSession, Route, Watched, inside
from .taping import Taping
from .trees import kept, leaves, mapped, nbytes, on_host, result_arrays, storages, taken
from .turns import StreamTurn

Function = Callable[..., Any]
NOBODY: frozenset[int] = frozenset()


class ItemRun:
    """Computes one item. Begin it, advance it whenever `waits_for` is over, and take its outcome."""

    def __init__(
        self,
        runtime: Runtime,
        function: Function,
        constants: Mapping[str, Any],
        index: int,
        item: Any,
        tapes: Tapes | None = None,
        *,
        lent: bool = False,
    ) -> None:
        """Take an item. `tapes` are what is known of others; if it is `lent`, its arrays stay as they are."""
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
        self._turn: StreamTurn | None = None
        self._told = Reported(held=True)
        self.weight = 0  # bytes that its window counts
        self.kind = kind_of(item) if tapes is not None and tapes.on else None  # of items that are computed alike
        self.known: KnownItems | None = None  # of its kind, as long as its item is a copy that nobody has taken
        self.bundle: Bundle | None = None  # that it is computed in
        self.followed: FollowedItem | None = None  # what its function has done, as long as it is in no bundle
        self._taping: Taping | None = None
        self.context: Context | None = None  # in which its function was called
        self._tapes, self._lent = tapes, lent
        self._at = 0  # in its bundle
        if self.kind is not None and tapes is not None:
            self.known = tapes.of(self.kind)
        if self.known is not None:
            self.borrowed = NOBODY
            if lent:
                self.item = item
            else:
                self.item = self.known.copied(item) if type(item) is np.ndarray else kept(item)
            self._size = nbytes(self.item) if self.known.taping else self.known.bytes
            return
        self.borrowed = frozenset([storage.id for storage in storages(item)])  # arrays that it was given as they are
        self._take(item)

    def _take(self, item: Any) -> bool:
        """Make coexec arrays of the item's arrays; tell whether that was possible."""
        self.known = None
        try:
            with session.within(self._runtime):
                self.item = taken(item)
            self._size = nbytes(self.item)
        except Exception as error:  # noqa: BLE001 - the stream's policy decides what becomes of it
            self.error = error
        return self.error is None

    def begin(self, route: Route, watched: Watched, *, threaded: bool, taped: bool = False) -> None:
        """Make the function's calls, up to its end; if it is `threaded`, up to its first wait.

        If it may be `taped`, nothing is made as long as its function does what it has done with others: it is `followed` then.
        """
        self.begun += 1
        self.error, self._reads, self._result, self.bundle, self._taping = None, [], None, None, None
        self._told = Reported(held=True)
        known = self.known
        if known is not None:
            if taped and self._follow(known, route, watched):
                return
            if not self._take(self.item):
                return
        own = list(storages(self.item))
        if known is not None and taped and known.taping:
            arrays = [leaf for leaf in leaves(self.item) if isinstance(leaf, Array)]
            self.session = self._taping = Taping(self._runtime, self.index, route, watched, arrays)
        else:
            self.session = ItemSession(self._runtime, self.index, route, watched, own)
        if threaded:
            self._turn = StreamTurn(self._call, f"coexec-item-{self.index}", self._driver.signals.deferred)
            self.advance()
        else:
            self._ended(self._call)

    def _call(self) -> Any:
        assert self.session is not None
        with inside(self.session), session.answering(self._told):
            if self._taping is not None:
                self._taping.begin()
            return self._function(self.item, **self._constants)

    def _follow(self, known: KnownItems, route: Route, watched: Watched) -> bool:
        """Compute the item along the tape of its kind; False if there is none, and nothing was done."""
        found = known.follower()
        if found is None:
            return False
        follower, tape = found
        self.context = copy_context()
        answering = session._answering.set(self._told)
        try:
            data = [leaf for leaf in leaves(self.item) if type(leaf) is np.ndarray]
            stand_ins = iter(follower.leaves)
            item = mapped(self.item, lambda leaf: next(stand_ins) if type(leaf) is np.ndarray else leaf)
            place = (self.index, route, watched)
            result = follower.follow(self._function, item, self._constants, data, place)
        except Exception as error:  # noqa: BLE001 - the stream's policy decides what becomes of it
            mark_reported(error)
            self.error = error
        finally:
            session._answering.reset(answering)
            known.back(follower)
        self.session = follower.session()
        if self.session is None and self.error is None:
            self.followed = FollowedItem(tape, data, result)
            return True
        self.item, self.known = item, None  # its arrays are coexec's now
        if self.error is None:
            self._ended(lambda: result)
        return True

    def join(self, bundle: Bundle, at: int) -> None:
        """Be computed in a bundle, as its item number `at`."""
        self.bundle, self._at, self.followed = bundle, at, None

    @property
    def spoilt(self) -> bool:
        """Whether its bundle could not compute it, so that it is to be computed by itself."""
        bundle = self.bundle
        return bundle is not None and self._at < len(bundle.errors) and bundle.errors[self._at] is not None

    def _ended(self, result: Callable[[], Any]) -> None:
        """Take what the function returned, and have it brought to the host."""
        try:
            self._result = result()
            if self._taping is not None and self._tapes is not None:
                known = self._tapes.of(self.kind)
                if known is not None:
                    known.learn(self._taping, list(leaves(self._result)), self._tapes.takes, self._tapes.bodies)
                self._taping = None
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
        if self.bundle is not None:
            task = self.bundle.task
            return None if task is None or task.finished else task
        return next((task for task, _ in self._reads if not task.finished), None)

    @property
    def over(self) -> bool:
        """Whether its outcome is known."""
        if self.followed is not None:
            return False
        return self._turn is None and (self.error is not None or self.waits_for is None)

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, once it is over."""
        if self.bundle is not None and self.bundle.task is not None:
            return self.error or self.bundle.task.failure
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
        if self.bundle is not None:
            result, self.bundle.results[self._at] = self.bundle.results[self._at], None
            if self.known is not None and not self._lent:
                copy, self.item = self.item, None
                self.known.over(copy)
            return result
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
        mark_reported(failure)
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
        if self.bundle is not None and self.bundle.task is not None and not self.bundle.task.finished:
            self._driver.wait_because(self.bundle.task, "stream")
        self._reads = []


def driver_of(runtime: Runtime) -> Driver:
    """Return what drives a runtime of one rank; streams run on these."""
    return runtime._driver


__all__ = ["ItemRun", "driver_of"]
