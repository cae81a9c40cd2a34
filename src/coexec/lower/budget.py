"""What each memory has room for, counted while lowering: allocations are admitted in program order.

Before: machine/platform.py.  After: lower/evict.py, lower/coherence.py.  Knows bytes and instruction ids, never an array.

Whatever the order in which instructions run, what is live never exceeds the capacity. Proof: look at the last allocation
in program order that has been made. It waited for as many frees as let everything allocated up to it, less those frees,
fit; and whatever else was freed meanwhile only helps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..machine.platform import Memory


class Account:
    """The bytes of one memory with a capacity."""

    def __init__(self, memory: Memory, capacity: int) -> None:
        self.name = memory.name
        self.capacity = capacity
        self.largest = min(capacity, memory.largest or capacity)  # bytes of one allocation
        self.held = 0  # bytes allocated and not freed, as far as was lowered
        self.freed: deque[tuple[int, int]] = deque()  # frees (id, bytes) that no later allocation waits for yet
        self.pending = 0  # bytes of those
        self.gate: set[int] = set()  # what the last allocation that had to wait stands for: later ones wait too
        self.waits = 0  # allocations that had to wait
        self.evictions = 0

    def become(self, other: Account) -> None:
        """Count what another account of the same memory counts."""
        self.held, self.pending, self.waits, self.evictions = other.held, other.pending, other.waits, other.evictions
        self.freed, self.gate = deque(other.freed), set(other.gate)

    def lacks(self, nbytes: int) -> int:
        """Return the bytes that must be freed, by instructions yet to be emitted, before `nbytes` fit."""
        return max(0, self.held + nbytes - self.capacity)

    def crowded(self, nbytes: int) -> bool:
        """Tell whether `nbytes` would have to wait for something."""
        return self.held + self.pending + nbytes > self.capacity

    def allocate(self, id: int, nbytes: int) -> Iterable[int]:
        """Count the allocation that instruction `id` makes; return what else it must come after. It fits."""
        if not self.freed and not self.gate:
            self.held += nbytes
            return ()
        before = self._room(nbytes)
        self.held += nbytes
        if not before:
            return tuple(self.gate)
        found = self.gate | before
        self.gate = {id}
        return found

    def borrow(self, id: int, nbytes: int) -> Iterable[int]:
        """Count bytes that kernel `id` needs while it runs; return what else it must come after. They fit."""
        self.gate |= self._room(nbytes)  # not the kernel itself: later allocations need not wait for its end
        self.freed.append((id, nbytes))
        self.pending += nbytes
        return tuple(self.gate)

    def _room(self, nbytes: int) -> set[int]:
        """Take the oldest frees until `nbytes` fit."""
        before: set[int] = set()
        while self.freed and self.held + self.pending + nbytes > self.capacity:
            id, size = self.freed.popleft()
            self.pending -= size
            before.add(id)
        self.waits += bool(before)
        return before

    def free(self, id: int, nbytes: int) -> None:
        """Count what instruction `id` frees."""
        self.held -= nbytes
        self.pending += nbytes
        self.freed.append((id, nbytes))

    def passed(self, mark: int) -> None:
        """Forget frees that are over: a horizon or an epoch after them is."""
        while self.freed and self.freed[0][0] <= mark:
            self.pending -= self.freed.popleft()[1]
        if self.gate:
            self.gate = {id for id in self.gate if id > mark}


class Budget:
    """The accounts of all memories; None where nothing is limited, which costs nothing."""

    def __init__(self, memories: Iterable[Memory]) -> None:
        self.accounts = [
            Account(memory, memory.capacity) if memory.capacity is not None and memory.strict else None
            for memory in memories
        ]
        self.open = [account for account in self.accounts if account is not None]
        self._seen = 0

    @property
    def limited(self) -> bool:
        """Whether any memory has a limit."""
        return bool(self.open)

    @property
    def tight(self) -> bool:
        """Whether an allocation had to wait, or something was evicted, since `mark` was called."""
        return self._count() != self._seen

    def mark(self) -> None:
        """Begin to watch for pressure anew."""
        self._seen = self._count()

    def _count(self) -> int:
        return sum([account.waits + account.evictions for account in self.open])

    def passed(self, mark: int) -> None:
        """Forget what is over."""
        for account in self.open:
            account.passed(mark)
