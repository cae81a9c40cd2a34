"""Virtual arrays and their views: handles that hold no data.

Before: program/view.py, program/session.py.  After: program/kernel.py.  Knows no memory; the runtime keeps the pieces.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..geometry import Box, Grid
from . import session
from .kept_arrays import making
from .later_stages import late
from .methods import Methods
from .operators import ArrayOperators
from .refusals import ALWAYS_COPIED, absent, check_swap, fixed, no_attribute
from .sizes import check_size
from .storage import Shape, Storage as Storage  # noqa: PLC0414 - many know it from here
from .view import NOTHING, Cut, grid_of, index, transpose, view_shape

GEOMETRY = frozenset({"_box", "_cut", "_grid", "_shape", "_size"})
"""What is worked out for a view that program/small.py made when somebody asks for it."""


class Hooks:
    """What arrays do through kernels, which are made of arrays: program/__init__.py puts it in."""

    assign: Callable[[Array, Any], None]
    element: Callable[[Array], Array]
    ufunc: Callable[[Any, str, Any, Any], Any]
    function: Callable[[Any, Any, Any, Any], Any]


hooks = Hooks()


class Array(ArrayOperators, Methods):
    """An array, or a view of one. Lives wherever it is needed, in pieces.

    Python's operators are ufuncs, which __array_ufunc__ turns into kernels, or NumPy's own if it is small and at home.
    """

    __slots__ = (
        "__weakref__", "_box", "_cut", "_data", "_grid", "_home", "_key", "_parent", "_shape", "_size", "_small", "_storage"
    )  # fmt: skip
    __array_priority__ = 1000
    immutable = False  # values are: program/value.py

    def __init__(self, storage: Storage, box: Box, cut: Cut | None) -> None:
        self._storage = storage
        self._small = storage.small
        self._home: Any = None  # what its array was at home in when `_data`, its elements there, was cut out of it
        self._data: Any
        self._parent: Array | None = None  # whose `_key` this is, as long as nobody has asked for its geometry
        self._key: Any
        self._box = box
        self._cut = cut
        self._grid: Grid | None = None if cut is None else grid_of(box, cut)
        self._shape: Shape = box.shape if cut is None else view_shape(box, cut)
        self._size = math.prod(self._shape)

    if TYPE_CHECKING:
        shape: Shape
        size: int
    else:
        shape = property(attrgetter("_shape"), fixed("shape", "b = a.reshape(shape)"), doc="The extent of each axis.")
        size = property(attrgetter("_size"), fixed("size", "b = a.reshape(shape)"), doc="How many elements there are.")
        strides = property(absent("strides"), fixed("strides", "a view, such as a[::2] or a.T"))
        data = property(absent("data"), fixed("data", "a[...] = values"))
        flags = property(absent("flags"), fixed("flags", "np.asarray(a), which is read-only"))
        flat = property(absent("flat"), fixed("flat", "a[...] = value"))
        real = property(absent("real"), fixed("real", "a[...] = value + 1j * imaginary"))
        imag = property(absent("imag"), fixed("imag", "a[...] = real + 1j * value"))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The elements' type."""
        return self._storage.dtype

    @dtype.setter
    def dtype(self, value: Any) -> NoReturn:
        fixed("dtype", "b = a.astype(dtype)")(self, value)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._storage.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The view with its axes reversed."""
        return self.transpose()

    @T.setter
    def T(self, value: Any) -> NoReturn:  # noqa: N802 - NumPy's name
        fixed("T", "a.T[...] = values")(self, value)

    @property
    def runtime(self) -> Any:
        """The runtime this array belongs to."""
        return self._storage.session

    def transpose(self, *axes: Any) -> Array:
        """Return a view with its axes permuted."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = tuple(range(self.ndim))[::-1] if not order else tuple(int(a) + self.ndim * (a < 0) for a in order)
        return Array(self._storage, self._box, transpose(self._cut, self.ndim, self._box.ndim, order))

    def _view(self, key: Any) -> Array:
        """Return the elements that `key` names as a view, also if that is a single one."""
        box, cut = index(self._box, self._cut, self._shape, key)
        if cut is not None and NOTHING in cut.axes:
            return fresh(view_shape(box, cut), self._storage.dtype)
        return Array(self._storage, box, cut)

    def __getitem__(self, key: Any) -> Array:
        """Return a view; for a full integer index the element's value. Never waits. `a[i, ...]` is the element's view."""
        if self._small is not None and (found := self._small.item(self, key)) is not None:
            return found  # type: ignore[no-any-return]
        view = self._view(key)
        if view._shape or key is ... or (type(key) is tuple and any(entry is ... for entry in key)):
            return view
        return hooks.element(view)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assign, in program order, like any task. Never waits."""
        if self._small is not None and self._small.set_item(self, key, value):
            return
        if isinstance(value, Array) and value._shape and value._storage is self._storage:
            check_swap(sys._getframe(1))
        if type(key) in MASKS:
            late("program.masked:assign_where")(self, key, value)
        else:
            hooks.assign(self._view(key), value)

    def copy(self) -> Array:
        """Return a new array with the same elements."""
        if self._small is not None and (found := self._small.function(np.copy, (self,), {})) is not None:
            return found  # type: ignore[no-any-return]
        new = empty(self.shape, self.dtype)
        new[...] = self
        return new

    def fill(self, value: Any) -> None:
        """Set every element to `value`."""
        self[...] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Wait for this array alone; return its elements as they are at this point of the program."""
        if copy is False:
            raise ValueError(ALWAYS_COPIED)
        data: np.ndarray[Any, Any] = self._storage.session.read(self)
        if dtype is not None and np.dtype(dtype) != data.dtype:
            return data.astype(dtype)
        return data.copy() if copy else data

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if self._small is not None and (result := self._small.function(function, args, kwargs)) is not None:
            return result
        return hooks.function(function, types, args, kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if self._small is not None and method == "__call__":
            result = self._small.call(ufunc, inputs, kwargs) if kwargs else self._small.plain(ufunc, inputs)
            if result is not None:
                return result
        return hooks.ufunc(ufunc, method, inputs, kwargs)

    def item(self, *index_: SupportsIndex) -> Any:
        """Wait for one element and return it as a Python scalar."""
        view = self._view(tuple(index_)) if index_ else self
        if view.size != 1:
            raise ShapeError(f"item() takes exactly one element; this array has {view.size} (shape {view.shape})")
        return np.asarray(view).reshape(()).item()

    def tolist(self) -> Any:
        """Wait for this array and return it as nested lists."""
        return np.asarray(self).tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError("the truth value of an array with more than one element is ambiguous")
        return bool(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.ndim:
            raise TypeError("only 0-d integer arrays can be an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __getattr__(self, name: str) -> Any:
        if name not in GEOMETRY:
            raise no_attribute(name)
        if name in ("_shape", "_size"):
            self._shape, self._size = self._data.shape, self._data.size
            return getattr(self, name)
        parent, self._parent = self._parent, None
        if parent is None:
            box, cut = self._storage.box, None
        else:
            box, cut = index(parent._box, parent._cut, parent._shape, self._key)  # has elements, so never NOTHING
        self._box, self._cut, self._grid = box, cut, None if cut is None else grid_of(box, cut)
        return getattr(self, name)

    __hash__ = None  # type: ignore[assignment]  # elementwise ==, like NumPy

    def __eq__(self, other: object) -> Any:
        return full(self.shape, value=False) if self._unlike(other) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return full(self.shape, value=True) if self._unlike(other) else super().__ne__(other)

    def _unlike(self, other: object) -> bool:
        """Tell whether no element can equal something: None, or text where there is none."""
        return other is None or (isinstance(other, str | bytes) and self.dtype.kind not in "SU")

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    def __reduce__(self) -> Any:
        return array, (np.asarray(self),)  # waits: whoever saves an array wants its elements

    def __format__(self, spec: str) -> str:
        if spec and self.ndim:
            raise TypeError(f"{spec!r} formats a number; this array has shape {self.shape}: format np.asarray(array)")
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        name = f"{self._storage.name}, " if self._storage.name else ""
        return f"cx.Array({name}shape={self.shape}, dtype={self.dtype})"


MASKS = frozenset({Array, np.ndarray, list})
"""What an index may be that names elements by their values."""


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a NumPy type of fixed size, or raise."""
    checked: np.dtype[Any] = np.dtype(dtype)
    if checked.hasobject or checked.itemsize == 0:
        raise ArgumentError(
            f"dtype {checked} has no fixed size or holds Python objects; use a fixed-size type such as "
            "float64, int32, S16 or a structured type of these"
        )
    return checked


def check_shape(shape: Any) -> Shape:
    """Return `shape` as a tuple of non-negative integers, or raise."""
    one = isinstance(shape, int | np.integer) or (isinstance(shape, Array) and not shape.ndim)
    entries = (shape,) if one else shape
    try:
        checked = tuple(int(n.__index__()) for n in entries)
    except (TypeError, AttributeError):
        raise ShapeError(f"{shape!r} is not a shape; pass an integer or a tuple of integers") from None
    if any(n < 0 for n in checked):
        raise ShapeError(f"shape {checked} has a negative extent")
    return checked


def _new(shape: Any, dtype: Any, initial: Any, data: Any = None, *, borrowed: bool = False) -> Array:
    runtime = session.current()
    dtype = check_dtype(dtype)
    storage = Storage(runtime, check_size(check_shape(shape), dtype), dtype, initial)
    storage.borrowed = borrowed
    runtime.adopt(storage, data, borrowed=borrowed)
    return Array(storage, storage.box, None)


def array(data: Any, dtype: Any = None, *, root: int | None = None) -> Array:
    """Return a new array with a copy of `data`. Later changes of `data` are not seen.

    On several ranks `data` is the same on all of them; with `root`, it is that rank's, and what others give does not matter.
    """
    if root is not None:
        runtime: Any = session.current()
        made: Array = runtime.array_from(data, dtype, root)
        return made
    if isinstance(data, Array):
        new = empty(data.shape, data.dtype if dtype is None else dtype)
        new[...] = data
        return new
    plain = np.asarray(data, dtype=dtype)
    check_dtype(plain.dtype)
    return _new(plain.shape, plain.dtype, None, plain)


def asarray(data: Any, dtype: Any = None) -> Array:
    """Return `data` as an array, borrowing host or DLPack memory for reading where possible.

    The memory is never written: the first task that writes gets a private copy. Do not change `data` while tasks
    that read it may be pending.
    """
    if isinstance(data, Array):
        same = not data.immutable and (dtype is None or np.dtype(dtype) == data.dtype)
        return data if same else array(data, dtype)
    if not isinstance(data, np.ndarray) and hasattr(data, "__dlpack__"):
        data = np.from_dlpack(data)
    if not isinstance(data, np.ndarray) or (dtype is not None and np.dtype(dtype) != data.dtype):
        return array(data, dtype)
    check_dtype(data.dtype)
    view = data.view(np.ndarray)
    view.flags.writeable = False
    return _new(view.shape, view.dtype, None, view, borrowed=True)


def empty(shape: Any, dtype: Any = float) -> Array:
    """Return an array whose elements have no defined value yet."""
    return fresh(shape, dtype) if making.give is None else making.give(shape, dtype, fresh)


def fresh(shape: Any, dtype: Any) -> Array:
    """Return the same, and never an array that was kept."""
    return _new(shape, dtype, None)


def full(shape: Any, value: Any, dtype: Any = None) -> Array:
    """Return an array of `value`s. Nothing is filled until a task reads it."""
    checked = check_dtype(np.asarray(value).dtype if dtype is None else dtype)
    known = isinstance(value, np.ndarray | np.generic)
    initial = value.astype(checked) if known else np.asarray(value, checked)  # Python's numbers must fit the type
    if initial.ndim:
        raise ShapeError(f"cx.full takes one value, not an array of shape {initial.shape}")
    return _new(shape, checked, initial[()])


def zeros(shape: Any, dtype: Any = float) -> Array:
    """Return an array of zeros. Nothing is filled until a task reads it."""
    checked = check_dtype(dtype)
    return _new(shape, checked, np.zeros((), checked)[()])


def ones(shape: Any, dtype: Any = float) -> Array:
    """Return an array of ones. Nothing is filled until a task reads it."""
    return full(shape, 1, dtype)


def empty_like(prototype: Any, dtype: Any = None) -> Array:
    """Return an array of the shape and type of `prototype`, with no defined values."""
    return empty(np.shape(prototype) if not isinstance(prototype, Array) else prototype.shape, _like(prototype, dtype))


def zeros_like(prototype: Any, dtype: Any = None) -> Array:
    """Return zeros of the shape and type of `prototype`."""
    return zeros(np.shape(prototype) if not isinstance(prototype, Array) else prototype.shape, _like(prototype, dtype))


def full_like(prototype: Any, value: Any, dtype: Any = None) -> Array:
    """Return `value`s of the shape and type of `prototype`."""
    shape = prototype.shape if isinstance(prototype, Array) else np.shape(prototype)
    return full(shape, value, _like(prototype, dtype))


def ones_like(prototype: Any, dtype: Any = None) -> Array:
    """Return ones of the shape and type of `prototype`."""
    return full_like(prototype, 1, dtype)


def _like(prototype: Any, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return prototype.dtype if isinstance(prototype, Array) else np.asarray(prototype).dtype
