"""ONNX models made simpler before they are read: sizes and values are bound, functions inlined, constants folded.

Before: models/onnx_files.py.  After: models/onnx_reading.py.  Works in place on models of onnx-ir, whose passes and
onnxscript's optimiser do the work.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .onnx_files import first_line
from .onnx_types import needs

Shapes = Mapping[str, Sequence[int] | int]
Values = Mapping[str, Any]
SMALL = 4096
"""Elements of a constant up to which values are worked out to find shapes: those that shapes are made of."""
ROUNDS = 4
"""Times that constants are folded at most: a branch that is taken may let others be taken."""
POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
CEILING = 22
"""The first opset for which the `onnx` package infers that no pool's window begins beyond the image when sizes are rounded up."""
RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial"})
"""Operators, beside those whose name says so, that give something else each time."""


def named(dim: Any) -> str:
    """Return the name of an open size; "" for one that has none. Some exporters write ? for what they do not know."""
    name = getattr(dim, "value", None)
    return name if isinstance(name, str) and name != "?" else ""


def known(dim: Any) -> bool:
    """Tell whether a size is given: some exporters write -1 for what they do not know."""
    return isinstance(dim, int) and dim >= 0


class InputBinding:
    """Gives the inputs of a model their sizes and values, and collects what stays open."""

    def __init__(self, model: Any, shapes: Shapes, values: Values) -> None:
        self.model, self.shapes, self.values = model, dict(shapes), dict(values)
        self.open: list[str] = []

    def bind(self) -> list[str]:
        """Bind all inputs; return the sizes that stay open, in words."""
        graph = self.model.graph
        for value in [value for value in graph.inputs if value.is_initializer()]:
            graph.inputs.remove(value)  # old files list their constants as inputs too
        self._refuse_unknown()
        for value in list(graph.inputs):
            if value.name in self.values:
                self._fix(value)
        told = [value for value in graph.inputs if value.name in self.shapes]
        for value in told:
            self._told(value)
        for value in graph.inputs:
            if value.name not in self.shapes:
                self._size(value)
        return self.open

    def _refuse_unknown(self) -> None:
        inputs = self.model.graph.inputs
        given = {value.name for value in inputs}
        sizes = {named(dim) for value in inputs for dim in value.shape or ()} - {""}
        for option, names, allowed in (
            ("shapes", self.shapes, sorted(given | sizes)), ("values", self.values, sorted(given))
        ):  # fmt: skip
            if unknown := sorted(set(names) - set(allowed)):
                raise ModelError(
                    f"{option}= names {unknown[0]!r}, which is no input{' or open size' * (option == 'shapes')} of the "
                    f"model (it has {', '.join(allowed) or 'none'})"
                )

    def _fix(self, value: Any) -> None:
        """Turn an input into a constant."""
        told = self.values[value.name]
        ir, graph, given = needs("onnx_ir"), self.model.graph, np.asarray(told)
        try:
            dtype = value.dtype.numpy()
            with np.errstate(all="ignore"):  # what does not fit is refused below
                taken = given.astype(dtype)
        except (AttributeError, TypeError, ValueError) as error:
            raise ModelError(f"values= gives {value.name!r} {given.dtype}, which it cannot take: {error}") from error
        if given.dtype.kind == dtype.kind == "f" and not isinstance(told, np.ndarray | np.generic):
            same = np.array_equal(np.isfinite(taken), np.isfinite(given))  # Python's floats are rounded, as NumPy does
        else:
            same = np.array_equal(taken, given, equal_nan=dtype.kind in "fc")
        if not same:
            raise ModelError(f"values= gives {value.name!r} {given.dtype}, and the model takes {dtype}; convert it")
        if value.shape is not None and not _fits(value.shape, given.shape):
            raise ModelError(
                f"values= gives {value.name!r} the shape {given.shape}, and the model says {_described(value.shape)}"
            )
        value.shape = ir.Shape(given.shape)
        value.const_value = ir.tensor(taken, name=value.name)
        graph.inputs.remove(value)
        graph.register_initializer(value)

    def _told(self, value: Any) -> None:
        """Give an input the shape that was told for it, and its names of sizes to others."""
        told = self.shapes[value.name]
        sizes = (told,) if isinstance(told, int) else tuple(int(n) for n in told)
        if value.shape is not None and not _fits(value.shape, sizes):
            raise ModelError(
                f"shapes= gives {value.name!r} the shape {sizes}, and the model says {_described(value.shape)}"
            )
        for dim, size in zip(value.shape or (), sizes, strict=False):
            if name := named(dim):
                self.shapes.setdefault(name, size)
        value.shape = needs("onnx_ir").Shape(sizes)

    def _size(self, value: Any) -> None:
        """Give an input the sizes that were told by name."""
        if value.shape is None:
            self.open.append(f"the shape of {value.name!r}")
            return
        sizes: list[Any] = list(value.shape)
        for axis, dim in enumerate(sizes):
            told = self.shapes.get(named(dim))
            if known(dim):
                continue
            if named(dim) and isinstance(told, int):
                sizes[axis] = told
            else:
                label = (
                    f"{named(dim)!r} (axis {axis} of {value.name!r})"
                    if named(dim)
                    else f"axis {axis} of {value.name!r}"
                )
                self.open.append(label)
        value.shape = needs("onnx_ir").Shape(sizes)


def _fits(declared: Any, sizes: Sequence[int]) -> bool:
    return len(declared) == len(sizes) and all(dim == n for dim, n in zip(declared, sizes, strict=True) if known(dim))


def _described(declared: Any) -> str:
    return f"({', '.join(str(dim) if known(dim) else named(dim) or '?' for dim in declared)})"


# Passes ---------------------------------------------------------------------------------------------------------------------


def inline(model: Any) -> None:
    """Put the functions of a model where they are called, and constants where weights are."""
    passes = needs("onnx_ir.passes.common")
    try:
        if model.functions:
            passes.InlinePass()(model)
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    except Exception as error:
        raise ModelError(f"the functions of the model cannot be inlined: {first_line(error)}") from error


def fold(model: Any) -> bool:
    """Work out what depends on no input's value, and take branches whose conditions are known, as far as onnxscript can.

    Return whether anything was done. It believes the `onnx` package's inference, which is wrong about some old pools.
    """
    if model.opset_imports.get("", CEILING) < CEILING and any(
        node.op_type in POOLS and "ceil_mode" in node.attributes and node.attributes["ceil_mode"].as_int()
        for node in needs("onnx_ir").traversal.RecursiveGraphIterator(model.graph)
    ):
        return False
    optimizer, passes = needs("onnxscript.optimizer"), needs("onnx_ir.passes.common")
    log = logging.getLogger("onnxscript")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        passes.LiftSubgraphInitializersToMainGraphPass()(model)
        for _ in range(ROUNDS):
            changed = optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=_should_fold)
            passes.RemoveUnusedNodesPass()(model)
            passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
            passes.NameFixPass()(model)
            if not changed.modified:
                break
    except Exception:  # noqa: BLE001 - what the optimiser stumbles over is worked out or reported while reading
        return True
    finally:
        log.setLevel(level)
    return True


def _should_fold(node: Any) -> bool | None:
    """Tell whether a node is worked out: shapes are, large arrays of one value and random ones are not."""
    if node.op_type.startswith("Random") or node.op_type in RANDOM:
        return False
    if node.op_type == "ConstantOfShape":
        shape = node.inputs[0].const_value
        return bool(np.prod(shape.numpy(), dtype=np.int64) <= SMALL) if shape is not None else None
    return None
