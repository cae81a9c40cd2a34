"""NumPy's functions on coexec arrays: ufuncs as elementwise kernels, and a short list of others.

Before: program/kernel.py.  After: program/array.py, which calls it late.  Knows no device, and gathers nothing silently:
what is not listed raises and names np.asarray(array).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from ..geometry import Box
from . import array as arrays
from .access import Access, read, update, write
from .array import Array
from .assign import assign
from .kernel import Kernel
from .mapper import Mapper, Shape

WEAK = (bool, int, float, complex)
"""Python's numbers, whose types do not count beside an array's (NEP 50)."""
OPTIONS = {"dtype": None, "casting": "same_kind", "order": "K", "subok": True, "signature": None, "sig": None}
"""Keywords of a ufunc besides `out` and `where`, with NumPy's defaults."""


class Broadcast(Mapper):
    """The chunk on the trailing axes, as NumPy lines shapes up; an axis of length one serves every chunk."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        first = len(space) - len(shape)
        los, his = chunk.lo[first:], chunk.hi[first:]
        lo = tuple(0 if n == 1 else v for n, v in zip(shape, los, strict=True))
        return Box(lo, tuple(1 if n == 1 else v for n, v in zip(shape, his, strict=True)))


broadcast = Broadcast()


class Elementwise:
    """A body: one NumPy function of some inputs, into some outputs."""

    __slots__ = ("__name__", "__signature__", "_function", "_inputs", "_options", "_takes_out")

    def __init__(self, function: Any, inputs: int, outputs: int, options: tuple[tuple[str, Any], ...]) -> None:
        names = [f"x{i}" for i in range(inputs)] + [f"out{i}" for i in range(outputs)]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        self.__name__ = str(function.__name__)
        self._function = function
        self._inputs = inputs
        self._options = dict(options)
        self._takes_out = isinstance(function, np.ufunc)

    def __call__(self, *values: Any) -> None:
        """Compute the function on one chunk."""
        inputs, outputs = values[: self._inputs], values[self._inputs :]
        if self._takes_out:
            self._function(*inputs, out=outputs, **self._options)
        else:
            outputs[0][...] = self._function(*inputs, **self._options)


@lru_cache(maxsize=1024)
def _kernel(
    function: Any, accesses: tuple[Access | None, ...], outputs: int, options: tuple[tuple[str, Any], ...], split: bool
) -> Kernel:
    """Return the kernel of a function for inputs and outputs of these accesses; None marks a scalar by value."""
    body = Elementwise(function, len(accesses) - outputs, outputs, options)
    declared = {name: access for name, access in zip(body.__signature__.parameters, accesses, strict=True) if access}
    return Kernel(body, declared, split=0 if split else None, over="out0", name=body.__name__)


_read_same, _read_broadcast = read, read(broadcast)


def array_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record `ufunc(*inputs)` as an elementwise kernel; return its new arrays, or `out`."""
    name = f"np.{ufunc.__name__}"
    if method != "__call__":
        raise UnsupportedError(
            f"{name}.{method} on a coexec array would gather it silently; use {name}.{method}(np.asarray(x)), or a "
            "kernel (cx.reduce('sum') declares a reduction)"
        )
    if ufunc.signature is not None:
        raise UnsupportedError(
            f"{name} is not elementwise; write a kernel that calls it, or use {name}(np.asarray(x), np.asarray(y))"
        )
    out = tuple(kwargs.pop("out", None) or ())
    if kwargs.pop("where", True) is not True:
        raise UnsupportedError(f"{name}(where=...) on coexec arrays is not supported; use np.where(mask, x, y)")
    options = {key: value for key, value in kwargs.items() if key not in OPTIONS or value != OPTIONS[key]}
    taken = [_operand(value) for value in inputs]
    if any(value is NotImplemented for value in taken):
        return NotImplemented
    results = _elementwise(ufunc, taken, _outputs(name, ufunc.nout, out), tuple(sorted(options.items())))
    return results[0] if ufunc.nout == 1 else tuple(results)


def _operand(value: Any) -> Any:
    """Return an input as an array, or as a scalar to pass by value."""
    if isinstance(value, Array | np.generic) or type(value) in WEAK:
        return value
    if isinstance(value, np.ndarray):
        return arrays.array(value) if value.ndim else value[()]
    if hasattr(type(value), "__array_ufunc__"):
        return NotImplemented
    return _operand(np.asarray(value))


def _outputs(name: str, count: int, out: tuple[Any, ...]) -> list[Array | None]:
    for entry in out:
        if not isinstance(entry, Array | None):
            raise UnsupportedError(
                f"{name}(out={type(entry).__name__}) would be written some time later; pass a coexec array as out, or "
                f"use {name}(np.asarray(x), out=...)"
            )
    return list(out) if out else [None] * count


def _model(value: Any) -> Any:
    """Return an empty stand-in with the value's type: NumPy's own rules then say what comes out."""
    return np.empty(0, value.dtype) if isinstance(value, Array) else value


def _elementwise(
    function: Any, inputs: list[Any], given: list[Array | None], options: tuple[tuple[str, Any], ...]
) -> list[Array]:
    """Record one elementwise kernel and return its outputs."""
    keywords: dict[str, Any] = dict(options)
    if any(out is not None for out in given):
        keywords["out"] = tuple(None if out is None else _model(out) for out in given)
    models = [_model(value) for value in inputs]
    if not any(isinstance(value, Array) for value in inputs):
        models[0] = np.empty(0, np.result_type(models[0]))  # only `out` is a coexec array: nothing is computed here
    answer = function(*models, **keywords)
    dtypes = [a.dtype for a in (answer if isinstance(answer, tuple) else (answer,))]
    shape = _space(function, inputs, given)
    outputs = [arrays.empty(shape, dtype) if out is None else out for out, dtype in zip(given, dtypes, strict=True)]
    storages = {id(value._storage) for value in inputs if isinstance(value, Array)}
    accesses: list[Access | None] = [_access(value, shape) for value in inputs]
    # An output that is also an input is not written blindly.
    accesses += [update if id(out._storage) in storages else write for out in outputs]
    kernel = _kernel(function, tuple(accesses), len(outputs), options, bool(shape))
    kernel(*inputs, *outputs)
    return outputs


def _access(value: Any, shape: Shape) -> Access | None:
    if not isinstance(value, Array) or not value.shape:
        return None  # by value; a 0-d array stays on its device all the same
    return _read_same if value.shape == shape else _read_broadcast


def _space(function: Any, inputs: list[Any], given: list[Array | None]) -> Shape:
    """Return the shape that the operands broadcast to."""
    taken = [value.shape for value in [*inputs, *given] if isinstance(value, Array)]
    try:
        shape = np.broadcast_shapes(*taken)
    except ValueError:
        raise ShapeError(
            f"np.{function.__name__}: shapes {', '.join(map(str, taken))} cannot be broadcast together"
        ) from None
    for out in given:
        if out is not None and out.shape != shape:
            raise ShapeError(f"np.{function.__name__}: out has shape {out.shape}, the result {shape}")
    return shape


# Other functions ----------------------------------------------------------------------------------------------------------


def array_function(function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do what `function` does, if it is listed; otherwise raise."""
    del types
    known = FUNCTIONS.get(function)
    if known is None:
        name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
        raise UnsupportedError(
            f"{name} is not defined for coexec arrays, and coexec gathers nothing silently; "
            f"use {name}(np.asarray(array)), or write a kernel"
        )
    return known(*args, **kwargs)


def _where(condition: Any, *choices: Any) -> Array:
    if len(choices) != 2:
        raise UnsupportedError("np.where(condition) selects by value; use np.where(np.asarray(condition))")
    return _elementwise(np.where, [_operand(v) for v in (condition, *choices)], [None], ())[0]


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **bounds: Any) -> Array:
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    given = _outputs("np.clip", 1, () if out is None else (out,))
    for bound, ufunc in ((low, np.maximum), (high, np.minimum)):
        if bound is not None:
            a = _elementwise(ufunc, [_operand(a), _operand(bound)], given, tuple(sorted(bounds.items())))[0]
    return a if low is not None or high is not None else _elementwise(np.positive, [a], given, ())[0]


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Array):
        np.copyto(dst, np.asarray(src), casting=casting, where=where)  # type: ignore[arg-type]
        return
    if where is not True:
        raise UnsupportedError("np.copyto(where=...) into a coexec array is not supported; use np.where(mask, x, y)")
    source = _operand(src)
    held = source if type(source) in WEAK else source.dtype
    if not np.can_cast(np.result_type(held), dst.dtype, casting) and type(source) not in WEAK:  # type: ignore[arg-type]
        raise TypeError(f"np.copyto: cannot cast {held} to {dst.dtype} according to the rule {casting!r}")
    assign(dst, source)


def _moved(a: Array, source: int, destination: int) -> Array:
    order = [axis for axis in range(a.ndim) if axis != source % a.ndim]
    order.insert(destination % a.ndim, source % a.ndim)
    return a.transpose(order)


def _swapped(a: Array, axis1: int, axis2: int) -> Array:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return a.transpose(order)


def _result_type(*values: Any) -> np.dtype[Any]:
    return np.result_type(*[value.dtype if isinstance(value, Array) else value for value in values])


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
    np.empty_like: _plain(arrays.empty_like),
    np.zeros_like: _plain(arrays.zeros_like),
    np.ones_like: _plain(arrays.ones_like),
    np.full_like: _plain(arrays.full_like),
    np.copy: lambda a, **_: a.copy(),
    np.copyto: _copyto,
    np.transpose: lambda a, axes=None: a.transpose(*(() if axes is None else (tuple(axes),))),
    np.moveaxis: _moved,
    np.swapaxes: _swapped,
    np.where: _where,
    np.clip: _clip,
}
"""NumPy functions that coexec arrays have, all without waiting (but for np.copyto into a NumPy array)."""

__all__ = ["FUNCTIONS", "array_function", "array_ufunc"]
