"""The same graph as CUDA C: a kernel of its own, one thread per point.

Before: compile/opencl.py, whose statements it takes.  After: a backend for CUDA, which there is none of yet.  Pure text.

The arguments are those of an OpenCL variant's long form: an array as data, start and strides (in elements), then the numbers
that the host computes, then the extents of the points and of the arrays that the text names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..program.variant import Numerics
from .graph import Buffer, Traced
from .opencl import Statements, statements
from .opencl_text import C_TYPES
from .refused import Declined, Untraceable
from .trace import trace

ENTRY = "coexec_point"
OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true")
"""What nvcc must be told so that results keep NumPy's bits where the arithmetic is the same. NVRTC takes the same."""
NAMES = {"uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long"}
"""OpenCL C's names of types that CUDA C spells out. A `long` has 64 bits in both, on Linux."""
AXES = ("x", "y", "z")


class CudaForm(NamedTuple):
    """CUDA C for a body, how close it comes to NumPy, and how it is called."""

    source: str
    entry: str
    parameters: tuple[str, ...]  # declarations, in order
    numbers: dict[str, str]  # what the host computes at each call, by parameter, as Python expressions
    numerics: Numerics
    options: tuple[str, ...] = OPTIONS


def cuda_form(
    body: Callable[..., Any], arguments: Mapping[str, Any], *, writes: Collection[str], returns: Sequence[str] = ()
) -> CudaForm | Declined:
    """Return a body as CUDA C for calls like this one, whose points are the elements of the first array that it writes."""
    try:
        traced = trace(body, arguments, writes, returns)
        found = statements(traced, name_numbers=True)
        if found.rows:
            raise Untraceable("a thread per row has no CUDA C yet")
        return _written(traced, found)
    except Untraceable as reason:
        return Declined(str(reason))


def _written(traced: Traced, found: Statements) -> CudaForm:
    buffers = {name: p for name, p in traced.parameters.items() if isinstance(p, Buffer)}
    words = set(re.findall(r"\w+", found.source))
    if any(re.fullmatch(r"lo\d|\w+_at\d", word) for word in words):
        raise Untraceable("it asks for its chunk, which has no name in CUDA C yet")
    ndim = len(buffers[found.space].shape)
    if ndim > len(AXES):
        raise Untraceable("its index space has more than three axes")
    parameters = [text for name, buffer in buffers.items() for text in _array(name, buffer, name in traced.writes)]
    parameters += [f"const long {name}" for name in traced.parameters if name in words and name not in buffers]
    parameters += [f"const {_c_type(node.dtype)} {name}" for name, node in found.numbers.items()]
    parameters += [f"const long n{axis}" for axis in range(ndim)]
    parameters += [
        f"const long {name}_n{axis}"
        for name, buffer in buffers.items()
        for axis in range(len(buffer.shape))
        if f"{name}_n{axis}" in words
    ]
    guard = " && ".join(f"i{axis} < n{axis}" for axis in range(ndim))
    text = [
        *(f"typedef {spelled} {name};" for name, spelled in NAMES.items()),
        "#define mul_hi(a, b) __umul64hi(a, b)",
        *(_access(name, len(buffer.shape)) for name, buffer in buffers.items()),
        f'extern "C" __global__ void {ENTRY}({", ".join(parameters)})',
        "{",
        *(_index(axis, ndim) for axis in range(ndim)),
        f"if (!({guard})) return;",
        found.source,
        "}",
    ]
    numbers = {name: node.host.text for name, node in found.numbers.items()}
    return CudaForm("\n".join(text) + "\n", ENTRY, tuple(parameters), numbers, found.numerics)


def _c_type(dtype: Any) -> str:
    return C_TYPES[dtype.str[1:]]


def _array(name: str, buffer: Buffer, writes: bool) -> list[str]:
    strides = [f"const long {name}_stride{axis}" for axis in range(len(buffer.shape))]
    data = f"{'' if writes else 'const '}{_c_type(buffer.dtype)} *{name}_data"
    return [data, f"const long {name}_start", *strides]


def _access(name: str, ndim: int) -> str:
    """Return the macro that reaches an element."""
    terms = [f"(long)(a{axis}) * {name}_stride{axis}" for axis in range(ndim)]
    call = f"{name}({', '.join(f'a{axis}' for axis in range(ndim))})" if ndim else name
    return f"#define {call} ({name}_data[{' + '.join([f'{name}_start', *terms])}])"


def _index(axis: int, ndim: int) -> str:
    along = AXES[ndim - 1 - axis]  # neighbours along the last axis are neighbours in a warp
    return f"const long i{axis} = (long)blockIdx.{along} * blockDim.{along} + threadIdx.{along};"
