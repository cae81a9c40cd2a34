"""The functional form: what arrays a kernel returns.

Before: program/array.py.  After: program/kernel.py.  Knows shapes and types, never data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from .array import Array, check_dtype, check_shape


class Like(NamedTuple):
    """An array like a parameter, with another shape or type if given."""

    name: str
    dtype: Any = None
    shape: Any = None


class New(NamedTuple):
    """An array of a given shape and type. Either may be a function of the arguments."""

    shape: Any
    dtype: Any = float


class Returns:
    """The declared results of a kernel; empty for kernels that write into their arguments."""

    def __init__(self, specs: tuple[Any, ...], *, single: bool) -> None:
        self.specs = specs
        self.single = single
        self.names = tuple("returned" if single else f"returned{i}" for i in range(len(specs)))

    def describe(self, named: dict[str, Any]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and type of each result for the arguments of one call."""
        return [self._one(spec, named) for spec in self.specs]

    def _one(self, spec: Any, named: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        if isinstance(spec, Like):
            if spec.name not in named:
                raise ArgumentError(f"returns=cx.like({spec.name!r}): no such parameter (has {', '.join(named)})")
            model = named[spec.name]
            if not isinstance(model, Array):
                raise ArgumentError(f"returns=cx.like({spec.name!r}): that parameter is not an array")
            shape = model.shape if spec.shape is None else _value(spec.shape, named)
            return check_shape(shape), check_dtype(model.dtype if spec.dtype is None else _value(spec.dtype, named))
        return check_shape(_value(spec.shape, named)), check_dtype(_value(spec.dtype, named))


def _value(entry: Any, named: dict[str, Any]) -> Any:
    if isinstance(entry, type) or not callable(entry):
        return entry
    import inspect

    return entry(**{name: named[name] for name in inspect.signature(entry).parameters})


def like(name: str, dtype: Any = None, shape: Any = None) -> Like:
    """Declare a result like parameter `name`. `shape` and `dtype` may be values or functions of named arguments."""
    return Like(name, dtype, shape)


def new(shape: Any, dtype: Any = float) -> New:
    """Declare a result of `shape` and `dtype`, each a value or a function of named arguments."""
    return New(shape, dtype)


def as_returns(value: Any) -> Returns:
    """Return the declaration `value` as Returns, or raise."""
    if value is None:
        return Returns((), single=False)
    specs: tuple[Any, ...] = (value,) if isinstance(value, Like | New) else tuple(value)
    if not all(isinstance(spec, Like | New) for spec in specs):
        raise ArgumentError("returns= takes cx.like('parameter') or cx.new(shape, dtype), or a tuple of these")
    return Returns(specs, single=isinstance(value, Like | New))
