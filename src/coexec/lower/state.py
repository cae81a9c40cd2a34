"""What the lowering remembers about one array: where it is backed, where it is valid, who touched it last.

Before: graph/.  After: lower/coherence.py.  Knows allocations by name only, never their data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..geometry import Box, RegionMap, covers
from ..graph.instruction import Allocation, Binding
from ..graph.tracker import Tracker
from ..machine.platform import HOST, USER

FILL = 1 << 62
"""The bit of a memory that nobody has: there every array holds its initial value."""


class Backing:
    """An allocation and who touched it."""

    __slots__ = ("allocation", "bindings", "box", "tracker")

    def __init__(self, allocation: Allocation, origin: int) -> None:
        self.allocation = allocation
        self.box = allocation.box
        self.tracker = Tracker(allocation.box, origin)
        self.bindings: dict[tuple[str, bool], Binding] = {}  # of parameters that see all of it, made once


class ArrayState:
    """Backings per memory, and for each element the set of memories (as bits) that hold its present value."""

    __slots__ = ("backings", "box", "complete", "dtype", "id", "initial", "valid")

    def __init__(self, id: int, box: Box, dtype: np.dtype[Any], initial: Any) -> None:
        self.id = id
        self.box = box
        self.dtype = dtype
        self.initial = initial
        self.backings: dict[int, list[Backing]] = {}
        self.complete: dict[int, Backing] = {}  # per memory: the backing of the whole array, if there is one
        self.valid: RegionMap[int] = RegionMap(box, 0 if initial is None else FILL)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.box.volume * self.dtype.itemsize

    def find(self, memory: int, box: Box) -> Backing | None:
        """Return the backing in `memory` that holds all of `box`."""
        whole = self.complete.get(memory)
        if whole is not None:
            return whole
        for backing in self.backings.get(memory, ()):
            if covers(backing.box, box):
                return backing
        return None

    def add(self, backing: Backing) -> None:
        """Note a new backing."""
        memory = backing.allocation.memory
        self.backings.setdefault(memory, []).append(backing)
        if backing.box == self.box:
            self.complete[memory] = backing

    def remove(self, backing: Backing) -> None:
        """Forget a backing."""
        memory = backing.allocation.memory
        self.backings[memory].remove(backing)
        if self.complete.get(memory) is backing:
            del self.complete[memory]

    def holds(self, memory: int, box: Box) -> bool:
        """Tell whether all of `box` is valid in `memory`."""
        bit = 1 << memory
        mask = self.valid.uniform
        if mask is not None:
            return bool(mask & bit)
        return all(mask & bit for _, mask in self.valid.get(box))

    def held_by(self, box: Box) -> int:
        """Return the memories (as bits) that hold all of `box`. An initial value is made where it is needed."""
        mask = self.valid.uniform
        if mask is None:
            mask = -1
            for _, bits in self.valid.get(box):
                mask &= bits
        return mask & ~FILL

    def missing(self, memory: int, box: Box) -> list[Box]:
        """Return the parts of `box` that would have to be copied to `memory`. The host reads the user's in place."""
        bit = 1 << memory | (1 << USER if memory == HOST else 0)
        if (mask := self.valid.uniform) is not None:
            return [] if not mask & ~FILL or mask & bit else [box]
        return [part for part, bits in self.valid.get(box) if bits & ~FILL and not bits & bit]

    def wrote(self, memory: int, box: Box) -> None:
        """Note that `box` is now valid in `memory` alone."""
        bit = 1 << memory
        if self.valid.uniform != bit:
            self.valid.set(box, bit)

    def copied(self, memory: int, box: Box) -> None:
        """Note that `box` is now valid in `memory` too."""
        bit = 1 << memory
        for part, mask in self.valid.get(box):
            if not mask & bit:
                self.valid.set(part, mask | bit)

    def all_backings(self) -> list[Backing]:
        """Return every backing in every memory."""
        return [backing for backings in self.backings.values() for backing in backings]
