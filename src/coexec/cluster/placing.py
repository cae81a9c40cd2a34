"""What each rank computes of a call whose placement names devices of several nodes.

Before: plan/prescribed.py.  After: cluster/dealing.py.  Pure: every rank comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import PlanError
from ..geometry import Box, bounding
from ..graph.task import Task
from ..plan.prescribed import MemberPart, is_cut, placed_parts

RankPart = tuple[int, Box, tuple[Box, ...], int]
"""A rank, its box, and of a reduction its blocks and the number of the first."""


def placed_on_ranks(
    task: Task, owners: Mapping[str, int], independent: Callable[[Task, Sequence[Box]], bool]
) -> list[RankPart] | None:
    """Return what each rank computes, or None if no device of a node is named, or a block around the call asks in vain.

    `owners` are the ranks of devices; `independent` tells whether parts do not touch what others write.
    """
    options, kernel = task.options, task.kernel
    placement = options.placement if options is not None and is_cut(options) else None
    if options is None or placement is None or kernel is None or any("/" not in name for name in placement.devices):
        return None
    try:
        parts = placed_parts(task, task.domain, placement, len(placement.devices))
        found = _by_rank(parts, [owners[name] for name in placement.devices], reduces=kernel.reduces)
        if not independent(task, [part.box for part in parts] if kernel.reduces else [box for _, box, _, _ in found]):
            raise PlanError("one rank would touch what another one writes")
    except PlanError as error:
        if options.loosely:
            return None
        raise PlanError(f"kernel {task.name!r} cannot be placed ({placement}): {error}") from None
    return found


def _by_rank(parts: Sequence[MemberPart], owners: Sequence[int], *, reduces: bool) -> list[RankPart]:
    """Return the parts of each rank as one box; raise if they are none, or blocks that do not follow each other."""
    mine: dict[int, list[MemberPart]] = {}
    for part in sorted(parts, key=lambda part: part.slot):
        mine.setdefault(owners[part.member], []).append(part)
    found: list[RankPart] = []
    for rank, own in sorted(mine.items()):
        boxes, first = tuple([part.box for part in own]), own[0].slot
        hull = bounding(boxes)
        if hull.volume != sum(box.volume for box in boxes) or (reduces and own[-1].slot - first + 1 != len(own)):
            raise PlanError(
                f"the parts of rank {rank} do not make up a box of parts that follow each other; "
                "cut the first axis by ranks, and name the devices of a rank one after the other"
            )
        found.append((rank, hull, boxes if reduces else (), first))
    return found
