"""Deal tasks to the ranks of a cluster: each gets a part of the index space, or one of them gets all of it.

Before: cluster/exchange.py, plan/split.py, plan/conflicts.py.  After: cluster/table.py, lower/exchanging.py.

Every rank deals every task, from what all ranks know: shapes, mappers, weights, what was dealt before, and the shares that
all of them were told. Nothing else that is measured may decide anything here, or ranks would disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import lcm
from typing import Any, NamedTuple

from ..errors import unknown_name
from ..geometry import Box, Pattern, Region, overlaps, whole
from ..graph.command import AwaitPush, Chunk, Deal, Push
from ..graph.mapped import Mapped, mapped
from ..graph.task import Task
from ..plan.conflicts import Conflicts
from ..plan.fixed_blocks import set_grain
from ..plan.plan import Plan
from ..plan.split import blocks_of
from ..predict.features import part_of
from ..program.access import Access
from ..program.array import Array
from .earliest import Earliest
from .exchange import Boxes, Exchange, Holders, Steps, Strided, Written
from .following import DealtAsPlanned
from .gathering import Gathers
from .gridding import grid_for
from .parting import cut_for, division_key, named_devices, runs_for, span_of
from .placing import placed_on_ranks
from .roster import Roster
from .speeds import Shares
from .staying import is_short, kind_of, only_holder

Uses = dict[int, dict[int, list[Written]]]
"""Boxes, and which elements of them, by argument and rank."""


Patterns = tuple[tuple[Pattern[Holders], Strided], ...]
"""Who holds what, by array."""
Check = Callable[[Task], None]
SMALL = 1 << 14  # points of an undivided task that is not worth spreading over ranks
REMEMBERED = 4096  # rounds


def _nothing(task: Task) -> None:
    del task


class Hand(NamedTuple):
    """What one rank computes of a task: a box, and of a reduction some of its fixed blocks."""

    rank: int
    box: Box
    blocks: Boxes = ()
    first: int = 0


class Round:
    """One task as all ranks share it."""

    def __init__(
        self,
        hands: dict[int, Hand],
        moves: dict[int, Steps],
        gathers: Gathers,
        written: dict[int, tuple[Region, dict[int, Boxes]]],
        known: dict[Any, Deal],
    ) -> None:
        self.hands = hands
        self.slots = sum(len(hand.blocks) for hand in hands.values())  # blocks of a reduction
        self.moves = moves  # by argument, before the task
        self.gathers = gathers  # after it: slots of private arrays
        self.written = written  # by argument: everything, and what each rank writes
        self._deals: dict[int, Deal] = {}
        self._known = known  # of all rounds: a deal like another is the same object

    def of(self, rank: int) -> Deal:
        """Return the deal of one rank: the same object each time."""
        deal = self._deals.get(rank)
        if deal is None:
            deal = self._deals[rank] = self._made(rank)
        return deal

    def _made(self, rank: int) -> Deal:
        hand = self.hands.get(rank)
        box, mine, first = (None, (), 0) if hand is None else hand[1:]
        pushes = [*_pushes(rank, self.moves), *self.gathers.pushes(rank)]
        awaits = [*_awaits(rank, self.moves), *self.gathers.awaits(rank)]
        stale = []
        for argument, (everything, by_rank) in self.written.items():
            others = everything - Region(by_rank.get(rank, ()))
            if others.boxes:
                stale.append((argument, others.boxes))
        content = (box, mine, first, self.slots, tuple(pushes), tuple(awaits), tuple(stale))
        _make_room(self._known)
        return self._known.setdefault(content, Deal(*content))


def _pushes(rank: int, moves: dict[int, Steps]) -> list[Push]:
    found = []
    for argument, steps in moves.items():
        for step, of in enumerate(steps):
            targets = tuple([(receiver, boxes) for (sender, receiver), boxes in of.items() if sender == rank])
            if targets:
                found.append(Push(argument, targets, step=step))
    return found


def _awaits(rank: int, moves: dict[int, Steps]) -> list[AwaitPush]:
    found = []
    for argument, steps in moves.items():
        for step, of in enumerate(steps):
            sources = tuple([(sender, boxes) for (sender, receiver), boxes in of.items() if receiver == rank])
            if sources:
                found.append(AwaitPush(argument, sources, step=step))
    return found


class Dealing:
    """Deals one task after another. Pure: no thread, no device, no clock. Programs repeat themselves, so rounds are kept."""

    def __init__(self, ranks: int, roster: Roster, *, reproducible: bool = False) -> None:
        self.ranks, self.roster = ranks, roster
        self._reproducible = reproducible  # parts are made of blocks that depend on shapes alone
        self.exchange = Exchange(ranks)
        self._conflicts = Conflicts()
        self._points = [0] * ranks  # of undivided tasks, dealt so far
        self.earliest = Earliest(ranks)  # of undivided calls whose times ranks know
        self._shares: Shares | None = roster.shares or None  # of work, by rank; None for equal ones
        self._deals: dict[Any, Deal] = {}  # by what they say
        self._divisions: dict[Hashable, tuple[Hand, ...]] = {}  # () = undivided
        self._rounds: dict[Hashable, tuple[Round, Patterns]] = {}  # and who holds what afterwards
        self._grids: dict[Hashable, tuple[Hand, ...] | None] = {}  # divisions along two axes, where they may be better
        self._planned: DealtAsPlanned | None = None

    def task(self, task: Task, check: Check = _nothing) -> Round:
        """Deal a call. `check` raises if no rank could run it; a call like an earlier one was checked then."""
        self._prepare(task)
        key = division_key(task)
        hands = self._divisions.get(key) if key is not None else None
        if hands is None or (task.kernel is not None and task.kernel.looked_at):
            self._able(task)
            check(task)
        if hands is None:
            hands = tuple(self._hands(task))
            if key is not None:
                _make_room(self._divisions)
                self._divisions[key] = hands
        hands = self._chosen(task, hands, self._grid(task, key, hands))
        if self.earliest.known:
            self._note(task, hands)
        return self._again(task, None if key is None else (key, hands[0], len(hands)), hands)

    def preview(self, task: Task, check: Check = _nothing) -> Round:
        """Return who would compute what of a call, without what is sent for it. Changes nothing."""
        self._prepare(task)
        check(task)
        points = list(self._points)
        hands = tuple(self._hands(task))
        hands = self._chosen(task, hands, self._grid(task, division_key(task), hands))
        self._points = points
        return Round({hand.rank: hand for hand in hands}, {}, Gathers(self.ranks), {}, self._deals)

    def _prepare(self, task: Task) -> None:
        if self._reproducible:
            set_grain(task, self._conflicts.independent)

    def read(self, task: Task, readers: Sequence[int]) -> Round:
        """Let some ranks have all of what a task without a kernel reads."""
        array = task.arrays[0]
        if self.earliest.known:
            self.earliest.waited(readers, array._storage.id)
        key = ("read", tuple(readers), array._box, array._cut)
        return self._again(task, key, [Hand(rank, Box((), ())) for rank in readers])

    def _again(self, task: Task, key: Hashable, hands: Sequence[Hand]) -> Round:
        """Return the round of an earlier task like this one, if all arrays were held alike; else a new one."""
        by_rank = {hand.rank: hand for hand in hands}
        if key is None:
            return self._round(task, by_rank)
        storages = list(dict.fromkeys(array._storage for array in task.arrays))
        before = tuple([self.exchange.pattern(storage.id, storage.box) for storage in storages])
        known = self._rounds.get((key, before))
        if known is not None:
            for storage, pattern in zip(storages, known[1], strict=True):
                self.exchange.become(storage.id, pattern)
            return known[0]
        found = self._round(task, by_rank)
        after = tuple([self.exchange.pattern(storage.id, storage.box) for storage in storages])
        _make_room(self._rounds)
        self._rounds[key, before] = (found, after)
        return found

    # Who computes what ------------------------------------------------------------------------------------------------

    def _hands(self, task: Task) -> list[Hand]:
        """Return the parts of a divided task. Rank -1, or no part: one rank gets it, which is chosen anew each time."""
        kernel, options, box = task.kernel, task.options, task.domain
        assert kernel is not None
        if kernel.host and not kernel.split:
            return [Hand(0, box, (box,))]
        axes, able = [axis for axis in task.axes if box.hi[axis] - box.lo[axis] > 1], self._able(task)
        if not axes or box.empty or not (options is None or options.split):
            return []
        placed = placed_on_ranks(task, self.roster.owners, self._independent)
        if placed is not None:
            return [Hand(*found) for found in placed]
        hands = self._blocks(task, axes[0], able) if kernel.reduces else self._parts(task, axes[0], able)
        return hands if len(hands) > 1 else [hand._replace(rank=-1) for hand in hands]

    def _grid(self, task: Task, key: Hashable, hands: tuple[Hand, ...]) -> tuple[Hand, ...] | None:
        """Return the parts of a task cut along two axes, if ranks are alike and each would lack less; else None."""
        if key is None or len(hands) < 2 or self._shares is not None or self._reproducible:
            return None
        if key not in self._grids:
            _make_room(self._grids)
            self._grids[key] = self._gridded(task, hands)
        return self._grids[key]

    def _gridded(self, task: Task, hands: tuple[Hand, ...]) -> tuple[Hand, ...] | None:
        kernel, options = task.kernel, task.options
        axes = [axis for axis in task.axes if task.domain.hi[axis] - task.domain.lo[axis] > 1]
        if kernel is None or kernel.host or kernel.reduces or (options is not None and options.placement is not None):
            return None
        parts = grid_for(task, axes, [hand.box for hand in hands], lcm(task.granule, self.roster.granule))
        if parts is None or not self._independent(task, parts):
            return None
        return tuple([Hand(hand.rank, part) for hand, part in zip(hands, parts, strict=True)])

    def _lacking(self, task: Task, hands: Sequence[Hand]) -> int:
        """Return how many bytes of what they read ranks do not have, if these are their parts."""
        found = 0
        for hand in hands:
            for param, array, part in zip(task.accesses, task.arrays, mapped(task, hand.box), strict=True):
                if _reads(param.access, array):
                    boxes = _touched(array, part)
                    held = self.exchange.volume(array._storage.id, array._storage.box, boxes)[hand.rank]
                    found += (sum([box.volume for box in boxes]) - held) * array.itemsize
        return found

    def _chosen(self, task: Task, hands: tuple[Hand, ...], grid: tuple[Hand, ...] | None = None) -> tuple[Hand, ...]:
        """Return the parts of a task with the ranks that have them now: as planned, or as depends on who holds what."""
        planned = self._planned.hands(task, self._independent) if self._planned is not None else None
        if planned is not None:
            return tuple([Hand(*found) for found in planned])
        if not hands or (len(hands) == 1 and hands[0].rank < 0):
            only = hands[0] if hands else Hand(0, task.domain, (task.domain,))
            return (only._replace(rank=self._one(task)),)
        if len(hands) > 1 and is_short(task, SMALL):
            stays = only_holder(*self._held(task))
            return hands if stays is None else (Hand(stays, task.domain, (task.domain,)),)
        if grid is not None and self._lacking(task, grid) <= self._lacking(task, hands):
            return grid  # else arrays are cut along one axis, as other calls need them
        return hands

    def _able(self, task: Task) -> Sequence[int]:
        """Return the ranks that a call may use: all, or those whose devices it names."""
        names = named_devices(task)
        if not names or any("/" not in name for name in names):
            return range(self.ranks)
        for name in names:
            if name not in self.roster.owners:
                raise unknown_name("device", name, list(self.roster.owners))
        return sorted({self.roster.owners[name] for name in names})

    def _parts(self, task: Task, axis: int, able: Sequence[int]) -> list[Hand]:
        """Return parts of the index space along one axis, as ranks share work; none if they would conflict."""
        granule = lcm(task.granule, self.roster.granule)
        parts = cut_for(task, axis, able, self._shares_of(task, able), granule)
        if len(parts) < 2 or not self._independent(task, [part for _, part in parts]):
            return []
        return [Hand(rank, part) for rank, part in parts]

    def _blocks(self, task: Task, axis: int, able: Sequence[int]) -> list[Hand]:
        """Return the fixed blocks of a reduction in runs, as ranks share work; all in one if they would conflict."""
        parts = blocks_of(task, task.domain, axis)
        if not self._independent(task, parts):
            return [Hand(0, task.domain, (task.domain,))]
        hands = []
        for rank, first, last in runs_for(len(parts), able, self._shares_of(task, able)):
            mine = tuple(parts[first:last])
            hands.append(Hand(rank, part_of(task.domain, axis, *span_of(task.domain, mine, axis)), mine, first))
        return hands

    def _shares_of(self, task: Task, able: Sequence[int]) -> list[float] | None:
        """Return which part of a call's work each of some ranks gets; None for equal parts."""
        if self._shares is None or (task.options is not None and task.options.policy == "even"):
            return None
        mine = [self._shares[rank] for rank in able]
        return [share / sum(mine) for share in mine]

    @property
    def shares(self) -> Shares:
        """How much of a call's work each rank gets."""
        return self._shares or (1.0 / self.ranks,) * self.ranks

    def share(self, shares: Shares) -> None:
        """Divide by these shares from the next call on: the same on every rank."""
        self._shares = None if len(set(shares)) == 1 else shares
        self._forget()

    def follow(self, plans: Sequence[Plan]) -> None:
        """Divide calls as these plans say, from the next one on: the same on every rank."""
        self._planned = DealtAsPlanned(plans, self.roster) if plans else None
        self._forget()

    def _forget(self) -> None:
        self._divisions.clear()
        self._grids.clear()
        self._rounds.clear()

    def _independent(self, task: Task, parts: Sequence[Box]) -> bool:
        """Tell whether parts do not conflict, and hulls of what they write do not overlap: they are sent as a whole."""
        if not self._conflicts.independent(task, [Chunk("", part) for part in parts]):
            return False
        if all(array._grid is None for array in task.arrays):
            return True
        by_array: dict[int, list[Box]] = {}
        for part in parts:
            mine: dict[int, list[Box]] = {}
            for access, array, found in zip(task.accesses, task.arrays, mapped(task, part), strict=True):
                if access.access.writes and found is not None:
                    mine.setdefault(array._storage.id, []).extend(_touched(array, found))
            for id, boxes in mine.items():
                if any(overlaps(a, b) for a in boxes for b in by_array.get(id, ())):
                    return False
                by_array.setdefault(id, []).extend(boxes)
        return True

    def _one(self, task: Task) -> int:
        """Return the rank for an undivided task: the one that holds most of what it reads.

        If ranks know how long it takes, it is the one that is predicted to be done first with it. Among equals it is the one that
        would be done first with all it got of these. A small task is no work worth spreading: the first, so that loops repeat themselves.
        """
        held, wanted = self._held(task)
        able = self._able(task)
        if (seconds := self.earliest.seconds(kind_of(task))) is not None:
            reads = [array._storage.id for array in task.arrays]
            return self.earliest.choose(seconds, able, [wanted - own for own in held], reads)
        if task.domain.volume < SMALL:
            return min(able, key=lambda rank: (-held[rank], rank))
        shares = self._shares or (1.0,) * self.ranks
        chosen = min(able, key=lambda rank: (-held[rank], self._points[rank] / shares[rank], rank))
        self._points[chosen] += task.domain.volume
        return chosen

    def _note(self, task: Task, hands: Sequence[Hand]) -> None:
        """Note when ranks will be done with a call, as far as that is known; before it changes who holds what."""
        writes = [a._storage.id for p, a in zip(task.accesses, task.arrays, strict=True) if p.access.writes]
        seconds, lacking = self.earliest.seconds(kind_of(task)) if len(hands) == 1 else None, {}
        if seconds is not None:
            held, wanted = self._held(task)
            lacking = {hand.rank: wanted - held[hand.rank] for hand in hands}
        work = {hand.rank: 0.0 if seconds is None else seconds[hand.rank] for hand in hands}
        self.earliest.gave(work, lacking, [array._storage.id for array in task.arrays], writes)

    def _held(self, task: Task) -> tuple[list[int], int]:
        """Return how many bytes of what a task reads each rank has, and how many it reads."""
        held, wanted = [0] * self.ranks, 0
        parts = (None,) * len(task.arrays) if task.space is None else mapped(task, task.domain)
        for param, array, part in zip(task.accesses, task.arrays, parts, strict=True):
            if _reads(param.access, array) and param.access.mode != "reduce":
                boxes = _touched(array, part)
                of = self.exchange.volume(array._storage.id, array._storage.box, boxes)
                held = [a + b * array.itemsize for a, b in zip(held, of, strict=True)]
                wanted += sum([box.volume for box in boxes]) * array.itemsize
        return held, wanted

    # Who sends what ---------------------------------------------------------------------------------------------------

    def _round(self, task: Task, hands: dict[int, Hand]) -> Round:
        reads, writes, agreed = self._uses(task, hands)
        moves: dict[int, Steps] = {}
        written: dict[int, tuple[Region, dict[int, Boxes]]] = {}
        for argument, by_rank in sorted(reads.items()):
            storage = task.arrays[argument]._storage
            wanted = {rank: [box for box, _ in used] for rank, used in by_rank.items()}
            found = self.exchange.steps(storage.id, storage.box, wanted)
            if found:
                moves[argument] = found
        for argument, by_rank in sorted(writes.items()):
            storage = task.arrays[argument]._storage
            self.exchange.wrote(storage.id, storage.box, by_rank)
            everything = Region(tuple([box for used in by_rank.values() for box, _ in used]))
            written[argument] = (everything, {rank: tuple([box for box, _ in used]) for rank, used in by_rank.items()})
        for argument, used in agreed.items():
            storage = task.arrays[argument]._storage
            self.exchange.agreed(storage.id, storage.box, used)
        return Round(hands, moves, self._gathers(task, hands), written, self._deals)

    def _uses(self, task: Task, hands: dict[int, Hand]) -> tuple[Uses, Uses, dict[int, list[Written]]]:
        """Return what each rank reads and writes of each array, and what all write alike: the results of reductions."""
        first: dict[int, int] = {}  # storage -> the first argument that is this array
        arguments = [first.setdefault(array._storage.id, index) for index, array in enumerate(task.arrays)]
        reads: Uses = {}
        writes: Uses = {}
        agreed: dict[int, list[Written]] = {}
        entire = task.space is None and (len(hands) == 1 or task.kernel is None)
        for rank, hand in hands.items():
            parts = (None,) * len(task.arrays) if entire else mapped(task, hand.box)
            for param, array, part, argument in zip(task.accesses, task.arrays, parts, arguments, strict=True):
                if param.access.mode != "reduce":
                    boxes = [(box, array._grid) for box in _touched(array, part)]
                    for uses, does in ((reads, _reads(param.access, array)), (writes, param.access.writes)):
                        if does:
                            uses.setdefault(argument, {}).setdefault(rank, []).extend(boxes)
        for param, array, argument in zip(task.accesses, task.arrays, arguments, strict=True):
            if param.access.mode == "reduce" and not array._box.empty:
                agreed.setdefault(argument, []).append((array._box, array._grid))
                if _reads(param.access, array):
                    for rank in range(self.ranks):
                        reads.setdefault(argument, {}).setdefault(rank, []).append((array._box, array._grid))
        return reads, writes, agreed

    def _gathers(self, task: Task, hands: dict[int, Hand]) -> Gathers:
        """Return who sends which partial results of reductions: every rank gets all, and combines them in order."""
        if task.kernel is None or not task.kernel.reduces:
            return Gathers(self.ranks)
        slots = sum(len(hand.blocks) for hand in hands.values())
        extents = {
            argument: whole((slots, *array.shape))
            for argument, (param, array) in enumerate(zip(task.accesses, task.arrays, strict=True))
            if param.access.mode == "reduce" and array.size
        }
        spans = {rank: (hand.first, hand.first + len(hand.blocks)) for rank, hand in hands.items()}
        return Gathers(self.ranks, extents, spans)


def _make_room(known: dict[Any, Any]) -> None:
    if len(known) >= REMEMBERED:
        known.clear()


def _reads(access: Access, array: Array) -> bool:
    """Tell whether old values are needed; a strided write leaves elements between untouched."""
    if access.operator is not None:
        return not access.operator.fresh or array._grid is not None
    return access.reads or (array._grid is not None and access.mode == "write")


def _touched(array: Array, part: Mapped | None) -> Boxes:
    if part is None:
        return () if array._box.empty else (array._box,)
    if part.empty:
        return ()
    box, boxes = part.of(array)
    return boxes or (() if box.empty else (box,))
