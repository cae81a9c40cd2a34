"""A graph as an ONNX model.

Before: models/values.py, models/onnx_types.py.  After: models/model.py, models/onnx_annotations.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from .onnx_types import needs
from .values import LayerGraph

IR_VERSION = 11
"""The first version of the format in which nodes can say on which devices they run; it goes with opsets up to 23."""
MOST_BYTES = 2**31 - 2**20
"""A model in one message is smaller than 2 GiB; beyond, weights go to a file beside it."""


def to_onnx(graph: LayerGraph) -> Any:
    """Return a graph as an ONNX model that the `onnx` package accepts."""
    helper, numpy_helper = needs("onnx").helper, needs("onnx").numpy_helper

    def typed(name: str) -> Any:
        kind = graph.types[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype)), kind.shape)

    nodes = [
        helper.make_node(node.kind, node.inputs, node.outputs, name=node.name, **node.attributes)
        for node in graph.operations
    ]
    weights = [numpy_helper.from_array(np.asarray(graph.constant(name), order="C"), name) for name in graph.constants]
    made = {name for node in graph.operations for name in node.outputs if name}
    inner = [typed(name) for name in sorted(made - {*graph.outputs})]
    whole = helper.make_graph(
        nodes,
        graph.name,
        [typed(n) for n in graph.inputs],
        [typed(n) for n in graph.outputs],
        weights,
        value_info=inner,
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=IR_VERSION)


def save_onnx(proto: Any, path: str | Path) -> None:
    """Write a model; weights of 2 GiB and more go to a file beside it."""
    onnx = needs("onnx")
    file = Path(path)
    try:
        large = proto.ByteSize() >= MOST_BYTES
        onnx.save(proto, str(file), save_as_external_data=large, location=f"{file.name}.data" if large else None)
    except OSError as error:
        raise ModelError(f"the model cannot be written to {file}: {error}") from error
