"""What belongs to one call of a kernel: its options, and the shapes by which calls are predicted alike.

Before: errors.py.  After: program/kernel.py, graph/, plan/.  Knows no device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ArgumentError


class Key:
    """The shapes and types of one call's arrays: equal for calls that are predicted alike. Hashed once."""

    __slots__ = ("_hash", "_shapes", "kept", "varies", "work")

    def __init__(self, shapes: tuple[Any, ...]) -> None:
        self._shapes = shapes
        self._hash = hash(shapes)
        self.work: Any = None  # predict/features.py's own
        self.kept: dict[Any, Any] | None = None  # graph/mapped.py's own
        self.varies = False  # range mappers may say something else next time

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
    oversubscribe: int = 1  # pieces that each device's part is cut into, so that copies overlap computation


DEFAULT = Options()


def check_oversubscribe(kernel: Any, count: Any) -> None:
    """Raise, with the reason, unless the parts of `kernel` may be cut again into `count` pieces."""
    why = "" if kernel.split else "it has no split=, so it is one piece"
    why = "its blocks are fixed, so that its bits do not depend on who computes them" if kernel.reduces else why
    why = "host tasks run whole" if kernel.host else why
    if type(count) is not int or count < 1:
        why = "it takes a whole number from 1"
    if why:
        raise ArgumentError(f"kernel {kernel.name!r} cannot have oversubscribe={count!r}: {why}")
