"""The first-use check: before a Python body serves torch, one small chunk runs on NumPy and on torch.

Before: body.py.  After: backend.py.  Works on copies: whatever it finds, nothing of the program has changed.

A difference in shape, type or value, or an exception on torch alone, is a VariantRefused with the reason: the executor
turns the variant off and lets NumPy run what was refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ...errors import VariantRefused
from ...geometry import Box
from ...graph.instruction import Launch
from ...graph.task import Task
from ...program.mapper import All, Same
from ..base import describe_failure
from ..tolerance import gap_of
from .body import Translator, call, returned, unchanged, wrote_to_input
from .handover import numpy_dtype, to_numpy, to_tensor
from .namespace import Namespace

POINTS = 4096
"""A chunk with more points than this is cut to its leading rows, where the kernel may be divided there."""
AUTOMATIC = "python on torch"
"""Name of the variant that nobody declared: its numerics are not a promise, so the tolerances above hold."""


class BodyOutcome(NamedTuple):
    """What a body did."""

    outputs: dict[str, np.ndarray[Any, Any]]
    results: tuple[Any, ...]


class FirstUse:
    """Checks each kernel once per combination of types, and again when a call is much smaller than any before."""

    def __init__(self, xp: Namespace, translator: Translator, device: Any) -> None:
        self._xp, self._translator, self._device = xp, translator, device
        self._smallest: dict[Hashable, int] = {}  # points of the smallest chunk that agreed

    def due(self, task: Task, step: Launch, box: Box, values: Mapping[str, Any]) -> Hashable | None:
        """Return the key of a check that is to be made before the body runs on `box`, or None."""
        kernel = task.kernel
        assert kernel is not None
        arrays = tuple([(value.dtype, value.ndim) for value in values.values()])
        key = (kernel.serial, arrays, tuple([type(scalar) for scalar in task.scalars.values()]))
        known = self._smallest.get(key)
        return key if known is None or _points(box, values) * 2 <= known else None

    def check(self, key: Hashable, task: Task, step: Launch, box: Box, values: Mapping[str, Any]) -> None:
        """Compare NumPy and torch on copies of `values`; raise VariantRefused, or what the body raises on NumPy."""
        arrays = {name: to_numpy(value) for name, value in values.items()}
        part, seen = _cut(task, box, arrays)
        try:
            expected = self._on_numpy(task, step, part, seen)
        except Exception:
            if part is box:
                raise  # the body's own error, as the CPU would report it
            part, seen = box, arrays
            expected = self._on_numpy(task, step, part, seen)
        reason = self._differs(task, step, part, seen, expected)
        if reason:
            if difference(expected, self._on_numpy(task, step, part, seen), 0.0):
                reason = "the body does not give the same result twice, so it cannot be compared"
            name, device = task.name, step.device
            raise VariantRefused(f"kernel {name!r} on {device}: {reason}; it stays on NumPy")
        self._smallest[key] = _points(box, values)

    def _differs(self, task: Task, step: Launch, box: Box, arrays: Mapping[str, Any], expected: BodyOutcome) -> str:
        """Return in words what torch does otherwise, or nothing."""
        numerics = None if step.body.name == AUTOMATIC else step.body.numerics.ulp
        try:
            found, trap = self._on_torch(task, step, box, arrays)
        except Exception as error:  # noqa: BLE001 - whatever it is, NumPy did without
            return f"the body fails on torch and not on NumPy: {describe_failure(error)}"
        return trap or difference(expected, found, numerics)

    def _on_numpy(self, task: Task, step: Launch, box: Box, arrays: Mapping[str, Any]) -> BodyOutcome:
        values = _copies(task, arrays)
        for binding in step.bindings:
            values[binding.name].flags.writeable = binding.writes
        assert task.body is not None
        result = call(task, task.body, box, values, np)
        return _outcome(task, step, values, returned(task, result))

    def _on_torch(self, task: Task, step: Launch, box: Box, arrays: Mapping[str, Any]) -> tuple[BodyOutcome, str]:
        values = {name: to_tensor(a).to(self._device) for name, a in _copies(task, arrays).items()}
        before = {b.name: values[b.name].clone() for b in step.bindings if not b.writes}
        assert task.body is not None
        body = self._translator.translate(task.body)
        with TorchCallWatch() as watch:
            results = returned(task, call(task, body, box, values, self._xp))
        for name, tensor in before.items():
            if not unchanged(tensor, values[name]):
                raise wrote_to_input(task, name)
        after = {name: to_numpy(tensor) for name, tensor in values.items()}
        return _outcome(task, step, after, results), watch.trap


def _cut(task: Task, box: Box, arrays: dict[str, Any]) -> tuple[Box, dict[str, Any]]:
    """Return the leading rows of a large box and of its arrays, if every one of them is mapped by rows."""
    kernel = task.kernel
    assert kernel is not None
    if box.volume <= POINTS or 0 not in kernel.split:
        return box, arrays
    rows = max(1, POINTS * box.shape[0] // box.volume)
    accesses = {param.name: param.access for param in task.accesses}
    parts = {}
    for name, array in arrays.items():
        access = accesses[name]
        if access.mode == "reduce" or type(access.mapper) is All:
            parts[name] = array
        elif type(access.mapper) is Same and array.ndim:
            parts[name] = array[:rows]
        else:
            return box, arrays
    return Box(box.lo, (box.lo[0] + rows, *box.hi[1:])), parts


def _points(box: Box, values: Mapping[str, Any]) -> int:
    return max([box.volume, *(int(value.numel()) for value in values.values())])


def _copies(task: Task, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return fresh arrays: inputs as they are, and zeros where the body must assign everything."""
    written = {param.name for param in task.accesses if param.access.mode == "write"}
    return {name: np.zeros_like(a) if name in written else a.copy(order="C") for name, a in arrays.items()}


def _outcome(task: Task, step: Launch, values: Mapping[str, Any], results: tuple[Any, ...]) -> BodyOutcome:
    assert task.kernel is not None
    names = set(task.kernel.returns.names)
    outputs = {b.name: values[b.name] for b in step.bindings if b.writes and b.name not in names}
    return BodyOutcome(outputs, results)


def difference(expected: BodyOutcome, found: BodyOutcome, ulp: float | None) -> str:
    """Return in words how two outcomes differ beyond `ulp` (None: beyond the usual tolerance), or nothing."""
    pairs = [(name, array, found.outputs[name]) for name, array in expected.outputs.items()]
    many = len(expected.results) > 1
    names = [f"result {i}" if many else "the result" for i in range(len(expected.results))]
    pairs += zip(names, map(_as_array, expected.results), map(_as_array, found.results), strict=True)
    for name, wanted, got in pairs:
        if wanted.shape != got.shape:
            return f"{name} has shape {got.shape} on torch and {wanted.shape} on NumPy"
        if wanted.dtype != got.dtype:
            return f"{name} is {got.dtype} on torch and {wanted.dtype} on NumPy"
        gap, limit = gap_of(wanted, got, ulp)
        if gap > limit:
            return f"the body gives other values on torch than on NumPy: max difference {gap:.3g} in {name}"
    return ""


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)


# Calls that mean something else in NumPy, whatever values come out: half of an even integer is the same in any type. ----------

_ARITHMETIC = (
    "add sub subtract mul multiply div divide true_divide pow floor_divide remainder maximum minimum "
    "__radd__ rsub __rsub__ __rmul__ __rdiv__ __rtruediv__ __rpow__ __rfloordiv__ __rmod__"
)
ARITHMETIC = frozenset(_ARITHMETIC.split())
SPREADS = frozenset(("std", "var", "std_mean", "var_mean"))
NARROW = (torch.float32, torch.complex64)


class TorchCallWatch(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed everywhere
    """Sees every torch call of the calling thread; `trap` says what NumPy would have done otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.trap = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        if not self.trap:
            self.trap = _trap(getattr(func, "__name__", ""), args, options, result)
        return result


def _trap(name: str, args: tuple[Any, ...], options: dict[str, Any], result: Any) -> str:
    if name in SPREADS and not {"correction", "unbiased"} & options.keys():
        return f"{name}() of a tensor divides by n - 1, NumPy's by n; use xp.{name}"
    if name == "median":
        return "median() of a tensor is the lower of two middle values, NumPy's their mean"
    if not isinstance(result, torch.Tensor) or result.dtype not in NARROW or "dtype" in options:
        return ""
    if any(isinstance(arg, torch.dtype) for arg in args):
        return ""
    operands = list(_operands(args))
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if tensors and all(tensor.dtype in (torch.int32, torch.int64) for tensor in tensors):
        return f"{name} of {tensors[0].dtype} gives {result.dtype} on torch, NumPy computes it in double precision"
    if name in ARITHMETIC and tensors:
        wanted = np.result_type(*[numpy_dtype(x.dtype) if isinstance(x, torch.Tensor) else x for x in operands])
        if wanted != numpy_dtype(result.dtype):
            return f"{name} gives {numpy_dtype(result.dtype)} on torch and {wanted} on NumPy"
    return ""


def _operands(args: tuple[Any, ...]) -> Iterator[Any]:
    return (arg for arg in args if isinstance(arg, torch.Tensor | int | float | complex))
