"""Cut a task's index space: evenly over devices, and into fixed blocks for reductions.

Before: geometry/.  After: plan/planner.py.  Knows boxes only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..geometry import Box, cut
from ..graph.command import Chunk

BLOCKS = 32
BLOCK_ELEMENTS = 1 << 15


def even(box: Box, axis: int, devices: Sequence[str]) -> tuple[Chunk, ...]:
    """Cut `box` along `axis` into parts of equal size, one per device, fewer if there are not enough rows."""
    parts = cut(box, axis, len(devices))
    return tuple(Chunk(devices[i], part, i) for i, part in enumerate(parts))


def blocks(box: Box, axis: int, devices: Sequence[str]) -> tuple[Chunk, ...]:
    """Cut `box` into blocks that depend on its shape alone, dealt to the devices in contiguous runs.

    A reduction combines the blocks in their order, so its bits do not depend on who computed which.
    """
    parts = cut(box, axis, max(1, min(BLOCKS, box.volume // BLOCK_ELEMENTS)))
    return tuple(Chunk(devices[i * len(devices) // len(parts)], part, i) for i, part in enumerate(parts))
