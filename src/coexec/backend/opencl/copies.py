"""Copies and fills of boxes.

Before: layout.py (strips), storage.py.  After: backend.py.  Moves the bytes of the boxes and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendError
from ...machine.platform import USER
from .layout import StripCopy, strips
from .program import Call, Launcher, LaunchPlace
from .source import SourceArgument
from .storage import OpenCLStorage

if TYPE_CHECKING:
    from ...geometry import Box
    from ...graph.instruction import Allocation, Copy, Fill

UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
FEW_RUNS = 4
"""Up to this many contiguous runs, filling each is cheaper than a kernel."""


def enqueue_copy(queue: Any, storage: OpenCLStorage, copy: Copy, waits: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Enqueue a copy instruction; return its events, which must be kept until they are over, and what else must."""
    source, target = copy.source, copy.target
    inside = (storage.holds(source), storage.holds(target))
    if inside == (False, False):
        raise BackendError(f"neither {source} nor {target} is in a memory of {copy.device}")
    events: list[Any] = []
    for box in copy.boxes:
        pending = list(waits) if not events else []
        if inside == (True, True):
            events += _within(queue, storage, source, target, box, pending)
        elif inside[1]:
            place, host = storage.place(target), _dense(source, box)
            events += _across(queue, place, target.box, host, box, pending, to_device=True)
        else:
            place, host = storage.place(source), _dense(target, box)
            events += _across(queue, place, source.box, host, box, pending, to_device=False)
    return events, []


def _within(
    queue: Any, storage: OpenCLStorage, source: Allocation, target: Allocation, box: Box, waits: list[Any]
) -> list[Any]:
    import pyopencl as cl

    origin, goal = storage.place(source), storage.place(target)
    itemsize = source.dtype.itemsize
    events: list[Any] = []
    for strip in strips(box, source.box, target.box, itemsize):
        here = strip._replace(
            source=strip.source + origin.start * itemsize, target=strip.target + goal.start * itemsize
        )
        if here.rows == here.slices == 1:
            options: dict[str, Any] = {"byte_count": here.run, "src_offset": here.source, "dst_offset": here.target}
        else:
            options = {
                "src_origin": _origin(here.source, here.source_pitches),
                "dst_origin": _origin(here.target, here.target_pitches),
                "region": (here.run, here.rows, here.slices),
                "src_pitches": here.source_pitches,
                "dst_pitches": here.target_pitches,
            }
        events.append(cl.enqueue_copy(queue, goal.buffer, origin.buffer, wait_for=None if events else waits, **options))
    return events


def _across(
    queue: Any, place: LaunchPlace, device: Box, host: tuple[Any, Box], box: Box, waits: list[Any], *, to_device: bool
) -> list[Any]:
    """Copy between a buffer that holds the box `device` and (ndarray, its box) of the host."""
    import pyopencl as cl

    (data, held), itemsize = host, host[0].itemsize
    flat = data.reshape(-1).view(np.uint8)
    events: list[Any] = []
    for strip in strips(box, held, device, itemsize):
        at = strip.target + place.start * itemsize
        if strip.rows == strip.slices == 1:
            part = flat[strip.source : strip.source + strip.run]
            options: dict[str, Any] = {"dst_offset" if to_device else "src_offset": at}
        else:
            part, options = flat, _rectangle(strip._replace(target=at))
        ends = (place.buffer, part) if to_device else (part, place.buffer)
        wait_for = None if events else waits
        events.append(cl.enqueue_copy(queue, *ends, is_blocking=False, wait_for=wait_for, **options))
    return events


def _dense(allocation: Allocation, box: Box) -> tuple[Any, Box]:
    """Return a dense ndarray that holds `box`, and the box it holds."""
    data = allocation.data
    if not isinstance(data, np.ndarray):
        raise BackendError(f"{allocation} is not in the host's memory")
    if data.flags.c_contiguous:
        return data, allocation.box
    if allocation.memory != USER:
        raise BackendError(f"{allocation} is not dense, which only the user's own arrays may be")
    return np.ascontiguousarray(
        data[box.slices(allocation.box.lo)]
    ), box  # nobody writes it: it can be packed right now


def _rectangle(strip: StripCopy) -> dict[str, Any]:
    """Return a copy from or to the host in PyOpenCL's words."""
    return {
        "buffer_origin": _origin(strip.target, strip.target_pitches),
        "host_origin": _origin(strip.source, strip.source_pitches),
        "region": (strip.run, strip.rows, strip.slices),
        "buffer_pitches": strip.target_pitches,
        "host_pitches": strip.source_pitches,
    }


def _origin(offset: int, pitches: tuple[int, int]) -> tuple[int, int, int]:
    """Return a byte offset as OpenCL's (x in bytes, row, slice)."""
    row, plane = pitches
    slices, rest = divmod(offset, plane) if plane else (0, offset)
    rows, x = divmod(rest, row) if row else (0, rest)
    return x, rows, slices


def enqueue_fill(
    queue: Any, storage: OpenCLStorage, launcher: Launcher, fill: Fill, waits: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Enqueue a fill instruction; return its events and what must live until they are over."""
    place = storage.place(fill.allocation)
    events: list[Any] = []
    for box in fill.boxes:
        pending = list(waits) if not events else []
        events += _fill_box(queue, launcher, place, fill, box, pending)
    return events, []


def _fill_box(queue: Any, launcher: Launcher, place: LaunchPlace, fill: Fill, box: Box, waits: list[Any]) -> list[Any]:
    import pyopencl as cl

    held, dtype = fill.allocation.box, fill.allocation.dtype
    pattern = np.asarray(fill.value).astype(dtype).reshape(1)
    offset = place.start * dtype.itemsize
    found = list(strips(box, held, held, dtype.itemsize))
    if dtype.itemsize not in UNSIGNED:  # no element that OpenCL could write at once
        return _fill_odd(queue, place, fill, pattern, found, waits)
    if sum(strip.rows * strip.slices for strip in found) <= FEW_RUNS:
        runs = [s.source + r * s.source_pitches[0] + z * s.source_pitches[1]
                for s in found for z in range(s.slices) for r in range(s.rows)]  # fmt: skip
        return [
            cl.enqueue_fill_buffer(queue, place.buffer, pattern, offset + at, found[0].run, waits if not n else None)
            for n, at in enumerate(runs)
        ]
    word = UNSIGNED[dtype.itemsize]
    events: list[Any] = []
    for strip in found:
        rows, slices = (pitch // dtype.itemsize for pitch in strip.source_pitches)
        shape = (strip.slices, strip.rows, strip.run // dtype.itemsize)
        arguments = (SourceArgument("x", word, 3, writes=True, unit=True), SourceArgument("value", word))
        values = [place.buffer, place.start + strip.source // dtype.itemsize, slices, rows, 1, pattern.view(word)[0]]
        call = Call(arguments, values, {"x": shape}, [])
        origin = (0, 0, 0)
        events += launcher.run(queue, "x(i, j, k) = value", None, call, shape, origin, waits if not events else [])
    return events


def _fill_odd(
    queue: Any, place: LaunchPlace, fill: Fill, pattern: np.ndarray[Any, Any], found: list[StripCopy], waits: list[Any]
) -> list[Any]:
    """Fill with elements of unusual size from a prepared block of the host."""
    import pyopencl as cl

    offset = place.start * fill.allocation.dtype.itemsize
    events: list[Any] = []
    for strip in found:
        host = np.tile(pattern.view(np.uint8), strip.nbytes // pattern.nbytes)
        packed = strip._replace(
            source=0, source_pitches=(strip.run, strip.run * strip.rows), target=offset + strip.target
        )
        options = _rectangle(packed) if strip.rows * strip.slices > 1 else {"dst_offset": packed.target}
        wait_for = None if events else waits
        events.append(cl.enqueue_copy(queue, place.buffer, host, is_blocking=False, wait_for=wait_for, **options))
    return events
