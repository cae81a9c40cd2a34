"""What torch devices there are, and everything in which they differ: streams, events, pinned memory, names, sizes.

Before: base.py, machine/cores.py.  After: the other files here.  Imports torch when asked about a device, not before.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError, unknown_name
from ...machine.cores import cpu_model, memory_capacity
from ..base import Unavailable, describe_failure

REMEDY = "pip install 'coexec[torch]'"
NUMBERED = ("cuda", "xpu")
"""Device types of which there may be several, each with streams, events and pinned host memory."""
TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
"""What torch computes with under NumPy's names; its other unsigned types can hardly do arithmetic."""
NOT_ON = {"mps": ("float64", "complex128")}


def installed() -> str:
    """Return torch's version without importing it, or nothing."""
    try:
        version("array-api-compat")
        return version("torch")
    except PackageNotFoundError:
        return ""


def require() -> Any:
    """Return the torch module; raise ConfigError with the remedy where it is missing or broken."""
    if not installed():
        raise ConfigError(f"torch devices need PyTorch and array-api-compat; {REMEDY}")
    try:
        import torch
    except Exception as error:
        raise ConfigError(f"PyTorch cannot be imported: {describe_failure(error)}; {REMEDY} again") from error
    return torch


def found() -> list[str]:
    """Return the names of torch's devices without their kind, the best first: cuda0, cuda1, xpu0, mps, cpu."""
    if installed().endswith("+cpu"):
        return ["cpu"]  # a build for the CPU alone, known without the seconds that importing it takes
    torch = require()
    names = [f"{type}{i}" for type in NUMBERED for i in range(_count(getattr(torch, type, None)))]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


class Listed(NamedTuple):
    """A torch device as a list shows it."""

    name: str  # torch:cpu
    description: str
    capacity: int | None
    cpu: bool


def listing() -> tuple[list[Listed], list[Unavailable]]:
    """Return the devices there are, and why there is none."""
    if not installed():
        return [], [Unavailable("torch", "PyTorch or array-api-compat is not installed", REMEDY)]
    try:
        return [_listed(name) for name in found()], []
    except ConfigError as error:
        return [], [Unavailable("torch", str(error).partition(";")[0], REMEDY + " again")]


def _listed(name: str) -> Listed:
    if name == "cpu":  # known without importing torch
        return Listed("torch:cpu", f"{cpu_model()} (torch {installed()})", memory_capacity(), cpu=True)
    traits = TorchDriver(name).traits
    return Listed(f"torch:{name}", f"{traits.name} ({traits.software})", traits.capacity, cpu=False)


def _count(module: Any) -> int:
    return int(module.device_count()) if module is not None and module.is_available() else 0


def name_of(which: str) -> str:
    """Return the full name of a device: torch:cuda0 for "cuda", "cuda0" and, where it is the best, ""."""
    names = found()
    if not which:
        return names[0]
    name = f"{which}0" if which in NUMBERED else which
    if name not in names:
        raise unknown_name("device", f"torch:{which}", [f"torch:{n}" for n in names])
    return name


class TorchTraits(NamedTuple):
    """What a torch device is."""

    name: str  # as torch or the processor spells it
    capacity: int | None
    software: str


class TorchDriver:
    """One torch device by its name (cpu, cuda0, xpu1, mps). Calls on a device without streams do nothing."""

    def __init__(self, name: str = "cpu") -> None:
        torch = require()
        self.type = name.rstrip("0123456789")
        index = int(name[len(self.type) :] or 0)
        self.device: Any = torch.device(self.type, index) if self.type in NUMBERED else torch.device(self.type)
        self.streams = self.type in NUMBERED
        self.pins = self.type in NUMBERED
        self.asynchronous = self.type != "cpu"
        self._module: Any = getattr(torch, self.type)
        self.traits = TorchTraits(self._name(), self._capacity(), f"torch {torch.__version__}")

    def _name(self) -> str:
        if self.streams:
            return str(self._module.get_device_name(self.device))
        return cpu_model() if self.type == "cpu" else "Apple GPU"

    def _capacity(self) -> int | None:
        if self.streams:
            return int(self._module.get_device_properties(self.device).total_memory)
        return memory_capacity() if self.type == "cpu" else int(self._module.recommended_max_memory())

    def supports(self, dtype: Any) -> bool:
        """Tell whether the device computes with elements of `dtype`."""
        dtype = np.dtype(dtype)
        return dtype.isnative and dtype.name in TYPES and dtype.name not in NOT_ON.get(self.type, ())

    def open_stream(self) -> Any:
        """Return a stream of the device, or None where it has but one."""
        return self._module.Stream(self.device) if self.streams else None

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context in which torch calls go to `stream`."""
        return nullcontext() if stream is None else self._module.stream(stream)

    def order(self, stream: Any, event: Any) -> None:
        """Let what `stream` does next come after `event`."""
        if stream is not None:
            stream.wait_event(event)

    def record(self, stream: Any) -> Any:
        """Return an event after all that `stream` was given; None where calls return when their work is done."""
        if not self.asynchronous:
            return None
        event = self._module.Event() if self.streams else self._module.event.Event()
        event.record(*([stream] if self.streams else []))
        return event

    def finish(self, event: Any) -> None:
        """Wait until an event is over; raise what went wrong before it."""
        event.synchronize()
