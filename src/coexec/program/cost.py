"""What a kernel says about its own cost: operations, further features, and how work is spread over rows.

Before: nothing.  After: program/kernel.py, predict/features.py.  Knows no array and no device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import ArgumentError

MIX = ("simple", "division", "exponential", "other")
"""Classes of elementwise operations, by how long one takes: an addition, a division or root, an exponential, or more."""
DIVISIONS = frozenset(
    {"divide", "true_divide", "sqrt", "reciprocal", "floor_divide", "remainder", "mod", "fmod", "divmod"}
)
EXPONENTIALS = frozenset({"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "logaddexp2"})
OTHERS = frozenset(
    {
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "arctan2",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "arccosh",
        "arctanh",
    }
) | {"power", "float_power", "cbrt", "hypot", "gcd", "lcm", "nextafter", "ldexp", "frexp", "modf"}


def mix_of(names: Iterable[str]) -> tuple[float, ...]:
    """Return how many of the named operations belong to each class of `MIX`."""
    counts = [0.0] * len(MIX)
    for name in names:
        counts[1 if name in DIVISIONS else 2 if name in EXPONENTIALS else 3 if name in OTHERS else 0] += 1.0
    return tuple(counts)


class CostFunction(NamedTuple):
    """A function of named arguments."""

    name: str
    function: Callable[..., Any]
    takes: tuple[str, ...]

    def value(self, named: Mapping[str, Any]) -> float:
        """Return its value for one call, given by the names of the kernel's parameters."""
        try:
            return float(self.function(*[named[name] for name in self.takes]))
        except KeyError as error:
            raise ArgumentError(
                f"{self.name} asks for {error.args[0]!r}, which is no parameter of the kernel ({', '.join(named)})"
            ) from None


class DeclaredCost(NamedTuple):
    """What was declared."""

    flops: CostFunction | None = None
    per_point: float = 0.0  # flops as a number per point of the index space
    features: tuple[CostFunction, ...] = ()
    weight: Callable[..., Any] | None = None
    scratch: CostFunction | None = None  # bytes of temporaries that a part needs while it runs
    scratch_per_point: float = 0.0
    mix: tuple[float, ...] = ()  # of an elementwise body: operations per point, by the classes of `MIX`

    @property
    def scratches(self) -> bool:
        """Whether temporaries were declared."""
        return self.scratch is not None or self.scratch_per_point > 0.0

    @property
    def takes(self) -> frozenset[str]:
        """The parameters that the functions look at."""
        functions = (*self.features, *((self.flops,) if self.flops is not None else ()))
        return frozenset(name for function in functions for name in function.takes)


NOTHING_SAID = DeclaredCost()


def declare_cost(
    flops: Callable[..., float] | float | None,
    features: Mapping[str, Callable[..., float]] | None,
    weight: Callable[..., Any] | None,
    scratch: Callable[..., float] | float | None = None,
) -> DeclaredCost:
    """Return a declaration, checked as far as that goes without a call."""
    if flops is None and features is None and weight is None and scratch is None:
        return NOTHING_SAID
    for name, function in (features or {}).items():
        if not callable(function):
            raise ArgumentError(f"features[{name!r}] is {function!r}; give a function of the kernel's parameters")
    if weight is not None and not callable(weight):
        raise ArgumentError(f"weight={weight!r} is no function; give weight(rows), the work of each row")
    functions = tuple(_cost_function(name, function) for name, function in (features or {}).items())
    return DeclaredCost(*_per_point("flops", flops), functions, weight, *_per_point("scratch", scratch))


def _per_point(name: str, said: Callable[..., float] | float | None) -> tuple[CostFunction | None, float]:
    """Return a function of the arguments, or a number per point of the index space."""
    if callable(said):
        return _cost_function(name, said), 0.0
    number = 0.0 if said is None else float(said)
    if not 0.0 <= number < float("inf"):
        raise ArgumentError(f"{name}={said!r} per point; give a number from 0, or a function of the arguments")
    return None, number


def _cost_function(name: str, function: Callable[..., Any]) -> CostFunction:
    return CostFunction(name, function, tuple(inspect.signature(function).parameters))
