"""Turn real-valued cuts into rows that devices accept: granules, limits, leftovers, and never worse than one device.

Before: plan/division/bisection.py.  After: plan/division/divider.py.  Knows numbers only: no task, array or kernel.

Where rows are few, the best division into whole rows is found exactly: by dynamic programming, or by trying each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, combinations_with_replacement, pairwise
from math import comb, inf
from types import MappingProxyType

from .bisection import DeviceWalk, divide, why_not
from .local_search import LocalSearch
from .offers import MANY, Division, Offer, finish_times, shared, singles

State = tuple[int, bool]  # rows done, whether one share is no multiple of its granule


def along_the_axis(offers: Sequence[Offer], rows: int, bound: float) -> list[int] | None:
    """Return the shares with the least finish time below `bound`, if no two offers share a link.

    The cost of a piece depends on its two cuts alone, so the best way to a cut is part of the best way through it.
    """
    front: dict[State, tuple[float, tuple[int, ...]]] = {(0, False): (0.0, ())}
    for i, offer in enumerate(offers):
        last = i == len(offers) - 1
        reached: dict[State, tuple[float, tuple[int, ...]]] = {}
        for (low, odd), (worst, shares) in front.items():
            if not last or low == rows:
                keep(reached, (low, odd), worst, (*shares, 0))
            for share, uneven, finish in pieces_from(offer, low, rows, bound, last):
                if not (odd and uneven):
                    keep(reached, (low + share, odd or uneven), max(worst, finish), (*shares, share))
        front = reached
    ends = [front[rows, odd] for odd in (False, True) if (rows, odd) in front]
    return list(min(ends)[1]) if ends else None


def keep(reached: dict[State, tuple[float, tuple[int, ...]]], at: State, worst: float, shares: tuple[int, ...]) -> None:
    """Remember this way to `at` if it is the best so far."""
    if at not in reached or worst < reached[at][0]:
        reached[at] = (worst, shares)


def pieces_from(offer: Offer, low: int, rows: int, bound: float, last: bool) -> Iterator[tuple[int, bool, float]]:
    """Yield (rows, whether they are no multiple of the granule, finish) of each piece that starts at `low`."""
    smallest = rows - low if last else max(1, offer.least)
    if smallest < max(1, offer.least):
        return
    for share in range(smallest, int(min(rows - low, offer.room)) + 1):
        copied = offer.input_seconds(low, low + share)
        finish = max(copied, offer.wait) + offer.compute.seconds(share) + offer.fixed_out + offer.out_per_row * share
        if finish >= bound:
            return
        yield share, share % offer.granule != 0, finish


def every_division(offers: Sequence[Offer], rows: int, bound: float) -> list[int] | None:
    """Return the shares with the least finish time below `bound`, by trying every legal division."""
    best = None
    for shares in divisions(offers, rows):
        seconds = max(t.finish for t in finish_times(offers, (0, *accumulate(shares))))
        if seconds < bound:
            bound, best = seconds, shares
    return best


def divisions(offers: Sequence[Offer], rows: int) -> Iterator[list[int]]:
    """Yield every legal division."""
    for inner in combinations_with_replacement(range(rows + 1), len(offers) - 1):
        shares = [high - low for low, high in pairwise((0, *inner, rows))]
        if legal(offers, shares):
            yield shares


def legal(offers: Sequence[Offer], shares: Sequence[int]) -> bool:
    """Say whether shares keep to limits, and all but at most one to their granules."""
    odd = 0
    for offer, share in zip(offers, shares, strict=True):
        if share and not offer.least <= share <= offer.room:
            return False
        odd += share % offer.granule != 0
    return odd <= 1


TINY = 3000  # devices x rows x rows: so few that the best rows are found exactly
ALIGN = 0.01  # of the time that it may cost to make the last share a multiple of its granule too
FEW = 150  # divisions of rows over devices on a shared link: so few that each is tried


def adapt(
    offers: Sequence[Offer],
    rows: int,
    division: Division,
    *,
    sticky: Sequence[int] | None = None,
    keep: float = 0.03,
) -> Division:
    """Return a division in whole rows: by granules, within limits, predicted no slower than the best single device.

    Every share but at most one is a multiple of its device's granule (all are if that costs under 1 %), and none is
    below its `least`; only if memory leaves no other choice are these two rules broken. `sticky`, the previous cuts, stay if they are predicted at most `keep` slower and
    no slower than the best single device; with an infinite `keep` they stay whenever they fit.
    """
    trial = LocalSearch(offers, rows, in_rows(offers, rows, division))
    trial.align(max(trial.finish) * (1 + ALIGN))
    best = choose(offers, rows, trial.shares, division)
    if sticky is not None and still_fits(offers, rows, sticky):
        times = tuple(finish_times(offers, sticky))
        seconds = max(t.finish for t in times)
        if keep == inf or seconds <= min(best.seconds * (1 + keep), *division.single.values()):
            left_out = reasons(offers, sticky, seconds, division.left_out)
            return Division(tuple(sticky), seconds, times, left_out, division.single, sticky=True)
    return best


def good_enough(
    offers: Sequence[Offer], rows: int, sticky: Sequence[int] | None, *, keep: float = 0.03
) -> Division | None:
    """Return the previous cuts as a division if no other can be `keep` faster: many devices are looked at once.

    None if they do not fit, if another one may be, if devices queue for links (where that is not so easily told), or if
    there are so few devices that all divisions are.
    """
    if sticky is None or len(offers) <= MANY or not still_fits(offers, rows, sticky) or not rows or shared(offers):
        return None
    times = tuple(finish_times(offers, sticky))
    seconds = max(t.finish for t in times)
    single = singles(offers, rows)
    used = frozenset(i for i, offer in enumerate(offers) if offer.room > 0)
    if seconds > min(single.values()) or DeviceWalk(offers, rows).enough(used, seconds / (1 + keep)):
        return None
    return Division(tuple(sticky), seconds, times, reasons(offers, sticky, seconds), single, sticky=True)


def in_rows(offers: Sequence[Offer], rows: int, division: Division) -> list[int]:
    """Return the best whole shares we find.

    Exact for few rows. For more, without shared links, the time is at most one granule's worth above the best: rounding
    down leaves less than a granule per device, so while rows are left some device has not taken its one more. On a
    shared link such a granule also holds up those behind it; the moves afterwards make good for most of that.
    """
    trial = LocalSearch(offers, rows, rounded(offers, rows, division))
    trial.spread()
    trial.polish()
    if trial.queued:
        if comb(rows + len(offers) - 1, len(offers) - 1) <= FEW:
            return every_division(offers, rows, trial.seconds) or trial.shares
    elif len(offers) * rows * rows <= TINY and trial.seconds > division.seconds * (1 + 1e-9):
        return along_the_axis(offers, rows, trial.seconds) or trial.shares
    return trial.shares


def rounded(offers: Sequence[Offer], rows: int, division: Division) -> list[int]:
    """Return the shares rounded down to granules; a device that would get too little is left out for the others."""
    allowed = list(offers)
    while True:
        shares = [int(share + 1e-6) // o.granule * o.granule for o, share in zip(offers, division.shares, strict=True)]
        little = [i for i, offer in enumerate(offers) if 0 < shares[i] < offer.least]
        if not little:
            return shares
        least = min(little, key=lambda i: division.shares[i])
        allowed[least] = offers[least]._replace(most=0)
        if sum(offer.room for offer in allowed) < rows:
            return shares
        division = divide(allowed, rows)


def choose(offers: Sequence[Offer], rows: int, shares: Sequence[int], division: Division) -> Division:
    """Return the division by `shares`, or everything on the best single device if that is predicted no slower."""
    cuts = (0, *accumulate(shares))
    times = tuple(finish_times(offers, cuts))
    seconds = max(t.finish for t in times)
    single = min(division.single, key=division.single.__getitem__)
    alone = division.single[single]
    several = sum(share > 0 for share in shares) > 1
    if alone < seconds or (several and (alone == seconds or (alone < inf and not legal(offers, shares)))):
        return everything(offers, rows, single, seconds, division.single)
    return Division(cuts, seconds, times, reasons(offers, cuts, seconds, division.left_out), division.single)


def everything(offers: Sequence[Offer], rows: int, device: str, divided: float, single: dict[str, float]) -> Division:
    """Return the division that gives all rows to one device."""
    at = next(i for i, offer in enumerate(offers) if offer.device == device)
    cuts = tuple(0 if i <= at else rows for i in range(len(offers) + 1))
    times = tuple(finish_times(offers, cuts))
    why = f"alone is faster: {device} takes {single[device] * 1e3:.3g} ms, divided it would be {divided * 1e3:.3g} ms"
    if divided < single[device]:
        why = f"{device} does all: no division keeps to the devices' granules, memory and least shares"
    left_out = {offer.device: why for i, offer in enumerate(offers) if i != at}
    return Division(cuts, times[at].finish, times, left_out, single)


def reasons(
    offers: Sequence[Offer], cuts: Sequence[float], seconds: float, known: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return why each device without rows has none; `known` are the reasons found before rounding."""
    return {
        offer.device: known.get(offer.device) or why_not(offer, seconds)
        for offer, (low, high) in zip(offers, pairwise(cuts), strict=True)
        if high <= low
    }


def still_fits(offers: Sequence[Offer], rows: int, cuts: Sequence[int]) -> bool:
    """Say whether earlier cuts divide these rows over these devices."""
    if len(cuts) != len(offers) + 1 or cuts[0] != 0 or cuts[-1] != rows:
        return False
    return all(0 <= high - low <= offer.room for offer, (low, high) in zip(offers, pairwise(cuts), strict=True))
