"""From seconds to figures: ratios of a case, and the cases against the bars.

Before: nothing.  After: harness.py.  Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..measure import Data, geometric_mean

SPEEDUP, OF_HANDWRITTEN, COST, OF_NUMPY = 1.85, 0.95, 1.05, 1.0
"""The bars: two cores over one, coexec over hand-written, runtime cost of kernels of LONG ms and more, coexec over NumPy."""
LONG = 1.0  # ms
CORES = "cpu:0,cpu:1"


def compared(seconds: Mapping[str, float]) -> Data:
    """Return the seconds of numpy, coexec, hand and alone (coexec on one device) and their ratios; above 1, coexec wins."""
    coexec = seconds["coexec"]
    return {
        "numpy_s": seconds["numpy"],
        "coexec_s": coexec,
        "handwritten_s": seconds["hand"],
        "speedup": seconds["alone"] / coexec,
        "vs_numpy": seconds["numpy"] / coexec,
        "vs_handwritten": seconds["hand"] / coexec,
    }


def summary(cases: Sequence[Data]) -> Data:
    """Return the means and worst cases that the bars are about, and the cases that miss one."""
    pairs = [case for case in cases if case["devices"] == CORES]
    long = [case for case in cases if case["kernel_ms"] >= LONG]
    return {
        "geomean_speedup": geometric_mean(case["speedup"] for case in pairs),
        "geomean_vs_handwritten": geometric_mean(case["vs_handwritten"] for case in pairs),
        "geomean_vs_numpy": geometric_mean(case["vs_numpy"] for case in cases),
        "worst_speedup": min((case["speedup"] for case in pairs), default=0.0),
        "worst_vs_handwritten": min((case["vs_handwritten"] for case in pairs), default=0.0),
        "worst_vs_numpy": min((case["vs_numpy"] for case in cases), default=0.0),
        "worst_runtime_cost": max((case["runtime_cost"] for case in long), default=0.0),
        "missed": [
            *_below(pairs, "speedup", SPEEDUP),
            *_below(pairs, "vs_handwritten", OF_HANDWRITTEN),
            *_below(cases, "vs_numpy", OF_NUMPY),
            *_below(long, "runtime_cost", COST, sign=-1),
        ],
    }


def _below(cases: Iterable[Data], key: str, bar: float, sign: int = 1) -> list[Data]:
    """Return who misses a bar; with sign=-1, who is above it."""
    return [
        {"app": case["app"], "devices": case["devices"], "figure": key, "is": case[key], "bar": bar}
        for case in cases
        if sign * case[key] < sign * bar
    ]
