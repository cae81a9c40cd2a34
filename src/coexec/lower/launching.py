"""Emit the kernels of a command, and make them visible to whatever comes later.

Before: lower/coherence.py, lower/capacity.py.  After: lower/lowering.py.  Every box is backed and valid already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..geometry import Box
from ..graph.command import Chunk
from ..graph.instruction import Binding, HostLaunch, Instruction, Launch, SeenPiece
from ..graph.task import Task
from ..graph.task_graph import Touching
from ..program.array import Array
from .capacity import Capacity
from .coherence import Coherence
from .emit import MOST_EDGES, Emitter
from .oversized import RoundPart
from .state import ArrayState, Backing
from .touch import Touch

_new: Callable[..., Any] = tuple.__new__  # of a named tuple, without its constructor


class Launching:
    """Emits kernels."""

    def __init__(self, coherence: Coherence, emitter: Emitter, capacity: Capacity) -> None:
        self._coherence = coherence
        self._emitter = emitter
        self._capacity = capacity
        self.orders: dict[Any, int] = {}  # host tasks: the last one per order

    def passed(self, epoch: int) -> None:
        """Let an epoch stand for everything before it."""
        if self.orders:
            self.orders = {order: max(id, epoch) for order, id in self.orders.items()}

    def one(
        self,
        task: Task,
        step: Launch,
        touches: Sequence[Touching],
        states: Sequence[ArrayState],
        backings: Sequence[Backing],
    ) -> Instruction:
        """Return the launch of a task that touches each of its arrays once, all of them backed and valid; it is not emitted."""
        emitter = self._emitter
        emitter.last = id = emitter.last + 1
        needs: set[int] = set()
        after: set[int] = set()
        touched = emitter.marks.touched
        for (box, grid, reads, writes), state, backing in zip(touches, states, backings):  # noqa: B905 - equally long, and hot
            if state.form is not None:
                state.unfold()
            tracker = backing._tracker
            touched.add(backing)
            if not writes:
                tracker.read_by(box, grid, id, needs)
            else:
                tracker.write_by(box, grid, id, needs if reads else None, after)
                bit = 1 << backing.allocation.memory
                if state.valid.uniform != bit:
                    state.valid.set(box, bit)
        if needs:
            after -= needs
        elif not after:
            after.add(emitter.epoch)
        instruction = Instruction(id, step, task, tuple(needs), tuple(after))
        emitter.led.append(id)
        emitter.edges += (instruction.needs, instruction.after)
        if len(emitter.edges) > MOST_EDGES:
            emitter.work_out_front()
        return instruction

    def launch(self, task: Task, parts: Sequence[RoundPart], touches: Sequence[list[Touch]]) -> None:
        """Emit the kernels. All look for what they come after before any is noted: siblings are unordered."""
        kernel = task.kernel
        kind = HostLaunch if kernel is not None and kernel.host else Launch
        priority = 4 + (task.options.priority if task.options is not None else 0)
        more_to_wait_for = kernel is not None and (kernel.order is not None or kernel.cost.scratches)
        done = []
        for (chunk, share, more), of_part in zip(parts, touches, strict=True):
            needs: set[int] = set()
            after: set[int] = set()
            bindings, backings = _look(of_part, needs, after)
            id = self._emitter.id()
            scratch = self._also(task, chunk, id, after) if more_to_wait_for else None
            after -= needs
            if not needs and not after:
                after.add(self._emitter.epoch)
            step = kind(chunk.device, chunk, share, bindings, priority, scratch, more)
            self._emitter.emit(Instruction(id, step, task, tuple(needs), tuple(after)))
            done.append((id, of_part, backings, needs))
        written: dict[ArrayState, list[tuple[int, Box]]] = {}
        for id, of_part, backings, needs in done:
            self._note(id, of_part, backings, needs, written)
        for state, boxes in written.items():
            self._coherence.wrote(state, tuple(boxes))

    def _also(self, task: Task, chunk: Chunk, id: int, after: set[int]) -> tuple[int, int] | None:
        """Add what a kernel comes after because of its order and its temporaries; return where those are."""
        kernel = task.kernel
        assert kernel is not None
        if kernel.order is not None:
            after.add(self.orders.get(kernel.order, self._emitter.epoch))
            self.orders[kernel.order] = id
        return self._capacity.borrow(task, chunk, id, after) if kernel.cost.scratches else None

    def _note(
        self,
        id: int,
        touches: Sequence[Touch],
        backings: Sequence[Backing | None],
        needs: set[int],
        written: dict[ArrayState, list[tuple[int, Box]]],
    ) -> None:
        """Make one kernel visible to later instructions; add to `written` what it writes, by array."""
        touched = self._emitter.marks.touched
        for touch, backing in zip(touches, backings, strict=True):
            if backing is None:
                continue
            tracker = backing.tracker
            touched.add(backing)
            _, state, box, grid, _, memory, _, writes, _, _, boxes, _, spans = touch
            for part in boxes or (box,):
                lattice = grid if boxes is None else touch.part_grid(part)
                if spans:
                    apart = _backing(state, memory, part)
                    touched.add(apart)
                    tracker = apart.tracker
                if writes:
                    tracker.did_write(part, lattice, id)
                    written.setdefault(state, []).append((memory, part))
                else:
                    tracker.did_read(part, lattice, id, needs)


def _look(
    touches: Sequence[Touch], needs: set[int], after: set[int]
) -> tuple[tuple[Binding, ...], list[Backing | None]]:
    """Return the bindings and backings of a kernel; add what it needs and what it comes after."""
    bindings: list[Binding] = []
    backings: list[Backing | None] = []
    for touch in touches:
        name, state, box, grid, cut, memory, reads, writes, strict, pad, boxes, empty, spans = touch
        if empty:
            bindings.append(Binding(name, None, box, cut, writes, pad, state.dtype))
            backings.append(None)
            continue
        backing, pieces = state.find(memory, box), None
        if backing is None and spans:
            pieces = tuple([SeenPiece(_backing(state, memory, span).allocation, span, seen) for span, seen in spans])
            backing = _backing(state, memory, spans[0][0])
        assert backing is not None, "every box was backed before launch"
        backings.append(backing)
        bindings.append(_new(Binding, (name, backing.allocation, box, cut, writes, pad, state.dtype, boxes, pieces)))
        for part in boxes or (box,):
            if pieces is not None:
                backing = _backing(state, memory, part)
            lattice = grid if boxes is None else touch.part_grid(part)
            if reads and strict:
                backing.tracker.before_read(part, lattice, needs)
            if writes:
                backing.tracker.before_write(part, lattice, after)
    return tuple(bindings), backings


def _backing(state: ArrayState, memory: int, box: Box) -> Backing:
    backing = state.find(memory, box)
    assert backing is not None, "every box was backed before launch"
    return backing


def whole_binding(backing: Backing, name: str, array: Array, writes: bool) -> Binding:
    """Return the binding of a parameter, kept for the next call if it sees the whole backing."""
    box, cut = array._box, array._cut
    if cut is not None or (box is not backing.box and box != backing.box):
        return Binding(name, backing.allocation, box, cut, writes, None, backing.allocation.dtype)
    binding = backing.bindings.get((name, writes))
    if binding is None:
        binding = Binding(name, backing.allocation, backing.box, None, writes, None, backing.allocation.dtype)
        backing.bindings[name, writes] = binding
    return binding
