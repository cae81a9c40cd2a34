"""Where a stream's items go now: the plan in force, planned beside the stream for items of another kind, and for lost devices.

Before: stream/planning.py, stream/rescheduling.py, stream/window.py.  After: stream/pipeline.py.  Decides nothing: the adviser does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DeviceLost
from ..plan.pipeline import PipelinePoint
from .bundles import TOGETHER
from .features import Key, features_of, key_of
from .item import ItemRun
from .item_session import Route, Watched
from .planning import PreparedFront
from .recording import RecordedItem, flow
from .rescheduling import FAILED, NEW, Adviser, StreamDecision, shown
from .statistics import StreamWatch
from .trees import storages
from .window import Terms

BUFFERS = 2  # items for each device that takes whole items
REVIEWED = 32  # items after which it is looked whether stages take as long as predicted, doubled each time they do
DRIFT = 0.25  # of a stage's predicted seconds: beyond, models have learnt enough to plan anew
LEAVING = 1  # item on its way out of each device that is not in the host's memory
HANDED_OVER = 1  # result that the program is about to get: the next item begins once it has it
HURRY = 0.1  # of the latency that an item may have: what a device may get at a time
KEPT = 256  # decisions that are remembered


def under_way(route: Route) -> int:
    """Return how many items are under way at once, unless the user says something else.

    For each device that takes whole items: one is computed while the next one's data comes, and where results leave over a link, one
    leaves. A device that serves several stages has so many for each, unless nothing is copied. What the last stage has computed is on
    its way to the host meanwhile, one result for each of its devices.
    """
    at_home = {place.devices: place.placement.replicas for place in route.places if not place.copies}
    copying = [place.placement.replicas for place in route.places if place.copies]
    held = BUFFERS * sum(at_home.values()) + (BUFFERS + LEAVING) * sum(copying)
    return held + route.places[-1].placement.replicas + HANDED_OVER


class Deployment:
    """One pipeline in force."""

    def __init__(
        self,
        prepare: Callable[[Any], PreparedFront],
        prepare_recorded: Callable[[RecordedItem], PreparedFront],
        adviser: Adviser,
        constants: Mapping[str, Any],
        features: Mapping[str, Callable[[Any], float]],
        note: Callable[[str], None],
        configure: Callable[[str, str], None] | None = None,
        *,
        gone: Callable[[], Mapping[str, str]],
        aside: bool,
    ) -> None:
        """Begin. `prepare(item)` plans for an item now; `prepare_recorded` for one that has run, `aside` on a thread.

        `configure(device, design)` loads a design; None: no device can be configured. `gone()` are the devices that are lost.
        """
        self._configure, self._gone = configure, gone
        self.designs: dict[str, str] = {}  # that devices have now
        self._designs: dict[str, str] = {}  # that they need
        self._prepare, self._prepare_recorded, self._adviser = prepare, prepare_recorded, adviser
        self._constants = frozenset([storage.id for storage in storages(list(constants.values()))])
        self._features, self._note, self._aside = features, note, aside
        self.fixed = False  # the user has chosen the plan: only a lost device ends it
        self.prepared: PreparedFront | None = None
        self.route = Route()
        self.point: PipelinePoint | None = None
        self.decisions: deque[StreamDecision] = deque(maxlen=KEPT)
        self.watch: StreamWatch | None = None  # what stages really take
        self._watched = Watched(self._constants)
        self._terms = Terms(1)
        self._keys: dict[Any, Key] = {}  # of items that are single arrays
        self._looking: dict[ItemRun, tuple[Key, Watched]] = {}  # items whose calls are noted, to be planned for
        self._planning: tuple[Key, threading.Thread] | None = None
        self._found: list[tuple[Key, PreparedFront | None, str]] = []  # what planning gave, not taken yet
        self._review, self._next_review, self._before = REVIEWED, REVIEWED, (0, 0.0)

    # What is in force -------------------------------------------------------------------------------------------------

    def adopt(self, prepared: PreparedFront, point: PipelinePoint | None = None) -> None:
        """Put a plan in force, for every item that begins from now on."""
        self.prepared, self.point = prepared, self._adviser.choose(prepared) if point is None else point
        self.route = prepared.route(self.point, self.designs)
        self._designs = prepared.configured(self.point, self.designs)
        stateful = bool(prepared.state_line)
        self._watched = Watched(self._constants, self._constants if stateful else frozenset())
        self._terms = Terms(
            under_way(self.route),
            threaded=bool(prepared.reads) and not stateful,  # a state is changed by one item after the other
            repeatable=not stateful,
            together=0.0 if self._adviser.objective == "latency" else min(TOGETHER, HURRY * prepared.most_latency),
        )
        self._next_review = self._adviser.items + self._review
        self._before = (-1, 0.0)

    def load(self) -> bool:
        """Tell whether devices need other designs than they have."""
        return any(self.designs.get(device) != design for device, design in self._designs.items())

    def loaded(self) -> None:
        """Give devices the designs that the plan in force needs."""
        if self.watch is not None:
            self.watch.drain()  # what ran drew the watts of the designs before
        for device, design in self._designs.items():
            if self.designs.get(device) != design:
                if self._configure is not None:
                    self._configure(device, design)
                self._note(f"stream item {max(0, self._adviser.items - 1)}: {device} is configured as {design}")
        self.designs |= self._designs

    def terms(self, item: Any) -> Terms:
        """Return on which terms an item is computed; plan for it if it is the first one."""
        if self.prepared is None:
            self.adopt(self._prepare_soon(item))
            if self.watch is not None:
                self.watch.planned_now()
        return self._terms

    def place(self, run: ItemRun) -> tuple[Route, Watched]:
        """Return where the calls of an item go that is about to begin, and what is looked at meanwhile."""
        assert self.prepared is not None and self.point is not None
        gone = self._gone()
        if gone and any(device in gone for place in self.route.places for device in place.devices):
            self.lost(run.item)  # nothing of it need have failed: others may have taken the lost device's part
        if self.fixed:
            return self.route, self._watched
        key = self._key(run)
        adviser = self._adviser
        if not adviser.items:
            adviser.learn(key, self.prepared)
            self._tell(StreamDecision(0, NEW, shown(key), 0.0, 0.0, 0.0, 0.0, "the first plan"))
        adviser.seen(key)
        self._take_found()
        self._look_at_drift()
        if adviser.keeps(key, self.point):
            return self.route, self._watched
        if not adviser.knows(key):
            if self._planning is None and not self._looking:
                watched = self._watched._replace(log=[], made=[])
                self._looking[run] = (key, watched)
                return self.route, watched
        else:
            decision, plan = adviser.decide(key, self.point, self.designs)
            if adviser.is_news(decision, key):
                self._tell(decision)
            if plan is not None:
                self.adopt(*plan)
        return self.route, self._watched

    def _key(self, run: ItemRun) -> Key:
        """Return the kind of an item by its features; of single arrays it is known from the last one like it."""
        single = type(run.item) is np.ndarray and not self._features
        key = self._keys.get(run.kind) if single else None
        if key is None:
            key = key_of(features_of(run.item, self._features))
            if single and len(self._keys) < KEPT:
                self._keys[run.kind] = key
        return key

    def over(self, run: ItemRun) -> None:
        """Take note of an item that is over: if its calls were noted, plan for its kind, beside the stream."""
        looked = self._looking.pop(run, None)
        if looked is None or run.failure is not None or self.prepared is None:
            return
        key, watched = looked
        assert watched.log is not None and watched.made is not None
        recorded = flow(watched.log, list(storages(run.item)), watched.made, run.result)
        before = self.prepared
        recorded.host, recorded.reads, recorded.drags = before.host, before.reads, before.drags
        if not self._aside:
            self._plan(key, recorded)
            return
        thread = threading.Thread(target=self._plan, args=(key, recorded), name="coexec-stream-plan", daemon=True)
        self._planning = (key, thread)
        thread.start()

    def _plan(self, key: Key, recorded: RecordedItem) -> None:
        """Plan for one kind of items. On a thread of its own, unless time is virtual."""
        try:
            self._found.append((key, self._prepare_recorded(recorded), ""))
        except Exception as error:  # noqa: BLE001 - the plan in force goes on to serve; the trace tells why
            self._found.append((key, None, f"{type(error).__name__}: {error}"))

    def _take_found(self) -> None:
        """Let the adviser know of what was planned meanwhile."""
        while self._found:
            key, prepared, why = self._found.pop()
            if prepared is None:
                self._adviser.fail(key)
                self._tell(StreamDecision(self._adviser.items - 1, FAILED, shown(key), 0.0, 0.0, 0.0, 0.0, why))
            else:
                self._adviser.learn(key, prepared)
        if self._planning is not None and not self._planning[1].is_alive():
            self._planning = None

    def _look_at_drift(self) -> None:
        """Plan anew if stages take longer or shorter than predicted: the models have learnt why."""
        adviser, watch, point = self._adviser, self.watch, self.point
        if watch is None or point is None or adviser.items < self._next_review:
            return
        items, busy = watch.items, watch.busy.total
        before = self._before
        self._before, self._next_review = (items, busy), adviser.items + self._review
        if before[0] < 0 or items <= before[0]:
            return
        measured = (busy - before[1]) / (items - before[0])
        predicted = sum([stage.compute * stage.devices for stage in point.stages])
        if predicted > 0.0 and abs(measured / predicted - 1.0) > DRIFT:
            self._review *= 2
            text = f"kernels took {measured:.4g} s per item instead of {predicted:.4g}; planned anew"
            self._note(f"stream item {adviser.items - 1}: {text}")
            adviser.forget()

    def lost(self, item: Any) -> None:
        """Plan on the devices that are left, for items like this one."""
        self.finish_planning()
        self._adviser.forget()
        self._looking.clear()
        prepared = self._prepare_soon(item)
        self.adopt(prepared)
        key = key_of(features_of(item, self._features))
        self._adviser.learn(key, prepared)
        why = "planned for the devices that are left"
        self._tell(StreamDecision(self._adviser.items - 1, NEW, shown(key), 0.0, 0.0, 0.0, 0.0, why))

    def _prepare_soon(self, item: Any) -> PreparedFront:
        """Plan for an item; once more if a device is lost meanwhile, whose part others take over."""
        while True:
            try:
                return self._prepare(item)
            except DeviceLost:
                continue  # it is lost for good, so that this ends: without any device planning raises another error

    def finish_planning(self) -> None:
        """Wait until nothing is planned any more."""
        if self._planning is not None:
            self._planning[1].join()
            self._planning = None
        self._found.clear()

    def _tell(self, decision: StreamDecision) -> None:
        self.decisions.append(decision)
        self._note(decision.told())

    def stage_of(self, error: BaseException) -> str:
        """Return the stage in which a kernel failed; "" if that is not known."""
        device, task = getattr(error, "device", ""), str(getattr(error, "task", ""))
        for name, stage in zip(self.route.names, self.route.stages, strict=True):
            place = self.route.places[stage]
            if name == task and device in place.devices:
                return place.label
        return next((place.label for place in self.route.places if device in place.devices), "")
