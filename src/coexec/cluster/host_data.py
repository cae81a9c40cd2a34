"""Whether ranks gave their arrays the same first contents: checksums go round in a ring, and each rank compares two.

Before: cluster/parts.py.  After: cluster/team.py, joined.py.  Pure.  What differs anywhere in the ring differs between two neighbours.
"""

from __future__ import annotations

import threading
from ast import literal_eval
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from .parts import as_bytes

WAITING = 4096
"""Checksums of one side that are kept until the other side's is there; a program that is further ahead is not looked at."""


def checksum(data: Any) -> int:
    """Return a checksum of an ndarray's elements, whatever its strides."""
    return crc32(as_bytes(np.ascontiguousarray(data)))


def describe_type(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the shape and type of an array as words."""
    return repr((shape, np.lib.format.dtype_to_descr(dtype))).encode()


def read_type(words: bytes) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type that words describe, which are data: nothing is executed."""
    shape, described = literal_eval(words.decode())
    return tuple([int(extent) for extent in shape]), np.lib.format.descr_to_dtype(described)


class Difference(NamedTuple):
    """An array whose contents differ."""

    rank: int  # the other one
    where: str  # the program's line


def as_note(runtime: int, number: int, found: int) -> str:
    """Return a checksum as words: of an array of a runtime, both by number."""
    return f"{runtime} {number} {found}"


class HostData:
    """The checksums of this rank and of the one before it. Asked from two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours: dict[tuple[int, int], tuple[int, str]] = {}
        self._theirs: dict[tuple[int, int], tuple[int, int]] = {}

    def given(self, runtime: int, number: int, found: int, where: str) -> Difference | None:
        """Note what this rank gave an array; return the difference, if there is one."""
        with self._lock:
            told = self._theirs.pop((runtime, number), None)
            if told is None and len(self._ours) < WAITING:
                self._ours[runtime, number] = (found, where)
        return Difference(told[0], where) if told is not None and told[1] != found else None

    def heard(self, rank: int, words: str) -> Difference | None:
        """Note what another rank gave an array; return the difference, if there is one."""
        parts = words.split()
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            return None
        runtime, number, found = map(int, parts)
        with self._lock:
            known = self._ours.pop((runtime, number), None)
            if known is None and len(self._theirs) < WAITING:
                self._theirs[runtime, number] = (rank, found)
        return Difference(rank, known[1]) if known is not None and known[0] != found else None
