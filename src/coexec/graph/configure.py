"""The step that gives a device another design. A backend takes it by itself, when a kernel needs a design that is not there.

Before: graph/instruction.py.  After: backend/simulated/, execute/executor.py, which only notes it.  No lowering emits it: which
design a device has when a kernel's turn comes is known then only.
"""

from __future__ import annotations

from typing import Any

from .instruction import Instruction, Step


class Configure(Step):
    """Load a design."""

    __slots__ = ("configured", "design", "device")
    kind = "configure"

    def __init__(self, device: str, design: str, configured: Any) -> None:
        self.device = device
        self.design = design
        self.configured = configured  # machine/parts.py's Device as it is then


def configuring(number: int, step: Configure, task: Any) -> Instruction:
    """Return the instruction that loads a design, for a task or for nobody; its id is below 0, as no engine knows it."""
    return Instruction(-1 - number, step, task)
