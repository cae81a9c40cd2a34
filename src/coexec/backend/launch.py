"""Run bodies on NumPy arrays: bindings become arguments, results find their place.

Before: graph/instruction.py, program/.  After: backend/cpu.py and every backend whose memory is the host's.
Knows nothing of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..compile.serving import Bodies, ServedLaunch
from ..errors import ArgumentError, BackendError, ProgramError, ShapeError
from ..geometry import Box, whole
from ..graph.instruction import Allocation, Binding, Copy, Fence, Fill, Launch, Reduce, Step, overlapping
from ..graph.task import Task
from ..program.chunk import ChunkInfo
from ..program.kernel import Kernel
from ..program.mapper import Mapper
from ..program.unwritten import lent_whole
from ..program.view import extract
from .hulls import SENTINEL, Hull, poison_of

ALIGNMENT = 128
Body = Callable[..., Any]
Bindings = tuple[Binding, ...]
NOTHING: frozenset[str] = frozenset()


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an uninitialised C-ordered array that any device can use in place."""
    nbytes = whole(shape).volume * dtype.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape) if nbytes else np.empty(shape, dtype)


def set_data(allocation: Allocation, data: np.ndarray[Any, Any]) -> None:
    """Put an array and its read-only twin into a host allocation."""
    allocation.data = data
    allocation.frozen = data.view()
    allocation.frozen.flags.writeable = False


def resolve(binding: Binding) -> Any:
    """Return the array that a parameter of a body sees: read-only unless the kernel declared that it writes."""
    allocation = binding.allocation
    if allocation is None:
        empty = np.empty(binding.box.shape, binding.dtype)
        return extract(empty, binding.box.lo, binding.box, binding.cut)
    if binding.pieces is not None:
        parts = [(piece.seen, _cut_out(piece.allocation, piece.box, binding)) for piece in binding.pieces]
        return binding.pad.gather(parts, np)
    data = _cut_out(allocation, binding.box, binding)
    return data if binding.pad is None else binding.pad.apply(data, np)


def _cut_out(allocation: Allocation, box: Box, binding: Binding) -> Any:
    """Return what a parameter sees of one box of an allocation."""
    data = allocation.data if binding.writes else allocation.frozen
    if data is None:
        raise _no_memory(allocation)
    if box is not allocation.box or binding.cut is not None:
        data = extract(data, allocation.box.lo, box, binding.cut)
    return data


def run(task: Any, step: Step, *, debug: bool = False, bodies: Bodies | None = None) -> None:
    """Take a step of a task on the calling thread."""
    match step:
        case Launch():
            run_kernel(task, step, debug, bodies)
        case Copy(source=source, target=target, boxes=boxes):
            for box in boxes:
                _part(target, box)[...] = _part(source, box)
        case Fill(allocation=allocation, boxes=boxes, value=value):
            for box in boxes:
                _part(allocation, box)[...] = value
        case Reduce():
            _reduce(step)
        case Fence(binding=binding, deliver=deliver):
            data = resolve(binding)
            copy = np.array(data, copy=True, order="C")
            copy.flags.writeable = False
            deliver(copy)
        case _:
            raise BackendError(f"{step.kind!r} is not for a host lane")


def _part(allocation: Allocation, box: Box) -> Any:
    if allocation.data is None:
        raise _no_memory(allocation)
    return extract(allocation.data, allocation.box.lo, box, None)


def _no_memory(allocation: Allocation) -> BaseException:
    """Return why an allocation has no memory: what its alloc instruction met, if anything."""
    owner = allocation.owner
    return owner if isinstance(owner, BaseException) else BackendError(f"{allocation!r} has no memory")


def _reduce(step: Reduce) -> None:
    step.operator.fold(resolve(step.partials), resolve(step.target))


def run_kernel(task: Task, step: Launch, debug: bool, bodies: Bodies | None = None) -> bool:
    """Run a body on its arrays; tell whether the time that takes is what its variant takes."""
    kernel = task.kernel
    assert kernel is not None
    if (task.space is not None or 0 in task.extents) and step.chunk.box.empty and not kernel.host:
        return True  # no point to visit
    variant, body, bindings = step.body, task.body, step.bindings
    if variant.kind == "cpu" and variant.function is not None:
        body = variant.function
    else:
        if kernel.lent != NOTHING and not debug and not step.chunk.alike:
            bindings = _lent(kernel, bindings)
        if bodies is not None and body is not None:
            body = bodies.turn(kernel, body, variant, step.device, task.id)
    assert body is not None, "a kernel without a function is never placed on the host"
    if debug and any(binding.boxes for binding in step.bindings):
        _run_in_boxes(task, step, body)
    elif step.chunk.pieces:
        _run_pieces(task, step, body, {binding.name: resolve(binding) for binding in bindings}, debug)
    else:
        _run_chunk(task, step, body, bindings, debug)
    return type(body) is not ServedLaunch or body.typical


def _lent(kernel: Kernel, bindings: Bindings) -> Bindings:
    """Return how parameters are found: inputs that the body never writes, but NumPy would copy, as if it did."""
    if kernel.lent is None:
        inputs = {param.name for param in kernel.array_params if not param.access.writes}
        kernel.lent = lent_whole(kernel.function) & inputs
    if not kernel.lent:
        return bindings
    return tuple([b._replace(writes=True) if b.name in kernel.lent else b for b in bindings])


def _run_chunk(task: Task, step: Launch, body: Body, bindings: Bindings, debug: bool) -> None:
    """Run a body on its chunk as a whole."""
    kernel = task.kernel
    assert kernel is not None
    params = kernel.array_params
    if kernel.plain and not debug and not step.chunk.alike and len(bindings) == len(params):
        args: list[Any] = [None] * len(kernel.passed)
        for param, binding in zip(params, bindings):  # noqa: B905 - equally long, and this is hot
            _, allocation, box, cut, writes, pad, _, _, _ = binding
            value = None
            if allocation is not None and box is allocation.box and cut is None and pad is None:
                value = allocation.data if writes else allocation.frozen
            args[param[1]] = resolve(binding) if value is None else value
        for position, name in kernel.scalar_params:
            args[position] = task.scalars[name]
        returned = body(*args)
        if returned is not None:
            check_nothing_returned(kernel, returned)
        return
    run_body(task, step, body, {binding.name: resolve(binding) for binding in bindings}, debug)


def _run_in_boxes(task: Task, step: Launch, body: Body) -> None:
    """Debug mode: run a body on private copies of arrays of which it may touch only some boxes.

    What it also sees through another parameter stays where it is: the body may be about to see what it writes.
    """
    bindings = step.bindings
    hulls = {
        b.name: Hull(b)
        for b in bindings
        if b.boxes and b.allocation is not None and not any(overlapping(b, other) for other in bindings)
    }
    values = {b.name: hulls[b.name].seen() if b.name in hulls else resolve(b) for b in step.bindings}
    if step.chunk.pieces:
        _run_pieces(task, step, body, values, debug=True)
    else:
        run_body(task, step, body, values, debug=True)
    for hull in hulls.values():
        hull.put_back(task.name)


def _run_pieces(task: Task, step: Launch, body: Body, values: dict[str, Any], debug: bool) -> None:
    """Run a body on one piece of its chunk after the other: pieces are views of what the chunk sees."""
    chunk = step.chunk
    mapped = []
    for param, shape in zip(task.accesses, task.shapes, strict=True):
        access = param.access
        box = None if access.mode == "reduce" else seen(access.mapper, chunk.box, task.extents, shape)
        mapped.append((param.name, access.mapper, shape, box))
    again: dict[str, tuple[Any, Any]] = {}  # what the last piece saw, which the next one may see too
    fixed = _unwritten(values) if chunk.alike else ()
    for number, piece in enumerate(chunk.pieces):
        parts = {}
        for name, mapper, shape, box in mapped:
            index = (number,) if box is None else seen(mapper, piece, task.extents, shape).slices(box.lo)
            if name not in again or again[name][0] != index:
                part = values[name][(*index, ...)]  # with the dots, never a scalar
                again[name] = (index, compact(part) if name in fixed else part)
            parts[name] = again[name][1]
        run_body(task, step, body, parts, debug, piece)


def seen(mapper: Mapper, box: Box, space: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    """Return the box of an array that a body sees for a part of the index space; padded, it reaches over the border."""
    pad = mapper.pad(box, shape)
    return mapper.box(box, space, shape) if pad is None else pad.wanted


def run_body(
    task: Task, step: Launch, body: Body, values: dict[str, Any], debug: bool, piece: Box | None = None
) -> None:
    """Run a body on the arrays of its chunk, or of one piece of it."""
    kernel = task.kernel
    assert kernel is not None
    seen_as = values
    if step.chunk.alike:
        values = compacted(values)
    if debug:
        poison(task, step, values)
    named = {**values, "xp": np}
    for name, value in task.scalars.items():
        named[name] = values[name][()] if name in values else value  # a 0-d array may be passed as a scalar
    if kernel.takes_chunk:
        named["chunk"] = chunk_info(task, piece or step.chunk.box)
    by_keyword = {name: named[name] for name in kernel.keyword_only}
    turn = body if type(body) is ServedLaunch else None
    if turn is not None and kernel.returns.names:
        turn.targets = tuple([values[name] for name in kernel.returns.names])
    returned = body(*[named[name] for name in kernel.params if name not in by_keyword], **by_keyword)
    if kernel.returns.names:
        if turn is None or not turn.placed:
            _place_returned(task, step, values, returned)
    else:
        check_nothing_returned(kernel, returned)
    if debug:
        check_poison(task, step, values)
    for name, value in values.items():
        if value is not seen_as[name] and seen_as[name].flags.writeable:
            np.copyto(seen_as[name], value)


def _unwritten(values: dict[str, Any]) -> list[str]:
    """Return the arrays that a body sees through no parameter that it may write."""
    written = [value for value in values.values() if value.flags.writeable]
    return [
        name
        for name, value in values.items()
        if not value.flags.writeable and not any(np.may_share_memory(value, other) for other in written)
    ]


def compact(value: Any) -> Any:
    """Return an array in C order, aligned and without gaps: a copy unless it is so already."""
    return value if _is_compact(value) else np.array(value, order="C", copy=True)


def _is_compact(value: Any) -> bool:
    flags = value.flags
    return bool(flags.c_contiguous and flags.aligned)


def compacted(values: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a body in C order without gaps, as far as they are not parts of each other.

    How an array lies in memory differs from device to device, and NumPy adds up in the order in which it lies.
    """
    loose = [name for name, value in values.items() if not _is_compact(value)]
    if not loose:
        return values
    written = [(name, value) for name, value in values.items() if value.flags.writeable]
    for name, value in written:
        if any(other != name and np.may_share_memory(value, values[other]) for other in values):
            return values  # a copy would not see what is written through the other one
    return values | {name: compact(values[name]) for name in loose}


def check_nothing_returned(kernel: Any, returned: Any) -> None:
    """Raise if a body returned something that nobody asked for."""
    if returned is not None and not kernel.host:
        raise ProgramError(
            f"kernel {kernel.name!r} returned a {type(returned).__name__}; write into an output, or declare "
            "returns=cx.like(...) for the functional form"
        )


def chunk_info(task: Task, box: Box) -> ChunkInfo:
    """Return what a body may ask about the part it computes."""
    parts = {}
    for param, array_shape in zip(task.accesses, task.shapes, strict=True):
        mapper: Mapper = param.access.mapper
        if param.access.mode == "reduce":
            parts[param.name] = whole(array_shape)
        else:
            parts[param.name] = seen(mapper, box, task.extents, array_shape)
    return ChunkInfo(box, whole(task.extents) if task.space is None else task.space, parts)


def _place_returned(task: Task, step: Launch, values: dict[str, Any], returned: Any) -> None:
    """Put a body's results into the arrays that the call returned."""
    kernel = task.kernel
    assert kernel is not None
    names = kernel.returns.names
    results = (returned,) if kernel.returns.single else returned
    if not isinstance(results, tuple | list) or len(results) != len(names):
        raise ArgumentError(f"kernel {kernel.name!r} must return {len(names)} arrays, as declared by returns=")
    for name, result in zip(names, results, strict=True):
        target = values[name]
        if result is None or np.shape(result) != target.shape:
            got = "nothing" if result is None else f"shape {np.shape(result)}"
            raise ShapeError(f"kernel {kernel.name!r} returned {got} where returns= declares shape {target.shape}")
        _adopt_or_copy(step, name, target, result)


def _adopt_or_copy(step: Launch, name: str, target: Any, result: Any) -> None:
    binding = next(b for b in step.bindings if b.name == name)
    allocation = binding.allocation
    if (
        allocation is not None
        and target is allocation.data
        and type(result) is np.ndarray
        and result.base is None
        and result.dtype == target.dtype
        and result.flags.c_contiguous
        and result.flags.writeable
        and result.nbytes >= 1 << 16
    ):
        set_data(allocation, result)  # a fresh array of the right kind becomes the allocation itself
    else:
        np.copyto(target, result, casting="same_kind")


Overlap = Callable[[str, str], bool]
"""Tells whether two arrays of a call may have elements in common, by name."""


def _promised(
    task: Task, step: Launch, values: dict[str, Any], overlap: Overlap | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the outputs that must be assigned in full, but for those that are an input of the same call too."""
    in_boxes = {binding.name for binding in step.bindings if binding.boxes}
    for param in task.accesses:
        array = values[param.name]
        if param.access.mode != "write" or param.position < 0 or param.name in in_boxes:
            continue
        if array.dtype.itemsize >= 4 and array.size:
            others = [name for name in values if name != param.name]
            meet = overlap or (lambda one, other: np.may_share_memory(values[one], values[other]))
            if not any(meet(param.name, other) for other in others):
                yield param.name, array


def poison(task: Task, step: Launch, values: dict[str, Any], overlap: Overlap | None = None) -> None:
    """Debug mode: fill outputs that must be assigned in full with a pattern.

    `values` may be copies of what the body sees; then `overlap` tells which of the originals have elements in common.
    """
    for _, array in _promised(task, step, values, overlap):
        array[...] = poison_of(array.dtype)


def check_poison(task: Task, step: Launch, values: dict[str, Any], overlap: Overlap | None = None) -> None:
    """Debug mode: raise if an output was not assigned in full."""
    for name, array in _promised(task, step, values, overlap):
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
        left = np.argwhere((raw == SENTINEL).all(axis=-1))
        if len(left):
            where = tuple(int(i) for i in left[0])
            raise ProgramError(
                f"kernel {task.name!r} declares {name!r} as cx.write but left element {where} of "
                f"its box {step.chunk.box} unassigned; assign every element or declare cx.update"
            )
