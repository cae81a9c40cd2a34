"""An application as data: its arrays, and what to call in each way to run it.

Before: programs.py.  After: one file per application, ways.py.  Knows no device and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Results = tuple[Any, ...]


@dataclass(frozen=True)
class App:
    """One application at one size. Each way gets arrays of its own with the first contents, and returns the results."""

    name: str
    size: str  # for the reader
    inputs: tuple[Array, ...]  # first contents of all arrays, work space and outputs too
    numpy: Callable[..., Results]  # (*arrays): plain NumPy, as most would write it
    coexec: Callable[..., Results]  # (*coexec arrays): the calls; need not wait
    hand: Callable[..., Results]  # (team, *arrays): the same kernels by pinned threads, computed by what the team has
    nbytes: float  # what one run must at least read and write, if nothing stays in a cache from one step to the next
    rewritten: tuple[int, ...] = ()  # the inputs that a run changes: restored before the next
    libraries: bool = False  # plain NumPy calls BLAS or LAPACK, which have threads of their own
    tolerance: float = 1e-9  # relative to the largest value of each result

    def wrong(self, found: Results, wanted: Results) -> list[int]:
        """Return the numbers of the results that differ from what is wanted."""
        pairs = enumerate(zip(found, wanted, strict=True))
        return [number for number, (one, two) in pairs if not _close(one, two, self.tolerance)]


def _close(found: Any, wanted: Any, tolerance: float) -> bool:
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "iu":  # labels: a tie may fall either way
        return bool(np.mean(found != wanted) <= tolerance)
    scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
    return bool(np.max(np.abs(found - wanted), initial=0.0) <= tolerance * scale)
