"""One operator on its way to be run: its operands, attributes and results; and kernels made from a function and mappers.

Before: program/kernel.py, models/values.py.  After: the other modules of this folder.  Knows no particular operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...geometry import Box
from ...program import array as arrays
from ...program.access import read, write
from ...program.array import Array
from ...program.body import signature
from ...program.kernel import Kernel, kernel
from ...program.mapper import Mapper, all as map_all, same
from ...program.variant import close
from ..values import OpNode, ValueType

Shape = tuple[int, ...]
Plain = np.ndarray[Any, Any]
NUMERICS = close(256)
"""What torch's sums and functions may differ by, in units in the last place."""


class OpCall:
    """An operator with its operands. Constants are known as NumPy arrays, and become arrays when they are asked for."""

    def __init__(
        self,
        node: OpNode,
        opset: int,
        types: Sequence[ValueType],
        constants: Sequence[Plain | None],
        give: Callable[[int], Array],
    ) -> None:
        self.node, self.opset, self.types = node, opset, types
        self._constants, self._give = constants, give

    def has(self, position: int) -> bool:
        """Tell whether an operand is given."""
        return position < len(self.node.inputs) and self.node.inputs[position] != ""

    @property
    def count(self) -> int:
        """How many operands there are, left out ones in between included."""
        return len(self.node.inputs)

    def array(self, position: int) -> Array:
        """Return an operand as a coexec array."""
        return self._give(position)

    def arrays(self) -> list[Array]:
        """Return all operands as coexec arrays."""
        return [self._give(i) for i in range(len(self.node.inputs))]

    def known(self, position: int) -> Plain | None:
        """Return the value of an operand that is a constant; None if it is computed or left out."""
        return self._constants[position] if self.has(position) else None

    def fixed(self, position: int) -> Plain | None:
        """Return the value of an operand that must be a constant, or None if it is left out."""
        if not self.has(position):
            return None
        value = self._constants[position]
        if value is None:
            raise UnsupportedError(
                f"{self.node.kind} {self.node.name!r}: operand {self.node.inputs[position]!r} decides about shapes and is "
                "computed from the model's input; give it as a constant with values={...}"
            )
        return value

    def numbers(self, position: int, name: str = "") -> list[int] | None:
        """Return whole numbers that newer opsets pass as a constant operand and older ones as an attribute."""
        value = self.fixed(position)
        if value is not None:
            return [int(v) for v in np.atleast_1d(value)]
        found = self.node.attributes.get(name) if name else None
        return None if found is None else [int(v) for v in found]

    def operand(self, position: int) -> Any:
        """Return an operand for elementwise functions: a number with its type where a constant is one, else an array."""
        value = self.known(position)
        return value[()] if value is not None and value.ndim == 0 else self.array(position)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.node.attributes.get(name, default)

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.node.attributes.get(name, default))

    def flag(self, name: str, default: int = 0) -> bool:
        """Return an attribute that is 0 or 1."""
        return bool(self.node.attributes.get(name, default))

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Which results somebody asks for."""
        return tuple(bool(name) for name in self.node.outputs)

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.types[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the first result."""
        return np.dtype(self.types[0].dtype)


Run = Callable[[OpCall], Sequence[Array]]


# Kernels from functions -----------------------------------------------------------------------------------------------------


class Prefix(Mapper):
    """The chunk along the first `axes` axes, everything along the others."""

    def __init__(self, axes: int) -> None:
        self.axes = axes

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        n = self.axes
        return Box(chunk.lo[:n] + (0,) * (len(shape) - n), chunk.hi[:n] + shape[n:])


class Whole(Mapper):
    """The chunk, but everything along some axes, which have another length or order there."""

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = tuple(axes)

    def box(self, chunk: Box, space: Shape, shape: Shape) -> Box:
        del space
        lo = tuple(0 if axis in self.axes else chunk.lo[axis] for axis in range(len(shape)))
        return Box(lo, tuple(n if axis in self.axes else chunk.hi[axis] for axis, n in enumerate(shape)))


class FixedBody:
    """A body: a function of arrays, inputs before outputs, and of values that belong to the kernel."""

    def __init__(self, function: Callable[..., None], arrays: int, fixed: tuple[Any, ...], *, chunked: bool) -> None:
        self.__signature__ = signature([f"a{i}" for i in range(arrays)] + ["chunk"] * chunked)
        self.__name__ = function.__name__
        self._function, self.fixed = function, fixed

    def __call__(self, *values: Any) -> None:
        """Compute one chunk."""
        self._function(*values, *self.fixed)


class KernelForm(NamedTuple):
    """All that a kernel of this folder is made of. The function takes inputs, outputs, the chunk if asked for, `fixed`."""

    function: Callable[..., None]
    inputs: tuple[Mapper, ...] = (same,)
    split: tuple[int, ...] = ()
    fixed: tuple[Any, ...] = ()
    outputs: tuple[Mapper, ...] = (same,)
    chunked: bool = False
    torch: Callable[..., None] | None = None
    flops: float = 2.0  # per point
    name: str = ""


@lru_cache(maxsize=2048)
def kernel_of(form: KernelForm) -> Kernel:
    """Return the kernel of a form."""
    count = len(form.inputs) + len(form.outputs)
    body = FixedBody(form.function, count, form.fixed, chunked=form.chunked)
    accesses: dict[str, Any] = {f"a{i}": read(mapper) for i, mapper in enumerate(form.inputs)}
    accesses |= {f"a{i}": write(mapper) for i, mapper in enumerate(form.outputs, len(form.inputs))}
    made = kernel(
        split=form.split or None,
        over=f"a{len(form.inputs)}" if form.split else None,
        name=form.name or form.function.__name__,
        flops=form.flops,
        **accesses,
    )(body)
    if form.torch is not None:
        variant = FixedBody(form.torch, count, form.fixed, chunked=form.chunked)
        made.variant(variant, kind="torch", name="torch", numerics=NUMERICS)
    return made


def compute(form: KernelForm, inputs: Sequence[Array], shape: Shape, dtype: Any) -> Array:
    """Call the kernel of a form with one new array as its result, and return that."""
    result = arrays.empty(shape, dtype)
    if result.size:
        kernel_of(form)(*inputs, result)
    return result


def whole(function: Callable[..., None], inputs: int, *fixed: Any, outputs: int = 1, name: str = "") -> KernelForm:
    """Return the form of a kernel that is not divided."""
    return KernelForm(function, (map_all,) * inputs, (), fixed, (map_all,) * outputs, name=name)


def positive(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front."""
    return tuple(axis % ndim if ndim else 0 for axis in axes)
