"""A benchmark program as data: arrays, the calls in order, what the host rewrites before and reads after.

Before: coexec's public names.  After: one file per program, and the three ways to run them.  Knows no device and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...program.kernel import Kernel

Arrays = dict[str, np.ndarray[Any, Any]]
Bodies = Mapping[str, Any]


class KernelCall(NamedTuple):
    """A kernel call: arrays by name, numbers by value. Calls with one label are the same kernel on the same data."""

    label: str
    kernel: Kernel
    args: tuple[Any, ...]

    def reads(self) -> set[str]:
        """Return the arrays whose contents it needs."""
        return {self.args[p.position] for p in self.kernel.array_params if p.access.reads}

    def writes(self) -> set[str]:
        """Return the arrays it changes."""
        return {self.args[p.position] for p in self.kernel.array_params if p.access.writes}

    def bind(self, arrays: Mapping[str, Any]) -> list[Any]:
        """Return the arguments with arrays in place of their names."""
        return [arrays[a] if isinstance(a, str) else a for a in self.args]


class Reset(NamedTuple):
    """A host write of one value to all of an array, between calls. `like` is the label of the call that needs it."""

    label: str
    array: str
    value: float
    like: str

    def reads(self) -> set[str]:
        """Return the arrays whose contents it needs: none."""
        return set()

    def writes(self) -> set[str]:
        """Return the array it changes."""
        return {self.array}


Step = KernelCall | Reset


@dataclass(frozen=True)
class DagProgram:
    """One benchmark at one size."""

    name: str
    arrays: Arrays  # first contents, by name; also those that the program writes before it reads them
    rewritten: tuple[str, ...]  # what the host writes again before each iteration
    steps: tuple[Step, ...]
    reads: tuple[tuple[str, tuple[int, ...]], ...]  # the elements the host reads at the end
    results: tuple[str, ...]  # the arrays that are compared
    expected: Callable[[Arrays], Arrays]  # the results in plain NumPy, from the first contents
    tolerance: float = 1e-4  # relative to the largest value of each array

    def calls(self) -> list[KernelCall]:
        """Return the kernel calls alone."""
        return [step for step in self.steps if isinstance(step, KernelCall)]

    def labels(self) -> list[str]:
        """Return the labels of the calls, each once."""
        return list(dict.fromkeys(call.label for call in self.calls()))

    def wrong(self, found: Mapping[str, Any], wanted: Arrays) -> list[str]:
        """Name the results that differ from what is wanted."""
        return [name for name in self.results if not _close(found[name], wanted[name], self.tolerance)]


def _close(found: Any, wanted: Any, tolerance: float) -> bool:
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "iu":  # indices: a tie may fall either way
        return bool(np.mean(found != wanted) <= tolerance)
    scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
    return bool(np.max(np.abs(found - wanted), initial=0.0) <= tolerance * scale)


def dependencies(steps: tuple[Step, ...]) -> list[tuple[int, ...]]:
    """Return per step the earlier ones it must wait for: reads after writes, writes after reads and writes."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    found = []
    for number, step in enumerate(steps):
        parents = {writer[name] for name in step.reads() | step.writes() if name in writer}
        for name in step.writes():
            parents.update(readers.pop(name, ()))
            writer[name] = number
        for name in step.reads() - step.writes():
            readers.setdefault(name, []).append(number)
        found.append(tuple(sorted(parents - {number})))
    return found


def blocks(extent: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` that cover `extent`: work in them keeps a body's temporaries in the cache."""
    for lo in range(0, extent, size):
        yield slice(lo, min(lo + size, extent))
