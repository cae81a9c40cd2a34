"""The networks of this benchmark by torch itself, operation by operation: a peer for speed.

Before: models/values.py.  After: bench/dnn/real.py.  Knows the operations of these networks only; torch is imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...models.values import LayerGraph, OpNode


def torch_network(graph: LayerGraph, inputs: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """Return a function that computes the results of a graph for some inputs; raise UnsupportedError for other operations."""
    import torch

    known = operations()
    if other := sorted({node.kind for node in graph.operations} - known.keys()):
        raise UnsupportedError(f"torch computes {graph.name} here without {', '.join(other)} only")
    constants = {name: torch.from_numpy(np.array(graph.constant(name))) for name in graph.constants}
    given = constants | {name: torch.from_numpy(value) for name, value in inputs.items()}

    def run() -> list[Any]:
        values = dict(given)
        with torch.inference_mode():
            for node in graph.operations:
                values[node.outputs[0]] = known[node.kind](node, *(values[name] for name in node.inputs))
        return [values[name].numpy() for name in graph.outputs]

    return run


def operations() -> dict[str, Callable[..., Any]]:
    """Return what torch calls the operations of these networks."""
    import torch
    from torch.nn import functional as f

    def conv(node: OpNode, x: Any, w: Any, bias: Any = None) -> Any:
        given = node.attributes
        return f.conv2d(x, w, bias, given["strides"], given["pads"][:2], given["dilations"], given["group"])

    def pool(node: OpNode, x: Any) -> Any:
        given = node.attributes
        return f.max_pool2d(x, given["kernel_shape"], given["strides"], given["pads"][:2])

    return {
        "Conv": conv,
        "MaxPool": pool,
        "Relu": lambda _, x: torch.relu(x),
        "Clip": lambda _, x, low, high: torch.clamp(x, low, high),
        "Add": lambda _, x, y: x + y,
        "Mul": lambda _, x, y: x * y,
        "MatMul": lambda _, x, y: x @ y,
        "Gemm": lambda _, x, w, bias: f.linear(x, w, bias),
        "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
        "Flatten": lambda _, x: x.flatten(1),
        "Identity": lambda _, x: x,
        "Reshape": lambda _, x, to: x.reshape(to.tolist()),
        "Transpose": lambda node, x: x.permute(node.attributes["perm"]),
        "Softmax": lambda node, x: torch.softmax(x, node.attributes["axis"]),
        "Gelu": lambda _, x: f.gelu(x),
        "LayerNormalization": lambda node, x, w, b: f.layer_norm(x, w.shape, w, b, node.attributes["epsilon"]),
    }
