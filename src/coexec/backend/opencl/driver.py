"""The OpenCL drivers of this process: their devices, their worker threads, and what each device can do.

Before: machine/cores.py.  After: backend.py.  Knows nothing of instructions.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from ...errors import BackendError, CoexecWarning, ConfigError
from ...machine.cores import available_cores, cpu_flags, native_threads, pin
from . import caches
from .processor_name import name_processor
from .source import C_TYPES

_lock = threading.Lock()
SYSTEM_SVM = 4
"""OpenCL's bit for fine-grained sharing of all memory with the host."""


class Drivers(NamedTuple):
    """What was found when the drivers were first asked."""

    devices: tuple[Any, ...]  # pyopencl devices, in the order of the platforms
    workers: frozenset[int]  # system ids of the threads that appeared meanwhile


class OpenCLTraits(NamedTuple):
    """What the backend must know of a device."""

    name: str
    cpu: bool
    coherent: bool  # kernels and host see each other's writes to host memory without a copy
    fp64: bool
    fp16: bool
    largest_group: int
    largest_buffer: int  # bytes
    capacity: int  # bytes
    alignment: int  # of host memory that is used in place, in bytes
    software: str  # what compiles and runs kernels: measurements hold for these versions

    def supports(self, dtype: Any) -> bool:
        """Tell whether kernels can compute with `dtype`."""
        import numpy as np

        dtype = np.dtype(dtype)
        if not dtype.isnative or dtype.names is not None or dtype.name not in C_TYPES:
            return False
        return {"float64": self.fp64, "float16": self.fp16}.get(dtype.name, True)


def drivers() -> Drivers:
    """Load the drivers, once per process."""
    with _lock:
        return _load()


@cache
def _load() -> Drivers:
    caches.prepare()
    import pyopencl as cl

    # The driver's compiler is chatty; errors are raised anyway, and PYOPENCL_COMPILER_OUTPUT=1 still shows it all.
    warnings.filterwarnings("ignore", message="Non-empty compiler output", category=cl.CompilerWarning)
    before = native_threads()
    devices = tuple(device for platform in cl.get_platforms() for device in platform.get_devices())
    for device in devices:
        name_processor(device, cpu_flags())
    python = {thread.native_id for thread in threading.enumerate()}
    return Drivers(devices, native_threads() - before - python)


def device_at(index: int) -> Any:
    """Return the device `opencl:index`."""
    devices = drivers().devices
    if not 0 <= index < len(devices):
        raise BackendError(f"there is no OpenCL device {index}; {len(devices)} were found, see 'coexec devices'")
    return devices[index]


def traits(device: Any) -> OpenCLTraits:
    """Return what `device` can do."""
    import pyopencl as cl

    extensions = device.extensions.split()
    cpu = bool(device.type & cl.device_type.CPU)
    return OpenCLTraits(
        name=" ".join(device.name.split()),
        cpu=cpu,
        coherent=(cpu and "portable computing language" in device.platform.name.lower()) or _shares_all(device),
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        largest_group=int(device.max_work_group_size),
        largest_buffer=int(device.max_mem_alloc_size),
        capacity=int(device.global_mem_size),
        alignment=max(1, int(device.mem_base_addr_align) // 8),
        software=f"pyopencl {cl.VERSION_TEXT}, driver {' '.join(device.driver_version.split())}",
    )


def _shares_all(device: Any) -> bool:
    import pyopencl as cl

    try:
        return bool(device.svm_capabilities & SYSTEM_SVM)
    except (cl.Error, AttributeError):  # older than OpenCL 2.0
        return False


def require_coherent(name: str, device: OpenCLTraits) -> None:
    """Raise unless the host's memory can be used in place."""
    if not device.coherent:
        raise ConfigError(
            f"{name} ({device.name}) does not see the host's memory coherently, so it cannot share it; "
            "leave its memory at 'own' and coexec copies what it needs"
        )


def pin_workers(name: str, device: OpenCLTraits, cores: Iterable[int]) -> None:
    """Keep a CPU driver's worker threads on `cores`."""
    wanted = tuple(cores)
    workers = drivers().workers
    if device.cpu and not (workers and pin(workers, wanted)) and wanted != available_cores():
        warnings.warn(
            f"the threads of {name} ({device.name}) could not be kept on cores {list(wanted)}: "
            "the driver was loaded before coexec, or the system does not allow it",
            CoexecWarning,
            stacklevel=3,
        )
