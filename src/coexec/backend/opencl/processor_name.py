"""Give PoCL a processor that its compiler knows, where it met one that is newer than itself.

Before: nothing.  After: driver.py, probe.py, whose child process runs this file by its path: it imports the standard
library only.

The PoCL wheel contains LLVM 14, which calls every processor that it has never heard of "generic" (AMD from 2022 on).
Its own C compiler then refuses that word, so that no kernel builds.
PoCL has no option for the name of the processor, so the word is exchanged in the device's own record:
1. `stored_name` looks for the field of the record that points to the word "generic".
2. `name_processor` makes the field point to a processor with the same vector instructions instead.
A device whose processor has a name, and every other driver's device, is left alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from typing import Any

UNNAMED = b"generic\0"
RECORD = 1024
"""Bytes of a device's record that are searched: the field is at byte 640 in PoCL 3.0, the only wheel there is."""
WORD = 8
"""Bytes of a pointer on x86-64, the only processor that the wheel is for."""
LEVELS = (
    ("skylake-avx512", frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))),
    ("haswell", frozenset(("avx2", "bmi1", "bmi2", "fma", "f16c", "movbe"))),
)
"""Processors that LLVM 14 knows, most able first, and what a processor must have to run code for them."""
OLDEST = "x86-64"

_names: list[ctypes.Array[ctypes.c_char]] = []
"""Names that devices point to: the driver reads them until the process ends."""


def name_processor(device: Any, able: Iterable[str]) -> str | None:
    """Let kernels of a PoCL `device` be compiled for a processor with a name; return the name if it had none.

    `able` is what the processor can do, as Linux names it.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    if "portable computing language" not in device.platform.name.lower():
        return None
    field = stored_name(int(device.int_ptr))
    if field is None:
        return None
    name = nearest(frozenset(able))
    _names.append(ctypes.create_string_buffer(name.encode()))
    ctypes.c_void_p.from_address(field).value = ctypes.addressof(_names[-1])
    return name


def stored_name(record: int) -> int | None:
    """Return the address of the field of the record at `record` that points to the word "generic", if there is one.

    Fields may hold anything, so they are followed through the system, which refuses addresses that are not mapped.
    """
    with open("/proc/self/mem", "rb", buffering=0) as memory:  # noqa: PTH123  a Path adds nothing here
        for field in range(record, record + RECORD, WORD):
            target = int.from_bytes(_read(memory.fileno(), field), "little")
            if _read(memory.fileno(), target) == UNNAMED:
                return field
    return None


def _read(memory: int, address: int) -> bytes:
    try:
        return os.pread(memory, WORD, address)
    except (OSError, OverflowError):
        return b""


def nearest(able: frozenset[str]) -> str:
    """Return the most able processor that LLVM 14 knows whose instructions are all among `able`."""
    return next((name for name, needed in LEVELS if needed <= able), OLDEST)
