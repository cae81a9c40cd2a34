"""How long an item of a stream keeps the program's own thread busy, found by computing some: Python may set the pace.

Before: stream/recording.py, stream/planning.py.  After: stream/pipeline.py.  Predicts nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

from ..program import session
from ..runtime import Runtime
from .deployment import under_way
from .effects import noticed
from .item import Function, ItemRun, driver_of
from .item_session import Route, Watched
from .planning import PreparedFront
from .recording import CountedReads, RecordedItem, busy_clock
from .trees import copied, own, storages

REHEARSED = 3  # times that a sample is computed by its plan: what is loaded and compiled once is no part of each item
STREAMED = 12  # items of a short stream that is rehearsed where Python may set the pace: calls that repeat cost it less
SETS_THE_PACE = 0.5  # of what devices take: where Python takes less by itself, it is far from setting the pace
SLEEPS = 4.0  # times what it is busy: a function that lasts longer sleeps, waits for files or the network
SHORT = 0.01  # seconds of Python per item, beyond which planning would take too long


class Rehearsal(NamedTuple):
    """Seconds per item."""

    busy: float  # of the program's thread
    lasts: float  # from the beginning of the function to its end, without waits for values


def pace_of_python(
    runtime: Runtime,
    function: Function,
    constants: Mapping[str, Any],
    sample: Any,
    prepared: PreparedFront,
    recorded: RecordedItem,
) -> float:
    """Return the seconds of the program's thread that an item takes in a stream by the quickest plan.

    What the function sleeps counts, as no two items' functions run at the same time.
    """
    quickest = prepared.front.points[0]
    route, stateful = prepared.route(quickest), bool(recorded.state_line)

    def once_more(count: int, ahead: int) -> Rehearsal:
        return rehearsed(runtime, function, constants, sample, route, stateful=stateful, count=count, ahead=ahead)

    seen: list[Rehearsal] = []
    changes: list[bool] = []  # its first run may have loaded and remembered things
    while len(seen) < REHEARSED and not any(changes):
        with noticed(function, constants, changes):
            seen.append(once_more(1, 1))
    recorded.effects = any(changes)
    if driver_of(runtime).parts.simulation is not None:
        return seen[-1].busy  # a virtual clock has no noise, and the last item costs what later ones cost
    pace, lasts = min(one.busy for one in seen), min(one.lasts for one in seen)
    if lasts > max(SHORT, SLEEPS * pace):
        return lasts
    if SETS_THE_PACE * quickest.quickest < pace < SHORT and not stateful and not recorded.effects:
        pace = min(pace, once_more(STREAMED, under_way(route)).busy)
    return pace


def rehearsed(
    runtime: Runtime,
    function: Function,
    constants: Mapping[str, Any],
    sample: Any,
    route: Route,
    *,
    stateful: bool,
    count: int = 1,
    ahead: int = 1,
) -> Rehearsal:
    """Return the seconds for which one item of a stream keeps the program busy: taking it, the function, reading the result.

    Recording the function takes longer, as its calls are looked at one by one, and less, as no result is brought home. Items that
    follow each other, `ahead` of them under way, take less than one by itself: calls that repeat are known, and one wait is for several.
    """
    with session.within(runtime):
        states = {name: copied(value) for name, value in constants.items()} if stateful else dict(constants)
        outer = frozenset([storage.id for storage in storages(list(states.values()))])
        driver, reads, clock = driver_of(runtime), CountedReads(runtime), busy_clock(runtime)
        items = [own(sample) for _ in range(count)]
        under_way: deque[ItemRun] = deque()
        waited = lasts = 0.0

        def finish(run: ItemRun) -> None:
            nonlocal waited
            while (task := run.waits_for) is not None:
                waiting = clock()
                driver.wait_because(task, "stream")
                if count == 1:  # among others, what the thread does in the meantime is part of the stream
                    waited += clock() - waiting
            if run.failure is None:
                run.value()
            else:
                run.told()

        begin = clock()
        before, session.giving_way.until = session.giving_way.until, reads.until
        try:
            for number, item in enumerate(items):
                if len(under_way) == ahead:
                    finish(under_way.popleft())
                run = ItemRun(runtime, function, states, number, item)
                under_way.append(run)
                if run.error is None:
                    start, before_it = perf_counter(), reads.waited
                    run.begin(route, Watched(outer, outer), threaded=False)
                    lasts += perf_counter() - start - (reads.waited - before_it)
        finally:
            session.giving_way.until = before
            while under_way:
                finish(under_way.popleft())
        return Rehearsal(max(0.0, clock() - begin - waited - reads.seconds) / count, max(0.0, lasts) / count)
