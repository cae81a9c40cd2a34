"""Back boxes with memory and make them valid there: alloc, resize, fill and copy instructions.

Before: lower/state.py, lower/emit.py.  After: lower/lowering.py.  Knows no kernel: only which boxes are needed where.

A call needs some boxes of an array in the memories of its devices. For each memory:

1. `back` finds the allocation that holds a box, or makes one: what it overlaps is copied into it and freed.
2. `validate_all` cuts the elements that are not valid there by who holds, wrote and wants them: a read waits for its own only.
3. A piece that no memory holds is filled with the array's initial value. Any other is copied from the nearest memory that holds
   it, through the host where no link leads from there (`_stage`). It is valid in one memory more then.
4. What the call writes is valid where it was written, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..geometry import Box, Pattern, Region, RegionMap, overlap
from ..graph.instruction import Alloc, Allocation, Copy, Fill, Free, Instruction
from ..graph.task import Task
from ..machine.platform import HOST, USER, Platform
from .budget import Budget
from .emit import Emitter
from .evict import Evictor
from .nearest import Nearest
from .state import FILL, ArrayState, Backing, grown_box, merged
from .validity_cache import Boxes, ValidityCache, missing_of
from .watch import LoweringWatch

if TYPE_CHECKING:
    import numpy as np


class Coherence:
    """Emits what brings array boxes into memories."""

    def __init__(self, platform: Platform, emitter: Emitter, watch: LoweringWatch | None = None) -> None:
        self._platform = platform
        self._emitter = emitter
        self.last_allocation = 0  # the last number given to one
        self.freed = 0  # how many frees were emitted: what was looked up before the last one may be gone
        self.foresight = 0  # changes with what is known of how large allocations become in the end
        self._watch = watch
        self._copier = {d.memory: d.name for d in reversed(platform.devices) if d.memory not in (USER, HOST)}
        self._known = ValidityCache()
        self._nearest = Nearest(platform).source
        self.budget = Budget(platform.memories)
        self.evictor = Evictor(self, self.budget)
        self.backed: Callable[[ArrayState, int], None] | None = None  # told of every allocation of an array

    # Allocations ------------------------------------------------------------------------------------------------------

    def allocation(self, memory: int, state: ArrayState, box: Box) -> Allocation:
        """Return a new allocation, not yet backed."""
        return self.numbered(memory, state.id, box, state.dtype)

    def numbered(self, memory: int, array: int, box: Box, dtype: np.dtype[Any]) -> Allocation:
        """Return a new allocation for a box of the array with that id."""
        self.last_allocation += 1
        return Allocation(self.last_allocation, memory, array, box, dtype)

    def back(self, state: ArrayState, memory: int, box: Box, task: Task | None, *, exact: bool = False) -> Backing:
        """Return the backing that holds `box` in one piece, growing or making one if there is none.

        In a memory that is full others are evicted, or DoesNotFit is raised. `exact` asks for no more than `box`.
        """
        if (backing := state.find(memory, box)) is not None:
            return backing
        account = self.budget.accounts[memory]
        if not exact:
            box = state.box if self.may_be_whole(state, memory) else self._final(state, memory, box)
        hull, swallowed = grown_box(state, memory, box)
        if account is not None:
            hull, swallowed = self._admit(state, memory, box, hull, swallowed, task)
        allocation = self.allocation(memory, state, hull)
        after: tuple[int, ...] = (self._emitter.epoch,)
        id = self._emitter.id()
        if account is not None:
            after += tuple(account.allocate(id, allocation.nbytes))
        self._emitter.emit(Instruction(id, Alloc(allocation), task, (), after))
        backing = Backing(allocation, id)
        self._emitter.touch(backing)
        for old in swallowed:
            self._move(state, old, backing, task)
        if swallowed and self._watch is not None:
            self._watch.grew(task, state, memory)
        self.add(state, backing)
        if self.backed is not None:
            self.backed(state, memory)
        return backing

    def _final(self, state: ArrayState, memory: int, box: Box) -> Box:
        """Return `box` grown to what commands not yet lowered will need beside it, if there is room for that."""
        foreseen = state.foreseen.get(memory) if state.foreseen is not None else None
        if foreseen is None:
            return box
        account, kept = self.budget.accounts[memory], foreseen.boxes
        grown = box
        while (hull := foreseen.take(grown_box(state, memory, grown)[0])) != grown:
            grown = hull
        if account is not None and account.lacks(grown.volume * state.dtype.itemsize):
            foreseen.boxes = kept
            return box
        return grown

    def may_be_whole(self, state: ArrayState, memory: int) -> bool:
        """Tell whether an array is allocated whole: where pages appear on first touch, the final size costs nothing."""
        place, account = self._platform.memories[memory], self.budget.accounts[memory]
        if not place.paged or (place.capacity is not None and state.nbytes > place.capacity):
            return False
        return account is None or not account.crowded(state.nbytes)

    def add(self, state: ArrayState, backing: Backing) -> None:
        """Note a new backing of an array."""
        state.add(backing)
        if self.budget.limited:
            self.evictor.added(state, backing)

    def _admit(
        self, state: ArrayState, memory: int, box: Box, hull: Box, swallowed: list[Backing], task: Task | None
    ) -> tuple[Box, list[Backing]]:
        """Make room for a backing; return its box, and the backings it takes the place of.

        Old and new are live at once while an allocation grows. Where that needs more room than can be had without a
        copy, the old ones are evicted, and the new one is no larger than it must be.
        """
        size, evictor, account = state.dtype.itemsize, self.evictor, self.budget.accounts[memory]
        if account is None or (hull.volume * size <= account.largest and not account.lacks(hull.volume * size)):
            return hull, swallowed
        with evictor.pinned([(state, memory, hull)]):
            if swallowed and not evictor.make_room(memory, hull.volume * size, task, dirty=False):
                evictor.tighten([(state, memory, box)], task)
                hull, swallowed = grown_box(state, memory, box)
            evictor.need_room(memory, hull.volume * size, f"{hull} of array A{state.id}", task)
        return hull, swallowed

    def write_back(self, state: ArrayState, parts: Sequence[Box], bit: int, task: Task | None) -> None:
        """Copy parts that only the memory of `bit` holds to the host."""
        with self.evictor.pinned([(state, HOST, part) for part in parts]):
            for box in merged(parts):
                self.back(state, HOST, box, task)
        if any(state.find(HOST, part) is None for part in parts):  # one took the room of another
            self.evictor.refuse(HOST, sum(part.volume for part in parts) * state.dtype.itemsize, f"A{state.id}", task)
        self._bring(state, HOST, [(part, bit, 1) for part in parts], "host", task, "evict")
        for part in parts:
            state.copied(HOST, part)

    def _move(self, state: ArrayState, old: Backing, new: Backing, task: Task | None) -> None:
        """Copy what is live in `old` to the larger `new`, and free `old`."""
        memory = old.allocation.memory
        by_writer: dict[int, list[Box]] = {}
        for box, mask in state.valid.get(old.box):
            if mask & 1 << memory:
                for part, writer in old.tracker.writers(box):
                    by_writer.setdefault(writer, []).append(part)
        for writer, boxes in by_writer.items():
            self._copy(old, new, Region(boxes).boxes, {writer}, "resize", task, self._lane(memory, memory))
        self.free(state, old, task)

    def free(self, state: ArrayState, backing: Backing, task: Task | None) -> None:
        """Free a backing once everything that touches it is over."""
        after = self._emitter.roots(backing.tracker.ids())
        free = Instruction(self._emitter.id(), Free(backing.allocation), task, (), after)
        self._emitter.emit(free)
        self.freed += 1
        state.remove(backing)
        account = self.budget.accounts[backing.allocation.memory]
        if account is not None:
            account.free(free.id, free.nbytes)
            self.evictor.removed(backing)

    def account(self, instructions: Iterable[Instruction]) -> None:
        """Count what instructions that were made from a recipe allocate and free in limited memories."""
        accounts = self.budget.accounts
        for instruction in instructions:
            step = instruction.step
            if isinstance(step, Alloc | Free) and (own := accounts[step.allocation.memory]) is not None:
                if isinstance(step, Alloc):
                    instruction.after += tuple(own.allocate(instruction.id, step.nbytes))
                else:
                    own.free(instruction.id, step.nbytes)

    def _lane(self, source: int, target: int) -> str:
        """Return the device whose lane copies between two memories: the target's, else the source's, else the host."""
        return self._copier.get(target) or self._copier.get(source) or "host"

    def pattern(self, valid: RegionMap[int]) -> Pattern[int]:
        """Return what a map of valid elements holds: the same object whenever that is the same."""
        return self._known.pattern(valid)

    # Validity ---------------------------------------------------------------------------------------------------------

    def validate(self, state: ArrayState, memory: int, reads: Sequence[Box], device: str, task: Task | None) -> None:
        """Make all `reads` valid in `memory`. Their boxes are backed there already."""
        self.validate_all(state, {memory: ([(box,) for box in reads], device)}, task)

    def validate_all(
        self, state: ArrayState, wanted: Mapping[int, tuple[Sequence[Boxes], str]], task: Task | None
    ) -> None:
        """Make boxes valid in several memories for one task; each entry has the reads and the device that asks.

        Each missing element moves once per memory; pieces are cut by producer and by the set of reads that want them,
        so that a read waits for nothing but what it sees. All sources are those from before the task: no copy is made
        of a copy that the same task asked for, except where only the host links two memories.
        """
        mask = state.valid.uniform
        if mask is not None and all(mask >> memory & 1 for memory in wanted):
            return
        question = tuple([(memory, *reads) for memory, (reads, _) in wanted.items()])
        missing, linked = self._missing_of_all(state, wanted, question)
        if not missing:
            return
        while not linked:
            self._stage(state, missing, task)
            missing, linked = self._missing_of_all(state, wanted, question)
            if not linked:  # a small host gave up what it held before: what it holds now goes on, the rest comes next
                self._pass_on(state, wanted, missing, task)
                missing, linked = self._missing_of_all(state, wanted, question)
        for memory, pieces in missing.items():
            self._bring(state, memory, pieces, wanted[memory][1], task)

        def note() -> None:
            for memory, pieces in missing.items():
                for piece, _, _ in pieces:
                    state.copied(memory, piece)

        self._known.change(state.valid, ("copied", question), note)

    def _pass_on(
        self,
        state: ArrayState,
        wanted: Mapping[int, tuple[Sequence[Boxes], str]],
        missing: Mapping[int, Sequence[tuple[Box, int, int]]],
        task: Task | None,
    ) -> None:
        """Bring those of the missing pieces that links lead from, and note that they are there."""
        for memory, pieces in missing.items():
            linked = [piece for piece in pieces if self._linked(piece[1], memory)]
            self._bring(state, memory, linked, wanted[memory][1], task)
            for piece, _, _ in linked:
                state.copied(memory, piece)

    def _missing_of_all(
        self, state: ArrayState, wanted: Mapping[int, tuple[Sequence[Boxes], str]], question: Hashable
    ) -> tuple[dict[int, list[tuple[Box, int, int]]], bool]:
        """Return what is missing, for each memory that misses something, and whether links lead there from all of it."""
        known: tuple[dict[int, list[tuple[Box, int, int]]], bool] | None = self._known.answer(state.valid, question)
        if known is None:
            every = {memory: missing_of(state.valid, memory, reads) for memory, (reads, _) in wanted.items()}
            missing = {memory: pieces for memory, pieces in every.items() if pieces}
            linked = all(self._linked(mask, memory) for memory, pieces in missing.items() for _, mask, _ in pieces)
            known = (missing, linked)
            self._known.learn(state.valid, question, known, sum(map(len, missing.values())))
        return known

    def _linked(self, mask: int, memory: int) -> bool:
        """Tell whether a link leads to `memory` from one that holds what is valid in those of `mask`."""
        return mask == FILL or self._nearest(mask & ~FILL, memory) >= 0

    def _stage(
        self, state: ArrayState, missing: Mapping[int, Sequence[tuple[Box, int, int]]], task: Task | None
    ) -> None:
        """Bring to the host what no link leads from directly, once for all who want it.

        At least one piece is there afterwards. In a small host, others may not be, and what was there before may be gone.
        """
        unlinked: dict[tuple[int, int], list[Box]] = {}  # by the reads that want them
        for memory, pieces in missing.items():
            for piece, mask, readers in pieces:
                if not self._linked(mask, memory):
                    unlinked.setdefault((memory, readers), []).append(piece)
        boxes = merged([piece for pieces in unlinked.values() for piece in pieces])
        sources = [piece for pieces in missing.values() for piece, _, _ in pieces]
        with self.evictor.pinned([(state, HOST, box) for box in (*boxes, *sources)]):
            for box in boxes:
                self.back(state, HOST, box, task)
        found = missing_of(state.valid, HOST, [tuple(pieces) for pieces in unlinked.values()])
        lacking = [  # a piece may lie in several allocations of the host, or only in part
            (part, mask, readers)
            for piece, mask, readers in found
            for backing in state.backings[HOST]
            if (part := overlap(backing.box, piece)) is not None
        ]
        self._bring(state, HOST, lacking, "host", task)
        for piece, _, _ in lacking:
            state.copied(HOST, piece)

    def wrote(self, state: ArrayState, written: tuple[tuple[int, Box], ...]) -> None:
        """Note that boxes are now valid in one memory each, and nowhere else."""

        def note() -> None:
            for memory, box in written:
                state.wrote(memory, box)

        if len(written) == 1 and state.valid.uniform is not None:
            note()
        else:
            self._known.change(state.valid, written, note)

    def _bring(
        self,
        state: ArrayState,
        memory: int,
        missing: Sequence[tuple[Box, int, int]],
        device: str,
        task: Task | None,
        reason: str = "coherence",
    ) -> None:
        """Fill or copy the missing pieces. Whoever asks for it notes that they are there."""
        fills = [piece for piece, mask, _ in missing if mask == FILL]
        for backing, boxes in self._by_backing(state, memory, fills).items():
            self._fill(state, backing, tuple(boxes), device, task)
        groups: dict[tuple[Backing, Backing, int, int], list[tuple[Box, int]]] = {}
        for piece, mask, readers in missing:
            if mask != FILL:
                for source, target, part, writer in self._sources(state, memory, piece, mask):
                    producer = 0 if state.private else writer  # who reads partial results needs them all
                    groups.setdefault((source, target, producer, readers), []).append((part, writer))
        for (source, target, _, _), found in groups.items():
            lane = self._lane(source.allocation.memory, memory)
            lane = device if lane == "host" and memory == HOST else lane
            parts = [part for part, _ in found]
            whole = Region(parts).boxes if len(parts) > 1 else tuple(parts)
            self._copy(source, target, whole, {writer for _, writer in found}, reason, task, lane)

    def _sources(
        self, state: ArrayState, memory: int, piece: Box, mask: int
    ) -> Iterable[tuple[Backing, Backing, Box, int]]:
        """Return (source, target, part, writer) for a piece that is valid in the memories of `mask`."""
        nearest = self._nearest(mask & ~FILL, memory)
        source, target = state.find(nearest, piece), state.find(memory, piece)
        if source is not None and target is not None:
            return [(source, target, part, writer) for part, writer in source.tracker.writers(piece)]
        return [
            (source, target, produced, writer)
            for source in state.backings[nearest]
            if (from_source := overlap(source.box, piece)) is not None
            for target in state.backings[memory]
            if (part := overlap(target.box, from_source)) is not None
            for produced, writer in source.tracker.writers(part)
        ]

    def _by_backing(self, state: ArrayState, memory: int, boxes: Iterable[Box]) -> dict[Backing, list[Box]]:
        found: dict[Backing, list[Box]] = {}
        for box in boxes:
            for backing in state.backings[memory]:
                if (part := overlap(backing.box, box)) is not None:
                    found.setdefault(backing, []).append(part)
        return found

    def _fill(
        self, state: ArrayState, backing: Backing, boxes: tuple[Box, ...], device: str, task: Task | None
    ) -> None:
        boxes = Region(boxes).boxes
        after: set[int] = set()
        for box in boxes:
            backing.tracker.before_write(box, None, after)
        memory = backing.allocation.memory
        lane = self._lane(memory, memory)
        lane = device if lane == "host" else lane
        step = Fill(lane, backing.allocation, boxes, state.initial)
        fill = Instruction(self._emitter.id(), step, task, (), self._emitter.roots(after))
        self._emitter.emit(fill)
        self._emitter.touch(backing)
        for box in boxes:
            backing.tracker.did_write(box, None, fill.id)

    def _copy(
        self,
        source: Backing,
        target: Backing,
        boxes: tuple[Box, ...],
        writers: set[int],
        reason: str,
        task: Task | None,
        lane: str,
    ) -> None:
        """Copy what `writers` wrote, most often one, and strided writers over it.

        Where there are any, the copy waits for all without needing them. Where one fails, its elements alone are lost:
        whoever reads them at the target needs the copy and it.
        """
        after: set[int] = set()
        seen, kept = source.tracker, target.tracker
        over = seen.sets(boxes, *writers) if seen.strided else []
        needs = () if over else tuple(writers)
        for box in boxes:
            kept.before_write(box, None, after)
        after.update([writer for _, _, writer in over])
        after.difference_update(needs)
        id = self._emitter.id()
        step = Copy(lane, source.allocation, target.allocation, boxes, reason)
        self._emitter.emit(Instruction(id, step, task, needs, tuple(after)))
        for box in boxes:
            seen.did_read(box, None, id)
            kept.did_write(box, None, id)
        for part, lattice, writer in over:
            kept.did_write(part, lattice, writer, id)
        self._emitter.marks.touched.update((source, target))
