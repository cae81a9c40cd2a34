"""Short streams by some pipelines, to see how long items really take: what no figure of a single stage says.

Before: stream/stream.py, stream/planning.py.  After: stream/pipeline.py.  Predicts nothing.

Stages that are quick enough by themselves may not be when they run side by side: kernels on two cores share caches and memory,
device threads and the program share Python's lock, and the system wakes threads late. So pipelines that look best take a few items
each, in turn, and are compared by what they did. Time that is virtual has none of this, and there is nothing to try.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import perf_counter
from typing import Any

from ..errors import PlanError
from ..plan.pipeline import PipelinePoint, PipelineStage, judged
from ..plan.pipeline.front import OBJECTIVES
from ..program import session
from ..runtime import Runtime
from .bundles import Tapes
from .deployment import under_way
from .failures import FailurePolicy
from .item import Function, ItemRun, driver_of
from .item_session import Route, Watched
from .planning import Prepared
from .recording import Recorded
from .sources import source_of
from .stream import Stream
from .trees import nbytes, own, storages
from .window import Ahead, Terms, Window

MOST_TRIED = 6  # pipelines: the quickest of a front by its figures, and each device alone
ITEMS = 12  # of a short stream, at least: the first and the last one have the devices to themselves
WINDOWS = 3  # times that every item under way is replaced in it, at least
ROUNDS = 5  # short streams by each pipeline, in turn: the first one compiles, the shortest one was disturbed least
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
    prepared: Prepared,
    recorded: Recorded,
    tapes: Tapes | None = None,
) -> dict[tuple[Any, ...], float]:
    """Return how many times longer items take in short streams than stages and Python alone explain, by pipeline.

    Nothing is tried where time is virtual, where a function has a state or calls host tasks, which may have effects, and where
    items take so long that trying some would keep the program waiting.
    """
    if driver_of(runtime).parts.simulation is not None or recorded.state_line:
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
    if not points:
        return {}
    took, left, begin = dict.fromkeys(counts, inf), points, perf_counter()
    for number in range(1, ROUNDS + 1):
        for point in left:
            seconds = _seconds(runtime, function, constants, sample, prepared, point, counts[point.shape], tapes)
            if seconds is None:
                return {}
            took[point.shape] = min(took[point.shape], seconds)
        if number >= SURE:
            best = min(took.values())
            left = [point for point in left if took[point.shape] <= FAR_BEHIND * best]
            if perf_counter() - begin > SECONDS:
                break
    return {point.shape: took[point.shape] / max(point.quickest, prepared.host) for point in points}


def _count(route: Route) -> int:
    return max(ITEMS, WINDOWS * under_way(route))


def _candidates(prepared: Prepared) -> list[PipelinePoint]:
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


def _seconds(
    runtime: Runtime,
    function: Function,
    constants: Mapping[str, Any],
    sample: Any,
    prepared: Prepared,
    point: PipelinePoint,
    count: int,
    tapes: Tapes | None,
) -> float | None:
    """Return the seconds per item of a short stream; None if an item fails."""
    route = prepared.route(point)
    terms = Terms(under_way(route), threaded=bool(prepared.reads), repeatable=False)
    with session.within(runtime):
        outer = frozenset([storage.id for storage in storages(list(constants.values()))])
        items = [own(sample) for _ in range(count)]
    driver_of(runtime).wait("trying pipelines")
    window = Window(
        runtime,
        function,
        constants,
        _Fixed(route, Watched(outer), terms),
        ahead=Ahead.of(None, 0, float(MOST_BYTES)),
        order="input",
        tapes=tapes,
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
    begin = perf_counter()
    with stream:
        for _ in stream:
            pass
    return None if policy.failures else (perf_counter() - begin) / count
