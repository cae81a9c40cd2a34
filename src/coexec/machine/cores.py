"""What this process may use of the machine: cores, memory, and the processor's name.

Before: nothing.  After: backend/, runtime.  Knows nothing of devices; reads the system, changes only thread affinity.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60
"""Version 1 control groups say "no limit" with a number of about this size."""
PR_SET_TIMERSLACK = 29


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


def cpu_flags(proc: Path = PROC) -> frozenset[str]:
    """Return what the first processor can do, as Linux names it ("avx2"); nothing where the system does not tell."""
    try:
        text = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


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


def cpu_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Return how many cores' worth of time control groups allow this process (1.5 = one and a half), or None."""
    quotas = [_quota_in(file) for file in _limit_files(proc, cgroups, "cpu", "cpu.max", "cpu.cfs_quota_us")]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_in(file: Path) -> float | None:
    """Read "150000 100000" (version 2), or quota and period from two files (version 1), as 1.5."""
    try:
        words = file.read_text(encoding="ascii").split()
        if len(words) == 1:
            words += (file.parent / "cpu.cfs_period_us").read_text(encoding="ascii").split()
        quota, period = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):  # "max" is no number: no limit
        return None
    return quota / period if quota > 0 and period > 0 else None


def _limit_files(
    proc: Path,
    cgroups: Path,
    controller: str = "memory",
    second: str = "memory.max",
    first: str = "memory.limit_in_bytes",
) -> Iterator[Path]:
    """Yield the file with the limit of our control group and of each group around it, in version 2 and 1 spelling."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/", f"0:{controller}:/"]:  # inside a container the group may be mounted as the root
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers == "":
            root, name = cgroups, second
        elif controller in controllers.split(","):
            root, name = cgroups / controller, first
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


def sharpen_timers() -> bool:
    """Let timed waits of the calling thread end on time, where Linux would round them up by 50 us.

    A thread that wants the interpreter lock waits for a switch interval at a time; rounded up, that costs more than
    the interval itself. Return False where the system has no such setting.
    """
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def pin_thread(*cores: int) -> bool:
    """Keep the calling thread on `cores`; return False where the system does not allow it."""
    return pin((0,), cores)


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


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def cache_bytes(caches: Path = CACHES) -> int:
    """Return the bytes of a core's own cache (the second level), or a usual size if the system does not say."""
    return _cache_size(caches / "index2") or 1 << 20


@cache
def last_cache_bytes(caches: Path = CACHES) -> int:
    """Return the bytes of the last cache before memory, or a large one's size if the system does not say."""
    levels = ("index4", "index3", "index2")
    return next((size for level in levels if (size := _cache_size(caches / level))), 32 << 20)


def _cache_size(index: Path) -> int:
    """Return the bytes of one cache; 0 if it is not there."""
    try:
        text = (index / "size").read_text(encoding="ascii").strip()
        return int(text.removesuffix("K").removesuffix("M")) << (20 if text.endswith("M") else 10)
    except (OSError, ValueError):
        return 0
