"""A model as one graph of operations on named values, wherever it came from: files, torch modules, builders.

Before: nothing.  After: models/building.py, models/extract.py.  Knows no file format and no device.

Operations have ONNX's names and meaning. Parameters of builders are made when somebody asks for their values, so that a
graph of hundreds of millions of them costs nothing to plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from ..errors import ProgramError

Attributes = Mapping[str, Any]


class ValueType(NamedTuple):
    """Shape and type of a value."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class OpNode:
    """One operation: ONNX's name for what it does, and the names of what it reads and gives. "" = left out."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True)
class LayerGraph:
    """A model: operations in an order that can be run, types of all values, and constants."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[OpNode, ...]
    types: Mapping[str, ValueType]
    constants: Mapping[str, np.ndarray[Any, Any] | None] = field(default_factory=dict)  # None: made when asked for
    notes: tuple[str, ...] = ()
    opset: int = 22  # of ONNX, which says what operators mean; 22 is what the builders write

    def __post_init__(self) -> None:
        known = {*self.inputs, *self.constants, ""}
        for operation in self.operations:
            if missing := [name for name in operation.inputs if name not in known]:
                raise ProgramError(f"{operation.kind} {operation.name!r} reads {missing[0]!r}, which nothing gives")
            known.update(operation.outputs)
        if missing := [name for name in self.outputs if name not in known]:
            raise ProgramError(f"nothing gives the output {missing[0]!r} of {self.name}")
        if untyped := sorted(name for name in known - self.types.keys() if name):
            raise ProgramError(f"{self.name}: shape and type of {untyped[0]!r} are not known")

    def constant(self, name: str) -> np.ndarray[Any, Any]:
        """Return a constant; parameters that a builder declared get the same random values each time."""
        value = self.constants[name]
        if value is not None:
            return value
        shape, dtype = self.types[name]
        random = np.random.default_rng(crc32(name.encode()))
        fan = max(1, int(np.prod(shape[1:], dtype=np.int64))) if len(shape) > 1 else 1
        scale = np.sqrt(2.0 / fan) if len(shape) > 1 else 0.1
        return (random.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(dtype)

    @property
    def parameters(self) -> int:
        """Elements of all constants of floating type."""
        return sum(t.elements for name in self.constants if (t := self.types[name]).dtype.startswith("float"))

    def kinds(self) -> dict[str, int]:
        """Return how often each kind of operation occurs."""
        found: dict[str, int] = {}
        for operation in self.operations:
            found[operation.kind] = found.get(operation.kind, 0) + 1
        return dict(sorted(found.items()))


def sort(operations: Iterable[OpNode], given: Iterable[str]) -> tuple[OpNode, ...]:
    """Return operations in an order that can be run, as near to the given one as possible; raise if they form a circle."""
    left, known, ordered = list(operations), {*given, ""}, []
    while left:
        blocked = []
        for operation in left:
            if all(name in known for name in operation.inputs):
                known.update(operation.outputs)
                ordered.append(operation)
            else:
                blocked.append(operation)
        if len(blocked) == len(left):
            first = blocked[0]
            missing = next(name for name in first.inputs if name not in known)
            raise ProgramError(
                f"{first.kind} {first.name!r} reads {missing!r}, which nothing gives or which needs its result"
            )
        left = blocked
    return tuple(ordered)
