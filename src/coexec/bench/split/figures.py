"""From seconds to figures: speed-ups, the limit, the part of the gain that was captured, and what sums them all up.

Before: nothing.  After: harness.py.  Pure arithmetic: measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from ..measure import Data

WORTH = 1.1  # of the limit: below, there is next to nothing to gain
LARGE = 1024  # of the size
LONG = 5e-3  # seconds


def compared(alone: Mapping[str, float], beside: Mapping[str, float], coexec: float) -> Data:
    """Return a case's ratios: `alone` and `beside` are each device's seconds by itself and while all others compute."""
    best = min(alone.values())
    speedup = best / coexec
    limit = best * sum(1.0 / seconds for seconds in beside.values())
    return {
        "best_single": min(alone, key=alone.__getitem__),
        "speedup": speedup,
        "limit_speedup": limit,
        "limit_s": best / limit,
        "gain_captured": (speedup - 1.0) / (limit - 1.0) if limit > 1.0 else None,
    }


def error_of(predicted: float | None, measured: float) -> float | None:
    """Return a prediction's relative error; positive: it took longer than predicted."""
    return measured / predicted - 1.0 if predicted else None


def summary(cases: Sequence[Data], unseen: Sequence[Data]) -> Data:
    """Return the figures over all cases, and over those that a calibration alone had to predict."""
    worth = [c for c in cases if c["limit_speedup"] >= WORTH and c["size"] >= LARGE]
    long = [c for c in cases if _best(c) >= LONG]
    foretold = [c for c in [*cases, *unseen] if c["never_run"]]
    errors = [abs(c["prediction_error"]) for c in foretold if c["prediction_error"] is not None]
    return {
        "median_gain_captured": _median(c["gain_captured"] for c in worth),
        "worst_vs_best_single": min((_best(c) / c["coexec_s"] for c in long), default=None),
        "worst_vs_numpy_all_threads": min((c["numpy_all_threads_s"] / c["coexec_s"] for c in long), default=None),
        "median_abs_error": _median(errors),
        "gain_cases": len(worth),
        "long_cases": len(long),
        "predicted_cases": len(errors),
        "unpredicted_cases": len(foretold) - len(errors),
    }


def by_group(cases: Sequence[Data], unseen: Sequence[Data], key: str) -> list[Data]:
    """Return the summary of the cases with each value of a key, in the order of appearance."""
    return [
        {key: value, **summary([c for c in cases if c[key] == value], [c for c in unseen if c[key] == value])}
        for value in dict.fromkeys(case[key] for case in cases)
    ]


def _best(case: Data) -> float:
    return float(min(case["single_s"].values()))


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
