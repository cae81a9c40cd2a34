"""The task graph: what depends on what, box by box, in program order.

Before: program/.  After: plan/, lower/.  Knows no device and no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..geometry import Box, Grid, bounding
from ..program.access import Access
from ..program.array import Array
from ..program.storage import Storage
from ..program.view import grid_of, narrow
from .edge_cache import EdgeCache
from .mapped import mapped
from .marks import Marks
from .shape import CallShape, CallShapes
from .task import Task
from .tracker import Tracker

EPOCH = 0
LOOK_BACK = 64  # how many ancestors the transitive reduction visits before it keeps a redundant edge


def touched(task: Task, access: Access, array: Array, chunk: Box | None) -> Box:
    """Return the base box of `array` that `chunk` of the task touches; None stands for the whole task."""
    if task.space is None and chunk is None:
        return array._box
    if access.mode == "reduce":
        return array._box
    part = access.mapper.box(chunk or task.space or array._box, task.extents, array.shape)
    return narrow(array._box, array._cut, part)


def backed_boxes(task: Task, access: Access, array: Array, chunk: Box) -> tuple[Box, ...]:
    """Return what `chunk` needs in memory, each in one allocation: the hull, or where a border wraps both ends of the axis."""
    hull, boxes = touched_boxes(task, access, array, chunk)
    if boxes is not None and not access.writes and access.mapper.pad(chunk, array.shape) is not None:
        parts = access.mapper.boxes(chunk, task.extents, array.shape)
        spans = access.mapper.spans(chunk, array.shape, parts)
        if spans:
            return tuple([narrow(array._box, array._cut, span) for span in spans])
    return () if hull.empty else (hull,)


def touched_boxes(task: Task, access: Access, array: Array, chunk: Box | None) -> tuple[Box, tuple[Box, ...] | None]:
    """Return the same box, and the disjoint boxes in it that are really touched; None if that is all of it."""
    if not access.mapper.several:
        return touched(task, access, array, chunk), None
    parts = access.mapper.boxes(chunk or task.space or array._box, task.extents, array.shape)
    if len(parts) < 2:
        return narrow(array._box, array._cut, parts[0]) if parts else Box(array._box.lo, array._box.lo), None
    return narrow(array._box, array._cut, bounding(parts)), tuple([narrow(array._box, array._cut, p) for p in parts])


Touching = tuple[Box, Grid | None, bool, bool]
"""What a call touches of an array that no other parameter of it touches, and whether it reads and writes it."""


class TaskGraph:
    """Builds tasks with exact dependencies. Remembers only what later tasks could depend on."""

    def __init__(self) -> None:
        self.last = EPOCH  # the last number given to a task
        self._parents: dict[int, tuple[int, ...]] = {}  # of tasks since the last two horizons
        self._front: dict[int, None] = {}  # tasks nothing depends on yet
        self.orders: dict[Any, int] = {}  # host tasks: last one per order
        self.marks = Marks()
        self._links = EdgeCache()
        self.shapes = CallShapes()
        self.horizon = EPOCH  # the last mark that stands for everything before it
        self.since_horizon = 0

    def register(self, storage: Storage) -> None:
        """Begin to track a new array. What lowering remembers of it has the tracker too, and is in the only table."""
        storage.tracker = Tracker(storage.box, self.horizon)

    def add(  # noqa: PLR0912 - one function: calls cost more
        self, task: Task, touches: Sequence[Touching] | None = None, trackers: Sequence[Tracker] = ()
    ) -> None:
        """Number `task`, find what it comes after, and make it visible to later tasks.

        Who knows what it `touches`, each array once, as a whole task and never nothing, gives that with their trackers.
        """
        found: set[int] = set()
        self.last = id = task.id = self.last + 1
        if touches is not None:
            touched = self.marks.touched
            for (box, grid, reads, writes), tracker in zip(touches, trackers):  # noqa: B905 - equally long, and this is hot
                if tracker.folded is not None:
                    tracker.unfold()
                touched.add(tracker)
                if not writes:
                    tracker.read_by(box, grid, id, found)
                else:
                    tracker.write_by(box, grid, id, found if reads else None, found)
        elif task.space is None and task.once:
            touch = self.marks.touched.add
            for param, array in zip(task.accesses, task.arrays):  # noqa: B905 - equally long, and this is hot
                if array.size:
                    access = param[2]
                    tracker = array._storage.tracker
                    if tracker.folded is not None:
                        tracker.unfold()
                    touch(tracker)
                    if not access.writes:
                        tracker.read_by(array._box, array._grid, id, found)
                    else:
                        tracker.write_by(array._box, array._grid, id, found if access.reads else None, found)
        elif (shape := task.shape) is None or shape.asks_user:
            self._unfold(task)
            self._add_parts(task, found)
        else:
            found = self._add_known(task, shape)
        kernel = task.kernel
        if kernel is not None and kernel.order is not None:
            found.add(self.orders.get(kernel.order, self.horizon))
            self.orders[kernel.order] = id
        found.discard(self.horizon)
        if len(found) > 1:
            found = self._without_ancestors(found)
            after = tuple(sorted(found)) if len(found) > 1 else tuple(found)
        else:
            after = tuple(found) or (self.horizon,)
        task.after = self._parents[id] = after
        front = self._front
        for earlier in after:
            front.pop(earlier, None)
        front[id] = None
        self.since_horizon += 1

    def _unfold(self, task: Task) -> None:
        for array in task.arrays:
            array._storage.tracker.unfold()

    def _add_known(self, task: Task, shape: CallShape) -> set[int]:
        """Find and note what calls of this shape do, as the last time if the trackers look alike."""
        trackers: list[Tracker] = []
        for array in task.arrays:
            trackers.append(array._storage.tracker)  # noqa: PERF401 - a comprehension is one more call
        if not task.once:
            trackers = list(dict.fromkeys(trackers))
        links = shape.links
        if links.forms and (known := self._links.recall(links, trackers, task.id)) is not None:
            self.marks.touched.update(trackers)
            return known
        if not links.wait():
            return self._links.learn(links, trackers, task.id, partial(self._add_parts, task))
        self._unfold(task)
        found: set[int] = set()
        self._add_parts(task, found)
        return found

    def _add_parts(self, task: Task, found: set[int]) -> None:
        """Find and note accesses to parts of arrays, or to one array several times."""
        touches = []
        parts = mapped(task, task.space) if task.space is not None else (None,) * len(task.arrays)
        for param, array, part in zip(task.accesses, task.arrays, parts, strict=True):
            access = param.access
            hull, boxes = (array._box, None) if part is None else part.of(array)
            for box in boxes or ((hull,) if not hull.empty else ()):
                grid = None if array._grid is None else grid_of(box, array._cut)
                tracker = array._storage.tracker
                touches.append((tracker, box, grid, access))
                if access.mode != "write":
                    tracker.before_read(box, grid, found)
                if access.writes:
                    tracker.before_write(box, grid, found)
        for tracker, box, grid, access in touches:
            self.marks.touched.add(tracker)
            if access.writes:
                tracker.did_write(box, grid, task.id)
            else:
                tracker.did_read(box, grid, task.id, found)

    def _without_ancestors(self, found: set[int]) -> set[int]:
        """Drop ids that are ancestors of other ids in the set: those already order them."""
        lowest = min(found)
        parents = self._parents
        if len(found) == 2 and lowest in parents.get(newest := max(found), ()):
            return {newest}  # most often: the last two, of which one has waited for the other
        seen: set[int] = set()
        for id in sorted(found, reverse=True):
            if id in seen:  # what comes before it was looked at from a later one
                continue
            stack = [p for p in parents.get(id, ()) if p >= lowest]
            budget = LOOK_BACK
            while stack and budget:
                parent = stack.pop()
                if parent in seen:
                    continue
                seen.add(parent)
                budget -= 1
                for earlier in parents.get(parent, ()):
                    if earlier >= lowest:
                        stack.append(earlier)  # noqa: PERF401 - a chain has one each, and this is hot
        return found - seen

    def mark(self, task: Task) -> None:
        """Number a task that comes after everything so far: a horizon or an epoch."""
        self.last = task.id = self.last + 1
        task.after = tuple(self._front) or (self.horizon,)
        task.marks = True
        self._front = {task.id: None}
        self._parents[task.id] = task.after
        self.since_horizon = 0
        self.marks.mark(task.id)

    def passed(self, horizon: int) -> None:
        """Let a mark stand for everything before it."""
        self.horizon = horizon
        self._parents = {id: after for id, after in self._parents.items() if id >= horizon}
        self.orders = {order: max(id, horizon) for order, id in self.orders.items()}
        self.marks.passed(horizon)

    def copy(self, twins: Mapping[Any, Tracker]) -> TaskGraph:
        """Return a graph that goes on as this one would, on trackers with a twin."""
        made = TaskGraph()
        made.last, made.horizon, made.since_horizon = self.last, self.horizon, self.since_horizon
        made._parents, made._front, made.orders = dict(self._parents), dict(self._front), dict(self.orders)
        made.marks = self.marks.copy(twins)
        return made

    def live(self) -> int:
        """Return how many tasks the graph remembers: bounded by the horizons."""
        return len(self._parents)

    def parents(self, ids: Iterable[int]) -> set[int]:
        """Return the parents of tasks that are still remembered."""
        return set().union(*(self._parents.get(id, ()) for id in ids))
