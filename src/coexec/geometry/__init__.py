"""Boxes, regions, maps over boxes and strided sets: pure integer geometry.

Before: nothing.  After: program/ and everything behind it.  Knows nothing of arrays, devices or values.
"""

from __future__ import annotations

from .box import Box, Point, bounding, covers, cut, overlap, overlaps, subtract, whole
from .grid import Grid, every_point, grid_covers, grids_meet, last_holders
from .region import Region
from .region_map import Pattern, RegionMap
from .shelf import Shelf, meeting, shelved

__all__ = [
    "Box",
    "Grid",
    "Pattern",
    "Point",
    "Region",
    "RegionMap",
    "Shelf",
    "bounding",
    "covers",
    "cut",
    "every_point",
    "grid_covers",
    "grids_meet",
    "last_holders",
    "meeting",
    "overlap",
    "overlaps",
    "shelved",
    "subtract",
    "whole",
]
