"""The best division into whole rows when there are few of them: by dynamic programming, or by trying each.

Before: plan/offer.py.  After: plan/adapt.py.  Knows numbers only: no task, array or kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations_with_replacement, pairwise

from .offer import Offer, finish_times

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
