"""NumPy's functions on coexec arrays: those that are views or elementwise are here, the others are found in ops/.

Before: program/ufunc.py.  After: program/array.py, which calls it late.  Knows no device, and gathers nothing silently:
what is not listed raises and names np.asarray(array).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from . import array as arrays
from .array import Array
from .assign import assign
from .later_stages import late
from .refusals import IMMUTABLE, no_function
from .ufunc import WEAK, array_ufunc, elementwise, operand, outputs_of
from .value import as_value
from .view import reshaped


def array_function(function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do what `function` does, if it is listed; otherwise raise."""
    del types
    known = FUNCTIONS.get(function)
    if known is None and function in READY_MADE:
        known = FUNCTIONS[function] = late(READY_MADE[function])
    if known is None:
        name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
        raise no_function(name)
    result = known(*args, **kwargs)
    return as_value(result, (*args, *kwargs.values())) if function in NUMBERS else result


def _where(condition: Any, *choices: Any) -> Array:
    if len(choices) != 2:
        raise UnsupportedError("np.where(condition) selects by value; use np.where(np.asarray(condition))")
    return elementwise(np.where, [operand(v) for v in (condition, *choices)], [None])[0]


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **options: Any) -> Array:
    low, high = options.pop("min", a_min), options.pop("max", a_max)
    given = outputs_of("np.clip", 1, () if out is None else (out,))
    mask = options.pop("where", True)
    taken = operand(a if isinstance(a, Array) else np.asarray(a))
    if taken.dtype.kind in "iu":  # as in NumPy: a Python integer beyond the type bounds nothing, or is an error
        held = np.iinfo(taken.dtype)
        low = None if type(low) is int and low <= held.min else low
        high = None if type(high) is int and high >= held.max else high
    kept = tuple(sorted(options.items()))
    if low is None and high is None:
        return elementwise(np.positive, [taken], given, kept, mask=mask)[0]
    low = None if low is None else operand(low)
    high = None if high is None else operand(high)
    # Of equal ones the second is the answer, which tells zeros apart: NumPy's clip keeps the element between two numbers, and
    # takes the bound where there is one bound, or an array of them.
    turned = low is not None and high is not None and not any(isinstance(bound, Array) for bound in (low, high))
    if low is not None and high is not None and given[0] is None and mask is True and not kept:  # NumPy's own if small
        if turned:
            return np.minimum(high, np.maximum(low, taken))  # type: ignore[no-any-return]
        return np.minimum(np.maximum(taken, low), high)  # type: ignore[no-any-return]

    def bounded(function: np.ufunc, bound: Any, into: list[Array | None], **options: Any) -> Array:
        return elementwise(function, [bound, taken] if turned else [taken, bound], into, kept, **options)[0]

    if high is None:
        return bounded(np.maximum, low, given, mask=mask)
    if low is not None:  # a bound may lie in `out`, which is therefore written once, at the end
        taken = bounded(np.maximum, low, [None])
    return bounded(np.minimum, high, given, mask=mask)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Array):
        np.copyto(dst, np.asarray(src), casting=casting, where=where)  # type: ignore[arg-type]
        return
    if dst.immutable:
        raise TypeError(IMMUTABLE)
    source = operand(src)
    held = source if type(source) in WEAK else source.dtype
    if not np.can_cast(np.result_type(held), dst.dtype, casting) and type(source) not in WEAK:  # type: ignore[arg-type]
        raise TypeError(f"np.copyto: cannot cast {held} to {dst.dtype} according to the rule {casting!r}")
    source = np.asarray(source) if isinstance(source, np.generic) else source  # cast as arrays are
    if where is True:
        assign(dst, source)
    else:
        late("program.masked:copy_where")(dst, operand(where), source)


def _moved(a: Array, source: Any, destination: Any) -> Array:
    sources = _axes(source, a.ndim, "source")
    targets = _axes(destination, a.ndim, "destination")
    if len(sources) != len(targets):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(a.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return a.transpose(order)


def _swapped(a: Array, axis1: int, axis2: int) -> Array:
    order = list(range(a.ndim))
    first, second = _axes(axis1, a.ndim)[0], _axes(axis2, a.ndim)[0]
    order[first], order[second] = order[second], order[first]
    return a.transpose(order)


def _axes(axis: Any, ndim: int, name: str | None = None) -> tuple[int, ...]:
    """Return axes as non-negative numbers; raise NumPy's own error for one that does not exist or comes twice."""
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim, name)


def _expand_dims(a: Array, axis: Any) -> Array:
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = _axes(tuple(axis) if isinstance(axis, tuple | list) else axis, a.ndim + count)
    return a[tuple(None if axis in new else slice(None) for axis in range(a.ndim + count))]


def _squeeze(a: Array, axis: Any = None) -> Array:
    ones = tuple(axis for axis, n in enumerate(a.shape) if n == 1)
    dropped = ones if axis is None else _axes(axis, a.ndim)
    if any(a.shape[axis] != 1 for axis in dropped):
        raise ShapeError("cannot select an axis to squeeze out which has size not equal to one")
    return a._view(tuple(0 if axis in dropped else slice(None) for axis in range(a.ndim)))


def reshape(a: Array, /, shape: Any = None, order: str = "C", *, copy: bool | None = None, **old: Any) -> Array:
    """Return np.reshape where it is a view: axes of length one come and go."""
    shape = old.pop("newshape", shape)
    wanted = _known_shape(np.atleast_1d(shape).astype(int).tolist(), a)
    key = reshaped(a.shape, wanted) if order == "C" else None
    if key is None:
        raise UnsupportedError(
            f"np.reshape from {a.shape} to {wanted} is no view of a coexec array (only axes of length one come and go); "
            "use np.asarray(array).reshape(...), or a kernel"
        )
    return a._view(key).copy() if copy else a._view(key)


def _known_shape(extents: list[int], a: Array) -> tuple[int, ...]:
    """Return the shape with its one -1 worked out; raise if the sizes differ."""
    shape = tuple(extents)
    rest = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
    if shape.count(-1) == 1 and rest and a.size % rest == 0:
        shape = tuple(a.size // rest if n == -1 else n for n in shape)
    if -1 in shape or int(np.prod(shape, dtype=np.int64)) != a.size:
        raise ShapeError(f"cannot reshape array of size {a.size} into shape {shape}")
    return shape


def _ravel(a: Array, order: str = "C") -> Array:
    return reshape(a, (a.size,), order)


def _atleast(ndim: int) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        made = []
        for value in values:
            a = value if isinstance(value, Array) else arrays.array(value)
            if ndim == 3 and a.ndim in (1, 2):
                made.append(a[None, :, None] if a.ndim == 1 else a[:, :, None])
            else:
                made.append(a[(None,) * max(0, ndim - a.ndim)] if a.ndim < ndim else a)
        return made[0] if len(made) == 1 else tuple(made)

    return call


def _flip(m: Array, axis: Any = None) -> Array:
    flipped = range(m.ndim) if axis is None else _axes(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if axis in flipped else slice(None) for axis in range(m.ndim))]


def _astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    del device
    return x if not copy and np.dtype(dtype) == x.dtype else arrays.array(x, dtype)


def _result_type(*values: Any) -> np.dtype[Any]:
    return np.result_type(*[value.dtype if isinstance(value, Array) else value for value in values])


def _can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    types = [value.dtype if isinstance(value, Array) else value for value in (from_, to)]
    return np.can_cast(types[0], types[1], casting=casting)  # type: ignore[arg-type]


def _plain(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return `function` for NumPy's signature, whose further options have no meaning for virtual arrays."""

    def call(prototype: Any, *args: Any, dtype: Any = None, order: str = "K", subok: bool = True, **rest: Any) -> Array:
        del order, subok
        if any(value is not None for value in rest.values()):
            raise UnsupportedError(f"np.{function.__name__}({', '.join(rest)}=...) is not supported for coexec arrays")
        return function(prototype, *args, dtype=dtype)

    return call


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.iscomplexobj: lambda x: x.dtype.kind == "c",
    np.isrealobj: lambda x: x.dtype.kind != "c",
    np.result_type: _result_type,
    np.can_cast: _can_cast,
    np.empty_like: _plain(arrays.empty_like),
    np.zeros_like: _plain(arrays.zeros_like),
    np.ones_like: _plain(arrays.ones_like),
    np.full_like: _plain(arrays.full_like),
    np.copy: lambda a, **_: a.copy(),
    np.astype: _astype,
    np.copyto: _copyto,
    np.transpose: lambda a, axes=None: a.transpose(*(() if axes is None else (tuple(axes),))),
    np.matrix_transpose: lambda x: _swapped(x, -1, -2),
    np.moveaxis: _moved,
    np.swapaxes: _swapped,
    np.expand_dims: _expand_dims,
    np.squeeze: _squeeze,
    np.reshape: reshape,
    np.ravel: _ravel,
    np.atleast_1d: _atleast(1),
    np.atleast_2d: _atleast(2),
    np.atleast_3d: _atleast(3),
    np.flip: _flip,
    np.flipud: lambda m: _flip(m, 0),
    np.fliplr: lambda m: _flip(m, 1),
    np.where: _where,
    np.clip: _clip,
}
"""NumPy functions that coexec arrays have, all without waiting (but for np.copyto into a NumPy array)."""

READY_MADE: dict[Any, str] = {
    np.sum: "ops.reductions:sum",
    np.prod: "ops.reductions:prod",
    np.max: "ops.reductions:max",
    np.min: "ops.reductions:min",
    np.any: "ops.reductions:any",
    np.all: "ops.reductions:all",
    np.count_nonzero: "ops.reductions:count_nonzero",
    np.argmax: "ops.extremes:argmax",
    np.argmin: "ops.extremes:argmin",
    np.mean: "ops.statistics:mean",
    np.var: "ops.statistics:var",
    np.std: "ops.statistics:std",
    np.average: "ops.statistics:average",
    np.linalg.norm: "ops.statistics:norm",
    np.dot: "ops.products:dot",
    np.vdot: "ops.products:vdot",
    np.inner: "ops.products:inner",
    np.outer: "ops.products:outer",
    np.tensordot: "ops.products:tensordot",
    np.einsum: "ops.products:einsum",
    np.concatenate: "ops.joining:concatenate",
    np.stack: "ops.joining:stack",
    np.vstack: "ops.joining:vstack",
    np.hstack: "ops.joining:hstack",
    np.dstack: "ops.joining:dstack",
    np.column_stack: "ops.joining:column_stack",
    np.roll: "ops.joining:roll",
    np.broadcast_to: "ops.joining:broadcast_to",
    np.tile: "ops.joining:tile",
    np.array_equal: "ops.comparing:array_equal",
    np.allclose: "ops.comparing:allclose",
    np.isclose: "ops.comparing:isclose",
}
"""NumPy functions that are ready-made kernels, and where: their modules load when asked for."""

NUMBERS = frozenset(
    {np.clip, np.sum, np.prod, np.max, np.min, np.any, np.all, np.count_nonzero, np.argmax, np.argmin, np.mean, np.var}
    | {np.std, np.average, np.linalg.norm, np.dot, np.vdot, np.inner, np.einsum, np.isclose}
)
"""NumPy functions that answer with a number, not an array, where a result has no axes."""

__all__ = ["FUNCTIONS", "READY_MADE", "array_function", "array_ufunc"]
