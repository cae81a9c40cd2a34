"""A program of the benchmark: turns on arrays whose first contents are in the host's memory.

Before: coexec's public names.  After: exact.py, changing.py, harness.py.  Knows neither devices nor time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ...driver import Driver
from ...errors import NoValues
from ...program.array import Array
from ...program.storage import Storage

Turn = Callable[[int], Any]
"""Does one turn of a program, which is given its number; waits for nothing that the program does not read."""


class ArrayMaker:
    """Makes arrays for a runtime. Their contents are in the host's memory, and nobody looks at them: they need no memory."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self, *shape: int, dtype: Any = np.float32) -> Array:
        storage = Storage(self._driver.owner, shape, np.dtype(dtype))
        self._driver.adopt_shared(storage, np.broadcast_to(storage.dtype.type(0), shape))
        return Array(storage, storage.box, None)

    def like(self, given: np.ndarray[Any, Any]) -> Array:
        """Return an array of the shape and type of another."""
        return self(*given.shape, dtype=given.dtype)


class SizedProgram(NamedTuple):
    """A program at one size."""

    name: str
    size: str  # for the reader
    make: Callable[[ArrayMaker], Turn]
    exact: bool = True  # its turns are alike


def read(array: Any) -> None:
    """Wait for a value as a program does that needs it; a simulation has none."""
    with suppress(NoValues):
        np.asarray(array)


def from_numpy(given: ArrayMaker, arrays: Any) -> list[Any]:
    """Return arrays of the shapes and types of these."""
    return [given.like(array) for array in arrays]
