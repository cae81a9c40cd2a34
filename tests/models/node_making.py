"""A random node of an operator, and the pieces that such nodes are made of: shapes, numbers, axes, opsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

Rng = np.random.Generator
Plain = np.ndarray[Any, Any]
OPSETS = (9, 10, 11, 12, 13, 17, 18, 19, 22)


class RandomNode(NamedTuple):
    """One node, what it reads, which of that decides about shapes and is a constant, and its opset."""

    kind: str
    inputs: Sequence[Plain | None]
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1
    fixed: tuple[int, ...] = ()
    opset: int = 22

    def model(self) -> Any:
        """Return a model of this node alone."""
        names = ["" if value is None else f"i{at}" for at, value in enumerate(self.inputs)]
        results = [f"o{at}" for at in range(self.outputs)]
        node = helper.make_node(self.kind, names, results, name="node", **self.attributes)
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for at, (name, value) in enumerate(zip(names, self.inputs, strict=True))
            if value is not None and at not in self.fixed
        ]
        held = [
            helper.make_tensor(f"i{at}", helper.np_dtype_to_tensor_dtype(value.dtype), value.shape, value.tobytes(), raw=True)
            for at in self.fixed
            if (value := self.inputs[at]) is not None
        ]  # fmt: skip
        out = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "one", given, out, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feeds(self) -> dict[str, Any]:
        """Return the inputs that are no constants, by name."""
        return {f"i{at}": v for at, v in enumerate(self.inputs) if v is not None and at not in self.fixed}


Make = Callable[[Rng], RandomNode]


# Pieces --------------------------------------------------------------------------------------------------------------


def shape(rng: Rng, least: int = 0, most: int = 4, size: int = 5, empty: bool = True) -> tuple[int, ...]:
    """Return a shape of few elements; now and then an axis has none."""
    found = [int(n) for n in rng.integers(1, size + 1, rng.integers(least, most + 1))]
    if empty and found and rng.random() < 0.08:
        found[rng.integers(len(found))] = 0
    return tuple(found)


def numbers(rng: Rng, of: Sequence[int], dtype: Any = np.float32, low: float = -3, high: float = 3) -> Plain:
    """Return random numbers of a type."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return np.asarray(rng.random(of) < 0.5)
    if kind.kind == "f":
        return np.asarray(rng.random(of) * (high - low) + low, dtype=kind)
    first = max(low, 0) if kind.kind == "u" else low
    return np.asarray(rng.integers(int(first), int(high) + 4, of), dtype=kind)


def broadcast(rng: Rng, of: Sequence[int]) -> tuple[int, ...]:
    """Return a shape that broadcasts to another."""
    kept = list(of[int(rng.integers(0, len(of) + 1)) :])
    return tuple(1 if rng.random() < 0.3 else n for n in kept)


def pick(rng: Rng, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def opset(rng: Rng, least: int = 9) -> int:
    return int(pick(rng, *[n for n in OPSETS if n >= least]))


def axis(rng: Rng, ndim: int) -> int:
    """Return an axis, counted from the front or the back."""
    return int(rng.integers(-ndim, ndim))


def axes(rng: Rng, ndim: int, least: int = 1) -> list[int]:
    """Return some axes, each once."""
    found = rng.permutation(ndim)[: rng.integers(least, ndim + 1)]
    return [int(a) - (ndim if rng.random() < 0.5 else 0) for a in found]


def i64(values: Sequence[int] | int) -> Plain:
    return np.array(values, dtype=np.int64)
