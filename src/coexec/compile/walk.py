"""Values pulled at an index: loops, what was computed in each, and where something new belongs.

Before: compile/graph.py.  After: compile/llvm.py, compile/opencl.py.  Knows no language: subclasses write it.

A value at an index is computed in the outermost loop that knows all of the index, once, and remembered there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from .graph import (
    Apply,
    Assign,
    Constant,
    Convert,
    Counting,
    Draw,
    Expr,
    Fold,
    Gather,
    Line,
    Read,
    Scalar,
    View,
    through,
)
from .host import Size, size_key
from .refused import Untraceable

LINES = 30_000  # of a compiled form; compilers take minutes for more

Index = tuple[Line, ...]  # `axis` is the name of a loop's variable, or None


class WantsMemory(Exception):
    """A value that would be computed again and again in a loop: it is to be stored before."""

    def __init__(self, node: Expr) -> None:
        super().__init__("a value is to be stored first")
        self.node = node


class Strip(NamedTuple):
    """A part of a row: from where to where, and how many elements it has at most."""

    low: str
    high: str
    size: Size


class Nest:
    """A loop: its variable, its lines, what was computed in it, and what it goes over."""

    __slots__ = ("bounds", "counts", "lanes", "lines", "memo", "parent", "step", "strip", "var")

    def __init__(
        self, var: str, bounds: tuple[str, str], parent: Nest | None, *, step: int = 1, lanes: int = 1
    ) -> None:
        self.var = var
        self.bounds = bounds
        self.parent = parent
        self.step = step
        self.lanes = lanes  # elements of a vector along the variable
        self.counts = True  # whether the variable is an index of values
        self.strip: Strip | None = None  # what the loops go over that make up a row together
        self.lines: list[Any] = []
        self.memo: dict[Any, Any] = {}


class Held(NamedTuple):
    """A computed value: how it is named, its type, whether it is a vector, and the loop in which it is known."""

    text: str
    dtype: np.dtype[Any]
    vector: bool
    home: Nest


class Walk(ABC):
    """Writes the loops of a group of stores. Subclasses know the language."""

    def __init__(self) -> None:
        self._numbers = count()
        self.root = Nest("", ("", ""), None)
        self.root.counts = False
        self.stack: list[Nest] = [self.root]
        self.lines = 0
        self.stored: list[tuple[Assign, Index]] = []  # stores of the present loop that later ones look at
        self.versions: dict[int, int] = {}  # store -> how many stores its buffer has seen then

    def number_stores(self, stores: list[Assign]) -> None:
        """Note which contents of its buffer each store makes."""
        seen: dict[int, int] = {}
        for store in stores:
            seen[id(store.buffer)] = self.versions[id(store)] = seen.get(id(store.buffer), 0) + 1

    # Language ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def constant(self, node: Constant) -> Held:
        """Return a number of the body."""

    @abstractmethod
    def scalar(self, node: Scalar) -> Held:
        """Return a number that the host passes."""

    @abstractmethod
    def load(self, node: Read, at: Index) -> Held:
        """Return what a buffer holds at an index."""

    @abstractmethod
    def counting(self, at: Line) -> Held:
        """Return an index as a number."""

    @abstractmethod
    def convert(self, value: Held, dtype: np.dtype[Any]) -> Held:
        """Return a value in another type."""

    @abstractmethod
    def apply(self, node: Apply, at: Index) -> Held:
        """Return a function of elements at an index."""

    @abstractmethod
    def gather(self, node: Gather, at: Index) -> Held:
        """Return what lies at an index that is computed."""

    @abstractmethod
    def draw(self, node: Draw, at: Index) -> Held:
        """Return a random number at an index."""

    @abstractmethod
    def fold(self, node: Fold, at: Index) -> Held:
        """Return a reduction at an index."""

    # Pulling ----------------------------------------------------------------------------------------------------------

    def name(self, prefix: str = "v") -> str:
        """Return a new name."""
        return f"{prefix}{next(self._numbers)}"

    def say(self, line: str, nest: Nest | None = None) -> None:
        """Add a line to a loop."""
        self.lines += 1
        if self.lines > LINES:
            raise Untraceable(f"its compiled form has more than {LINES} lines")
        (nest or self.stack[-1]).lines.append(line)

    def home(self, at: Index) -> Nest:
        """Return the outermost loop that knows an index."""
        names = {line.axis for line in at if line.axis is not None}
        for nest in reversed(self.stack):
            if nest.var in names:
                return nest
        return self.root

    def deepest(self, values: list[Held]) -> Nest:
        """Return the loop in which all values are known."""
        return max((value.home for value in values), key=self.stack.index, default=self.root)

    def within(self, nest: Nest, action: Callable[[], Any]) -> Any:
        """Do something as if inside a loop further out."""
        stack = self.stack
        self.stack = stack[: stack.index(nest) + 1]
        try:
            return action()
        finally:
            self.stack = stack

    def emit(self, node: Expr, at: Index) -> Held:
        """Return a value at an index, computed now or before."""
        if not node.shape:
            at = ()
        key = id(node), tuple(line.key for line in at)
        for nest in reversed(self.stack):
            if key in nest.memo:
                found: Held = nest.memo[key]
                return found
        value = self._emit(node, at)
        value.home.memo[key] = value
        return value

    def _emit(self, node: Expr, at: Index) -> Held:
        match node:
            case Constant():
                return self.constant(node)
            case Scalar():
                return self.scalar(node)
            case Read():
                return self._forwarded(node, at) or self.load(node, at)
            case View():
                return self.emit(node.arg, through(node.axes, at))
            case Counting():
                return self.counting(at[0])
            case Convert():
                return self.convert(self.emit(node.arg, at), node.dtype)
            case Apply():
                return self.apply(node, at)
            case Gather():
                return self.gather(node, at)
            case Draw():
                return self.draw(node, at)
            case Fold():
                self._check_repeats(node, at)
                return self.fold(node, at)
        raise AssertionError(node)

    def _forwarded(self, node: Read, at: Index) -> Held | None:
        """Return what a store of the same loop writes there; loops that run before it go by other variables."""
        for store, place in reversed(self.stored):
            if store.buffer is node.buffer and self.versions[id(store)] <= node.version:
                renamed = _renaming(through(store.axes, place), at)
                if renamed is not None:
                    moved = tuple(line._replace(axis=renamed.get(line.axis, line.axis)) for line in place)
                    return self.emit(store.value, moved)
        return None

    def _check_repeats(self, node: Fold, at: Index) -> None:
        """Raise if a reduction would be done again by a loop that it does not depend on."""
        known = {line.axis for line in at}
        home = self.home(at)
        for nest in self.stack[: self.stack.index(home)]:
            if nest.counts and nest.var not in known:
                raise WantsMemory(node)

    def args_at(self, node: Apply, at: Index) -> list[Held]:
        """Return the arguments of a function at an index."""
        return [self.emit(arg, at) for arg in node.inputs]


def _renaming(place: Index, at: Index) -> dict[Any, Any] | None:
    """Return which variables make one index of another, or None if none do."""
    if len(place) != len(at):
        return None
    names: dict[Any, Any] = {None: None}
    for one, other in zip(place, at, strict=True):
        if size_key(one.start) != size_key(other.start) or one.step != other.step:
            return None
        if names.setdefault(one.axis, other.axis) != other.axis:
            return None
    return names
