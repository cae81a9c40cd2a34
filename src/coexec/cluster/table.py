"""Where ranks get their deals: those of one process share what all ranks compute alike.

Before: cluster/dealing.py.  After: stages.py, ranked.py.  A process with one rank has a table with one seat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import Told
from ..graph.task import Task
from .dealing import Check, Dealing, Round, named_devices


class Seat:
    """One rank. Asks for one deal after another, in program order."""

    def __init__(self, rank: int, table: Table) -> None:
        self.rank = rank
        self.ranks = table.dealing.ranks
        self._table = table
        self._number = 0  # of deals that it took
        self._here = f"n{rank}/"  # what names of this node begin with

    def task(self, task: Task, check: Check) -> None:
        """Let a call be dealt: `task.deal` says what of it is this rank's. Raises what `check` raises."""
        self._deal(task, check, lambda check: self._take(task, lambda: self._table.dealing.task(task, check)))

    def preview(self, task: Task, check: Check) -> None:
        """Say which part of a call would be this rank's. Changes nothing but the task."""

        def look(check: Check) -> None:
            task.deal = self._table.dealing.preview(task, check).of(self.rank)

        self._deal(task, check, look)

    def _deal(self, task: Task, check: Check, deal: Callable[[Check], None]) -> None:
        """Deal a call; of devices that it names, those of this node remain."""
        options, names = task.options, named_devices(task)
        if options is None or not any("/" in name for name in names):
            deal(check)
            return

        def check_here(task: Task) -> None:
            alike = [self._here + name.rpartition("/")[2] if "/" in name else name for name in names]
            task.options = options._replace(devices=",".join(dict.fromkeys(alike)))
            check(task)
            task.options = options

        deal(check_here)
        mine = [name for name in names if "/" not in name or name.startswith(self._here)]
        task.options = options._replace(devices=",".join(mine))

    def read(self, task: Task, readers: Sequence[int]) -> None:
        """Let a task without a kernel be dealt: what is sent so that `readers` have what it reads."""
        self._take(task, lambda: self._table.dealing.read(task, readers))

    def forget(self, array: int) -> None:
        """Forget an array that is gone."""
        self._table.dealing.exchange.forget(array)

    def _take(self, task: Task, make: Callable[[], Round]) -> None:
        self._number += 1
        task.round = self._number
        found, task.told = self._table.round(self._number, make)
        task.deal = found.of(self.rank)


class Table:
    """What the ranks of one process share: the first that asks for a deal has it computed for all."""

    def __init__(self, dealing: Dealing, ranks: Sequence[int]) -> None:
        self.dealing = dealing
        self.seats = [Seat(rank, self) for rank in ranks]
        self._rounds: dict[int, tuple[Round, Told, int]] = {}  # by number; and how many have yet to take theirs

    def round(self, number: int, make: Callable[[], Round]) -> tuple[Round, Told]:
        """Return a round, dealing it if nobody has asked for it yet, and whether the program knows that it failed."""
        known = self._rounds.get(number)
        found, told, left = known if known is not None else (make(), Told(), len(self.seats))
        if left > 1:
            self._rounds[number] = (found, told, left - 1)
        else:
            self._rounds.pop(number, None)
        return found, told
