"""Into how many pieces one device's share is cut, so that copies overlap compute or a piece fits the cache.

Before: plan/offer.py.  After: plan/planner.py.  Knows numbers only: no task, array or kernel.
"""

from __future__ import annotations

from .offer import Offer

MOST = 16
WORTH = 0.01  # more pieces must gain this part of the time


def pieces(offer: Offer, rows: int, most: int = MOST) -> int:
    """Return into how many equal pieces to cut `rows` rows of this device: one if more would not end sooner."""
    best, seconds = 1, in_pieces(offer, rows, 1)
    for count in range(2, min(most, rows // max(offer.granule, offer.least)) + 1):
        if (t := in_pieces(offer, rows, count)) < seconds * (1 - WORTH):
            best, seconds = count, t
    return best


def in_pieces(offer: Offer, rows: int, count: int) -> float:
    """Return when a share in `count` pieces is done: each is copied, computed and copied back, one behind the other.

    What must be copied whatever the share comes first. Every piece costs a launch: the curve at its size has it.
    """
    lo, hi = offer.there
    copying = offer.in_per_row * max(0, rows - max(0, hi - lo)) / count
    computing = offer.compute.seconds(rows / count)
    returning = offer.out_per_row * rows / count
    copied, computed, returned = offer.fixed_in, offer.wait, 0.0
    for _ in range(count):
        copied += copying
        computed = max(copied, computed) + computing
        returned = max(computed, returned) + returning
    return returned + offer.fixed_out
