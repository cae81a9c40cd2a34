"""The first-use check: before a Python body serves torch, one small chunk runs on NumPy and on torch.

Before: body.py.  After: backend.py.  Works on copies: whatever it finds, nothing of the program has changed.

A difference in shape, type or value, or an exception on torch alone, is a VariantRefused with the reason: the executor
turns the variant off and lets NumPy run what was refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ...errors import VariantRefused
from ...geometry import Box
from ...graph.instruction import Kernel
from ...program.mapper import All, Same
from ..base import describe_failure
from .body import Translator, call, returned, unchanged, wrote_to_input
from .handover import to_numpy, to_tensor
from .namespace import Namespace
from .watch import Watch

POINTS = 4096
"""A chunk with more points than this is cut to its leading rows, where the kernel may be divided there."""
RTOL = {2: 1e-2, 4: 1e-5, 8: 1e-12}
"""Relative tolerance by the bytes of a real number, for bodies whose variant declares nothing tighter or wider."""
AUTOMATIC = "python on torch"
"""Name of the variant that nobody declared: its numerics are not a promise, so the tolerances above hold."""


class Outcome(NamedTuple):
    """What a body did."""

    outputs: dict[str, np.ndarray[Any, Any]]
    results: tuple[Any, ...]


class FirstUse:
    """Checks each kernel once per combination of types, and again when a call is much smaller than any before."""

    def __init__(self, xp: Namespace, translator: Translator, device: Any) -> None:
        self._xp, self._translator, self._device = xp, translator, device
        self._smallest: dict[Hashable, int] = {}  # points of the smallest chunk that agreed

    def due(self, instruction: Kernel, box: Box, values: Mapping[str, Any]) -> Hashable | None:
        """Return the key of a check that is to be made before the body runs on `box`, or None."""
        kernel = instruction.task.kernel
        assert kernel is not None
        arrays = tuple([(value.dtype, value.ndim) for value in values.values()])
        key = (kernel.serial, arrays, tuple([type(scalar) for scalar in instruction.task.scalars.values()]))
        known = self._smallest.get(key)
        return key if known is None or _points(box, values) * 2 <= known else None

    def check(self, key: Hashable, instruction: Kernel, box: Box, values: Mapping[str, Any]) -> None:
        """Compare NumPy and torch on copies of `values`; raise VariantRefused, or what the body raises on NumPy."""
        arrays = {name: to_numpy(value) for name, value in values.items()}
        part, seen = _cut(instruction, box, arrays)
        try:
            expected = self._on_numpy(instruction, part, seen)
        except Exception:
            if part is box:
                raise  # the body's own error, as the CPU would report it
            part, seen = box, arrays
            expected = self._on_numpy(instruction, part, seen)
        reason = self._differs(instruction, part, seen, expected)
        if reason:
            if difference(expected, self._on_numpy(instruction, part, seen), 0.0):
                reason = "the body does not give the same result twice, so it cannot be compared"
            name, device = instruction.task.name, instruction.device
            raise VariantRefused(f"kernel {name!r} on {device}: {reason}; it stays on NumPy")
        self._smallest[key] = _points(box, values)

    def _differs(self, instruction: Kernel, box: Box, arrays: Mapping[str, Any], expected: Outcome) -> str:
        """Return in words what torch does otherwise, or nothing."""
        numerics = None if instruction.body.name == AUTOMATIC else instruction.body.numerics.ulp
        try:
            found, trap = self._on_torch(instruction, box, arrays)
        except Exception as error:  # noqa: BLE001 - whatever it is, NumPy did without
            return f"the body fails on torch and not on NumPy: {describe_failure(error)}"
        return trap or difference(expected, found, numerics)

    def _on_numpy(self, instruction: Kernel, box: Box, arrays: Mapping[str, Any]) -> Outcome:
        values = _copies(instruction, arrays)
        for binding in instruction.bindings:
            values[binding.name].flags.writeable = binding.writes
        assert instruction.task.body is not None
        result = call(instruction, instruction.task.body, box, values, np)
        return _outcome(instruction, values, returned(instruction, result))

    def _on_torch(self, instruction: Kernel, box: Box, arrays: Mapping[str, Any]) -> tuple[Outcome, str]:
        values = {name: to_tensor(a).to(self._device) for name, a in _copies(instruction, arrays).items()}
        before = {b.name: values[b.name].clone() for b in instruction.bindings if not b.writes}
        assert instruction.task.body is not None
        body = self._translator.translate(instruction.task.body)
        with Watch() as watch:
            results = returned(instruction, call(instruction, body, box, values, self._xp))
        for name, tensor in before.items():
            if not unchanged(tensor, values[name]):
                raise wrote_to_input(instruction, name)
        after = {name: to_numpy(tensor) for name, tensor in values.items()}
        return _outcome(instruction, after, results), watch.trap


def _cut(instruction: Kernel, box: Box, arrays: dict[str, Any]) -> tuple[Box, dict[str, Any]]:
    """Return the leading rows of a large box and of its arrays, if every one of them is mapped by rows."""
    kernel = instruction.task.kernel
    assert kernel is not None
    if box.volume <= POINTS or 0 not in kernel.split:
        return box, arrays
    rows = max(1, POINTS * box.shape[0] // box.volume)
    accesses = {param.name: param.access for param in instruction.task.accesses}
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


def _copies(instruction: Kernel, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return fresh arrays: inputs as they are, and zeros where the body must assign everything."""
    written = {param.name for param in instruction.task.accesses if param.access.mode == "write"}
    return {name: np.zeros_like(a) if name in written else a.copy(order="C") for name, a in arrays.items()}


def _outcome(instruction: Kernel, values: Mapping[str, Any], results: tuple[Any, ...]) -> Outcome:
    assert instruction.task.kernel is not None
    names = set(instruction.task.kernel.returns.names)
    outputs = {b.name: values[b.name] for b in instruction.bindings if b.writes and b.name not in names}
    return Outcome(outputs, results)


def difference(expected: Outcome, found: Outcome, ulp: float | None) -> str:
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
        gap, limit = _gap(wanted, got, ulp)
        if gap > limit:
            return f"the body gives other values on torch than on NumPy: max difference {gap:.3g} in {name}"
    return ""


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _gap(wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], ulp: float | None) -> tuple[float, float]:
    """Return the largest difference of two arrays and the largest that is allowed, beside their largest value."""
    if wanted.dtype.kind not in "fc" or not wanted.size:
        return float(not np.array_equal(wanted, got)), 0.0
    sound = np.isfinite(wanted)
    odd = ~sound
    if not np.array_equal(sound, np.isfinite(got)) or not np.array_equal(wanted[odd], got[odd], equal_nan=True):
        return float("inf"), 0.0
    if not sound.any():
        return 0.0, 0.0
    real = wanted.real.dtype
    tolerance = RTOL[real.itemsize] if ulp is None else ulp * float(np.finfo(real).eps)
    wide = np.result_type(wanted.dtype, np.float64)
    gaps = np.abs(wanted[sound].astype(wide) - got[sound].astype(wide))
    return float(gaps.max()), tolerance * float(np.abs(wanted[sound]).max())
