"""Calls whose parts are prescribed: by the placement that the call carries, or by a saved plan.

Before: program/placement.py, plan/plan.py, plan/split.py.  After: plan/planner.py, cluster/dealing.py, testing/.  Pure: knows boxes
and numbers, and nothing of what is predicted.

A placement says which member of the group computes which boxes, in which order:

1. The members form a grid: one axis of it for each axis of the index space that is cut. A member's part is its cell.
2. A reduction has fixed blocks along the first axis of its `split=`, whoever computes them, so that its bits stay the same.
   Cuts along this axis deal whole blocks. Cuts along further axes cut the blocks as well.
3. A ring cuts one more axis into shards. In phase t a member computes shard i + t for its part, where i is its place in the
   ring. So in every phase each shard is with one member, and the next phase brings it to that member's neighbour.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate, product
from math import lcm, prod
from typing import NamedTuple

from ..errors import PlanError
from ..geometry import Box, bounding
from ..graph.command import Chunk
from ..graph.task import Task
from ..predict.features import Rows, part_of, work_of
from ..program.call import Options
from ..program.placement import Parts, Placement
from ..program.variant import COMPILED
from .candidate import Candidate, Candidates, one_per_device
from .conflicts import Conflicts
from .host_only import Who
from .plan import Plan
from .split import blocks_of, deal, in_runs, spans, tiles

PYTHON = "python"  # the name of every kernel's first variant
Call = tuple[str, str]  # a kernel's name, and the shapes and types of its arrays as text


def looping(group: Sequence[Candidate]) -> set[str]:
    """Return the devices that loop over pieces."""
    return {c.name for c in group if c.device.loops}


def following(
    task: Task, plan: Plan, candidates: Sequence[Candidate], *, loosely: bool = False
) -> tuple[tuple[Chunk, ...], list[Candidate]]:
    """Return the chunks of `task` that a plan names, and who runs each; raise if this runtime or this call has no such.

    Followed `loosely`, a plan says where, and the candidates, one per device, say which variant: a faster one may be there since.
    """
    pairs = {(c.name, c.variant.name): c for c in candidates}
    if loosely:
        pairs |= {(c.name, part.variant): c for c in candidates for part in plan.parts}
    for name in {c.name for c in candidates}:  # what is not compiled yet, or not here, has the body's bits anyway
        if (name, PYTHON) in pairs:
            pairs.setdefault((name, COMPILED), pairs[name, PYTHON])
    missing = [f"{p.device} ({p.variant})" for p in plan.parts if (p.device, p.variant) not in pairs]
    if missing:
        raise PlanError(
            f"the plan for {task.name!r} wants {', '.join(missing)}, which this runtime does not have; open it with "
            "the devices of the plan, or make the plan anew"
        )
    group = [pairs[part.device, part.variant] for part in plan.parts]
    chunks = tuple(Chunk(p.device, Box(p.lo, p.hi), slot) for slot, p in enumerate(plan.parts))
    if not tiles(task.mine, [chunk.box for chunk in chunks]):
        spans = ", ".join(f"{part.lo} to {part.hi}" for part in plan.parts)
        raise PlanError(
            f"the plan for {task.name!r} has parts {spans}, which do not make up {task.mine}; make the plan anew"
        )
    if task.kernel is not None and task.kernel.reduces:  # its blocks are fixed: the plan says whose they are
        axis = next((a for a in task.kernel.split if task.domain.hi[a] - task.domain.lo[a] > 1), 0)
        cuts = [chunk.box.lo[axis] if chunk.box.lo else 0 for chunk in chunks]
        blocks = blocks_of(task, task.domain, axis) if task.deal is None else list(task.deal.blocks)
        dealt = deal(blocks, axis, [c.device for c in chunks], cuts)
        if task.deal is not None and task.deal.first:
            dealt = tuple([chunk._replace(slot=chunk.slot + task.deal.first) for chunk in dealt])
        chunks = in_runs(dealt, looping(group))
    return chunks, group


class FollowedPlans:
    """Plans to be followed, by call. Of several for one call, as a step may have them, each is followed in its turn."""

    def __init__(self, plans: Iterable[Plan] = ()) -> None:
        self.plans: dict[Call, list[Plan]] = {}  # each call has at least one
        self._next: dict[Call, int] = {}
        for plan in plans:
            self.add(plan)

    def add(self, plan: Plan) -> None:
        """Follow a plan, of a call or of all calls of a step, in place of those for the same calls."""
        calls = [call for call in plan.children if call.parts] if plan.kind == "step" else [plan]
        for call in calls:
            self.plans.pop((call.name, call.shapes), None)
        for call in calls:
            self.plans.setdefault((call.name, call.shapes), []).append(call)

    def names(self, task: Task) -> bool:
        """Tell whether there is a plan for a call."""
        return bool(self.plans) and (task.name, repr(task.key)) in self.plans

    def of(self, task: Task) -> Plan | None:
        """Return the plan for a call, or None."""
        call = (task.name, repr(task.key))
        found = self.plans.get(call)
        if found is None:
            return None
        if task.deal is not None and bounding([Box(p.lo, p.hi) for p in found[0].parts]) != task.mine:
            return None  # its arguments overlap, so that ranks have divided it otherwise
        number = self._next.get(call, 0)
        self._next[call] = number + 1
        return found[number % len(found)]


def in_one_piece_each(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks with every piece for itself."""
    return [Chunk(chunk.device, box, chunk.slot) for chunk in chunks for box in chunk.pieces or (chunk.box,)]


class Span(NamedTuple):
    """Rows of one axis, and whose they are: the number of the part along this axis."""

    part: int
    lo: int
    hi: int


class MemberPart(NamedTuple):
    """What a member of a group computes."""

    phase: int  # of a ring; 0: there is none
    member: int
    slot: int  # in the order of the index space
    box: Box


def placed_parts(task: Task, box: Box, placement: Placement, members: int, granule: int = 1) -> list[MemberPart]:
    """Return the parts of `box` in the order in which they are computed; raise PlanError if it cannot be cut so.

    Parts begin at multiples of `granule` rows, which devices ask for, and of those that the kernel asks for; those whose rows
    the program names do as the kernel asks.
    """
    counts = placement.counts(members)
    around = _ring(placement, counts)
    cuts = {
        axis: n if isinstance(parts, int) else parts for (axis, parts), n in zip(placement.cut, counts, strict=True)
    }
    if placement.rotate is not None:
        cuts[placement.rotate[0]] = prod(counts[at] for at in around)
    _check_axes(task, cuts)
    if box.empty:
        return [MemberPart(0, 0, 0, box)]
    spans_of = {axis: _spans(Rows(task, box, axis), axis, parts, task.granule, granule) for axis, parts in cuts.items()}
    if task.kernel is not None and task.kernel.reduces:
        axis = next((a for a in task.axes if box.hi[a] - box.lo[a] > 1), 0)
        spans_of[axis] = _blocks(task, box, axis, spans_of.get(axis, ()))
    axes = sorted(spans_of)
    found = []
    for slot, cell in enumerate(product(*[spans_of[axis] for axis in axes])):
        part, at = box, dict(zip(axes, cell, strict=True))
        for axis, span in at.items():
            part = part_of(part, axis, span.lo, span.hi)
        place = [at[axis].part for axis, _ in placement.cut]
        found.append(MemberPart(_phase(placement, at, place, counts, around), _number(place, counts), slot, part))
    return sorted(found)


class Said(NamedTuple):
    """What a placement comes to."""

    chunks: tuple[Chunk, ...]
    group: list[Candidate]  # one for each member
    why: str


def is_cut(options: Options | None) -> bool:
    """Tell whether the program has said how a call is cut."""
    return options is not None and options.placement is not None and bool(options.placement.cut) and options.split


class Members:
    """Finds the members of groups among the devices."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._conflicts = Conflicts()  # tells nobody: the program is told by an error, or by the plan

    def said(self, task: Task, box: Box, found: Who) -> Said | str:
        """Return who computes which part of a placed call. If that is impossible raise PlanError.

        If it is a block around the call that has said it, return why instead.
        """
        options = task.options
        assert options is not None and options.placement is not None
        try:
            chunks, group = self._chunks(task, box, options, one_per_device(found.able, work_of(task)))
            if not self._conflicts.independent(task, in_one_piece_each(chunks)):
                raise PlanError(
                    "one part would touch what another one writes; leave out cut=, or pass a copy of what is read"
                )
        except PlanError as error:
            if options.loosely:
                return str(error)
            raise PlanError(f"kernel {task.name!r} cannot be placed ({options.placement}): {error}") from None
        return Said(chunks, group, f"as placed: {options.placement}")

    def _chunks(
        self, task: Task, box: Box, options: Options, able: Sequence[Candidate]
    ) -> tuple[tuple[Chunk, ...], list[Candidate]]:
        assert task.kernel is not None and options.placement is not None
        devices = self._candidates.named(options.devices)
        by_name = {candidate.name: candidate for candidate in able}
        for device in devices:
            if device.name not in by_name:
                why = self._candidates.unfit(task).get(device.name, "it has no variant or no memory for it")
                raise PlanError(f"{device.name} cannot run it: {why}")
        if options.devices != options.placement.names:
            chunks = _of_this_rank(task, options.placement, by_name)
        else:
            granule = lcm(*[max(1, device.granule) for device in devices])
            parts = placed_parts(task, box, options.placement, len(devices), granule)
            first = _first(task, parts)
            chunks = [Chunk(devices[p.member].name, p.box, first + p.slot, phase=p.phase) for p in parts]
        loops = looping(able) if task.kernel.reduces else ()
        return in_runs(chunks, loops), [by_name[device.name] for device in devices]


def _first(task: Task, parts: Sequence[MemberPart]) -> int:
    """Return the number of the first block of a reduction that is this rank's."""
    deal = task.deal
    if deal is None or task.kernel is None or not task.kernel.reduces:
        return 0
    if len(parts) != len(deal.blocks):
        raise PlanError("a rank has been dealt blocks of a reduction, which it can cut along no other axis")
    return deal.first


def _of_this_rank(task: Task, placement: Placement, mine: Container[str]) -> list[Chunk]:
    """Return the chunks of those members that are devices of this rank: the group has devices of several."""
    names = placement.devices
    parts = placed_parts(task, task.domain, placement, len(names))
    chunks = [Chunk(names[p.member], p.box, p.slot, phase=p.phase) for p in parts if names[p.member] in mine]
    if task.deal is not None and (not chunks or bounding([chunk.box for chunk in chunks]) != task.mine):
        raise PlanError("the ranks have dealt it otherwise")
    return chunks


def _check_axes(task: Task, cuts: Sequence[int] | dict[int, Parts]) -> None:
    for axis in cuts:
        if axis not in task.axes:
            split = task.kernel.split if task.kernel is not None else ()
            fixed = ", and with reproducible=True along the first long one in fixed blocks" if task.grain else ""
            raise PlanError(
                f"axis {axis} cannot be cut: the kernel declares split={split if len(split) != 1 else split[0]}{fixed}; "
                "declare the axis, or cut another"
            )


def _spans(rows: Rows, axis: int, parts: Parts, least: int, good: int) -> list[Span]:
    """Return the rows of each part along one axis; parts without rows are left out.

    A part begins at a multiple of the `least` granule, and of a `good` one if rows are ours to choose and there are enough.
    """
    total, granule = rows.rows, lcm(least, good)
    if granule * (parts if isinstance(parts, int) else len(parts)) > total:
        granule = least
    if isinstance(parts, int):
        return [Span(part, lo, hi) for part, (lo, hi) in enumerate(spans(rows, parts, granule))]
    if isinstance(parts[0], int):
        ends = [int(end) for end in accumulate(parts)]
        if ends[-1] != total:
            raise PlanError(
                f"axis {axis} has {total} rows, and the parts {parts} have {ends[-1]}; name rows that make it up"
            )
        if any(end % least and end != total for end in ends):
            raise PlanError(f"parts of {parts} rows along axis {axis} do not begin at multiples of {least}")
    else:
        wanted = [rows.position(min(1.0, done) * total) for done in accumulate(parts)]
        ends = [min(total, round(row / granule) * granule) for row in wanted]
        ends[-1] = total
    return [Span(part, lo, hi) for part, (lo, hi) in enumerate(zip([0, *ends], ends, strict=False)) if lo < hi]


def _blocks(task: Task, box: Box, axis: int, cut: Sequence[Span]) -> list[Span]:
    """Return the fixed blocks of a reduction along one axis; each belongs to the part in which its middle lies."""
    dealt = task.deal is not None and box != task.domain  # what this rank has is some of them
    mine = task.deal.blocks if task.deal is not None and dealt else blocks_of(task, box, axis)
    found, begins = [], [span.lo for span in cut]
    for block in mine:
        lo, hi = block.lo[axis] - box.lo[axis], block.hi[axis] - box.lo[axis]
        part = cut[max(0, bisect_right(begins, (lo + hi) / 2) - 1)].part if cut else 0
        found.append(Span(part, lo, hi))
    return found


def _ring(placement: Placement, counts: Sequence[int]) -> list[int]:
    """Return along which axes of the grid the members of a ring differ."""
    if placement.rotate is None:
        return []
    among = placement.rotate[1]
    return [at for at, (axis, _) in enumerate(placement.cut) if not among or axis in among] or list(range(len(counts)))


def _phase(
    placement: Placement, at: dict[int, Span], place: Sequence[int], counts: Sequence[int], around: Sequence[int]
) -> int:
    """Return when a member computes a part: shards come around, and each member begins with its own."""
    if placement.rotate is None:
        return 0
    length = prod(counts[i] for i in around)
    mine = _number([place[i] for i in around], [counts[i] for i in around])
    return (at[placement.rotate[0]].part - mine) % length


def _number(place: Sequence[int], counts: Sequence[int]) -> int:
    """Return the number of a cell of a grid, the last axis first."""
    number = 0
    for at, count in zip(place, counts, strict=True):
        number = number * count + at
    return number
