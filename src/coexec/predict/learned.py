"""Everything learnt on this machine: one model per kernel variant and speed class of devices, kept in a store.

Before: predict/model.py, predict/store.py.  After: plan/candidate.py, assembly.py.  Owned by a runtime.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..machine.platform import Device, Platform
from ..program.cost import MIX
from ..program.fingerprint import fingerprint
from .family import Family
from .features import feature_names, flops_at
from .model import KernelModel
from .regression import settle, solver
from .roofline import DevicePeaks, Roofline
from .store import Store

if TYPE_CHECKING:
    from ..program.kernel import Kernel
    from ..program.variant import Variant

ELEMENTWISE = "elementwise bodies"
"""Under which name the store keeps what all of them have in common."""
CONDITIONS = {False: "alone", True: "together"}
"""What the store calls the two conditions of a measurement, where names are needed."""


def model_key(kernel: Kernel, code: str, variant: Variant, device: Device, how: str = "") -> str:
    """Return the text under which measurements are kept: they hold for this code on this device and software."""
    libraries = device.software or f"numpy {np.__version__}"
    parts = (kernel.name, code, f"{variant.name} {how}".rstrip(), device.speed, libraries)
    return " | ".join((*parts, _python()))


def _python() -> str:
    return f"python {platform.python_version()}"


class Learned:
    """All models, by kernel variant and device."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        keep: bool = True,
        simulated: bool = False,
        described: Platform | None = None,
    ) -> None:
        """Begin with what a store knows. What is learnt is written there if `keep`; never what a simulation learns."""
        self.keep = keep and not simulated
        self.simulated = simulated  # kernels take what peaks say
        self.store = store if store is not None else Store(None)
        self._memories = described.memories if described is not None else ()
        self._models: dict[str, KernelModel] = {}
        self._codes: dict[tuple[int, str], str] = {}  # fingerprints: a millisecond each
        self._in_store: set[tuple[str, str]] | None = None
        self._rates: Mapping[tuple[str, str], tuple[float, float]] | None = None  # measured peaks, by device

    def model(self, kernel: Kernel, variant: Variant, device: Device, how: str = "") -> KernelModel:
        """Return the model, with what the store knows; an empty one if nothing was measured yet."""
        code = self._code(kernel, variant)
        key = model_key(kernel, code, variant, device, how)
        known = self._models.get(key)
        if known is None:
            trusting = self.simulated and (kernel.name, code) not in self._measured_kernels()
            known = self._models[key] = KernelModel(self._roofline(device, kernel), flops_at(kernel), trusting=trusting)
            known.how = how
            known.load(self.store.load(key))
            if not self.simulated and kernel.cost.mix and not how:
                known.family = Family(self._shared(variant, device), kernel.cost.mix)
        return known

    def _shared(self, variant: Variant, device: Device) -> KernelModel:
        """Return the model that all elementwise bodies on a device teach."""
        libraries = device.software or f"numpy {np.__version__}"
        key = " | ".join((ELEMENTWISE, ",".join(MIX), variant.kind, device.speed, libraries, _python()))
        known = self._models.get(key)
        if known is None:
            known = self._models[key] = KernelModel()
            known.load(self.store.load(key))
        return known

    def in_store(self, kernel: Kernel, variant: Variant) -> bool:
        """Tell whether a variant of a kernel was measured in an earlier run, on any device."""
        return (kernel.name, self._code(kernel, variant)) in self._measured_kernels()

    def _code(self, kernel: Kernel, variant: Variant) -> str:
        code = self._codes.get((kernel.serial, variant.name))
        if code is None:
            features = ",".join(feature_names(kernel))  # the same body may be declared with other accesses
            code = self._codes[kernel.serial, variant.name] = f"{fingerprint(kernel, variant)} ({features})"
        return code

    def _measured_kernels(self) -> set[tuple[str, str]]:
        """Return name and code of the kernels that were measured on any device."""
        if self._in_store is None:
            split = [key.split(" | ") for key, _, _ in self.store.models()]
            self._in_store = {(parts[0], parts[1]) for parts in split if len(parts) > 1}
        return self._in_store

    def _roofline(self, device: Device, kernel: Kernel) -> DevicePeaks:
        """Return the device's peaks for a kernel: as it or its memory says, else as they were measured here."""
        if self._rates is None:
            self._rates = self.store.rates()
        measured = Roofline(*self._rates.get((device.speed, device.software), (None, None)))
        memory = self._memories[device.memory].bandwidth if device.memory < len(self._memories) else None
        return DevicePeaks(device, memory, measured, kernel.op or kernel.name)

    def take_time(self) -> None:
        """Fetch whatever makes predictions better, and wait for it: nobody is in a hurry."""
        solver()

    def models(self) -> dict[str, KernelModel]:
        """Return every model, by its key."""
        return self._models

    def start_delays(self) -> dict[str, float]:
        """Return how late devices begin, as far as that was measured."""
        return {device: seconds for (device, _), (seconds, _) in self.store.start_delays().items()}

    def save(
        self,
        links: Mapping[tuple[str, str], tuple[float, float]] | None = None,
        start_delays: Mapping[str, float] | None = None,
    ) -> None:
        """Write what was learnt since the last time, about kernels, links and devices. The end of a runtime."""
        if not self.keep:
            settle()
            return
        changed = {key: samples for key, model in self._models.items() if (samples := model.changed())}
        if changed:
            self.store.save(changed)
            waits = {
                (key, CONDITIONS[how]): (w, 1.0) for key in changed for how, w in self._models[key].waits().items()
            }
            self.store.save_waits(waits)
        if links:
            self.store.save_links(links)
        if start_delays:
            self.store.save_start_delays({(device, ""): (seconds, 1.0) for device, seconds in start_delays.items()})
        self.store.close()
        settle()
