"""What this process may use of the machine: cores, memory, and the processor's name.

Before: nothing.  After: backend/, runtime.  Knows nothing of devices; reads the system, changes only thread affinity.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60
"""Version 1 control groups say "no limit" with a number of about this size."""


def available_cores() -> tuple[int, ...]:
    """Return the cores this process may run on, in ascending order.

    The affinity of the main thread counts, so that a pinned worker thread gets the same answer.
    """
    try:
        return tuple(sorted(os.sched_getaffinity(os.getpid())))
    except (AttributeError, OSError):  # not every system has affinities
        return tuple(range(os.cpu_count() or 1))


def cpu_model(proc: Path = PROC) -> str:
    """Return the processor's name as its vendor spells it."""
    try:
        for line in (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def memory_capacity(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return the bytes of memory this process may use: the machine's, or less in a container; None = unknown."""
    limits = [limit for limit in (_machine_memory(), memory_limit(proc, cgroups)) if limit is not None]
    return min(limits, default=None)


def memory_limit(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return the tightest limit in bytes that control groups of either version set, or None."""
    limits = (_limit_in(file) for file in _limit_files(proc, cgroups))
    return min((limit for limit in limits if limit is not None), default=None)


def _machine_memory() -> int | None:
    import psutil  # type: ignore[import-untyped]

    try:
        return int(psutil.virtual_memory().total)
    except (OSError, RuntimeError):
        return None


def _limit_files(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the file with the limit of our control group and of each group around it."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/", "0:memory:/"]:  # inside a container the group may be mounted as the root
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.strip("/")
        while True:
            yield group / name
            if group == root or root not in group.parents:
                break
            group = group.parent


def _limit_in(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None


def pin_thread(core: int) -> bool:
    """Keep the calling thread on `core`; return False where the system does not allow it."""
    return pin((0,), (core,))


def pin(threads: Iterable[int], cores: Iterable[int]) -> bool:
    """Keep each thread (by its system id; 0 = the caller) on `cores`; return False if one could not be kept there.

    A thread that has ended in the meantime counts as done.
    """
    where = frozenset(cores)
    try:
        for thread in threads:
            try:
                os.sched_setaffinity(thread, where)
            except ProcessLookupError:
                continue
    except (AttributeError, OSError):
        return False
    return True


def native_threads(proc: Path = PROC) -> frozenset[int]:
    """Return the system ids of all threads of this process, Python's or not; empty where they cannot be listed."""
    try:
        return frozenset(int(entry.name) for entry in (proc / "self" / "task").iterdir())
    except OSError:
        return frozenset()
