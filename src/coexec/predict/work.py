"""What a chunk asks of a device: the numbers that predictions are made from.

Before: nothing.  After: predict/model.py, plan/.  Knows no kernel, device or clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Work(NamedTuple):
    """The features of one chunk (or of a whole task), by the names that its kernel declares."""

    features: tuple[float, ...]  # the first is the bytes touched, then bytes per array, points, flops, the user's own
    kind: str = ""  # the arrays' types: only calls of one kind are comparable
    key: Hashable = None  # the exact shapes, if history may be looked up by them

    @property
    def size(self) -> float:
        """The bytes touched."""
        return self.features[0]


class Estimate(NamedTuple):
    """A prediction: seconds, how far measurements lay from such predictions, and what it rests on."""

    seconds: float
    spread: float = 0.0  # relative: 0.1 means that half of the measurements lay within 10 %
    source: str = "history"  # history, regression, roofline
    joules: float | None = None
