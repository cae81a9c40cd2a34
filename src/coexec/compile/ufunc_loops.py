"""NumPy's own inner loops: the C functions behind ufuncs, found through NumPy's public C structure and tried first.

Before: nothing.  After: compile/llvm.py.  Reads addresses; whoever calls them must keep to the strides given here.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .refused import Untraceable

# Byte offsets in PyUFuncObject of NumPy's C interface on 64-bit machines; unchanged since NumPy 1.0.
_NARGS, _FUNCTIONS, _DATA, _COUNT, _TYPES = 24, 32, 40, 48, 64
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e30, -1e30, 1e-40, np.inf, -np.inf, np.nan)
_TRIED = 1003  # elements of the comparison: more than any vector, and not a multiple of one


class InnerLoop(NamedTuple):
    """A C function `void (char **args, intptr *count, intptr *strides, void *data)`."""

    function: int  # addresses
    data: int
    in_place: bool = True  # whether results are the same when they replace the first operand of their type


@cache
def inner_loop(name: str, dtypes: tuple[str, ...]) -> InnerLoop:
    """Return the inner loop of a ufunc for these types (inputs, then the output), compared with the ufunc."""
    function = getattr(np, name)
    found = _find(function, tuple(np.dtype(dtype) for dtype in dtypes))
    with np.errstate(all="ignore"):
        in_place = _compare(function, found, tuple(np.dtype(dtype) for dtype in dtypes))
    return found._replace(in_place=in_place)


def _find(function: np.ufunc, dtypes: tuple[np.dtype[Any], ...]) -> InnerLoop:
    base = id(function)
    nargs = ctypes.c_int.from_address(base + _NARGS).value
    count = ctypes.c_int.from_address(base + _COUNT).value
    if nargs != function.nargs or count != function.ntypes:
        raise Untraceable(f"NumPy keeps np.{function.__name__} in another form than known")
    functions, data, types = (ctypes.c_void_p.from_address(base + o).value or 0 for o in (_FUNCTIONS, _DATA, _TYPES))
    wanted = bytes(dtype.num for dtype in dtypes)
    for number in range(count):
        if ctypes.string_at(types + number * nargs, nargs) == wanted:
            address = ctypes.c_void_p.from_address(functions + 8 * number).value
            if address:
                return InnerLoop(address, ctypes.c_void_p.from_address(data + 8 * number).value or 0)
    raise Untraceable(f"np.{function.__name__} has no inner loop for {', '.join(map(str, dtypes))}")


def _compare(function: np.ufunc, found: InnerLoop, dtypes: tuple[np.dtype[Any], ...]) -> bool:
    """Raise unless the loop gives what the ufunc gives; tell whether it also does so in place."""
    rng = np.random.default_rng(0)
    inputs = [_values(dtype, rng, number) for number, dtype in enumerate(dtypes[:-1])]
    try:
        wanted = function(*inputs, dtype=dtypes[-1]) if _same_output(function, dtypes) else function(*inputs)
    except ValueError as error:
        raise Untraceable(f"np.{function.__name__} raises for some values: {error}") from None
    got = np.zeros(_TRIED, dtypes[-1])
    call(found, [*inputs, got])
    if wanted.dtype != got.dtype or not np.array_equal(wanted, got, equal_nan=wanted.dtype.kind == "f"):
        raise Untraceable(f"NumPy's inner loop of np.{function.__name__} does not do what the ufunc does")
    for number, given in enumerate(inputs):
        if given.dtype == got.dtype:
            moved = [given.copy() if n == number else other for n, other in enumerate(inputs)]
            call(found, [*moved, moved[number]])
            if not np.array_equal(wanted, moved[number], equal_nan=wanted.dtype.kind == "f"):
                return False
    return True


def _same_output(function: np.ufunc, dtypes: tuple[np.dtype[Any], ...]) -> bool:
    return function.resolve_dtypes((*dtypes[:-1], None))[-1] != dtypes[-1]


def _values(dtype: np.dtype[Any], rng: np.random.Generator, shift: int) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return rng.integers(0, 2, _TRIED).astype(bool)
    if dtype.kind in "iu":
        few = rng.integers(0, 9, _TRIED).astype(dtype)
        few[::3] = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, len(few[::3]), dtype=dtype, endpoint=True)
        return np.abs(few) if shift else few  # integer powers refuse negative exponents
    values = (rng.normal(size=_TRIED) * 10.0 ** rng.integers(-6, 7, _TRIED)).astype(dtype)
    special = np.roll(np.array(_SPECIAL, dtype), shift * 5)
    values[: len(special)] = special
    return values


_Loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def call(loop: InnerLoop, arrays: list[np.ndarray[Any, Any]]) -> None:
    """Run an inner loop over vectors of one length, without the ufunc around it."""
    pointers = np.array([array.ctypes.data for array in arrays], np.intp)
    count = np.array([len(arrays[0])], np.intp)
    strides = np.array([array.strides[0] for array in arrays], np.intp)
    _Loop(loop.function)(pointers.ctypes.data, count.ctypes.data, strides.ctypes.data, loop.data)
