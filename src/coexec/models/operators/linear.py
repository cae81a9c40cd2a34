"""A product with weights that are known, and what follows it, as one kernel: a bias, another value, a bound or Gelu.

Before: ops/rowwise.py, models/operators/calls.py.  After: models/joining.py, models/whole.py.  No operator of ONNX has it all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...ops.rowwise import gelu_body, gelu_tanh_body
from ...program.array import Array
from ...program.mapper import all as map_all
from .calls import KernelForm, OpCall, compute

LINEAR = "Linear"
"""The name of the operation; the attribute `after` says what follows the product."""


class AfterProduct(NamedTuple):
    """What is done with a product, in this order."""

    transposed: bool = False  # the weights are stored with their axes exchanged
    biased: bool = False  # a vector is added to each row
    added: bool = False  # another array of the result's shape is added
    activation: str = ""  # relu, gelu or gelu tanh


def linear_body(x: Any, w: Any, *rest: Any) -> None:
    """Multiply by weights and finish."""
    *operands, out, after = rest
    np.matmul(x, w.T if after.transposed else w, out=out)
    for operand in operands:  # a bias, then another array
        out += operand
    if after.activation == "relu":
        np.maximum(out, out.dtype.type(0), out=out)
    elif after.activation:
        (gelu_body if after.activation == "gelu" else gelu_tanh_body)(out, out)


def linear_torch(x: Any, w: Any, *rest: Any) -> None:
    """Do the same on tensors."""
    from torch.nn import functional

    *operands, out, after = rest
    found = functional.linear(x, w if after.transposed else w.T, operands.pop(0) if after.biased else None)
    for operand in operands:
        found += operand
    if after.activation == "relu":
        found.relu_()
    elif after.activation:
        found = functional.gelu(found, approximate="tanh" if after.activation.endswith("tanh") else "none")
    out[...] = found


def linear(call: OpCall) -> list[Array]:
    """Run a product with what follows it."""
    after: AfterProduct = call.attribute("after")
    form = KernelForm(
        linear_body, (map_all,) * call.count, (), (after,), (map_all,), torch=linear_torch, name="linear",
        flops=2.0 * call.array(0).shape[-1],
    )  # fmt: skip
    return [compute(form, call.arrays(), call.shape, call.dtype)]
