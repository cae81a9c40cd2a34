"""Tell the planner where data is: lowering's answers to plan/candidate.py's questions.

Before: lower/state.py, lower/lowering.py.  After: plan/, which asks through plan/candidate.py.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from ..geometry import Box
from ..program.array import Array
from .lowering import Lowering
from .state import ArrayState

if TYPE_CHECKING:
    from ..graph.task import Task
    from ..plan.candidate import Candidate


class Whereabouts:
    """Knows where lowering has put data, and will have put it when what is held back is lowered."""

    def __init__(self, lowering: Lowering) -> None:
        self._states = lowering._states
        self._capacity = lowering.capacity
        self._in_full = len(lowering.platform.memories) > 2  # else data that is not in one place is in both

    def held_by(self, array: Array) -> int:
        """Return the memories that will hold all of an array."""
        state: ArrayState = array._storage.state
        return state.held_by(array._box)

    def places(self, array: Array) -> Sequence[tuple[Box, int]]:
        """Return the parts of an array, and the memories that will hold each."""
        state: ArrayState = array._storage.state
        return state.places(array._box)

    def spread(self, array: Array) -> bool:
        """Tell whether parts of an array will be valid in different memories."""
        state: ArrayState = array._storage.state
        valid = state.valid if state.expected is None else state.expected
        return valid.uniform is None and not state.held_by(array._box)

    def where(self, array: int) -> Sequence[tuple[Box, int]] | None:
        """Return the parts of the array of that number, and the memories that will hold each; None if there is none."""
        state = self._states.get(array)
        return None if state is None else state.places(state.box)

    def pattern(self, array: Array) -> Hashable:
        """Return what is equal for arrays of one shape whose parts are valid in the same memories now."""
        valid = array._storage.state.valid
        uniform: int | None = valid.uniform
        return tuple(valid.entries()) if uniform is None and self._in_full else uniform

    def roomy(self, task: Task, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out devices whose memories cannot hold the smallest part of a task; raise if none is left."""
        return self._capacity.roomy(task, candidates)
