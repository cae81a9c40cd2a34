"""Checkpoints: a consistent state of arrays in a folder, written by each rank in part, read on any number of ranks.

Before: saving/manifest.py, runs.py, files.py.  After: whoever saves a program's arrays.  Knows no rank but by its number,
and no transport: whoever has several ranks calls the steps in their order, with a barrier between.

A checkpoint is a folder with a number for a name. Ranks write into `<number>.part`; it gets its name when it is complete,
so whatever is killed in the middle leaves the one before as it was.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, ShapeError, unknown_name
from ..files import write_text
from ..geometry import Box, Point, overlap, whole
from .manifest import BLOCK, Manifest, Saved, SavedArray, check_cover, checksums, dump, load, piece_from_json
from .runs import as_bytes, read_at, run_axis, runs, write_at

MANIFEST = "manifest.json"
PART = ".part"
KEEP = 2
"""Checkpoints that stay: the last one, and the one before it."""
Pieces = Iterable[tuple[str, Box, Any]]
"""Boxes of named arrays, with their contents as ndarrays of any strides."""


def numbers(folder: str | os.PathLike[str]) -> list[int]:
    """Return the numbers of the complete checkpoints in a folder, oldest first."""
    try:
        names = [entry.name for entry in Path(folder).iterdir() if (entry / MANIFEST).is_file()]
    except OSError:
        return []
    return sorted(int(name) for name in names if re.fullmatch(r"\d+", name))


def begin(folder: str | os.PathLike[str]) -> int:
    """Make room for the next checkpoint and return its number. One rank does this, before any rank writes."""
    place = Path(folder)
    number = (numbers(place) or [0])[-1] + 1
    try:
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(f"*{PART}"):
            if re.fullmatch(rf"\d+\{PART}", left.name):  # of a program that was killed
                shutil.rmtree(left)
        (place / f"{number:06d}{PART}").mkdir()
    except OSError as error:
        raise _cannot(place, error) from error
    return number


class PieceFile:
    """The file into which one rank writes its pieces, one behind the other."""

    def __init__(self, folder: str | os.PathLike[str], number: int, rank: int) -> None:
        """Make the file of a rank in a checkpoint that was begun."""
        self._place = Path(folder) / f"{number:06d}{PART}"
        self._name, self._offset = f"rank-{rank}.bin", 0
        self._found: list[dict[str, Any]] = []
        try:
            self._file = os.open(self._place / self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:
            raise _cannot(self._place, error) from error

    def add(self, array: str, box: Box, data: Any) -> None:
        """Write a box of a named array: an ndarray of any strides."""
        if data.shape != box.shape:
            raise ShapeError(f"{array!r}: contents of shape {data.shape} were given for the box {box}")
        if data.dtype.hasobject:
            raise CheckpointError(f"{array!r} has Python objects, which no checkpoint can hold")
        packed = as_bytes(np.ascontiguousarray(data))
        try:
            write_at(self._file, self._offset, packed)
        except OSError as error:
            raise _cannot(self._place, error) from error
        self._found.append({"array": array, **Saved(self._name, self._offset, box, checksums(packed)).as_json()})
        self._offset += len(packed)

    def finish(self) -> list[dict[str, Any]]:
        """Have everything on the disk; return what `commit` must know, as plain data."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise _cannot(self._place, error) from error
        return self._found

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def write(folder: str | os.PathLike[str], number: int, rank: int, pieces: Pieces) -> list[dict[str, Any]]:
    """Write the pieces of one rank, onto the disk; return what `commit` must know of them, as plain data."""
    file = PieceFile(folder, number, rank)
    try:
        for array, box, data in pieces:
            file.add(array, box, data)
        return file.finish()
    finally:
        file.close()


def commit(
    folder: str | os.PathLike[str],
    number: int,
    arrays: Mapping[str, tuple[Point, Any]],
    written: Sequence[Sequence[Mapping[str, Any]]],
    values: Mapping[str, Any] | None = None,
    *,
    keep: int = KEEP,
) -> None:
    """Make a checkpoint complete: `written` is what `write` returned on each rank. One rank does this, after all wrote.

    `arrays` are shapes and types by name, `values` any JSON. All but the last `keep` checkpoints are removed then.
    """
    place = Path(folder)
    by_name: dict[str, list[Saved]] = {name: [] for name in arrays}
    for entries in written:
        for entry in entries:
            if entry["array"] not in by_name:
                raise unknown_name("array in a checkpoint", str(entry["array"]), list(arrays))
            by_name[entry["array"]].append(piece_from_json(entry))
    saved = {}
    for name, (shape, dtype) in arrays.items():
        check_cover(name, tuple(shape), [piece.box for piece in by_name[name]])
        saved[name] = SavedArray(tuple(shape), np.dtype(dtype), tuple(by_name[name]))
    part = place / f"{number:06d}{PART}"
    write_text(part / MANIFEST, dump(Manifest(number, len(written), saved, values or {})), "the manifest")
    try:
        part.rename(place / f"{number:06d}")
        _settle(place)
        for old in numbers(place)[: -max(1, keep)]:
            shutil.rmtree(place / f"{old:06d}")
    except OSError as error:
        raise _cannot(place, error) from error


class Checkpoint:
    """A complete checkpoint. Arrays are read from it box by box; what is read is compared with its checksums."""

    def __init__(self, folder: str | os.PathLike[str], number: int | None = None) -> None:
        """Open a checkpoint of a folder: the last one, or one by number. Raise CheckpointError if there is none."""
        there = numbers(folder)
        if not there:
            raise CheckpointError(f"there is no checkpoint in {os.fspath(folder)!r}")
        if number is not None and number not in there:
            raise CheckpointError(f"there is no checkpoint {number} in {os.fspath(folder)!r} (there: {there})")
        self._older = [other for other in there if other < (number or there[-1])]
        self.path = Path(folder) / f"{number or there[-1]:06d}"
        try:
            self.manifest = load((self.path / MANIFEST).read_text(encoding="utf-8"), str(self.path / MANIFEST))
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self.path / MANIFEST} cannot be read: {error}{self._hint()}") from error

    @property
    def values(self) -> Mapping[str, Any]:
        """What was saved beside the arrays."""
        return self.manifest.values

    def read(self, name: str, box: Box | None = None, into: Any = None) -> Any:
        """Return a box of an array, or all of it, read into `into` if that is given."""
        if name not in self.manifest.arrays:
            raise unknown_name("array in the checkpoint", name, list(self.manifest.arrays))
        array = self.manifest.arrays[name]
        box = whole(array.shape) if box is None else box
        if box.ndim != len(array.shape) or any(a < 0 or b > n for a, b, n in zip(*box, array.shape, strict=True)):
            raise ShapeError(f"the box {box} does not lie in {name!r} of shape {array.shape}")
        if into is None:
            into = np.empty(box.shape, array.dtype)
        elif into.shape != box.shape or into.dtype != array.dtype:
            raise ShapeError(
                f"{name!r}: a box of {box.shape}, {array.dtype} cannot be read into {into.shape}, {into.dtype}"
            )
        for piece in array.pieces:
            part = overlap(piece.box, box)
            if part is not None:
                self._read(name, piece, part, into[(*part.slices(box.lo), ...)])
        return into

    def _read(self, name: str, piece: Saved, part: Box, into: Any) -> None:
        """Read a part of a piece, some blocks at a time."""
        inside = part.translate(tuple(-n for n in piece.box.lo))
        shape, size = piece.box.shape, into.dtype.itemsize
        axis = run_axis(inside, shape)
        length = prod(inside.shape[axis:]) * size
        try:
            file = os.open(self.path / piece.file, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(f"{self.path / piece.file} cannot be read: {error.strerror}{self._hint()}") from error
        try:
            blocks = PieceBlocks(self, file, name, piece, prod(shape) * size)
            for start, outer in runs(inside, shape):
                found = np.ndarray(inside.shape[axis:], into.dtype, blocks.read(start * size, length))
                into[(*outer, ...)] = found
        finally:
            os.close(file)

    def damaged(self, name: str, piece: Saved, what: str) -> CheckpointError:
        """Return the error for a piece that is not as it was written."""
        return CheckpointError(f"{self.path / piece.file} is damaged: {what}, in {piece.box} of {name!r}{self._hint()}")

    def _hint(self) -> str:
        return f"; the one before it is number {self._older[-1]}" if self._older else ""


class PieceBlocks:
    """The blocks of one piece, each compared with its checksum when it is read. The last one is kept."""

    def __init__(self, checkpoint: Checkpoint, file: int, name: str, piece: Saved, nbytes: int) -> None:
        self._checkpoint, self._file, self._name, self._piece, self._nbytes = checkpoint, file, name, piece, nbytes
        self._last: tuple[int, bytearray] | None = None

    def read(self, start: int, length: int) -> bytearray:
        """Return bytes of the piece."""
        found = bytearray(length)
        done = 0
        while done < length:
            number, within = divmod(start + done, BLOCK)
            block = self._block(number)
            some = min(length - done, len(block) - within)
            found[done : done + some] = memoryview(block)[within : within + some]
            done += some
        return found

    def _block(self, number: int) -> bytearray:
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        block = bytearray(min(BLOCK, self._nbytes - number * BLOCK))
        try:
            read_at(self._file, self._piece.offset + number * BLOCK, memoryview(block))
        except (EOFError, OSError) as error:
            raise self._checkpoint.damaged(self._name, self._piece, str(error)) from error
        if checksums(memoryview(block)) != self._piece.sums[number : number + 1]:
            raise self._checkpoint.damaged(self._name, self._piece, "a checksum is not that of the contents")
        self._last = (number, block)
        return block


def _settle(folder: Path) -> None:
    """Have the new name on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot(place: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot write a checkpoint in {place}: {error.strerror}; free some space, or name another place"
    )
