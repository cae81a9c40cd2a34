"""Elements in LLVM's language: types, constants, conversions, and the functions that need no call.

Before: compile/graph.py.  After: compile/llvm.py.  Pure text: each function returns the right side of an assignment.

Everything here has NumPy's bits: no contraction, no reordering, comparisons that stay quiet about NaN as NumPy's do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

BOOL = np.dtype(bool)
ORDER = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
ARITHMETIC = {"add": "add", "subtract": "sub", "multiply": "mul"}
BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
INTRINSICS = {
    "absolute": "fabs",
    "fabs": "fabs",
    "sqrt": "sqrt",
    "copysign": "copysign",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
}
TO_INTEGER = "llvm.experimental.constrained.fptosi"
COMPARE = "llvm.experimental.constrained.fcmp"

Put = Callable[[str], str]  # adds an instruction, returns the name of its result


def scalar_type(dtype: np.dtype[Any], *, memory: bool = False) -> str:
    """Return the type of one element; booleans are bits in registers and bytes in memory."""
    if dtype.kind == "f":
        return "double" if dtype.itemsize == 8 else "float"
    if dtype.kind == "b":
        return "i8" if memory else "i1"
    return f"i{8 * dtype.itemsize}"


def type_text(dtype: np.dtype[Any], lanes: int, *, memory: bool = False) -> str:
    """Return the type of an element, or of a vector of several."""
    one = scalar_type(dtype, memory=memory)
    return one if lanes == 1 else f"<{lanes} x {one}>"


def suffix(dtype: np.dtype[Any], lanes: int) -> str:
    """Return how an intrinsic names a type."""
    one = f"f{8 * dtype.itemsize}" if dtype.kind == "f" else scalar_type(dtype)
    return one if lanes == 1 else f"v{lanes}{one}"


def constant_text(value: Any, dtype: np.dtype[Any]) -> str:
    """Return one number."""
    if dtype.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if dtype.kind == "b":
        return "true" if value else "false"
    signed = int(value)
    return str(signed - (1 << 64) if signed >= 1 << 63 else signed)


def splat_text(value: Any, dtype: np.dtype[Any], lanes: int) -> str:
    """Return one number in every lane."""
    one = f"{scalar_type(dtype)} {constant_text(value, dtype)}"
    return constant_text(value, dtype) if lanes == 1 else f"<{', '.join([one] * lanes)}>"


def conversion(
    put: Put, text: str, source: np.dtype[Any], target: np.dtype[Any], lanes: int, declared: dict[str, str]
) -> str:
    """Return a value in another type."""
    before, after = type_text(source, lanes), type_text(target, lanes)
    if target.kind == "b":
        zero = splat_text(0, source, lanes)
        return put(f"fcmp une {before} {text}, {zero}" if source.kind == "f" else f"icmp ne {before} {text}, {zero}")
    if before == after:
        return text
    unsigned = source.kind in "bu"
    if source.kind == "f" and target.kind != "f":
        # As the processor does it also beyond the type's ends, where LLVM's own conversion has no meaning.
        name = f"@{TO_INTEGER}.{suffix(target, lanes)}.{suffix(source, lanes)}"
        declared[name] = f"declare {after} {name}({before}, metadata)"
        return put(f'call {after} {name}({before} {text}, metadata !"fpexcept.maytrap")')
    if source.kind == "f":
        word = "fpext" if target.itemsize > source.itemsize else "fptrunc"
    elif target.kind == "f":
        word = "uitofp" if unsigned else "sitofp"
    elif source.kind == "b" or target.itemsize > source.itemsize:
        word = "zext" if unsigned else "sext"
    else:
        word = "trunc"
    return put(f"{word} {before} {text} to {after}")


class Inline:
    """The functions that are written as instructions. `declared` collects the intrinsics that they use."""

    def __init__(self, *, contract: bool = False) -> None:
        self.declared: dict[str, str] = {}
        self._contract = " contract" if contract else ""  # a product and a sum may be rounded once instead of twice

    def known(self, function: str, dtypes: Sequence[np.dtype[Any]]) -> bool:
        """Tell whether a function of these input types is written here."""
        kinds = {dtype.kind for dtype in dtypes[1 if function == "where" else 0 :]}
        same = len(set(dtypes[1 if function == "where" else 0 :])) == 1
        if not same:
            return False
        kind = kinds.pop()
        if function in ("where", "logical_and", "logical_or", "logical_not", "logical_xor", "positive"):
            return True
        if function in ORDER:
            return True
        if kind == "f":
            return function in ARITHMETIC or function in INTRINSICS or function in _FLOATS
        if kind == "b":
            return function in BITWISE or function == "invert"
        return function in ARITHMETIC or function in BITWISE or function in ("negative", "square", "invert", *_EXTREMES)

    def write(self, put: Put, function: str, args: list[str], dtype: np.dtype[Any], lanes: int) -> str:
        """Return a function of values; `dtype` is the type of its last input."""
        kind = type_text(dtype, lanes)
        if function == "where":
            either = [self._in_all_lanes(put, arg, dtype, lanes) for arg in args[1:]]
            return put(f"select {type_text(BOOL, lanes)} {args[0]}, {kind} {either[0]}, {kind} {either[1]}")
        if function == "positive":
            return args[0]
        if function in ORDER:
            return self.compare(put, ORDER[function], args, dtype, lanes)
        if function.startswith("logical_"):
            return self._logical(put, function, args, dtype, lanes)
        if dtype.kind == "f":
            return self._of_floats(put, function, args, dtype, lanes)
        if function in ARITHMETIC or function in BITWISE:
            return put(f"{ARITHMETIC.get(function) or BITWISE[function]} {kind} {args[0]}, {args[1]}")
        if function == "square":
            return put(f"mul {kind} {args[0]}, {args[0]}")
        if function == "negative":
            return put(f"sub {kind} {splat_text(0, dtype, lanes)}, {args[0]}")
        if function == "invert":
            ones = splat_text(1, dtype, lanes) if dtype.kind == "b" else splat_text(-1, np.dtype(np.int64), 1)
            ones = ones if dtype.kind == "b" or lanes == 1 else f"<{', '.join([f'{scalar_type(dtype)} -1'] * lanes)}>"
            return put(f"xor {kind} {args[0]}, {ones}")
        chosen = self.compare(put, "gt" if function == "maximum" else "lt", args, dtype, lanes)
        return put(f"select {type_text(BOOL, lanes)} {chosen}, {kind} {args[0]}, {kind} {args[1]}")

    def _in_all_lanes(self, put: Put, text: str, dtype: np.dtype[Any], lanes: int) -> str:
        """Return a value that is computed in all lanes, chosen or not, as NumPy does: a division that is not chosen raises its flag.

        Without it, processors with masks compute the chosen lanes alone.
        """
        if dtype.kind != "f":
            return text
        kind, name = type_text(dtype, lanes), f"@llvm.arithmetic.fence.{suffix(dtype, lanes)}"
        self.declared[name] = f"declare {kind} {name}({kind})"
        return put(f"call {kind} {name}({kind} {text})")

    def compare(self, put: Put, order: str, args: list[str], dtype: np.dtype[Any], lanes: int) -> str:
        """Return a comparison that raises no flag for NaN, as NumPy's."""
        kind, bits = type_text(dtype, lanes), type_text(BOOL, lanes)
        if dtype.kind != "f":
            sign = "" if order in ("eq", "ne") else "u" if dtype.kind in "bu" else "s"
            return put(f"icmp {sign}{order} {kind} {args[0]}, {args[1]}")
        if order in ("eq", "ne", "uno"):  # these are quiet by themselves
            word = {"eq": "oeq", "ne": "une", "uno": "uno"}[order]
            return put(f"fcmp {word} {kind} {args[0]}, {args[1]}")
        name = f"@{COMPARE}.{suffix(dtype, lanes)}"
        self.declared[name] = f"declare {bits} {name}({kind}, {kind}, metadata, metadata)"
        return put(
            f'call {bits} {name}({kind} {args[0]}, {kind} {args[1]}, metadata !"o{order}", metadata !"fpexcept.maytrap")'
        )

    def _logical(self, put: Put, function: str, args: list[str], dtype: np.dtype[Any], lanes: int) -> str:
        bits = type_text(BOOL, lanes)
        truths = [arg if dtype.kind == "b" else conversion(put, arg, dtype, BOOL, lanes, self.declared) for arg in args]
        if function == "logical_not":
            return put(f"xor {bits} {truths[0]}, {splat_text(1, BOOL, lanes)}")
        return put(f"{function.removeprefix('logical_')} {bits} {truths[0]}, {truths[1]}")

    def _of_floats(self, put: Put, function: str, args: list[str], dtype: np.dtype[Any], lanes: int) -> str:
        kind = type_text(dtype, lanes)
        if function in ARITHMETIC:
            return put(f"f{ARITHMETIC[function]}{self._contract} {kind} {args[0]}, {args[1]}")
        if function == "divide":
            return put(f"fdiv {kind} {args[0]}, {args[1]}")
        if function == "square":
            return put(f"fmul{self._contract} {kind} {args[0]}, {args[0]}")
        if function == "reciprocal":
            return put(f"fdiv {kind} {splat_text(1, dtype, lanes)}, {args[0]}")
        if function == "negative":
            return put(f"fneg {kind} {args[0]}")
        if function == "isnan":
            return put(f"fcmp uno {kind} {args[0]}, {args[0]}")
        if function in _EXTREMES:
            return self._extreme(put, function, args, dtype, lanes)
        name = f"@llvm.{INTRINSICS[function]}.{suffix(dtype, lanes)}"
        self.declared[name] = f"declare {kind} {name}({', '.join([kind] * len(args))})"
        return put(f"call {kind} {name}({', '.join(f'{kind} {arg}' for arg in args)})")

    def _extreme(self, put: Put, function: str, args: list[str], dtype: np.dtype[Any], lanes: int) -> str:
        """Return the larger or smaller one; a NaN on either side is the answer, and of equal ones the second."""
        kind, bits = type_text(dtype, lanes), type_text(BOOL, lanes)
        better = self.compare(put, "gt" if function == "maximum" else "lt", args, dtype, lanes)
        unset = self.compare(put, "uno", [args[0], args[0]], dtype, lanes)
        either = put(f"or {bits} {better}, {unset}")
        return put(f"select {bits} {either}, {kind} {args[0]}, {kind} {args[1]}")


_EXTREMES = ("maximum", "minimum")
_FLOATS = ("divide", "square", "reciprocal", "negative", "isnan", *_EXTREMES)
