"""Make room in a memory that is full: free what is dead, then what is valid elsewhere too, then write back and free.

Before: lower/budget.py, lower/state.py.  After: lower/coherence.py, lower/lowering.py.  Knows no kernel; decides while
lowering, in program order, so nothing is ever taken from a kernel that was lowered, and no two kernels can fight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NoReturn

from ..errors import DoesNotFit
from ..geometry import Box, overlaps
from ..graph.task import Task
from ..machine.platform import HOST
from .budget import Budget
from .state import ArrayState, Backing

if TYPE_CHECKING:
    from .coherence import Coherence

LOOK_AT = 32  # least recently used backings among which the cheapest to evict is taken
DEAD, CLEAN, DIRTY = range(3)

Claim = tuple[ArrayState, int, Box]
"""An array's box that must be backed in a memory while a round is lowered."""


class Residents:
    """The backings of one memory, least recently used first."""

    def __init__(self) -> None:
        self.states: dict[Backing, ArrayState] = {}
        self._order: list[tuple[int, int, Backing]] | None = None  # a heap by last use; made under the first pressure
        self._numbers = 0

    def add(self, state: ArrayState, backing: Backing) -> None:
        """Note a new backing."""
        self.states[backing] = state
        if self._order is not None:
            self._push(self._order, backing)
            if len(self._order) > 2 * len(self.states) + LOOK_AT:
                self._order = None  # most of them are gone

    def _push(self, order: list[tuple[int, int, Backing]], backing: Backing) -> None:
        self._numbers += 1
        heappush(order, (last_use(backing), self._numbers, backing))

    def become(self, other: Residents, twins: Mapping[Backing, Backing], states: Mapping[Backing, ArrayState]) -> None:
        """Hold the twins of what `other` holds, in the same order; `states` has the array of each twin."""
        mine = [twins[backing] for backing in other.states if backing in twins]
        self.states = {backing: states[backing] for backing in mine}
        if other._order is not None:
            order = [(used, number, twins[old]) for used, number, old in other._order if old in twins]
            self._order, self._numbers = sorted(order, key=lambda entry: entry[:2]), other._numbers

    def oldest(self, count: int, wanted: Callable[[Backing], bool]) -> list[Backing]:
        """Return up to `count` wanted backings, least recently used first."""
        order = self._order
        if order is None:
            order = self._order = []
            for backing in self.states:
                self._push(order, backing)
        found: list[Backing] = []
        looked_at = []
        while order and len(found) < count:
            entry = heappop(order)
            used, _, backing = entry
            if backing not in self.states:
                continue
            if last_use(backing) > used:
                self._push(order, backing)  # used since: it comes later
                continue
            looked_at.append(entry)
            if wanted(backing):
                found.append(backing)
        for entry in looked_at:
            heappush(order, entry)
        return found


def last_use(backing: Backing) -> int:
    """Return the last instruction that touches a backing; a horizon stands for older ones."""
    return max(backing.tracker.ids())


class Evictor:
    """Chooses what goes, and emits what lets it go."""

    def __init__(self, coherence: Coherence, budget: Budget) -> None:
        self._coherence = coherence
        self._budget = budget
        self.residents = [Residents() if account is not None else None for account in budget.accounts]
        self._pins: dict[tuple[ArrayState, int], list[Box]] = {}

    def become(self, other: Evictor, twins: Mapping[Backing, Backing], states: Mapping[Backing, ArrayState]) -> None:
        """Know the twins of what `other` knows, and choose among them as it would."""
        for mine, theirs in zip(self.residents, other.residents, strict=True):
            if mine is not None and theirs is not None:
                mine.become(theirs, twins, states)

    # What stays -------------------------------------------------------------------------------------------------------

    @contextmanager
    def pinned(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Let nothing go that overlaps these claims."""
        for state, memory, box in claims:
            self._pins.setdefault((state, memory), []).append(box)
        try:
            yield
        finally:
            for state, memory, _ in reversed(claims):
                boxes = self._pins[state, memory]
                boxes.pop()
                if not boxes:
                    del self._pins[state, memory]

    def _is_pinned(self, state: ArrayState, backing: Backing) -> bool:
        boxes = self._pins.get((state, backing.allocation.memory))
        return boxes is not None and any(overlaps(box, backing.box) for box in boxes)

    def kind(self, state: ArrayState, backing: Backing) -> int:
        """Tell whether a backing holds nothing, only what others hold too (or a fill makes), or more."""
        bit, kind = 1 << backing.allocation.memory, DEAD
        for _, mask in state.valid.get(backing.box):
            if mask == bit:
                return DIRTY
            if mask & bit:
                kind = CLEAN
        return kind

    def stuck(self, memory: int, claims: Iterable[Claim]) -> int:
        """Return the bytes in `memory` that no eviction can free, without the claimed boxes: dirty ones of the host."""
        residents, total = self.residents[memory], 0
        if residents is None or memory != HOST:
            return 0
        claimed = [(state, box) for state, where, box in claims if where == memory]
        for backing, state in residents.states.items():
            if self.kind(state, backing) == DIRTY and not any(
                s is state and overlaps(b, backing.box) for s, b in claimed
            ):
                total += backing.allocation.nbytes
        return total

    # What goes --------------------------------------------------------------------------------------------------------

    def make_room(self, memory: int, nbytes: int, task: Task | None, *, dirty: bool = True) -> bool:
        """Evict until `nbytes` fit; False if they cannot. Without `dirty`, only what costs no copy."""
        account = self._budget.accounts[memory]
        if account is None:
            return True
        if nbytes > account.largest:
            return False
        while account.lacks(nbytes):
            victim = self._victim(memory, DIRTY if dirty and memory != HOST else CLEAN)
            if victim is None:
                return False
            self.evict(*victim, task)
        return True

    def need_room(self, memory: int, nbytes: int, what: str, task: Task | None) -> None:
        """Evict until `nbytes` fit, or raise DoesNotFit."""
        if not self.make_room(memory, nbytes, task):
            self.refuse(memory, nbytes, what, task)

    def refuse(self, memory: int, nbytes: int, what: str, task: Task | None) -> NoReturn:
        """Raise DoesNotFit about `nbytes` of something in a limited memory."""
        account = self._budget.accounts[memory]
        assert account is not None
        has = account.largest if nbytes > account.largest else max(0, account.capacity - account.held)
        where = f"task {task.name!r}: {what}" if task is not None else what
        raise DoesNotFit(where, account.name, nbytes, has, "drop arrays that are not needed any more")

    def _victim(self, memory: int, worst: int) -> tuple[ArrayState, Backing] | None:
        """Return the cheapest to evict among the least recently used."""
        residents = self.residents[memory]
        assert residents is not None
        states = residents.states
        kinds: dict[Backing, int] = {}

        def may_go(backing: Backing) -> bool:
            kinds[backing] = self.kind(states[backing], backing)
            return kinds[backing] <= worst and not self._is_pinned(states[backing], backing)

        oldest = residents.oldest(LOOK_AT, may_go)
        if not oldest:
            return None
        victim = min(oldest, key=lambda backing: kinds[backing])  # the first of its kind
        return states[victim], victim

    def evict(self, state: ArrayState, backing: Backing, task: Task | None) -> None:
        """Free a backing; what only it holds is written back to the host first."""
        memory = backing.allocation.memory
        bit = 1 << memory
        account = self._budget.accounts[memory]
        if account is not None:
            account.evictions += 1
        dirty = [part for part, mask in state.valid.get(backing.box) if mask == bit]
        if dirty:
            self._coherence.write_back(state, dirty, bit, task)
        for part, mask in state.valid.get(backing.box):
            if mask & bit:
                state.valid.set(part, mask & ~bit)
        self._coherence.free(state, backing, task)

    def tighten(self, claims: Iterable[Claim], task: Task | None) -> None:
        """Evict what overlaps a claim and is not exactly it: then the claims need their own bytes and no more."""
        claims = list(claims)
        for state, memory, _ in claims:
            if self.residents[memory] is None:
                continue
            exact = {box for s, m, box in claims if s is state and m == memory}
            for backing in list(state.backings.get(memory, ())):
                stays = backing.box in exact or not any(overlaps(backing.box, box) for box in exact)
                if not stays and (memory != HOST or self.kind(state, backing) != DIRTY):
                    self.evict(state, backing, task)

    # Bookkeeping ------------------------------------------------------------------------------------------------------

    def added(self, state: ArrayState, backing: Backing) -> None:
        """Note a new backing in a limited memory."""
        residents = self.residents[backing.allocation.memory]
        if residents is not None:
            residents.add(state, backing)

    def moved(self, before: Collection[Backing], states: Iterable[ArrayState]) -> None:
        """Note that arrays which had the backings `before` have those that they have now."""
        now = {backing: state for state in states for backing in state.all_backings()}
        for backing in before:
            if backing not in now:
                self.removed(backing)
        for backing, state in now.items():
            if backing not in before:
                self.added(state, backing)

    def removed(self, backing: Backing) -> None:
        """Note that a backing is freed."""
        residents = self.residents[backing.allocation.memory]
        if residents is not None:
            residents.states.pop(backing, None)
