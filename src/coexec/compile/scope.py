"""What a body takes from outside: looked at before it is traced, and replaced where tracing needs it.

Before: compile/functions.py.  After: compile/trace.py.  Knows Python functions and their bytecode.

A body runs once more than the user thinks when it is traced. So bodies that change something, read something that may
change unseen, call what is not known to be harmless, or handle exceptions are refused here, before they run.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import types
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .bounds import lesser
from .cells import TraceTape, as_dtype
from .functions import counting, new, stack
from .host import Host
from .loops import blocks
from .refused import Untraceable
from .symbolic import FUNCTIONS, Symbolic

CHANGES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"}
HARMLESS = frozenset(
    {
        "abs",
        "all",
        "any",
        "bool",
        "divmod",
        "enumerate",
        "float",
        "int",
        "isinstance",
        "len",
        "list",
        "map",
        "max",
        "min",
        "pow",
        "range",
        "reversed",
        "round",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
        "dict",
        "set",
        "complex",
        "ValueError",
        "TypeError",
        "IndexError",
        "RuntimeError",
        "AssertionError",
        "ArithmeticError",
        "ZeroDivisionError",
        "Exception",
    }
)
"""Built-ins that look at their arguments only."""
TOLD = frozenset({"ndarray", "integer", "floating", "number", "generic", "newaxis", "iinfo", "finfo"})
"""What bodies may use of NumPy beside functions and types of elements: it tells of types only."""
CALM_TYPES = (int, float, bool, str, bytes, type(None), type(...), range)
"""Types whose values never change and run nobody's code; types derived from them may."""
SINGLE = (None, True, False, ...)
"""What a body may compare by identity: there is one of each, in a trace as in NumPy."""
RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class Outside(tuple[Any, str, Any]):
    """A name from outside: where it is found (a scope, a cell, a function), how it is called, and what it was."""

    __slots__ = ()


class Numpy:
    """NumPy as a traced body sees it: what makes new arrays makes traced ones."""

    def __init__(self, tape: TraceTape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        made = _makers(self._tape).get(name)
        if made is not None:
            return made
        value = getattr(np, name)
        if name in FUNCTIONS or name in TOLD or isinstance(value, np.ufunc) or _is_plain(value):
            return value
        raise Untraceable(f"np.{name} is not compiled")


def _makers(tape: TraceTape) -> dict[str, Any]:
    """Return the functions that make arrays of nothing, by name."""

    def maker(value: Any) -> Callable[..., Any]:
        def make(shape: Any, dtype: Any = float, order: str = "C") -> Symbolic:
            if order != "C":
                raise Untraceable(f"a new array in order {order!r}")
            return new(tape, shape, dtype, value)

        return make

    def full(shape: Any, fill_value: Any, dtype: Any = None) -> Symbolic:
        if dtype is None:
            now = fill_value.value if isinstance(fill_value, Host) else fill_value
            dtype = fill_value.dtype if isinstance(fill_value, Symbolic) else np.asarray(now).dtype
        return new(tape, shape, dtype, fill_value)

    return {
        "empty": maker(None),
        "zeros": maker(0),
        "ones": maker(1),
        "full": full,
        "dtype": as_dtype,
        "arange": lambda stop, dtype=None: counting(tape, stop, dtype),
        "stack": stack,
        "column_stack": FUNCTIONS["column_stack"],
    }


class Scope:
    """Replaces what bodies see of the outside, and remembers what that was."""

    def __init__(self, tape: TraceTape, *, vanish: bool = True) -> None:
        self._tape = tape
        self._vanish = vanish  # loops over blocks become the whole
        self._numpy = Numpy(tape)
        self._made: dict[types.FunctionType, Callable[..., Any]] = {}
        self.captured: list[Outside] = []

    @property
    def tape(self) -> TraceTape:
        """What a trace writes down."""
        return self._tape

    @property
    def numpy(self) -> Numpy:
        """NumPy as a traced body sees it."""
        return self._numpy

    def translated(self, function: types.FunctionType) -> Callable[..., Any]:
        """Return a copy of a function that runs on traced arrays; raise if running it could do harm."""
        if function in self._made:
            return self._made[function]
        code = function.__code__
        check_code(code)
        scope: dict[str, Any] = {"__builtins__": self._builtins(), "__name__": function.__module__}
        cells = tuple(types.CellType() for _ in code.co_freevars)
        copy = types.FunctionType(code, scope, function.__name__, None, cells)
        self._made[function] = copy
        self.captured.append(Outside((function, "__code__", code)))  # tools that load code anew replace it
        self._give_defaults(function, copy)
        for name in sorted({name for part in _codes(code) for name in _globals(part)}):
            if name in function.__globals__:
                value = function.__globals__[name]
                self.captured.append(Outside((function.__globals__, name, value)))
                scope[name] = self._seen(name, value)
            elif name not in HARMLESS or not hasattr(builtins, name):
                raise Untraceable(f"it uses {name}")
            else:
                self.captured.append(Outside((function.__globals__, name, None)))  # until a name of its own hides it
        for cell, theirs, name in zip(cells, function.__closure__ or (), code.co_freevars, strict=True):
            try:
                value = theirs.cell_contents
            except ValueError:
                raise Untraceable(f"it uses {name}, which has no value yet") from None
            self.captured.append(Outside((theirs, name, value)))
            cell.cell_contents = self._seen(name, value)
        return copy

    def _give_defaults(self, function: types.FunctionType, copy: types.FunctionType) -> None:
        """Give a copy the defaults of a function's parameters, which are values from outside like any other."""
        if function.__defaults__:
            self.captured.append(Outside((function, "__defaults__", function.__defaults__)))
            copy.__defaults__ = tuple(self._seen("a default", value) for value in function.__defaults__)
        if function.__kwdefaults__:
            theirs = function.__kwdefaults__
            self.captured.append(Outside((function, "__kwdefaults__", theirs)))
            self.captured += [Outside((theirs, name, value)) for name, value in theirs.items()]
            copy.__kwdefaults__ = {name: self._seen(name, value) for name, value in theirs.items()}

    def _builtins(self) -> dict[str, Any]:
        replaced = {"len": _length, "float": _Float, "int": _Int, "isinstance": _is_instance, "min": _least}
        if self._vanish:
            replaced["range"] = lambda *ends: blocks(self._tape, *ends)
        return {**vars(builtins), **replaced}

    def _seen(self, name: str, value: Any) -> Any:
        """Return what the body sees under a name."""
        if value is np:
            return self._numpy
        if value is math or _is_plain(value):
            return value
        if isinstance(value, tuple) and (fields := fields_only(value)) is not None:
            return fields
        if isinstance(value, types.ModuleType):
            raise Untraceable(f"it uses the module {value.__name__}")
        home = str(getattr(value, "__module__", "") or "").partition(".")[0]
        name_there = str(getattr(value, "__name__", ""))
        if home == "numpy" and getattr(np, name_there, None) is value:
            return getattr(self._numpy, name_there)
        if value is bool or (home == "math" and getattr(math, name_there, None) is value):
            return value
        if isinstance(value, types.FunctionType):
            return self.translated(value)
        raise Untraceable(f"it uses {name}, a {type(value).__name__} from outside")


def _is_plain(value: Any) -> bool:
    """Tell whether a value never changes, and whatever a body does with it runs nobody's code."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(map(_is_plain, value))
    if kind is slice:
        return all(map(_is_plain, (value.start, value.stop, value.step)))
    if isinstance(value, np.generic | np.dtype):
        return kind.__module__.partition(".")[0] == "numpy"
    if isinstance(value, type):
        return issubclass(value, np.generic) and value.__module__ == "numpy"
    return kind in CALM_TYPES


def fields_only(value: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a named tuple without the methods that its class may have, or None if it holds what may change."""
    if _is_plain(tuple(value)):
        names = getattr(type(value), "_fields", None)
        if type(value) is tuple:
            return value
        if isinstance(names, tuple) and len(names) == len(value):
            made: tuple[Any, ...] = namedtuple(type(value).__name__, names)(*value)  # noqa: PYI024 - names known now only
            return made
    return None


def _length(value: Any) -> Any:
    """Return the extent of the first axis, or what len() gives."""
    if isinstance(value, Symbolic) and value.shape:
        return value.shape[0]
    return len(value)


def _least(*values: Any, **options: Any) -> Any:
    """Return what min() gives; of a block's end and an array's, the block's."""
    return lesser(*values) if len(values) == 2 and not options else min(*values, **options)


def _is_instance(value: Any, kinds: Any) -> bool:
    """Tell whether the body's own value would be of a type."""
    if isinstance(kinds, types.UnionType):
        kinds = kinds.__args__
    if isinstance(kinds, tuple):
        return any(_is_instance(value, kind) for kind in kinds)
    kind = getattr(kinds, "stands_for", kinds)
    if isinstance(value, Symbolic):
        return isinstance(kind, type) and issubclass(np.ndarray, kind)
    return isinstance(value.value if isinstance(value, Host) else value, kind)


class _Meta(type):
    """Makes numbers of the host: float(n) and int(x) are computed at each call."""

    stands_for: type

    def __call__(cls, value: Any = 0, *more: Any) -> Any:
        if isinstance(value, Host) and not more:
            return Host(cls.stands_for(value.value), f"{cls.stands_for.__name__}({value.text})", value.guards)
        return cls.stands_for(value, *more)


class _Float(metaclass=_Meta):
    stands_for = float
    dtype = np.dtype(float)  # what NumPy asks a class for: `x.dtype == float`


class _Int(metaclass=_Meta):
    stands_for = int
    dtype = np.dtype(int)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals(code: types.CodeType) -> set[str]:
    return {i.argval for i in dis.get_instructions(code) if i.opname in LOADS}


def check_code(code: types.CodeType) -> None:
    """Raise if the bytecode changes something outside, handles exceptions, or asks what a trace answers in another way."""
    if code.co_flags & RUNS_LATER:
        raise Untraceable("it is a generator or a coroutine, which runs when somebody asks for its values")
    for part in _codes(code):
        before = None
        for instruction in dis.get_instructions(part):
            _check_instruction(instruction, before, code.co_freevars)
            if instruction.opname not in ("CACHE", "EXTENDED_ARG"):
                before = instruction


def _check_instruction(instruction: dis.Instruction, before: dis.Instruction | None, outside: tuple[str, ...]) -> None:
    name = instruction.opname
    if name in CHANGES or (name in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in outside):
        raise Untraceable(f"it changes {instruction.argval}, which lies outside")
    if name.startswith("IMPORT"):
        raise Untraceable("it imports a module when it runs")
    if name in ("PUSH_EXC_INFO", "SETUP_FINALLY", "BEFORE_WITH"):
        raise Untraceable("it handles exceptions or uses `with`")
    if name in ("LOAD_BUILD_CLASS", "MATCH_CLASS"):
        raise Untraceable("it defines a class, or matches by one")
    if name == "IS_OP" and not _is_single(before):
        raise Untraceable("it asks whether two objects are the same (`is`)")


def _is_single(instruction: dis.Instruction | None) -> bool:
    """Tell whether an instruction loads one of the values of which there is only one."""
    if instruction is None or instruction.opname not in ("LOAD_CONST", "LOAD_COMMON_CONSTANT"):
        return False
    return any(instruction.argval is value for value in SINGLE)
