"""What was measured on real devices, for devices that are not here: as it is, or scaled by the ratio of their peak rates.

Before: predict/.  After: durations.py.  Reads the store and never writes it: simulated times are no measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...graph.instruction import Launch
from ...machine.platform import Device
from ...predict.features import feature_names, flops_at
from ...predict.learned import CONDITIONS
from ...predict.model import KernelModel
from ...predict.store import Store
from ...predict.work import Estimate, Work
from ...program.fingerprint import fingerprint
from ...program.kernel import Kernel

Peaks = tuple[float | None, float | None]
Ratio = Callable[[Peaks], float | None]
"""How many times as long as on a device with those peaks the work takes, or None."""


class StoredModel(NamedTuple):
    """A model in the store."""

    key: str
    speed: str
    software: str
    shapes: int


class Found(NamedTuple):
    """What was measured of a kernel."""

    seconds: float  # that it computes
    source: str  # measured, or scaled from ...
    waits: float = 0.0  # seconds without the interpreter lock, per second that it computes
    spread: float = 0.0  # relative: half of the measurements lay within it; 0 if none was of exactly such work


class StoredModels:
    """The models of a store, by kernel, whatever device they are of."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index: dict[tuple[str, str, str], list[StoredModel]] | None = None  # by kernel, code and variant
        self._rates: dict[tuple[str, str], tuple[float, float]] = {}
        self._waits: dict[tuple[str, str], tuple[float, float]] = {}
        self._models: dict[str, KernelModel] = {}
        self._of: dict[tuple[int, str], list[StoredModel]] = {}

    def find(self, kernel: Kernel, step: Launch, work: Work, device: Device, ratio: Ratio) -> Found | None:
        """Return the seconds of a kernel on a device and how they are known; None if nothing comparable was measured."""
        for known in self._known(kernel, step):
            if known.speed == device.speed and (not device.software or known.software == device.software):
                found = self._estimate(known, kernel, step, work)
                if found is not None:
                    waits, _ = self._waits.get((known.key, CONDITIONS[step.together]), (0.0, 1.0))
                    return Found(found.seconds, "measured", waits, found.spread if found.source == "history" else 0.0)
        for known in self._known(kernel, step):
            peaks = self._rates.get((known.speed, known.software))
            factor = ratio(peaks) if peaks is not None else None
            found = self._estimate(known, kernel, step, work) if factor is not None else None
            if found is not None and factor is not None:
                return Found(found.seconds * factor, f"scaled from {known.speed}")
        return None

    def _known(self, kernel: Kernel, step: Launch) -> list[StoredModel]:
        """Return the models of a kernel's variant, those with the most measurements first."""
        how = step.model.how if step.model is not None else ""
        asked = (kernel.serial, f"{step.body.name} {how}".rstrip())
        if asked not in self._of:
            if self._index is None:
                self._index = self._read()
            code = f"{fingerprint(kernel, step.body)} ({','.join(feature_names(kernel))})"
            self._of[asked] = self._index.get((kernel.name, code, asked[1]), [])
        return self._of[asked]

    def _read(self) -> dict[tuple[str, str, str], list[StoredModel]]:
        self._rates, self._waits = dict(self._store.rates()), dict(self._store.waits())
        index: dict[tuple[str, str, str], list[StoredModel]] = {}
        for key, shapes, _ in self._store.models():
            parts = key.split(" | ")
            if len(parts) == 6:
                name, code, variant, speed, libraries, _ = parts
                software = "" if libraries.startswith("numpy ") else libraries
                index.setdefault((name, code, variant), []).append(StoredModel(key, speed, software, shapes))
        for models in index.values():
            models.sort(key=lambda known: (-known.shapes, known.key))
        return index

    def _estimate(self, known: StoredModel, kernel: Kernel, step: Launch, work: Work) -> Estimate | None:
        model = self._models.get(known.key)
        if model is None:
            model = self._models[known.key] = KernelModel(None, flops_at(kernel))
            model.load(self._store.load(known.key))
        return model.estimate(work, together=step.together)
