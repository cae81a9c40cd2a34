"""Benchmarks for the tests of `coexec bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coexec.errors import BackendError

Progress = Callable[[str], None]


def fine(quick: bool, progress: Progress) -> dict[str, Any]:
    """Measure nothing.

    More about it.
    """
    progress("half way")
    cases = [{"name": "a", "speedup": 1.23456}, {"name": "b", "bound": 2, "lanes": [1, 2]}]
    return {"quick": quick, "chain_us": 1.234567, "cases": cases, "peers": {"pool_us": 2.0}, "none": []}


def broken(quick: bool, progress: Progress) -> dict[str, Any]:
    """Fail."""
    raise BackendError("the device went away; plug it in")


def choosing(quick: bool, progress: Progress, only: Sequence[str] = (), devices: Sequence[str] = ()) -> dict[str, Any]:
    """Say what was chosen."""
    return {"only": list(only), "devices": list(devices)}


def drawn(result: dict[str, Any]) -> str:
    """Return a picture of nothing."""
    return f"<svg>{result['chain_us']}</svg>"
