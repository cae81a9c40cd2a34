"""Lower commands to instructions: a pure function of (command, state). No thread, no device, no clock.

Before: graph/command.py.  After: execute/.  Knows where arrays are backed and valid, never their data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, DoesNotFit
from ..graph.command import Chunk, Command
from ..graph.instruction import Allocation, Binding, Fence, Instruction, Kernel
from ..graph.mapped import Mapped, mapped
from ..graph.task import Task
from ..machine.platform import HOST, USER, Device, Platform
from ..plan.candidate import Share
from ..program.access import Access
from ..program.array import Array, Storage
from ..program.view import grid_of
from .coherence import Coherence, discard
from .emit import Emitter
from .fitting import Fitting, Use
from .known import Boxes
from .launching import Launching, whole_binding
from .reduction import Reductions
from .rounds import Part
from .stand_in import stand_in
from .state import FILL, MEMORIES, ArrayState, Backing, hulls
from .touch import Draft, Touch, slots_of
from .watch import Watch, look, look_at

if TYPE_CHECKING:
    from .exchanging import Exchanging

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Lowering:
    """Turns commands into instructions, one after another, and remembers what later ones need."""

    def __init__(self, platform: Platform, watch: Watch | None = None) -> None:
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
        self.fitting = Fitting(self.coherence, self._devices)
        self._launching = Launching(self.coherence, self.emitter, self.fitting)

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

    def make_room(self, storage: Storage) -> tuple[bool, list[Instruction]]:
        """Evict from the host's memory until an array fits; tell whether something must be over before it does."""
        nbytes = storage.box.volume * storage.dtype.itemsize
        account = self.coherence.budget.accounts[HOST]
        if account is None or not account.crowded(nbytes):
            return False, []
        self.coherence.evictor.need_room(HOST, nbytes, f"an array of shape {storage.shape}", None)
        return account.crowded(nbytes), self.emitter.take()

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

    def warm(self, command: Command, shares: Sequence[Share]) -> list[Instruction] | None:
        """Return the one kernel of a command whose arrays are whole, backed and valid where they are needed, or None."""
        task, chunks = command.task, command.chunks
        whole = task.visited is None and task.deal is None and len(chunks) == 1
        return self.emitter.take() if whole and self._warm(task, chunks[0], shares[0]) else None

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
        parts = [Part(chunk, share) for chunk, share in zip(command.chunks, shares, strict=True)]
        if self._watch is not None:
            look(self._watch, task, touches)
        if not self.coherence.budget.limited or self.fitting.plenty(task, touches):
            self._round(task, parts, touches, backed=backed)
            self._combine(task, partials)
        elif not self.fitting.lacks(task, command.chunks, touches):
            self._lower_rounds(task, [parts], partials)
        else:
            rounds = self.fitting.rounds(task, parts, lambda chunks: self._uses(task, chunks))
            every = [part.chunk for mine in rounds for part in mine]
            self._lower_rounds(task, rounds, self._reductions.partials(task, every))
        if deal is not None:
            self._exchange.forget(task, deal)
        return self.emitter.take()

    def has_begun(self, task: Task) -> bool:
        """Tell whether a task that could not be lowered was lowered in part: some of its rounds are emitted."""
        return any(isinstance(i, Kernel) and i.task is task for i in self.emitter.out)

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

    def _uses(self, task: Task, chunks: Sequence[Chunk]) -> list[Use]:
        """Return what chunks need at once in limited memories."""
        last = self.last_private
        partials = self._reductions.partials(task, chunks)
        self.last_private = last  # nothing is made of these
        return self.fitting.uses(task, chunks, [self._touches(task, chunk, partials) for chunk in chunks])

    def _lower_rounds(self, task: Task, rounds: Sequence[Sequence[Part]], partials: dict[str, ArrayState]) -> None:
        """Lower a command in limited memories, one round after the other."""
        touches: list[list[Touch]] = []
        try:
            for parts in rounds:
                self.fitting.listen()
                before, touches = touches, [self._touches(task, part.chunk, partials) for part in parts]
                with self.fitting.backed(task, [part.chunk for part in parts], touches, before):
                    self._round(task, parts, touches)
            self._combine(task, partials)
        except BaseException:  # DoesNotFit or an interrupt: what was emitted is right, and runs with what comes next
            for partial in partials.values():
                self._reductions.forget(task, partial)
            raise

    def _round(
        self, task: Task, parts: Sequence[Part], touches: Sequence[list[Touch]], *, backed: bool = False
    ) -> None:
        """Lower chunks that run at the same time."""
        self._prepare(task, parts, touches, backed=backed)
        self._launching.launch(task, parts, touches)

    def _warm(self, task: Task, chunk: Chunk, share: Share) -> bool:
        """Lower the usual case of a warm program: whole arrays, all backed and valid where they are needed.

        Emits exactly what the general way would. False, with nothing changed, if something must be allocated or moved.
        """
        kernel = task.kernel
        if kernel is None or kernel.host or kernel.reduces or not task.once or kernel.asks.scratches:
            return False
        memory = self._devices[chunk.device].memory
        bit = 1 << memory
        bindings: list[Binding] = []
        backings: list[Backing] = []
        accesses, arrays = task.accesses, task.arrays
        for (name, _, access), array in zip(accesses, arrays):  # noqa: B905 - as long as each other, and this is hot
            state: ArrayState = array._storage.state
            backing = state.complete.get(memory)
            mask = state.valid.uniform
            if backing is None or mask is None or not array.size:
                return False
            if not mask & bit and (access.reads or array._grid is not None):
                return False
            backings.append(backing)
            whole = array._cut is None and array._box is backing.box
            known = backing.bindings.get((name, access.writes)) if whole else None
            bindings.append(known or whole_binding(backing, name, array, access.writes))
        emitter = self.emitter
        id = emitter.id()
        needs: set[int] = set()
        after: set[int] = set()
        touch = emitter.marks.touched.add
        for (_, _, access), array, backing in zip(accesses, arrays, backings):  # noqa: B905 - as above
            tracker = backing.tracker
            touch(backing)
            if not access.writes:
                tracker.read_by(array._box, array._grid, id, needs)
            else:
                tracker.write_by(array._box, array._grid, id, needs if access.reads else None, after)
                if array._storage.state.valid.uniform != bit:
                    array._storage.state.valid.set(array._box, bit)
        if needs:
            after -= needs
        elif not after:
            after.add(emitter.epoch)
        priority = 4 + task.options.priority if task.options is not None else 4
        emitter.emit(
            Kernel(id, chunk.device, task, chunk, share, tuple(bindings), tuple(needs), tuple(after), priority)
        )
        return True

    def _touches(self, task: Task, chunk: Chunk, partials: dict[str, ArrayState]) -> list[Touch]:
        device = self._devices[chunk.device]
        touches = []
        parts = mapped(task, chunk.box) if task.visited is not None else (None,) * len(task.arrays)
        for (name, _, access), array, part in zip(task.accesses, task.arrays, parts, strict=True):
            if access.mode == "reduce":
                touches.append(slots_of(name, partials[name], chunk, device.memory))
            else:
                alone = task.once or not _written(task, array)
                touches.append(self._touch(name, access, array, part, device, alone=alone))
        return touches

    def _touch(
        self, name: str, access: Access, array: Array, part: Mapped | None, device: Device, *, alone: bool
    ) -> Touch:
        """Return what a body touches of an array; `alone` tells that it does not write it through another parameter."""
        state: ArrayState = array._storage.state
        pad = boxes = None
        if part is None:
            box, grid = array._box, array._grid
        else:
            box, boxes = part.of(array)
            grid = None if array._grid is None else grid_of(box, array._cut)
            pad = part.pad
        memory = device.memory
        if not access.writes and alone and USER in state.backings and device.reads(USER):
            parts = boxes or (box,)
            if not all(state.holds(memory, part) for part in parts):
                memory = USER if all(state.holds(USER, part) for part in parts) else memory
        strided = grid is not None and access.mode == "write"
        reads = access.reads or strided
        empty = not array.size if part is None else part.empty
        fields = (name, state, box, grid, array._cut, memory, reads, access.writes, not strided, pad, boxes, empty)
        touch: Touch = _new(Touch, fields)
        return touch

    def _prepare(self, task: Task, parts: Sequence[Part], touches: Sequence[list[Touch]], *, backed: bool) -> None:
        """Back every box, unless all are, and make what is read valid, all chunks together."""
        by_state: dict[ArrayState, list[tuple[Touch, str]]] = {}
        for part, of_part in zip(parts, touches, strict=True):
            for touch in of_part:
                if not touch.empty:
                    by_state.setdefault(touch.state, []).append((touch, part.chunk.device))
        for state, parts_of in by_state.items():
            self._prepare_array(task, state, parts_of, backed=backed)

    def _prepare_array(self, task: Task, state: ArrayState, parts: list[tuple[Touch, str]], *, backed: bool) -> None:
        if not backed and any(state.find(t.memory, t.box) is None for t, _ in parts):
            written = [box for t, _ in parts if t.writes and not t.reads for box in t.parts()]
            discard(state, written, [box for t, _ in parts if t.reads for box in t.parts()])
            for memory in dict.fromkeys(t.memory for t, _ in parts):
                for box in hulls(state, [t.box for t, _ in parts if t.memory == memory]):
                    self.coherence.back(state, memory, box, task)
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

    # Instead of a device ---------------------------------------------------------------------------------------------

    def stand_in(self, failed: Kernel, device: str, share: Share) -> list[Instruction]:
        """Return what redoes a kernel that its device could not run, on `device`, which works on host memory."""

        def like(old: Allocation) -> Allocation:
            return self.coherence.numbered(HOST, old.array, old.box, old.dtype)

        return stand_in(self.emitter, failed, device, share, like)

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
        self.emitter.emit(Fence(id, "host", task, binding, deliver, tuple(needs), after))
        if backing is not None:
            backing.tracker.did_read(box, grid, id)
            self.emitter.touch(backing)
        return self.emitter.take()

    def gather(self, storage_ids: Collection[int], task: Task) -> list[Instruction]:
        """Make arrays valid in host memory, as far as it holds them, so that they outlive the devices.

        What was never written needs no memory: its initial value is known.
        """
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
        self._launching.passed(self.emitter.epoch)
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
        self._launching.passed(epoch)

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


def _written(task: Task, array: Array) -> bool:
    """Tell whether a task writes an array through some parameter: then a body sees one memory through all of them."""
    return any(
        p.access.writes and a._storage is array._storage for p, a in zip(task.accesses, task.arrays, strict=True)
    )
