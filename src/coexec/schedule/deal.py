"""The layer that ranks have: what of a call is this rank's. Every rank computes the deals of all alike.

Before: cluster/, schedule/fuse.py.  After: schedule/link.py.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..graph.task import Task
from .events import Called, Dropped, Read, Settle
from .layer import Item, Layer

if TYPE_CHECKING:
    from ..cluster.table import Seat


class DealLayer:
    """One rank among others."""

    def __init__(self, successor: Layer, seat: Seat, check: Callable[[Task], None]) -> None:
        self._successor = successor
        self._seat = seat
        self._check = check  # raises what planning a task would raise

    @property
    def holding(self) -> bool:
        """Whether something is held back behind."""
        return self._successor.holding

    def on(self, item: Item) -> None:
        """Deal what must be dealt."""
        if isinstance(item, Called):
            self._seat.task(item.task, self._check)
        elif isinstance(item, Read):
            readers = item.readers
            self._seat.read(item.task, range(self._seat.ranks) if readers is None else readers)
        elif isinstance(item, Dropped):
            self._seat.forget(item.array)
        self._successor.on(item)

    def settle(self, event: Settle) -> None:
        """Hold nothing."""
        self._successor.settle(event)
