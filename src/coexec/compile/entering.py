"""The way into a compiled body: guards, numbers of the host, addresses and scratch memory, as one Python function.

Before: compile/llvm.py.  After: compile/compiled.py.  The function is written as text, for it must cost microseconds.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from types import CellType, MappingProxyType
from typing import Any

import numpy as np

from .graph import Buffer, Traced
from .host import Host, Size, same
from .llvm_memory import Passed
from .number import number_as
from .refused import Untraceable
from .streaming import worth_streaming

ALIGNMENT = 64  # bytes: of scratch memory, a line of the cache
SLACK = 64  # bytes between pieces of scratch memory
FORMATS = {"f8": "d", "f4": "fxxxx", "b1": "?xxxxxxx", "u8": "Q"}  # other integers take eight bytes with their sign
OF_MEMORY = "memory: "
"""Begins what is wrong with where arrays lie: another form would not fit either."""
Run = Callable[[bytes], int]  # runs the machine code on its arguments, returns floating-point flags
_kept = threading.local()


def scratch(size: int) -> int:
    """Return the address of this thread's scratch memory of at least so many bytes; the next call takes it again."""
    block = getattr(_kept, "block", None)
    if block is None or len(block) < size + ALIGNMENT:
        block = _kept.block = np.empty(size + ALIGNMENT, np.uint8)
    return -(-int(block.ctypes.data) // ALIGNMENT) * ALIGNMENT


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def _quick_address(array: np.ndarray[Any, Any]) -> int:
    """Return where an array's elements begin, from NumPy's C structure: four times as quick."""
    return ctypes.c_void_p.from_address(id(array) + 16).value or 0


def _chosen_address() -> Callable[[np.ndarray[Any, Any]], int]:
    tried = [np.zeros(3), np.zeros((4, 5))[1:, 2:]]
    return _quick_address if all(_quick_address(a) == _address(a) for a in tried) else _address


address = _chosen_address()


class _Writer:
    """Collects the lines of the function, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "np": np,
            "same": same,
            "_address": address,
            "_scratch": scratch,
            "_number": number_as,
        }

    def keep(self, value: Any) -> str:
        """Return a name for an object."""
        name = f"_k{len(self.names)}"
        self.names[name] = value
        return name

    def unless(self, condition: str, reason: str) -> None:
        """Leave with the reason if a condition does not hold."""
        self.lines.append(f"if not ({condition}): return {reason!r}")


def entrance(
    traced: Traced,
    passed: Sequence[tuple[str, Passed]],
    names: list[str],
    run: Run,
    streams: Mapping[str, bool] = MappingProxyType({}),
) -> Callable[..., Any]:
    """Return the function that checks a call, makes it and returns the floating-point flags, or says why not.

    `streams` says of arrays whether the machine code is for those that go past the caches.
    """
    writer = _Writer()
    buffers = {name: p for name, p in traced.parameters.items() if isinstance(p, Buffer)}
    for name, parameter in traced.parameters.items():
        if isinstance(parameter, Buffer):
            _check_array(writer, name, parameter, writes=name in traced.writes)
        elif isinstance(parameter, Host):
            kind = writer.keep(type(parameter.value))
            writer.unless(f"type({name}) is {kind}", f"{name} is no {type(parameter.value).__name__}")
    for name in sorted(traced.guards.dense):
        writer.unless(f"{name}.flags.c_contiguous", f"{OF_MEMORY}{name} has gaps")
    _check_apart(writer, buffers, traced)
    _check_guards(writer, traced)
    _check_outside(writer, traced)
    _check_indices(writer, traced)
    for name, past in streams.items():
        worth = writer.keep(worth_streaming)
        writer.unless(f"{worth}({name}) is {past}", f"{name} is too {'small' if past else 'large'} for its stores")
    _pack(writer, passed, buffers, run)
    return _defined(writer, names)


def write_entrance(
    traced: Traced, names: Sequence[str], first: Sequence[str], numbers: Sequence[tuple[Host, np.dtype[Any]]]
) -> Callable[..., Any]:
    """Return a function that does `first`, checks the guards and returns the numbers, or says which guard does not hold."""
    writer = _Writer()
    writer.lines += first
    for name, parameter in traced.parameters.items():
        if isinstance(parameter, Host):
            kind = writer.keep(type(parameter.value))
            writer.unless(f"type({name}) is {kind}", f"{name} is no {type(parameter.value).__name__}")
    _check_guards(writer, traced)
    _check_outside(writer, traced)
    values = [_number(writer, host, dtype) for host, dtype in numbers]
    writer.lines.append(f"return ({''.join(f'{value}, ' for value in values)})")
    return _defined(writer, names)


def _defined(writer: _Writer, names: Sequence[str]) -> Callable[..., Any]:
    """Return the function of these lines."""
    body = "\n".join(f"        {line}" for line in writer.lines)
    text = (
        f"def enter({', '.join(names)}):\n    try:\n{body}\n"
        "    except (ArithmeticError, ValueError, TypeError, _Error, _Untraceable) as _reason:\n"
        "        return f'its numbers: {_reason}'\n"
    )
    space = {**writer.names, "_Error": struct.error, "_Untraceable": Untraceable}
    exec(text, space)  # noqa: S102 - text written above, of names and expressions that the tracer has checked
    found: Callable[..., Any] = space["enter"]
    return found


def _check_array(writer: _Writer, name: str, buffer: Buffer, *, writes: bool) -> None:
    ndim, size = len(buffer.shape), buffer.dtype.itemsize
    dtype, array = writer.keep(buffer.dtype), writer.keep(np.ndarray)
    writer.unless(f"type({name}) is {array} and {name}.dtype == {dtype} and {name}.ndim == {ndim}", f"type of {name}")
    if writes:
        writer.unless(f"{name}.flags.writeable", f"{OF_MEMORY}{name} is read-only")
    writer.lines.append(f"{name}__p = _address({name})")
    writer.unless(f"{name}__p % {size} == 0", f"{OF_MEMORY}{name} is not aligned")
    if not ndim:
        writer.lines.append(f"{name}__e = {name}__p + {size}")
        return
    extents = "".join(f"{name}__{axis}, " for axis in range(ndim))
    strides = "".join(f"{name}__t{axis}, " for axis in range(ndim))
    writer.lines += [f"{extents} = {name}.shape", f"{strides} = {name}.strides"]
    last = ndim - 1
    writer.unless(" and ".join(f"{name}__{axis} > 0" for axis in range(ndim)), f"{OF_MEMORY}{name} is empty")
    writer.unless(
        f"{name}__t{last} == {size} or {name}__{last} == 1", f"{OF_MEMORY}elements of {name} are not neighbours"
    )
    for axis in range(last):
        further = f"{name}__t{axis + 1} * {name}__{axis + 1}" if axis + 1 < last else f"{size} * {name}__{last}"
        inner = f"{name}__t{axis} >= {further} and {name}__t{axis} % {size} == 0"
        writer.unless(f"{name}__{axis} == 1 or ({inner})", f"{OF_MEMORY}rows of {name} overlap or lie in another order")
    ends = [f"{name}__t{axis} * ({name}__{axis} - 1)" for axis in range(last)]
    writer.lines.append(f"{name}__e = {name}__p + {' + '.join([*ends, f'{size} * {name}__{last}'])}")


def _check_apart(writer: _Writer, buffers: dict[str, Buffer], traced: Traced) -> None:
    """Leave if an array that is written shares memory with another."""
    names = list(buffers)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            if first in traced.writes or second in traced.writes:
                apart = f"{first}__e <= {second}__p or {second}__e <= {first}__p"
                writer.unless(apart, f"{OF_MEMORY}{first} and {second} share it")


def _check_guards(writer: _Writer, traced: Traced) -> None:
    writer.lines += [f"{name} = {text}" for name, text in traced.guards.named.items()]
    for text, least in traced.guards.least.items():
        writer.unless(f"{text} >= {least}", f"{text} is below {least}")
    for text, answer in traced.guards.answers.items():
        if isinstance(answer, bool) and text.startswith("bool("):
            writer.unless(text if answer else f"not {text}", f"it decides by {text}")
        elif type(answer) is int:
            writer.unless(f"{text} == {answer}", f"{text} is not {answer}")
        else:
            writer.unless(f"same({text}, {writer.keep(answer)})", f"{text} is not {answer!r}")


def _check_outside(writer: _Writer, traced: Traced) -> None:
    for outside in traced.captured:
        where, name, value = outside
        held, kept = writer.keep(where), writer.keep(value)
        if isinstance(where, dict):
            now = f"{held}.get({name!r})"
        else:
            now = f"{held}.{'cell_contents' if isinstance(where, CellType) else name}"
        writer.unless(f"{now} is {kept}", f"{name}, which it takes from outside, has changed")


def _check_indices(writer: _Writer, traced: Traced) -> None:
    """Leave if an index lies beyond what is indexed: NumPy then raises."""
    for name, extent in dict.fromkeys((name, _text(extent)) for name, extent in traced.indices):
        reason = f"{OF_MEMORY}an index in {name} lies beyond"
        writer.unless(f"-({extent}) <= int({name}.min()) and int({name}.max()) < {extent}", reason)


def _text(size: Size) -> str:
    return size.text if isinstance(size, Host) else str(size)


def _pack(writer: _Writer, passed: Sequence[tuple[str, Passed]], buffers: dict[str, Buffer], run: Run) -> None:
    """Write how the arguments are packed and the machine code is called."""
    layout, values, used = "=", [], []
    for _, (kind, of, _llvm) in passed:
        letter = "q"
        if kind == "pointer":
            values.append(f"{of}__p")
        elif kind == "stride":
            name, axis = of
            values.append(f"{name}__t{axis} // {buffers[name].dtype.itemsize}")
        elif kind == "size":
            values.append(_text(of))
        elif kind == "scalar":
            host, dtype = of
            letter = FORMATS.get(dtype.str[1:], "q")
            values.append(_number(writer, host, dtype))
        else:
            elements, dtype = of
            used.append(
                f"(({_text(elements)}) * {dtype.itemsize} + {SLACK + ALIGNMENT - 1}) // {ALIGNMENT} * {ALIGNMENT}"
            )
            values.append(f"_s{len(used) - 1}")
        layout += letter
    if used:
        writer.lines.append(f"_s0 = _scratch({' + '.join(used)})")
        writer.lines += [f"_s{n} = _s{n - 1} + {used[n - 1]}" for n in range(1, len(used))]
    pack, call = writer.keep(struct.Struct(layout).pack), writer.keep(run)
    writer.lines.append(f"return {call}({pack}({', '.join(values)}))")


def _number(writer: _Writer, host: Host, dtype: np.dtype[Any]) -> str:
    """Return a number of the host in the type that the machine code takes, of the type that was traced."""
    kind = type(host.value)
    name = f"_n{len(writer.lines)}"
    writer.lines.append(f"{name} = {host.text}")
    writer.unless(f"type({name}) is {writer.keep(kind)}", f"{host.text} is no {kind.__name__}")
    if kind is float and dtype == np.float64:
        return name
    return f"_number({name}, {writer.keep(dtype)}).item()"
