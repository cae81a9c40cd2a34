"""What OpenCL C calls things: types, functions, numbers of the host, and texts of several lines.

Before: compile/walk.py.  After: compile/opencl_points.py, compile/cuda.py.  Pure text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .refused import Untraceable
from .walk import Nest

C_TYPES = {"f8": "double", "f4": "float", "b1": "uchar"}
C_TYPES |= {
    f"{kind}{size}": name
    for size, word in ((1, "char"), (2, "short"), (4, "int"), (8, "long"))
    for kind, name in (("i", word), ("u", f"u{word}"))
}
CALM = 1e5
"""PoCL 3.0 gets sin and cos of small numbers wrong that share a vector with one of some millions: 0.008 for sin(1e-38)."""


class Text(NamedTuple):
    """An expression of {0}, {1}, ..., for floats and for integers; empty where there is none."""

    floats: str
    integers: str = ""
    ulp: float = 0.0
    wraps: bool = False  # integers beyond their type come in again at its other end, which C says of unsigned ones only
    wide: bool = False  # to be called on vectors: compilers find those of + and * themselves, but not of functions
    narrow: bool = (
        False  # four doubles at once at most: PoCL 3.0 gets it wrong for eight (2.0 to the power 1e8 is 0 there)
    )
    calm: float = 0.0  # beyond this, elements of a vector get in each other's way, so that they are computed one by one


def _both(expression: str, *, wraps: bool = False) -> Text:
    return Text(expression, expression, wraps=wraps)


TEXTS: dict[Any, Text] = {
    np.add: _both("{0} + {1}", wraps=True),
    np.subtract: _both("{0} - {1}", wraps=True),
    np.multiply: _both("{0} * {1}", wraps=True),
    np.divide: Text("{0} / {1}", ulp=3),
    np.reciprocal: Text("1 / {0}", ulp=3),
    np.square: _both("{0} * {0}", wraps=True),
    np.negative: _both("-{0}", wraps=True),
    np.positive: _both("{0}"),
    np.absolute: Text("fabs({0})", "{0} >> (8 * sizeof({0}) - 1) ? -{0} : {0}", wraps=True),
    np.fabs: Text("fabs({0})"),
    # NumPy's rule: a NaN on either side is the answer; OpenCL's fmax would drop it.
    np.maximum: Text("(({0} > {1}) | ({0} != {0})) ? {0} : {1}", "max({0}, {1})"),
    np.minimum: Text("(({0} < {1}) | ({0} != {0})) ? {0} : {1}", "min({0}, {1})"),
    np.floor: Text("floor({0})"),
    np.ceil: Text("ceil({0})"),
    np.trunc: Text("trunc({0})"),
    np.rint: Text("rint({0})"),
    np.copysign: Text("copysign({0}, {1})"),
    np.sqrt: Text("sqrt({0})", ulp=3, wide=True),
    np.exp: Text("exp({0})", ulp=4, wide=True),
    np.log: Text("log({0})", ulp=5, wide=True),
    np.sin: Text("sin({0})", ulp=4, wide=True, calm=CALM),
    np.cos: Text("cos({0})", ulp=4, wide=True, calm=CALM),
    np.tanh: Text("tanh({0})", ulp=6, wide=True),
    np.exp2: Text("exp2({0})", ulp=5, wide=True),
    np.expm1: Text("expm1({0})", ulp=5, wide=True),
    np.log2: Text("log2({0})", ulp=5, wide=True),
    np.log10: Text("log10({0})", ulp=5, wide=True),
    np.log1p: Text("log1p({0})", ulp=5, wide=True),
    np.sinh: Text("sinh({0})", ulp=6, wide=True),
    np.cosh: Text("cosh({0})", ulp=6, wide=True),
    np.arctan: Text("atan({0})", ulp=7, wide=True),
    np.arcsin: Text("asin({0})", ulp=6, wide=True),
    np.arccos: Text("acos({0})", ulp=6, wide=True),
    np.arcsinh: Text("asinh({0})", ulp=6, wide=True),
    np.arctanh: Text("atanh({0})", ulp=7, wide=True),
    np.cbrt: Text("cbrt({0})", ulp=4, wide=True),
    np.arctan2: Text("atan2({0}, {1})", ulp=8, wide=True),
    np.hypot: Text("hypot({0}, {1})", ulp=6, wide=True),
    np.tan: Text("tan({0})", ulp=7, wide=True, calm=CALM),
    np.power: Text("pow({0}, {1})", ulp=16, wide=True, narrow=True),
    np.less: _both("{0} < {1}"),
    np.less_equal: _both("{0} <= {1}"),
    np.greater: _both("{0} > {1}"),
    np.greater_equal: _both("{0} >= {1}"),
    np.equal: _both("{0} == {1}"),
    np.not_equal: _both("{0} != {1}"),
    np.logical_and: _both("({0} != 0) && ({1} != 0)"),
    np.logical_or: _both("({0} != 0) || ({1} != 0)"),
    np.logical_not: _both("{0} == 0"),
    np.bitwise_and: Text("", "{0} & {1}"),
    np.bitwise_or: Text("", "{0} | {1}"),
    np.bitwise_xor: Text("", "{0} ^ {1}"),
    np.isnan: Text("isnan({0}) != 0"),
    np.isfinite: Text("isfinite({0}) != 0"),
}
"""The ufuncs with OpenCL C. The ulp are OpenCL's and NumPy's bounds together."""
ONE_POWER = "({1} * 2 == 1) ? sqrt({0}) : pow({0}, {1})"  # a literal 0.5 would have a type of its own
"""NumPy's power with one exponent for all elements: a root of -inf is nan, and of -0.0 it is -0.0, which pow denies."""
LOGICAL = frozenset({"logical_and", "logical_or", "logical_not"})
"""What asks of each operand by itself whether it is zero, in whatever type."""
COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal"})
"""What NumPy answers exactly for a Python integer beyond the array's type."""
PHILOX = (
    "double {name}; {{",
    "  ulong a = ({number} >> 2) + 1, b = 0, c = 0, d = 0, k = {low}, l = {high};",
    "  for (int r = 0; r < 10; r++) {{",
    "    const ulong p = 0xD2E7470EE14C6C93UL * a, q = 0xCA5A826395121157UL * c;",
    "    const ulong e = mul_hi(0xCA5A826395121157UL, c) ^ b ^ k, f = mul_hi(0xD2E7470EE14C6C93UL, a) ^ d ^ l;",
    "    a = e; b = q; c = f; d = p; k += 0x9E3779B97F4A7C15UL; l += 0xBB67AE8584CAA73BUL;",
    "  }}",
    "  const ulong w = ({number} & 2) ? (({number} & 1) ? d : c) : (({number} & 1) ? b : a);",
    "  {name} = (double)(w >> 11) * 0x1p-53;",
    "}}",
)
"""NumPy's Philox4x64-10: number i is the word i % 4 of count i / 4 + 1, of which 53 bits make a double."""
JOINED = (
    "(({own}_r[0] + {own}_r[1]) + ({own}_r[2] + {own}_r[3])) + (({own}_r[4] + {own}_r[5]) + ({own}_r[6] + {own}_r[7]))"
)
ADDED = (
    "(({own}_v.s0 + {own}_v.s1) + ({own}_v.s2 + {own}_v.s3)) + (({own}_v.s4 + {own}_v.s5) + ({own}_v.s6 + {own}_v.s7))"
)
HALVES = (
    "const long {own}_at = {own}_low[{own}_top], {own}_n = {own}_count[{own}_top];",
    "if ({own}_n > 128) {{",
    "  const long cut = {own}_n / 2 - {own}_n / 2 % 8;",
    "  const int state = {own}_state[{own}_top]++;",
    "  if (state == 2) {{ {own} = {own}_left[{own}_top--] + {own}; continue; }}",
    "  if (state == 1) {own}_left[{own}_top] = {own};",
    "  {own}_low[{own}_top + 1] = {own}_at + (state ? cut : 0);",
    "  {own}_count[{own}_top + 1] = state ? {own}_n - cut : cut;",
    "  {own}_state[++{own}_top] = 0; continue;",
    "}}",
    "{kind} {own}_r[8]; {own} = 0;",
)
"""A stack of halves: each is cut further, then its first half is added up, then its second, then both are added."""
EIGHT = (
    "const long {own}_i = {var} - {own}_at, {own}_whole = {own}_n - {own}_n % 8;",
    "if ({own}_whole == 0) {own} += {value};",
    "else if ({own}_i < 8) {own}_r[{own}_i] = {value};",
    "else if ({own}_i < {own}_whole) {own}_r[{own}_i % 8] += {value};",
    "else {{ if ({own}_i == {own}_whole) {own} = " + JOINED + "; {own} += {value}; }}",
)
"""What becomes of an element of at most 128: one of eight sums, which are added up before the last few."""
EIGHTS = (
    "if ({own}_n < 8) for (int e = 0; e < {left}; e++) {own} += {value}_some[e];",
    "else if ({at} == {own}_at) {own}_v = {value};",
    "else if ({left} == 8) {own}_v += {value};",
    "else {{ {own} = " + ADDED + "; for (int e = 0; e < {left}; e++) {own} += {value}_some[e]; }}",
)
"""The same for eight elements at once, the last of which may be idle."""


def extent_text(text: str) -> str:
    """Return a number of the host that is an extent or a place, as OpenCL's short form names it."""
    name, _, axis = text.rpartition("__")
    if axis.isdecimal():
        return f"{name}_n{axis}"
    tree = ast.parse(text, mode="eval").body
    match tree:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return f"({extent_text(ast.unparse(left))} * {extent_text(ast.unparse(right))})"
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id="chunk"), attr=attr), slice=ast.Constant(value=int(k))
        ):
            known = {"lo": f"lo{k}", "hi": f"(lo{k} + n{k})", "shape": f"n{k}"}.get(attr)
            if known is not None:
                return known
        case ast.Attribute(
            value=ast.Subscript(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="chunk"), attr="at"), args=[ast.Constant(value=str(of))]
                ),
                slice=ast.Constant(value=int(k)),
            ),
            attr="start" | "stop" as end,
        ):
            return f"{of}_at{k}" if end == "start" else f"({of}_at{k} + n{k})"
        case ast.Name(id=name):
            return name
        case _:
            pass
    raise Untraceable(f"the size {text} has no name in OpenCL C")


_SIGNS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def arithmetic_text(text: str) -> str:
    """Return arithmetic of Python's floats as C's, which is the same in double precision."""

    def written(node: ast.expr) -> str:
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
                return f"({written(left)} {_SIGNS[type(op)]} {written(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{written(operand)})"
            case ast.Name(id=name):
                return f"(double){name}"
            case ast.Constant(value=int() | float() as value):
                return f"{float(value).hex()}"
            case ast.Call(func=ast.Attribute(attr="fromhex"), args=[ast.Constant(value=str(value))]):
                return value
        raise Untraceable(f"the number {text} is computed on the host")

    return written(ast.parse(text, mode="eval").body)


def lines_text(lines: Sequence[Any], depth: int) -> Iterator[str]:
    """Yield the lines of a text with nests of loops, indented by two blanks for each nest."""
    for line in lines:
        if isinstance(line, Nest):
            low, high = line.bounds
            step = f"{line.var}++" if line.step == 1 else f"{line.var} += {line.step}"
            loop = f"for (long {line.var} = {low}; {line.var} < {high}; {step})" if line.var else low
            yield f"{'  ' * depth}{loop} {{"
            yield from lines_text(line.lines, depth + 1)
            yield f"{'  ' * depth}}}"
        else:
            yield f"{'  ' * depth}{line}"
