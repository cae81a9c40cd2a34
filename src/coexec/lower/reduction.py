"""Reductions: a private array with a slot per part, combined in their order on the host.

Before: lower/coherence.py.  After: lower/lowering.py.  Knows operators by name only, never values.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..geometry import whole
from ..graph.command import Chunk
from ..graph.instruction import Binding, Instruction, Reduce
from ..graph.task import Task
from ..machine.platform import HOST
from ..program.access import Operator
from ..program.array import Array
from .coherence import Coherence
from .emit import Emitter
from .state import ArrayState


class Reductions:
    """Makes private arrays, and combines them."""

    def __init__(self, coherence: Coherence, emitter: Emitter) -> None:
        self._coherence = coherence
        self._emitter = emitter
        self.last = 0  # the last number given to a private array

    def partials(self, task: Task, chunks: Sequence[Chunk]) -> dict[str, ArrayState]:
        """Return a private array per reduction, one slot per chunk or piece, each starting at the identity."""
        if task.kernel is None or not task.kernel.reduces:
            return {}
        slots = max([chunk.slot + (len(chunk.pieces) or 1) for chunk in chunks], default=0)
        if task.deal is not None:
            slots = task.deal.slots
        partials = {}
        for param, array in zip(task.accesses, task.arrays, strict=True):
            operator = param.access.operator
            if operator is not None:
                self.last += 1
                box = whole((slots, *array.shape))
                start = operator.start(array.dtype)
                partials[param.name] = ArrayState(-self.last, box, array.dtype, start)
        return partials

    def combine(self, task: Task, name: str, partial: ArrayState) -> None:
        """Emit the reduction of the slots, in order, into the array, on the host."""
        index = next(i for i, param in enumerate(task.accesses) if param.name == name)
        array, operator = task.arrays[index], task.accesses[index].access.operator
        assert isinstance(operator, Operator)
        state: ArrayState = array._storage.state
        box, grid = array._box, array._grid
        with self._coherence.evictor.pinned([(partial, HOST, partial.box), (state, HOST, box)]):
            self._coherence.back(partial, HOST, partial.box, task)
            self._coherence.validate(partial, HOST, [partial.box], "host", task)
            if not box.empty:
                self._coherence.back(state, HOST, box, task)
                if not operator.fresh or grid is not None:
                    self._coherence.validate(state, HOST, [box], "host", task)
                self._reduce(task, operator, array, partial, Binding(name, None, box, array._cut, writes=True))
        self.forget(task, partial)

    def forget(self, task: Task, partial: ArrayState) -> None:
        """Free a private array."""
        for backing in partial.all_backings():
            self._coherence.free(partial, backing, task)

    def _reduce(self, task: Task, operator: Operator, array: Array, partial: ArrayState, target: Binding) -> None:
        state: ArrayState = array._storage.state
        box, grid = array._box, array._grid
        source, sink = partial.find(HOST, partial.box), state.find(HOST, box)
        assert source is not None and sink is not None
        needs: set[int] = set()
        after: set[int] = set()
        source.tracker.before_read(partial.box, None, needs)
        if not operator.fresh:
            sink.tracker.before_read(box, grid, needs)
        sink.tracker.before_write(box, grid, after)
        id = self._emitter.id()
        parts = Binding("partials", source.allocation, partial.box, None, writes=False)
        step = Reduce(parts, target._replace(allocation=sink.allocation), operator)
        self._emitter.emit(Instruction(id, step, task, tuple(needs), tuple(after - needs)))
        source.tracker.did_read(partial.box, None, id)
        sink.tracker.did_write(box, grid, id)
        state.wrote(HOST, box)
        self._emitter.touch(sink)
