"""The meaning of a graph, computed by NumPy one node at a time: what compiled forms are compared with in tests.

Before: compile/trace.py.  After: tests.  Slow and plain on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..program.philox import draw_box
from .graph import (
    Apply,
    Assign,
    Axes,
    Buffer,
    Constant,
    Convert,
    Counting,
    Draw,
    Expr,
    Fold,
    Gather,
    Read,
    Scalar,
    Shape,
    Traced,
    View,
    nodes_of,
)
from .host import Host, Size, same
from .number import number_as

Array = np.ndarray[Any, Any]
REDUCERS: dict[str, Any] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "any": np.logical_or.reduce,
    "all": np.logical_and.reduce,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


class Meaning:
    """Runs a graph on real arrays."""

    def __init__(self, traced: Traced, arguments: Mapping[str, Any]) -> None:
        self._traced = traced
        self._names = names_of(arguments)
        for name, text in traced.guards.named.items():
            self._names[name] = self._evaluate(text)
        self._held: dict[tuple[int, int], Array] = {}  # (buffer, version) -> contents
        for name, parameter in traced.parameters.items():
            if isinstance(parameter, Buffer):
                self._held[id(parameter), 0] = arguments[name].copy()

    def missed(self) -> str:
        """Return the first guard that does not hold, or nothing."""
        guards = self._traced.guards
        for text, answer in guards.answers.items():
            if not same(self._evaluate(text), answer):
                return text
        return next((text for text, least in guards.least.items() if self._evaluate(text) < least), "")

    def run(self) -> dict[str, Array]:
        """Return what the written arrays hold in the end."""
        last: dict[int, int] = {}
        for store in self._traced.stores:
            version = last.get(id(store.buffer), 0)
            self._held[id(store.buffer), version + 1] = self._stored(store, version)
            last[id(store.buffer)] = version + 1
        written = {store.buffer.name: store.buffer for store in self._traced.stores if store.buffer.parameter}
        return {name: self._held[id(buffer), last[id(buffer)]] for name, buffer in written.items()}

    def _evaluate(self, text: str) -> Any:
        return eval(text, {}, self._names)  # noqa: S307 - an expression that the tracer has written

    def _size(self, size: Size) -> int:
        return int(self._evaluate(size.text)) if isinstance(size, Host) else size

    def _shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple(map(self._size, shape))

    def _stored(self, store: Assign, version: int) -> Array:
        before = self._held.get((id(store.buffer), version))
        after = np.empty(self._shape(store.buffer.shape), store.buffer.dtype) if before is None else before.copy()
        value = self._value(store.value)
        self._region(after, store.axes, value.shape)[...] = value
        return after

    def _value(self, root: Expr) -> Array:
        made: dict[int, Array] = {}
        for node in nodes_of(root):
            made[id(node)] = self._node(node, [made[id(arg)] for arg in node.args])
        return made[id(root)]

    def _node(self, node: Expr, args: list[Array]) -> Array:
        shape = self._shape(node.shape)
        match node:
            case Constant(value=value):
                return np.asarray(value)
            case Scalar(host=host, dtype=dtype):
                return np.asarray(number_as(self._evaluate(host.text), dtype))
            case Read(buffer=buffer, version=version):
                return self._held[id(buffer), version].reshape(shape)
            case Counting():
                return np.arange(shape[0])
            case View(axes=axes):
                return self._region(args[0], axes, shape)
            case Convert(dtype=dtype):
                return args[0].astype(dtype)
            case Apply(function="where"):
                return np.where(*args)
            case Apply(function=function, dtype=dtype):
                return np.asarray(getattr(np, function)(*args))
            case Gather(axis=axis):
                return np.asarray(np.take(args[0], args[1], axis=axis))
            case Draw(kind=kind):
                seed, key, first, *steps = (int(arg) for arg in args)
                return draw_box(kind, (seed, key), first, tuple(steps), shape)
            case Fold(kind=kind, axis=axis):
                return np.asarray(REDUCERS[kind](args[0], axis=axis))
        raise AssertionError(node)

    def _region(self, source: Array, axes: Axes, shape: tuple[int, ...]) -> Array:
        """Return a view of an array, axis by axis."""
        strides = [0] * len(shape)
        offset = 0
        for (start, step, axis), stride in zip(axes, source.strides, strict=True):
            offset += self._size(start) * stride
            if axis is not None:
                strides[axis] = step * stride
        first = source[(slice(0, 1),) * source.ndim].reshape(-1)
        return _strided(source, first, offset, shape, strides)


def _strided(source: Array, first: Array, offset: int, shape: tuple[int, ...], strides: list[int]) -> Array:
    flat = np.lib.stride_tricks.as_strided(first, (offset // source.itemsize + 1,), (source.itemsize,))
    return np.lib.stride_tricks.as_strided(flat[-1:], shape, strides)


def names_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what expressions of the host may name: the arguments, and the extents of arrays."""
    names: dict[str, Any] = {"np": np, **arguments}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            names |= {f"{name}__{axis}": extent for axis, extent in enumerate(value.shape)}
    return names
