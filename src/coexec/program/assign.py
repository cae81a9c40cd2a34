"""Assignment `a[s] = v` as ordered tasks, and copies between arrays.

Before: program/kernel.py.  After: program/array.py, which calls it late.  Knows no device.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..geometry import overlaps
from ..origin import program_depth
from . import array as arrays, session
from .access import read, write
from .array import Array
from .call import DEFAULT, in_force
from .kernel import Kernel, kernel
from .mapper import all as map_all
from .refusals import IMMUTABLE
from .value import Value
from .variant import exact

DISCARDED = "Casting complex values to real discards the imaginary part"
"""What NumPy says, too."""


def _fill(out: Any, value: Any) -> None:
    """Set every element to one value."""
    out[...] = value


def _fill_kernel(ndim: int) -> Kernel:
    made = kernel(split=0, name="fill", out=write)(_fill)
    if ndim <= 3:
        made.opencl(f"out({', '.join(f'i{axis}' for axis in range(ndim))}) = value;", numerics=exact)
    made.internal = True
    return made


fills: dict[int, Kernel] = {}  # by number of axes: OpenCL C has to spell the indices out


@kernel(name="set", out=write)
def set_item(out: Any, value: Any) -> None:
    """Set one element, or a 0-d array."""
    out[...] = value


@kernel(name="assign", out=write)
def assign_constant(out: Any, value: Any) -> None:
    """Copy an array of the host program."""
    out[...] = value


@kernel(split=0, name="copy", source=read, out=write)
def copy(source: Any, out: Any) -> None:
    """Copy an array of the same shape."""
    out[...] = source


@kernel(name="broadcast", source=read(map_all), out=write)
def broadcast(source: Any, out: Any) -> None:
    """Copy an array, repeating it to the shape of the output."""
    out[...] = source


@kernel(name="move", source=read(map_all), out=write)
def move(source: Any, out: Any) -> None:
    """Copy between overlapping parts of one array, as if everything were read first (NumPy does not always)."""
    out[...] = source.copy()


@kernel(name="element", source=read(map_all), out=write)
def element(source: Any, out: Any) -> None:
    """Copy one element, for a value that is about to lose it."""
    out[...] = source


@lru_cache(maxsize=32)
def _like_kernel(ndim: int) -> Kernel:
    made = kernel(split=0, name="copy", source=read, out=write)(copy.function)
    point = ", ".join(f"i{axis}" for axis in range(ndim))
    return made.opencl(f"out({point}) = source({point});", numerics=exact)


def private_copy(x: Array) -> Array:
    """Return a new array with the elements of `x` as they are at this point of the program, made where they are."""
    source = x if x.ndim else x[None]
    new = arrays.empty(source.shape, x.dtype)
    _submit(_like_kernel(source.ndim), source, new)
    return new if x.ndim else new[0, ...]


set_item.internal = element.internal = assign_constant.internal = True


def assign(view: Array, value: Any) -> None:
    """Assign `value` to every element of `view`, in program order."""
    if view.immutable:
        raise TypeError(IMMUTABLE)
    if isinstance(value, Value) and value.known is not None:
        value = np.asarray(value.known)  # it may be assigned before it is known, and is an element of an array then
    if isinstance(value, Array):
        _check_broadcast(value.shape, view.shape)
        if value._storage is view._storage and value._box == view._box and value._cut == view._cut:
            return  # `a[s] += v` has already changed the elements in place
        if value._storage is view._storage and overlaps(value._box, view._box):
            _submit(move, value, view)
        else:
            _submit(copy if value.shape == view.shape and view.shape else broadcast, value, view)
        return
    plain = castable(value, view)
    _check_broadcast(plain.shape, view.shape)
    if plain.ndim:
        fixed = np.array(plain, dtype=view.dtype, copy=True)
        fixed.flags.writeable = False
        _submit(assign_constant, view, fixed)
    else:
        item = plain.astype(view.dtype)[()]
        if view.ndim and view.ndim not in fills:
            fills[view.ndim] = _fill_kernel(view.ndim)
        _submit(fills[view.ndim] if view.ndim else set_item, view, item)


def _submit(task: Kernel, *args: Any) -> None:
    """Record a task in the runtime of the array that it changes."""
    session.check_outside()
    target: Array = next(arg for arg in args[::-1] if isinstance(arg, Array))
    session.in_front_of(target._storage.session).submit(task, args, {}, in_force(DEFAULT))


def castable(value: Any, view: Array) -> np.ndarray[Any, Any]:
    """Return a number or an array of the host program as what can be cast to the type of a view; raise and warn as NumPy would.

    NumPy's complex numbers and arrays lose their imaginary part with a warning, which names the program's line. Python's are
    refused, and so are numbers beyond the view's type, unless they are elements of an array.
    """
    known = isinstance(value, np.ndarray | np.generic)
    plain = np.asarray(value)
    if isinstance(value, np.generic) and view.dtype.kind in "iu" and plain.dtype.kind in "iuf":
        return as_assigned(value, view.dtype)
    if not known and (view.dtype.names is not None or plain.dtype.kind != "c"):
        return np.asarray(value, dtype=view.dtype)
    if plain.dtype.kind in "OSU" and view.dtype.kind not in "SUV":
        plain.astype(view.dtype)  # raises as NumPy would
    if plain.dtype.kind != "c" or view.dtype.kind not in "fiu":
        return plain
    if not known:
        raise TypeError(f"cannot assign complex values to an array of {view.dtype}")
    warnings.warn(DISCARDED, np.exceptions.ComplexWarning, stacklevel=program_depth())
    return plain.real


def as_assigned(number: np.generic, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return one of NumPy's numbers as NumPy assigns it: signed types refuse what they cannot hold, unsigned ones wrap it."""
    held = np.empty((), dtype)
    held[()] = number
    return held


def _check_broadcast(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    extra = max(0, len(source) - len(target))  # NumPy lets leading axes of length one go
    fits = all(s in (1, t) for s, t in zip(source[::-1], target[::-1], strict=False))
    if not fits or any(n != 1 for n in source[:extra]):
        raise ShapeError(f"cannot assign an array of shape {source} to a view of shape {target}")
