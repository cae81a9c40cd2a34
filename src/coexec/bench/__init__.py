"""The benchmarks: what coexec costs, what it gains, and how far that is from the best that the machine allows.

Before: coexec's public names.  After: cli/.  The table is all that `coexec bench` needs to find one.
"""

from __future__ import annotations

BENCHMARKS: dict[str, str] = {
    "overhead": "coexec.bench.overhead:run",
    "dag": "coexec.bench.dag.harness:run",
    "split": "coexec.bench.split.harness:run",
    "schedule": "coexec.bench.schedule:run",
    "apps": "coexec.bench.apps.harness:run",
    "simulate": "coexec.bench.simulate.harness:run",
    "compile": "coexec.bench.compile.harness:run",
    "plan": "coexec.bench.plan.harness:run",
    "pipeline": "coexec.bench.pipeline.harness:run",
    "dnn": "coexec.bench.dnn.harness:run",
    "cluster": "coexec.bench.cluster.harness:run",
}
"""Name -> "module:function". Each function takes (quick, progress) and returns JSON-ready data."""

PICTURES: dict[str, str] = {
    "simulate": "coexec.bench.simulate.scale:picture",
    "cluster": "coexec.bench.cluster.scaling:picture",
}
"""Name -> "module:function" of those with a picture. Each function takes what the benchmark returned and returns SVG."""

ON_RANKS = frozenset({"cluster"})
"""Those that take a number of `ranks`, too."""

LONG = frozenset({"cluster"})
"""Those that do more with `full`."""

CHOOSING = frozenset({"apps", "cluster", "compile", "dag", "dnn", "pipeline", "plan", "split"})
"""Those that measure only some of their cases (`only`), if told."""

BY_DEVICES = frozenset({"apps", "dag", "dnn", "split"})
"""Those that measure only some of their sets of devices (`devices`), if told."""

BRIEF = frozenset({"plan"})
"""Those whose quick set is all that is asked for, unless `--full` is."""
