"""What calls on small arrays cost beside NumPy's: operators, ufuncs, reductions, indices, assignments, loops over views.

Before: coexec's public names.  After: bench/overhead.py.  Times are processor time of the whole process, in microseconds: the
least of all repetitions, in which NumPy and coexec take turns.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import exp, log
from time import process_time
from typing import Any

import numpy as np

import coexec as cx

from .measure import Data

SIZES = {"51x51": (51, 51), "8": (8,)}
ROWS = 64  # of the matrices that loops go over
Case = Callable[[Any, Any], Any]
"""One operation on two arrays, NumPy's or coexec's."""


def _set_part(x: Any, y: Any) -> None:
    x[1:3] = y[1:3]


OPERATIONS: dict[str, Case] = {
    "x + y": operator.add,
    "x * 2.0": lambda x, _: x * 2.0,
    "1.0 - x": lambda x, _: 1.0 - x,
    "-x": lambda x, _: -x,
    "x < y": operator.lt,
    "np.sqrt(x)": lambda x, _: np.sqrt(x),
    "x += y": operator.iadd,
    "x.sum()": lambda x, _: x.sum(),
    "x.max(axis=0)": lambda x, _: x.max(axis=0),
    "x[1:-1]": lambda x, _: x[1:-1],
    "x[1, 1]": lambda x, _: x[(1,) * x.ndim],
    "x[1:3] = y[1:3]": _set_part,
}
"""Twelve operations; each is one call, but for the last, which takes a part and sets one."""


def _differences(x: Any, _: Any) -> None:
    """Subtract each element's neighbour."""
    for i in range(1, ROWS):
        x[i] -= x[i - 1]


def _rows(_: Any, y: Any) -> None:
    """Subtract each row's neighbour."""
    for i in range(1, ROWS):
        y[i] -= y[i - 1]


def _parts(_: Any, y: Any) -> None:
    """Add a part of each row's neighbour, moved by one."""
    for i in range(1, ROWS):
        y[i, 1:] += y[i - 1, :-1] * 0.5


LOOPS: dict[str, tuple[Case, int]] = {
    "x[i] -= x[i-1]": (_differences, 4),
    "y[i] -= y[i-1]": (_rows, 4),
    "y[i, 1:] += y[i-1, :-1] * 0.5": (_parts, 5),
}
"""Loops over views, and how many operations one turn has: indices and assignments count."""


def small_calls(repetitions: int, seconds: float = 2e-3) -> Data:
    """Return what small calls cost. `seconds` is about how long one measurement takes."""
    cases: dict[str, Data] = {}
    with cx.Runtime("cpu:0", diagnostics="off"):
        rng = np.random.default_rng(1)
        for name, shape in SIZES.items():
            plain = rng.random(shape), rng.random(shape) * 1e-9
            ours = cx.array(plain[0]), cx.array(plain[1])
            for call, case in OPERATIONS.items():
                cases[f"{call}, {name}"] = _compared(
                    case, plain, ours, 2 if case is _set_part else 1, repetitions, seconds
                )
        plain = rng.random(4 * ROWS), rng.random((ROWS, 51))
        ours = cx.array(plain[0]), cx.array(plain[1])
        for call, (case, operations) in LOOPS.items():
            cases[f"{call}, in a loop"] = _compared(case, plain, ours, operations * (ROWS - 1), repetitions, seconds)
        del ours
    ratios = {name: case["ratio"] for name, case in cases.items()}
    medium = [log(ratio) for name, ratio in ratios.items() if name.endswith("51x51")]
    worst = max(ratios, key=lambda name: ratios[name])
    added = max(case["added_us"] for case in cases.values())
    return {
        "added_us": round(added, 2),
        "geomean": round(exp(sum(medium) / len(medium)), 2),
        "worst": {"case": worst, "ratio": ratios[worst]},
        "cases": cases,
    }


def _compared(case: Case, plain: Any, ours: Any, operations: int, repetitions: int, seconds: float) -> Data:
    """Measure one case on NumPy's arrays and on coexec's in turns; figures are per operation."""
    runs = {"numpy": lambda: case(*plain), "coexec": lambda: case(*ours)}
    times = {}
    with np.errstate(all="ignore"):
        for name, run in runs.items():
            times[name] = _time(run, 64 // operations + 1)  # warm
        counts = {name: max(1, int(seconds / max(once, 1e-8))) for name, once in times.items()}
        for _ in range(repetitions):
            for name, run in runs.items():
                times[name] = min(times[name], _time(run, counts[name]))
    numpy_us, coexec_us = (times[name] / operations * 1e6 for name in ("numpy", "coexec"))
    return {
        "numpy_us": round(numpy_us, 3),
        "coexec_us": round(coexec_us, 3),
        "added_us": round(coexec_us - numpy_us, 3),
        "ratio": round(coexec_us / max(numpy_us, 1e-3), 2),
    }


def _time(run: Callable[[], Any], count: int) -> float:
    """Return the seconds of processor time that one run takes, of so many."""
    begun = process_time()
    for _ in range(count):
        run()
    return (process_time() - begun) / count
