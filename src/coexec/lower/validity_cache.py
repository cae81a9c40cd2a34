"""Questions about the validity of arrays, and changes of it, that came up before: programs repeat themselves.

Before: geometry/region_map.py.  After: lower/coherence.py.  Knows masks of memories by box, no array.

An answer depends on what a map holds and on the question alone, so remembering it changes nothing but the time it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..geometry import Box, Pattern, RegionMap, bounding

Boxes = tuple[Box, ...]
"""What one read sees: disjoint boxes, most often one."""
MOST = 100_000  # boxes that are remembered at a time


class ValidityCache:
    """Remembers what followed from a pattern of a map."""

    def __init__(self) -> None:
        self._patterns: dict[Hashable, Pattern[int]] = {}
        self._answers: dict[tuple[Pattern[int], Hashable], Any] = {}
        self._boxes = 0  # about how many are remembered

    def pattern(self, map: RegionMap[int]) -> Pattern[int]:
        """Return what a map holds: the same object whenever that is the same."""
        pattern = map.pattern
        if pattern is None:
            signature = map.signature()
            pattern = self._patterns.get(signature)
            if pattern is None:
                pattern = Pattern(map)
                self._make_room(len(pattern.entries))
                self._patterns[signature] = pattern
            map.pattern = pattern
        return pattern

    def answer(self, map: RegionMap[int], question: Hashable) -> Any:
        """Return what `learn` was told, or None."""
        return self._answers.get((self.pattern(map), question))

    def learn(self, map: RegionMap[int], question: Hashable, answer: Any, boxes: int) -> None:
        """Remember the answer, of so many boxes, to a question about what a map holds."""
        self._make_room(boxes)
        self._answers[self.pattern(map), question] = answer

    def change(self, map: RegionMap[int], question: Hashable, change: Callable[[], None]) -> None:
        """Make a change of a map; the question tells all that it depends on beside what the map holds."""
        before = self.pattern(map)
        after = self._answers.get((before, question))
        if after is not None:
            map.become(after)
            return
        change()
        after = self.pattern(map)
        self._make_room(1)
        self._answers[before, question] = after

    def _make_room(self, boxes: int) -> None:
        self._boxes += boxes + 1
        if self._boxes > MOST:
            self._boxes = 0
            self._patterns.clear()
            self._answers.clear()


def missing_of(valid: RegionMap[int], memory: int, reads: Sequence[Boxes]) -> list[tuple[Box, int, int]]:
    """Return the disjoint pieces not valid in `memory`, with where they are valid and which reads want them."""
    bit = 1 << memory
    if len(reads) == 1:
        wanted = [(box, 1) for box in reads[0]]
    else:
        hull = bounding([box for boxes in reads for box in boxes])
        readers: RegionMap[int] = RegionMap(hull, 0)
        for number, boxes in enumerate(reads):
            for box in boxes:
                for piece, who in readers.get(box):
                    readers.set(piece, who | 1 << number)
        wanted = [(piece, who) for piece, who in readers.get(hull) if who]
    return [
        (piece, mask, who)
        for box, who in wanted
        for piece, mask in valid.get(box)
        if mask and not mask & bit  # nothing to move for what was never written
    ]
