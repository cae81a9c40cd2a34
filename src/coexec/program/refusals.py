"""What NumPy's arrays let one do and coexec's do not, and what kernels cannot take: each is refused with a way that works.

Before: errors.py.  After: program/array.py, program/kernel.py.  Knows NumPy's names; nothing of views or tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dis import opname
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from ..errors import ArgumentError, UnsupportedError

ALWAYS_COPIED = "a coexec array is always copied to NumPy; use np.asarray(array) without copy=False"
IN_PLACE_METHODS = frozenset({"byteswap", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"})
"""Methods of np.ndarray that change it: np.asarray(array), which is read-only, would be no way out."""
IN_PLACE_FUNCTIONS = frozenset({"at", "fill_diagonal", "place", "put", "put_along_axis", "putmask"})
"""NumPy functions that change their first argument."""
BY_VALUE = (
    "an index of type {} selects by value; coexec views take integers, slices, None and '...'. To read, use "
    "np.asarray(array)[index], a copy; to write, array[mask] = value, np.add(array, 1, out=array, where=mask), or a kernel"
)


IMMUTABLE = (
    "a value such as a[i] never changes, as a number in NumPy; to write the element, use a[i] = ..., or pass its view "
    "a[i, ...]"
)
RANDOM = (
    "inside a body, let it take `chunk` and use chunk.rng(seed), whose numbers do not depend on how the call is divided; "
    "outside, cx.random makes arrays of random numbers"
)


def fixed(name: str, instead: str) -> Callable[[Any, Any], NoReturn]:
    """Return what refuses to set an attribute: pending tasks know an array by its handle, so handles never change."""

    def refuse(_array: Any, _value: Any) -> NoReturn:
        raise AttributeError(f"a coexec array's {name} cannot be set, since pending tasks use it; use {instead}")

    return refuse


def absent(name: str) -> Callable[[Any], NoReturn]:
    """Return what refuses to read an attribute of np.ndarray."""

    def refuse(_array: Any) -> NoReturn:
        raise no_attribute(name)

    return refuse


def no_attribute(name: str) -> AttributeError:
    """Return the error for an attribute that coexec arrays do not have."""
    if name in IN_PLACE_METHODS:
        return AttributeError(
            f"coexec arrays have no {name!r}: say that the array comes to the host and goes back: "
            f"host = np.array(array); host.{name}(...); array[...] = host"
        )
    if hasattr(np.ndarray, name):
        return AttributeError(
            f"coexec arrays have no {name!r}: it would gather the array silently. Write a kernel, or say it: "
            f"np.asarray(array).{name}"
        )
    return AttributeError(f"'Array' object has no attribute {name!r}")


def no_function(name: str) -> UnsupportedError:
    """Return the error for a NumPy function that is not defined for coexec arrays."""
    if name.rpartition(".")[2] in IN_PLACE_FUNCTIONS:
        return UnsupportedError(
            f"{name} is not defined for coexec arrays, and coexec gathers nothing silently; say it: "
            f"host = np.array(array); {name}(host, ...); array[...] = host. Or use array[mask] = value, or a kernel"
        )
    return UnsupportedError(
        f"{name} is not defined for coexec arrays, and coexec gathers nothing silently; "
        f"use {name}(np.asarray(array)), or write a kernel"
    )


def check_swap(caller: FrameType) -> None:
    """Raise if compiled code assigns one part of an array to another: a shuffle that swaps rows, which are views.

    An assignment in Python is the caller's present instruction; NumPy's generators are compiled and have no frame.
    """
    if not opname[caller.f_code.co_code[caller.f_lasti]].startswith("STORE_"):
        raise UnsupportedError(
            "compiled code, such as rng.shuffle, swaps parts of a coexec array that are views of each other's place, and "
            "would lose some; use array[...] = np.asarray(array)[rng.permutation(len(array))]"
        )


def is_source(value: Any) -> bool:
    """Tell whether an object gives random numbers, one after the other. By name: numpy.random may not be loaded."""
    return any(
        kind.__module__ in ("random", "coexec.ops.random") or kind.__module__.startswith("numpy.random")
        for kind in type(value).__mro__
    )


def not_an_array(kernel: str, name: str, mode: str, value: Any) -> ArgumentError:
    """Return the error for something else in the place of an array, or a value in the place of an output."""
    if getattr(value, "immutable", False):
        return ArgumentError(f"kernel {kernel!r}: parameter {name!r} is declared {mode}, and {IMMUTABLE}")
    return ArgumentError(
        f"kernel {kernel!r}: parameter {name!r} is declared {mode} and takes a coexec array, "
        f"got {type(value).__name__}; make one with cx.array(value) (copies) or cx.asarray(value) (borrows)"
    )


def undeclared(kernel: str, name: str, shape: tuple[int, ...]) -> ArgumentError:
    """Return the error for an array in the place of a scalar."""
    return ArgumentError(
        f"kernel {kernel!r}: array of shape {shape} passed for {name!r}, which has no declared access; "
        f"declare {name}=cx.read (or write, update, reduce)"
    )


def mutable(kernel: str, name: str, value: Any, *inside: Any) -> ArgumentError:
    """Return the error for an argument that could change before the kernel runs, or that has something such `inside`."""
    instead = "pass numbers, strings or tuples of these, or a coexec array with declared access"
    if is_source(value):
        instead = RANDOM
    what = type(value).__name__
    if inside:
        what += f" that holds a {type(inside[0]).__name__}"
        instead = "give that a parameter of its own"
    return ArgumentError(
        f"kernel {kernel!r}: {name!r} is a {what}, which could change before the kernel runs; {instead}"
    )


def mutable_outside(kernel: str, name: str, value: Any) -> ArgumentError:
    """Return the error for something that a body takes from outside and that could change before it runs."""
    instead = RANDOM if is_source(value) else "pass it as an argument"
    return ArgumentError(
        f"kernel {kernel!r} takes {name!r} ({type(value).__name__}) from outside, and it could change before the kernel "
        f"runs; {instead}"
    )
