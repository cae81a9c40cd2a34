"""From an ONNX model to a graph: infer types, work out everything that depends on no input.

Before: models/values.py, models/onnx_simplifying.py.  After: models/model.py.  The `onnx` package infers types node by node
and evaluates what is still constant; what is missing is collected and told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from .folding import as_torch_resizes, without_dead_operations, without_normalisation
from .onnx_files import first_line, listed, load_onnx, opset_of
from .onnx_simplifying import CEILING, POOLS, SMALL, InputBinding, Shapes, Values, fold, inline
from .onnx_types import attributes_of, needs, plain_dtype, static_shape
from .operators.table import OPERATORS, STATIC
from .values import LayerGraph, OpNode, ValueType

TORCH = "pytorch"
"""What torch's exporters call themselves in their files."""


def read_onnx(source: str | Path | Any, shapes: Shapes | None = None, values: Values | None = None) -> LayerGraph:
    """Return the graph of an ONNX file, or of a model in memory: the `onnx` package's or onnx-ir's, which is changed.

    `shapes` gives sizes that the file leaves open, by the name of the size or of the input; `values` turns inputs into
    constants. Raises ModelError with everything that is missing at once.
    """
    ir = needs("onnx_ir")
    name = Path(source).stem if isinstance(source, str | Path) else "model"
    model = load_onnx(source) if isinstance(source, str | Path) else source
    model = model if isinstance(model, ir.Model) else ir.from_proto(model)
    opset = opset_of(model)
    missing = InputBinding(model, shapes or {}, values or {}).bind()
    inline(model)
    reader = _Reader(model, opset, missing)
    reader.read()
    if reader.problems and not missing and fold(model):
        again = _Reader(model, opset, missing)
        again.read()
        reader = min(reader, again, key=lambda one: one.problems)
    reader.refuse()
    return reader.graph(model.graph.name or name)


class _Reader:
    """Goes through a model once: constants are evaluated, types inferred, and what is missing collected."""

    def __init__(self, model: Any, opset: int, missing: Sequence[str]) -> None:
        self.onnx, self.ir = needs("onnx"), needs("onnx_ir")
        self.model, self.opset, self.open = model, opset, missing
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.inputs: list[str] = []
        self.operations: list[OpNode] = []
        self.unsupported: dict[str, list[str]] = {}
        self.untyped: set[str] = set()
        self.later: set[str] = set()  # values that will be constants once open sizes are given
        self.depending: list[str] = []

    # What is given ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Go through the model, and collect what is missing."""
        graph = self.model.graph
        for value in graph.initializers.values():
            given = value.const_value.numpy()  # a torch module's weights are its own memory, which training changes
            self.constant(value.name, given.copy() if given.flags.writeable else given)
        for value in graph.inputs:
            self.input(value)
        for number, node in enumerate(graph):
            self.node(self.ir.to_proto(node), node.name or f"{node.op_type} number {number}")

    @property
    def problems(self) -> int:
        """How many operators are missing or have no size."""
        return sum(map(len, self.unsupported.values())) + len(self.depending)

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Note a constant."""
        if not plain_dtype(value.dtype):
            self.untyped.add(name)
            self.unsupported.setdefault(f"type {value.dtype}", []).append(name)
            return
        self.constants[name] = value
        self.types[name] = ValueType(tuple(value.shape), value.dtype.name)

    def input(self, value: Any) -> None:
        """Note an input with its sizes."""
        self.inputs.append(value.name)
        if not isinstance(value.type, self.ir.TensorType):
            self.unsupported.setdefault("inputs that are no tensors", []).append(value.name)
            self.untyped.add(value.name)
            return
        dtype = self.dtype(int(value.dtype), value.name)
        sizes: list[Any] = list(value.shape) if value.shape is not None else [None]
        if dtype is None or not all(isinstance(n, int) and n >= 0 for n in sizes):
            self.untyped.add(value.name)
        else:
            self.types[value.name] = ValueType(tuple(sizes), dtype.name)

    def dtype(self, element: int, name: str) -> np.dtype[Any] | None:
        try:
            found = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(element))
        except (KeyError, TypeError):
            found = np.dtype(object)
        if plain_dtype(found):
            kind: np.dtype[Any] = found
            return kind
        label = self.onnx.TensorProto.DataType.Name(element).lower()
        self.unsupported.setdefault(f"type {label}", []).append(name)
        self.untyped.add(name)
        return None

    # Operations -------------------------------------------------------------------------------------------------------

    def node(self, node: Any, name: str) -> None:
        """Take one node: as constants, or as an operation with types."""
        if any(i in self.untyped or i in self.later for i in node.input):
            if node.op_type in ("Shape", "Size") or all(
                i in self.later or i in self.constants for i in node.input if i
            ):
                self.later.update(node.output)
                return
            if not self.runs(node) and node.op_type != "Constant":
                self.unsupported.setdefault(node.op_type, []).append(name)
            self.untyped.update(node.output)
            return
        if node.domain in ("", "ai.onnx") and self.evaluated(node):
            return
        if not self.runs(node):
            kind = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            self.unsupported.setdefault(kind, []).append(name)
            self.untyped.update(node.output)
            return
        if bad := [p for p in STATIC.get(node.op_type, ()) if p < len(node.input) and node.input[p]
                   and node.input[p] not in self.constants]:  # fmt: skip
            self.depending.append(f"{node.op_type} {name!r} (operand {node.input[bad[0]]!r})")
            self.untyped.update(node.output)
            return
        attributes = attributes_of(node)
        self.operations.append(OpNode(node.op_type, name, tuple(node.input), tuple(node.output), attributes))
        self.infer(node, name)

    def runs(self, node: Any) -> bool:
        return node.op_type in OPERATORS and node.domain in ("", "ai.onnx")

    def evaluated(self, node: Any) -> bool:
        """Take a node as constants, if it depends on no value of an input."""
        kind = node.op_type
        if kind in ("Shape", "Size") and node.input[0] in self.types:
            shape = self.types[node.input[0]].shape
            given = attributes_of(node)
            if kind == "Size":
                self.constant(node.output[0], np.array(int(np.prod(shape)), np.int64))
            else:
                self.constant(node.output[0], np.array(shape[given.get("start", 0) : given.get("end")], np.int64))
            return True
        if kind == "ConstantOfShape" and node.input[0] in self.constants:
            fill = attributes_of(node).get("value", np.zeros(1, np.float32))
            shape = tuple(int(n) for n in self.constants[node.input[0]])
            self.constant(node.output[0], np.broadcast_to(np.asarray(fill).reshape(-1)[0], shape))
            return True
        random = kind.startswith("Random") or kind in ("Bernoulli", "Multinomial", "Dropout")
        if random or any(i and i not in self.constants for i in node.input):
            return False
        return self.by_reference(node)

    def by_reference(self, node: Any) -> bool:
        """Evaluate a node with the `onnx` package's own implementation."""
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            return False
        reference = needs("onnx.reference")
        feeds = {i: self.constants[i] for i in node.input if i}
        try:
            with np.errstate(all="ignore"):
                found = reference.ReferenceEvaluator(self.alone(node)).run(None, feeds)
        except Exception:  # noqa: BLE001 - whatever the reference cannot do is an operation like others, or is reported
            return False
        if not all(isinstance(value, np.ndarray | np.generic) for value in found):
            return False
        for name, value in zip([o for o in node.output if o], found, strict=True):
            self.constant(name, np.asarray(value))
        return True

    def alone(self, node: Any) -> Any:
        """Return a model of one node, in the opset of the whole."""
        helper = self.onnx.helper

        def typed(name: str) -> Any:
            kind = self.types[name]
            element = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
            return helper.make_tensor_value_info(name, element, kind.shape)

        inputs = [typed(i) for i in dict.fromkeys(node.input) if i]
        outputs = [helper.make_empty_tensor_value_info(o) for o in node.output if o]
        graph = helper.make_graph([node], "one", inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])

    def infer(self, node: Any, name: str) -> None:
        """Work out the types of a node's results."""
        onnx = self.onnx
        makes = onnx.helper.make_tensor_type_proto
        given = {
            i: makes(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(self.types[i].dtype)), self.types[i].shape)
            for i in node.input if i
        }  # fmt: skip
        data = {
            i: onnx.numpy_helper.from_array(np.asarray(self.constants[i], order="C"), i)
            for i in node.input if i in self.constants and self.constants[i].size <= SMALL
        }  # fmt: skip
        try:
            ceiling = node.op_type in POOLS and attributes_of(node).get("ceil_mode")
            version = onnx.defs.get_schema(node.op_type, max(self.opset, CEILING) if ceiling else self.opset, "")
            found = onnx.shape_inference.infer_node_outputs(
                version, node, given, data, opset_imports=[onnx.helper.make_opsetid("", self.opset)],
                ir_version=self.model.ir_version,
            )  # fmt: skip
        except Exception as error:
            raise ModelError(f"{node.op_type} {name!r}: {first_line(error)}") from error
        for output in (o for o in node.output if o):
            self.result(node, name, output, found.get(output))

    def result(self, node: Any, name: str, output: str, kind: Any) -> None:
        shape = None if kind is None else static_shape(kind.tensor_type)
        if shape is None and node.op_type in SHAPED_LIKE_INPUT:
            first = self.types[node.input[0]]
            mask = node.op_type == "Dropout" and output != node.output[0]
            self.types[output] = ValueType(first.shape, "bool" if mask else first.dtype)
            return
        if shape is None and node.op_type in KNOWN_SHAPES:
            types = [self.types[name] for name in node.input if name]
            self.types[output] = KNOWN_SHAPES[node.op_type](types, attributes_of(node))
            return
        if shape is None:
            self.depending.append(f"{node.op_type} {name!r} (result {output!r})")
            self.untyped.add(output)
            return
        if node.op_type == "Reshape" and prod(shape) != (first := self.types[node.input[0]]).elements:
            raise ModelError(f"Reshape {name!r}: {first.shape} has other elements than {shape}")
        dtype = self.dtype(kind.tensor_type.elem_type, output)
        if dtype is not None:
            self.types[output] = ValueType(shape, dtype.name)

    def refuse(self) -> None:
        """Raise ModelError with all that is missing, if anything is."""
        wrong = []
        if self.open:
            first = self.inputs[0] if self.inputs else "x"
            wrong.append(
                f"the model leaves sizes open: {listed(self.open)}; give them as shapes={{'name': size}} or "
                f"shapes={{{first!r}: (1, ...)}}, on the command line as --shape {first}=1,..."
            )
        if self.unsupported:
            found = [f"{kind} ({listed(names, 3)})" for kind, names in sorted(self.unsupported.items())]
            wrong.append(f"coexec does not have what the model uses: {listed(found)}")
        if self.depending:
            wrong.append(
                f"sizes depend on the values of inputs: {listed(self.depending)}; if an input is meant to be fixed, give "
                "it as values={'name': array}, on the command line as --value name=2,3"
            )
        if wrong:
            raise ModelError(". Beside that, ".join(wrong))

    def graph(self, name: str) -> LayerGraph:
        """Return the graph, without operations that nobody needs, with normalisation folded into convolutions."""
        outputs = tuple(value.name for value in self.model.graph.outputs)
        if lost := [o for o in outputs if o not in self.types]:
            raise ModelError(f"nothing gives the output {lost[0]!r} of the model")
        notes: tuple[str, ...] = ()
        if any(node.kind in ("QuantizeLinear", "DequantizeLinear") for node in self.operations):
            notes = ("quantised values are computed with as floats, between their QuantizeLinear and DequantizeLinear",)
        whole = LayerGraph(
            name,
            tuple(self.inputs),
            outputs,
            tuple(self.operations),
            self.types,
            dict(self.constants),
            notes,
            self.opset,
        )
        whole = as_torch_resizes(whole) if self.model.producer_name == TORCH else whole
        return without_dead_operations(without_normalisation(whole))


def compared(types: Sequence[ValueType], attributes: Mapping[str, Any]) -> ValueType:
    """Return the type of a comparison."""
    del attributes
    return ValueType(np.broadcast_shapes(*(kind.shape for kind in types)), "bool")


def sliced(types: Sequence[ValueType], attributes: Mapping[str, Any]) -> ValueType:
    """Return the type of a slice whose bounds are attributes, as before opset 10."""
    shape, starts = list(types[0].shape), attributes["starts"]
    for axis, start, end in zip(attributes.get("axes", range(len(starts))), starts, attributes["ends"], strict=True):
        shape[axis] = len(range(*slice(start, end).indices(shape[axis])))
    return ValueType(tuple(shape), types[0].dtype)


KNOWN_SHAPES = {"GreaterOrEqual": compared, "LessOrEqual": compared, "Slice": sliced}
"""Operators for which type inference says nothing in some opsets, and what their result is."""
SHAPED_LIKE_INPUT = frozenset({"Dropout", "GroupNormalization", "MeanVarianceNormalization"})
"""Operators for which type inference says nothing of some results, which have the input's shape."""
