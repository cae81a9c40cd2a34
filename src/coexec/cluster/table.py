"""Where ranks get their deals: those of one process share what all ranks compute alike.

Before: cluster/dealing.py.  After: schedule/deal.py, ranked.py.  A process with one rank has a table with one seat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import Reported
from ..geometry import Box
from ..graph.task import Task
from ..plan.plan import Plan
from ..program.call import Options
from .calls import Calls
from .dealing import Check, Dealing, Round
from .following import own_plans
from .parting import named_devices
from .speeds import Shares


class Seat:
    """One rank. Asks for one deal after another, in program order."""

    def __init__(self, rank: int, table: Table, calls: Calls | None = None) -> None:
        self.rank = rank
        self._calls = calls  # of a rank in a process of its own
        self.ranks = table.dealing.ranks
        self._table = table
        self._number = 0  # of deals that it took
        self._here = f"n{rank}/"  # what names of this node begin with

    @property
    def shares(self) -> Shares:
        """How much of a call's work each rank gets."""
        return self._table.dealing.shares

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
            if not roster.prefixed and not mine:
                return  # those whose devices it names know what they can do
            alike = [roster.here(self.rank, name) if "/" in name else name for name in names]
            task.options = _renamed(options, list(dict.fromkeys(alike)), alike)
            check(task)
            task.options = options

        roster = self._table.dealing.roster
        named = [name for name in names if "/" not in name or name.startswith(self._here)]
        mine = [roster.here(self.rank, name) if "/" in name else name for name in named]
        deal(check_here)
        here = [roster.here(self.rank, name) if name.startswith(self._here) else name for name in names]
        task.options = _renamed(options, mine, here)

    def read(self, task: Task, readers: Sequence[int]) -> None:
        """Let a task without a kernel be dealt: what is sent so that `readers` have what it reads."""
        self._take(task, lambda: self._table.dealing.read(task, readers))

    def given(self, array: int, extent: Box, rank: int) -> None:
        """Note that one rank alone has the first contents of an array."""
        self._table.dealing.exchange.given(array, extent, rank)

    def share(self, shares: Shares) -> None:
        """Let calls be divided by these shares from the next one on."""
        self._table.dealing.share(shares)

    @property
    def names(self) -> Sequence[str]:
        """The devices of all ranks, as calls name them."""
        return list(self._table.dealing.roster.owners)

    def predict(self, table: Mapping[str, Sequence[float]]) -> None:
        """Let undivided calls go to ranks by what each of them takes, by kind of call."""
        self._table.dealing.earliest.told(table)

    def follow(self, plans: Sequence[Plan]) -> list[Plan]:
        """Let calls be dealt as plans say from the next one on; return what they say of this rank."""
        dealing = self._table.dealing
        dealing.follow(plans)
        return own_plans(plans, self.rank, dealing.roster)

    def forget(self, array: int) -> None:
        """Forget an array that is gone."""
        self._table.dealing.exchange.forget(array)
        self._table.dealing.earliest.forget(array)

    def _take(self, task: Task, make: Callable[[], Round]) -> None:
        self._number += 1
        task.round = self._number
        if self._calls is not None:
            task.stamp = self._calls.add(task)
        found, task.told = self._table.round(self._number, make)
        task.deal = found.of(self.rank)


def _renamed(options: Options, devices: Sequence[str], members: Sequence[str]) -> Options:
    """Return the options of a call with the devices that remain, and the members of its placement as this rank calls them."""
    placement = options.placement
    placement = placement.over(members) if placement is not None else None
    return options._replace(devices=",".join(devices), placement=placement)


class Table:
    """What the ranks of one process share: the first that asks for a deal has it computed for all."""

    def __init__(self, dealing: Dealing, ranks: Sequence[int], calls: Calls | None = None) -> None:
        """Deal for these `ranks`, which are in this process. `calls` counts what the program of a single one asks for."""
        self.dealing = dealing
        self.seats = [Seat(rank, self, calls) for rank in ranks]
        self._rounds: dict[int, tuple[Round, Reported, int]] = {}  # by number; and how many have yet to take theirs

    def round(self, number: int, make: Callable[[], Round]) -> tuple[Round, Reported]:
        """Return a round, dealing it if nobody has asked for it yet, and whether the program knows that it failed."""
        known = self._rounds.get(number)
        found, told, left = known if known is not None else (make(), Reported(), len(self.seats))
        if left > 1:
            self._rounds[number] = (found, told, left - 1)
        else:
            self._rounds.pop(number, None)
        return found, told
