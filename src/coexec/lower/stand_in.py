"""Redo a kernel on the host when its device could not run it: the same part, on copies of the same inputs.

Before: graph/instruction.py.  After: execute/executor.py, through runtime.py.  Pure: knows no thread and no device state.

The kernel that failed is not over yet, so nothing that comes after it has begun: its inputs are as they were, and its
outputs may still be written. Copies bring the one to the host and the other back, and a join at the end stands for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..graph.instruction import Alloc, Allocation, Binding, Copy, Free, Instruction, Join, Kernel
from ..machine.platform import HOST, USER
from .emit import Emitter


def stand_in(
    emitter: Emitter, failed: Kernel, device: str, share: Any, allocation: Callable[[Allocation], Allocation]
) -> list[Instruction]:
    """Return the instructions that compute on `device`, which works on host memory, what `failed` should have.

    `share` is what runs there; `allocation` makes a host allocation like a given one.
    """
    task, bindings, ready, back = failed.task, [], [], []
    temporaries: dict[Allocation, tuple[Allocation, int]] = {}  # one for each: bodies may see one array twice
    for binding in failed.bindings:
        source = binding.allocation
        if source is None or source.memory in (HOST, USER):
            bindings.append(binding)
            continue
        if source not in temporaries:
            alloc = Alloc(emitter.id(), "", task, allocation(source), (emitter.epoch,))
            emitter.emit(alloc)
            temporaries[source] = alloc.allocation, alloc.id
        temporary, made = temporaries[source]
        ready.append(_copy(emitter, failed, source, temporary, binding, after=(made,)).id)
        bindings.append(binding._replace(allocation=temporary))
        if binding.writes:
            back.append((temporary, source, binding))
    kernel = Kernel(
        emitter.id(), device, task, failed.chunk._replace(device=device), share, tuple(bindings), tuple(ready),
        () if ready else (emitter.epoch,), failed.priority
    )  # fmt: skip
    emitter.emit(kernel)
    last = [_copy(emitter, failed, *entry, needs=(kernel.id,)).id for entry in back] or [kernel.id]
    join = Join(emitter.id(), "", task, tuple(last), ())
    emitter.emit(join)
    for temporary, _ in temporaries.values():
        emitter.emit(Free(emitter.id(), "", task, temporary, (join.id,)))
    return emitter.take()


def _copy(
    emitter: Emitter,
    failed: Kernel,
    source: Allocation,
    target: Allocation,
    binding: Binding,
    *,
    needs: tuple[int, ...] = (),
    after: tuple[int, ...] = (),
) -> Copy:
    boxes = binding.boxes or (binding.box,)
    copy = Copy(emitter.id(), failed.device, failed.task, source, target, boxes, "stand-in", needs, after)
    emitter.emit(copy)
    return copy
