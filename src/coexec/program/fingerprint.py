"""A short name for what a kernel computes: measurements of it hold as long as its fingerprint stays.

Before: program/variant.py.  After: predict/, runtime.  Knows code and plain values; runs nothing.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .variant import Variant

DIGITS = 16
FUNCTIONS = 64  # looked into; further ones count by name
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "RESUME"})
_SHAPE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_CONSTANTS, _NAMES = frozenset(dis.hasconst), frozenset(dis.hasname) | frozenset(dis.hasfree)
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


def fingerprint(body: Any, variant: Variant | None = None) -> str:
    """Return a hash of a kernel's (or function's) code, of the plain values it takes from outside, and of the variant.

    It is the same in every process, and when only comments, docstrings, blank lines or the file's name have changed.
    """
    function = body if inspect.isfunction(body) else getattr(body, "function", body)
    walk = _Walk()
    text = walk.body(function)
    while variant is not None:
        text += walk.of(
            (variant.name, variant.kind, variant.source, variant.entry, variant.local_size, variant.contract)
        )
        text += walk.body(variant.function) + walk.of(variant.global_size)
        variant = variant.elsewhere
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]


class _Walk:
    """Values as text. The order is that of the code, so it is the same in every process."""

    def __init__(self) -> None:
        self._met: dict[types.FunctionType, int] = {}

    def body(self, value: Any) -> str:
        """Return a kernel's body as text: a callable object also counts by its class and its plain state."""
        own = callable(value) and not isinstance(value, type) and inspect.isfunction(type(value).__call__)
        if not own or hasattr(value, "py_func"):
            return self.of(value)
        return f"{_name(type(value))}({self.of(type(value).__call__)}{self.of(_state(value))});"

    def of(self, value: Any) -> str:
        """Return `value` as text: plain values and functions by what they hold, all others by their names."""
        if value is None or value is ... or type(value) in (int, float, complex, bool, str, bytes):
            return f"{type(value).__name__}:{value!r};"
        return f"{type(value).__qualname__}({self._inside(value)});"

    def _inside(self, value: Any) -> str:
        match value:
            case types.FunctionType():
                return self._function(value)
            case types.CodeType():
                return self._code(value)
            case types.MethodType():
                return self.of(value.__func__)
            case functools.partial():
                return self.of(value.func) + self.of(value.args) + self.of(value.keywords)
            case tuple():
                return "".join(map(self.of, value))
            case frozenset():
                return "".join(sorted(_plain(entry) for entry in value))
            case Mapping():
                return "".join(sorted(f"{_plain(key)}={self.of(value[key])}" for key in sorted(value, key=_plain)))
            case np.generic():
                return f"{value.dtype.str}{value!r}"
            case np.dtype() | slice() | range() | int() | float() | complex() | str() | bytes() | enum.Enum():
                return repr(value)
        if inspect.isfunction(original := getattr(value, "py_func", None)):  # compiled by Numba
            return self.of(original)
        return _name(value)

    def _function(self, function: types.FunctionType) -> str:
        if function in self._met:
            return f"again {self._met[function]}"
        if len(self._met) >= FUNCTIONS:
            return _name(function)
        self._met[function] = len(self._met)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        outside = [f"{name}={self.of(_held(cell))}" for name, cell in cells]
        outside += [f"{name}={self._global(function, name)}" for name in _globals(function)]
        defaults = self.of(function.__defaults__) + self.of(function.__kwdefaults__)
        return self._code(function.__code__) + defaults + "".join(outside)

    def _global(self, function: types.FunctionType, name: str) -> str:
        """Return a global of `function` as text; functions of other packages count by name."""
        value = function.__globals__[name]
        if isinstance(value, types.FunctionType) and _package(value) != _package(function):
            return _name(value)
        return self.of(value)

    def _code(self, code: types.CodeType) -> str:
        """Return instructions as text, with constants for their indices: a docstring shifts those."""
        found = [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]
        number = {instruction.offset: index for index, instruction in enumerate(found)}
        lines = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _SHAPE]
        return f"{lines}{code.co_exceptiontable.hex()}" + "".join(
            f"{i.opname} {self._operand(i, number)}\n" for i in found
        )

    def _operand(self, instruction: dis.Instruction, number: dict[int, int]) -> str:
        if instruction.opcode in _CONSTANTS:
            return self.of(instruction.argval)
        if instruction.opcode in _NAMES:
            return str(instruction.argval)
        if instruction.opcode in _JUMPS:
            return str(number.get(instruction.argval, instruction.arg))
        return str(instruction.arg)


def _globals(function: types.FunctionType) -> list[str]:
    """Return the names of the globals that a function and the functions inside it read, in order."""
    names = {
        str(instruction.argval)
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return sorted(names & function.__globals__.keys())


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _Walk


def _state(value: Any) -> dict[str, Any]:
    """Return the attributes that an object itself holds."""
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name) and not name.startswith("__")}
    return {**held, **getattr(value, "__dict__", {})}


def _plain(value: Any) -> str:
    return _Walk().of(value) if not isinstance(value, types.FunctionType) else _name(value)


def _package(function: types.FunctionType) -> str:
    return str(function.__module__).partition(".")[0]


def _name(value: Any) -> str:
    """Return where `value` (or, if it has no name, its type) was defined; never its address."""
    named = value if isinstance(getattr(value, "__name__", None), str) else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', named.__name__)}"
