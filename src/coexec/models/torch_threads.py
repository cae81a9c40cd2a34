"""The threads with which torch computes: how many, and letting those go that a thread keeps for itself.

Before: nothing.  After: models/torch_steps.py, models/whole.py.  torch is imported when a model first runs on its device.

OpenMP keeps helpers for each thread that ever computed with several. If all of them are more than the cores, they sleep between
steps instead of waiting for the next one, and steps of 50 microseconds take twice as long. So the thread that computes no more
lets its helpers go.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

SOFT = 1
"""omp_pause_soft: threads go, and what was set stays."""


def torch_threads() -> int:
    """Return with how many threads torch computes for the calling thread."""
    import torch

    return int(torch.get_num_threads())


def compute_with(threads: int, body: Callable[..., None], given: Sequence[Any], results: Sequence[Any]) -> None:
    """Let torch compute with so many threads for the calling thread, which may have been left with another number."""
    import torch

    before = torch.get_num_threads()
    if before == threads:
        body(*given, *results)
        return
    torch.set_num_threads(threads)
    try:
        body(*given, *results)
    finally:
        torch.set_num_threads(before)


def release_threads() -> None:
    """Let the helpers go that OpenMP keeps for the calling thread. Its next parallel step has new ones."""
    _pause()(SOFT)


@cache
def _pause() -> Callable[[int], Any]:
    """Return OpenMP's own function for it; one that does nothing where torch came with another library than GNU's."""
    import torch

    for library in (Path(torch.__file__).parent / "lib").glob("libgomp*"):
        with suppress(OSError, AttributeError):
            found: Callable[[int], Any] = ctypes.CDLL(str(library)).omp_pause_resource_all
            return found
    return _nothing


def _nothing(kind: int) -> None:
    del kind
