"""The items of a stream that are under way: how many there may be, which of them is next, and what becomes of lost devices.

Before: stream/item.py.  After: stream/stream.py.  Knows no policy for failures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from ..errors import ArgumentError, RuntimeClosed
from ..graph.task import Task
from ..program.call import DEFAULT, Options
from ..runtime import Runtime
from .bundles import TOGETHER, Bundle, FollowedItem, KnownItems, Tapes
from .item import Function, ItemRun, driver_of
from .item_session import Route, Watched
from .pulling import Pulling
from .sources import ItemSource, Pulled
from .tape import another

ORDERS = ("input", "completion")
NOTHING = object()
"""In the place of a result: there is none yet."""


class Ahead(NamedTuple):
    """How far a stream runs ahead of its consumer."""

    items: int  # 0 = as many as the plan needs
    bytes: float

    @classmethod
    def of(cls, given: Any, items: int, nbytes: float) -> Ahead:
        """Return what a user says, with defaults for what is left open."""
        if given is None:
            return cls(items, nbytes)
        pair = given if isinstance(given, tuple | list) else (given, None)
        if len(pair) != 2:
            raise ArgumentError(f"ahead={given!r}; give a number of items, or (items, bytes)")
        for name, value in zip(("items", "bytes"), pair, strict=True):
            wrong = isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1
            if value is not None and (wrong or (name == "items" and not isinstance(value, int))):
                raise ArgumentError(
                    f"ahead={given!r}: {name} is {value!r}; give a number from 1, or None for the default"
                )
        return cls(items if pair[0] is None else pair[0], nbytes if pair[1] is None else float(pair[1]))


class Terms(NamedTuple):
    """On which terms items are computed."""

    items: int  # that are under way at once, unless the user says something else
    threaded: bool = False  # the function waits in the middle, so that it gets a thread of its own
    repeatable: bool = True  # the function has no state, so that it can compute an item once more
    together: float = TOGETHER  # seconds of work that a device may get at a time


class Dispatcher(Protocol):
    """Says where items go."""

    def terms(self, item: Any) -> Terms:
        """Return on which terms an item is computed; the first one is planned for."""

    def place(self, run: ItemRun) -> tuple[Route, Watched]:
        """Return where the calls of an item go that is about to begin, and what is looked at meanwhile."""

    def load(self) -> bool:
        """Tell whether devices need other designs, which are loaded while nothing else is under way."""

    def loaded(self) -> None:
        """Give devices their designs: nothing is under way."""

    def over(self, run: ItemRun) -> None:
        """Take note of an item that is over."""

    def lost(self, item: Any) -> None:
        """Find other devices for items like this one: some are lost."""


class Window:
    """Items that have begun and were not handed over, in the order of their beginning."""

    def __init__(
        self,
        runtime: Runtime,
        function: Function,
        constants: Mapping[str, Any],
        dispatcher: Dispatcher,
        *,
        ahead: Ahead,
        order: str,
        tapes: Tapes | None = None,
        lent: bool = False,
    ) -> None:
        """Begin. `tapes` are what is known of items; None: each is computed by itself. `lent`: nobody changes items meanwhile."""
        if order not in ORDERS:
            raise ArgumentError(f"order={order!r}; say {', '.join(map(repr, ORDERS))}")
        self._make: Callable[[int, Any], ItemRun] = lambda index, item: ItemRun(
            runtime, function, constants, index, item, tapes, lent=lent
        )
        self._runtime, self._driver, self._dispatcher = runtime, driver_of(runtime), dispatcher
        self._terms = Terms(1)
        self._most_begun = len(runtime.platform.devices) + 1
        self.ahead, self.in_order = ahead, order == "input"
        self.runs: deque[ItemRun] = deque()
        self.again = 0  # items that were computed once more, since a device was lost
        self._tapes = tapes
        self._held = 0  # bytes of all runs
        self._followed: list[ItemRun] = []  # that wait to be given to a device together
        self._options: Options = DEFAULT  # where they go
        self._bundles = 0
        self.given = 0.0  # when the first bundle was given to a device
        self.pulling = Pulling(runtime, self.flush)
        self.gathering = False  # more items are about to begin: those that wait, go on waiting for them
        self.together = 1  # how many items a device gets at a time

    @property
    def most(self) -> int:
        """How many items may be under way."""
        return self.ahead.items or self._terms.items * self.together

    @property
    def has_room(self) -> bool:
        """Whether another item may begin; one always may if there is none."""
        runs = self.runs
        if len(runs) >= self.most:
            return not runs
        if self._terms.threaded:  # functions make arrays as they go on
            for run in runs:
                self._weigh(run)
        return not runs or self._held + runs[-1].weight <= self.ahead.bytes

    def pull(self, source: ItemSource) -> Pulled | None:
        """Return what comes next from a source. If it writes what items read that wait for others, these go first."""
        return self.pulling.pull(source) if self._followed or self.pulling.used else source.pull()

    def close(self, source: ItemSource) -> None:
        """Take nothing more from a source."""
        if self.pulling.used:
            self.pulling.close(source)
        else:
            source.close()

    @property
    def waits_for_room(self) -> bool:
        """Whether it is better to take results first: a device gets several items at a time, and has enough to do."""
        together, begun = self.together, len(self.runs)
        return together > 1 and 2 * begun > self.most and begun + together > self.most

    def _weigh(self, run: ItemRun) -> None:
        self._held += run.bytes - run.weight
        run.weight = run.bytes

    def begin(self, index: int, item: Any) -> None:
        """Begin with an item. It is among the others first: Ctrl-C at any moment ends it with them."""
        if self._runtime.closed:  # that is no item's failure, which a policy might pass over for ever
            raise RuntimeClosed(
                "the runtime of this stream is closed; take all results before that, or close the stream"
            )
        run = self._make(index, item)
        self.runs.append(run)
        self._start(run, item)
        self._weigh(run)
        if not self.gathering:
            self.flush()

    def _start(self, run: ItemRun, item: Any) -> None:
        if run.error is None:
            try:
                self._terms = self._dispatcher.terms(item)
                place = self._dispatcher.place(run)
            except Exception as error:  # noqa: BLE001 - no plan, or no features: the stream's policy decides what becomes of it
                run.error = error
            else:
                if run.borrowed:
                    self._finish_sharing(run)
                self._load_designs(run)
                known, tapes, threaded = run.known, self._tapes, self._terms.threaded
                taped = known is not None and tapes is not None and not threaded and tapes.serve(*place)
                run.begin(*place, threaded=threaded, taped=taped)
                if known is not None and run.followed is not None:
                    self._gather(run, run.followed, known, place[0])

    def _gather(self, run: ItemRun, followed: FollowedItem, known: KnownItems, route: Route) -> None:
        """Let an item wait for others, to be given to a device with them."""
        turns = route.places[0].turns
        options = turns[self._bundles % len(turns)]
        first = self._followed[0] if self._followed else run
        alike = first is run or (first.followed is not None and first.followed.tape is followed.tape)
        if not alike or options is not self._options or another(first.context):
            self.flush()
            options = turns[self._bundles % len(turns)]
        self._options = options
        self._followed.append(run)
        most = known.together(self._terms.together)
        if self.ahead.items:
            most = max(1, min(most, self.ahead.items // (2 * len(turns))))
        self.together = most
        if len(self._followed) >= most:
            self.flush()

    def flush(self) -> None:
        """Give items that wait for others to a device."""
        runs = self._followed
        if not runs:
            return
        self._followed = []
        self._bundles += 1
        self.given = self.given or perf_counter()
        known = runs[0].known
        assert known is not None
        bundle = Bundle(known, [run.followed for run in runs if run.followed is not None])
        for at, run in enumerate(runs):
            run.join(bundle, at)
        context = runs[0].context
        try:
            if context is None:
                bundle.submit(self._runtime, self._options)
            else:  # bodies run in what was in force around the function, not in what its source is doing now
                context.run(bundle.submit, self._runtime, self._options)
        except Exception as error:  # noqa: BLE001 - the stream's policy decides what becomes of them
            for run in runs:
                run.error = error

    def _load_designs(self, run: ItemRun) -> None:
        """Let everything end that is under way, if devices are to be configured anew for an item that is about to begin."""
        if not self._dispatcher.load():
            return
        for other in [other for other in self.runs if other is not run]:
            while not other.over:
                self._go_on(other)
        self._dispatcher.loaded()

    def _finish_sharing(self, run: ItemRun) -> None:
        """Let functions end that wait in the middle and have arrays in common with an item that is about to begin.

        They may still write them: the item would see what it would not see if items were computed one after the other.
        """
        for other in [other for other in self.runs if other.suspended and not other.borrowed.isdisjoint(run.borrowed)]:
            while other.suspended:
                self._go_on(other)

    def _go_on(self, run: ItemRun) -> None:
        """Wait for what an item waits for, and go on with its function."""
        task = run.waits_for
        if task is not None:
            self._driver.wait_because(task, "stream")
        if run.suspended:
            run.advance()

    def alone(self, index: int, item: Any) -> ItemRun:
        """Compute one item beside those that are under way, and wait for it."""
        run = self._make(index, item)
        try:
            self._start(run, item)
            self.flush()
            while not run.over or self._begin_again([run]):
                self._go_on(run)
        except BaseException:  # Ctrl-C: nothing of it may be left behind
            run.abandon()
            raise
        self._dispatcher.over(run)
        return run

    def advance(self) -> bool:
        """Let functions go on whose waits are over, and begin again with items of lost devices; tell whether there were any."""
        ready = [run for run in self.runs if run.suspended and run.waits_for is None] if self._terms.threaded else []
        for run in ready:
            run.advance()
        first = self.runs[0] if self.runs and self.in_order else None
        if first is not None and not (first.over and (first.spoilt or first.failure is not None)):
            return bool(ready)  # the others are looked at when their turn comes
        return bool(self._begin_again(self.runs) or ready)

    def _begin_again(self, runs: Iterable[ItemRun]) -> bool:
        """Compute items once more that a lost device, or a neighbour, kept from their results; tell whether there were any."""
        over = [run for run in runs if run.over]
        failed = [run for run in over if run.failure is not None and self._begins_again(run)]
        spoilt = [run for run in over if run.failure is None and run.spoilt]
        if failed:
            for run in failed:
                run.told()
            self._dispatcher.lost(failed[0].item)
        for run in (*failed, *spoilt):
            self.again += run in failed
            place = self._dispatcher.place(run)
            self._load_designs(run)
            run.begin(*place, threaded=self._terms.threaded)
            self._weigh(run)
        return bool(failed or spoilt)

    def take(self) -> ItemRun | None:
        """Return the next item that is over and remove it; None if none is."""
        for run in [self.runs[0]] if self.in_order and self.runs else list(self.runs):
            if run.over:
                self.runs.remove(run)
                self._held -= run.weight
                self._dispatcher.over(run)
                return run
        return None

    def _begins_again(self, run: ItemRun) -> bool:
        """Tell whether nothing but a lost device kept an item from its result, and nothing that it needs has changed."""
        return self._terms.repeatable and run.can_begin_again and run.begun <= self._most_begun

    def awaited(self) -> list[Task]:
        """Return tasks of which one must be over before anything here can go on; none if something can."""
        first = [self.runs[0]] if self.in_order and self.runs else list(self.runs)
        runs = [*first, *[run for run in self.runs if run.suspended and run not in first]]
        tasks = [task for run in runs if (task := run.waits_for) is not None]
        return tasks if len(tasks) == len(runs) else []

    def wait(self, timeout: float | None = None) -> None:
        """Wait until something can go on."""
        tasks = self.awaited()
        if tasks:
            self._driver.wait_because(tasks[0], "stream", timeout, tasks[1:])

    def abandon(self) -> None:
        """End all items."""
        self._followed = []
        self._held = 0
        while self.runs:
            self.runs.popleft().abandon()
