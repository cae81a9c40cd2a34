"""What a body takes from outside: plain values are copied at the call, mutable ones refused, random numbers pointed out.

Before: program/refusals.py.  After: program/kernel.py.  Knows Python functions, nothing of arrays but their type's name.
"""

from __future__ import annotations

import ast
import dis
import enum
import inspect
import textwrap
import threading
import tokenize
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any

import numpy as np

from ..errors import CoexecWarning
from .refusals import RANDOM, is_source, mutable_outside

PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None), type(...), np.float64, np.float32, np.int64})
"""Types passed by value at once, without a further look."""
_CODE = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
    np.ufunc,
    np.dtype,
    enum.Enum,
    slice,
    range,
)


def is_plain(value: Any) -> bool:
    """Tell whether `value` can be shared between threads by value."""
    if type(value) in PLAIN or isinstance(value, (np.generic, *_CODE)):
        return True
    if isinstance(value, tuple | frozenset):
        return all(is_plain(entry) for entry in value)
    return isinstance(value, int | float | complex | str | bytes)


_NOTHING = object()
parsing = (
    threading.Lock()
)  # for everybody who parses: CPython 3.11 counts the depth of all threads' parsers in one place (gh-106905)


class Captured:
    """The globals and closure cells that a function reads, and a copy of the function with fixed values."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        code = function.__code__
        loads = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        self._globals = tuple(sorted(loads))
        self._cells = code.co_freevars
        self._seen: tuple[Any, ...] | None = None
        self._fixed: Callable[..., Any] = function
        self._glimpse: list[tuple[str, Any]] | None = None  # every name as it was at the last call
        self._cells_then: list[Any] = []
        self.nothing = not self._cells and not self._names_to_watch()

    def _names_to_watch(self) -> tuple[str, ...]:
        """Return the global names that may hold data: all but modules, functions, classes and built-ins."""
        scope = self._function.__globals__
        return tuple(n for n in self._globals if n in scope and not isinstance(scope[n], _CODE))

    def fixed(self) -> Callable[..., Any]:
        """Return the function with the values that its outside names have now."""
        scope = self._function.__globals__
        cells = [cell.cell_contents for cell in self._function.__closure__ or ()]
        if self._glimpse is not None and len(cells) == len(self._cells_then):
            for name, value in self._glimpse:
                if scope.get(name, _NOTHING) is not value:
                    break
            else:
                if all(map(is_, cells, self._cells_then)):
                    return self._fixed
        self._glimpse = [(name, scope.get(name, _NOTHING)) for name in self._globals]
        self._cells_then = cells
        return self._looked_at(scope, cells)

    def _looked_at(self, scope: dict[str, Any], cells: list[Any]) -> Callable[..., Any]:
        """Return the function with these values, checked."""
        names = self._names_to_watch()
        values = (*(scope[name] for name in names), *cells)
        if self._seen is not None and len(values) == len(self._seen) and all(map(_same, values, self._seen)):
            return self._fixed
        for name, value in zip((*names, *self._cells), values, strict=True):
            if not is_plain(value) and not callable(value):
                self._glimpse = None
                raise mutable_outside(self._function.__name__, name, value)
        self._seen = values
        self._fixed = self._copy(dict(zip(names, values, strict=False)), cells)
        return self._fixed

    def _copy(self, values: dict[str, Any], cells: list[Any]) -> Callable[..., Any]:
        old = self._function
        if not values and not cells:
            return old
        scope = {**old.__globals__, **values} if values else old.__globals__
        closure = tuple(types.CellType(value) for value in cells) or None
        new = types.FunctionType(old.__code__, scope, old.__name__, old.__defaults__, closure)
        new.__kwdefaults__ = old.__kwdefaults__
        return new


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, int | str) and a == b)


def rebound_outputs(function: Callable[..., Any], outputs: Iterable[str]) -> list[tuple[str, int]]:
    """Return outputs that the body assigns a new value to instead of writing into them, with the line."""
    names = set(outputs)
    if not names:
        return []
    try:
        with parsing:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError, SystemError, tokenize.TokenError):  # no source, or no longer this one
        return []
    first = function.__code__.co_firstlineno if hasattr(function, "__code__") else 1
    assigned = [
        (target, node.value) for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets
    ]
    return [
        (target.id, first + target.lineno - 1)
        for target, value in assigned
        if isinstance(target, ast.Name) and target.id in names and not _is_view_of(value, target.id)
    ]


def _is_view_of(value: ast.expr, name: str) -> bool:
    """Tell whether an expression looks like a view of `name`: name[...], name.T, name.reshape(...)."""
    while isinstance(value, ast.Subscript | ast.Attribute | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and value.id == name


def warn_if_drawing(what: str, function: Callable[..., Any], *, stacklevel: int) -> None:
    """Warn if a body that may be divided draws random numbers whose order nobody knows."""
    if inspect.isfunction(function):
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


def _drawn(code: types.CodeType, scope: dict[str, Any]) -> Iterator[str]:
    """Yield the names through which code reaches a source of random numbers."""
    value: Any = None  # what the instructions so far have on top of the stack, as far as that is plain to see
    path = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            path = str(instruction.argval)
            value = scope.get(path)
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, types.ModuleType):
            path = f"{path}.{instruction.argval}"
            value = getattr(value, str(instruction.argval), None)
        elif instruction.opname not in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
            value = None
        if _random(value):
            yield path
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _drawn(constant, scope)


def _random(value: Any) -> bool:
    """Tell whether a function draws from a source of random numbers, or makes one."""
    maker = str(getattr(value, "__module__", "")).startswith("numpy.random") and callable(value)
    return maker or is_source(getattr(value, "__self__", None))
