"""Arrays in files: `.npy` files and Zarr stores by parts, and checkpoints of a program's state. No rank gathers an array for it.

Before: saving/, program/host_task.py.  After: the package's own namespace.  Each rank reads and writes its part, as a host task.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import numpy as np

from ..cluster.here import rank, ranks
from ..errors import ArgumentError, CheckpointError, ConfigError
from ..geometry import Box
from ..program import array as arrays, session
from ..program.access import read, write
from ..program.array import Array
from ..program.host_task import HostTask, host_task
from ..saving import checkpoint as checkpoints
from ..saving.npy import NpyFile, NpyWriter, open_npy
from ..saving.zarr_store import ENDING, ZarrSource, ZarrWriter, is_zarr

Path = str | os.PathLike[str]
NOTHING: Any = object()


def write_part(x: Any, writer: NpyWriter | ZarrWriter, chunk: Any) -> None:
    """Write this rank's part of an array."""
    writer.write(Box(chunk.lo, chunk.hi), x)


def read_part(x: Any, source: Any, chunk: Any) -> None:
    """Read this rank's part of an array."""
    source.read(Box(chunk.lo, chunk.hi), x)


@cache
def _writing(rows: int) -> HostTask:
    """Return the host task that writes parts of an array, cut at multiples of so many rows."""
    return HostTask(write_part, {"x": read}, order="files", split=0, granule=rows)


@cache
def _reading(rows: int) -> HostTask:
    """Return the host task that reads parts of an array, cut at multiples of so many rows."""
    return HostTask(read_part, {"x": write}, order="files", split=0, granule=rows)


@host_task(order="files", split=0, x=read)
def keep_part(x: Any, file: checkpoints.PieceFile, name: str, chunk: Any) -> None:
    """Write this rank's part of an array into a checkpoint."""
    file.add(name, Box(chunk.lo, chunk.hi), x)


class NamedArray:
    """One array of a checkpoint, as a source of boxes."""

    def __init__(self, kept: checkpoints.Checkpoint, name: str) -> None:
        self._kept, self._name = kept, name

    def read(self, box: Box, into: Any) -> None:
        """Read a box."""
        self._kept.read(self._name, box, into)


def save(path: Path, a: Any) -> None:
    """Write an array to a `.npy` file, which `np.load` reads, or to a Zarr store if the name ends with `.zarr`. Waits.

    Each rank writes its part: at its place in the file, or in chunks of its own. Nothing is gathered.
    What is written gets its name when it is complete: what was there before stays as it was until then.
    """
    source = arrays.asarray(a)
    runtime: Any = source.runtime
    stored = str(path).endswith(ENDING)
    writer: Any = (
        ZarrWriter(path, source.shape, source.dtype, ranks()) if stored else NpyWriter(path, source.shape, source.dtype)
    )
    first = rank() == 0
    runtime.agree(ConfigError, writer.create if first else None)
    if source.size:
        _writing(writer.rows if stored else 1)(_rows(source), _rowed(writer, source)).result()
    runtime.agree(ConfigError, writer.finish if first else None)


def load(path: Path) -> Array:
    """Return the array that a `.npy` file or a Zarr store holds. Waits for nothing: each rank reads its part when needed.

    Do not change what is there before the array was used.
    """
    if is_zarr(path):
        store = ZarrSource(path)
        return _read(store, store.shape, store.dtype, store.rows)
    source = open_npy(path)
    return _read(source, source.shape, source.dtype)


def _read(source: Any, shape: tuple[int, ...], dtype: Any, rows: int = 1) -> Array:
    found = arrays.empty(shape, dtype)
    if found.size:
        _reading(rows)(_rows(found), source if shape else Single(source))
    return found


def _rows(a: Array) -> Array:
    """Return an array with a first axis: a number is one row."""
    return a if a.ndim else a[None]


def _rowed(writer: NpyWriter | ZarrWriter, a: Array) -> Any:
    return writer if a.ndim else Single(writer)


class Single:
    """A number in a file, as an array of one row."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def write(self, box: Box, data: Any) -> None:
        """Write it."""
        del box
        self._inner.write(Box((), ()), data[0, ...])

    def add(self, name: str, box: Box, data: Any) -> None:
        """Write it into a checkpoint."""
        del box
        self._inner.add(name, Box((), ()), data[0, ...])

    def read(self, box: Box, into: Any) -> None:
        """Read it."""
        del box
        self._inner.read(Box((), ()), into[0, ...])


def gather(a: Array, root: int = 0) -> Any:
    """Wait for an array and return its elements as an ndarray on rank `root`; None on all others. Every rank calls it."""
    if not isinstance(a, Array):
        raise ArgumentError(f"cx.gather takes a coexec array, not a {type(a).__name__}")
    return a.runtime.read_on(a, root)


def checkpoint(folder: Path, **state: Any) -> int:
    """Save arrays, and whatever else is JSON, so that `cx.restore` finds them; return the number of the checkpoint. Waits.

    Each rank writes its part. Killed in the middle, the checkpoint before is intact; the last two are kept.
    """
    kept = {name: value for name, value in state.items() if isinstance(value, Array)}
    values = {name: value for name, value in state.items() if name not in kept}
    _check_values(values)
    runtime: Any = session.current()
    first = rank() == 0
    number = runtime.agree(CheckpointError, (lambda: checkpoints.begin(folder)) if first else None)[0]
    files: list[checkpoints.PieceFile] = []
    runtime.agree(CheckpointError, lambda: files.append(checkpoints.PieceFile(folder, number, rank())))
    try:
        for name, a in kept.items():
            if a.size:
                keep_part(_rows(a), files[0] if a.ndim else Single(files[0]), name).result()
        written = runtime.agree(CheckpointError, files[0].finish)
    finally:
        files[0].close()
    about = {name: (a.shape, a.dtype) for name, a in kept.items()}
    end = (lambda: checkpoints.commit(folder, number, about, written, values)) if first else None
    runtime.agree(CheckpointError, end)
    return int(number)


def _check_values(values: dict[str, Any]) -> None:
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            hint = "; make it an array: cx.array(x)" if isinstance(value, np.ndarray) else ""
            raise ArgumentError(
                f"cx.checkpoint({name}=...): a {type(value).__name__} is neither a coexec array nor JSON{hint}"
            ) from None


def restore(folder: Path, default: Any = NOTHING) -> Any:
    """Return what the last complete checkpoint holds, by name: arrays on this program's ranks, and the other values.

    `default` is returned where there is no checkpoint yet; without it, that is a CheckpointError.
    """
    if default is not NOTHING and not checkpoints.numbers(folder):
        return default
    kept = checkpoints.Checkpoint(folder)
    found: dict[str, Any] = dict(kept.values)
    for name, saved in kept.manifest.arrays.items():
        found[name] = _read(NamedArray(kept, name), saved.shape, saved.dtype)
    return found


__all__ = ["NpyFile", "checkpoint", "gather", "load", "restore", "save"]
