"""Values in a simulated run: computed on the host if that is asked for; else only those that the program gave.

Before: backend/launch.py.  After: backend.py.  Knows no time.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import NoValues
from ...graph.instruction import Allocation, Copy, Fence, Fill, IfComputed, Instruction, Launch, Reduce
from ...graph.message import Receive, Send
from ...machine.platform import USER
from ...program.session import in_kernel
from ...program.view import extract, view_shape
from ..launch import aligned_empty, resolve, run, run_kernel, set_data

if TYPE_CHECKING:
    from .devices import IssuedEntry


class Computed:
    """Every instruction does on the host what it should do on its device."""

    def allocate(self, allocation: Allocation) -> None:
        """Back an allocation."""
        set_data(allocation, aligned_empty(allocation.box.shape, allocation.dtype))

    def given(self, allocation: Allocation) -> None:
        """Back an allocation for contents that the program brings."""
        self.allocate(allocation)

    def run(self, instruction: Instruction) -> None:
        """Carry an instruction out."""
        step = instruction.step
        if not isinstance(step, Launch):
            run(None, step)
            return
        task = instruction.task
        context = task.context.copy() if task.context is not None else copy_context()
        in_kernel.name = task.name
        try:
            context.run(run_kernel, task, step, False)
        finally:
            in_kernel.name = ""

    def message(self, message: Any, entry: IssuedEntry) -> None:
        """Hand what is sent over to the other side, or take it from there."""
        if message.route.grid is not None:
            return
        here = extract(message.allocation.data, message.allocation.box.lo, message.box, None)
        if not isinstance(message, Send):
            here[...] = entry.payload
        elif entry.mate is not None:
            entry.mate.payload = here.copy()


class Unknown:
    """Nothing is computed: what the program gave is known until something writes over it."""

    def allocate(self, allocation: Allocation) -> None:
        """Do nothing: memory would be all that it costs."""

    def given(self, allocation: Allocation) -> None:
        """Back an allocation for contents that the program brings."""
        set_data(allocation, aligned_empty(allocation.box.shape, allocation.dtype))

    def run(self, instruction: Instruction) -> None:
        """Note what is known no more, and hand out what is."""
        step = instruction.step
        if isinstance(step, Launch):
            for binding in step.bindings:
                if binding.writes and binding.allocation is not None:
                    _forget(binding.allocation)
        elif isinstance(step, Copy):
            _forget(step.target)
        elif isinstance(step, Fill):
            _forget(step.allocation)
            if step.boxes == (step.allocation.box,):
                step.allocation.owner = step.value  # the same everywhere, so it needs no memory
        elif isinstance(step, Reduce):
            _forget(step.target.allocation)
        elif isinstance(step, Fence):
            _deliver(step)

    def message(self, message: Any, entry: IssuedEntry) -> None:
        """Note what is known no more."""
        del entry
        if isinstance(message, Receive) and message.route.grid is None:
            _forget(message.allocation)


def _forget(allocation: Allocation | None) -> None:
    if allocation is not None and allocation.memory != USER:
        allocation.data = allocation.frozen = allocation.owner = None


def _deliver(fence: Fence) -> None:
    """Hand out what is known; nothing to whoever takes nothing for an answer."""
    try:
        value = _value(fence)
    except NoValues:
        if isinstance(fence.deliver, IfComputed):
            return
        raise
    fence.deliver(value)


def _value(fence: Fence) -> Any:
    binding = fence.binding
    allocation = binding.allocation
    if allocation is None or allocation.frozen is not None:
        value = np.array(resolve(binding), copy=True, order="C")
    elif isinstance(allocation.owner, np.generic):
        value = np.full(view_shape(binding.box, binding.cut), allocation.owner, binding.dtype)
    else:
        raise NoValues(
            f"the program reads {allocation!r}, but a simulation computes no values; run it with execute=True "
            "(coexec simulate --execute, COEXEC_EXECUTE=1), which computes them on this machine"
        )
    value.flags.writeable = False
    return value
