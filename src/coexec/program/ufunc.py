"""NumPy's ufuncs on coexec arrays: each call is an elementwise kernel.

Before: program/kernel.py, program/fuse.py.  After: program/numpy_protocol.py, ops/.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..errors import ShapeError, UnsupportedError
from ..geometry import Box
from . import array as arrays, session
from .access import Access, read, update, write
from .array import Array
from .assign import private_copy
from .body import signature
from .cost import DeclaredCost, mix_of
from .fuse import Operand, Operation, private
from .kernel import Kernel
from .later_stages import late
from .mapper import Mapper
from .overlap import entangled
from .padding import Shape
from .refusals import IMMUTABLE, no_function
from .value import Value, as_value, known_value

WEAK = (bool, int, float, complex)
"""Python's numbers, whose types do not count beside an array's (NEP 50)."""
OPTIONS = {"dtype": None, "casting": "same_kind", "order": "K", "subok": True, "signature": None, "sig": None}
"""Keywords of a ufunc besides `out` and `where`, with NumPy's defaults."""
LARGE = 1 << 63
"""Python integers from here on are for NumPy only: C has no such integers."""
FUSED_FROM = 1 << 18
"""Bytes of a result from which operations are held back for a moment: smaller ones are in cache anyway."""
Options = tuple[tuple[str, Any], ...]


class Broadcast(Mapper):
    """The chunk on the trailing axes, as NumPy lines shapes up; an axis of length one serves every chunk."""

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        first = len(space) - len(shape)
        los, his = chunk.lo[first:], chunk.hi[first:]
        lo = tuple(0 if n == 1 else v for n, v in zip(shape, los, strict=True))
        return Box(lo, tuple(1 if n == 1 else v for n, v in zip(shape, his, strict=True)))


broadcast = Broadcast()
_read_same, _read_broadcast = read, read(broadcast)


class Elementwise:
    """A body: one NumPy function of some inputs (the last a mask, if any), into some outputs."""

    __slots__ = ("__name__", "__signature__", "_form", "_function", "_inputs", "_masked", "_options", "_takes_out")

    def __init__(
        self, function: Any, inputs: int, outputs: int, options: Options, *, masked: bool, form: str = ""
    ) -> None:
        names = [f"x{i}" for i in range(inputs)] + [f"out{i}" for i in range(outputs)]
        self.__signature__ = signature(names)
        self.__name__ = str(function.__name__)
        self._function = function
        self._form = form  # tells kernels apart whose operands are of other kinds: they take other times
        self._inputs = inputs
        self._masked = masked
        self._options = dict(options)
        self._takes_out = isinstance(function, np.ufunc)

    def on(self, xp: Any) -> Elementwise:
        """Return the body with its function taken from another namespace, for arrays that are not NumPy's."""
        other = copy(self)
        function = getattr(xp, self.__name__)
        other._function = getattr(function, "strict", function)
        return other

    def formula(self, xp: Any) -> Callable[..., None]:
        """Return the same as a function of arrays by name, for whoever traces it."""
        del xp

        def formula(**given: Any) -> None:
            self(*given.values())

        return formula

    def __call__(self, *values: Any) -> None:
        """Compute the function on one chunk."""
        inputs, outputs = values[: self._inputs], values[self._inputs :]
        if self._masked:
            self._function(*inputs[:-1], out=outputs, where=inputs[-1], **self._options)
        elif self._takes_out:
            self._function(*inputs, out=outputs, **self._options)
        else:
            outputs[0][...] = self._function(*inputs, **self._options)


@lru_cache(maxsize=1024)
def _kernel(
    function: Any,
    operands: tuple[Operand, ...],
    outputs: tuple[tuple[np.dtype[Any], str], ...],
    ndim: int,
    options: Options,
    masked: bool,
) -> Kernel:
    """Return the kernel of a function for operands of these types and patterns, and outputs of these types and modes."""
    form = f"{[(str(o.dtype), o.ones) for o in operands]} {[(str(dtype), mode) for dtype, mode in outputs]}"
    body = Elementwise(function, len(operands), len(outputs), options, masked=masked, form=form)
    kernel = _declared(body, operands, [mode for _, mode in outputs], ndim)
    if len(outputs) == 1 and not masked:
        out = Operand(outputs[0][0], (False,) * ndim)
        kernel.operands = dict(zip(body.__signature__.parameters, (*operands, out), strict=True))
    return kernel


def _declared(body: Any, operands: Sequence[Operand], modes: Sequence[str], ndim: int) -> Kernel:
    """Return the kernel of a body for operands of these patterns and outputs of these modes, in NumPy alone."""
    accesses: list[Access | None] = [_access(operand, ndim) for operand in operands]
    accesses += [update if mode == "update" else write for mode in modes]
    declared = {name: access for name, access in zip(body.__signature__.parameters, accesses, strict=True) if access}
    cost = DeclaredCost(mix=mix_of([body.__name__]))
    kernel = Kernel(body, declared, split=0 if ndim else None, over="out0", name=body.__name__, cost=cost)
    kernel.blind = True
    kernel.pointwise = len(modes) == 1
    return kernel


class HasRaised:
    """The body of a call that was made already, and raised: it raises the same."""

    def __init__(self, body: Any, error: Exception) -> None:
        self.__signature__, self.__name__ = body.__signature__, body.__name__
        self._error = error

    def __call__(self, *values: Any) -> None:
        """Raise what the call raised."""
        raise self._error


def _access(operand: Operand, ndim: int) -> Access | None:
    if operand.scalar:
        return None  # by value; a 0-d array stays on its device all the same
    return _read_same if len(operand.ones) == ndim and not any(operand.ones) else _read_broadcast


def array_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Record `ufunc.method(*inputs)` as a kernel; return its new arrays, or `out`."""
    name = f"np.{ufunc.__name__}"
    if method == "reduce":
        result = late("ops.reduce:reduce_ufunc")(ufunc, *inputs, **kwargs)
        return as_value(result, kwargs.get("out") or ())
    if method == "outer":
        first, second = (value if type(value) is Value else operand(value) for value in inputs)
        inputs = (first if type(first) is Value else expanded(first, np.ndim(second)), second)
    elif method == "at":
        raise no_function(f"{name}.at")
    elif method != "__call__":
        raise UnsupportedError(
            f"{name}.{method} on a coexec array would gather it silently; use {name}.{method}(np.asarray(x)), or a "
            "kernel (cx.reduce('sum') declares a reduction)"
        )
    if ufunc is np.matmul:
        return _matmul(*inputs, **kwargs)
    if ufunc.signature is not None:
        raise UnsupportedError(
            f"{name} is not elementwise; write a kernel that calls it, or use {name}(np.asarray(x), np.asarray(y))"
        )
    out = tuple(kwargs.pop("out", None) or ())
    mask = kwargs.pop("where", True)
    options = {key: value for key, value in kwargs.items() if key not in OPTIONS or value != OPTIONS[key]}
    taken = [operand(value) for value in inputs]
    if any(value is NotImplemented for value in taken):
        return NotImplemented
    given = outputs_of(name, ufunc.nout, out)
    if not any(isinstance(value, Array) for value in (*taken, *given, mask)):  # the numbers of values are known
        runtime = next(value.runtime for value in inputs if type(value) is Value)
        numbers = ufunc(*taken, where=mask, **kwargs)
        return tuple([_known(n, runtime) for n in numbers]) if ufunc.nout > 1 else _known(numbers, runtime)
    results = elementwise(ufunc, taken, given, tuple(sorted(options.items())), mask=mask)
    results = [as_value(result, given) for result in results]
    return results[0] if ufunc.nout == 1 else tuple(results)


def _known(number: Any, runtime: Any) -> Any:
    """Return a number as a value; a mask that is an array of NumPy's makes arrays, which stay as they are."""
    return known_value(number, runtime) if isinstance(number, np.generic) else number


def _matmul(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
    for key, value in options.items():
        if key not in OPTIONS or value != OPTIONS[key]:
            raise UnsupportedError(f"np.matmul({key}=...) on coexec arrays is not supported; use np.asarray(x)")
    given = outputs_of("np.matmul", 1, tuple(out or ()))[0]
    operands = [value if isinstance(value, Array) else arrays.array(value) for value in (a, b)]
    return late("ops.matmul:matmul")(*operands, **({} if given is None else {"out": given}))


def operand(value: Any) -> Any:
    """Return an input as an array, or as a scalar to pass by value."""
    if type(value) is Value:
        return value if value.known is None else value.known
    if isinstance(value, Array | np.generic) or type(value) in WEAK:
        return value
    if isinstance(value, np.ndarray):
        return arrays.array(value) if value.ndim else value[()]
    if hasattr(type(value), "__array_ufunc__"):
        return NotImplemented
    return operand(np.asarray(value))


def expanded(value: Any, axes: int) -> Any:
    """Return an operand with that many axes of length one behind its own."""
    return value[(..., *(None,) * axes)] if isinstance(value, Array) and axes else value


def outputs_of(name: str, count: int, out: tuple[Any, ...]) -> list[Array | None]:
    """Return the arrays given as `out`, or None for each one to make."""
    for entry in out:
        if not isinstance(entry, Array | None):
            raise UnsupportedError(
                f"{name}(out={type(entry).__name__}) would be written some time later; pass a coexec array as out, or "
                f"use {name}(np.asarray(x), out=...)"
            )
        if entry is not None and entry.immutable:
            raise UnsupportedError(f"{name}: out is a value, and {IMMUTABLE}")
    return list(out) if out else [None] * count


def elementwise(
    function: Any,
    inputs: list[Any],
    given: Sequence[Array | None],
    options: Options = (),
    *,
    mask: Any = True,
    failed: Exception | None = None,
) -> list[Array]:
    """Record one elementwise kernel and return its outputs; where a mask is given and false, they keep their values.

    `failed` is what the call has raised, if it was made already: then the kernel raises it, too.
    """
    if mask is not True:
        mask = operand(mask)
        mask = arrays.array(mask) if not isinstance(mask, Array) else mask
        inputs = [*inputs, mask]
    kinds = tuple([_kind(value) for value in inputs])
    held = tuple([None if out is None else out.dtype for out in given])
    dtypes = _dtypes(function, kinds, held, options, mask is not True)
    shape = _space(function, inputs, given)
    # NumPy answers as if everything were read first. Devices compute points in any order, so they read from a copy.
    inputs = [private_copy(value) if entangled(value, given) else value for value in inputs]
    storages = {id(value._storage) for value in inputs if isinstance(value, Array)}
    outputs = [_output(shape, dtype) if out is None else out for out, dtype in zip(given, dtypes, strict=True)]
    # An output that is also an input is not written blindly, nor one that a mask protects.
    modes = ["update" if mask is not True or id(out._storage) in storages else "write" for out in outputs]
    operands = tuple([_operand_of(value, shape) for value in inputs])
    described = tuple([(out.dtype, mode) for out, mode in zip(outputs, modes, strict=True)])
    kernel = _kernel(function, operands, described, len(shape), options, mask is not True)
    passed = list(inputs)
    if failed is not None:
        kernel = _declared(HasRaised(kernel.function, failed), operands, modes, len(shape))
    elif modes == ["write"] and given[0] is None and outputs[0].nbytes >= FUSED_FROM and isinstance(function, np.ufunc):
        result = private(outputs)[0]
        operation = Operation(function, options, private(passed), operands, result, kernel, broadcast)
        if session.current().fuse(operation):
            return outputs
    kernel(*passed, *outputs)
    return outputs


def _output(shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return an array for a result; one that may become part of a chain must be gone when nobody asks for it, so it is new."""
    return (arrays.fresh if prod(shape) * dtype.itemsize >= FUSED_FROM else arrays.empty)(shape, dtype)


def applied(function: Any, *inputs: Any, **options: Any) -> Array:
    """Return the one new array that an elementwise function gives for operands."""
    return elementwise(function, list(inputs), [None], tuple(sorted(options.items())))[0]


def _kind(value: Any) -> Any:
    """Return all that NumPy's type rules look at: a dtype, or a Python number's type, or an integer itself."""
    if isinstance(value, Array | np.generic):
        return value.dtype
    return value if type(value) is int else type(value)


@lru_cache(maxsize=4096)
def _dtypes(
    function: Any, kinds: tuple[Any, ...], held: tuple[Any, ...], options: Options, masked: bool
) -> list[np.dtype[Any]]:
    """Return the results' types, asked of NumPy itself with empty stand-ins; raise what it raises."""
    keywords: dict[str, Any] = dict(options)
    if isinstance(function, np.ufunc) and (masked or any(dtype is not None for dtype in held)):
        keywords["out"] = tuple(None if dtype is None else np.empty(0, dtype) for dtype in held)
    models = [
        np.empty(0, kind) if isinstance(kind, np.dtype) else kind() if isinstance(kind, type) else kind
        for kind in kinds
    ]
    if masked:
        keywords["where"] = models.pop()
    if all(not isinstance(model, np.ndarray) for model in models):
        models[0] = np.empty(0, np.result_type(models[0]))  # only `out` is a coexec array: nothing is computed here
    answer = function(*models, **keywords)
    return [a.dtype for a in (answer if isinstance(answer, tuple) else (answer,))]


def _operand_of(value: Any, shape: Shape) -> Operand:
    if not isinstance(value, Array):
        if type(value) is int and not -LARGE <= value < LARGE:
            return Operand(np.dtype(object))
        return Operand(value.dtype if isinstance(value, np.generic) else type(value))
    if value.shape == shape:
        return Operand(value.dtype, (False,) * len(shape))
    first = len(shape) - value.ndim
    return Operand(value.dtype, tuple([n == 1 and shape[first + a] != 1 for a, n in enumerate(value.shape)]))


def _space(function: Any, inputs: Sequence[Any], given: Sequence[Array | None]) -> Shape:
    """Return the shape that the operands broadcast to."""
    taken = [value.shape for value in [*inputs, *given] if isinstance(value, Array)]
    if not taken:  # values that are known: numbers
        return ()
    if all(shape == taken[0] for shape in taken):
        return taken[0]
    try:
        shape = np.broadcast_shapes(*taken)
    except ValueError as error:
        shapes = ", ".join(map(str, taken))
        if "too large" in str(error):
            raise ShapeError(
                f"np.{function.__name__}: the result of shapes {shapes} is larger than any memory"
            ) from None
        raise ShapeError(f"np.{function.__name__}: shapes {shapes} cannot be broadcast together") from None
    for out in given:
        if out is not None and out.shape != shape:
            raise ShapeError(f"np.{function.__name__}: out has shape {out.shape}, the result {shape}")
    return shape
