"""What to do when a device cannot run its part: let the host redo it, turn the variant or the device off, say so.

Before: plan/candidate.py, lower/.  After: runtime.py.  Called under the program's lock.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ..backend.base import Ran
from ..errors import BackendError, CoexecWarning, DeviceLost, VariantRefused
from ..graph.instruction import HostTask, Instruction, Kernel, overlapping
from ..lower.lowering import Lowering
from ..machine.platform import HOST, Platform
from ..plan.candidate import Candidates, Share
from ..plan.place import Loads


class Redo:
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

    def instructions(self, ran: Ran) -> list[Instruction]:
        """Return what redoes a failed kernel on the host; nothing if its failure is the program's own, or final."""
        failed, error = ran.instruction, ran.error
        if not isinstance(failed, Kernel) or isinstance(failed, HostTask) or not isinstance(error, BackendError):
            return []
        kernel = failed.task.kernel
        refused, lost = isinstance(error, VariantRefused), isinstance(error, DeviceLost)
        if kernel is None or failed.device == "host" or (failed.body.kind == "python" and not lost):
            return []
        if lost and failed.device not in self._candidates.lost:
            self._candidates.lose(failed.device, str(error))
            self._say(f"device {failed.device} is not used any more: {error}")
        if error.begun and _updates(failed):
            return []  # its inputs may not be as they were
        if not (failed.together or (refused and not failed.body.source) or (lost and not _named(failed))):
            return []  # who names a device wants its own error
        if refused and not failed.body.off:
            failed.body.off = str(error)
            self._candidates.forget()
            self._say(f"kernel {kernel.name!r}: variant {failed.body.name!r} is off: {error}")
        elif not refused and failed.device not in self._candidates.lost:
            self._candidates.lose(failed.device, str(error))
            self._say(
                f"device {failed.device} failed in kernel {kernel.name!r} and is not used any more; its part is redone "
                f"on the host: {error}"
            )
        failed.model, failed.redone = None, True  # nothing is learnt from what was redone
        device = self._host_device(kernel.op or kernel.name)
        share = Share(kernel.variants[0], None, failed.work, None)
        self._loads.add(device, None)
        return self._lowering.stand_in(failed, device, share)

    def _host_device(self, op: str) -> str:
        """Return the CPU device that is free first and can do an operation, or the host itself."""
        cores = [d for d in self._platform.devices if d.kind == "cpu" and not d.wide and d.memory == HOST]
        able = [d.name for d in cores if d.does(op)]
        return min(able, key=lambda name: self._loads.seconds[name], default="host")

    def _say(self, text: str) -> None:
        self._note(text)
        try:
            warnings.warn(text, CoexecWarning, stacklevel=2)
        except CoexecWarning:  # the program wants warnings raised, but here is nobody to take one: see the trace
            return


def _named(failed: Kernel) -> bool:
    """Tell whether the program chose the device itself."""
    options = failed.task.options
    return options is not None and options.devices is not None


def _updates(failed: Kernel) -> bool:
    """Tell whether a kernel writes what it reads, through one parameter or through two."""
    if any(param.access.mode in ("update", "reduce") for param in failed.task.accesses):
        return True
    return any(b.writes and overlapping(b, other) for b in failed.bindings for other in failed.bindings)
