"""How a kernel touches an array: read, write, update or reduce, each with a range mapper.

Before: program/mapper.py.  After: program/kernel.py, lower/.  Knows no array and no device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..errors import ArgumentError, unknown_name
from .mapper import Mapper, same
from .user_mappers import as_mapper

Mode = Literal["read", "write", "update", "reduce"]


class Access:
    """A declared access. Call it with a range mapper to narrow it: `cx.read(cx.halo(1))`."""

    __slots__ = ("mapper", "mode", "operator", "reads", "writes")

    def __init__(self, mode: Mode, mapper: Mapper = same, operator: Operator | None = None) -> None:
        self.mode = mode
        self.mapper = mapper
        self.operator = operator
        self.reads = mode in ("read", "update")
        self.writes = mode != "read"

    def __call__(self, mapper: Any) -> Access:
        """Return the same access through a range mapper."""
        if self.mode == "reduce":
            raise ArgumentError("a reduction has no range mapper: every chunk contributes to the whole array")
        found = as_mapper(mapper)
        if self.writes and found.pads:
            raise ArgumentError(
                f"cx.{self.mode}({found!r}): what a body sees beyond a border is a copy, so what it writes there would be lost; "
                "read the array through the halo, and write another one, or use border='clip' or 'inside'"
            )
        return Access(self.mode, found)

    def __repr__(self) -> str:
        return f"{self.mode}({self.operator.name if self.operator else self.mapper!r})"


MANY = 8  # partial results from which on one call for all of them is quicker than one for each
LITTLE = 256  # elements of a target up to which it is


class Operator:
    """An associative operation and its identity."""

    __slots__ = ("combine", "fresh", "identity", "name")

    def __init__(self, name: str, combine: Callable[..., Any], identity: Any, *, fresh: bool) -> None:
        self.name = name
        self.combine = combine  # combine(into, part, out=into)
        self.identity = identity  # a value, or a function dtype -> value
        self.fresh = fresh  # forget what the array held before

    @property
    def ready_made(self) -> bool:
        """Whether it is one of NumPy's own, so that no code of the program runs."""
        return self.name in OPERATORS and self.combine is OPERATORS[self.name][0]

    def start(self, dtype: np.dtype[Any]) -> Any:
        """Return the identity for `dtype`."""
        value = self.identity(dtype) if callable(self.identity) else self.identity
        return np.asarray(value).astype(dtype)[()]

    def fold(self, parts: Any, into: Any) -> None:
        """Combine partial results into an array one after the other, in their order; `parts` has one more axis, the first.

        Many small ones in one call of NumPy, whose accumulation keeps to the order, as a sum does not.
        """
        if self.fresh:
            into[...] = self.start(into.dtype)
        if len(parts) < MANY or into.size > LITTLE or self.combine not in (np.add, np.multiply):
            for part in parts:
                into[...] = self.combine(into, part)
            return
        ordered = np.empty((1 + len(parts), *into.shape), into.dtype)
        ordered[0], ordered[1:] = into, parts
        self.combine.accumulate(ordered, 0, into.dtype, ordered)
        into[...] = ordered[-1]


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else (False if dtype.kind == "b" else np.iinfo(dtype).min)


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else (True if dtype.kind == "b" else np.iinfo(dtype).max)


OPERATORS: dict[str, tuple[Callable[..., Any], Any]] = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, _lowest),
    "min": (np.minimum, _highest),
    "any": (np.logical_or, False),
    "all": (np.logical_and, True),
}

read = Access("read")
"""The kernel reads the box and changes nothing in it."""
write = Access("write")
"""The kernel assigns every element of the box and reads none."""
update = Access("update")
"""The kernel may read and change any element of the box."""


def reduce(operator: str | Callable[..., Any], identity: Any = None, *, fresh: bool = False) -> Access:
    """Every chunk gets a private array at identity; they are combined in index order into the array.

    The array's present value is one more input, as when plain NumPy runs `total += part`; `fresh=True` forgets it.
    `operator` is one of sum, prod, max, min, any, all, or a binary ufunc with its `identity`.
    """
    if isinstance(operator, str):
        if operator not in OPERATORS:
            raise unknown_name("reduction", operator, list(OPERATORS))
        combine, start = OPERATORS[operator]
        return Access("reduce", same, Operator(operator, combine, start, fresh=fresh))
    if identity is None:
        identity = getattr(operator, "identity", None)
    if identity is None:
        raise ArgumentError("cx.reduce takes a name (sum, prod, max, min, any, all) or a ufunc with identity=")
    return Access("reduce", same, Operator(getattr(operator, "__name__", "custom"), operator, identity, fresh=fresh))
