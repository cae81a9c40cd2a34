"""Everything learnt on this machine: one model per kernel variant and speed class of devices, kept in a store.

Before: predict/model.py, predict/store.py.  After: plan/candidate.py, runtime.py.  Owned by a runtime.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np

from ..machine.platform import Device
from ..program.fingerprint import fingerprint
from .features import flops_at
from .model import Model
from .roofline import Roofline
from .store import Store

if TYPE_CHECKING:
    from ..program.kernel import Kernel
    from ..program.variant import Variant


def model_key(kernel: Kernel, variant: Variant, device: Device) -> str:
    """Return the text under which measurements are kept: they hold for this code on this device and software."""
    libraries = device.software or f"numpy {np.__version__}"
    parts = (kernel.name, fingerprint(kernel, variant), variant.name, device.speed, libraries)
    return " | ".join((*parts, f"python {platform.python_version()}"))


class Learned:
    """All models, by kernel variant and device."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store if store is not None else Store(None)
        self._models: dict[str, Model] = {}

    def model(self, kernel: Kernel, variant: Variant, device: Device) -> Model:
        """Return the model, with what the store knows; an empty one if nothing was measured yet."""
        key = model_key(kernel, variant, device)
        known = self._models.get(key)
        if known is None:
            known = self._models[key] = Model(Roofline(device.flops, device.bandwidth), flops_at(kernel))
            known.load(self.store.load(key))
        return known

    def models(self) -> dict[str, Model]:
        """Return every model, by its key."""
        return self._models

    def save(self) -> None:
        """Write what was learnt since the last time."""
        changed = {key: samples for key, model in self._models.items() if (samples := model.changed())}
        if changed:
            self.store.save(changed)
