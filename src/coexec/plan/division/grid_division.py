"""Bands of neighbouring devices with about equal speed: the first axis is cut by bands, the second within each.

Before: plan/division/offers.py, plan/division/bisection.py.  After: plan/planner.py.  Knows numbers only: no task, array or kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf, nextafter
from typing import NamedTuple

from ...errors import PlanError
from .bisection import Reach
from .offers import Curve, Offer


class Band(NamedTuple):
    """Neighbouring devices taken for one."""

    offers: tuple[Offer, ...]
    curve: Curve  # rows that they do together -> seconds, if they finish together and no link is shared


def bands(offers: Sequence[Offer], count: int) -> list[Band]:
    """Return `count` bands of neighbouring devices, in order, whose speeds in total are as equal as neighbours allow."""
    if not 1 <= count <= len(offers):
        raise PlanError(f"{len(offers)} devices cannot form {count} bands")
    done = [0.0, *accumulate(speed(offer) for offer in offers)]
    cuts = [0]
    for band in range(1, count):
        goal = done[-1] * band / count
        free = range(cuts[-1] + 1, len(offers) - (count - band) + 1)  # leave one device for each band to come
        cuts.append(min(free, key=lambda i: abs(done[i] - goal)))
    cuts.append(len(offers))
    return [Band(tuple(offers[low:high]), together(offers[low:high])) for low, high in pairwise(cuts)]


def speed(offer: Offer) -> float:
    """Return the rows per second of a large share, copies included."""
    slope = Reach(offer).moving.slopes()[-1]
    return 1 / slope if slope else 1e30


def together(offers: Sequence[Offer]) -> Curve:
    """Return the curve of devices that finish together: the rows within a time are the sum of theirs."""
    reach = [Reach(offer) for offer in offers]
    times = {end for r in reach for end in corners(r)}
    last = max(times)
    points: dict[float, float] = {}
    for seconds in sorted(times | {2 * last}):
        rows = sum(r.rows(0.0, seconds, 0.0) for r in reach)
        if not rows:
            points[0.0] = seconds  # the last moment before the first of them begins
        elif rows < inf:
            points.setdefault(rows, seconds)
        else:  # from here on more rows cost nothing
            before = sum(r.rows(0.0, nextafter(seconds, 0.0), 0.0) for r in reach)
            most = max(before, *points, 0.0)
            points |= {most: points.get(most, seconds), most + 1: seconds, most + 2: seconds}
            break
    points.setdefault(0.0, min(times))
    return Curve.through(points.items())


def corners(reach: Reach) -> list[float]:
    """Return the times at which a device's rows within a time change their slope."""
    offer = reach.offer
    ends = [y + offer.fixed_in + offer.fixed_out for y in reach.moving.ys]
    if offer.wait:
        ends += [y + offer.wait + offer.fixed_out for y in reach.staying.ys]
    return ends
