"""Zarr stores by parts: each rank reads and writes whole chunks, so no two ranks touch one file, and nobody holds the whole.

Before: geometry/.  After: ops/files.py.  The only module that imports zarr, and only when it is asked to.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, CoexecError, ConfigError
from ..geometry import Box, Point
from .npy import PART

ENDING = ".zarr"
"""What names of stores end with."""
AT_ONCE = 16 << 20
"""Bytes of a chunk at most: what is packed and unpacked at once, and few enough that others read small parts quickly."""
OLD = ".old"
"""The ending of what was there before, for the moment in which the new store gets its name."""


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path names a Zarr store: it ends with `.zarr`, or is a folder."""
    return Path(path).suffix == ENDING or Path(path).is_dir()


def load_zarr() -> Any:
    """Import zarr. Raise ConfigError, naming the extra, if that cannot be done."""
    try:
        return import_module("zarr")
    except ImportError as error:
        raise ConfigError(f"Zarr stores need zarr ({error}); pip install 'coexec[zarr]' brings it") from error


def chunks_for(shape: Point, itemsize: int, ranks: int) -> Point:
    """Return the shape of chunks: those of one rank's rows, where ranks have equal parts, cut to at most AT_ONCE bytes."""
    if not shape:
        return ()
    rest = [max(1, n) for n in shape[1:]]
    rows, most = max(1, ceil(shape[0] / ranks)), max(1, AT_ONCE // (prod(rest) * itemsize))
    found = [ceil(rows / ceil(rows / most)), *rest]
    for axis in range(1, len(found)):
        while found[axis] > 1 and prod(found) * itemsize > AT_ONCE:
            found[axis] = ceil(found[axis] / 2)
    return tuple(found)


class ZarrSource:
    """An array in a Zarr store. `rows` are what lies in one file along the first axis."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at the store; nothing is read yet."""
        self.path = Path(path)
        with _names(self.path, "read as a Zarr array"):
            self._array = load_zarr().open_array(str(self.path), mode="r")
            self.shape: Point = tuple(self._array.shape)
            self.dtype: np.dtype[Any] = np.dtype(self._array.dtype)
            files = getattr(self._array, "shards", None) or self._array.chunks
        self.rows = int(files[0]) if files else 1
        if self.dtype.hasobject or _unpickles(self._array):
            raise ConfigError(f"{self.path} holds Python objects, which coexec never loads; save it with a plain dtype")

    def read(self, box: Box, into: Any) -> None:
        """Read a box."""
        with _names(self.path, "read"):
            into[...] = self._array[box.slices((0,) * box.ndim)]


class ZarrWriter:
    """A store in the making: one rank creates it, all write their boxes of whole chunks, then one finishes it.

    Until then it has another name beside its place; what was there before stays as it was.
    """

    def __init__(self, path: str | os.PathLike[str], shape: Point, dtype: Any, ranks: int) -> None:
        self.path = Path(path)
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if self.dtype.hasobject:
            raise ArgumentError(f"{self.path}: Python objects cannot be saved; use a plain dtype")
        self.chunks = chunks_for(self.shape, self.dtype.itemsize, ranks)
        self.rows = self.chunks[0] if self.chunks else 1
        self._part = self.path.with_name(self.path.name + PART)
        self._array: Any = None

    def create(self) -> None:
        """Make an empty store. One rank does this, before any other writes."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"cannot write {self.path}: a file is there, and a Zarr store is a folder")
        with _names(self.path, "written"):
            load_zarr().create_array(
                str(self._part), shape=self.shape, chunks=self.chunks, dtype=self.dtype, overwrite=True
            )

    def write(self, box: Box, data: Any) -> None:
        """Write a box of whole chunks; boxes of different ranks must not overlap."""
        with _names(self.path, "written"):
            if self._array is None:
                self._array = load_zarr().open_array(str(self._part), mode="r+")
            self._array[box.slices((0,) * box.ndim)] = data

    def finish(self) -> None:
        """Give the store its name. One rank does this, after all have written."""
        old = self.path.with_name(self.path.name + OLD)
        with _names(self.path, "written"):
            if self.path.exists():
                shutil.rmtree(old, ignore_errors=True)
                self.path.rename(old)
            self._part.rename(self.path)
        shutil.rmtree(old, ignore_errors=True)


def _unpickles(array: Any) -> bool:
    """Tell whether reading would run what the store says: a codec of version 2 does."""
    with suppress(AttributeError):
        codecs = [*(array.metadata.filters or ()), array.metadata.compressor]
        return any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs)
    return False


@contextmanager
def _names(path: Path, what: str) -> Iterator[None]:
    """Let whatever zarr raises be an error of ours that names the store."""
    try:
        yield
    except CoexecError:
        raise
    except Exception as error:
        words = str(error).strip().splitlines()
        raise ConfigError(f"{path} cannot be {what}: {words[0] if words else type(error).__name__}") from error
