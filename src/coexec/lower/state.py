"""What the lowering remembers about one array: where it is backed, where it is valid, who touched it last.

Before: graph/.  After: lower/coherence.py.  Knows allocations by name only, never their data.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from ..geometry import Box, Pattern, Region, RegionMap, bounding, covers, overlaps
from ..graph.copying import copy_tracker
from ..graph.forms import Form, Ids
from ..graph.instruction import Allocation, Binding
from ..graph.tracker import Tracker
from ..machine.platform import HOST, USER

MEMORIES = 1023
"""How many memories a machine may have."""
FILL = 1 << MEMORIES
"""The bit of a memory that nobody has: there every array holds its initial value."""
USERS = 1 << USER
REMEMBERED = 512  # boxes whose backings are remembered
WASTE = 1.25
"""How much larger one allocation may be than the two boxes that it is for, if they do not overlap."""


class Backing:
    """An allocation and who touched it."""

    __slots__ = ("_tracker", "allocation", "bindings", "box", "state")

    def __init__(self, allocation: Allocation, origin: int) -> None:
        self.allocation = allocation
        self.box = allocation.box
        self.state: ArrayState | None = None  # whose backing it is
        self._tracker = Tracker(allocation.box, origin)
        self.bindings: dict[tuple[str, bool], Binding] = {}  # of parameters that see all of it, made once

    @property
    def tracker(self) -> Tracker:
        """Who touched it last."""
        state = self.state
        if state is not None and state.form is not None:
            state.unfold()
        return self._tracker

    def touched_by(self, some: Container[int]) -> bool:
        """Tell whether one of these ids touched it last, or may have; answered from a form as it is, which counts other backings, too."""
        state = self.state
        if state is None or state.form is None:
            return any(id in some for id in self._tracker.ids())
        return any(
            id in some if type(id) is int else any(reader in some for reader in id)  # type: ignore[union-attr]
            for id in state.ids
        )

    def collapse(self, horizon: int, keep: Collection[int] = ()) -> None:
        """Let a horizon stand for everything older, except the ids in `keep`."""
        self.tracker.collapse(horizon, keep)


class StateForm:
    """All that lowering depends on of one array's state, but for ids. Two states of one form have the same object."""

    __slots__ = ("readers", "size", "trackers", "valid")

    def __init__(self, valid: Pattern[int], trackers: tuple[Form, ...], size: int, readers: frozenset[int]) -> None:
        self.valid = valid
        self.trackers = trackers  # of its backings, memory by memory
        self.size = size  # how many ids, or lists of readers, it has
        self.readers = readers  # which of them may be lists of readers


class Foreseen:
    """Boxes of one array that commands not yet lowered will need in one memory, and when the last was added."""

    __slots__ = ("boxes", "closed", "level", "likely", "tasks")

    def __init__(self, level: int, tasks: int) -> None:
        self.boxes: list[Box] = []
        self.likely: list[Box] = []  # what may be needed too: arrays of one kind often change places between steps
        self.level = level  # of the critical path, when a box was added last
        self.tasks = tasks  # that had been held until then
        self.closed = False  # nothing can be added any more

    def add(self, box: Box) -> bool:
        """Add a box; False if it is foreseen already."""
        if any(covers(known, box) for known in self.boxes):
            return False
        grown = self.take(box)
        self.boxes.append(grown)
        return True

    def guess(self) -> None:
        """Add what may be needed too, where it makes an allocation little larger: nobody will see what comes later."""
        for box in self.likely:
            near = [known for known in self.boxes if overlaps(known, box)]
            if near and bounding([box, *near]).volume <= WASTE * sum([known.volume for known in near]):
                self.add(box)

    def take(self, box: Box) -> Box:
        """Return `box` grown by every foreseen box that is better allocated with it than apart; those are removed."""
        while near := [known for known in self.boxes if _better_together(known, box)]:
            self.boxes = [known for known in self.boxes if known not in near]
            box = bounding([box, *near])
        return box


def _better_together(a: Box, b: Box) -> bool:
    """Tell whether boxes overlap, or lie so that one allocation for both wastes little."""
    return overlaps(a, b) or bounding((a, b)).volume <= WASTE * (a.volume + b.volume)


class ArrayState:
    """Backings per memory, and for each element the set of memories (as bits) that hold its present value.

    Who touched it last is remembered in one of two ways. Unfolded, each backing has a tracker, which answers any question.
    Folded, there is the form of all its trackers and the ids in it: that is what a recipe (lower/recipe.py) goes by. Whoever
    asks a backing for its tracker unfolds the state.
    """

    __slots__ = (
        "_found", "backings", "box", "complete", "dtype", "expected", "foreseen", "form", "id", "ids", "initial", "layout",
        "origin", "tasks", "valid"
    )  # fmt: skip

    def __init__(self, id: int, box: Box, dtype: np.dtype[Any], initial: Any, tasks: Tracker | None = None) -> None:
        self.id = id
        self.tasks = tasks  # the task graph's tracker of the array, which lives as long; None for a private one
        self.box = box
        self.dtype = dtype
        self.initial = initial
        self.backings: dict[int, list[Backing]] = {}
        self._found: dict[tuple[int, Box], Backing] = {}  # per memory and box: the backing that holds it
        self.complete: dict[int, Backing] = {}  # per memory: the backing of the whole array, if there is one
        self.valid: RegionMap[int] = RegionMap(box, 0 if initial is None else FILL)
        self.foreseen: dict[int, Foreseen] | None = None  # per memory: what lookahead knows of later commands
        self.expected: RegionMap[int] | None = None  # what `valid` will be when they are lowered
        self.origin: dict[int, Hashable] | None = None  # per memory: what asked for it first
        self.form: StateForm | None = None  # None: unfolded
        self.ids: Ids = []  # what the numbers of the form stand for
        self.layout = 0  # how often a backing was added or removed

    @property
    def private(self) -> bool:
        """Whether it holds partial results of one task, which nobody else sees."""
        return self.id < 0

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.box.volume * self.dtype.itemsize

    def find(self, memory: int, box: Box) -> Backing | None:
        """Return the backing in `memory` that holds all of `box`."""
        whole = self.complete.get(memory)
        if whole is not None:
            return whole
        found = self._found.get((memory, box))
        if found is None:
            for backing in self.backings.get(memory, ()):
                if covers(backing.box, box):
                    if len(self._found) >= REMEMBERED:
                        self._found.clear()
                    self._found[memory, box] = backing
                    return backing
        return found

    def add(self, backing: Backing) -> None:
        """Note a new backing."""
        self.unfold()
        self.layout += 1
        backing.state = self
        memory = backing.allocation.memory
        self._found.clear()
        self.backings.setdefault(memory, []).append(backing)
        if backing.box == self.box:
            self.complete[memory] = backing

    def remove(self, backing: Backing) -> None:
        """Forget a backing."""
        self.unfold()
        self.layout += 1
        backing.state = None
        memory = backing.allocation.memory
        self._found.clear()
        self.backings[memory].remove(backing)
        if self.complete.get(memory) is backing:
            del self.complete[memory]

    def arrange(self, layout: Sequence[tuple[int, list[Backing]]]) -> None:
        """Have exactly these backings, memory by memory. Whoever arranges them folds the state next."""
        for backing in self.all_backings():
            backing.state = None
        self.layout += 1
        self._found.clear()
        self.complete.clear()
        self.backings.clear()
        for memory, backings in layout:
            self.backings[memory] = backings
            for backing in backings:
                backing.state = self
                if backing.box == self.box:
                    self.complete[memory] = backing

    def copy(self, tasks: Tracker | None) -> tuple[ArrayState, dict[Backing, Backing]]:
        """Return a state of its own that is as this one, unfolded, and its backings by those of this one."""
        made = ArrayState(self.id, self.box, self.dtype, self.initial, tasks)
        made.valid.become(Pattern(self.valid))
        made.valid.pattern = None  # whoever compares patterns by identity makes its own
        made.origin = None if self.origin is None else dict(self.origin)
        twins: dict[Backing, Backing] = {}
        for number, backing in enumerate(self.all_backings()):
            twin = twins[backing] = Backing(backing.allocation, 0)
            if self.form is not None:
                twin._tracker.become(self.form.trackers[number], self.ids)
            else:
                twin._tracker = copy_tracker(backing._tracker)
            made.add(twin)
        made.layout = self.layout
        return made, twins

    def fold(self, form: StateForm, ids: Ids) -> None:
        """Remember who touched it last by a form and its ids."""
        self.form, self.ids = form, ids

    def unfold(self) -> None:
        """Remember who touched it last in the trackers again."""
        form = self.form
        if form is not None:
            self.form = None
            for backing, tracker in zip(self.all_backings(), form.trackers, strict=True):
                backing._tracker.become(tracker, self.ids)

    def holds(self, memory: int, box: Box) -> bool:
        """Tell whether all of `box` is valid in `memory`."""
        bit = 1 << memory
        mask = self.valid.uniform
        if mask is not None:
            return bool(mask & bit)
        return all(mask & bit for _, mask in self.valid.get(box))

    def held_by(self, box: Box) -> int:
        """Return the memories (as bits) that will hold all of `box`. An initial value is made where it is needed."""
        valid = self.valid if self.expected is None else self.expected
        mask = valid.uniform
        if mask is None:
            mask = -1
            for _, bits in valid.get(box):
                mask &= bits
        return mask & ~FILL

    def places(self, box: Box) -> list[tuple[Box, int]]:
        """Return the parts of `box`, and the memories (as bits) that will hold them; none where nothing need be copied.

        The host reads the user's in place.
        """
        valid = self.valid if self.expected is None else self.expected
        return [(part, bits & ~FILL | (bits & USERS) << HOST - USER) for part, bits in valid.get(box)]

    def expect(self, memory: int, box: Box, *, writes: bool) -> None:
        """Note what a command that is not lowered yet will do to the validity of `box`."""
        if self.expected is None:
            self.expected = RegionMap(self.box, 0)
            self.expected.become(Pattern(self.valid))
        bit = 1 << memory
        if writes:
            self.expected.set(box, bit)
            return
        for part, mask in self.expected.get(box):
            if not mask & bit:
                self.expected.set(part, mask | bit)

    def wrote(self, memory: int, box: Box) -> None:
        """Note that `box` is now valid in `memory` alone."""
        bit = 1 << memory
        if self.valid.uniform != bit:
            self.valid.set(box, bit)

    def copied(self, memory: int, box: Box) -> None:
        """Note that `box` is now valid in `memory` too."""
        bit = 1 << memory
        for part, mask in self.valid.get(box):
            if not mask & bit:
                self.valid.set(part, mask | bit)

    def all_backings(self) -> list[Backing]:
        """Return every backing in every memory."""
        return [backing for backings in self.backings.values() for backing in backings]


def hulls(state: ArrayState, boxes: Sequence[Box]) -> list[Box]:
    """Return what is allocated for boxes of an array: partial results that lie side by side are together."""
    if not state.private:
        return merged(boxes)
    found = Foreseen(0, 0)
    for box in boxes:
        grown = found.take(box)
        found.boxes.append(grown)
    return found.boxes


def merged(boxes: Sequence[Box]) -> list[Box]:
    """Return bounding boxes of those that overlap, again and again until none do. Touching is not overlapping."""
    found: list[Box] = []
    for box in boxes:
        hull = box
        while hit := [other for other in found if overlaps(other, hull)]:
            found = [other for other in found if other not in hit]
            hull = bounding([hull, *hit])
        found.append(hull)
    return found


def discard(state: ArrayState, written: Iterable[Box], read: Iterable[Box]) -> None:
    """Forget values that a task overwrites without reading them, so that nobody copies dead data."""
    dead = Region(tuple(written)) - Region(tuple(read))
    for box in dead.boxes:
        state.valid.set(box, 0)


def grown_box(state: ArrayState, memory: int, box: Box) -> tuple[Box, list[Backing]]:
    """Return `box`, enlarged to hold every backing that it overlaps, and those backings."""
    swallowed: list[Backing] = []
    while state.backings.get(memory):  # merging may make the box overlap further backings
        more = [b for b in state.backings.get(memory, ()) if b not in swallowed and overlaps(b.box, box)]
        if not more:
            break
        swallowed += more
        box = bounding([box, *(b.box for b in more)])
    return box, swallowed
