"""What placement is asked, and what answers: a call's work, where its inputs are, and a policy that chooses among candidates.

Before: plan/candidate.py.  After: plan/place.py: the policies.  Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..predict.work import Work
from .candidate import Candidate


class Where(Protocol):
    """Where a task's inputs are: (bytes, memories as bits) per array."""

    def __call__(self) -> Sequence[tuple[int, int]]: ...


class PlacementPolicy(Protocol):
    """Chooses among candidates; says why."""

    pairs: bool
    """Whether it compares variants too; if not, it is given one candidate per device."""

    def choose(self, candidates: Sequence[Candidate], asked: Asked, where: Where) -> tuple[Candidate, str]:
        """Return the candidate and the reason."""


class Asked(NamedTuple):
    """What a task asks of a device."""

    work: Work
    ready: float = 0.0  # seconds from now until its inputs are predicted to be made
    op: str = ""  # that devices need a design for
