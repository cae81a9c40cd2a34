"""Variants: the ways a kernel can be computed, each for one kind of backend, with declared numerics.

Before: nothing.  After: program/kernel.py, plan/, backend/.  Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ArgumentError


class Numerics(NamedTuple):
    """How close a variant comes to NumPy: 0 ulp is NumPy's bits."""

    ulp: float = 0.0

    def __repr__(self) -> str:
        return "exact" if self.ulp == 0 else f"close({self.ulp:g})"


exact = Numerics()
"""A variant that gives NumPy's bits."""


def close(ulp: float) -> Numerics:
    """Declare a variant that may differ from NumPy by `ulp` units in the last place."""
    return Numerics(ulp)


def check_numerics(given: Any) -> Numerics:
    """Return what was declared, or say what may be."""
    if not isinstance(given, Numerics) or not 0 <= given.ulp < float("inf"):
        raise ArgumentError(f"numerics={given!r}; use cx.exact, or cx.close(ulp) with a number of units from 0")
    return given


COMPILED = "compiled"
"""Kind and name of the variant that nobody declares: the Python body as machine code, on NumPy arrays (compile/)."""

GENERATED = "generated"
"""Name of the variant that nobody declares: OpenCL C made of the Python body when it is launched."""


class Variant:
    """One way to compute a kernel. `off` says why it is not used, or is empty."""

    __slots__ = (
        "contract",
        "elsewhere",
        "entry",
        "function",
        "global_size",
        "kind",
        "local_size",
        "name",
        "numerics",
        "off",
        "source",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        function: Callable[..., Any] | None = None,
        source: str = "",
        entry: str | None = None,
        global_size: Callable[..., Any] | None = None,
        local_size: tuple[int, ...] | None = None,
        numerics: Numerics = exact,
        contract: bool = False,
        elsewhere: Variant | None = None,
    ) -> None:
        self.name = name
        self.kind = kind  # "python": any backend whose arrays speak NumPy's language; COMPILED; else a backend's name
        self.function = function
        self.source = source
        self.entry = entry
        self.global_size = global_size
        self.local_size = local_size
        self.numerics = numerics
        self.contract = contract  # the compiler may fuse a multiplication with an addition
        self.elsewhere = elsewhere  # what an OpenCL device that is no CPU runs instead
        self.off = ""

    @property
    def made(self) -> bool:
        """Whether it is made of the Python body instead of declared."""
        return self.kind == COMPILED or (self.name == GENERATED and not self.source)

    def __repr__(self) -> str:
        return f"<variant {self.name} for {self.kind}, {self.numerics}{', off: ' + self.off if self.off else ''}>"
