"""Lower commands to instructions: a pure function of (command, state). No thread, no device, no clock.

Before: graph/command.py.  After: execute/.  Knows where arrays are backed and valid, never their data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DoesNotFit
from ..geometry import Box
from ..graph.command import Chunk, Command
from ..graph.instruction import Binding, Fence, Instruction, Launch
from ..graph.mapped import Mapped, mapped, placed
from ..graph.task import Task
from ..graph.task_graph import Touching
from ..machine.platform import HOST, USER, Device, Platform
from ..plan.candidate import Share
from ..program.access import Access
from ..program.array import Array
from ..program.storage import Storage
from ..program.view import grid_of
from .capacity import Capacity, MemoryNeed
from .coherence import Coherence
from .emit import Emitter
from .launching import Launching, whole_binding
from .oversized import RoundPart
from .reduction import Reductions
from .state import FILL, MEMORIES, ArrayState, Backing, discard, hulls
from .touch import Draft, Touch, by_array, is_written, slots_of
from .validity_cache import Boxes
from .watch import LoweringWatch, look, look_at

if TYPE_CHECKING:
    from .exchanging import Exchanging

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Lowering:
    """Turns commands into instructions, one after another, and remembers what later ones need."""

    def __init__(self, platform: Platform, watch: LoweringWatch | None = None) -> None:
        if len(platform.memories) > MEMORIES:
            raise ConfigError(
                f"the platform has {len(platform.memories):,} memories, and one program can use {MEMORIES:,}; take fewer nodes"
            )
        self.platform = platform
        self.emitter = Emitter()
        self.coherence = Coherence(platform, self.emitter, watch)
        self._watch = watch
        self._devices: dict[str, Device] = {d.name: d for d in platform.devices}
        self._devices["host"] = Device("host", "cpu", HOST, (HOST, USER))
        self._states: dict[int, ArrayState] = {}
        self._reductions = Reductions(self.coherence, self.emitter)
        self.exchanging: Exchanging | None = None  # with other ranks
        self.capacity = Capacity(self.coherence, self._devices)
        self.launching = Launching(self.coherence, self.emitter, self.capacity)

    def join(self, rank: int) -> None:
        """Be one rank of several: what is dealt is also sent and received."""
        from .exchanging import Exchanging  # most programs have one rank

        self.exchanging = Exchanging(self.coherence, self.emitter, rank)

    @property
    def _exchange(self) -> Exchanging:
        assert self.exchanging is not None, "a task is dealt only among ranks"
        return self.exchanging

    @property
    def last_private(self) -> int:
        """The last number given to a private array."""
        return self._reductions.last

    @last_private.setter
    def last_private(self, number: int) -> None:
        self._reductions.last = number

    # Arrays -----------------------------------------------------------------------------------------------------------

    def register(self, storage: Storage, memory: int | None = None) -> Backing | None:
        """Begin to track an array; with `memory`, its contents are already there and the backing is returned."""
        state = ArrayState(storage.id, storage.box, storage.dtype, storage.initial, storage.tracker)
        storage.state = self._states[storage.id] = state
        if memory is None:
            return None
        backing = Backing(self.coherence.allocation(memory, state, state.box), self.emitter.epoch)
        self.coherence.add(state, backing)
        if (account := self.coherence.budget.accounts[memory]) is not None:
            account.held += state.nbytes
        state.wrote(memory, state.box)
        return backing

    def make_room(self, storage: Storage) -> list[Instruction]:
        """Evict from the host's memory until an array fits, now or when everything so far is over."""
        nbytes = storage.box.volume * storage.dtype.itemsize
        account = self.coherence.budget.accounts[HOST]
        if account is None or not account.crowded(nbytes):
            return []
        self.coherence.evictor.need_room(HOST, nbytes, f"an array of shape {storage.shape}", None)
        return self.emitter.take()

    def drop(self, storage_id: int) -> list[Instruction]:
        """Free every backing of an array whose last handle is gone."""
        state = self._states.pop(storage_id, None)
        if self._watch is not None:
            self._watch.dropped(storage_id)
        for backing in state.all_backings() if state is not None else ():
            if state is not None and backing.allocation.memory != USER:
                self.coherence.free(state, backing, None)
        return self.emitter.take()

    # Commands ---------------------------------------------------------------------------------------------------------

    def lower(self, command: Command, shares: Sequence[Share], draft: Draft | None = None) -> list[Instruction]:
        """Return the instructions of one command, in topological order. `shares` has one entry per chunk."""
        task = command.task
        if (deal := task.deal) is not None:
            self._exchange.before(task, deal)
            draft = None if deal.awaits else draft
        if draft is None:
            if (kernel := self.warm(command, shares)) is not None:
                return kernel
            draft = self.draft(command)
        touches, partials, backed = draft
        parts = [RoundPart(chunk, share) for chunk, share in zip(command.chunks, shares, strict=True)]
        if self._watch is not None:
            look(self._watch, task, touches)
        if not self.coherence.budget.limited or self.capacity.plenty(task, touches):
            self._round(task, parts, touches, backed=backed)
            self._combine(task, partials)
        elif not self.capacity.lacks(task, command.chunks, touches):
            self._lower_rounds(task, [parts], partials)
        else:
            rounds = self.capacity.rounds(task, parts, lambda chunks: self._uses(task, chunks))
            every = [part.chunk for mine in rounds for part in mine]
            self._lower_rounds(task, rounds, self._reductions.partials(task, every))
        if deal is not None:
            self._exchange.forget(task, deal)
        return self.emitter.take()

    def has_begun(self, task: Task) -> bool:
        """Tell whether a task that could not be lowered was lowered in part: some of its rounds are emitted."""
        return any(isinstance(i.step, Launch) and i.task is task for i in self.emitter.out)

    def _combine(self, task: Task, partials: dict[str, ArrayState]) -> None:
        """Combine the partial results of reductions, those of other ranks included."""
        if task.deal is not None and partials:
            self._exchange.after(task, task.deal, partials)
        for name, partial in partials.items():
            self._reductions.combine(task, name, partial)

    def draft(self, command: Command) -> Draft:
        """Return what each chunk of a command touches, as things are now."""
        partials = self._reductions.partials(command.task, command.chunks)
        return Draft([self._touches(command.task, chunk, partials) for chunk in command.chunks], partials)

    def _uses(self, task: Task, chunks: Sequence[Chunk]) -> list[MemoryNeed]:
        """Return what chunks need at once in limited memories."""
        last = self.last_private
        partials = self._reductions.partials(task, chunks)
        self.last_private = last  # nothing is made of these
        return self.capacity.uses(task, chunks, [self._touches(task, chunk, partials) for chunk in chunks])

    def _lower_rounds(self, task: Task, rounds: Sequence[Sequence[RoundPart]], partials: dict[str, ArrayState]) -> None:
        """Lower a command in limited memories, one round after the other."""
        touches: list[list[Touch]] = []
        try:
            for parts in rounds:
                self.capacity.listen()
                before, touches = touches, [self._touches(task, part.chunk, partials) for part in parts]
                with self.capacity.backed(task, [part.chunk for part in parts], touches, before):
                    self._round(task, parts, touches)
            self._combine(task, partials)
        except BaseException:  # DoesNotFit or an interrupt: what was emitted is right, and runs with what comes next
            for partial in partials.values():
                self._reductions.forget(task, partial)
            raise

    def _round(
        self, task: Task, parts: Sequence[RoundPart], touches: Sequence[list[Touch]], *, backed: bool = False
    ) -> None:
        """Lower chunks that run at the same time, or phase by phase."""
        phases = [part.chunk.phase for part in parts]
        at_once = not phases or phases[0] == phases[-1]
        for state, uses in by_array(parts, touches).items():
            if not backed:
                self._back(task, state, uses)
            if at_once:
                self._validate(task, state, uses)
        if at_once:
            self.launching.launch(task, parts, touches)
        for phase in () if at_once else dict.fromkeys(phases):
            now = [i for i, of_part in enumerate(phases) if of_part == phase]
            mine, of_mine = [parts[i] for i in now], [touches[i] for i in now]
            for state, uses in by_array(mine, of_mine).items():
                self._validate(task, state, uses)
            self.launching.launch(task, mine, of_mine)

    def warm(self, command: Command, shares: Sequence[Share]) -> list[Instruction] | None:
        """Lower the usual case of a warm program: one kernel on whole arrays, all backed and valid where they are needed.

        Makes exactly what the general way would. None, with nothing changed, if something must be allocated or moved.
        """
        _, task, chunks, _, _ = command
        kernel = task.kernel
        if task.space is not None or task.deal is not None or len(chunks) != 1 or not task.once or kernel is None:
            return None
        if kernel.host or kernel.reduces or kernel.scratches:
            return None
        chunk, share = chunks[0], shares[0]
        memory = self._devices[chunk.device].memory
        bit = 1 << memory
        states: list[ArrayState] = []
        backings: list[Backing] = []
        touches: list[Touching] = []
        bindings: list[Binding] = []
        for (name, _, access), array in zip(task.accesses, task.arrays):  # noqa: B905 - equally long, and this is hot
            state: ArrayState = array._storage.state
            backing = state.complete.get(memory)
            mask = state.valid.uniform
            if backing is None or mask is None or not array.size:
                return None
            box, grid, reads, writes = array._box, array._grid, access.reads, access.writes
            if not mask & bit and (reads or grid is not None):
                return None
            states.append(state)
            backings.append(backing)
            touches.append((box, grid, reads, writes))
            whole = array._cut is None and box is backing.box
            known = backing.bindings.get((name, writes)) if whole else None
            bindings.append(known or whole_binding(backing, name, array, writes))
        priority = 4 + task.options.priority if task.options is not None else 4
        same, found = task.same, tuple(bindings)
        made = None if same is None else same.launch
        if made is None or made[0] is not share or made[1] is not chunk or made[2] != found or made[3] != priority:
            made = (share, chunk, found, priority, Launch(chunk.device, chunk, share, found, priority))
            if same is not None:
                same.launch = made
        step: Launch = made[4]
        instruction = self.launching.one(task, step, touches, states, backings)
        return [*self.emitter.take(), instruction] if self.emitter.out else [instruction]

    def _touches(self, task: Task, chunk: Chunk, partials: dict[str, ArrayState]) -> list[Touch]:
        device = self._devices[chunk.device]
        touches = []
        parts = mapped(task, chunk.box) if task.space is not None else (None,) * len(task.arrays)
        for (name, _, access), array, part in zip(task.accesses, task.arrays, parts, strict=True):
            if access.mode == "reduce":
                touches.append(slots_of(name, partials[name], chunk, device.memory))
            else:
                alone = task.once or not is_written(task, array)
                touches.append(self._touch(name, access, array, part, device, alone=alone))
        return touches

    def _touch(
        self, name: str, access: Access, array: Array, part: Mapped | None, device: Device, *, alone: bool
    ) -> Touch:
        """Return what a body touches of an array; `alone` tells that it does not write it through another parameter."""
        state: ArrayState = array._storage.state
        pad = boxes = None
        spans: tuple[tuple[Box, Box], ...] = ()
        if part is None:
            box, grid = array._box, array._grid
        else:
            box, boxes = part.of(array)
            grid = None if array._grid is None else grid_of(box, array._cut)
            pad = part.pad
            if part.spans:
                spans = tuple([(placed(array, span), span) for span in part.spans])
        memory = device.memory
        if not access.writes and alone and USER in state.backings and device.reads(USER):
            parts = boxes or (box,)
            if not all(state.holds(memory, part) for part in parts):
                memory = USER if all(state.holds(USER, part) for part in parts) else memory
        strided = grid is not None and access.mode == "write"
        reads = access.reads or strided
        empty = not array.size if part is None else part.empty
        fields = (
            name,
            state,
            box,
            grid,
            array._cut,
            memory,
            reads,
            access.writes,
            not strided,
            pad,
            boxes,
            empty,
            spans,
        )
        touch: Touch = _new(Touch, fields)
        return touch

    def _back(self, task: Task, state: ArrayState, parts: Sequence[tuple[Touch, str]]) -> None:
        """Back every box of an array that is touched, all chunks together."""
        if any(state.find(t.memory, box) is None for t, _ in parts for box in t.backed()):
            written = [box for t, _ in parts if t.writes and not t.reads for box in t.parts()]
            discard(state, written, [box for t, _ in parts if t.reads for box in t.parts()])
            for memory in dict.fromkeys(t.memory for t, _ in parts):
                for box in hulls(state, [box for t, _ in parts if t.memory == memory for box in t.backed()]):
                    self.coherence.back(state, memory, box, task)

    def _validate(self, task: Task, state: ArrayState, parts: Sequence[tuple[Touch, str]]) -> None:
        """Make what is read of an array valid, all chunks together."""
        wanted: dict[int, tuple[dict[Boxes, None], str]] = {}
        for touch, device in parts:
            if touch.reads:
                known = wanted.get(touch.memory)
                if known is None:
                    known = wanted[touch.memory] = ({}, device)
                known[0][touch.boxes or (touch.box,)] = None
        if wanted:
            self.coherence.validate_all(
                state, {memory: (list(w), device) for memory, (w, device) in wanted.items()}, task
            )

    # The host program -------------------------------------------------------------------------------------------------

    def fence(self, task: Task, array: Array, deliver: Callable[[Any], None]) -> list[Instruction]:
        """Hand exactly the elements of `array`, as they are now, to the host program."""
        state: ArrayState = array._storage.state
        box, grid = array._box, array._grid
        needs: set[int] = set()
        backing = None
        if task.deal is not None:
            self._exchange.before(task, task.deal)
            if task.deal.box is None:  # another rank reads
                return self.emitter.take()
        if self._watch is not None:
            look_at(self._watch, task, [("", state, box)])
        if not box.empty:
            memory = USER if USER in state.backings and state.holds(USER, box) else HOST
            backing = self.coherence.back(state, memory, box, task)
            self.coherence.validate(state, memory, [box], "host", task)
            backing.tracker.before_read(box, grid, needs)
        id = self.emitter.id()
        binding = Binding("", backing.allocation if backing else None, box, array._cut, writes=False, dtype=state.dtype)
        after = () if needs else (self.emitter.epoch,)
        self.emitter.emit(Instruction(id, Fence(binding, deliver), task, tuple(needs), after))
        if backing is not None:
            backing.tracker.did_read(box, grid, id)
            self.emitter.touch(backing)
        return self.emitter.take()

    def gather(self, storage_ids: Collection[int], task: Task) -> list[Instruction]:
        """Make arrays that were written valid in host memory, as far as it holds them, so that they outlive the devices."""
        for id in storage_ids:
            state = self._states.get(id)
            there = (state.valid.uniform or 0) & (1 << HOST | 1 << USER | FILL) if state is not None else 0
            if state is not None and not there and not state.box.empty:
                try:
                    self.coherence.back(state, HOST, state.box, task)
                    self.coherence.validate(state, HOST, [state.box], "host", task)
                except DoesNotFit:
                    continue  # whoever reads it afterwards is told
        return self.emitter.take()

    def horizon(self, task: Task, failed: Collection[int] = ()) -> list[Instruction]:
        """Emit a horizon; the one before it takes effect."""
        self.emitter.horizon(task, failed)
        self.coherence.budget.passed(self.emitter.epoch)
        self.launching.passed(self.emitter.epoch)
        return self.emitter.take()

    def epoch(self, task: Task, failed: Collection[int] = (), *, at_once: bool = True) -> list[Instruction]:
        """Emit an epoch. It takes effect at once, or when `passed` is called for it, so that no failure is forgotten."""
        epoch = self.emitter.begin(task)
        if at_once:
            self.passed(epoch.id, failed)
        return self.emitter.take()

    def passed(self, epoch: int, failed: Collection[int]) -> None:
        """Let an epoch that is over stand for everything before it."""
        self.emitter.passed(epoch, failed)
        self.coherence.budget.passed(epoch)
        self.launching.passed(epoch)

    def ids(self) -> set[int]:
        """Return the instructions that something later could depend on."""
        return set().union(*(b.tracker.ids() for state in self._states.values() for b in state.all_backings()))

    def live(self) -> int:
        """Return how many tracking entries there are: bounded by the horizons."""
        states = self._states.values()
        tasks = sum(len(state.tasks) for state in states if state.tasks is not None)
        return tasks + sum(len(b.tracker) for state in states for b in state.all_backings())

    def states(self) -> dict[int, ArrayState]:
        """Return the state of every live array, by array id: the one table that says which arrays there are."""
        return self._states
