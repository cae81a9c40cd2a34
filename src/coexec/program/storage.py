"""What all views of one array share.

Before: geometry/.  After: program/array.py, program/small.py.  Knows no memory, but for an array that is at home.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..geometry import whole

Shape = tuple[int, ...]
LATER = frozenset(
    {
        "borrowed",
        "box",
        "calls",
        "cuts",
        "dtype",
        "end",
        "initial",
        "known",
        "lent",
        "name",
        "session",
        "shape",
        "tracker",
        "watched",
    }
)
"""What program/small.py does not set when it makes an array: most of its results are gone before anybody asks."""


class HandleEnd:
    """Goes with the last handle of an array that the stages know, and tells its runtime."""

    __slots__ = ("_id", "_runtime")

    def __init__(self, runtime: Any, id: int) -> None:
        self._runtime = runtime
        self._id = id

    def __del__(self) -> None:
        # A finalizer may run anywhere, also while the runtime's lock is held: it only enqueues.
        self._runtime.dropped(self._id)


class Storage:
    """What all views of one array share. `state`, `tracker`, `cuts` and `known` belong to lower/, graph/, plan/, execute/.

    An array is *at home* while `home` is set: a NumPy array on the host that holds the present value of every element, and
    no task that is not over touches it. Then it may be read and changed at once, under the runtime's lock. A task on the
    array makes it leave home first. An array that has never left home has a number and no state: no stage knows it.
    """

    __slots__ = (
        "__weakref__", "borrowed", "box", "calls", "cuts", "dtype", "end", "home", "id", "initial", "known", "lent", "name", "session",
        "shape", "small", "state", "tracker", "watched",
    )  # fmt: skip

    def __init__(self, runtime: Any, shape: Shape, dtype: np.dtype[Any], initial: Any = None) -> None:
        self.shape = shape
        self.box = whole(shape)
        self.dtype = dtype
        self.initial = initial  # the value every element starts with; None = not initialised
        self.session = runtime
        self.id = 0
        self.name = ""
        self.state: Any = None
        self.tracker: Any = None
        self.known: Any = None  # calls on it, by kernel, that may be run at once
        self.calls: Any = None  # graph/shape.py's own: what is known of calls on it
        self.cuts: Any = None  # where the last task that was divided over devices cut it
        self.borrowed = False  # the first contents are somebody else's memory
        self.lent: dict[int, Any] = {}  # values that look at it: program/value.py's own
        self.watched = False  # whether anybody looks after those values
        self.home: np.ndarray[Any, Any] | None = None
        self.end: HandleEnd | None = None
        self.small: Any = None  # the SmallCalls of its runtime; None: every call on it becomes a task


class HomeStorage(Storage):
    """What views share of an array that was made at home: what nobody has asked for yet is not set.

    It is a Storage as soon as somebody asks for one of these, and so before it leaves home. A class of its own, because CPython
    looks attributes of a class that has `__getattr__` up by name each time, and those of storages are asked for in every call.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Set the attributes that were left out when this array was made at home, and return the one that was asked for."""
        if name not in LATER:
            raise AttributeError(name)
        home = self.home
        assert home is not None, "an array is complete before it leaves home"
        self.shape, self.dtype, self.session = home.shape, home.dtype, self.small.owner
        self.box = whole(self.shape)
        self.initial = self.tracker = self.known = self.calls = self.cuts = self.end = None
        self.name = ""
        self.borrowed = self.watched = False
        self.lent = {}
        self.__class__ = Storage  # type: ignore[assignment]  # of the same slots
        return getattr(self, name)
