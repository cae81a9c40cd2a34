"""Calls that were run in the caller before, on the same arrays in the same state: run again without any analysis.

Before: backend/cpu.py, lower/state.py.  After: pump.py.  Called under the program's lock, while nothing is open.

Such a call changes no state: its arrays stay where they are, and whoever comes after it finds it over. So it leaves no
trace in the graphs; only if its body raises does it become a task like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple

from ..backend.base import Ran
from ..backend.launch import check_nothing_returned, compact, resolve
from ..graph.instruction import Binding, Instruction, Launch
from ..graph.task import Task
from ..lower.coherence import Coherence
from ..lower.state import ArrayState, Backing
from ..program.array import Array
from ..program.capture import PLAIN
from ..program.kernel import Kernel
from ..program.session import in_kernel
from ..program.value import looking_at
from .executor import Executor

LONG = 60e-6  # seconds: a call that took longer is looked at by the planner again
EVERY = 8  # calls of which one teaches the predictors
MOST = 64  # calls that are known of one array and its views
_new: Callable[..., Any] = tuple.__new__


class Slot(NamedTuple):
    """An array of a known call, as it must be."""

    position: int  # among the arguments
    state: ArrayState
    box: Any
    cut: Any
    memory: int
    backing: Backing
    valid: int  # the memories that hold all of it, as bits
    writes: bool


class KnownCall:
    """A call that was run in the caller."""

    __slots__ = ("arrays", "calls", "freed", "function", "instruction", "key", "scalars", "slots", "values")

    def __init__(
        self,
        instruction: Instruction,
        slots: tuple[Slot, ...],
        values: list[Any],
        scalars: tuple[int, ...],
        function: Callable[..., Any] | None,
        freed: int,
        key: Hashable,
        arrays: tuple[int, ...],
    ) -> None:
        self.key = key  # under which it is kept with its first array
        self.arrays = arrays  # ids
        self.freed = freed  # how often memory had been freed when its arrays were last looked at closely
        self.instruction = instruction
        self.slots = slots
        self.values = values  # the arguments, with holes for scalars
        self.scalars = scalars  # positions
        self.function = function  # None: the Python body, with the outside values of the moment
        self.calls = 0


class FailedInline(Exception):
    """The body of a known call raised: the call becomes a task, to which this belongs."""

    def __init__(self, error: BaseException, start: float, known: Instruction) -> None:
        self.error = error
        self.known = known  # what it was the last time
        self.start = start


class InlineCalls:
    """Runs known calls, and gets to know others."""

    def __init__(self, executor: Executor, coherence: Coherence, limit_threads: Callable[[], None]) -> None:
        self._executor = executor
        self._coherence = coherence
        self._limit_threads = limit_threads  # library calls in short kernels use one thread
        self._uses: dict[int, dict[KnownCall, dict[Any, Any]]] = {}  # by array: known calls, and where they are kept

    def run(self, kernel: Kernel, args: Sequence[Any]) -> bool:
        """Run a call if it is known; tell whether it was. Raise FailedInline with what its body raised."""
        params = kernel.array_params
        first = args[params[0][1]] if params and len(args) == len(kernel.passed) else None
        if type(first) is not Array or first._storage.known is None:
            return False
        key = kernel if first._box is first._storage.box else (kernel, first._box)
        known = first._storage.known.get(key)
        if type(known) is not KnownCall:
            return False
        values = known.values
        for position, state, box, cut, _, _, valid, writes in known.slots:
            array = args[position]
            if (
                type(array) is not Array
                or array._storage.state is not state
                or (array._box is not box and array._box != box)
                or array._cut != cut
                or state.valid.uniform != valid
                or (writes and array._storage.lent and looking_at(array))  # values are copied first
            ):
                return False
        if known.freed != self._coherence.freed and not self._still_there(known):
            return False
        if known.scalars:
            values = values[:]
            for position in known.scalars:
                value = args[position]
                if type(value) not in PLAIN:
                    return False
                values[position] = value
        if self._call(kernel, known, values) > LONG:
            self._forget(known, first._storage.known)
        return True

    def _still_there(self, known: KnownCall) -> bool:
        """Tell whether the memory of a known call's arrays is what it was: some memory has been freed since."""
        if any(slot.state.complete.get(slot.memory) is not slot.backing for slot in known.slots):
            return False
        known.freed = self._coherence.freed
        return True

    def _call(self, kernel: Kernel, known: KnownCall, values: list[Any]) -> float:
        """Run a body; return the seconds it took."""
        self._limit_threads()
        in_kernel.name = kernel.name
        start = time.perf_counter()
        try:
            returned = copy_context().run(known.function or kernel.body(), *values)
            if returned is not None:
                check_nothing_returned(kernel, returned)
        except BaseException as error:
            raise FailedInline(error, start, known.instruction) from error
        finally:
            in_kernel.name = ""
        stop = time.perf_counter()
        known.calls += 1
        if not known.calls % EVERY or stop - start > LONG:
            self._executor.records.append(
                _new(Ran, (known.instruction, known.instruction.step.device, 0, start, stop, 0.0, None))
            )
        return stop - start

    def note(self, kernel: Kernel, arrays: Sequence[Array], instruction: Instruction) -> None:
        """Get to know a call that was run in the caller; the second one in a row on the same arrays makes it known."""
        step = instruction.step
        assert isinstance(step, Launch)
        if not kernel.plain or not arrays or len(step.bindings) != len(kernel.array_params):
            return
        storage, box = arrays[0]._storage, arrays[0]._box
        if storage.known is None:
            storage.known = {}
        elif len(storage.known) > MOST:
            self._forget_all(storage.known)
        key = kernel if box is storage.box else (kernel, box)
        states = tuple([array._storage.state for array in arrays])
        before = storage.known.get(key)
        if before != states:
            if type(before) is KnownCall:
                self._forget(before, storage.known)
            storage.known[key] = states
            return
        slots, values = [], [None] * len(kernel.passed)
        for param, array, binding in zip(kernel.array_params, arrays, step.bindings, strict=True):
            slot = _slot(param.position, array, binding)
            if slot is None or step.chunk.pieces:
                return
            slots.append(slot)
            values[param.position] = value = resolve(binding)
            if step.chunk.alike and compact(value) is not value:
                return
        variant = step.body
        function = variant.function
        if variant.kind == "python":
            function = kernel.function if kernel.captures_nothing else None
        scalars = tuple([position for position, _ in kernel.scalar_params])
        ids = tuple([array._storage.id for array in arrays])
        known = KnownCall(instruction, tuple(slots), values, scalars, function, self._coherence.freed, key, ids)
        storage.known[key] = known
        for id in ids:
            self._uses.setdefault(id, {})[known] = storage.known

    def dropped(self, id: int) -> None:
        """Forget the calls on an array that is gone: they see its memory."""
        for known, kept in list(self._uses.get(id, {}).items()):
            self._forget(known, kept)

    def _forget_all(self, kept: dict[Any, Any]) -> None:
        for known in list(kept.values()):
            if type(known) is KnownCall:
                self._forget(known, kept)
        kept.clear()

    def _forget(self, known: KnownCall, kept: dict[Any, Any]) -> None:
        if kept.get(known.key) is known:
            del kept[known.key]
        for id in known.arrays:
            uses = self._uses.get(id)
            if uses is not None and uses.pop(known, None) is not None and not uses:
                del self._uses[id]


def finished(kernel: Kernel, owner: Any) -> Task:
    """Return the handle of a call that was run at once: a task that is over, and in no graph."""
    task = Task(0, kernel.name, kernel, owner)
    task.finished = True
    return task


def _slot(position: int, array: Array, binding: Binding) -> Slot | None:
    """Return how an array must be for its binding to hold, and for a write to change nothing; None if it is not so."""
    state, allocation = array._storage.state, binding.allocation
    if allocation is None or binding.pad is not None:
        return None
    memory, valid = allocation.memory, state.valid.uniform
    backing = state.complete.get(memory)
    if backing is None or backing.allocation is not allocation or valid is None or not valid & 1 << memory:
        return None
    if binding.writes and valid != 1 << memory:
        return None
    return Slot(position, state, array._box, array._cut, memory, backing, valid, binding.writes)
