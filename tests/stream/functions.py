"""Functions of one item that the tests of streams share, and what they give item by item in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=400)
def doubled(x: Any, y: Any) -> None:
    y[...] = 2 * x


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=400)
def checked(x: Any, y: Any) -> None:
    if np.any(np.asarray(x) == 13):
        raise ValueError("thirteen")
    y[...] = x + 1


@cx.kernel(x=cx.read, total=cx.update)
def added(x: Any, total: Any) -> None:
    total += x


def three_calls(item: Any, w: Any) -> Any:
    """Double, multiply, and an expression."""
    y = cx.empty(item.shape, item.dtype)
    doubled(item, y)
    z = cx.matmul(y, w)
    return {"z": z, "t": np.tanh(z) + 1}


def three_calls_plain(item: Any, w: Any) -> dict[str, Any]:
    """The same in NumPy."""
    z = (2 * item) @ w
    return {"z": z, "t": np.tanh(z) + 1}


def reads_inside(item: Any, w: Any) -> Any:
    """Wait for a value in the middle, and branch on it."""
    y = cx.empty(item.shape, item.dtype)
    doubled(item, y)
    first = float(y[0, 0])
    z = cx.matmul(y, w) if first < 10 else y + first
    return z, first


def reads_inside_plain(item: Any, w: Any) -> tuple[Any, float]:
    """The same in NumPy."""
    y = 2 * item
    first = float(y[0, 0])
    return (y @ w if first < 10 else y + first), first


def may_fail(item: Any) -> Any:
    """Fail on items that contain 13."""
    y = cx.empty(item.shape, item.dtype)
    checked(item, y)
    return y


def running_sum(item: Any, total: Any) -> Any:
    """Add to a constant: a state."""
    added(item, total)
    return total + 0.0


def weights(rows: int = 16) -> Any:
    """Return a matrix of constants."""
    return np.random.default_rng(7).standard_normal((rows, rows)).astype(np.float32)


def items(count: int, rows: int = 16) -> list[Any]:
    """Return items that are all different."""
    return [np.full((rows, rows), number, np.float32) + np.eye(rows, dtype=np.float32) for number in range(count)]
