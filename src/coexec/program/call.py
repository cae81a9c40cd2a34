"""What belongs to one call of a kernel: its options, and the shapes by which calls are predicted alike.

Before: nothing.  After: program/kernel.py, graph/, plan/.  Knows no device.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Key:
    """The shapes and types of one call's arrays: equal for calls that are predicted alike. Hashed once."""

    __slots__ = ("_hash", "_shapes", "work")

    def __init__(self, shapes: tuple[Any, ...]) -> None:
        self._shapes = shapes
        self._hash = hash(shapes)
        self.work: Any = None  # predict/features.py's own

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self._shapes == other._shapes)

    def __repr__(self) -> str:
        return repr(self._shapes)


class Options(NamedTuple):
    """Options of one call, set with `kernel.using(...)`."""

    devices: str | None = None  # names, comma-separated; None = all
    priority: int = 0
    split: bool = True  # False: run undivided
    policy: str = ""  # how a division is made and kept: static, dynamic, auto, even; "" = as the runtime says


DEFAULT = Options()
