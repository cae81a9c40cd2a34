"""Arguments that a kernel cannot take, each with what to pass instead.

Before: program/value.py.  After: program/capture.py, program/kernel.py.  Knows no kernel but its name.
"""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from .value import IMMUTABLE, Value

RANDOM = (
    "inside a body, let it take `chunk` and use chunk.rng(seed), whose numbers do not depend on how the call is divided; "
    "outside, cx.random makes arrays of random numbers"
)


def is_source(value: Any) -> bool:
    """Tell whether an object gives random numbers, one after the other. By name: numpy.random may not be loaded."""
    return any(
        kind.__module__ in ("random", "coexec.ops.random") or kind.__module__.startswith("numpy.random")
        for kind in type(value).__mro__
    )


def not_an_array(kernel: str, name: str, mode: str, value: Any) -> ArgumentError:
    """Return the error for something else in the place of an array, or a value in the place of an output."""
    if isinstance(value, Value):
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


def mutable(kernel: str, name: str, value: Any) -> ArgumentError:
    """Return the error for an argument that could change before the kernel runs."""
    instead = RANDOM if is_source(value) else (
        "pass numbers, strings or tuples, or a coexec array with declared access"
    )  # fmt: skip
    return ArgumentError(
        f"kernel {kernel!r}: {name!r} is a {type(value).__name__}, which could change before the kernel runs; {instead}"
    )


def mutable_outside(kernel: str, name: str, value: Any) -> ArgumentError:
    """Return the error for something that a body takes from outside and that could change before it runs."""
    instead = RANDOM if is_source(value) else "pass it as an argument"
    return ArgumentError(
        f"kernel {kernel!r} takes {name!r} ({type(value).__name__}) from outside, and it could change before the kernel "
        f"runs; {instead}"
    )
