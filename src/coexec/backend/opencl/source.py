"""OpenCL C around what the user wrote.

Before: program/variant.py.  After: program.py.  Pure text: knows no device, buffer or compiler.

**Short form.** The source is the statement for one point of the chunk:

    y(i) += a * x(i);

- `i0, i1, ...` are the point's indices, from 0 inside the chunk; `i`, `j`, `k` are the first three.
- An array is used like a function of its own indices: `u(i + 1, j)`. Views, steps and order of axes are taken care of.
- Scalars go by their names, 0-d arrays too (and may be assigned to if the kernel writes them).
- `n0, n1, ...` are the chunk's extents, `lo0, lo1, ...` where it begins in the whole index space, and `x_n0, x_n1, ...`
  the extents of array x. `x_at0, x_at1, ...` are where the chunk begins inside what array x was given, as
  `chunk.at("x")` says: with a halo the centre is `x(i + x_at0)`. `return` ends the point.
- Literals such as `0.5` are float unless a float64 array takes part, as in NumPy.

**Long form.** The source holds one or more complete kernels, `__kernel void NAME(...)`. The arguments come in the order
of the Python parameters: an array as `__global T *x_data, const long x_start, const long x_stride0, ...` (all counted in
elements), a scalar by value, and at the end the chunk's extents `const long n0, const long n1, ...`. `x(i, j)` works
here too, `x()` for a 0-d array. `id0, id1, ...` are the global ids by axis: get_global_id(0) runs along the last axis,
where memory is contiguous. Literals are what C says. The global size is the chunk, or what the variant says; it is
rounded up to whole work-groups if the variant names a local size: compare the ids with n0, n1, ... then. A source that
names extents (`x_n0`) or the chunk's place (`lo0, lo1, ...`) declares them last: `const long x_n0` for each one named,
in the order of the parameters, then all of `const long lo0, const long lo1, ...`, then `const long x_at0` likewise.

Contraction (fused multiply-add) is off in both, so that results keep NumPy's bits where the arithmetic is the same,
unless the variant asks for it (`contract`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...errors import BackendError

C_TYPES = {
    "bool": "uchar",
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}
"""How each dtype is called in OpenCL C. What is not here has no counterpart."""

ENTRY = "coexec_point"
LETTERS = ("i", "j", "k")
KERNEL = re.compile(r"\b(?:__)?kernel\s+(?:__attribute__\s*\(\(.*?\)\)\s*)*void\s+(\w+)\s*\(", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class SourceArgument(NamedTuple):
    """What the compiler must know of one parameter."""

    name: str
    dtype: str  # numpy's name
    ndim: int | None = None  # None: a scalar by value
    writes: bool = False
    unit: bool = False  # neighbours along the last axis are neighbours in memory

    @property
    def c_type(self) -> str:
        """Its type in OpenCL C."""
        return C_TYPES[self.dtype]


class WrittenSource(NamedTuple):
    """A complete program."""

    text: str
    entry: str
    options: tuple[str, ...]
    extents: tuple[tuple[str, int], ...]  # (array, axis) whose extents follow the chunk's as arguments
    origin: bool  # the chunk's lower corner follows them
    places: tuple[tuple[str, int], ...] = ()  # (array, axis) whose place of the chunk inside them comes last


def scalar(name: str, value: Any, *, single: bool) -> tuple[str, Any]:
    """Return a scalar argument's dtype and value: int is long in C, bool is int, float is float if `single`."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic) and value.dtype.kind in "iuf" and value.dtype.name in C_TYPES:
        return value.dtype.name, value
    if isinstance(value, (bool, np.bool_)):
        return "int32", int(value)
    if isinstance(value, float):
        return ("float32" if single else "float64"), value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise BackendError(f"{name}={value} does not fit into OpenCL's 64-bit integers")
        return "int64", value
    kind = value.dtype if isinstance(value, np.generic) else type(value).__name__
    raise BackendError(
        f"parameter {name!r} is {kind}, which OpenCL C cannot take; pass a number or give the device none"
    )


def singles(dtypes: Sequence[str], *, fp64: bool) -> bool:
    """Tell whether a Python float among arrays of these dtypes is a C float: as in NumPy, unless one is wider."""
    floats = [dtype for dtype in dtypes if dtype.startswith("float")]
    return not fp64 or (bool(floats) and "float64" not in floats)


@cache
def is_long(source: str) -> bool:
    """Tell whether the source brings its own kernels."""
    return KERNEL.search(COMMENT.sub(" ", source)) is not None


def write(
    source: str,
    entry: str | None,
    arguments: Sequence[SourceArgument],
    ndim: int,
    *,
    checked: bool,
    contract: bool = False,
) -> WrittenSource:
    """Return the program for a chunk of `ndim` axes.

    `checked` adds the comparison of indices with extents; `contract` allows fused multiply-add.
    """
    if is_long(source):
        written = _write_long(source, entry, arguments, ndim)
    else:
        written = _write_short(source, arguments, ndim, checked=checked)
    return written._replace(text=f"#pragma OPENCL FP_CONTRACT {'ON' if contract else 'OFF'}\n{written.text}")


def _write_long(source: str, entry: str | None, arguments: Sequence[SourceArgument], ndim: int) -> WrittenSource:
    names = KERNEL.findall(COMMENT.sub(" ", source))
    if entry is not None and entry not in names:
        raise BackendError(f"the OpenCL source has no kernel {entry!r} (it has: {', '.join(names)})")
    # Only what is used: kernels that reach their elements themselves are then compiled once for all layouts.
    used = [a for a in arguments if a.ndim is not None and re.search(rf"\b{a.name}\s*\(", source)]
    ids = [f"#define id{axis} ((long)get_global_id({ndim - 1 - axis}))" for axis in range(ndim) if ndim <= 3]
    text = [
        *_header(arguments),
        *(_access(a, "{}()") for a in used),
        *ids,
        "#line 1",
        source,
    ]
    return WrittenSource("\n".join(text) + "\n", entry or names[0], (), *_wanted(source, arguments, ndim))


def _write_short(source: str, arguments: Sequence[SourceArgument], ndim: int, *, checked: bool) -> WrittenSource:
    _refuse_clashes(arguments, ndim)
    extents, origin, places = _wanted(source, arguments, ndim)
    parameters = signature(arguments, ndim, extents, places, origin=origin)
    taken = {argument.name for argument in arguments}
    aliases = [f"const long {letter} = i{axis};" for axis, letter in enumerate(LETTERS[:ndim]) if letter not in taken]
    guard = " && ".join(f"i{axis} < n{axis}" for axis in range(ndim))
    text = [
        *_header(arguments),
        *(_access(a, "{}") for a in arguments if a.ndim is not None),
        f"__kernel void {ENTRY}({', '.join(parameters)})",
        "{",
        *_indices(ndim),
        *([f"if (!({guard})) return;"] if checked and guard else []),
        *aliases,
        "{",
        "#line 1",
        source.rstrip(),
        ";}",
        "}",
    ]
    single = "float64" not in {argument.dtype for argument in arguments}
    options = ("-cl-single-precision-constant",) if single else ()
    return WrittenSource("\n".join(text) + "\n", ENTRY, options, extents, origin, places)


Named = tuple[tuple[str, int], ...]


def _wanted(source: str, arguments: Sequence[SourceArgument], ndim: int) -> tuple[Named, bool, Named]:
    """Return the extents of arrays that the source names, whether it names the chunk's place, and its places in arrays."""
    words = set(re.findall(r"\w+", COMMENT.sub(" ", source)))
    axes = [(a.name, axis) for a in arguments for axis in range(a.ndim or 0)]
    extents = tuple((name, axis) for name, axis in axes if f"{name}_n{axis}" in words)
    places = tuple((name, axis) for name, axis in axes if axis < ndim and f"{name}_at{axis}" in words)
    return extents, any(f"lo{axis}" in words for axis in range(ndim)), places


def signature(
    arguments: Sequence[SourceArgument],
    ndim: int,
    extents: Sequence[tuple[str, int]] = (),
    places: Sequence[tuple[str, int]] = (),
    *,
    origin: bool = False,
) -> list[str]:
    """Return the parameters that a kernel is called with, in order."""
    found = []
    for a in arguments:
        if a.ndim is None:
            found.append(f"const {a.c_type} {a.name}")
        else:
            found.append(f"{'' if a.writes else 'const '}__global {a.c_type} *{a.name}_data")
            found.append(f"const long {a.name}_start")
            found += [f"const long {a.name}_stride{axis}" for axis in range(a.ndim)]
    found += [f"const long n{axis}" for axis in range(ndim)]
    found += [f"const long {name}_n{axis}" for name, axis in extents]
    found += [f"const long lo{axis}" for axis in range(ndim) if origin]
    return found + [f"const long {name}_at{axis}" for name, axis in places]


def _header(arguments: Sequence[SourceArgument]) -> list[str]:
    dtypes = {argument.dtype for argument in arguments}
    wants = [("float64", "cl_khr_fp64"), ("float16", "cl_khr_fp16")]
    return [f"#pragma OPENCL EXTENSION {extension} : enable" for dtype, extension in wants if dtype in dtypes]


def _access(argument: SourceArgument, zero_d: str) -> str:
    """Return the macro that reaches an element; `zero_d` is how a 0-d array is spelled."""
    name, ndim = argument.name, argument.ndim or 0
    terms = [f"(long)(a{axis}) * {name}_stride{axis}" for axis in range(ndim)]
    if argument.unit and ndim:
        terms[-1] = f"(long)(a{ndim - 1})"
    call = f"{name}({', '.join(f'a{axis}' for axis in range(ndim))})" if ndim else zero_d.format(name)
    return f"#define {call} ({name}_data[{' + '.join([f'{name}_start', *terms])}])"


def _indices(ndim: int) -> list[str]:
    """Return the statements that find `i0, i1, ...`: the last two axes have ids of their own, the rest share one."""
    if ndim <= 3:
        return [f"const long i{axis} = get_global_id({ndim - 1 - axis});" for axis in range(ndim)]
    lines = [f"const long i{ndim - 1} = get_global_id(0);", f"const long i{ndim - 2} = get_global_id(1);"]
    lines.append("long coexec_rest = get_global_id(2);")
    for axis in range(ndim - 3, 0, -1):
        lines += [f"const long i{axis} = coexec_rest % n{axis};", f"coexec_rest /= n{axis};"]
    return [*lines, "const long i0 = coexec_rest;"]


def _refuse_clashes(arguments: Sequence[SourceArgument], ndim: int) -> None:
    reserved = {f"{prefix}{axis}" for prefix in ("i", "n", "lo") for axis in range(ndim)}
    for argument in arguments:
        if argument.name in reserved:
            raise BackendError(
                f"parameter {argument.name!r} has the name of an index or extent in OpenCL's short form; rename it, or "
                "write the source in the long form with a __kernel of its own"
            )
