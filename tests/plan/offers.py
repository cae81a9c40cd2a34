"""Platforms made up for the tests of the optimiser, and the slow but sure ways to divide over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf

import numpy as np
from hypothesis import assume, strategies as st

from coexec.plan.division.offers import Curve, Offer, finish_times

TERA = 1e12
BUS = 12e9


def worked_example(size: int = 30000, scale: float = 1.0) -> list[Offer]:
    """Section 5: cpu, gpu, xpu with 0.25, 6 and 30 TMAC/s, a 12 GB/s bus, the fastest first on it."""

    def accelerator(name: str, rate: float, width: int, priority: int) -> Offer:
        row = width * size / BUS
        return Offer(
            name,
            Curve.line(scale * size * size / (rate * TERA), 1e-3 * scale),
            fixed_in=scale * row * size,
            in_per_row=scale * row,
            out_per_row=scale * row,
            link="bus",
            priority=priority,
        )

    cpu = Offer("cpu", Curve.line(scale * size * size / (0.25 * TERA), 5e-3 * scale))
    return [cpu, accelerator("gpu", 6, 4, 1), accelerator("xpu", 30, 2, 0)]


def tight_system(offers: Sequence[Offer], rows: int) -> tuple[list[float], float]:
    """Solve for the shares and the time of straight lines when every device is used and finishes last."""
    n = len(offers)
    matrix, right = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
    for i, offer in enumerate(offers):
        slope, start = offer.compute.slopes()[0], offer.compute.ys[0]
        matrix[i, i] += (slope + offer.out_per_row) * rows
        right[i] -= start + offer.fixed_out
        for j, other in enumerate(offers):
            copies = offer.fixed_in or offer.in_per_row
            ahead = copies and offer.link and other.link == offer.link and other.priority < offer.priority
            if j == i or ahead:
                matrix[i, j] += other.in_per_row * rows
                right[i] -= other.fixed_in
        matrix[i, n] = -1.0
    matrix[n, :n], right[n] = 1.0, 1.0
    solved = np.linalg.solve(matrix, right)
    return list(solved[:n]), float(solved[n])


def legal_divisions(offers: Sequence[Offer], rows: int) -> Iterator[list[int]]:
    """Yield every division into whole rows that keeps to granules, limits and least shares."""
    for shares in product(range(rows + 1), repeat=len(offers)):
        if sum(shares) == rows and keeps_the_rules(offers, shares):
            yield list(shares)


def keeps_the_rules(offers: Sequence[Offer], shares: Sequence[float]) -> bool:
    """Say whether no share is too small or too large, and all but at most one are multiples of their granules."""
    odd = sum(share % offer.granule != 0 for offer, share in zip(offers, shares, strict=True))
    fits = all(not share or offer.least <= share <= offer.room for offer, share in zip(offers, shares, strict=True))
    return fits and odd <= 1


def seconds_of(offers: Sequence[Offer], shares: Sequence[float]) -> float:
    """Return the finish time of a division by shares."""
    cuts = [0.0]
    for share in shares:
        cuts.append(cuts[-1] + share)
    return max(t.finish for t in finish_times(offers, cuts))


def exhaustive(offers: Sequence[Offer], rows: int) -> float:
    """Return the least finish time of any legal division or single device."""
    whole = [[rows if i == j else 0 for j in range(len(offers))] for i, o in enumerate(offers) if rows <= o.room]
    return min((seconds_of(offers, shares) for shares in [*whole, *legal_divisions(offers, rows)]), default=inf)


seconds = st.integers(0, 40).map(lambda n: n / 8)
positive = st.integers(1, 40).map(lambda n: n / 8)


@st.composite
def curves(draw: st.DrawFn, *, straight: bool = False) -> Curve:
    """Draw a straight line, or a curve with up to four segments, convex or not."""
    start = draw(seconds)
    if straight or draw(st.booleans()):
        return Curve.line(draw(positive), start)
    points = [(0.0, start)]
    for width in draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)):
        points.append((points[-1][0] + width, points[-1][1] + width * draw(positive)))
    return Curve.through(points)


@st.composite
def platforms(
    draw: st.DrawFn, *, rows: int = 14, devices: int = 3, links: bool = True, rules: bool = True, straight: bool = False
) -> list[Offer]:
    """Draw offers whose memory is enough for all rows."""
    offers = []
    for i in range(draw(st.integers(1, devices))):
        low = draw(st.integers(0, rows))
        copies = draw(st.booleans())
        offers.append(
            Offer(
                f"d{i}",
                draw(curves(straight=straight)),
                granule=draw(st.integers(1, 4)) if rules else 1,
                least=draw(st.integers(1, 3)) if rules else 1,
                most=draw(st.one_of(st.none(), st.integers(0, rows))) if rules else None,
                wait=draw(seconds) if rules else 0.0,
                fixed_in=draw(seconds) if copies else 0.0,
                in_per_row=draw(seconds) if copies else 0.0,
                there=(low, draw(st.integers(low, rows))) if rules and copies else (0, 0),
                out_per_row=draw(seconds) if copies else 0.0,
                fixed_out=draw(seconds) if copies else 0.0,
                link="bus" if links and draw(st.booleans()) else "",
                priority=draw(st.integers(0, 3)),
            )
        )
    assume(sum(offer.room for offer in offers) >= rows)
    return offers
