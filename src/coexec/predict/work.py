"""What a chunk asks of a device: the numbers that predictions are made from.

Before: nothing.  After: predict/model.py, plan/.  Knows no kernel, device or clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .operations import Operations


class Work(NamedTuple):
    """The features of one chunk (or of a whole task), by the names that its kernel declares."""

    features: tuple[float, ...]  # the first is the bytes touched, then bytes per array, points, flops, the user's own
    kind: str = ""  # the arrays' types: only calls of one kind are comparable
    key: Hashable = None  # the exact shapes, if history may be looked up by them
    operations: Operations | None = (
        None  # of a kernel that declares none: what its body tells, for whoever never ran it
    )

    @property
    def size(self) -> float:
        """The bytes touched."""
        return self.features[0]

    def flops(self, at: int | None) -> float | None:
        """Return the operations: the feature that counts them, or what its body tells; None if nobody knows."""
        if at is not None:
            return self.features[at]
        return self.operations.count if self.operations is not None else None


class Estimate(NamedTuple):
    """A prediction: seconds, how far measurements lay from such predictions, and what it rests on."""

    seconds: float
    spread: float = 0.0  # relative: 0.1 means that half of the measurements lay within 10 %
    source: str = "history"  # history, regression, roofline
    joules: float | None = None
