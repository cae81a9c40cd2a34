"""The typed graph of a body: values that are pulled at an index, and stores in the order in which the body makes them.

Before: compile/host.py.  After: all else of compile/.  Plain data: knows no NumPy call, no compiler and no device.

A value is a node without memory. A store writes one into a region of a buffer: an argument of the kernel, or memory of
the compiled form's own. Each node and store has a time, the order in which the body made it: a `Read` means what its
buffer held at its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from .host import Guards, Host, Size, equal_sizes, size_key
from .refused import Untraceable

Shape = tuple[Size, ...]
TICKS = 100_000  # of one body: what makes more is a Python loop, which would take memory and minutes


class Line(NamedTuple):
    """One axis of what is looked at: from `start` by `step` along `axis` of the view, or at `start` if that is None."""

    start: Size
    step: int
    axis: Any  # int, or the name of a loop's variable where loops are written, or None

    @property
    def key(self) -> Any:
        """What is equal for axes that are always alike."""
        return size_key(self.start), self.step, self.axis


Axes = tuple[Line, ...]


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory: an argument of the kernel, or (`parameter` false) a temporary of the compiled form."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    parameter: bool
    version: int = 0  # stores so far
    born: int = 0  # when the body made it; arguments were there before


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Expr:
    """A value: its shape, its type and when the body made it."""

    shape: Shape
    dtype: np.dtype[Any]
    time: int

    @property
    def args(self) -> tuple[Expr, ...]:
        """The values it is computed from."""
        return ()


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Constant(Expr):
    """One number, the same at every call."""

    value: Any


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Scalar(Expr):
    """A number that the host computes at each call, converted to the type."""

    host: Host


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Read(Expr):
    """What a buffer held after its `version` stores."""

    buffer: Buffer
    version: int


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Counting(Expr):
    """0, 1, 2, ... along its only axis."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class View(Expr):
    """A part of a value, axis by axis of that value; also what broadcasts one."""

    arg: Expr
    axes: Axes

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.arg,)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Apply(Expr):
    """A function of elements: a ufunc by its name, or "where". All arguments have its shape, or none at all."""

    function: str
    inputs: tuple[Expr, ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.inputs


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Convert(Expr):
    """The same value in another type, as `astype` does it."""

    arg: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.arg,)


STEPS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
"""The function that takes one more element into a reduction."""
FIRST = {"sum": 0, "prod": 1, "any": 0, "all": 1}
"""What NumPy begins with; extremes begin with their first element."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Fold(Expr):
    """One axis reduced: by "sum", "prod", "max", "min", "any", "all", or to the place of the "argmax", "argmin"."""

    kind: str
    arg: Expr
    axis: int
    free: bool = False  # a sum of floats in any order

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.arg,)

    @property
    def extent(self) -> Size:
        """How many elements are reduced to one."""
        return self.arg.shape[self.axis]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Gather(Expr):
    """Elements of memory, chosen along one axis by an array of indices from 0, whose axes take the place of that one."""

    arg: Expr  # a `Read`, or a `View` of one
    index: Expr  # of integers; whoever calls has seen to it that none lies beyond
    axis: int

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.arg, self.index)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Draw(Expr):
    """Random doubles that depend on an element's number: "uniform" from 0 to 1, or "normal"."""

    kind: str
    numbers: tuple[Expr, ...]  # the key, two words; the number of the first element; the steps along each axis

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.numbers


@dataclass(frozen=True, eq=False, slots=True)
class Assign:
    """A value written into a region of a buffer."""

    buffer: Buffer
    axes: Axes
    value: Expr  # of the region's shape
    time: int


@dataclass(slots=True)
class Traced:
    """A traced body: its parameters, stores in order, and what must hold at a call."""

    name: str
    parameters: dict[str, Any]  # name -> Buffer, Host or another plain value, as passed
    writes: frozenset[str]
    stores: list[Assign]
    guards: Guards
    captured: list[Any] = field(default_factory=list)  # outside names and their values
    indices: list[tuple[str, Size]] = field(default_factory=list)  # arrays of indices, and what these must lie in
    free: bool = False  # it may come close to NumPy's results instead of having its bits


class Clock:
    """Times of nodes and stores, up to `TICKS`."""

    def __init__(self) -> None:
        self._times = count(1)

    def tick(self) -> int:
        """Return the next time; raise `Untraceable` if there were too many."""
        now = next(self._times)
        if now > TICKS:
            raise Untraceable("it computes too many values: a Python loop over elements?")
        return now


def whole_axes(ndim: int) -> Axes:
    """Return the view of everything."""
    return tuple(Line(0, 1, axis) for axis in range(ndim))


def is_whole(axes: Axes, shape: Shape, source: Shape) -> bool:
    """Tell whether a view shows all of its source, in order."""
    return (
        len(shape) == len(source)
        and all(along.key == ((((), 0)), 1, axis) for axis, along in enumerate(axes))
        and all(map(equal_sizes, shape, source))
    )


def through(outer: Axes, inner: Axes) -> Axes:
    """Return the view `inner` of the view `outer`: axes of the outer's source in terms of the inner's."""
    found = []
    for start, step, axis in outer:
        if axis is None:
            found.append(Line(start, step, None))
        else:
            further = inner[axis]
            found.append(Line(start + step * further.start, step * further.step, further.axis))
    return tuple(found)


def view(arg: Expr, axes: Axes, shape: Shape, time: int) -> Expr:
    """Return a view, merged with one that it looks through."""
    if isinstance(arg, View):
        axes = through(arg.axes, axes)
        arg = arg.arg
    if is_whole(axes, shape, arg.shape):
        return arg
    return View(shape=shape, dtype=arg.dtype, time=time, arg=arg, axes=axes)


def broadcast(arg: Expr, shape: Shape, time: int) -> Expr:
    """Return a value of a larger shape; the caller has found that this is possible."""
    skipped = len(shape) - len(arg.shape)
    axes = tuple(
        Line(0, 1, None)
        if isinstance(extent, int) and extent == 1 and not _is_one(shape[skipped + axis])
        else Line(0, 1, skipped + axis)
        for axis, extent in enumerate(arg.shape)
    )
    return view(arg, axes, shape, time)


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


def convert(arg: Expr, dtype: np.dtype[Any], time: int) -> Expr:
    """Return a value in a type."""
    if arg.dtype == dtype:
        return arg
    return Convert(shape=arg.shape, dtype=dtype, time=time, arg=arg)


def with_args(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return the node over other arguments of the same shapes and types."""
    if args == node.args:
        return node
    if isinstance(node, Apply):
        return replace(node, inputs=args)
    if isinstance(node, Gather):
        return replace(node, arg=args[0], index=args[1])
    if isinstance(node, Draw):
        return replace(node, numbers=args)
    assert isinstance(node, View | Convert | Fold)
    return replace(node, arg=args[0])


def nodes_of(*roots: Expr) -> Iterator[Expr]:
    """Yield every node once, arguments first."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args)]


def substituted(roots: list[Expr], known: dict[int, Expr]) -> list[Expr]:
    """Return values with some nodes, by id, replaced by others."""
    made: dict[int, Expr] = {}
    for node in nodes_of(*roots):
        made[id(node)] = known.get(id(node)) or with_args(node, tuple(made[id(arg)] for arg in node.args))
    return [made[id(root)] for root in roots]
