"""The steps of a model by torch: on tensors that share the steps' memory, with weights laid out once as torch's library likes them.

Before: program/tape.py, ops/convolve.py.  After: models/whole.py.  torch is imported when a model first runs on its device.

oneDNN, which computes for torch on processors, lays out weights anew in each call of torch's functions. Its operators for
compiled modules take weights that were laid out before, and finish sums while they are in registers. A torch that does not have them,
or refuses a step, computes it by its functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops.convolve import After
from ..program.tape import Tape, TapeStep
from .operators.linear import AfterProduct

Step = tuple[Callable[..., Any], tuple[Any, ...]]
ACTIVATIONS = {"": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh")}
"""What oneDNN calls what follows a product, and how it is computed."""


def by_torch(step: TapeStep, tape: Tape) -> Step:
    """Return a step on tensors if torch has a body of its own for it, else on arrays; the memory is the same."""
    import torch

    found = None if step.kernel is None else next((v for v in step.kernel.variants if v.kind == "torch"), None)
    values = [value for value in step.arguments if isinstance(value, np.ndarray)]
    if found is None or found.function is None or found.off or any(s < 0 for v in values for s in v.strides):
        return step.function, step.arguments
    tensors = tuple([torch.from_numpy(writable(v)) if isinstance(v, np.ndarray) else v for v in step.arguments])
    assert step.kernel is not None
    known = len(values) > 1 and tape.given(values[1]) and all(v.dtype == np.float32 for v in values)
    if known and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        try:
            packed = _packed(step, tensors)
        except (RuntimeError, AttributeError, TypeError, NotImplementedError):
            packed = None  # another version of torch
        if packed is not None:
            return packed, ()
    return found.function, tensors


def _packed(step: TapeStep, tensors: tuple[Any, ...]) -> Callable[[], None] | None:
    """Return a step whose weights are laid out already; None if oneDNN does not do it."""
    assert step.kernel is not None
    if step.kernel.name == "linear":
        return _packed_product(step, tensors)
    return _packed_convolution(step, tensors) if step.kernel.op == "conv2d" else None


def _packed_product(step: TapeStep, tensors: tuple[Any, ...]) -> Callable[[], None] | None:
    """Return a product by weights that are laid out."""
    import torch

    body: Any = step.function
    after: AfterProduct = body.fixed[0]
    x, w, *operands, out = tensors
    bias = operands[0] if after.biased else None
    other = operands[-1] if after.added else None
    attribute, how = ACTIVATIONS[after.activation]
    if other is not None and attribute == "gelu":
        return None
    rows = x.numel() // max(1, x.shape[-1])
    weights = torch.ops.mkldnn._reorder_linear_weight((w if after.transposed else w.t()).contiguous(), rows)
    compute = torch.ops.mkldnn._linear_pointwise

    def run() -> None:
        if other is None:
            out.copy_(compute(x, weights, bias, attribute, [], how))
            return
        found = compute(x, weights, bias, "none", [], "").add_(other)
        out.copy_(found.relu_() if attribute == "relu" else found)

    run()
    return run


def _packed_convolution(step: TapeStep, tensors: tuple[Any, ...]) -> Callable[[], None] | None:
    """Return a convolution by weights that are laid out, if its padding is the same on both sides."""
    import torch

    assert step.kernel is not None
    after: After = getattr(step.function, "after", None) or After()
    count = len(after.operands)
    x, w, operands, out = tensors[0], tensors[1], tensors[2 : 2 + count], tensors[2 + count]
    sh, sw, top, left, dh, dw, per_group = tensors[3 + count : 10 + count]
    reach = (w.shape[2] - 1) * dh + 1, (w.shape[3] - 1) * dw + 1
    sizes = (x.shape[2] + 2 * top - reach[0]) // sh + 1, (x.shape[3] + 2 * left - reach[1]) // sw + 1
    if sizes != tuple(out.shape[2:]):
        return None
    bias = operands[0] if after.biased else None
    pads, steps, apart, groups = [top, left], [sh, sw], [dh, dw], len(w) // per_group
    weights = torch.ops.mkldnn._reorder_convolution_weight(w, pads, steps, apart, groups, list(x.shape))
    attribute, scalars = _bounds(after)
    if attribute is None:
        return None
    compute = torch.ops.mkldnn._convolution_pointwise
    other = operands[-1] if after.added else None
    if other is not None and attribute not in ("none", "relu"):
        return None

    def run() -> None:
        if other is None:
            out.copy_(compute(x, weights, bias, pads, steps, apart, groups, attribute, scalars, ""))
            return
        unary = None if attribute == "none" else attribute
        out.copy_(compute.binary(x, other, weights, bias, pads, steps, apart, groups, "add", 1.0, unary, [], ""))

    run()
    return run


def _bounds(after: After) -> tuple[str | None, list[float]]:
    """Return what oneDNN calls the bounds of sums, with their values; None if it has no name for them."""
    if after.low is None and after.high is None:
        return "none", []
    if after.low == 0.0 and after.high is None:
        return "relu", []
    return (None, []) if after.low is None or after.high is None else ("hardtanh", [after.low, after.high])


def writable(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array that torch takes without a warning; bodies write their outputs only."""
    return value if value.flags.writeable else np.asarray(_Shown(value))


class _Shown:
    """The same memory as an array that may be written, by NumPy's interface."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        interface = dict(value.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__, self._value = interface, value
