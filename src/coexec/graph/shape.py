"""What calls have in common that are alike: found once per call, so that whatever follows from it is worked out once.

Before: program/, graph/task.py.  After: graph/task_graph.py, plan/decisions.py, lower/recipes.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..program.array import Array
from ..program.mapping import Function
from .command import Chunk
from .task import Task

TRIES = 12  # times in a row that something was learnt in vain, until the next must wait
PATIENCE = 64  # calls at most that it waits then
FORMS = 24  # for which something is remembered of calls of one shape
MOST = 1 << 12  # shapes that are remembered


class Known:
    """What followed from a call, by the forms that its arrays had. Most calls never come again, so the second time counts."""

    __slots__ = ("_left", "_patience", "_tries", "forms")

    def __init__(self) -> None:
        self.forms: dict[Any, Any] = {}
        self._left = 1  # times that nothing is learnt
        self._tries = 0  # times that something was, without any use of it
        self._patience = 1

    def hit(self, forms: Any) -> Any:
        """Return what followed from these forms, or None."""
        found = self.forms.get(forms)
        if found is not None:
            self._tries, self._patience = 0, 1
        return found

    def learn(self, forms: Any, what: Any) -> None:
        """Remember what follows from these forms."""
        if len(self.forms) >= FORMS:
            self.forms.clear()
        self.forms[forms] = what

    def wait(self) -> bool:
        """Tell whether nothing is to be learnt this time: where many were of no use, the next waits longer and longer."""
        if self._left:
            self._left -= 1
            return True
        self._tries += 1
        if self._tries > TRIES:
            self._left, self._patience = self._patience, min(2 * self._patience, PATIENCE)
            self.forms.clear()
        return False


class CallShape:
    """All calls of one kernel, with the same options, on views of the same boxes. Compared by identity."""

    __slots__ = ("asks", "last", "links", "recipes", "repeatable")

    def __init__(self, task: Task) -> None:
        self.asks = any(type(param.access.mapper) is Function for param in task.accesses)  # mappers of the user's
        kernel = task.kernel
        self.repeatable = (  # what it is lowered to depends on its arrays alone
            kernel is not None and kernel.order is None and not kernel.host and not kernel.asks.scratches
        )
        self.last: tuple[Any, Any, Any] = (None, None, None)  # chunks, shares and recipes of the last call
        self.links = Known()  # graph/links.py's, by the forms of the arrays' trackers
        self.recipes: dict[Hashable, Any] = {}  # lower/recipes.py's, by who computes what


class CallShapes:
    """Finds the shape of a call."""

    def __init__(self) -> None:
        self._known: dict[Hashable, CallShape] = {}

    def of(self, task: Task) -> CallShape:
        """Return the shape that the call of `task` shares with those like it."""
        what = _described(task)
        shape = self._known.get(what)
        if shape is None:
            if len(self._known) >= MOST:
                self._known.clear()
            shape = self._known[what] = CallShape(task)
        return shape


def _described(task: Task) -> Hashable:
    """Return what is called, on which views, with what decides how it is divided."""
    kernel, arrays = task.kernel, task.arrays
    assert kernel is not None
    what: tuple[Any, ...] = (kernel, task.key, task.options, task.deal)
    if kernel.looked_at:
        what = (*what, *[None if type(v := task.scalars[name]) is Array else v for name in kernel.looked_at])
    if len(task.accesses) > len(kernel.array_params):
        what = (*what, *[param.name for param in task.accesses[len(kernel.array_params) :]])  # arrays as scalars
    if not task.once:  # one array several times
        ids = [array._storage.id for array in arrays]
        what = (*what, tuple([ids.index(id) for id in ids]))
    return what, tuple([(array._box, array._cut) for array in arrays])


def answers(task: Task, chunks: Sequence[Chunk]) -> tuple[Any, ...]:
    """Return what range mappers of the user's say of each chunk: they may say something else next time."""
    if task.shape is None or not task.shape.asks:
        return ()
    return tuple(
        [
            param.access.mapper.boxes(chunk.box, task.space, array.shape)
            for param, array in zip(task.accesses, task.arrays, strict=True)
            if type(param.access.mapper) is Function
            for chunk in chunks
        ]
    )
