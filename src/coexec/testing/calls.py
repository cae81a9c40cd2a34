"""What a test's call touches, and a body for it: from arrays and mappers to the declaration of a kernel.

Before: program/.  After: testing/graphs.py.  Knows no graph and no device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..program.access import Access, read, reduce, update, write
from ..program.array import Array

Use = Array | tuple[Array, Any]
"""An array, or an array and how it is touched: a range mapper, or what reduces into it: an operator, or `reduce(...)`."""
Uses = Use | Sequence[Use]


class Body:
    """A kernel body with any parameters, which does nothing unless it is told what to do."""

    def __init__(self, name: str, parameters: Iterable[str], function: Callable[..., Any] | None) -> None:
        self.__name__ = name
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(p, kind) for p in parameters])
        self._function = function

    def __call__(self, *arrays: Any) -> None:
        """Run the given function, if any."""
        if self._function is not None:
            self._function(*arrays)


def declare(reads: Uses, writes: Uses, updates: Uses, reduces: Uses) -> tuple[dict[str, Access], list[Array]]:
    """Return an access per parameter, and the arrays in the same order."""
    declared: dict[str, Access] = {}
    arrays = []
    for mode, uses in ((read, reads), (write, writes), (update, updates)):
        for array, mapper in _pairs(uses):
            declared[f"p{len(declared)}"] = mode if mapper is None else mode(mapper)
            arrays.append(array)
    for array, operator in _pairs(reduces):
        declared[f"p{len(declared)}"] = operator if isinstance(operator, Access) else reduce(operator or "sum")
        arrays.append(array)
    return declared, arrays


def _pairs(uses: Uses) -> list[tuple[Array, Any]]:
    if isinstance(uses, Array):
        return [(uses, None)]
    if len(uses) == 2 and isinstance(uses[0], Array) and not isinstance(uses[1], Array | tuple):
        return [(uses[0], uses[1])]
    return [(use, None) if isinstance(use, Array) else (use[0], use[1]) for use in uses]
