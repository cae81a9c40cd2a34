"""Short streams by some pipelines, to see how long items really take: what no figure of a single stage says.

Before: stream/stream.py, stream/planning.py.  After: stream/pipeline.py.  Predicts nothing.

Stages that are quick enough by themselves may not be when they run side by side: kernels on two cores share caches and memory,
device threads and the program share Python's lock, and the system wakes threads late. So pipelines that look best take a few items
each, in turn, and are compared by what they did. Time that is virtual has none of this, and there is nothing to try.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any

from ..errors import PlanError
from ..plan.pipeline import PipelinePoint, PipelineStage, judged
from ..plan.pipeline.front import OBJECTIVES
from ..plan.pipeline.point import Shape
from ..program import session
from ..runtime import Runtime
from .bundles import Tapes
from .deployment import under_way
from .failures import FailurePolicy
from .item import Function, ItemRun, driver_of
from .item_session import Route, Watched
from .planning import PreparedFront
from .recording import RecordedItem
from .sources import source_of
from .stream import Stream
from .trees import kept, nbytes, own, storages
from .window import Ahead, Terms, Window

MOST_TRIED = 6  # pipelines: the quickest of a front by its figures, and each device alone
ITEMS = 12  # of a short stream, at least: the first and the last one have the devices to themselves
WINDOWS = 3  # times that every item under way is replaced in it, at least
MOST_ITEMS = 192  # of a short stream
UNLIKE = 24  # of them have arrays of their own: a stream's items are not in a cache already
LASTS = 0.03  # seconds of it, once it is known how long items take: some begin and end with nothing beside them
ROUNDS = 5  # short streams by each pipeline, in turn: the first one compiles, the shortest one was disturbed least
MORE_ROUNDS = 5  # by those that are close to the best: whichever is lucky once is not the best for that
CLOSE = 1.1  # times the best
WAITED = 1e-3  # seconds for compilers, from which on they have done something
MOST_WAITS = 3  # for them
SURE = 2  # rounds after which nobody is tried again who is far behind: one of them may have been disturbed
FAR_BEHIND = 1.25  # times the best so far
SECONDS = 1.0  # that short streams may take together, by what is predicted; beyond, nobody is tried after SURE rounds
MOST_BYTES = 1 << 28  # of all items of a short stream


class _Fixed:
    """Sends every item the same way. Whatever goes wrong ends the trial."""

    def __init__(self, route: Route, watched: Watched, terms: Terms) -> None:
        self._place, self._terms = (route, watched), terms

    def terms(self, item: Any) -> Terms:
        """Return on which terms an item is computed."""
        del item
        return self._terms

    def place(self, run: ItemRun) -> tuple[Route, Watched]:
        """Return where the calls of an item go."""
        del run
        return self._place

    def load(self) -> bool:
        """Tell that no device needs a design."""
        return False

    def loaded(self) -> None:
        """Do nothing."""

    def over(self, run: ItemRun) -> None:
        """Do nothing."""

    def lost(self, item: Any) -> None:
        """Do nothing: items are computed at most once."""


class _Nobody:
    """Takes results as soon as they are there."""

    def asked(self) -> None:
        """Do nothing."""

    def left(self) -> None:
        """Do nothing."""


def drags_of(
    runtime: Runtime,
    function: Function,
    constants: Mapping[str, Any],
    sample: Any,
    prepared: PreparedFront,
    recorded: RecordedItem,
    tapes: Tapes | None = None,
) -> dict[tuple[Any, ...], float]:
    """Return how many times longer items take in short streams than stages and Python alone explain, by pipeline.

    Nothing is tried where time is virtual, where a function has a state, effects, or calls host tasks, which may have some, and where
    items take so long that trying some would keep the program waiting.
    """
    if driver_of(runtime).parts.simulation is not None or recorded.state_line or recorded.effects:
        return {}
    if any(call.kernel.host for call in recorded.calls):
        return {}
    points: list[PipelinePoint] = []
    counts, expected = {}, 0.0
    for point in _candidates(prepared):
        count = _count(prepared.route(point))
        expected += ROUNDS * count * point.period
        if expected > SECONDS or nbytes(sample) * count > MOST_BYTES:  # those that are left promise to take longer
            break
        points.append(point)
        counts[point.shape] = count
    most = int(MOST_BYTES // max(1, nbytes(sample)))

    def seconds_of(point: PipelinePoint) -> float | None:
        count = counts[point.shape]
        seconds = _seconds(runtime, function, constants, sample, prepared, point, count, tapes)
        if seconds is not None:
            counts[point.shape] = max(count, min(MOST_ITEMS, most, round(LASTS / seconds)))
        return seconds

    took = _compared(points, seconds_of, driver_of(runtime).parts.bodies.compiler.wait)
    return {point.shape: took[point.shape] / max(point.quickest, prepared.host) for point in points} if took else {}


def _compared(
    points: Sequence[PipelinePoint], seconds_of: Callable[[PipelinePoint], float | None], compiled: Callable[[], None]
) -> dict[Shape, float]:
    """Return the seconds per item of streams by pipelines, the best of a few in turn; none if one fails.

    `compiled` waits for what is compiled meanwhile: that would disturb streams, and those after it are quicker.
    """
    took, left, begin, number = dict.fromkeys([p.shape for p in points], inf), list(points), perf_counter(), 0
    waits = 0
    while points and number < ROUNDS + MORE_ROUNDS:
        number += 1
        for point in left:
            seconds = seconds_of(point)
            if seconds is None:
                return {}
            took[point.shape] = min(took[point.shape], seconds)
        start = perf_counter()
        compiled()
        waited = perf_counter() - start
        if waited > WAITED and waits < MOST_WAITS:
            waits, number, begin = waits + 1, 0, begin + waited
            took.update(dict.fromkeys([p.shape for p in left], inf))
        elif number >= SURE:
            far = (FAR_BEHIND if number < ROUNDS else CLOSE) * min(took.values())
            left = [point for point in left if took[point.shape] <= far]
            if perf_counter() - begin > SECONDS or (len(left) == 1 and number >= ROUNDS):
                break
    return took


def _count(route: Route) -> int:
    return max(ITEMS, WINDOWS * under_way(route))


def _candidates(prepared: PreparedFront) -> list[PipelinePoint]:
    """Return the pipelines that are worth a try: the quickest of the front, each device alone, and all of a kind in turn."""
    names = tuple([kernel.name for kernel in prepared.work.kernels])
    found = sorted(prepared.front.wide, key=OBJECTIVES["throughput"])[: MOST_TRIED // 2]
    others = list(prepared.singles().values())
    for c in prepared.system.classes:
        if c.count > 1:
            stage = PipelineStage(names, ((c.name, c.count),), "in turn", 0)
            try:
                others.append(judged(prepared.work, prepared.system, [stage]))
            except PlanError:
                continue
    others = [p for p in others if p.latency <= prepared.most_latency]
    known = {p.shape: p for p in (*found, *others)}
    return sorted(known.values(), key=lambda p: p.period)[:MOST_TRIED]


def _items(sample: Any, count: int) -> list[Any]:
    """Return items like a sample: as unlike in memory as those of a stream, but no coexec array comes twice."""
    if any(True for _ in storages(sample)):
        return [own(sample) for _ in range(count)]
    unlike = [kept(sample) for _ in range(max(1, min(count, UNLIKE, int(MOST_BYTES // max(1, nbytes(sample))))))]
    return [unlike[number % len(unlike)] for number in range(count)]


def _seconds(
    runtime: Runtime,
    function: Function,
    constants: Mapping[str, Any],
    sample: Any,
    prepared: PreparedFront,
    point: PipelinePoint,
    count: int,
    tapes: Tapes | None,
) -> float | None:
    """Return the seconds per item of a short stream; None if an item fails."""
    route = prepared.route(point)
    terms = Terms(under_way(route), threaded=bool(prepared.reads), repeatable=False)
    with session.within(runtime):
        outer = frozenset([storage.id for storage in storages(list(constants.values()))])
        items = _items(sample, count)
    driver_of(runtime).wait("trying pipelines")
    window = Window(
        runtime,
        function,
        constants,
        _Fixed(route, Watched(outer), terms),
        ahead=Ahead.of(None, 0, float(MOST_BYTES)),
        order="input",
        tapes=tapes,
        lent=True,
    )
    policy = FailurePolicy("skip", None)
    stream = Stream(
        source_of(items, None, None, None),
        window,
        policy,
        stage_of=lambda _: "",
        ended=lambda: None,
        told=lambda _: None,
        consumer=_Nobody(),
    )
    results: list[Any] = []  # kept, as most programs keep them: memory that is new takes longer
    begin = perf_counter()
    with stream:
        results += stream
    del results
    return None if policy.failures else (perf_counter() - max(begin, window.given)) / count
