"""Groups of devices that may run a stage, and what each takes from the devices that there are.

Before: plan/pipeline/system.py.  After: plan/pipeline/tables.py.  Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from .point import Mode, Parts
from .system import StreamSystem


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """So many devices of each class, and what they take of each budget."""

    parts: Parts
    needs: tuple[int, ...]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """How it may work on a stage."""
        if len(self.parts) > 1:
            return ("divided",)
        return ("alone",) if self.parts[0][1] == 1 else ("divided", "in turn")


class Room:
    """What there is of each budget, and which amounts of them can be in use, numbered from 0 (nothing)."""

    def __init__(self, system: StreamSystem) -> None:
        self._system = system
        budgets = system.budgets
        self._scarce = [c.name for c in system.classes if c.count * c.units < budgets[c.budget or c.name]]
        self._budgets = list(budgets)
        self.limits = (*budgets.values(), *(system.named(name).count for name in self._scarce))
        self.shape = tuple(limit + 1 for limit in self.limits)

    def needs(self, parts: Parts) -> tuple[int, ...]:
        """Return what a group takes of each budget."""
        taken = dict.fromkeys(self._budgets, 0)
        for name, n in parts:
            c = self._system.named(name)
            taken[c.budget or c.name] += n * c.units
        counts = dict(parts)
        return (*taken.values(), *(counts.get(name, 0) for name in self._scarce))

    def idle_watts(self, used: Sequence[int]) -> float:
        """Return what devices draw while they wait that take so much of each budget."""
        per_unit = {c.budget or c.name: c.idle_watts / c.units for c in self._system.classes}
        return sum(n * per_unit[budget] for budget, n in zip(self._budgets, used, strict=False))

    def holds(self, *needs: tuple[int, ...]) -> bool:
        """Tell whether there is room for several groups at once."""
        return all(sum(taken) <= limit for limit, taken in zip(self.limits, zip(*needs, strict=True), strict=True))


def groups_of(system: StreamSystem, room: Room, *, mixed: bool) -> list[DeviceGroup]:
    """Return every group of devices of one class, and with `mixed` of several."""
    found: list[Parts] = [((c.name, n),) for c in system.classes for n in range(1, c.count + 1)]
    if mixed:
        found += list(_mixed(system))
    made = [DeviceGroup(parts, room.needs(parts)) for parts in found]
    return [group for group in made if room.holds(group.needs)]


def _mixed(system: StreamSystem) -> Iterator[Parts]:
    names = [c.name for c in system.classes]
    for counts in product(*(range(c.count + 1) for c in system.classes)):
        parts = tuple((name, n) for name, n in zip(names, counts, strict=True) if n)
        if len(parts) > 1:
            yield parts
