"""How full memories were, as the trace tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.observe.report import memories
from coexec.observe.trace import Trace

CAP = 40_000


def ran(kind: str, at: float, nbytes: int, memory: str = "gpu", **more: Any) -> dict[str, Any]:
    return {
        "row": "ran",
        "kind": kind,
        "memory": memory,
        "bytes": nbytes,
        "start": at,
        "stop": at,
        "state": "done",
        **more,
    }


def test_the_peak_counts_what_is_allocated_at_the_same_time() -> None:
    rows: list[dict[str, Any]] = [
        {"row": "header", "memories": [{"name": "gpu", "capacity": 300}, {"name": "host", "capacity": None}]},
        {"row": "given", "t": 0.5, "array": 1, "memory": "host", "bytes": 64},
        ran("alloc", 1.0, 100),
        ran("alloc", 3.0, 200),
        ran("free", 2.0, 50),  # drained late
        ran("kernel", 3.5, 0, scratch=30) | {"stop": 4.0},
        ran("alloc", 4.0, 20),
        ran("alloc", 5.0, 999) | {"state": "failed"},
        ran("free", 6.0, 64, "host"),
        ran("alloc", 7.0, 999) | {"memory": None},  # by others
    ]
    assert memories(Trace(rows)) == {
        "gpu": {"peak": 280, "capacity": 300},
        "host": {"peak": 64, "capacity": None},
    }


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(x: Any, y: Any) -> None:
    y += x


@pytest.mark.parametrize("device", ["null", "simulated"])
def test_a_cap_can_be_checked_from_the_trace(tmp_path: Path, device: str) -> None:
    name = f"{device}:0"
    with cx.Runtime(f"{device}:1", memory={name: str(CAP)}, trace=tmp_path / "run.json", diagnostics="off"):
        x, y = cx.array(np.arange(10_000.0)), cx.zeros(10_000)
        for _ in range(3):
            axpy(x, y)
        temporary = y * x
        del temporary
    trace = Trace.load(tmp_path / "run.json")
    held = memories(trace)
    assert 0 < (held[name]["peak"] or 0) <= CAP == held[name]["capacity"]
    assert (held["host"]["peak"] or 0) >= 160_000
    for row in trace.instructions:
        assert ("memory" in row and row["bytes"] > 0) == (row["kind"] in ("alloc", "free"))
