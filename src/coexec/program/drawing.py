"""Bodies that draw from NumPy's or Python's own random numbers: divided, their results depend on the division.

Before: program/refusals.py.  After: program/kernel.py, ops/map.py.  Knows Python functions, nothing of arrays.
"""

from __future__ import annotations

import dis
import warnings
from collections.abc import Callable, Iterator
from inspect import isfunction
from types import CodeType, ModuleType
from typing import Any

from ..errors import CoexecWarning
from .refusals import RANDOM, is_source


def warn_if_drawing(what: str, function: Callable[..., Any], *, stacklevel: int) -> None:
    """Warn if a body that may be divided draws random numbers whose order nobody knows."""
    if isfunction(function):
        scope = {**function.__globals__, **_cells(function)}
        name = next(_drawn(function.__code__, scope), None)
        if name is not None:
            warnings.warn(
                f"{what} draws from {name}, and may be divided: its results depend on how it is, and on what runs "
                f"beside it; {RANDOM}",
                CoexecWarning,
                stacklevel=stacklevel + 1,
            )


def _cells(function: Any) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _drawn(code: CodeType, scope: dict[str, Any]) -> Iterator[str]:
    """Yield the names through which code reaches a source of random numbers."""
    value: Any = None  # what the instructions so far have on top of the stack, as far as that is plain to see
    path = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            path = str(instruction.argval)
            value = scope.get(path)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
            path = f"{path}.{instruction.argval}"
            value = getattr(value, str(instruction.argval), None)
        elif instruction.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            value = None
        if _random(value):
            yield path
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _drawn(constant, scope)


def _random(value: Any) -> bool:
    """Tell whether a function draws from a source of random numbers, or makes one."""
    maker = str(getattr(value, "__module__", "")).startswith("numpy.random") and callable(value)
    return maker or is_source(getattr(value, "__self__", None))
