"""Write a model as calls: each adds an operation and returns the name of its result, with its shape worked out.

Before: models/values.py.  After: models/zoo.py.  Knows the operations that the ready-made models need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from .values import LayerGraph, OpNode, ValueType


class NetBuilder:
    """Collects operations. Values are names; parameters are declared, and made when somebody asks for them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._inputs: list[str] = []
        self._operations: list[OpNode] = []
        self._types: dict[str, ValueType] = {}
        self._constants: dict[str, np.ndarray[Any, Any] | None] = {}
        self._counts: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare an input."""
        self._inputs.append(name)
        self._types[name] = ValueType(tuple(shape))
        return name

    def parameter(self, name: str, shape: Sequence[int]) -> str:
        """Declare a parameter of floating type."""
        self._types[name], self._constants[name] = ValueType(tuple(shape)), None
        return name

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        """Add a constant."""
        self._types[name], self._constants[name] = ValueType(value.shape, value.dtype.name), value
        return name

    def shape(self, value: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self._types[value].shape

    def add_operation(
        self, kind: str, inputs: Sequence[str], shape: Sequence[int], name: str = "", **given: Any
    ) -> str:
        """Add any operation with one result of a known shape."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        name = name or f"{kind.lower()}{self._counts[kind]}"
        self._operations.append(OpNode(kind, name, tuple(inputs), (name,), given))
        self._types[name] = ValueType(tuple(shape))
        return name

    def conv(
        self,
        value: str,
        filters: int,
        taps: int,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        name: str = "",
    ) -> str:
        """Add a convolution; without `padding`, that which keeps the size at stride 1."""
        batch, channels, rows, columns = self.shape(value)
        if channels % groups or filters % groups:
            raise ShapeError(
                f"{groups} groups divide neither {channels} channels nor {filters} filters of {name or 'conv'}"
            )
        pad = taps // 2 if padding is None else padding
        name = name or f"conv{self._counts.get('Conv', 0) + 1}"
        weights = self.parameter(f"{name}.weight", (filters, channels // groups, taps, taps))
        sizes = [(length + 2 * pad - taps) // stride + 1 for length in (rows, columns)]
        return self.add_operation(
            "Conv", (value, weights), (batch, filters, *sizes), name,
            strides=(stride, stride), pads=(pad,) * 4, group=groups, dilations=(1, 1), kernel_shape=(taps, taps),
        )  # fmt: skip

    def pool(self, value: str, size: int, stride: int, padding: int = 0) -> str:
        """Add a maximum over windows."""
        batch, channels, rows, columns = self.shape(value)
        sizes = [(length + 2 * padding - size) // stride + 1 for length in (rows, columns)]
        return self.add_operation(
            "MaxPool", (value,), (batch, channels, *sizes),
            kernel_shape=(size, size), strides=(stride, stride), pads=(padding,) * 4,
        )  # fmt: skip

    def global_pool(self, value: str) -> str:
        """Add the mean over rows and columns."""
        return self.add_operation("GlobalAveragePool", (value,), (*self.shape(value)[:2], 1, 1))

    def same(self, kind: str, *values: str, **given: Any) -> str:
        """Add an operation whose result has the shape of its operands together: Relu, Add, Softmax."""
        shape = np.broadcast_shapes(*map(self.shape, values))
        return self.add_operation(kind, values, shape, **given)

    def flatten(self, value: str) -> str:
        """Make rows of everything but the first axis."""
        shape = self.shape(value)
        return self.add_operation("Flatten", (value,), (shape[0], int(np.prod(shape[1:]))), axis=1)

    def fc(self, value: str, width: int, name: str = "") -> str:
        """Add a fully connected layer with bias."""
        rows, inner = self.shape(value)
        name = name or f"fc{self._counts.get('Gemm', 0) + 1}"
        weights, bias = self.parameter(f"{name}.weight", (width, inner)), self.parameter(f"{name}.bias", (width,))
        return self.add_operation("Gemm", (value, weights, bias), (rows, width), name, transB=1)

    def matmul(self, left: str, right: str, name: str = "") -> str:
        """Add a product of matrices, batched over leading axes."""
        one, other = self.shape(left), self.shape(right)
        if one[-1] != other[-2]:
            raise ShapeError(f"{one} and {other} cannot be multiplied: {one[-1]} is not {other[-2]}")
        lead = np.broadcast_shapes(one[:-2], other[:-2])
        return self.add_operation("MatMul", (left, right), (*lead, one[-2], other[-1]), name)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Give a value another shape with as many elements."""
        if np.prod(shape) != np.prod(self.shape(value)):
            raise ShapeError(f"{self.shape(value)} cannot be reshaped to {tuple(shape)}")
        target = self.constant(f"shape{len(self._constants)}", np.array(shape, np.int64))
        return self.add_operation("Reshape", (value, target), shape)

    def transpose(self, value: str, order: Sequence[int]) -> str:
        """Give a value's axes another order."""
        shape = self.shape(value)
        return self.add_operation("Transpose", (value,), [shape[axis] for axis in order], perm=tuple(order))

    def concat(self, values: Sequence[str], axis: int) -> str:
        """Join values along an axis."""
        shape = list(self.shape(values[0]))
        shape[axis] = sum(self.shape(value)[axis] for value in values)
        return self.add_operation("Concat", values, shape, axis=axis)

    def done(self, *outputs: str, notes: tuple[str, ...] = ()) -> LayerGraph:
        """Return the graph."""
        return LayerGraph(
            self.name, tuple(self._inputs), outputs, tuple(self._operations), self._types, self._constants, notes
        )
