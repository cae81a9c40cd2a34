"""What a checkpoint holds, as data: arrays, their pieces, where these lie and which checksums they have. JSON, checked.

Before: geometry/, errors.py.  After: saving/checkpoint.py.  Reads and writes no array.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import CheckpointError
from ..geometry import Box, Point, Region, overlaps, whole

FORMAT, VERSION = "coexec checkpoint", 1
BLOCK = 1 << 20
"""Bytes under one checksum: reading a part of a large piece checks little more than that part."""


class Saved(NamedTuple):
    """One piece of an array: a box, dense and in C order, in a file."""

    file: str
    offset: int
    box: Box
    sums: tuple[int, ...]  # CRC-32 of each block

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        sums = " ".join(f"{number:08x}" for number in self.sums)
        return {"file": self.file, "offset": self.offset, "lo": self.box.lo, "hi": self.box.hi, "crc32": sums}


class SavedArray(NamedTuple):
    """One array: its pieces cover it, and none of them twice."""

    shape: Point
    dtype: np.dtype[Any]
    pieces: tuple[Saved, ...]


class Manifest(NamedTuple):
    """A whole checkpoint."""

    number: int
    ranks: int
    arrays: Mapping[str, SavedArray]
    values: Mapping[str, Any]


def checksums(data: memoryview) -> tuple[int, ...]:
    """Return the checksum of each block."""
    return tuple(zlib.crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))


def check_cover(name: str, shape: Point, boxes: Sequence[Box]) -> None:
    """Raise CheckpointError unless boxes cover an array, each element once."""
    extent = whole(shape)
    full = [box for box in boxes if not box.empty]
    for box in full:
        if box.ndim != len(shape) or any(a < 0 or b > n for a, b, n in zip(box.lo, box.hi, shape, strict=True)):
            raise CheckpointError(f"the piece {box} does not lie in {name!r} of shape {shape}")
    total = sum(box.volume for box in full)
    if total != extent.volume or sum(box.volume for box in Region(tuple(full)).boxes) != total:
        twice = next(((a, b) for i, a in enumerate(full) for b in full[:i] if overlaps(a, b)), None)
        what = (
            f"the pieces {twice[0]} and {twice[1]} overlap"
            if twice
            else f"{extent.volume - total:,} elements are missing"
        )
        raise CheckpointError(f"{name!r} of shape {shape} is not saved once and whole: {what}")


def dump(manifest: Manifest) -> str:
    """Return a manifest as text, with its own checksum."""
    from numpy.lib import format

    body = {
        "format": FORMAT,
        "version": VERSION,
        "number": manifest.number,
        "ranks": manifest.ranks,
        "arrays": {
            name: {
                "shape": array.shape,
                "dtype": format.dtype_to_descr(array.dtype),
                "pieces": [piece.as_json() for piece in array.pieces],
            }
            for name, array in manifest.arrays.items()
        },
        "values": dict(manifest.values),
    }
    text = json.dumps(body, indent=1)
    return json.dumps({"crc32": f"{zlib.crc32(text.encode()):08x}", "manifest": text})


def load(text: str, where: str) -> Manifest:
    """Return a manifest from its text, checked. Raise CheckpointError, naming `where`, for anything else."""
    try:
        outer = json.loads(text)
        inner = outer["manifest"]
        if zlib.crc32(inner.encode()) != int(outer["crc32"], 16):
            raise CheckpointError(f"{where} is damaged: its checksum is not that of its contents")
        body = json.loads(inner)
        if body["format"] != FORMAT:
            raise CheckpointError(f"{where} is no checkpoint of coexec")
        if body["version"] != VERSION:
            raise CheckpointError(f"{where} has version {body['version']}, and this coexec reads version {VERSION}")
        arrays = {str(name): _array(name, entry) for name, entry in body["arrays"].items()}
        return Manifest(int(body["number"]), int(body["ranks"]), arrays, body["values"])
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{where} cannot be read as a checkpoint of coexec ({error!r})") from error


def _array(name: str, entry: Mapping[str, Any]) -> SavedArray:
    from numpy.lib import format

    dtype = format.descr_to_dtype(_described(entry["dtype"]))
    if dtype.hasobject:
        raise CheckpointError(f"{name!r} has Python objects, which coexec never loads")
    shape = tuple(int(n) for n in entry["shape"])
    pieces = tuple(piece_from_json(piece) for piece in entry["pieces"])
    check_cover(name, shape, [piece.box for piece in pieces])
    for piece in pieces:
        if len(piece.sums) != -(-prod(piece.box.shape) * dtype.itemsize // BLOCK) or piece.offset < 0:
            raise CheckpointError(f"the piece {piece.box} of {name!r} has not one checksum for each block")
    return SavedArray(shape, dtype, pieces)


def piece_from_json(entry: Mapping[str, Any]) -> Saved:
    """Return a piece from plain data."""
    file = str(entry["file"])
    if "/" in file or file.startswith("."):
        raise CheckpointError(f"the file {file!r} does not lie in its checkpoint")
    box = Box(tuple(int(n) for n in entry["lo"]), tuple(int(n) for n in entry["hi"]))
    return Saved(file, int(entry["offset"]), box, tuple(int(number, 16) for number in entry["crc32"].split()))


def _described(given: Any) -> Any:
    """Return a description of a type as NumPy wants it: JSON has no tuples."""
    if not isinstance(given, list):
        return given
    return [
        (tuple(name) if isinstance(name, list) else name, _described(type), *[tuple(shape) for shape in more])
        for name, type, *more in given
    ]
