"""A division of one task as it was made, whether it still holds after more was measured, and which calls are divided alike.

Before: plan/division/make_offers.py.  After: plan/division/divider.py, plan/planner.py, plan/preview.py.  Makes no division.

Calls that differ only in the size of what every part reads whole, as a history that grows by a row in each step, are divided
alike.
"""

from __future__ import annotations

from math import inf, log2
from typing import NamedTuple

from ...graph.command import Chunk
from ...graph.task import Task
from ...predict.features import work_of_part
from ...program.mapper import All
from ..candidate import Share
from .make_offers import Site
from .offers import Division, Offer

FAR_OFF = 0.3  # an imbalance from which a division is looked at anew whenever something changed
RESTING = 64  # uses that a division has at most before a moderate imbalance counts
BALANCED = 0.08  # parts that finish so close together leave half of that to gain, and measurements scatter as much


class Cuts(NamedTuple):
    """Where an array was cut last: neighbouring tasks on it are cut alike."""

    axis: int
    rows: int
    devices: tuple[str, ...]
    cuts: tuple[int, ...]
    memories: frozenset[int]


class Divided(NamedTuple):
    """A division of one task: parts, who runs them and for how long."""

    chunks: tuple[Chunk, ...]
    shares: tuple[Share, ...]
    seconds: float
    why: str
    site: Site
    offers: tuple[Offer, ...]
    division: Division
    measured: bool = True  # the speed of every device that takes part is known
    unsettled: bool = False  # its parts were not measured often enough to judge it
    made: Cuts | None = None  # what is remembered of it with the arrays


class Known(NamedTuple):
    """A division that was made, and what was known then."""

    versions: tuple[int, ...]  # of the models
    divided: Divided
    looks: int  # how often it was looked at anew
    uses: int = 0  # since then


def _imbalance(divided: Divided) -> float:
    """Return how much later the last part is predicted to finish than the first, relative; infinite if it should go."""
    computing: dict[str, float] = {}
    for chunk, share in zip(divided.chunks, divided.shares, strict=True):
        seconds = share.model.seconds(share.work, together=share.together) if share.model and share.work else None
        if seconds is None:
            return inf
        computing[chunk.device] = computing.get(chunk.device, 0.0) + seconds
    finishes = [
        max(planned.input_end, offer.wait) + computing[offer.device] + planned.finish - planned.compute_end
        for offer, planned in zip(divided.offers, divided.division.times, strict=True)
        if offer.device in computing
    ]
    alone = min(divided.division.single.values(), default=0.0)
    if len(finishes) < 2 or max(finishes) > alone:
        return inf
    first, last = min(finishes), max(finishes)
    return last / first - 1.0 if first else inf if last else 0.0


def holds(known: Known, versions: tuple[int, ...]) -> bool:
    """Tell whether a division need not be looked at anew: nothing changed, or it is still balanced.

    Measurements scatter. The more often a division was looked at, the longer a moderate imbalance may last. A guess ends
    with the first measurements, however well it was balanced: its times, and those of single devices, are guessed too.
    """
    if known.versions == versions:
        return True
    if not known.divided.measured:
        return False
    off = _imbalance(known.divided)
    return off <= BALANCED or (off <= FAR_OFF and known.uses < min(RESTING, 1 << known.looks))


PER_DOUBLING = 4  # sizes that are told apart while an extent doubles


def alike(task: Task) -> tuple[object, ...] | None:
    """Return what such calls have in common; None if nothing is read whole, so that equal calls have equal shapes."""
    found = False
    common: list[object] = []
    for param, array in zip(task.accesses, task.arrays, strict=True):
        shape: tuple[object, ...] = array.shape
        if shape and isinstance(param.access.mapper, All) and not param.access.writes:
            found = True
            shape = ("about", *[round(PER_DOUBLING * log2(extent)) if extent else -1 for extent in array.shape])
        common.append((shape, array.dtype.str))
    return tuple(common) if found else None


def fitted(task: Task, chunks: tuple[Chunk, ...], shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """Return the shares of a call like this one as those of this call: its own work, and its own prediction."""
    found = []
    for chunk, share in zip(chunks, shares, strict=True):
        work = work_of_part(task, chunk.box)
        seconds = None if share.model is None else share.model.seconds(work, together=share.together)
        found.append(share._replace(work=work, seconds=seconds))
    return tuple(found)
