"""NumPy's functions and an array's methods that traced bodies may use, and what makes new arrays.

Before: compile/folds.py.  After: compile/trace.py.  One table each: what is not there is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .calling import elementwise
from .cells import Cell, TraceTape, as_dtype, check_dtype
from .folds import mean, place_of, reduced
from .gathers import take
from .graph import Counting, Line, convert
from .host import Host, equal_sizes
from .products import dot, einsum
from .refused import Untraceable
from .sizes import broadcast_sizes, normal, same_shape
from .symbolic import FUNCTIONS, METHODS, Symbolic, operand, symbolic_arrays, type_of

Function = Callable[..., Any]


def _array(*values: Any) -> Symbolic:
    found = symbolic_arrays(values)
    if not found:
        raise Untraceable("a NumPy function of something else than arrays")
    return found[0]


def where(condition: Any, *choices: Any) -> Symbolic:
    """As np.where with three arguments."""
    if len(choices) != 2:
        raise Untraceable("np.where with one argument gives indices")
    array = _array(condition, *choices)
    kinds = [type_of(choice) for choice in choices]
    dtype = check_dtype(np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in kinds)))
    if not isinstance(condition, Symbolic):
        raise Untraceable("np.where with a condition that is no array")
    tape = array.tape
    test = condition if condition.dtype == bool else condition != 0
    args = [convert(operand(x, dtype, tape), dtype, tape.clock.tick()) for x in choices]
    return array.fresh(elementwise(array, "where", [test.node(), *args], dtype))


_CHOICE = where  # for functions with a parameter of that name


def clip(array: Any, low: Any = None, high: Any = None, out: Any = None, **options: Any) -> Any:
    """As np.clip."""
    low, high = options.pop("min", low), options.pop("max", high)
    if options or not isinstance(array, Symbolic):
        raise Untraceable("np.clip with options")
    types = [type_of(value) for value in (array, low, high) if value is not None]
    if np.result_type(*(kind(0) if isinstance(kind, type) else kind for kind in types)) != array.dtype:
        raise Untraceable("np.clip that changes the type")
    bounds = [bound for bound in (low, high) if bound is not None]
    if any(isinstance(bound, Symbolic) or bound != bound for bound in bounds):  # noqa: PLR0124 - NaN, as a guard
        raise Untraceable("np.clip between arrays or NaN")
    result = array
    if len(bounds) == 1:
        result = np.maximum(array, low) if high is None else np.minimum(array, high)
    else:
        for bound, beyond in ((low, np.less), (high, np.greater))[: len(bounds)]:
            # Between two numbers an element that equals one stays, with its sign if both are zero.
            result = where(beyond(result, bound), bound, result)
    if out is None:
        return result if result is not array else array.copy()
    out.write(result, "same_kind")
    return out


def _reduction(name: str) -> Function:
    def function(
        array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **options: Any
    ) -> Any:
        kept = bool(keepdims) and keepdims is not np._NoValue
        return reduced(name, array, axis, dtype, out, kept, **options)

    return function


def _extreme(name: str) -> Function:
    def function(array: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **options: Any) -> Any:
        kept = bool(keepdims) and keepdims is not np._NoValue
        return reduced(name, array, axis, None, out, kept, **options)

    return function


def _place(kind: str) -> Function:
    def function(array: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        return place_of(kind, array, axis, out, keepdims)

    return function


# New arrays -------------------------------------------------------------------------------------------------------------


def _shape(shape: Any) -> tuple[Any, ...]:
    given = shape if isinstance(shape, tuple | list) else (shape,)
    return tuple(normal(extent) for extent in given)


def new(tape: TraceTape, shape: Any, dtype: Any = float, value: Any = None) -> Symbolic:
    """Return a new array, with a value everywhere if one is given."""
    kind = check_dtype(as_dtype(dtype))
    extents = _shape(shape)
    cell = Cell(tape, kind, extents)
    array = Symbolic(cell)
    if value is not None:
        array.write(value)
    return array


def counting(tape: TraceTape, stop: Any, dtype: Any = None) -> Symbolic:
    """As np.arange of one integer."""
    kind = check_dtype(as_dtype(np.int64 if dtype is None else dtype))
    if not (isinstance(stop, int) or (isinstance(stop, Host) and type(stop.value) is int)):
        raise Untraceable("np.arange of something else than an integer")
    node = Counting(shape=(normal(stop),), dtype=np.dtype(np.int64), time=tape.clock.tick())
    found = Symbolic(Cell(tape, node.dtype, node.shape, value=node))
    return found if kind == node.dtype else found.astype(kind)


def _like(value: Any) -> Function:
    def function(array: Any, *args: Any, dtype: Any = None, **options: Any) -> Symbolic:
        if options or not isinstance(array, Symbolic) or len(args) > (value is Ellipsis):
            raise Untraceable("an array like another, with options")
        wanted = array.dtype if dtype is None else dtype
        return new(array.tape, array.shape, wanted, args[0] if value is Ellipsis else value)

    return function


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, **options: Any) -> Symbolic:
    """As np.stack of arrays of one type."""
    parts = list(arrays)
    if out is not None or options or not all(isinstance(part, Symbolic) for part in parts):
        raise Untraceable("np.stack of something else than arrays of one type")
    first = parts[0]
    at = operator.index(axis) % (first.ndim + 1)
    shape = (*first.shape[:at], len(parts), *first.shape[at:])
    found = new(first.tape, shape, np.result_type(*(part.dtype for part in parts)))
    for number, part in enumerate(parts):
        if not same_shape(part.shape, first.shape):
            raise Untraceable("np.stack of arrays of different shapes")
        found[(*(slice(None),) * at, number)] = part
    return found


def column_stack(arrays: Sequence[Any]) -> Symbolic:
    """As np.column_stack of vectors and matrices."""
    parts = [part[:, None] if part.ndim == 1 else part for part in arrays]
    first = parts[0]
    width = sum(operator.index(part.shape[1]) for part in parts)
    found = new(first.tape, (first.shape[0], width), np.result_type(*(part.dtype for part in parts)))
    at = 0
    for part in parts:
        found[:, at : at + operator.index(part.shape[1])] = part
        at += operator.index(part.shape[1])
    return found


def copyto(target: Any, value: Any, casting: str = "same_kind", where: Any = True) -> None:
    """As np.copyto. Where it does not write, nothing is converted, so that no flag comes from there."""
    if not isinstance(target, Symbolic):
        raise Untraceable("np.copyto into something else than an array")
    if where is True:
        target.write(value, casting)
        return
    if not isinstance(where, Symbolic) or where.dtype != bool:
        raise Untraceable("np.copyto with where= that is no array of booleans")
    if isinstance(value, Symbolic) and value.dtype != target.dtype:
        if not np.can_cast(value.dtype, target.dtype, casting):  # type: ignore[arg-type]
            raise Untraceable(f"NumPy does not write {value.dtype} into {target.dtype} there")
        value = _CHOICE(where, value, value.dtype.type(0)).astype(target.dtype)
    chosen = operand(value, target.dtype, target.tape)
    if broadcast_sizes(target.shape, chosen.shape, where.shape) != target.shape:
        raise Untraceable("np.copyto of what does not have the shape of its target")
    node = elementwise(target, "where", [where.node(), chosen, target.node()], target.dtype)
    target.write(target.fresh(node))


def broadcast_to(array: Any, shape: Any, **_: Any) -> Symbolic:
    """As np.broadcast_to: a view that nobody writes."""
    wanted = _shape(shape)
    if broadcast_sizes(array.shape, wanted) != wanted:
        raise Untraceable("np.broadcast_to another shape")
    new_axes = len(wanted) - array.ndim
    lines = tuple(
        Line(0, 1, None if equal_sizes(extent, 1) and not equal_sizes(wanted[axis], 1) else axis)
        for axis, extent in enumerate(array.shape, new_axes)
    )
    found: Symbolic = array._looking(lines, wanted)
    found.repeats = True
    return found


def expand_dims(array: Any, axis: int) -> Any:
    """As np.expand_dims."""
    at = operator.index(axis) % (array.ndim + 1)
    return array[(*(slice(None),) * at, None)]


def squeeze(array: Any, axis: Any = None) -> Any:
    """As np.squeeze."""
    if axis is not None and not equal_sizes(array.shape[axis], 1):
        raise Untraceable("np.squeeze of an axis of several elements")
    dropped = [a for a in range(array.ndim) if equal_sizes(array.shape[a], 1) and axis in (None, a, a - array.ndim)]
    kept = [a for a in range(array.ndim) if a not in dropped]
    lines = tuple(Line(0, 1, None if a in dropped else kept.index(a)) for a in range(array.ndim))
    return array._looking(lines, tuple(array.shape[a] for a in kept))


def polyval(coefficients: Any, array: Any) -> Any:
    """As np.polyval: Horner's scheme from zeros."""
    if not symbolic_arrays([coefficients, *coefficients]):
        coefficients = np.asarray(coefficients)  # as NumPy does, which makes strong types of Python's numbers
    found = new(array.tape, array.shape, array.dtype, 0) if array.shape else array * 0
    for factor in coefficients:
        found = found * array + factor
    return found


def count_nonzero(array: Any, axis: Any = None, **options: Any) -> Any:
    """As np.count_nonzero."""
    if options:
        raise Untraceable("np.count_nonzero with options")
    return reduced("add", array != 0, axis)


_REDUCTIONS: dict[str, Function] = {
    "sum": _reduction("add"),
    "prod": _reduction("multiply"),
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
    "any": _extreme("logical_or"),
    "all": _extreme("logical_and"),
    "argmax": _place("argmax"),
    "argmin": _place("argmin"),
    "mean": mean,
}
METHODS |= {**_REDUCTIONS, "clip": clip, "dot": dot, "squeeze": squeeze, "take": take}
FUNCTIONS |= {
    **_REDUCTIONS,
    "amax": _REDUCTIONS["max"],
    "amin": _REDUCTIONS["min"],
    "where": where,
    "clip": clip,
    "empty_like": _like(None),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "full_like": _like(...),
    "stack": stack,
    "column_stack": column_stack,
    "copyto": copyto,
    "broadcast_to": broadcast_to,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
    "polyval": polyval,
    "take": take,
    "count_nonzero": count_nonzero,
    "dot": dot,
    "einsum": einsum,
    "copy": lambda array: array.copy(),
    "transpose": lambda array, axes=None: array.transpose(*(axes or ())),
    "swapaxes": lambda array, a, b: array.swapaxes(a, b),
    "reshape": lambda array, shape: array.reshape(shape),
    "ravel": lambda array: array.ravel(),
    "shape": lambda array: array.shape,
    "ndim": lambda array: array.ndim,
    "size": lambda array: array.size,
}
