"""OpenCL C for the common ufuncs: one expression each, for one point of the index space.

Before: nothing.  After: program/ufunc.py.  Pure text: knows no array and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .variant import Numerics, close, exact

C_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long", "bool": "uchar"}
"""The types that have OpenCL variants; every other runs in NumPy."""
PATTERN_OF_SCALAR = ()
"""The pattern of an operand without axes."""


class Text(NamedTuple):
    """An expression of {0}, {1}, ..., for floats and for integers; empty where there is none."""

    floats: str
    integers: str = ""
    ulp: float = 0.0


def _both(expression: str) -> Text:
    return Text(expression, expression)


TEXTS: dict[Any, Text] = {
    np.add: _both("{0} + {1}"),
    np.subtract: _both("{0} - {1}"),
    np.multiply: _both("{0} * {1}"),
    np.divide: Text("{0} / {1}", ulp=3),
    np.square: _both("{0} * {0}"),
    np.negative: _both("-{0}"),
    np.positive: _both("{0}"),
    np.absolute: Text("fabs({0})", "({0} < 0 ? -{0} : {0})"),
    # NumPy's rule: a NaN on either side is the answer; OpenCL's fmax would drop it.
    np.maximum: Text("({0} > {1} || isnan({0})) ? {0} : {1}", "max({0}, {1})"),
    np.minimum: Text("({0} < {1} || isnan({0})) ? {0} : {1}", "min({0}, {1})"),
    np.sqrt: Text("sqrt({0})", ulp=3),
    np.exp: Text("exp({0})", ulp=4),
    np.log: Text("log({0})", ulp=4),
    np.sin: Text("sin({0})", ulp=4),
    np.cos: Text("cos({0})", ulp=4),
    np.tanh: Text("tanh({0})", ulp=6),
    np.power: Text("pow({0}, {1})", ulp=16),
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
ON_BOOLEANS = (np.logical_and, np.logical_or, np.logical_not)


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
) -> tuple[str, Numerics] | None:
    """Return the statement that computes one point, and how close it comes, or None if only NumPy can."""
    if ndim == 0 or out.name not in C_TYPES or options.keys() - {"dtype", "casting"}:
        return None
    values = [_element(f"x{i}", operand, ndim) for i, operand in enumerate(operands)]
    if any(value is None for value in values):
        return None
    if function is np.where:
        kept = f"({C_TYPES[out.name]})({{}})"
        chosen = f"({values[0]}) ? {kept.format(values[1])} : {kept.format(values[2])}"
        return _statement(chosen, ndim, out), exact
    found = _loop(function, operands, options)
    if found is None:
        return None
    loop, text = found
    arrays = {operand.dtype.name for operand in operands if not operand.scalar} | {out.name}
    if loop == "float64" and "float64" not in arrays:
        return None  # a device without doubles would be asked to compute with them
    cast = [f"(({C_TYPES[loop]}){value})" for value in values]
    expression = (text.floats if loop.startswith("float") else text.integers).format(*cast)
    return _statement(expression, ndim, out), close(text.ulp) if text.ulp else exact


def _loop(function: Any, operands: Sequence[Operand], options: dict[str, Any]) -> tuple[str, Text] | None:
    """Return the type that the ufunc computes in, and its text for that type."""
    text = TEXTS.get(function)
    if text is None:
        return None
    dtypes = tuple(np.dtype(bool) if operand.dtype is bool else operand.dtype for operand in operands)
    wanted = {"signature": (*(None,) * len(dtypes), np.dtype(options["dtype"]))} if "dtype" in options else {}
    loop = function.resolve_dtypes((*dtypes, None), casting=options.get("casting", "same_kind"), **wanted)
    inputs = {dtype.name for dtype in loop[:-1]}
    name = inputs.pop()
    if inputs or name not in C_TYPES or (name == "bool" and function not in ON_BOOLEANS):
        return None
    return (name, text) if (text.floats if name.startswith("float") else text.integers) else None


def _element(name: str, operand: Operand, ndim: int) -> str | None:
    """Return how one operand's element is reached from the point, or None if its type has no counterpart."""
    if isinstance(operand.dtype, type):
        return None if operand.dtype is complex else name
    if operand.dtype.name not in C_TYPES:
        return None
    if operand.scalar:
        return name
    first = ndim - len(operand.ones)
    return f"{name}({', '.join('0' if one else f'i{first + axis}' for axis, one in enumerate(operand.ones))})"


def _statement(expression: str, ndim: int, out: np.dtype[Any]) -> str:
    point = ", ".join(f"i{axis}" for axis in range(ndim))
    return f"out0({point}) = ({C_TYPES[out.name]})({expression});"
