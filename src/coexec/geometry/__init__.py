"""Boxes, regions, maps over boxes and strided sets: pure integer geometry.

Before: nothing.  After: program/ and everything behind it.  Knows nothing of arrays, devices or values.
"""

from __future__ import annotations

from .box import Box, Point, bounding, covers, cut, overlap, overlaps, subtract, whole

__all__ = [
    "Box",
    "Point",
    "bounding",
    "covers",
    "cut",
    "overlap",
    "overlaps",
    "subtract",
    "whole",
]
