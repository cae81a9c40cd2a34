"""From which memory something is copied, if several hold it.

Before: machine/.  After: lower/coherence.py.  Knows links, never arrays.
"""

from __future__ import annotations

from ..errors import PlanError
from ..machine.platform import HOST, Platform
from .state import MEMORIES

USUAL = 1 << 20
"""Bytes for which links are compared."""


class Nearest:
    """Finds the nearest of several memories, and remembers."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._known: dict[tuple[int, int], int] = {}

    def source(self, mask: int, memory: int) -> int:
        """Return the memory of `mask` with the fastest direct link to `memory`, or -1.

        Of several it is the next by number, so that not everybody asks the first, and in a ring everybody asks a neighbour.
        """
        known = self._known.get((mask, memory))
        if known is None:
            known = self._known[mask, memory] = self._find(mask, memory)
        return known

    def _find(self, mask: int, memory: int) -> int:
        platform = self._platform
        valid = [m for m in range(len(platform.memories)) if mask >> m & 1]
        found = [(m, link) for m in valid if (link := platform.link(m, memory)) is not None]
        if not found and not any(platform.link(m, HOST) for m in valid):
            names = ", ".join(platform.memories[m].name for m in valid)
            raise PlanError(f"no link leads from {names} to {platform.memories[memory].name}")
        linked = [(link.seconds(USUAL), (m - memory) % MEMORIES, m) for m, link in found]
        return min(linked)[2] if linked else -1
