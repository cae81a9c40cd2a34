"""The least time that a device's peak rates allow: all there is to say when nothing was measured.

Before: machine/.  After: predict/model.py.  Knows two rates; no kernel.
"""

from __future__ import annotations

from typing import NamedTuple


class Roofline(NamedTuple):
    """The peak rates of a device, as far as they are known."""

    flops: float | None = None  # operations per second
    bandwidth: float | None = None  # bytes per second, to and from its memory

    def seconds(self, work_flops: float | None, work_bytes: float | None) -> float | None:
        """Return the time of the slower of computing and moving, or None if no rate is known for either."""
        terms = [
            work / rate
            for work, rate in ((work_flops, self.flops), (work_bytes, self.bandwidth))
            if work is not None and rate is not None and rate > 0.0
        ]
        return max(terms, default=None)
