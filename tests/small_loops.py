"""Kernels of small loops, and a runtime that analyses or replays each of them, however short."""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

SIZE = 2000


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(x: Any, y: Any, a: Any) -> None:
    y += a * x


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smooth(x: Any, y: Any) -> None:
    y[...] = 0.5 * x[1:-1] + 0.25 * (x[:-2] + x[2:])


@cx.kernel(split=0, over="x", x=cx.read, top=cx.reduce("max"))
def highest(x: Any, top: Any) -> None:
    np.maximum(top, x.max(initial=-np.inf), out=top)


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def bent(x: Any) -> Any:
    return x / (1 + x * x)


@cx.kernel(x=cx.read, y=cx.update)
def mixed(x: Any, y: Any, a: Any, b: Any) -> None:
    y += a * x + 10 * b


def smoothed(x: Any) -> Any:
    p = np.pad(x, 1, mode="edge")
    return 0.5 * p[1:-1] + 0.25 * (p[:-2] + p[2:])


def opened(devices: str, **options: Any) -> cx.Runtime:
    """Open a runtime whose divisions do not follow what is measured, unless `policy` says so: what repeats is replayed."""
    usual: dict[str, Any] = {"policy": "even", "inline": False, "diagnostics": "off"}
    return cx.Runtime(devices, **usual | options)


def values() -> Any:
    return np.linspace(-1.0, 2.0, SIZE)
