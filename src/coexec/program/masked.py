"""Assignment where a mask says so, `a[mask] = v`, as ordered tasks.

Before: program/ufunc.py, program/assign.py.  After: program/array.py, which loads it late.  Knows no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from . import array as arrays, session
from .access import read, update
from .array import Array
from .assign import castable
from .call import DEFAULT, in_force
from .kernel import kernel
from .mapper import all as map_all
from .refusals import BY_VALUE
from .ufunc import elementwise, expanded, operand


@kernel(name="assign_where", mask=read(map_all), values=read(map_all), out=update)
def one_by_one(mask: Any, values: Any, out: Any) -> None:
    """Assign one value after the other to the elements, or rows, that a mask names."""
    out[mask] = values


def assign_where(target: Array, mask: Any, value: Any) -> None:
    """Assign to the elements, or rows, that a mask over the first axes names, in program order, as NumPy does."""
    where = mask if isinstance(mask, Array) else np.asarray(mask)
    if where.dtype != bool or not where.ndim:
        raise UnsupportedError(BY_VALUE.format(f"{type(mask).__name__} of {where.dtype}"))
    if where.shape != target.shape[: where.ndim]:
        raise IndexError(
            f"boolean index did not match indexed array: the mask has shape {where.shape}, the array {target.shape}"
        )
    where = where if isinstance(where, Array) else arrays.array(where)
    source = operand(value)
    if not isinstance(source, Array):
        source = np.asarray(source) if isinstance(source, np.generic) else source  # NumPy casts them as it does arrays
        source = castable(source, target).astype(target.dtype)[()]
    if np.ndim(source) <= target.ndim - where.ndim:
        copy_where(target, expanded(where, target.ndim - where.ndim), source)
    else:
        _check_counted(source.shape, target.shape[where.ndim :])
        session.check_outside()
        args = (where, _of_type(source, target), target)
        session.in_front_of(target._storage.session).submit(one_by_one, args, {}, in_force(DEFAULT))


def copy_where(target: Array, mask: Any, source: Any) -> None:
    """Set the elements of `target` to those of `source`, broadcast, where a mask is true, and leave the others."""
    elementwise(np.where, [mask, _of_type(source, target), target], [target])


def _of_type(source: Any, target: Array) -> Any:
    """Return an operand with the type of an array that it is assigned to."""
    if isinstance(source, Array):
        return source if source.dtype == target.dtype else arrays.array(source, target.dtype)
    return castable(source, target).astype(target.dtype)[()]


def _check_counted(shape: tuple[int, ...], rest: tuple[int, ...]) -> None:
    """Raise unless values fit behind their first axis, whose length only the mask's elements can tell."""
    if len(shape) > len(rest) + 1 or any(n not in (1, m) for n, m in zip(shape[1:], rest, strict=False)):
        raise ShapeError(f"cannot assign values of shape {shape} to masked elements that have shape {rest} each")
