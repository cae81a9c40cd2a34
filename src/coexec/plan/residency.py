"""What plans may ask about data: in which memories it lies, and whether there is room for more.

Before: graph/.  After: every module of plan/ that asks; lower/whereabouts.py answers.  Memories are numbers, sets of them bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..geometry import Box
    from ..graph.task import Task
    from ..program.array import Array
    from .candidate import Candidate


class Residency(Protocol):
    """Where arrays are, once everything that was planned so far is carried out."""

    def held_by(self, array: Array) -> int:
        """Return the memories that will hold all of an array. An initial value is made where it is needed."""

    def places(self, array: Array) -> Sequence[tuple[Box, int]]:
        """Return the parts of an array, and the memories that will hold each; none where nothing need be copied."""

    def spread(self, array: Array) -> bool:
        """Tell whether parts of an array will be valid in different memories."""

    def where(self, array: int) -> Sequence[tuple[Box, int]] | None:
        """Return the parts of the array of that number, and the memories that will hold each; None if there is none."""

    def pattern(self, array: Array) -> Hashable:
        """Return what is equal for arrays of one shape whose parts are valid in the same memories now."""

    def roomy(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices whose memories cannot hold the smallest part of a task; raise if none is left."""
