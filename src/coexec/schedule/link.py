"""The layer that numbers tasks and finds what each comes after: the task graph.

Before: graph/task_graph.py, schedule/fuse.py.  After: schedule/plan.py.  Pure.

A task has its number before anything else is decided about it, so numbers depend on the program alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..graph.task import Task
from ..graph.task_graph import TaskGraph
from ..graph.tracker import Tracker
from .events import Called, Dropped, Mark, Settle
from .layer import Item, Layer


class Plans(Layer, Protocol):
    """The layer behind."""

    def call(self, task: Task) -> None:
        """Take the task of a call, which is numbered."""


class LinkLayer:
    """Builds the task graph."""

    def __init__(self, successor: Plans, *, shapes: bool) -> None:
        self._successor = successor
        self._shapes = shapes  # what calls have in common is remembered
        self.graph = TaskGraph()
        self._last = 0  # the number of the last mark

    def become(self, other: LinkLayer, twins: Mapping[Any, Tracker]) -> None:
        """Go on as another layer would, on arrays whose trackers have a twin."""
        self.graph = other.graph.copy(twins)
        self._last = other._last

    @property
    def holding(self) -> bool:
        """Whether something is held back behind."""
        return self._successor.holding

    def call(self, task: Task) -> None:
        """Number the task of a call, and link it."""
        graph = self.graph
        if self._shapes:
            same = task.same
            if same is not None and same.shape is not None and same.options is task.options and task.deal is None:
                task.shape = same.shape
            else:
                task.shape = graph.shapes.find(task)
        graph.add(task)
        self._successor.call(task)

    def on(self, item: Item) -> None:
        """Number a task and link it."""
        graph = self.graph
        if isinstance(item, Called):
            self.call(item.task)
            return
        if isinstance(item, Mark):
            graph.mark(item.task)
            # An epoch is waited for at once. A horizon stands for what came before the one before it, which is over.
            graph.passed(self._last if item.horizon else item.task.id)
            self._last = item.task.id
        elif not isinstance(item, Dropped):
            graph.add(item.task)
        self._successor.on(item)

    def settle(self, event: Settle) -> None:
        """Hold nothing."""
        self._successor.settle(event)
