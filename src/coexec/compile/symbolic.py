"""Arrays as a body sees them while it is traced: they have NumPy's manners and compute nothing.

Before: compile/graph.py.  After: compile/functions.py, compile/trace.py.  Knows no compiler.

An array is a view of a cell. A cell is memory (an argument, or a temporary written in parts) or just a value that was
computed. Whatever is not known here raises `Untraceable`, so that the NumPy body serves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .cells import BOOL, CarriedBy, Cell, TraceTape, as_dtype, check_dtype
from .graph import (
    Apply,
    Axes,
    Constant,
    Expr,
    Line,
    Scalar,
    Shape,
    broadcast,
    convert,
    is_whole,
    through,
    view,
    whole_axes,
)
from .host import Host, Size, equal_sizes, is_number, plain
from .number import number_as
from .refused import Untraceable
from .sizes import fits_into, normal, product, region, same_shape

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # NumPy's functions by name, filled by compile/functions.py
METHODS: dict[str, Callable[..., Any]] = {}  # methods of arrays beside those below, filled there too
HOOKS: dict[str, Callable[..., Any]] = {}  # "ufunc", "reduce", "gather": compile/calling.py, folds.py, gathers.py


class Symbolic(np.lib.mixins.NDArrayOperatorsMixin):
    """A view of a cell, with the manners of an ndarray."""

    def __init__(
        self, cell: Cell, axes: Axes | None = None, shape: Shape | None = None, *, repeats: bool = False
    ) -> None:
        """Show a cell. What `repeats` elements is never written."""
        self.cell = cell
        self.repeats = repeats
        self.axes = whole_axes(len(cell.shape)) if axes is None else axes
        self.shape: Shape = cell.shape if shape is None else shape

    # What it is -------------------------------------------------------------------------------------------------------

    @property
    def tape(self) -> TraceTape:
        return self.cell.tape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.cell.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        return product(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Size:
        return self.size * self.itemsize

    @property
    def T(self) -> Symbolic:  # noqa: N802 - NumPy's name
        return self.transpose()

    def node(self) -> Expr:
        """Return what it holds now."""
        return view(self.cell.node(), self.axes, self.shape, self.tape.clock.tick())

    def is_whole(self) -> bool:
        """Tell whether it shows all of its cell."""
        return is_whole(self.axes, self.shape, self.cell.shape)

    def _shows_as(self, other: Symbolic) -> bool:
        """Tell whether another view of the cell shows the same elements."""
        axes = [line.key for line in self.axes], [line.key for line in other.axes]
        return (
            axes[0] == axes[1]
            and len(self.shape) == len(other.shape)
            and all(map(equal_sizes, self.shape, other.shape))
        )

    def fresh(self, value: Expr) -> Symbolic:
        """Return a new array of a computed value."""
        return Symbolic(Cell(self.tape, value.dtype, value.shape, value=value))

    # Views ------------------------------------------------------------------------------------------------------------

    def _looking(self, axes: Axes, shape: Shape) -> Symbolic:
        return Symbolic(self.cell, through(self.axes, axes), shape, repeats=self.repeats)

    def __getitem__(self, key: Any) -> Symbolic:
        entries = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(entry, Symbolic | np.ndarray | list) for entry in entries):
            chosen: Symbolic = HOOKS["gather"](self, entries)
            return chosen
        axes, shape = region(entries, self.shape)
        found = self._looking(axes, shape)
        if self.ndim and not shape and Ellipsis not in entries:
            return found.copy()  # an element is a number, and later writes do not change it
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, Symbolic) and key.dtype == bool:
            self._write_masked(key, value)
            return
        entries = list(key) if isinstance(key, tuple) else [key]
        if any(isinstance(entry, Symbolic | np.ndarray | list) for entry in entries):
            raise Untraceable("it assigns to what an array of indices chooses")
        axes, shape = region(entries, self.shape)
        self._looking(axes, shape).write(value)

    def transpose(self, *axes: Any) -> Symbolic:
        """As NumPy's."""
        chosen = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        order = [operator.index(axis) % self.ndim for axis in chosen] or list(range(self.ndim))[::-1]
        if sorted(order) != list(range(self.ndim)):
            raise Untraceable("transpose() with other axes than the array has")
        where = {old: new for new, old in enumerate(order)}
        lines = tuple(Line(0, 1, where[axis]) for axis in range(self.ndim))
        return self._looking(lines, tuple(self.shape[axis] for axis in order))

    def swapaxes(self, first: int, second: int) -> Symbolic:
        """As NumPy's."""
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return self.transpose(order)

    def __iter__(self) -> Iterator[Symbolic]:
        if not self.shape:
            raise Untraceable("it iterates over a number")
        return (self[i] for i in range(operator.index(self.shape[0])))

    def __len__(self) -> int:
        return operator.index(self.shape[0])

    # Writes -----------------------------------------------------------------------------------------------------------

    def write(self, value: Any, casting: str = "unsafe") -> None:
        """Assign, as `self[...] = value` does."""
        if not self.cell.writable or self.repeats:
            raise Untraceable(f"it writes into {self._name()!r}, which is only read")
        if isinstance(value, np.ndarray) and value.ndim:
            raise Untraceable("it uses an array from outside")
        if isinstance(value, Symbolic) and value.cell is self.cell and self._shows_as(value):
            return  # the second half of `x[part] += y`
        given = operand(value, self.dtype, self.tape)
        if not np.can_cast(given.dtype, self.dtype, casting):  # type: ignore[arg-type]
            raise Untraceable(f"NumPy does not write {given.dtype} into {self.dtype} there")
        if not fits_into(given.shape, self.shape):
            raise Untraceable("what it assigns does not have the shape of what it assigns to")
        time = self.tape.clock.tick()
        node = broadcast(_checked_convert(given, self.dtype, time), self.shape, time)
        cell = self.cell
        if cell.buffer is None and self.is_whole() and not cell.remembered:
            if self.tape.in_later_loop(cell.born):
                raise CarriedBy(cell.number)
            cell.value = node
        else:
            self.tape.store(cell.in_memory(), self.axes, node)

    def _write_masked(self, mask: Symbolic, value: Any) -> None:
        if not same_shape(mask.shape, self.shape):
            raise Untraceable("it assigns by a mask of another shape")
        given = operand(value, self.dtype, self.tape)
        if given.shape:
            raise Untraceable("it assigns an array by a mask")
        time = self.tape.clock.tick()
        new = broadcast(_checked_convert(given, self.dtype, time), self.shape, time)
        chosen = Apply(
            shape=self.shape, dtype=self.dtype, time=time, function="where", inputs=(mask.node(), new, self.node())
        )
        self.write(self.fresh(chosen))

    def fill(self, value: Any) -> None:
        """As NumPy's."""
        self.write(value)

    def _name(self) -> str:
        return self.cell.buffer.name if self.cell.buffer is not None else "an array"

    # Copies -----------------------------------------------------------------------------------------------------------

    def copy(self, order: str = "C") -> Symbolic:
        """As NumPy's."""
        del order
        return self.fresh(self.node())

    def astype(self, dtype: Any, *, copy: bool = True, casting: str = "unsafe", **other: Any) -> Symbolic:
        """As NumPy's."""
        wanted = check_dtype(as_dtype(dtype))
        if other or not np.can_cast(self.dtype, wanted, casting):  # type: ignore[arg-type]
            raise Untraceable("astype() with options")
        if not copy and wanted == self.dtype:
            return self
        return self.fresh(_checked_convert(self.node(), wanted, self.tape.clock.tick()))

    def reshape(self, *shape: Any, order: str = "C") -> Symbolic:
        """As NumPy's, of what lies in memory without gaps."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        if order != "C":
            raise Untraceable("reshape() in another order")
        return self._reshaped(list(given))

    def ravel(self, order: str = "C") -> Symbolic:
        """As NumPy's."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Symbolic:
        """As NumPy's."""
        return self.reshape(-1, order=order).copy()

    def _reshaped(self, given: list[Any]) -> Symbolic:
        open_axes = [axis for axis, extent in enumerate(given) if isinstance(extent, int) and extent == -1]
        if open_axes:
            rest = product(tuple(extent for axis, extent in enumerate(given) if axis != open_axes[0]))
            given[open_axes[0]] = self.size // rest if not equal_sizes(rest, 1) else self.size
        new = tuple(normal(extent) for extent in given)
        if len(new) == self.ndim and all(map(equal_sizes, new, self.shape)):
            return self
        if product(new) != self.size:
            raise Untraceable("reshape() to another number of elements")
        if not self.is_whole():
            raise Untraceable("reshape() of a part of an array")
        buffer = self.cell.in_memory()
        if buffer.parameter:
            self.tape.guards.dense.add(buffer.name)
        cell = Cell(self.tape, self.dtype, new, buffer=buffer, writable=False)
        return Symbolic(cell)

    # NumPy's protocols ------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return HOOKS["ufunc"](self, function, method, inputs, options)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: Any) -> Any:
        known = FUNCTIONS.get(function.__name__)
        if known is None:
            raise Untraceable(f"np.{function.__name__} is not compiled")
        return known(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **options: METHODS[name](self, *args, **options)
        if name.startswith("__"):
            raise AttributeError(name)
        raise Untraceable(f"array.{name} is not compiled")

    def __pow__(self, other: Any) -> Any:
        return HOOKS["ufunc"](self, np.power, "__call__", (self, other), {})

    def __bool__(self) -> bool:
        raise Untraceable("it branches by the values of an array")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Untraceable("it gives an array to something that is not NumPy")

    def __float__(self) -> float:
        raise Untraceable("it makes a Python number of an element")

    __int__ = __index__ = __complex__ = __float__

    def __repr__(self) -> str:
        raise Untraceable("it makes text of an array")

    def __format__(self, _: str) -> str:
        raise Untraceable("it makes text of an array")

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, _: Any) -> bool:
        raise Untraceable("it searches an array")


def _checked_convert(node: Expr, dtype: np.dtype[Any], time: int) -> Expr:
    """Return a value in a type, if both have one meaning for every value."""
    if node.dtype.kind == "f" and dtype.kind in "iu" and dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise Untraceable(f"{node.dtype} to {dtype} depends on the processor beyond the type's ends")
    return convert(node, dtype, time)


def symbolic_arrays(values: Sequence[Any]) -> list[Symbolic]:
    """Return those of the values that are traced arrays."""
    return [value for value in values if isinstance(value, Symbolic)]


def operand(value: Any, dtype: np.dtype[Any], tape: TraceTape) -> Expr:
    """Return an operand as a node: arrays as they are, numbers in the type wanted."""
    if isinstance(value, Symbolic):
        return value.node()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, Host):
        number_as(value.value, dtype)  # raises where it cannot be
        return Scalar(shape=(), dtype=dtype, time=tape.clock.tick(), host=value)
    if is_number(value):
        return Constant(shape=(), dtype=dtype, time=tape.clock.tick(), value=number_as(value, dtype))
    if isinstance(value, np.ndarray):
        raise Untraceable("it uses an array from outside")
    raise Untraceable(f"it computes with a {type(value).__name__}")


def type_of(value: Any) -> Any:
    """Return what NumPy's rules of promotion see of an operand: a dtype, or a Python number's type."""
    if isinstance(value, Symbolic):
        return value.dtype
    now = plain(value)
    if isinstance(now, np.ndarray) and now.ndim == 0:
        now = now[()]
    if isinstance(now, bool):
        return BOOL
    if isinstance(now, np.generic):
        return now.dtype
    if isinstance(now, int | float):
        return type(now)
    if isinstance(now, np.ndarray):
        raise Untraceable("it uses an array from outside")
    raise Untraceable(f"it computes with a {type(now).__name__}")
