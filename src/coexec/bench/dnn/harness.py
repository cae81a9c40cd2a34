"""`coexec bench dnn`: searches for mappings of networks, and networks that run as they are planned.

Before: bench/dnn/search.py, bench/dnn/real.py.  After: the table of benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import Any

from ..measure import named
from .real import DEVICES, NETWORKS, real_cases
from .search import MULTIMODAL, TYPICAL, multimodal_cases, typical_cases

EQUAL = 1e-9
"""Relative difference of times that counts as none."""


def run(
    quick: bool, progress: Callable[[str], None], only: Sequence[str] = (), devices: Sequence[str] = ()
) -> dict[str, Any]:
    """Mappings of networks on many accelerators against baselines and bounds, and planned networks that run here.

    `only` are the networks to take, `devices` the sets of devices on which those run.
    """
    chosen = named("network", (*TYPICAL, *MULTIMODAL, *NETWORKS), only)
    mixes = named("set of devices", DEVICES, devices)
    typical, modal = list(typical_cases(quick, progress, chosen)), list(multimodal_cases(quick, progress, chosen))
    real = list(real_cases(quick, progress, chosen, mixes))
    errors = [case["error"] for case in real if case.get("error") is not None]
    return {
        "search": {
            "cases": typical + modal,
            "mean_reduction": _mean(case["reduction"] for case in typical),
            "mean_reduction_all8": _mean(case["reduction_all8"] for case in typical),
            "mean_reduction_h2h": _mean(case["reduction"] for case in modal),
            "mean_genetic_gap": _mean(case["genetic"]["gap"] for case in typical),
            "worse_than_h2h": sum(case["latency_s"] > case["baseline_s"] * (1 + EQUAL) for case in modal),
            "worse_than_all8": sum(case["latency_s"] > case["all8_s"] * (1 + EQUAL) for case in typical),
        },
        "real": {"cases": real, "median_error": median(errors) if errors else None},
    }


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean; None of nothing."""
    found = list(values)
    return mean(found) if found else None
