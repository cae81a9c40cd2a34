"""OpenCL C for the common ufuncs: one expression each, for one point of the index space.

Before: nothing.  After: program/ufunc.py.  Pure text: knows no array and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .variant import Numerics, close, exact

C_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long", "bool": "uchar"}
"""The types that have OpenCL variants; every other runs in NumPy."""
PATTERN_OF_SCALAR = ()
"""The pattern of an operand without axes."""


WIDTHS = {"float32": 8, "float64": 4}
"""Elements of a vector: 256 bits. PoCL 3.0 miscompiles wider ones."""
CALM = 1e5
"""PoCL 3.0 gets sin and cos of small numbers wrong that share a vector with one of some millions: 0.008 for sin(1e-38)."""
GROUP = (64,)
"""Work-items of a group where each computes a vector."""


class Text(NamedTuple):
    """An expression of {0}, {1}, ..., for floats and for integers; empty where there is none."""

    floats: str
    integers: str = ""
    ulp: float = 0.0
    wraps: bool = False  # integers beyond their type come in again at its other end, which C says of unsigned ones only
    wide: bool = False  # to be called on vectors: compilers find those of + and * themselves, but not of functions
    calm: float = 0.0  # beyond this, elements of a vector get in each other's way, so that they are computed one by one


class Written(NamedTuple):
    """The source of a variant."""

    text: str
    numerics: Numerics
    width: int = 1  # points along the last axis that one work-item computes

    def global_size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the work-items for a chunk, in OpenCL's order: the last axis first, at most three axes."""
        items = -(-shape[-1] // self.width)
        return (items, *shape[-2::-1]) if len(shape) <= 3 else (items, shape[-2], prod(shape[:-2]))


def _both(expression: str, *, wraps: bool = False) -> Text:
    return Text(expression, expression, wraps=wraps)


TEXTS: dict[Any, Text] = {
    np.add: _both("{0} + {1}", wraps=True),
    np.subtract: _both("{0} - {1}", wraps=True),
    np.multiply: _both("{0} * {1}", wraps=True),
    np.divide: Text("{0} / {1}", ulp=3),
    np.square: _both("{0} * {0}", wraps=True),
    np.negative: _both("-{0}", wraps=True),
    np.positive: _both("{0}"),
    np.absolute: Text("fabs({0})", "{0} >> (8 * sizeof({0}) - 1) ? -{0} : {0}", wraps=True),
    # NumPy's rule: a NaN on either side is the answer; OpenCL's fmax would drop it.
    np.maximum: Text("(({0} > {1}) | ({0} != {0})) ? {0} : {1}", "max({0}, {1})"),
    np.minimum: Text("(({0} < {1}) | ({0} != {0})) ? {0} : {1}", "min({0}, {1})"),
    np.sqrt: Text("sqrt({0})", ulp=3, wide=True),
    np.exp: Text("exp({0})", ulp=4, wide=True),
    np.log: Text("log({0})", ulp=4, wide=True),
    np.sin: Text("sin({0})", ulp=4, wide=True, calm=CALM),
    np.cos: Text("cos({0})", ulp=4, wide=True, calm=CALM),
    np.tanh: Text("tanh({0})", ulp=6, wide=True),
    np.power: Text("pow({0}, {1})", ulp=16, wide=True),
    np.less: _both("{0} < {1}"),
    np.less_equal: _both("{0} <= {1}"),
    np.greater: _both("{0} > {1}"),
    np.greater_equal: _both("{0} >= {1}"),
    np.equal: _both("{0} == {1}"),
    np.not_equal: _both("{0} != {1}"),
    np.logical_and: _both("{0} != 0 && {1} != 0"),
    np.logical_or: _both("{0} != 0 || {1} != 0"),
    np.logical_not: _both("{0} == 0"),
    np.isnan: Text("isnan({0}) != 0"),
    np.isfinite: Text("isfinite({0}) != 0"),
}
"""The ufuncs with OpenCL variants. The ulp are OpenCL's and NumPy's bounds together."""
ONE_POWER = "({1} * 2 == 1) ? sqrt({0}) : pow({0}, {1})"  # a literal 0.5 would have a type of its own
"""NumPy's power with one exponent for all elements: a root of -inf is nan, and of -0.0 it is -0.0, which pow denies."""
LOGICAL = (np.logical_and, np.logical_or, np.logical_not)
"""What asks of each operand by itself whether it is zero, in whatever type."""
COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
"""What NumPy answers exactly for a Python integer beyond the array's type."""


class Operand(NamedTuple):
    """An operand as the text sees it: its type, and per axis whether it has just one element there."""

    dtype: Any  # a dtype, or a Python number's type
    ones: tuple[bool, ...] = PATTERN_OF_SCALAR

    @property
    def scalar(self) -> bool:
        """Whether it has no axes."""
        return not self.ones


def source(
    function: Any, operands: Sequence[Operand], out: np.dtype[Any], ndim: int, options: dict[str, Any]
) -> Written | None:
    """Return the statement that computes one point, or a vector of them, or None if only NumPy can."""
    if ndim == 0 or out.name not in C_TYPES or options.keys() - {"dtype", "casting"}:
        return None
    values = [_element(f"x{i}", operand, ndim) for i, operand in enumerate(operands)]
    if any(value is None for value in values):
        return None
    if function is np.where and operands[0].dtype is not float:
        first, second = (_converted(str(value), out.name) for value in values[1:])
        return Written(_statement(f"({values[0]}) ? {first} : {second}", ndim, out), exact)
    found = _loop(function, operands, options)
    if found is None:
        return None
    loop, text = found
    arrays = {operand.dtype.name for operand in operands if not operand.scalar} | {out.name}
    if loop == "float64" and "float64" not in arrays:
        return None  # a device without doubles would be asked to compute with them
    numerics = close(text.ulp) if text.ulp else exact
    if text.wide and loop == out.name:
        return Written(_vector_statement(text, operands, loop, ndim), numerics, WIDTHS[loop])
    expression = _expression(function, text, [str(value) for value in values], operands, loop)
    return Written(_statement(expression, ndim, out), numerics)


def _expression(function: Any, text: Text, values: Sequence[str], operands: Sequence[Operand], loop: str) -> str:
    """Return what the ufunc computes of operands, in the type that it computes in."""
    cast = _cast(function, text, values, operands, loop)
    if loop.startswith("float"):
        return text.floats.format(*cast)
    return f"({C_TYPES[loop]})({text.integers.format(*cast)})"


def _cast(function: Any, text: Text, values: Sequence[str], operands: Sequence[Operand], loop: str) -> list[str]:
    """Return the operands in the type that the ufunc computes in."""
    kind = C_TYPES[loop]
    form = f"((u{kind})({kind}){{}})" if text.wraps and "int" in loop else f"(({kind}){{}})"
    kept = [_as_it_is(function, operand, loop) for operand in operands]
    return [value if keep else form.format(value) for value, keep in zip(values, kept, strict=True)]


def _as_it_is(function: Any, operand: Operand, loop: str) -> bool:
    """Tell whether an operand is looked at in its own type."""
    return function in LOGICAL or (function in COMPARISONS and "int" in loop and operand.dtype is int)


def _converted(expression: str, dtype: str) -> str:
    """Return a value as another type, as NumPy does: whatever is not zero is true, C would cut it off first."""
    return f"(uchar)(({expression}) != 0)" if dtype == "bool" else f"({C_TYPES[dtype]})({expression})"


def _loop(function: Any, operands: Sequence[Operand], options: dict[str, Any]) -> tuple[str, Text] | None:
    """Return the type that the ufunc computes in, and its text for that type."""
    text = TEXTS.get(function)
    if text is None or (function in LOGICAL and any(operand.dtype is float for operand in operands)):
        return None  # Python's floats are passed in the arrays' type, in which they might be zero
    dtypes = tuple(np.dtype(bool) if operand.dtype is bool else operand.dtype for operand in operands)
    wanted = {"signature": (*(None,) * len(dtypes), np.dtype(options["dtype"]))} if "dtype" in options else {}
    loop = function.resolve_dtypes((*dtypes, None), casting=options.get("casting", "same_kind"), **wanted)
    inputs = {dtype.name for dtype in loop[:-1]}
    name = inputs.pop()
    if inputs or name not in C_TYPES or (name == "bool" and function not in LOGICAL):
        return None
    if function is np.power and all(operands[1].ones):
        text = text._replace(floats=ONE_POWER)
    return (name, text) if (text.floats if name.startswith("float") else text.integers) else None


def _element(name: str, operand: Operand, ndim: int, last: str = "") -> str | None:
    """Return how one operand's element is reached from the point, or None if its type has no counterpart.

    `last` is the index along the last axis, if not the point's own.
    """
    if isinstance(operand.dtype, type):
        return None if operand.dtype is complex else name
    if operand.dtype.name not in C_TYPES:
        return None
    if operand.scalar:
        return name
    first = ndim - len(operand.ones)
    index = [f"i{axis}" for axis in range(first, ndim)]
    index[-1] = last or index[-1]
    return f"{name}({', '.join('0' if one else at for at, one in zip(index, operand.ones, strict=True))})"


def _statement(expression: str, ndim: int, out: np.dtype[Any]) -> str:
    point = ", ".join(f"i{axis}" for axis in range(ndim))
    return f"out0({point}) = {_converted(expression, out.name)};"


def _vector_statement(text: Text, operands: Sequence[Operand], loop: str, ndim: int) -> str:
    """Return the statements for a vector of points along the last axis; at its end, some elements are idle."""
    width, kind, last = WIDTHS[loop], C_TYPES[loop], ndim - 1
    lines = [f"const long q = i{last} * {width}; if (q >= n{last}) return;"]
    lines.append(f"const int left = min({width}L, n{last} - q); {kind} some[{width}];")
    for i, operand in enumerate(operands):
        lines += _vector(f"x{i}", f"v{i}", operand, (width, kind), ndim)
    point = "".join(f"i{axis}, " for axis in range(last))
    result = f"{kind}{width} result = {text.floats.format(*(f'v{i}' for i in range(len(operands))))};"
    if text.calm:
        one = f"some[e] = {text.floats.format('some[e]')};"
        result = (
            f"{result} if (!all(fabs(v0) <= ({kind}){text.calm:.1f})) {{ vstore{width}(v0, 0, some); "
            f"for (int e = 0; e < {width}; e++) {one} result = vload{width}(0, some); }}"
        )
    lines += [
        result,
        f"if (left == {width} && out0_stride{last} == 1) vstore{width}(result, 0, &out0({point}q));",
        f"else {{ vstore{width}(result, 0, some); for (int e = 0; e < left; e++) out0({point}q + e) = some[e]; }}",
    ]
    return "\n".join(lines)


def _vector(name: str, vector: str, operand: Operand, form: tuple[int, str], ndim: int) -> list[str]:
    """Return the statements that load one operand's vector."""
    width, kind = form
    if operand.scalar or operand.ones[-1]:
        return [f"const {kind}{width} {vector} = ({kind}{width})(({kind}){_element(name, operand, ndim)});"]
    own = C_TYPES[operand.dtype.name]
    load = f"vload{width}(0, &{_element(name, operand, ndim, 'q')})"
    load = load if own == kind else f"convert_{kind}{width}({load})"
    element = _element(name, operand, ndim, "q + min(e, left - 1)")
    return [
        f"{kind}{width} {vector};",
        f"if (left == {width} && {name}_stride{len(operand.ones) - 1} == 1) {vector} = {load};",
        f"else {{ for (int e = 0; e < {width}; e++) some[e] = {element}; {vector} = vload{width}(0, some); }}",
    ]


def fused_source(steps: Sequence[Any], patterns: Sequence[Operand], ndim: int) -> tuple[str, Numerics] | None:
    """Return the statements of a chain (program/fuse.py's steps), and how close they come, or None if only NumPy can."""
    arrays = {operand.dtype.name for operand in patterns} | {step.dtype.name for step in steps}
    point = ", ".join(f"i{axis}" for axis in range(ndim))
    lines, ulp, output = [], 0.0, 0
    for number, step in enumerate(steps):
        found = _loop(step.function, step.operands, dict(step.options))
        if found is None or step.dtype.name not in C_TYPES or dict(step.options).keys() - {"dtype", "casting"}:
            return None
        loop, text = found
        if loop == "float64" and "float64" not in arrays:
            return None
        values = [_value(entry, operand, ndim) for entry, operand in zip(step.values, step.operands, strict=True)]
        if any(value is None for value in values):
            return None
        expression = _expression(step.function, text, [str(value) for value in values], step.operands, loop)
        lines.append(f"const {C_TYPES[step.dtype.name]} v{number} = {_converted(expression, step.dtype.name)};")
        ulp += text.ulp + 0.5  # an error made early is passed on; cancellation may enlarge it, as it does in NumPy
        if step.live:
            lines.append(f"out{output}({point}) = v{number};")
            output += 1
    return "\n".join(lines), close(ulp)


def _value(entry: tuple[str, int], operand: Operand, ndim: int) -> str | None:
    """Return how one value of a step is named."""
    kind, number = entry
    if kind == "v":
        return f"v{number}"
    return _element(f"{kind}{number}", operand, ndim)
