"""Reductions of traced arrays, wherever NumPy's order of additions is known.

Before: compile/symbolic.py.  After: compile/functions.py.  Computes nothing.

NumPy adds floats along the last axis in pairs and along others one after the other; over several axes at once it goes
through memory. Integers, booleans and places of extremes do not depend on the order.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .calling import elementwise
from .cells import Cell, as_dtype
from .graph import Constant, Expr, Fold, Read, convert
from .host import Host, Size, plain
from .layout import in_order, is_fresh, regular
from .refused import Untraceable
from .sizes import product
from .symbolic import HOOKS, Symbolic

KINDS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_or": "any",
    "logical_and": "all",
}


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    found = [operator.index(a) for a in (axis if isinstance(axis, tuple) else (axis,))]
    if any(not -ndim <= a < ndim for a in found) or len({a % ndim for a in found}) < len(found):
        raise Untraceable(f"a reduction along axis {axis} of {ndim}")
    return sorted(a % ndim for a in found)


def _element_type(kind: str, dtype: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """Return the type that NumPy reduces in."""
    if kind in ("any", "all") or wanted is not None:
        found: np.dtype[Any] = as_dtype(bool if kind in ("any", "all") else wanted)
        return found
    if kind in ("sum", "prod") and dtype.kind in "biu" and dtype.itemsize <= 8:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def reduced(
    name: str,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    **options: Any,
) -> Any:
    """Return a reduction by a ufunc along axes."""
    kind = KINDS.get(name)
    if kind is None or not isinstance(array, Symbolic):
        raise Untraceable(f"np.{name}.reduce is not compiled")
    given = [name for name, value in options.items() if not any(value is none for none in (None, True, np._NoValue))]
    if given:
        raise Untraceable(f"a reduction with {' and '.join(f'{name}=' for name in given)}")
    axes = _axes(axis, array.ndim)
    within = _element_type(kind, array.dtype, dtype)
    if within != array.dtype and within.kind == "f" and not array.tape.free:
        raise Untraceable(f"{array.dtype} reduced in {within} is added in blocks")
    found = _folded(array, kind, axes, within)
    result = array.fresh(found)
    if keepdims:
        result = (
            result[tuple(None if a in axes else slice(None) for a in range(array.ndim))]
            if found.shape
            else _ones(result, array.ndim)
        )
    target = out[0] if isinstance(out, tuple) else out
    if target is None:
        return result
    if not isinstance(target, Symbolic):
        raise Untraceable("it reduces into an array from outside")
    target.write(result, "same_kind")
    return target


def _ones(result: Symbolic, ndim: int) -> Symbolic:
    return result[(None,) * ndim] if ndim else result


def _folded(array: Symbolic, kind: str, axes: list[int], within: np.dtype[Any]) -> Expr:
    if not axes:
        return convert(array.node(), within, array.tape.clock.tick())
    floats = within.kind == "f" and kind in ("sum", "prod", "max", "min")
    ordered = floats and not (array.tape.free and kind == "sum")
    if len(axes) > 1 and ordered:
        if len(axes) < array.ndim:
            raise Untraceable("floats reduced along some of several axes")
        array, axes = flat(array), [0]
    node = array.node()
    if kind in ("any", "all") and node.dtype != within:
        zero = Constant(shape=(), dtype=node.dtype, time=array.tape.clock.tick(), value=node.dtype.type(0))
        node = elementwise(array, "not_equal", [node, zero], within)
    node = convert(node, within, array.tape.clock.tick())
    if ordered and not (regular(node) if kind in ("max", "min") else in_order(node)):
        raise Untraceable("floats reduced that lie in memory in another order")
    for axis in reversed(axes):
        node = fold(array, node, kind, axis, within)
    return node


def fold(array: Symbolic, node: Expr, kind: str, axis: int, dtype: np.dtype[Any]) -> Expr:
    """Return one axis reduced; the order of additions depends on whether axes of one element follow."""
    extent: Size = node.shape[axis]
    if not extent >= 1:
        raise Untraceable("a reduction of nothing")
    later: Size
    free = array.tape.free and kind == "sum" and dtype.kind == "f"
    for later in node.shape[axis + 1 :]:
        if isinstance(later, int) or array.tape.free or dtype.kind != "f":
            continue
        if later == 1:
            raise Untraceable("a reduction beside an axis of one element")
    shape = node.shape[:axis] + node.shape[axis + 1 :]
    return Fold(shape=shape, dtype=dtype, time=array.tape.clock.tick(), kind=kind, arg=node, axis=axis, free=free)


def flat(array: Symbolic) -> Symbolic:
    """Return all elements in the order of memory, if NumPy would have them there without gaps."""
    if array.ndim <= 1:
        return array
    node = array.node()
    if array.is_whole() and isinstance(node, Read):
        return array.reshape(-1)
    if not (is_fresh(node) and in_order(node)):
        raise Untraceable("floats reduced along several axes of a part of an array")
    value = Symbolic(Cell(array.tape, node.dtype, node.shape, value=node))
    return value.reshape(-1)


def place_of(kind: str, array: Symbolic, axis: Any = None, out: Any = None, keepdims: Any = False) -> Symbolic:
    """Return where the first extreme is."""
    if out is not None:
        raise Untraceable(f"np.{kind} with options")
    if keepdims and keepdims is not np._NoValue:
        every = (None,) * array.ndim
        if axis is None:
            return place_of(kind, array)[every] if array.ndim else place_of(kind, array)
        at = operator.index(axis) % max(array.ndim, 1)
        return place_of(kind, array, axis)[tuple(None if a == at else slice(None) for a in range(array.ndim))]
    if axis is None:
        array, axis = flat(array) if array.ndim > 1 else array, 0
    if array.dtype.kind not in "iufb":
        raise Untraceable(f"np.{kind} of {array.dtype}")
    at = operator.index(axis) % array.ndim if array.ndim else 0
    if not array.ndim:
        raise Untraceable(f"np.{kind} of a number")
    return array.fresh(fold(array, array.node(), kind, at, np.dtype(np.intp)))


def mean(array: Symbolic, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """Return NumPy's mean of floats: a sum, divided by the count in double precision."""
    if dtype is None and array.dtype.kind in "iub" and array.tape.free:
        array = array.astype(np.float64)
    if dtype is not None or array.dtype.kind != "f":
        raise Untraceable("the mean of numbers that are converted first is added in blocks")
    axes = _axes(axis, array.ndim)
    total = reduced("add", array, axis=tuple(axes), keepdims=bool(keepdims) and keepdims is not np._NoValue)
    count = product(tuple(array.shape[a] for a in axes))
    tape = array.tape
    divisor = (
        Host(np.intp(plain(count)), f"np.intp({count.text})", tape.guards)
        if isinstance(count, Host)
        else np.intp(count)
    )
    result = np.true_divide(total, divisor).astype(array.dtype)
    if out is None:
        return result
    out.write(result, "same_kind")
    return out


HOOKS["reduce"] = reduced
