"""What to do when a device cannot run its part: let the host redo it on copies of its inputs, turn the variant or the device off, say so.

Before: plan/candidate.py, lower/.  After: schedule/scheduler.py.  Pure, but for the warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import BackendError, CoexecWarning, DeviceLost, VariantRefused
from ..geometry import Box
from ..graph.instruction import Alloc, Allocation, Binding, Copy, Free, Instruction, Join, Launch, bound, overlapping
from ..graph.task import Task
from ..lower.emit import Emitter
from ..lower.lowering import Lowering
from ..machine.platform import HOST, USER, Platform
from ..plan.candidate import Candidates, Share
from ..plan.policies import Loads

if TYPE_CHECKING:
    from ..backend.base import Ran


class HostRetry:
    """Decides whether a failed kernel is redone, and where."""

    def __init__(
        self,
        platform: Platform,
        candidates: Candidates,
        lowering: Lowering,
        loads: Loads,
        note: Callable[[str], None],
    ) -> None:
        self._platform = platform
        self._candidates = candidates
        self._lowering = lowering
        self._loads = loads
        self._note = note

    @property
    def lost(self) -> Mapping[str, str]:
        """The devices that compute nothing any more, and why."""
        return self._candidates.lost

    def instructions(self, ran: Ran) -> list[Instruction]:
        """Return what redoes a failed kernel on the host; nothing if its failure is the program's own, or final."""
        failed, error = ran.instruction, ran.error
        step = failed.step
        if type(step) is not Launch or not isinstance(error, BackendError):
            return []
        kernel = failed.task.kernel
        refused, lost = isinstance(error, VariantRefused), isinstance(error, DeviceLost)
        if kernel is None or step.device == "host" or (step.body.kind == "python" and not lost):
            return []
        if lost and step.device not in self._candidates.lost:
            self._candidates.lose(step.device, str(error))
            self._say(f"device {step.device} is not used any more: {error}")
        if error.begun and _updates(failed.task, step):
            return []  # its inputs may not be as they were
        if not (step.together or (refused and not step.body.source) or (lost and not _named(failed.task))):
            return []  # who names a device wants its own error
        if refused and not step.body.off:
            step.body.off = str(error)
            self._candidates.forget()
            # Nobody declared a variant that was made of the body: who did not ask for its device either need not be told.
            say = self._note if step.body.made and not _named(failed.task) else self._say
            say(f"kernel {kernel.name!r}: variant {step.body.name!r} is off: {error}")
        elif not refused and step.device not in self._candidates.lost:
            self._candidates.lose(step.device, str(error))
            self._say(
                f"device {step.device} failed in kernel {kernel.name!r} and is not used any more; its part is redone "
                f"on the host: {error}"
            )
        failed.redone = True  # nothing is learnt from what was redone
        device = self._host_device(kernel.op or kernel.name)
        share = Share(kernel.variants[0], None, step.work, None)
        self._loads.add(device, None)
        return redo_on_host(self._lowering, failed, device, share)

    def _host_device(self, op: str) -> str:
        """Return the CPU device that is free first and can do an operation, or the host itself."""
        cores = [d for d in self._platform.devices if d.is_core and d.memory == HOST]
        able = [d.name for d in cores if d.does(op)]
        return min(able, key=lambda name: self._loads.seconds[name], default="host")

    def _say(self, text: str) -> None:
        self._note(text)
        try:
            warnings.warn(text, CoexecWarning, stacklevel=2)
        except CoexecWarning:  # the program wants warnings raised, but here is nobody to take one: see the trace
            return


def _named(task: Task) -> bool:
    """Tell whether the program chose the device itself."""
    options = task.options
    return options is not None and options.devices is not None


def _updates(task: Task, step: Launch) -> bool:
    """Tell whether a kernel writes what it reads, through one parameter or through two."""
    if any(param.access.mode in ("update", "reduce") for param in task.accesses):
        return True
    return any(b.writes and overlapping(b, other) for b in step.bindings for other in step.bindings)


def redo_on_host(lowering: Lowering, failed: Instruction, device: str, share: Share) -> list[Instruction]:
    """Return the instructions that compute on `device`, which works on host memory, what `failed` should have.

    `share` is what runs there. The kernel that failed is not over yet, so nothing that comes after it has begun: its inputs are
    as they were, and its outputs may still be written. Copies bring the one to the host and the other back, and a join at the
    end stands for all.
    """
    emitter = lowering.emitter
    task, step = failed.task, failed.step
    assert isinstance(step, Launch)
    bindings: list[Binding] = []
    ready: list[int] = []
    back: list[tuple[Allocation, Allocation, tuple[Box, ...]]] = []
    temporaries: dict[Allocation, tuple[Allocation, int]] = {}  # one for each: bodies may see one array twice
    for binding in step.bindings:
        source = binding.allocation
        if source is None or source.memory in (HOST, USER):
            bindings.append(binding)
            continue
        for place, _ in binding.places():
            if place not in temporaries:
                like = lowering.coherence.numbered(HOST, place.array, place.box, place.dtype)
                alloc = Instruction(emitter.id(), Alloc(like), task, (), (emitter.epoch,))
                emitter.emit(alloc)
                temporaries[place] = like, alloc.id
            temporary, made = temporaries[place]
            ready.append(_copy(emitter, failed, place, temporary, _boxes_in(binding, place), after=(made,)).id)
            if binding.writes:
                back.append((temporary, place, _boxes_in(binding, place)))
        bindings.append(bound(binding, lambda place: temporaries[place][0]))
    more = None if step.more is None else False  # what follows it follows the one that failed
    again = Launch(device, step.chunk._replace(device=device), share, tuple(bindings), step.priority, None, more)
    kernel = Instruction(emitter.id(), again, task, tuple(ready), () if ready else (emitter.epoch,))
    emitter.emit(kernel)
    last = [_copy(emitter, failed, *entry, needs=(kernel.id,)).id for entry in back] or [kernel.id]
    join = Instruction(emitter.id(), Join(), task, tuple(last))
    emitter.emit(join)
    for temporary, _ in temporaries.values():
        emitter.emit(Instruction(emitter.id(), Free(temporary), task, (), (join.id,)))
    return emitter.take()


def _boxes_in(binding: Binding, place: Allocation) -> tuple[Box, ...]:
    """Return what a parameter touches of an allocation."""
    return tuple([box for there, box in binding.touched() if there is place])


def _copy(
    emitter: Emitter,
    failed: Instruction,
    source: Allocation,
    target: Allocation,
    boxes: tuple[Box, ...],
    *,
    needs: tuple[int, ...] = (),
    after: tuple[int, ...] = (),
) -> Instruction:
    step = Copy(failed.step.device, source, target, boxes, "stand-in")
    copy = Instruction(emitter.id(), step, failed.task, needs, after)
    emitter.emit(copy)
    return copy
