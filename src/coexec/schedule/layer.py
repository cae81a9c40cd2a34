"""What every layer of the scheduler has: a successor, and what the event of the moment tells.

Before: schedule/events.py.  After: the layers.  A layer knows its successor and nobody else.
"""

from __future__ import annotations

from typing import Any, Protocol

from .events import Batch, Called, Dropped, Mark, Read, Settle

Item = Called | Read | Mark | Dropped
"""What goes from layer to layer, in the order of the program."""


class Moment:
    """What all layers see of the event that is being handled."""

    __slots__ = ("idle", "now", "out")

    def __init__(self) -> None:
        self.out: list[Batch] = []  # what the event has led to so far
        self.now = 0.0  # seconds, by the driver's clock
        self.idle = False  # nothing is under way, apart from `out`


class Layer(Protocol):
    """One stage of the way from a call to its instructions."""

    def on(self, item: Any) -> None:
        """Take the next item."""

    def settle(self, event: Settle) -> None:
        """Let go of what is held back, and let the successors do the same."""

    @property
    def holding(self) -> bool:
        """Whether something is held back, here or behind."""
