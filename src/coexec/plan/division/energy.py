"""Divide one task for little energy: as little as a deadline allows, or quickly under a cap of joules.

Before: plan/division/bisection.py, plan/division/whole_rows.py, plan/division/milp.py.  After: plan/planner.py.  Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
from math import comb, inf

from ...errors import PlanError
from .bisection import Reach, divide
from .local_search import LocalSearch
from .milp import divide_under_cap
from .offers import Division, Offer, Times, finish_times, joules, singles
from .whole_rows import FEW, adapt, divisions, reasons

ALL_CHOICES = 4  # devices of which every choice is tried
TIMES = 8  # finish times between the least and the longest allowed that are tried

Key = tuple[float, float]  # how far a limit is broken, then what is to be small
Judge = Callable[[Sequence[Times]], Key]


def least_energy(offers: Sequence[Offer], rows: int, *, deadline: float = inf) -> Division:
    """Return the division in whole rows that needs the least energy and is done by `deadline`.

    Few rows are divided in every way. For more, and for each choice of devices (of many: the most frugal ones), several
    finish times are tried and the devices filled by joules per row, the most frugal first, which is optimal for
    straight lines without fixed costs; the best of these is then improved granule by granule.
    """
    fastest = adapt(offers, rows, divide(offers, rows))
    if fastest.seconds > deadline:
        raise PlanError(
            f"no division is done within {deadline:g} s: the fastest takes {fastest.seconds:.4g} s; allow more time"
        )

    def judge(times: Sequence[Times]) -> Key:
        return max(0.0, max(t.finish for t in times) - deadline), joules(offers, times)

    tried = [[int(share) for share in fastest.shares]]
    if comb(rows + len(offers) - 1, len(offers) - 1) <= FEW:
        tried += divisions(offers, rows)
    elif fastest.seconds:
        longest = min(deadline, max(fastest.seconds, *(s for s in fastest.single.values() if s < inf), 0.0))
        for some in choices(offers, rows):
            tried += [
                filled(some, rows, fastest.seconds * (longest / fastest.seconds) ** (i / TIMES))
                for i in range(TIMES + 1)
            ]
    best = min(tried, key=lambda shares: judge(times_of(offers, shares)))
    return division_of(offers, rows, improved(offers, best, judge))


def choices(offers: Sequence[Offer], rows: int) -> list[list[Offer]]:
    """Return choices of devices that have room for all rows; the others have room for nothing."""
    order = sorted(range(len(offers)), key=lambda i: per_row(offers[i], int(min(rows, offers[i].room))))
    if len(offers) <= ALL_CHOICES:
        chosen = [set(some) for count in range(1, len(order) + 1) for some in combinations(order, count)]
    else:
        chosen = [set(order[:count]) for count in range(1, len(order) + 1)]
    found = [[o if i in some else o._replace(most=0) for i, o in enumerate(offers)] for some in chosen]
    return [some for some in found if sum(offer.room for offer in some) >= rows]


def under_cap(offers: Sequence[Offer], rows: int, cap: float) -> Division:
    """Return the fastest division in whole rows that needs at most `cap` joules."""
    division = divide_under_cap(offers, rows, cap)

    def judge(times: Sequence[Times]) -> Key:
        return max(0.0, joules(offers, times) - cap), max(t.finish for t in times)

    trial = LocalSearch(
        offers, rows, [int(share + 1e-6) // o.granule * o.granule for o, share in paired(offers, division)]
    )
    trial.spread()
    shares = improved(offers, trial.shares, judge)
    found = division_of(offers, rows, shares)
    if joules(offers, found.times) > cap * (1 + 1e-9):
        raise PlanError(
            f"no division of {rows} rows in whole granules needs at most {cap:g} J; "
            f"the closest needs {joules(offers, found.times):.4g} J; raise the cap"
        )
    return found


def paired(offers: Sequence[Offer], division: Division) -> list[tuple[Offer, float]]:
    """Return each offer with its share."""
    return list(zip(offers, division.shares, strict=True))


def filled(offers: Sequence[Offer], rows: int, seconds: float) -> list[int]:
    """Return shares that are done within `seconds`, as far as links are free, from the most frugal device on."""
    reach = [int(min(rows, Reach(offer).rows(0.0, seconds, 0.0) + 1e-6)) for offer in offers]
    shares = [0] * len(offers)
    left = rows
    for i in sorted(range(len(offers)), key=lambda i: per_row(offers[i], reach[i])):
        share = min(left, reach[i])
        share -= share % offers[i].granule if share < left else 0
        if share >= offers[i].least:
            shares[i] = share
            left -= share
    trial = LocalSearch(offers, rows, shares)
    trial.spread()
    return trial.shares


def per_row(offer: Offer, share: int) -> float:
    """Return the joules that each of `share` rows adds on this device."""
    if not share:
        return inf
    spent = offer.input_seconds(0, share) + offer.compute.seconds(share) + offer.fixed_out + offer.out_per_row * share
    return (offer.watts - offer.idle_watts) * spent / share


def times_of(offers: Sequence[Offer], shares: Sequence[int]) -> list[Times]:
    """Return when each device is done with its share."""
    return finish_times(offers, (0, *accumulate(shares)))


def improved(offers: Sequence[Offer], shares: list[int], judge: Judge) -> list[int]:
    """Return the shares after every move between two devices that the judge likes better."""
    trial = LocalSearch(offers, sum(shares), shares)
    best = judge(times_of(offers, shares))
    moved = True
    while moved:
        moved = False
        for changes in trial.all_moves():
            after = [changes.get(i, share) for i, share in enumerate(trial.shares)]
            if (key := judge(times_of(offers, after))) < (best[0], best[1] * (1 - 1e-12)):
                best, moved = key, True
                trial.change(changes)
                break
    return trial.shares


def division_of(offers: Sequence[Offer], rows: int, shares: Sequence[int]) -> Division:
    """Return the division by these shares."""
    cuts = (0, *accumulate(shares))
    times = tuple(finish_times(offers, cuts))
    seconds = max(t.finish for t in times)
    return Division(cuts, seconds, times, reasons(offers, cuts, seconds), singles(offers, rows))
