"""Whether chunks fit into their memories, what they must have there at once, and how they are divided if they do not fit.

Before: lower/budget.py, lower/evict.py, lower/oversized.py.  After: lower/lowering.py.  Knows boxes and bytes, no edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import NamedTuple

from ..errors import DoesNotFit
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.instruction import Alloc, Free, Instruction, Launch
from ..graph.task import Task
from ..graph.task_graph import backed_boxes, touched
from ..machine.platform import HOST, Device
from ..plan.candidate import Candidate
from ..predict.features import scratch_of
from .coherence import Coherence
from .evict import Claim
from .oversized import (
    MOST_ROUNDS,
    Listen,
    Refused,
    RoundPart,
    Together,
    TooMany,
    granule_of,
    in_rounds,
    smallest_part,
    split_axes,
)
from .state import FILL, ArrayState, discard, hulls, merged
from .touch import Draft, Touch

DROP = "drop arrays that are not needed any more"
CUT = "declare split= along a further axis"


class MemoryNeed(NamedTuple):
    """What is needed of a memory at once, and what it has."""

    memory: str
    needs: int
    has: int


def _nobody() -> None:
    """Hear nothing."""


class Capacity:
    """Keeps what is lowered within the budget of each memory."""

    def __init__(self, coherence: Coherence, devices: Mapping[str, Device]) -> None:
        self._coherence = coherence
        self._budget = coherence.budget
        self._devices = devices
        self.listen: Listen = _nobody  # raises if the program is interrupted while something takes long

    def plenty(self, task: Task, touches: Sequence[list[Touch]]) -> bool:
        """Tell whether nothing must be looked at: all is backed, or new and there is room for it. Hot."""
        if task.kernel is not None and task.kernel.cost.scratches:
            return False
        accounts, needs = self._budget.accounts, 0
        for of_chunk in touches:
            for touch in of_chunk:
                state, box, memory = touch[1], touch[2], touch[5]
                account = accounts[memory]
                if account is None or state.find(memory, box) is not None or box.empty:
                    continue
                if touch.spans:
                    return False
                if memory == HOST or state.backings.get(memory) or state.foreseen is not None:  # it may grow
                    return False
                needs += box.volume * state.dtype.itemsize
                if needs > account.largest or account.lacks(needs):
                    return False
        return True

    # How much ---------------------------------------------------------------------------------------------------------

    def claims(self, touches: Sequence[list[Touch]]) -> list[Claim]:
        """Return the boxes that must be backed in limited memories at the same time."""
        boxes: dict[tuple[ArrayState, int], list[Box]] = {}
        for of_chunk in touches:
            for touch in of_chunk:
                if not touch.box.empty and self._budget.accounts[touch.memory] is not None:
                    boxes.setdefault((touch.state, touch.memory), []).extend(touch.backed())
        return [(state, memory, box) for (state, memory), found in boxes.items() for box in hulls(state, found)]

    def scratch(self, task: Task, chunks: Sequence[Chunk]) -> dict[int, int]:
        """Return the bytes of temporaries per memory."""
        total: dict[int, int] = {}
        if task.kernel is not None and task.kernel.cost.scratches:
            for chunk in chunks:
                memory = self._devices[chunk.device].memory
                total[memory] = total.get(memory, 0) + self._scratch_of(task, chunk)
        return total

    def _scratch_of(self, task: Task, chunk: Chunk) -> int:
        return max([scratch_of(task, box) for box in chunk.pieces or (chunk.box,)])

    def borrow(self, task: Task, chunk: Chunk, id: int, after: set[int]) -> tuple[int, int] | None:
        """Count the temporaries of kernel `id`; add to `after` what it must come after; return where and how many."""
        memory = self._devices[chunk.device].memory
        account = self._budget.accounts[memory]
        if account is None:
            return None
        nbytes = self._scratch_of(task, chunk)
        after.update(account.borrow(id, nbytes))
        return memory, nbytes

    def uses(self, task: Task, chunks: Sequence[Chunk], touches: Sequence[list[Touch]]) -> list[MemoryNeed]:
        """Return what chunks need at once in each limited memory, in all and for the largest allocation."""
        claims = self.claims(touches)
        needs, largest = self.scratch(task, chunks), dict.fromkeys(range(len(self._budget.accounts)), 0)
        for state, memory, box in claims:
            size = box.volume * state.dtype.itemsize
            needs[memory] = needs.get(memory, 0) + size
            largest[memory] = max(largest[memory], size)
        found: list[MemoryNeed] = []
        for memory, need in needs.items():
            account = self._budget.accounts[memory]
            if account is None:
                continue
            found.append(MemoryNeed(account.name, largest[memory], account.largest))
            room = account.capacity
            if memory == HOST and account.lacks(need):
                room -= self._coherence.evictor.stuck(memory, claims)
            found.append(MemoryNeed(account.name, need, max(0, room)))
        return found

    def lacks(self, task: Task, chunks: Sequence[Chunk], touches: Sequence[list[Touch]]) -> bool:
        """Tell whether chunks need more at once than some memory can give."""
        return any(use.needs > use.has for use in self.uses(task, chunks, touches))

    def counts(self, instructions: Iterable[Instruction]) -> bool:
        """Tell whether any of the instructions depends on how much room there happens to be."""
        host = self._budget.accounts[HOST]
        return self._budget.limited and any(
            (isinstance(step, Alloc | Free) and step.allocation.memory == HOST and host is not None)
            or (isinstance(step, Launch) and (step.more or step.scratch is not None))
            for step in [instruction.step for instruction in instructions]
        )

    def roomy_for(self, draft: Draft) -> bool:
        """Tell whether a command surely fits: it allocates nothing where room is limited, or all its arrays fit whole and as often again.

        What is copied through the host may be allocated there.
        """
        if self._budget.accounts[HOST] is None and not draft.partials and draft.is_backed():
            return True
        states = dict.fromkeys([touch.state for touches in draft.chunks for touch in touches])
        need = 2 * sum([state.nbytes for state in states])
        return all(need <= account.largest and not account.crowded(need) for account in self._budget.open)

    # What to do about it ----------------------------------------------------------------------------------------------

    def rounds(
        self, task: Task, parts: Sequence[RoundPart], uses: Callable[[Sequence[Chunk]], list[MemoryNeed]]
    ) -> list[list[RoundPart]]:
        """Return rounds that fit, or raise DoesNotFit. `uses` says what chunks need at once."""
        visited, shapes = task.space, task.shapes
        task.space = task.domain  # from here on the task is mapped part by part
        task.shapes = task.shapes or [array.shape for array in task.arrays]
        chunks = [part.chunk for part in parts]
        memories = [self._devices[chunk.device].memory for chunk in chunks]
        try:
            self._check_results(task, [c.box for c, memory in zip(chunks, memories, strict=True) if memory == HOST])
            shares = [part.share for part in parts]
            found = in_rounds(task, chunks, shares, memories, lambda some: fill_of(uses(some)), self.listen)
        except BaseException as error:
            refused = _refusal(task, error, uses) if isinstance(error, Refused) else None
            task.space, task.shapes = visited, shapes
            if refused is None:
                raise
            raise refused from None
        return found

    def _check_results(self, task: Task, boxes: Sequence[Box]) -> None:
        """Raise if the host cannot hold what parts write there: it stays, however they are divided."""
        account = self._budget.accounts[HOST]
        if account is None or not boxes:
            return
        written = [
            (p, a) for p, a in zip(task.accesses, task.arrays, strict=True) if p.access.mode in ("write", "update")
        ]
        need = sum(touched(task, p.access, a, box).volume * a.dtype.itemsize for p, a in written for box in boxes)
        stuck = self._coherence.evictor.stuck(HOST, [(a._storage.state, HOST, a._box) for _, a in written])
        if need > account.capacity - stuck:
            raise DoesNotFit(f"the results of task {task.name!r}", account.name, need, account.capacity - stuck, DROP)

    def roomy(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices whose memories cannot hold the smallest part of a task; raise if none is left."""
        if not self._budget.limited:
            return candidates
        refused = {c.name: why for c in candidates if (why := self.too_large(task, c.name)) is not None}
        if not refused:
            return candidates
        if len(refused) == len({c.name for c in candidates}):
            raise refused[candidates[0].name]
        return [c for c in candidates if c.name not in refused]

    def too_large(self, task: Task, device: str, box: Box | None = None) -> DoesNotFit | None:
        """Return why a device can never run a task, however it is cut, or None. Cheap where there is plenty."""
        account = self._budget.accounts[self._devices[device].memory]
        if account is None:
            return None
        kernel = task.kernel
        if (kernel is None or not kernel.cost.scratches) and sum(
            [array._storage.state.nbytes for array in task.arrays]
        ) <= account.largest:
            return None
        box = task.mine if box is None else box
        need, largest = _needs(task, box)
        if need <= account.capacity and largest <= account.largest:
            return None
        axes = split_axes(task)
        need, largest = _needs(task, smallest_part(box, axes, granule_of(task))) if axes else (need, largest)
        if need <= account.capacity and largest <= account.largest:
            return None
        if need <= account.capacity:
            need, has = largest, account.largest
        else:
            has = account.capacity
        rows = "one row" if granule_of(task) == 1 else f"{granule_of(task)} rows"
        what = (
            f"the smallest part of task {task.name!r} ({rows} along {_names(axes)})" if axes else f"task {task.name!r}"
        )
        return DoesNotFit(what, account.name, need, has, _remedy(task))

    @contextmanager
    def backed(
        self, task: Task, chunks: Sequence[Chunk], touches: Sequence[list[Touch]], before: Sequence[list[Touch]] = ()
    ) -> Iterator[None]:
        """Back what a round needs in limited memories, and let none of it go until the round is prepared.

        What the round `before` it touches stays too, if that is possible: else this one would wait for its kernels.
        """
        claims, evictor = self.claims(touches), self._coherence.evictor
        old: list[tuple[ArrayState, Box, int]] = []
        with evictor.pinned(claims):
            missing = {state for state, memory, box in claims if state.find(memory, box) is None}
            for state in missing:
                mine = [touch for of_chunk in touches for touch in of_chunk if touch.state is state]
                written = [box for t in mine if t.writes and not t.reads for box in t.parts()]
                old += [(state, part, mask) for box in written for part, mask in state.valid.get(box)]
                discard(state, written, [box for t in mine if t.reads for box in t.parts()])
            scratch = self.scratch(task, chunks)
            if missing or scratch:
                try:
                    self._back(task, claims, scratch, self.claims(before))
                except DoesNotFit:
                    _restore(old)
                    raise
            yield

    def _back(
        self, task: Task, claims: Sequence[Claim], scratch: Mapping[int, int], before: Sequence[Claim] = ()
    ) -> None:
        evictor = self._coherence.evictor
        try:
            with evictor.pinned(before):
                self._back_all(task, claims, scratch, exact=False)
        except DoesNotFit:
            if before:
                self._back(task, claims, scratch)
                return
            evictor.tighten(claims, task)  # what grew, or was larger than needed, took the room
            self._back_all(task, claims, scratch, exact=True)

    def _back_all(self, task: Task, claims: Sequence[Claim], scratch: Mapping[int, int], *, exact: bool) -> None:
        for state, memory, box in claims:
            self._coherence.back(state, memory, box, task, exact=exact)
        for memory, nbytes in scratch.items():
            self._coherence.evictor.need_room(memory, nbytes, "temporaries", task)


def fill_of(uses: Iterable[MemoryNeed]) -> float:
    """Return which share of its room the memory that lacks most is asked for."""
    return max([use.needs / use.has if use.has else inf * bool(use.needs) for use in uses if use.needs], default=0.0)


def _refusal(task: Task, error: Refused, uses: Callable[[Sequence[Chunk]], list[MemoryNeed]]) -> DoesNotFit:
    """Return what to tell the user about a task that cannot be divided so that it fits."""
    axes = split_axes(task)
    use = max(uses(error.parts), key=lambda use: fill_of([use]))
    name, remedy = f"task {task.name!r}", _remedy(task)
    if isinstance(error, Together):
        name, remedy = f"{name}, in which some parts touch what others write,", "write to another array"
    elif isinstance(error, TooMany):
        name, remedy = f"{name}, which would have to be cut into more than {MOST_ROUNDS:,} parts,", "make it smaller"
    elif axes:
        rows = " and ".join(f"{_rows(error.parts[0].box, axis)} along axis {axis}" for axis in axes)
        name = f"the part of {name} with {rows}"
    return DoesNotFit(name, use.memory, use.needs, use.has, remedy)


def _rows(box: Box, axis: int) -> str:
    first, last = box.lo[axis], box.hi[axis] - 1
    return f"row {first}" if first == last else f"rows {first} to {last}"


def _names(axes: Sequence[int]) -> str:
    return " and ".join(f"axis {axis}" for axis in axes)


def _remedy(task: Task) -> str:
    """Return what may make the parts of a task smaller that is not in place already."""
    axes, kernel = split_axes(task), task.kernel
    if kernel is not None and kernel.split and not axes:
        return "let the call be divided (it says split=False)"
    if task.grain is not None:
        return "do without reproducible=True: smaller blocks would have other bits"
    if granule_of(task) > 1:
        return "declare a smaller granule="
    if not axes:
        return "declare split= on the kernel"
    return CUT if len(axes) < task.domain.ndim else "let its rows touch less"


def _restore(old: Sequence[tuple[ArrayState, Box, int]]) -> None:
    """Take back what was discarded for a task that is refused, as far as it is still there."""
    for state, part, mask in old:
        there = [m for m in state.backings if mask >> m & 1 and state.find(m, part) is not None]
        state.valid.set(part, mask & FILL | sum(1 << m for m in there))


def _needs(task: Task, box: Box) -> tuple[int, int]:
    """Return the bytes that a part of a task needs in its device's memory at once, and those of the largest array."""
    boxes: dict[int, list[Box]] = {}
    sizes: dict[int, int] = {}
    total = scratch_of(task, box) if task.kernel is not None and task.kernel.cost.scratches else 0
    largest = 0
    for param, array in zip(task.accesses, task.arrays, strict=True):
        if param.access.mode == "reduce":
            total += array.nbytes
            largest = max(largest, array.nbytes)
        elif mine := backed_boxes(task, param.access, array, box):
            boxes.setdefault(id(array._storage), []).extend(mine)
            sizes[id(array._storage)] = array.dtype.itemsize
    for storage, found in boxes.items():
        for hull in merged(found) if len(found) > 1 else found:
            total += hull.volume * sizes[storage]
            largest = max(largest, hull.volume * sizes[storage])
    return total, largest
