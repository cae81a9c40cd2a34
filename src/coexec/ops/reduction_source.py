"""OpenCL C for reductions: one point computes one partial result, with vectors along the last axis where it is dense.

Before: compile/zeros.py.  After: ops/reductions.py.  Pure text: knows no array and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compile.refused import Untraceable
from ..compile.zeros import lanes_of_extreme, zero_text

C_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long"}
WIDTHS = {"float": 8, "int": 8, "double": 4, "long": 4}
"""Elements of a vector: 256 bits. PoCL 3.0 miscompiles wider ones."""
VECTORS = 4
"""Independent accumulators: an addition takes four cycles, and one may start in each."""
RUN = 2048
"""Elements that are added up before they join the total: rounding errors grow with this, not with the length."""


class ReductionStep(NamedTuple):
    """One step of a reduction: `a` joined with `b`, for vectors and alike for scalars, and where it starts."""

    floats: str
    integers: str
    start: dict[str, str]


def _starts(floats: str, integers: str | None = None) -> dict[str, str]:
    whole = floats if integers is None else integers
    return {"float": floats, "double": floats, "int": whole, "long": whole}


# NumPy's rule: a NaN anywhere is the answer, and of equal ones the later. A comparison of vectors is 0 or -1 in each element, as `select` wants it.
TEXTS: dict[Any, ReductionStep] = {
    np.add: ReductionStep("({a} + {b})", "({a} + {b})", _starts("0")),
    np.multiply: ReductionStep("({a} * {b})", "({a} * {b})", _starts("1")),
    np.maximum: ReductionStep(
        "PICK({b}, {a}, ({a} > {b}) | ({a} != {a}))",
        "max({a}, {b})",
        {"float": "-INFINITY", "double": "-INFINITY", "int": "INT_MIN", "long": "LONG_MIN"},
    ),
    np.minimum: ReductionStep(
        "PICK({b}, {a}, ({a} < {b}) | ({a} != {a}))",
        "min({a}, {b})",
        {"float": "INFINITY", "double": "INFINITY", "int": "INT_MAX", "long": "LONG_MAX"},
    ),
}


def source(
    ufunc: Any, taken: np.dtype[Any], made: np.dtype[Any], ndim: int, reduced: Sequence[int], blocked: int | None
) -> str | None:
    """Return the statements for one point, or None if only NumPy can.

    `x` has `ndim` axes, of which `reduced` go away. The points are those of `out`: the kept axes in order, and before
    them, if `blocked` names an axis, the block of `rows` elements along it.
    """
    text = TEXTS.get(ufunc)
    if text is None or not {taken.name, made.name} <= C_TYPES.keys():
        return None
    width = WIDTHS[C_TYPES[made.name]]
    kept = [axis for axis in range(ndim) if axis not in reduced]
    shift = 0 if blocked is None else 1
    index = {axis: f"i{shift + position}" for position, axis in enumerate(kept)}
    index |= {axis: f"q{axis}" for axis in reduced}
    point = ", ".join(f"i{axis}" for axis in range(shift + len(kept)))
    outer = [_loop(axis, blocked) for axis in reduced if axis != ndim - 1]
    last = _along_last(index, ndim, blocked, width) if ndim - 1 in reduced else _one(index, ndim)
    lines = _definitions(text, C_TYPES[taken.name], C_TYPES[made.name], width)
    loops = ["T total = START;", *outer, "{", last, "}"]
    if ndim - 1 in reduced:
        loops = [f"V wide[{VECTORS}];", _each("wide[v] = (V)(START);"), *loops]
        loops.append(
            _each(f"for (int e = 0; e < {width}; e++) {{ T one = ((T *)&wide[v])[e]; total = STEP(total, one); }}")
        )
    if ufunc in (np.maximum, np.minimum) and made.kind == "f" and list(reduced) == [ndim - 1]:
        try:
            loops.append(_settled(ufunc, made, index, ndim, blocked))
        except Untraceable:
            return None
    return "\n".join([*lines, *loops, f"out({point}) = total;"])


def _settled(ufunc: np.ufunc, made: np.dtype[Any], index: dict[int, str], ndim: int, blocked: int | None) -> str:
    """Return what gives the extreme of a row NumPy's sign where it is zero."""
    first, end = _bounds(ndim - 1, blocked)
    element = f"x({', '.join(index[axis] for axis in range(ndim - 1))}{', ' if ndim > 1 else ''}first + q)"
    texts = zero_text(lanes_of_extreme(ufunc.__name__, made.str), "zero", "q", "count", "value", "total")
    loop = f"for (long q = 0; q < count; q++) {{ const T value = {element}; {' '.join(texts)} }}"
    return f"if (total == 0) {{ const long first = {first}, count = {end} - first; long zero_best = -1; {loop} }}"


def _each(statement: str) -> str:
    return f"for (int v = 0; v < {VECTORS}; v++) {statement}"


def _definitions(text: ReductionStep, taken: str, made: str, width: int) -> list[str]:
    floating = made in ("float", "double")
    step = (text.floats if floating else text.integers).format(a="a", b="b")
    load = f"vload{width}(0, p)"
    vector = step.replace("PICK(", "select(")
    return [
        f"#define T {made}",
        f"#define V {made}{width}",
        f"#define START ((T){text.start[made]})",
        "#define PICK(a, b, c) ((c) ? (b) : (a))",
        f"#define STEP(a, b) {step}",
        f"#define WIDE(a, b) {vector}",
        f"#define LOAD(p) {load if taken == made else f'convert_{made}{width}({load})'}",
    ]


def _bounds(axis: int, blocked: int | None) -> tuple[str, str]:
    if axis != blocked:
        return "0", f"x_n{axis}"
    return "(i0 * rows)", f"min((long)(i0 * rows + rows), x_n{axis})"


def _loop(axis: int, blocked: int | None) -> str:
    first, last = _bounds(axis, blocked)
    return f"for (long q{axis} = {first}, end{axis} = {last}; q{axis} < end{axis}; q{axis}++)"


def _one(index: dict[int, str], ndim: int) -> str:
    element = f"x({', '.join(index[axis] for axis in range(ndim))})"
    return f"T value = {element}; total = STEP(total, value);"


def _along_last(index: dict[int, str], ndim: int, blocked: int | None, width: int) -> str:
    """Return the loop along the last axis: by vectors in runs where it is dense, by elements otherwise."""
    last = ndim - 1
    first, end = _bounds(last, blocked)
    before = "".join(f"{index[axis]}, " for axis in range(last))
    return f"""
    const long begin = {first}, end = {end};
    long q = begin;
    if (x_stride{last} == 1) {{
        while (end - q >= {width * VECTORS}) {{
            const long stop = min(end, q + {RUN});
            V run[{VECTORS}];
            for (int v = 0; v < {VECTORS}; v++) run[v] = (V)(START);
            for (; stop - q >= {width * VECTORS}; q += {width * VECTORS}) {{
                #pragma unroll
                for (int v = 0; v < {VECTORS}; v++) {{
                    const V some = LOAD(&x({before}q + v * {width}));
                    run[v] = WIDE(run[v], some);
                }}
            }}
            for (int v = 0; v < {VECTORS}; v++) wide[v] = WIDE(wide[v], run[v]);
        }}
    }}
    T few = START;
    for (; q < end; q++) {{ T value = x({before}q); few = STEP(few, value); }}
    total = STEP(total, few);"""
