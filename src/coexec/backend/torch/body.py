"""Call bodies: parameters by name, whatever language their arrays speak; `np` inside a Python body means `xp`.

Before: backend/launch.py, namespace.py.  After: check.py, backend.py.  Knows no memory, lane or stream.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from ...errors import ArgumentError, ProgramError, ShapeError
from ...geometry import Box
from ...graph.instruction import Launch
from ...graph.task import Task
from ..launch import check_nothing_returned, check_poison, chunk_info, poison, seen
from .handover import numpy_dtype, to_numpy, to_tensor
from .namespace import Namespace

Body = Callable[..., Any]


class _Scope(dict[str, Any]):
    """A function's globals with some of them replaced."""

    def __init__(self, outer: Mapping[str, Any], replaced: dict[str, Any]) -> None:
        super().__init__(replaced)
        self._outer = outer

    def __missing__(self, name: str) -> Any:
        return self._outer[name]


@runtime_checkable
class Translatable(Protocol):
    """A body that is an object, not a function, and can say itself in another namespace's words."""

    def on(self, xp: Any) -> Body:
        """Return the body with its NumPy functions taken from `xp`; raise AttributeError if one is missing."""


class Translator:
    """Makes Python bodies use `xp` where they say `np`: outside names that are NumPy, or a function of it, become it."""

    def __init__(self, xp: Namespace) -> None:
        self._xp = xp
        self._known: weakref.WeakKeyDictionary[Body, Body] = weakref.WeakKeyDictionary()

    def translate(self, body: Any) -> Body:
        """Return the body as it runs on tensors; helpers that it calls stay as they are."""
        if not isinstance(body, types.FunctionType):
            plain: Body = body
            return body.on(self._xp) if isinstance(body, Translatable) else plain
        known = self._known.get(body)
        if known is None:
            known = self._known[body] = self._copy(body)
        return known

    def _copy(self, body: types.FunctionType) -> Body:
        swapped = ((name, value, self._swap(value)) for name, value in body.__globals__.items())
        scope: dict[str, Any] = {name: new for name, value, new in swapped if new is not value}
        scope["__builtins__"] = body.__globals__["__builtins__"]
        cells = tuple(types.CellType(self._swap(cell.cell_contents)) for cell in body.__closure__ or ())
        scope = _Scope(body.__globals__, scope)
        new = types.FunctionType(body.__code__, scope, body.__name__, body.__defaults__, cells or None)
        new.__kwdefaults__ = body.__kwdefaults__
        return new

    def _swap(self, value: Any) -> Any:
        """Return `xp` for NumPy, and its function of the same name for one of NumPy's."""
        if value is np:
            return self._xp
        name = getattr(value, "__name__", "") if callable(value) else ""
        return getattr(self._xp, name, value) if name and getattr(np, name, None) is value else value


class ChunkOnTorch:
    """The chunk a body is computing, with random numbers as tensors."""

    def __init__(self, chunk: Any, xp: Namespace) -> None:
        self._chunk, self._xp = chunk, xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunk, name)

    def rng(self, seed: int, stream: int = 0) -> Any:
        """Return the same numbers as on NumPy."""
        return RandomOnTorch(self._chunk.rng(seed, stream), self._xp)


class RandomOnTorch:
    """NumPy's random numbers of a chunk, handed over."""

    def __init__(self, numbers: Any, xp: Namespace) -> None:
        self._numbers, self._xp = numbers, xp

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._numbers, name)

        def drawn(*args: Any, **options: Any) -> Any:
            return self._xp.asarray(draw(*args, **{k: _in_numpy(v) for k, v in options.items()}))

        return drawn


def _in_numpy(value: Any) -> Any:
    return numpy_dtype(value) if isinstance(value, torch.dtype) else value


def parts(task: Task, step: Launch, values: Mapping[str, Any]) -> Iterator[tuple[Box, Mapping[str, Any]]]:
    """Yield each piece of a chunk with the arrays it sees, views of the chunk's; the chunk itself if it has none."""
    chunk = step.chunk
    if not chunk.pieces:
        yield chunk.box, values
        return
    for number, piece in enumerate(chunk.pieces):
        views = {}
        for param, shape in zip(task.accesses, task.shapes, strict=True):
            mapper, value = param.access.mapper, values[param.name]
            if param.access.mode == "reduce":
                views[param.name] = value[number]
            else:
                origin = seen(mapper, chunk.box, task.extents, shape).lo
                views[param.name] = value[seen(mapper, piece, task.extents, shape).slices(origin)]
        yield piece, views


def call(task: Task, body: Body, box: Box, values: Mapping[str, Any], xp: Any) -> Any:
    """Call a body with its parameters for one part of the index space, and return what it returns."""
    kernel = task.kernel
    assert kernel is not None
    named = {**values, "xp": xp}
    for name, value in task.scalars.items():
        named[name] = _scalar(values[name], xp) if name in values else _plain(value, xp, body)
    if kernel.takes_chunk:
        chunk = chunk_info(task, box)
        named["chunk"] = chunk if xp is np else ChunkOnTorch(chunk, xp)
    by_keyword = {name: named[name] for name in kernel.keyword_only}
    return body(*[named[name] for name in kernel.params if name not in by_keyword], **by_keyword)


def _scalar(value: Any, xp: Any) -> Any:
    """Return a 0-d array that was passed as a scalar: NumPy's scalar, or the tensor, which stays where it is."""
    return value[()] if xp is np else value


def _plain(value: Any, xp: Any, body: Body) -> Any:
    """Return a scalar in the body's language: beside tensors, NumPy's scalars are Python's, unless it heeds their types."""
    if xp is np or not isinstance(value, np.generic) or isinstance(body, Translatable):
        return value
    return value.item()


def returned(task: Task, result: Any) -> tuple[Any, ...]:
    """Return a body's results in the order of returns=; none for a body that writes into its outputs."""
    kernel = task.kernel
    assert kernel is not None
    names = kernel.returns.names
    if not names:
        check_nothing_returned(kernel, result)
        return ()
    results = (result,) if kernel.returns.single else result
    if not isinstance(results, tuple | list) or len(results) != len(names):
        raise ArgumentError(f"kernel {kernel.name!r} must return {len(names)} arrays, as declared by returns=")
    return tuple(results)


def place(task: Task, values: Mapping[str, Any], results: tuple[Any, ...]) -> None:
    """Put a body's results into the arrays that the call returned."""
    kernel = task.kernel
    assert kernel is not None
    for name, result in zip(kernel.returns.names, results, strict=bool(results)):
        target = values[name]
        if result is None or tuple(np.shape(result)) != tuple(target.shape):
            got = "nothing" if result is None else f"shape {tuple(np.shape(result))}"
            shape = tuple(target.shape)
            raise ShapeError(f"kernel {kernel.name!r} returned {got} where returns= declares shape {shape}")
        tensor = result if isinstance(result, torch.Tensor) else to_tensor(np.asarray(result))
        if not np.can_cast(numpy_dtype(tensor.dtype), numpy_dtype(target.dtype), "same_kind"):
            raise TypeError(f"kernel {kernel.name!r} returned {tensor.dtype} where {target.dtype} is declared")
        target.copy_(tensor, non_blocking=True)


class WatchedTensors:
    """Debug mode: outputs are poisoned before a body runs, and inputs are compared with what they were.

    An input may be an output of the same call, too, or share elements with one: those may change.
    """

    def __init__(self, task: Task, step: Launch, values: Mapping[str, Any]) -> None:
        self._task, self._step, self._values = task, step, values
        self._written = {binding.name for binding in step.bindings if binding.writes}
        self._before = {name: tensor.clone() for name, tensor in values.items() if name not in self._written}
        spans = {name: _span(tensor) for name, tensor in values.items()}

        def overlap(one: str, other: str) -> bool:
            return bool(spans[one][0] < spans[other][1] and spans[other][0] < spans[one][1])

        self._overlap = overlap
        poisoned = {name: to_numpy(tensor) for name, tensor in values.items()}
        poison(task, step, poisoned, self._overlap)
        for name in self._written:
            values[name].copy_(torch.from_numpy(poisoned[name]))

    def check(self) -> None:
        """Raise if a cx.write output was left unassigned, or a cx.read input was written to."""
        values = {name: to_numpy(tensor) for name, tensor in self._values.items()}
        check_poison(self._task, self._step, values, self._overlap)
        for name, before in self._before.items():
            if not unchanged(before, self._values[name]) and not self._may_change(name, before):
                raise wrote_to_input(self._task, name)

    def _may_change(self, name: str, before: Any) -> bool:
        """Tell whether every element of an input that has changed is an element of an output as well."""
        after = self._values[name]
        changed = ~_same(before, after)
        outputs = [_addresses(self._values[other]).flatten() for other in self._written if self._overlap(name, other)]
        return bool(outputs) and bool(torch.isin(_addresses(after)[changed.cpu()], torch.cat(outputs)).all())


def _span(tensor: Any) -> tuple[int, int]:
    """Return the addresses from the first byte of a tensor to the last; none for one without elements."""
    first = tensor.data_ptr()
    if not tensor.numel():
        return first, first
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (reach + 1) * tensor.element_size()


def _addresses(tensor: Any) -> Any:
    """Return the address of each element."""
    at = torch.tensor(tensor.data_ptr(), dtype=torch.int64)
    for axis, (extent, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = torch.arange(extent) * stride * tensor.element_size()
        at = at + steps.reshape(-1, *[1] * (tensor.ndim - axis - 1))
    return at


def _same(before: Any, after: Any) -> Any:
    """Return which elements are the same, not-a-numbers included."""
    return (before == after) | ((before != before) & (after != after))  # noqa: PLR0124


def unchanged(before: Any, after: Any) -> bool:
    """Tell whether two tensors hold the same, not-a-numbers included."""
    return bool(_same(before, after).all())


def wrote_to_input(task: Task, name: str) -> ProgramError:
    """Return the error for a body that changed what it declares to read."""
    return ProgramError(f"kernel {task.name!r} wrote to {name!r}, which it declares as cx.read; declare cx.update")
