"""When a stream changes its plan: as soon as recent items would have gained more than draining and moving costs.

Before: stream/planning.py.  After: stream/deployment.py.  Pure: items are keys, plans are numbers; no clock, thread or device.

The last items stand for the next ones. A plan takes the place of another if, over them, it saves more than the change costs, and
a twentieth besides. Items that alternate are therefore served by the plan that is best for the mixture, and nothing thrashes: to
go back would lose what was gained.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from ..errors import CoexecError
from ..plan.pipeline import PipelinePoint, judged
from ..plan.pipeline.front import OBJECTIVES
from .features import Key
from .planning import PreparedFront

WINDOW = 32  # items that stand for the next ones
FRONTS = 64  # keys whose fronts are kept
LEAST_GAIN = 0.05  # of what items cost: below, predictions are not that good
CHANGE, KEEP, NEW, FAILED = "change", "keep", "new", "no plan"


@dataclass(frozen=True, slots=True)
class StreamDecision:
    """One decision about a plan, also the decision not to change it. Costs are seconds, joules or both, by objective."""

    item: int
    what: str  # change, keep, new (the first, or after a loss), no plan
    key: str  # the items it is about
    now: float  # cost of the last items under the plan in force
    best: float  # and under the best plan that is known
    stall: float  # seconds to drain the one and to begin the other
    cost: float  # what that is worth
    why: str

    def told(self) -> str:
        """Return it as a line for the trace."""
        return (
            f"stream item {self.item}: {self.what}: last {WINDOW} items cost {self.now:.6g} now, {self.best:.6g} at best; "
            f"a change costs {self.cost:.6g} ({self.stall:.3g} s); {self.why}; {self.key}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return asdict(self)


class Adviser:
    """Knows the fronts of some kinds of items, and which kinds came last."""

    def __init__(self, objective: str, power: float | None = None) -> None:
        self.objective, self._power = objective, power
        self._fronts: OrderedDict[Key, tuple[PreparedFront, PipelinePoint]] = OrderedDict()
        self._failed: set[Key] = set()
        self._recent: deque[Key] = deque(maxlen=WINDOW)
        self._costs: dict[tuple[int, Key], float] = {}  # of plans, by identity of the point, and keys
        self._last: tuple[str, Key | None] = ("", None)  # the last decision that was told
        self._alike = 0  # the last items that are all of one kind
        self._steady: tuple[Key, PipelinePoint] | None = (
            None  # the plan to keep while they are, once it was found to be
        )
        self.items = 0

    def choose(self, prepared: PreparedFront) -> PipelinePoint:
        """Return the best pipeline of a front."""
        return prepared.front.choose(self.objective, power=self._power)

    def knows(self, key: Key) -> bool:
        """Tell whether items of this kind were planned for, or cannot be."""
        return key in self._fronts or key in self._failed

    def learn(self, key: Key, prepared: PreparedFront) -> None:
        """Take the front of one kind of items."""
        self._fronts[key] = (prepared, self.choose(prepared))
        self._fronts.move_to_end(key)
        while len(self._fronts) > FRONTS:
            self._fronts.popitem(last=False)
        self._costs.clear()
        self._steady = None

    def fail(self, key: Key) -> None:
        """Note that no plan was found for one kind of items."""
        self._failed.add(key)

    def forget(self) -> None:
        """Forget all fronts: models have changed, or devices are lost."""
        self._fronts.clear()
        self._failed.clear()
        self._costs.clear()
        self._steady = None

    def seen(self, key: Key) -> None:
        """Note the kind of an item that is about to begin."""
        self.items += 1
        self._alike = self._alike + 1 if self._recent and self._recent[-1] == key else 1
        self._recent.append(key)
        if key in self._fronts:
            self._fronts.move_to_end(key)

    def keeps(self, key: Key, point: PipelinePoint) -> bool:
        """Tell whether nothing can have changed since it was decided to keep a plan for items of this kind."""
        known = self._steady
        return known is not None and self._alike > WINDOW and known[1] is point and known[0] == key

    def cost(self, point: PipelinePoint, key: Key) -> float:
        """Return what an item of a known kind costs under a pipeline; inf if that cannot compute it."""
        known = self._costs.get((id(point), key))
        if known is None:
            prepared, best = self._fronts[key]
            known = self._figure(best) if point is best else self._elsewhere(point, prepared)
            self._costs[id(point), key] = known
        return known

    def _elsewhere(self, point: PipelinePoint, prepared: PreparedFront) -> float:
        try:
            return self._figure(prepared.as_tried(judged(prepared.work, prepared.system, point.stages)))
        except (CoexecError, KeyError):  # it has other calls, or does not fit
            return inf

    def _figure(self, point: PipelinePoint) -> float:
        return OBJECTIVES[self.objective](point)[0]

    def decide(
        self, key: Key, point: PipelinePoint, loaded: Mapping[str, str] | None = None
    ) -> tuple[StreamDecision, tuple[PreparedFront, PipelinePoint] | None]:
        """Return a decision for the plan in force, and the plan that takes its place, if one does.

        `loaded` are the designs that devices have: the others that a plan needs must be loaded first.
        """
        counts = Counter(key for key in self._recent if key in self._fronts)
        plans = {id(best): (front, best) for front, best in (self._fronts[key] for key in counts)}
        now = sum(n * self.cost(point, key) for key, n in counts.items())
        totals = {name: sum(n * self.cost(best, key) for key, n in counts.items()) for name, (_, best) in plans.items()}
        if not totals:
            return self._decision(KEEP, key, now, now, 0.0, 0.0, "nothing is planned for these items yet"), None
        name = min(totals, key=lambda entry: totals[entry])
        candidate, best, stall = plans[name], totals[name], 0.0
        same = point.shape == candidate[1].shape  # they place everything alike, whatever it costs
        if not same:
            stall = point.latency + candidate[0].setup(candidate[1], loaded)
        items = sum(counts.values())
        per_second = (best / items) / max(candidate[1].period, 1e-12)  # what standing still costs
        cost = stall * per_second
        if same:
            self._steady = (key, point) if self._alike >= WINDOW else None
            return self._decision(KEEP, key, now, best, 0.0, 0.0, "the plan in force is the best that is known"), None
        if now - best > cost + LEAST_GAIN * min(now, best):
            why = f"saves {now - best:.4g} over {items} items, which is more than the change costs"
            return self._decision(CHANGE, key, now, best, stall, cost, why), candidate
        why = f"a change would save {now - best:.4g} over {items} items, which is too little"
        return self._decision(KEEP, key, now, best, stall, cost, why), None

    def _decision(
        self, what: str, key: Key, now: float, best: float, stall: float, cost: float, why: str
    ) -> StreamDecision:
        return StreamDecision(self.items - 1, what, shown(key), now, best, stall, cost, why)

    def is_news(self, decision: StreamDecision, key: Key) -> bool:
        """Tell whether a decision is another one than the last, or is about other items."""
        news = decision.what != KEEP or (decision.what, key) != self._last
        self._last = (decision.what, key)
        return news


def shown(key: Key) -> str:
    """Return a kind of items as text: buckets of their features, two for each doubling."""
    return ", ".join(f"{name}~{bucket}" for name, bucket in key)


__all__ = ["CHANGE", "FAILED", "KEEP", "NEW", "WINDOW", "Adviser", "StreamDecision", "shown"]
