"""Operators that move elements or change shapes: views where a view serves, assignments to boxes, else a kernel.

Before: models/operators/calls.py.  After: models/operators/table.py.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...program import array as arrays
from ...program.array import Array
from ...program.mapper import all as map_all
from ...program.view import reshaped
from .calls import KernelForm, OpCall, Prefix, Run, Shape, Whole, compute, positive, whole


def reshape_body(x: Any, out: Any, prefix: int) -> None:
    """Copy elements in their order into another shape."""
    out[...] = x.reshape((*out.shape[:prefix], *out.shape[prefix:]))


def with_shape(x: Array, shape: Shape) -> Array:
    """Return an array with another shape: a view if only axes of one come and go, else a copy.

    Equal leading axes stay what they are, so that the copy can be divided along them.
    """
    if x.shape == shape:
        return x
    key = reshaped(x.shape, shape)
    if key is not None:
        return x._view(key)
    prefix = 0
    while prefix < min(x.ndim, len(shape)) and x.shape[prefix] == shape[prefix]:
        prefix += 1
    mapper = Prefix(prefix)
    form = KernelForm(
        reshape_body,
        (mapper,),
        tuple(range(prefix)),
        (prefix,),
        (mapper,),
        torch=reshape_body,
        flops=1.0,
        name="reshape",
    )
    if not prefix:
        form = whole(reshape_body, 1, 0, name="reshape")._replace(torch=reshape_body)
    return compute(form, [x], shape, x.dtype)


def to_shape(call: OpCall) -> list[Array]:
    """Run Reshape, Flatten, Squeeze, Unsqueeze."""
    return [with_shape(call.array(0), call.shape)]


def transpose(call: OpCall) -> list[Array]:
    """Run Transpose."""
    x = call.array(0)
    return [x.transpose(tuple(call.attribute("perm", tuple(reversed(range(x.ndim))))))]


def concat(call: OpCall) -> list[Array]:
    """Run Concat."""
    found: Any = np.concatenate(call.arrays(), axis=int(call.attribute("axis")))
    return [found]


def split(call: OpCall) -> list[Array]:
    """Run Split."""
    x = call.array(0)
    axis = int(call.attribute("axis", 0)) % x.ndim
    ends = list(accumulate(t.shape[axis] for t in call.types))
    return [x[(*(slice(None),) * axis, slice(a, b))] for a, b in zip([0, *ends], ends, strict=False)]


def slices(call: OpCall, shape: Shape) -> list[slice]:
    """Return the slices of all axes."""
    starts, ends = call.numbers(1, "starts") or [], call.numbers(2, "ends") or []
    axes = call.numbers(3, "axes") or list(range(len(starts)))
    steps = call.numbers(4) or [1] * len(starts)
    found = [slice(None)] * len(shape)
    for axis, first, end, step in zip(axes, starts, ends, steps, strict=True):
        at = axis % len(shape)
        n = shape[at]
        begin, stop = first + n * (first < 0), end + n * (end < 0)
        if step > 0:
            found[at] = slice(min(max(begin, 0), n), min(max(stop, 0), n), step)
        else:
            low = min(max(stop, -1), n - 1)
            found[at] = slice(min(max(begin, 0), n - 1), low if low >= 0 else None, step)
    return found


def slice_body(x: Any, out: Any, bounds: tuple[tuple[int | None, int | None, int | None], ...]) -> None:
    """Copy some elements."""
    out[...] = x[tuple(slice(*bound) for bound in bounds)]


def sliced(call: OpCall) -> list[Array]:
    """Run Slice."""
    x = call.array(0)
    found = slices(call, x.shape)
    if all(s.step is None or s.step > 0 for s in found):
        return [x[tuple(found)]] if x.ndim else [x]
    bounds = tuple((s.start, s.stop, s.step) for s in found)
    return [compute(whole(slice_body, 1, bounds, name="slice"), [x], call.shape, x.dtype)]


def take_body(x: Any, indices: Any, out: Any, axis: int) -> None:
    """Copy the slices that indices name; negative ones count from the end."""
    out[...] = np.take(x, np.where(indices < 0, indices + x.shape[axis], indices), axis=axis)


def gather(call: OpCall) -> list[Array]:
    """Run Gather."""
    x = call.array(0)
    axis = int(call.attribute("axis", 0)) % x.ndim
    chosen = call.known(1)
    if chosen is not None and chosen.ndim == 0:
        at = int(chosen) % x.shape[axis]
        return [x[(*(slice(None),) * axis, slice(at, at + 1))]._view((*(slice(None),) * axis, 0))]
    indices = call.array(1)
    if axis:
        form = KernelForm(
            take_body, (Prefix(axis), map_all), tuple(range(axis)), (axis,), (Prefix(axis),), flops=1.0, name="gather"
        )
    elif indices.ndim:
        form = KernelForm(take_body, (map_all, Prefix(1)), (0,), (0,), (Prefix(1),), flops=1.0, name="gather")
    else:
        form = whole(take_body, 2, 0, name="gather")
    return [compute(form, [x, indices], call.shape, x.dtype)]


def gather_elements_body(x: Any, indices: Any, out: Any, axis: int) -> None:
    """Copy the elements that indices name along an axis."""
    size = tuple(slice(0, n) if a != axis else slice(None) for a, n in enumerate(indices.shape))
    out[...] = np.take_along_axis(x[size], np.where(indices < 0, indices + x.shape[axis], indices), axis)


def gather_elements(call: OpCall) -> list[Array]:
    """Run GatherElements."""
    x = call.array(0)
    axis = int(call.attribute("axis", 0)) % x.ndim
    form = whole(gather_elements_body, 2, axis, name="gather_elements")
    return [compute(form, [x, call.array(1)], call.shape, x.dtype)]


def gather_nd_body(x: Any, indices: Any, out: Any, batch: int) -> None:
    """Copy the slices whose first indices are given."""
    lead = x.shape[:batch]
    for at in np.ndindex(*lead):
        keys = indices[at]
        out[at] = x[at][tuple(np.moveaxis(keys, -1, 0))]


def gather_nd(call: OpCall) -> list[Array]:
    """Run GatherND."""
    form = whole(gather_nd_body, 2, int(call.attribute("batch_dims", 0)), name="gather_nd")
    return [compute(form, [call.array(0), call.array(1)], call.shape, call.dtype)]


def expand(call: OpCall) -> list[Array]:
    """Run Expand."""
    x = call.array(0)
    return [x if x.shape == call.shape else np.broadcast_to(x, call.shape)]  # type: ignore[list-item]


def tile(call: OpCall) -> list[Array]:
    """Run Tile."""
    found: Any = np.tile(call.array(0), tuple(call.numbers(1) or ()))
    return [found]


PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def pad_body(x: Any, out: Any, widths: tuple[tuple[int, int], ...], mode: str, value: float) -> None:
    """Cut what has negative widths, and pad the rest."""
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True))
    more = [(max(0, a), max(0, b)) for a, b in widths]
    given: Any = {"constant_values": x.dtype.type(value)} if mode == "constant" else {}
    out[...] = np.pad(x[cut], more, mode=mode, **given)  # type: ignore[call-overload]


def pad(call: OpCall) -> list[Array]:
    """Run Pad."""
    x = call.array(0)
    mode = str(call.attribute("mode", "constant"))
    widths = call.numbers(1, "pads") or []
    value = call.fixed(2)
    filled = call.number("value", 0.0) if value is None else value.item()
    axes = positive(call.numbers(3) or range(x.ndim), x.ndim)
    half = len(widths) // 2
    found = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, widths[:half], widths[half:], strict=True):
        found[axis] = (before, after)
    if mode not in PAD_MODES:
        raise UnsupportedError(f"Pad {call.node.name!r}: mode {mode!r} is not known")
    prefix = next((a for a, pair in enumerate(found) if pair != (0, 0)), x.ndim)
    mapper = Prefix(prefix)
    form = KernelForm(pad_body, (mapper,), tuple(range(prefix)), (tuple(found), mode, filled), (mapper,), name="pad")
    return [compute(form, [x], call.shape, x.dtype)]


def blocks_body(x: Any, out: Any, size: int, mode: str) -> None:
    """Move blocks of channels into rows and columns (or back)."""
    n, c, h, w = x.shape
    if mode.endswith(" back"):
        order = (0, 3, 5, 1, 2, 4) if mode == "DCR back" else (0, 1, 3, 5, 2, 4)
        t = x.reshape(n, c, h // size, size, w // size, size).transpose(order)
    elif mode == "DCR":
        t = x.reshape(n, size, size, c // size**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        t = x.reshape(n, c // size**2, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    out[...] = t.reshape(out.shape)


def blocks(call: OpCall) -> list[Array]:
    """Run DepthToSpace, SpaceToDepth."""
    mode = str(call.attribute("mode", "DCR")) + " back" * (call.node.kind == "SpaceToDepth")
    mapper = Prefix(1)
    form = KernelForm(blocks_body, (mapper,), (0,), (int(call.attribute("blocksize")), mode), (mapper,), name="blocks")
    return [compute(form, [call.array(0)], call.shape, call.dtype)]


def trilu_body(x: Any, out: Any, k: int, upper: bool) -> None:
    """Keep one side of each matrix."""
    out[...] = np.triu(x, k) if upper else np.tril(x, k)


def trilu(call: OpCall) -> list[Array]:
    """Run Trilu."""
    k = call.fixed(1)
    x = call.array(0)
    mapper = Prefix(max(x.ndim - 2, 0))
    fixed = (0 if k is None else int(k.reshape(())), call.flag("upper", 1))
    form = KernelForm(trilu_body, (mapper,), tuple(range(x.ndim - 2)), fixed, (mapper,), name="trilu")
    return [compute(form, [x], x.shape, x.dtype)]


def running_body(x: Any, out: Any, axis: int, exclusive: bool, reverse: bool) -> None:
    """Sum up along an axis."""
    turned = np.flip(x, axis) if reverse else x
    found = np.cumsum(turned, axis=axis, dtype=x.dtype)
    if exclusive:
        found = found - turned
    out[...] = np.flip(found, axis) if reverse else found


def running(call: OpCall) -> list[Array]:
    """Run CumSum."""
    x = call.array(0)
    axis = (call.numbers(1) or [0])[0] % x.ndim
    line = Whole((axis,))
    split = tuple(a for a in range(x.ndim) if a != axis)
    form = KernelForm(
        running_body, (line,), split, (axis, call.flag("exclusive"), call.flag("reverse")), (line,), name="cumsum"
    )
    return [compute(form, [x], x.shape, x.dtype)]


def one_hot_body(indices: Any, values: Any, out: Any, depth: int, axis: int) -> None:
    """Mark positions."""
    at = np.where(indices < 0, indices + depth, indices).astype(np.int64)
    marks = np.expand_dims(at, axis) == np.arange(depth).reshape([-1 if a == axis else 1 for a in range(out.ndim)])
    out[...] = np.where(marks, values[1], values[0])


def one_hot(call: OpCall) -> list[Array]:
    """Run OneHot."""
    depth = int((call.numbers(1) or [0])[0])
    axis = int(call.attribute("axis", -1)) % len(call.shape)
    form = whole(one_hot_body, 2, depth, axis, name="one_hot")
    return [compute(form, [call.array(0), call.array(2)], call.shape, call.dtype)]


def scatter_nd_body(x: Any, indices: Any, updates: Any, out: Any, how: str) -> None:
    """Copy an array and change the slices whose first indices are given."""
    out[...] = x
    key = tuple(np.moveaxis(indices, -1, 0))
    if how == "none":
        out[key] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how].at(out, key, updates)


def scatter_nd(call: OpCall) -> list[Array]:
    """Run ScatterND."""
    form = whole(scatter_nd_body, 3, str(call.attribute("reduction", "none")), name="scatter_nd")
    return [compute(form, call.arrays(), call.shape, call.dtype)]


def scatter_elements_body(x: Any, indices: Any, updates: Any, out: Any, axis: int, how: str) -> None:
    """Copy an array and change the elements that indices name along an axis."""
    out[...] = x
    at = list(np.indices(indices.shape, sparse=True))
    at[axis] = np.where(indices < 0, indices + x.shape[axis], indices)
    if how == "none":
        out[tuple(at)] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how].at(out, tuple(at), updates)


def scatter_elements(call: OpCall) -> list[Array]:
    """Run ScatterElements, Scatter."""
    axis = int(call.attribute("axis", 0)) % len(call.shape)
    form = whole(scatter_elements_body, 3, axis, str(call.attribute("reduction", "none")), name="scatter_elements")
    return [compute(form, call.arrays(), call.shape, call.dtype)]


def identity(call: OpCall) -> list[Array]:
    """Run Identity."""
    return [call.array(0)]


def dropout(call: OpCall) -> list[Array]:
    """Run Dropout."""
    training = call.known(2)
    ratio = call.known(1)
    drops = 0.5 if ratio is None else float(ratio.reshape(()))
    if call.has(2) and (training is None or bool(training.reshape(()))) and drops:
        raise UnsupportedError(f"Dropout {call.node.name!r} drops elements at random; export the model for inference")
    x = call.array(0)
    return [x, *(arrays.full(x.shape, True, bool) for _ in call.wanted[1:])]


def parts_of(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return where parts of some lengths begin and end."""
    ends = list(accumulate(lengths))
    return list(zip([0, *ends[:-1]], ends, strict=True))


LAYOUT: dict[str, Run] = {
    "Reshape": to_shape, "Flatten": to_shape, "Squeeze": to_shape, "Unsqueeze": to_shape, "Transpose": transpose,
    "Concat": concat, "Split": split, "Slice": sliced, "Gather": gather, "GatherElements": gather_elements,
    "GatherND": gather_nd, "Expand": expand, "Tile": tile, "Pad": pad, "DepthToSpace": blocks, "SpaceToDepth": blocks,
    "Trilu": trilu, "CumSum": running, "OneHot": one_hot, "ScatterND": scatter_nd,
    "ScatterElements": scatter_elements, "Scatter": scatter_elements, "Identity": identity, "Dropout": dropout,
}  # fmt: skip
STATIC = {
    "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Slice": (1, 2, 3, 4), "Expand": (1,), "Tile": (1,),
    "Pad": (1, 2, 3), "Trilu": (1,), "CumSum": (1,), "OneHot": (1,), "Dropout": (1, 2),
}  # fmt: skip
"""Operands that must be constants, by operator."""
