"""The steps of a model by torch: on tensors that share the steps' memory, with weights laid out once as torch's library likes them.

Before: program/tape.py, ops/convolve.py.  After: models/whole.py.  torch is imported when a model first runs on its device.

oneDNN, which computes for torch on processors, lays out weights anew in each call of torch's functions. Its operators for
compiled modules take weights that were laid out before, and finish sums while they are in registers. A torch that does not have them,
or refuses a step, computes it by its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ops.convolve import SumFinish
from ..program.tape import CallTape, TapeStep
from .operators.linear import AfterProduct

TINY = 1 << 16
"""Multiplications up to which a product is not given to oneDNN: it needs 9 microseconds to begin, torch's own function 1."""
Step = tuple[Callable[..., Any], tuple[Any, ...]]
ACTIVATIONS = {"": ("none", ""), "relu": ("none", ""), "gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh")}
"""What oneDNN does after a product, and how. Bounds are not its business: it makes zeros of NaN, so torch's own functions do them."""


def torch_steps(steps: Sequence[TapeStep], tape: CallTape, results: Sequence[Any]) -> list[Step]:
    """Return steps by torch; `results` is the memory that is looked at when they are over."""
    made = [by_torch(step, tape) for step in steps]
    chained(steps, made, results)
    return made


def by_torch(step: TapeStep, tape: CallTape) -> Step:
    """Return a step on tensors if torch has a body of its own for it, else on arrays; the memory is the same."""
    import torch

    found = None if step.kernel is None else next((v for v in step.kernel.variants if v.kind == "torch"), None)
    values = [value for value in step.arguments if isinstance(value, np.ndarray)]
    if found is None or found.function is None or found.off or any(s < 0 for v in values for s in v.strides):
        return step.function, step.arguments
    tensors = tuple([torch.from_numpy(writable(v)) if isinstance(v, np.ndarray) else v for v in step.arguments])
    assert step.kernel is not None
    known = len(values) > 1 and tape.given(values[1]) and all(v.dtype == np.float32 for v in values)
    if known and torch.backends.mkldnn.is_available():
        try:
            packed = _packed(step, tensors)
        except (RuntimeError, AttributeError, TypeError, NotImplementedError):
            packed = None  # another version of torch
        if packed is not None:
            packed()
            return packed, ()
    return found.function, tensors


class PackedStep:
    """A step whose weights are laid out. Its result stays a tensor where only such steps read it, and else goes to memory, too."""

    def __init__(self, compute: Callable[..., Any], operands: Sequence[Any], out: Any) -> None:
        self._compute, self.out = compute, out
        self.operands = list(operands)  # tensors in the steps' memory, or the steps before whose results they are
        self.last: list[PackedStep] = []  # whose results nobody reads after this
        self.value: Any = None
        self.stored = True  # whether the result goes to memory

    def __call__(self) -> None:
        """Compute."""
        operands = self.operands
        if len(operands) == 1:
            (x,) = operands
            value = self._compute(x.value if type(x) is PackedStep else x)
        else:
            value = self._compute(*[v.value if type(v) is PackedStep else v for v in operands])
        if self.stored:
            self.out.copy_(value)
        else:
            self.value = value
        for step in self.last:
            step.value = None


def chained(steps: Sequence[TapeStep], made: Sequence[Step], results: Sequence[Any]) -> None:
    """Pass results of packed steps on to those that read them, where these are packed steps only, and nothing else ever sees them."""
    for position, (function, _) in enumerate(made):
        if type(function) is not PackedStep:
            continue
        out = function.out.numpy()
        readers = _readers(out, steps, made, position)
        if not readers or any(np.may_share_memory(out, result) for result in results):
            continue
        function.stored = False
        for reader in readers:
            reader.operands = [
                function if type(v) is not PackedStep and _same(v, function.out) else v for v in reader.operands
            ]
        readers[-1].last.append(function)


def _readers(out: Any, steps: Sequence[TapeStep], made: Sequence[Step], position: int) -> list[PackedStep]:
    """Return the packed steps that read a result as a whole; none if anybody reads it otherwise."""
    found: list[PackedStep] = []
    for step, (function, _) in zip(steps[position + 1 :], made[position + 1 :], strict=True):
        if step.kernel is None:  # fills memory: what was there is gone, or was never there
            if np.may_share_memory(out, step.function.__self__):  # type: ignore[attr-defined]
                return found
            continue
        modes = {param.name: param.access.mode for param in step.kernel.array_params}
        over = False
        for name, value in zip(step.kernel.params, step.arguments, strict=True):
            if not isinstance(value, np.ndarray) or not np.may_share_memory(out, value):
                continue
            if modes[name] == "write":
                over = True  # memory is used again
            elif type(function) is PackedStep and _same(value, out) and any(_same(v, out) for v in function.operands):
                found.append(function)
            else:
                return []
        if over:
            return found
    return found


def _same(tensor: Any, out: Any) -> bool:
    """Tell whether a tensor is all of a result, as it lies."""
    seen = tensor.out if type(tensor) is PackedStep else tensor
    a, b = (x if isinstance(x, np.ndarray) else x.numpy() for x in (seen, out))
    begin = a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    return bool(begin and a.shape == b.shape and a.strides == b.strides)


def _packed(step: TapeStep, tensors: tuple[Any, ...]) -> PackedStep | None:
    """Return a step whose weights are laid out already; None if oneDNN does not do it."""
    assert step.kernel is not None
    if step.kernel.name == "linear":
        return _packed_product(step, tensors)
    return _packed_convolution(step, tensors) if step.kernel.op == "conv2d" else None


def _packed_product(step: TapeStep, tensors: tuple[Any, ...]) -> PackedStep | None:
    """Return a product by weights that are laid out."""
    body: Any = step.function
    after: AfterProduct = body.fixed[0]
    x, w, *operands, out = tensors
    bias = operands[0] if after.biased else None
    other = operands[-1] if after.added else None
    attribute, how = ACTIVATIONS[after.activation]
    if other is not None and attribute == "gelu":
        return None
    rows = x.numel() // max(1, x.shape[-1])
    multiply = _multiplied((w if after.transposed else w.t()).contiguous(), bias, rows, attribute, how)

    def run(x: Any, other: Any = None) -> Any:
        found = multiply(x)
        found = found if other is None else found.add_(other)
        return found.relu_() if after.activation == "relu" else found

    return PackedStep(run, [x] if other is None else [x, other], out)


def _multiplied(w: Any, bias: Any, rows: int, attribute: str = "none", how: str = "") -> Callable[[Any], Any]:
    """Return what multiplies so many rows by weights, whose rows are outputs, and adds a bias."""
    import torch

    if rows * w.numel() <= TINY and attribute == "none":
        linear = torch.nn.functional.linear
        return lambda x: linear(x, w, bias)
    weights = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    compute = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: compute(x, weights, bias, attribute, [], how)


def _packed_convolution(step: TapeStep, tensors: tuple[Any, ...]) -> PackedStep | None:
    """Return a convolution by weights that are laid out, if its padding is the same on both sides."""
    import torch

    assert step.kernel is not None
    after: SumFinish = getattr(step.function, "after", None) or SumFinish()
    count = len(after.operands)
    x, w, operands, out = tensors[0], tensors[1], tensors[2 : 2 + count], tensors[2 + count]
    sh, sw, top, left, dh, dw, per_group = tensors[3 + count : 10 + count]
    reach = (w.shape[2] - 1) * dh + 1, (w.shape[3] - 1) * dw + 1
    sizes = (x.shape[2] + 2 * top - reach[0]) // sh + 1, (x.shape[3] + 2 * left - reach[1]) // sw + 1
    if sizes != tuple(out.shape[2:]):
        return None
    bias = operands[0] if after.biased else None
    other = operands[-1] if after.added else None
    pads, steps, apart, groups = [top, left], [sh, sw], [dh, dw], len(w) // per_group
    alone = groups == 1 and (sh, sw, top, left, *reach) == (1, 1, 0, 0, 1, 1)
    if alone and _channels_innermost(x) and _channels_innermost(out):
        run = _one_tap(x, w, bias, after)
    else:
        run = _taps(
            torch.ops.mkldnn._convolution_pointwise, (w, bias, pads, steps, apart, groups), list(x.shape), after
        )
    return PackedStep(run, [x] if other is None else [x, other], out)


def _taps(compute: Any, given: tuple[Any, ...], shape: list[int], after: SumFinish) -> Callable[..., Any]:
    """Return what convolves images of a shape, by weights that are laid out."""
    import torch

    w, bias, *places = given
    plain, summed = compute.default, compute.binary
    weights = torch.ops.mkldnn._reorder_convolution_weight(w, *places, shape)
    bound = _bound(after)

    def run(x: Any, other: Any = None) -> Any:
        if other is None:
            return bound(plain(x, weights, bias, *places, "none", [], ""))
        return bound(summed(x, other, weights, bias, *places, "add", 1.0, None, [], ""))

    return run


def _one_tap(x: Any, w: Any, bias: Any, after: SumFinish) -> Callable[..., Any]:
    """Return a convolution of single pixels, which is a product: oneDNN begins with that 5 microseconds sooner."""
    multiply = _multiplied(w.reshape(w.shape[:2]).contiguous(), bias, x.numel() // x.shape[1])
    bound = _bound(after)

    def run(x: Any, other: Any = None) -> Any:
        found = multiply(x.permute(0, 2, 3, 1))
        if other is not None:
            found.add_(other.permute(0, 2, 3, 1))
        return bound(found).permute(0, 3, 1, 2)

    return run


def _channels_innermost(images: Any) -> bool:
    """Tell whether the channels of images lie beside each other, and nothing between them."""
    return bool(images.permute(0, 2, 3, 1).is_contiguous())


def _bound(after: SumFinish) -> Callable[[Any], Any]:
    """Return what sets the bounds of sums, in place."""
    low, high = after.low, after.high
    if low is None and high is None:
        return _same_again
    if low == 0 and high is None:
        return _without_negatives
    return lambda found: found.clamp_(low, high)


def _same_again(found: Any) -> Any:
    return found


def _without_negatives(found: Any) -> Any:
    return found.relu_()


def writable(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array that torch takes without a warning; bodies write their outputs only."""
    return value if value.flags.writeable else np.asarray(_Shown(value))


class _Shown:
    """The same memory as an array that may be written, by NumPy's interface."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        interface = dict(value.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__, self._value = interface, value
