"""From an ONNX model to a graph: bind sizes, infer types, work out everything that depends on no input.

Before: models/values.py, models/onnx_files.py.  After: models/model.py.  The `onnx` package infers types node by node and
evaluates what is constant; what is missing is collected and told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from .folding import without_dead_operations, without_normalisation
from .onnx_files import first_line, inlined, listed, load_onnx, opset_of
from .onnx_types import attributes_of, needs, plain_dtype, static_shape
from .operators.table import OPERATORS, STATIC
from .values import LayerGraph, OpNode, ValueType

Shapes = Mapping[str, Sequence[int] | int]
Values = Mapping[str, Any]


def read_onnx(source: str | Path | Any, shapes: Shapes | None = None, values: Values | None = None) -> LayerGraph:
    """Return the graph of an ONNX file, or of a model that is in memory.

    `shapes` gives sizes that the file leaves open, by the name of the size or of the input; `values` turns inputs into
    constants. Raises ModelError with everything that is missing at once.
    """
    proto, name = (load_onnx(source), Path(source).stem) if isinstance(source, str | Path) else (source, "model")
    proto = inlined(proto)
    opset = opset_of(proto)
    reader = _Reader(proto, opset, dict(shapes or {}), dict(values or {}))
    reader.read()
    return reader.graph(proto.graph.name or name)


class _Reader:
    """Goes through a model once: constants are evaluated, types inferred, and what is missing collected."""

    def __init__(self, proto: Any, opset: int, shapes: dict[str, Any], values: dict[str, Any]) -> None:
        self.onnx = needs("onnx")
        self.proto, self.opset, self.shapes, self.values = proto, opset, shapes, values
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.inputs: list[str] = []
        self.operations: list[OpNode] = []
        self.open: list[str] = []
        self.unsupported: dict[str, list[str]] = {}
        self.untyped: set[str] = set()
        self.depending: list[str] = []

    # What is given ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Go through the model; raise ModelError with all that is missing."""
        graph = self.proto.graph
        for tensor in graph.initializer:
            self.constant(tensor.name, self.onnx.numpy_helper.to_array(tensor))
        given = {value.name for value in graph.input} - self.constants.keys()
        self.refuse_unknown(given)
        for value in graph.input:
            if value.name in given:
                self.input(value)
        self.refuse_open()
        for number, node in enumerate(graph.node):
            self.node(node, node.name or f"{node.op_type} number {number}")
        self.refuse_unsupported()

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Note a constant."""
        if not plain_dtype(value.dtype):
            self.untyped.add(name)
            self.unsupported.setdefault(f"type {value.dtype}", []).append(name)
            return
        self.constants[name] = value
        self.types[name] = ValueType(tuple(value.shape), value.dtype.name)

    def refuse_unknown(self, given: set[str]) -> None:
        sizes = {d.dim_param for v in self.proto.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
        known = sorted(given | sizes)
        for option, names in (("shapes", self.shapes), ("values", self.values)):
            allowed = known if option == "shapes" else sorted(given)
            if unknown := sorted(set(names) - set(allowed)):
                raise ModelError(
                    f"{option}= names {unknown[0]!r}, which is no input{' or open size' * (option == 'shapes')} of the "
                    f"model (it has {', '.join(allowed) or 'none'})"
                )

    def input(self, value: Any) -> None:
        """Note an input with its sizes, or as the constant it was given as."""
        name, kind = value.name, value.type.tensor_type
        if name in self.values:
            self.constant(name, np.asarray(self.values[name], self.dtype(kind.elem_type, name)))
            return
        if not value.type.HasField("tensor_type"):
            self.unsupported.setdefault("inputs that are no tensors", []).append(name)
            return
        dtype = self.dtype(kind.elem_type, name)
        self.inputs.append(name)
        told = self.shapes.get(name)
        if told is not None:
            sizes = [int(n) for n in told] if not isinstance(told, int) else [told]
            declared = list(kind.shape.dim) if kind.HasField("shape") else None
            if declared is not None and (
                len(declared) != len(sizes)
                or any(d.HasField("dim_value") and d.dim_value != n for d, n in zip(declared, sizes, strict=True))
            ):
                text = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in declared)
                raise ModelError(f"shapes= gives {name!r} the shape {tuple(sizes)}, and the model says ({text})")
            self.bind(declared or [], sizes)
        elif not kind.HasField("shape"):
            self.open.append(f"the shape of {name!r}")
            return
        else:
            sizes = [self.size(name, axis, d) for axis, d in enumerate(kind.shape.dim)]
        self.types[name] = ValueType(tuple(sizes), dtype.name if dtype is not None else "float32")

    def bind(self, declared: list[Any], sizes: list[int]) -> None:
        """Take sizes that were told for one input for others that have the same names."""
        for dim, size in zip(declared, sizes, strict=False):
            if dim.dim_param:
                self.shapes.setdefault(dim.dim_param, size)

    def size(self, name: str, axis: int, dim: Any) -> int:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        told = self.shapes.get(dim.dim_param)
        if isinstance(told, int):
            return told
        self.open.append(
            f"{dim.dim_param!r} (axis {axis} of {name!r})" if dim.dim_param else f"axis {axis} of {name!r}"
        )
        return 1

    def refuse_open(self) -> None:
        if self.open:
            first = self.inputs[0] if self.inputs else "x"
            raise ModelError(
                f"the model leaves sizes open: {listed(self.open)}; give them as shapes={{'name': size}} or "
                f"shapes={{{first!r}: (1, ...)}}, on the command line as --shape {first}=1,..."
            )

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
        if any(i in self.untyped for i in node.input):
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
            version = onnx.defs.get_schema(node.op_type, self.opset, "")
            found = onnx.shape_inference.infer_node_outputs(
                version, node, given, data, opset_imports=[onnx.helper.make_opsetid("", self.opset)],
                ir_version=self.proto.ir_version,
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
        dtype = self.dtype(kind.tensor_type.elem_type, output)
        if dtype is not None:
            self.types[output] = ValueType(shape, dtype.name)

    def refuse_unsupported(self) -> None:
        if self.unsupported:
            found = [f"{kind} ({listed(names, 3)})" for kind, names in sorted(self.unsupported.items())]
            raise ModelError(f"coexec does not have what the model uses: {listed(found)}")
        if self.depending:
            raise ModelError(
                f"sizes depend on the values of inputs: {listed(self.depending)}; if an input is meant to be fixed, give "
                "it as values={'name': array}"
            )

    def graph(self, name: str) -> LayerGraph:
        """Return the graph, without operations that nobody needs, with normalisation folded into convolutions."""
        outputs = tuple(value.name for value in self.proto.graph.output)
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
SMALL = 4096
"""Elements of a constant up to which type inference gets to see its values: those that shapes are made of."""
