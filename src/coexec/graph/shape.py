"""What calls have in common that are alike: found once per call, so that whatever follows from it is worked out once.

Before: program/, graph/task.py.  After: graph/task_graph.py, plan/decisions.py, lower/recipes.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..program.array import Array
from ..program.kernel import Kernel
from ..program.user_mappers import Function
from .command import Chunk
from .task import Task

TRIES = 12  # times in a row that something was learnt in vain, until the next must wait
PATIENCE = 64  # calls at most that it waits then
FORMS = 24  # for which something is remembered of calls of one shape
MOST = 1 << 12  # shapes that are remembered
FLEETING = 1 << 12  # elements that are set in less time than a task takes
MOST_CALLS = 64  # calls that are remembered with the first of their arrays


class FormCache:
    """What followed from a call, by the forms that its arrays had. Most calls never come again, so the second time counts."""

    __slots__ = ("_left", "_patience", "forms", "tries")

    def __init__(self) -> None:
        self.forms: dict[Any, Any] = {}
        self._left = 1  # times that nothing is learnt
        self.tries = 0  # times that something was, since one of it was of use: whoever finds such a one says so
        self._patience = 1

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
        if not self.tries:
            self._patience = 1
        self.tries += 1
        if self.tries > TRIES:
            self._left, self._patience = self._patience, min(2 * self._patience, PATIENCE)
            self.forms.clear()
        return False


def is_fleeting(task: Task) -> bool:
    """Tell whether a call sets so few elements that it is a task at some times and none at others, as where its array is.

    It is no part of what the program repeats: with it and without, that would be two things, and nothing learnt of the one would
    count for the other.
    """
    kernel = task.kernel
    return kernel is not None and kernel.internal and task.arrays[0]._box.volume <= FLEETING


class CallShape:
    """All calls of one kernel, with the same options, on views of the same boxes. Compared by identity."""

    __slots__ = ("asks_user", "fleeting", "last", "links", "recipes", "repeatable", "steady")

    def __init__(self, task: Task) -> None:
        self.asks_user = any(type(param.access.mapper) is Function for param in task.accesses)  # mappers of the user's
        self.fleeting = is_fleeting(task)
        kernel = task.kernel
        self.repeatable = (  # what it is lowered to depends on its arrays alone
            kernel is not None and kernel.order is None and not kernel.host and not kernel.cost.scratches
        )
        self.last: dict[tuple[int, int], Any] = {}  # recipes, chunks and shares, by the identities of the last two
        self.links = FormCache()  # graph/edge_cache.py's, by the forms of the arrays' trackers
        self.recipes: dict[Hashable, Any] = {}  # lower/recipes.py's, by who computes what
        self.steady: Any = None  # plan/decisions.py's: how all of them are planned, whatever else is going on


class SameCall:
    """All calls of one kernel on the same views of the same arrays: what follows from these alone.

    It holds no array, for it is kept with the first of them: others are known by their numbers, which no two arrays of a
    runtime have in common.
    """

    __slots__ = (
        "domain", "extents", "ids", "key", "launch", "once", "options", "queued", "shape", "shapes", "straight", "views"
    )  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.views = [(array._storage.id, array._box, array._cut) for array in task.arrays]
        self.ids = tuple([id for id, _, _ in self.views])
        self.extents, self.domain, self.key = task.extents, task.domain, task.key
        self.once, self.shapes = task.once, task.shapes
        self.options = task.options  # of the last call
        self.shape: CallShape | None = None  # of the last call, if it had one and everything was this rank's
        self.launch: Any = None  # lower/lowering.py's: the step of the last call, and what it was made of
        self.straight: Any = None  # straight.py's: how it ran in the caller
        self.queued: Any = None  # straight_queue.py's: how it went to a queue


def same_call(kernel: Kernel, arrays: Sequence[Array], owner: object) -> SameCall | None:
    """Return what is known of a call on these views, or None."""
    if not arrays:
        return None
    first = arrays[0]
    storage = first._storage
    calls = storage.calls
    if calls is None:
        return None
    same: SameCall | None = calls.get(kernel if first._box is storage.box else (kernel, first._box))
    if same is None:
        return None
    for array, (id, box, cut) in zip(arrays, same.views):  # noqa: B905 - as long as each other, and this is hot
        storage = array._storage
        if (
            storage.id != id
            or storage.session is not owner
            or (array._box is not box and array._box != box)
            or (array._cut is not cut and array._cut != cut)
        ):
            return None
    return same


def remember_call(kernel: Kernel, task: Task) -> SameCall | None:
    """Remember what follows from the arrays of a call alone; None if something does not."""
    arrays = task.arrays
    if not arrays or kernel.looked_at or kernel.space_varies or not all(array._storage.id for array in arrays):
        return None
    first = arrays[0]
    storage = first._storage
    if storage.calls is None:
        storage.calls = {}
    elif len(storage.calls) >= MOST_CALLS:
        storage.calls.clear()
    same = storage.calls[kernel if first._box is storage.box else (kernel, first._box)] = SameCall(task)
    return same


class CallShapes:
    """Finds the shape of a call."""

    def __init__(self) -> None:
        self._known: dict[Hashable, CallShape] = {}

    def find(self, task: Task) -> CallShape:
        """Return the shape that the call of `task` shares with those like it, which is then known with its arrays."""
        same = task.same
        shape = self._find(task)
        if same is not None and task.deal is None:
            same.shape, same.options = shape, task.options
        return shape

    def _find(self, task: Task) -> CallShape:
        kernel, arrays = task.kernel, task.arrays
        assert kernel is not None
        views = tuple([(array._box, array._cut) for array in arrays])
        if task.once and not kernel.looked_at and len(task.accesses) == len(kernel.array_params):
            what: Hashable = (kernel, task.key, task.options, task.deal, views)
        else:
            what = (kernel, task.key, task.options, task.deal, views, _described(task, kernel))
        shape = self._known.get(what)
        if shape is None:
            if len(self._known) >= MOST:
                self._known.clear()
            shape = self._known[what] = CallShape(task)
        return shape


def _described(task: Task, kernel: Kernel) -> Hashable:
    """Return what else decides how a call is divided: scalars, and arrays that are given as such or several times."""
    what: tuple[Any, ...] = ()
    if kernel.looked_at:
        what = (*what, *[None if type(v := task.scalars[name]) is Array else v for name in kernel.looked_at])
    if len(task.accesses) > len(kernel.array_params):
        what = (*what, *[param.name for param in task.accesses[len(kernel.array_params) :]])  # arrays as scalars
    if not task.once:  # one array several times
        ids = [array._storage.id for array in task.arrays]
        what = (*what, tuple([ids.index(id) for id in ids]))
    return what


def answers(task: Task, chunks: Sequence[Chunk]) -> tuple[Any, ...]:
    """Return what range mappers of the user's say of each chunk: they may say something else next time."""
    if task.shape is None or not task.shape.asks_user:
        return ()
    return tuple(
        [
            param.access.mapper.boxes(chunk.box, task.extents, array.shape)
            for param, array in zip(task.accesses, task.arrays, strict=True)
            if type(param.access.mapper) is Function
            for chunk in chunks
        ]
    )
