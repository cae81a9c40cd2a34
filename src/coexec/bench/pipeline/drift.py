"""Data that changes its character in mid-stream: how soon the plan follows, and what the whole stream reaches of the best plans.

Before: coexec's public names, stream/.  After: harness.py.  A simulated machine, so times are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coexec as cx

from ..measure import Data, Progress

PLATFORM = "dype-pcie4"
ROWS, WIDTH = 40_000, 64
ITEMS = 60  # of each phase


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x, density: 200.0 * density * x.size)
def gathered(x: Any, y: Any, density: Any) -> None:
    """Stand for a sparse product: its operations grow with the density."""
    y[...] = x * density


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 2.0 * x.size * x.shape[1])
def mixed(x: Any, y: Any) -> None:
    """Stand for a dense product."""
    y[...] = x + 1


def two_calls(item: Any) -> Any:
    """Return what a layer of a graph network does."""
    x, density = item
    y, z = cx.empty(x.shape, x.dtype), cx.empty(x.shape, x.dtype)
    gathered(x, y, density)
    mixed(y, z)
    return z


def run(quick: bool, progress: Progress) -> Data:
    """Return items until the new plan is in force, and throughput against the best static plan of each phase."""
    count = ITEMS // 2 if quick else ITEMS
    x = np.ones((ROWS // 4 if quick else ROWS, WIDTH), np.float32)
    phases = [[(x, density)] * count for density in (1.0, 10.0)]
    progress("density changes ten-fold")
    whole, decisions = _streamed([*phases[0], *phases[1]])
    static = []
    for phase in phases:
        progress("each phase with the plan that is best for it")
        static.append(_streamed(phase)[0])
    changes = [d["item"] for d in decisions if d["what"] == "change"]
    return {
        "items_until_new_plan": changes[0] - count if changes else None,
        "changes": len(changes),
        "seconds": whole,
        "best_static_seconds": static,
        "of_best_static": sum(static) / whole,
        "decisions": decisions,
    }


def _streamed(items: list[Any]) -> tuple[float, list[Data]]:
    with cx.Runtime(platform=PLATFORM, store="off", diagnostics="off"):
        pipe = cx.Pipeline(two_calls)
        pipe.plan(items[0], devices="cpu:0,gpu:0")
        for _ in pipe.stream(items):
            pass
        return float(pipe.stats()["seconds"]), [decision.as_dict() for decision in pipe.decisions]
