"""`.npy` files by parts: each rank reads and writes its own boxes at their offsets, and nobody holds the whole.

Before: saving/runs.py, files.py.  After: whoever loads and saves arrays of several ranks.  Nothing is ever unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, ConfigError, ShapeError
from ..geometry import Box, Point, whole
from .runs import read_box, write_box

PART = ".part"
"""The ending of a file that is not complete yet."""


class NpyFile(NamedTuple):
    """A `.npy` file: what it holds and where it begins."""

    path: Path
    shape: Point
    dtype: np.dtype[Any]
    offset: int  # bytes before the first element
    fortran: bool  # the last axis is the slowest one

    def read(self, box: Box | None = None, into: Any = None) -> Any:
        """Return a box of the array, read into `into` if that is given."""
        box = whole(self.shape) if box is None else box
        _check_box(box, self.shape, self.path)
        if into is None:
            into = np.empty(box.shape, self.dtype)
        elif into.shape != box.shape or into.dtype != self.dtype:
            raise ShapeError(
                f"{self.path}: a box of {box.shape}, {self.dtype} cannot be read into {into.shape}, {into.dtype}"
            )
        with _opened(self.path, os.O_RDONLY) as file:
            try:
                if self.fortran:
                    back = Box(box.lo[::-1], box.hi[::-1])
                    read_box(file, self.offset, self.shape[::-1], back, into.T)
                else:
                    read_box(file, self.offset, self.shape, box, into)
            except EOFError as error:
                raise ConfigError(f"{self.path} is damaged: {error}; it should have {self.nbytes:,}") from error
        return into

    @property
    def nbytes(self) -> int:
        """Bytes of the whole file."""
        return self.offset + prod(self.shape) * self.dtype.itemsize


def open_npy(path: str | os.PathLike[str]) -> NpyFile:
    """Return what a `.npy` file holds, without reading it. Raise ConfigError for anything else."""
    from numpy.lib import format

    place = Path(path)
    try:
        with place.open("rb") as file:
            version = format.read_magic(file)
            reads = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}
            if version not in reads:
                raise ValueError(f"version {version} of the format is not known")
            shape, fortran, dtype = reads[version](file)
            offset = file.tell()
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place} cannot be read as .npy: {error}") from error
    if dtype.hasobject:
        raise ConfigError(f"{place} holds Python objects, which coexec never loads; save it with a plain dtype")
    found = NpyFile(place, shape, dtype, offset, fortran and len(shape) > 1)
    if size < found.nbytes:
        raise ConfigError(f"{place} is damaged: it has {size:,} bytes, and should have {found.nbytes:,}")
    return found


class NpyWriter:
    """A `.npy` file in the making: one rank creates it, all write their boxes, then one finishes it.

    Until then it has another name beside its place; what was there before stays as it was.
    """

    def __init__(self, path: str | os.PathLike[str], shape: Point, dtype: Any) -> None:
        self.path = Path(path)
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ArgumentError(f"{self.path}: Python objects cannot be saved; use a plain dtype")
        self._header = _header(self.shape, self.dtype)
        self._part = self.path.with_name(self.path.name + PART)

    def create(self) -> None:
        """Make the file at its full size. One rank does this, before any other writes."""
        with _opened(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            os.write(file, self._header)
            size = len(self._header) + prod(self.shape) * self.dtype.itemsize
            try:
                os.posix_fallocate(file, 0, size)  # a disk without the room says so now
            except OSError as error:
                self._part.unlink(missing_ok=True)
                raise ConfigError(f"cannot write {self.path}: {error.strerror}; it needs {size:,} bytes") from error

    def write(self, box: Box, data: Any) -> None:
        """Write a box; boxes of different ranks must not overlap."""
        _check_box(box, self.shape, self.path)
        if data.shape != box.shape or data.dtype != self.dtype:
            raise ShapeError(
                f"{self.path}: {data.shape}, {data.dtype} was given for a box of {box.shape}, {self.dtype}"
            )
        with _opened(self._part, os.O_WRONLY) as file:
            write_box(file, len(self._header), self.shape, box, data)
            os.fsync(file)  # the rank that finishes cannot know what others have still in their buffers

    def finish(self) -> None:
        """Give the file its name. One rank does this, after all have written."""
        self._part.replace(self.path)


def _header(shape: Point, dtype: np.dtype[Any]) -> bytes:
    from numpy.lib import format

    found = BytesIO()
    described = {"descr": format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    format.write_array_header_1_0(found, described)
    return found.getvalue()


def _check_box(box: Box, shape: Point, path: Path) -> None:
    if box.ndim != len(shape) or any(a < 0 or b > n for a, b, n in zip(box.lo, box.hi, shape, strict=True)):
        raise ShapeError(f"{path}: the box {box} does not lie in an array of shape {shape}")


@contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    try:
        file = os.open(path, how | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}") from error
    try:
        yield file
    except OSError as error:
        raise ConfigError(f"cannot use {path}: {error.strerror}; free some space, or name another place") from error
    finally:
        os.close(file)
