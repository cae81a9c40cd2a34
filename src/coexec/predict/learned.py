"""Everything learnt on this machine: one model per kernel variant and speed class of devices, kept in a store.

Before: predict/model.py, predict/store.py.  After: plan/candidate.py, runtime.py.  Owned by a runtime.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np

from ..machine.platform import Device
from .history import Model

if TYPE_CHECKING:
    from ..program.kernel import Kernel
    from ..program.variant import Variant


def model_key(kernel: Kernel, variant: Variant, device: Device) -> str:
    """Return the text under which measurements are kept: they hold for this code on this device and software."""
    libraries = device.software or f"numpy {np.__version__}"
    parts = (kernel.name, str(kernel.serial), variant.name, device.speed, libraries)
    return " | ".join((*parts, f"python {platform.python_version()}"))


class Learned:
    """All models, by kernel variant and device."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def model(self, kernel: Kernel, variant: Variant, device: Device) -> Model:
        """Return the model; an empty one if nothing was measured yet."""
        return self._models.setdefault(model_key(kernel, variant, device), Model())

    def models(self) -> dict[str, Model]:
        """Return every model, by its key."""
        return self._models
