"""On what programs run: mixes of devices, and the options of a runtime that a seed chooses for them.

Seeds of one BATCH share a runtime, so options are drawn per batch: `seed // BATCH` stands for them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import coexec as cx
from coexec.config import Config
from tests.clusters import cluster
from tests.devices import MIXED, TWO

BATCH = 32
BOTH = MIXED.replace("@1", "")


@dataclass(frozen=True)
class Mix:
    """Devices, and what programs on them are like."""

    about: str
    runtime: dict[str, Any]  # arguments of cx.Runtime; lists are drawn from
    devices: str = ""  # names for calls
    exact: bool = False  # rough programs also give NumPy's bits
    values: bool = True  # results are computed at all
    capped: bool = False  # DoesNotFit is an answer
    alone: bool = False  # no core takes what the device cannot do, so a refusal is an answer
    models: bool = False  # predictions may be made nonsense
    threads: int = 1
    default: bool = False  # the default runtime, opened by whoever comes first
    rough: float = 0.15  # shares of programs that round, that fail, and that use large arrays
    trouble: float = 0.15
    big: float = 0.03
    loops: float = 0.1  # of steps
    length: int = 8
    holds: bool = False  # tasks may be held in mid-body
    again: dict[str, Any] = field(default_factory=dict)  # a runtime on which the program must give the same bits
    without: tuple[str, ...] = ()
    options: dict[str, list[Any]] = field(default_factory=dict)


OPTIONS: dict[str, list[Any]] = {
    "inline": [True, True, False],
    "replay": [True, True, True, False],
    "lookahead": ["auto", "auto", "auto", "none", "infinite"],
    "horizon": [512, 512, 512, 20, 3],
    "fuse": [True, True, False],
    "debug": [False, False, False, False, False, True],
    "sync": [False] * 9 + [True],
    "policy": ["static", "static", "auto", "dynamic", "even"],
    "placement": ["earliest-finish"] * 6 + ["round-robin", "least-busy", "min-transfer-size"],
    "lanes": ["disjoint+reuse"] * 6 + ["same-as-parent", "always-new"],
    "compile_bodies": ["auto", "auto", "always", "always", "off"],
}
SIMULATED = {"sync": [False], "debug": [False]}
TEXTS = {"compile_bodies": ["off", "off", "auto"]}  # OpenCL's compiler takes a second for each body
CAPS = ("64", "200", "500", "1kB", "2kB", "5kB", "20kB", "100kB", "1MB", "1GB")

MIXES: dict[str, Mix] = {
    "core": Mix("one core", {"devices": "cpu:0"}, exact=True, holds=True),
    "cores": Mix("two cores", {"devices": TWO}, TWO, exact=True, models=True, holds=True),
    "mixed": Mix(
        "a core and OpenCL",
        {"devices": MIXED, "memory": [{}, {"opencl:0": "own"}, {"opencl:0": "shared"}]},
        BOTH,
        options=TEXTS,
        models=True,
    ),
    "opencl": Mix("OpenCL alone", {"devices": "opencl:0"}, "opencl:0", options=TEXTS, alone=True, trouble=0.1),
    "opencl capped": Mix(
        "OpenCL alone, little memory",
        {"devices": "opencl:0", "memory": [{"opencl:0": cap} for cap in CAPS]},
        "opencl:0",
        options=TEXTS,
        alone=True,
        capped=True,
        trouble=0,
        big=0.1,
    ),
    "mixed capped": Mix(
        "a core and OpenCL with little memory",
        {"devices": MIXED, "memory": [{"opencl:0": cap} for cap in CAPS]},
        BOTH,
        options=TEXTS,
        capped=True,
        models=True,
        trouble=0.1,
        big=0.1,
    ),
    "torch": Mix(
        "a core and torch",
        {"devices": ["torch:cpu", "cpu:0,torch:cpu@1" if "," in TWO else "torch:cpu"]},
        alone=True,
        trouble=0.1,
    ),
    "simulated": Mix(
        "four simulated GPUs", {"platform": "a100x4", "execute": True}, options=SIMULATED, big=0.02, exact=True
    ),
    "simulated capped": Mix(
        "two simulated GPUs with little memory",
        {"platform": cluster(1, 2), "execute": True, "memory": [{"gpu:0": cap, "gpu:1": cap} for cap in CAPS]},
        options=SIMULATED,
        capped=True,
        trouble=0,
        big=0.02,
        exact=True,
    ),
    "ranks": Mix(
        "one to four ranks",
        {"platform": [1, 2, 3, 4], "execute": True},
        options=SIMULATED,
        big=0.01,
        exact=True,
        length=6,
    ),
    "null": Mix(
        "null devices: no values, no failures",
        {"devices": "null:3"},
        options=SIMULATED,
        values=False,
        trouble=0,
        rough=0,
    ),
    "reproducible": Mix(
        "the same bits on any devices",
        {"devices": [TWO, MIXED, TWO], "reproducible": True},
        models=True,
        trouble=0,
        rough=0.7,
        again={"devices": "cpu:0", "reproducible": True},
    ),
    "threads": Mix("two threads on two cores", {"devices": TWO}, TWO, exact=True, threads=2, trouble=0),
    "threads mixed": Mix(
        "two threads on a core and OpenCL", {"devices": MIXED}, BOTH, options=TEXTS, threads=2, trouble=0
    ),
    "first touch": Mix(
        "two threads open the default runtime",
        {"devices": TWO},
        options={name: [getattr(Config(), name)] for name in OPTIONS},
        exact=True,
        threads=2,
        default=True,
        trouble=0,
        length=3,
    ),
}


def runtime_options(mix: Mix, seed: int) -> dict[str, Any]:
    """Return the arguments of the runtime that a seed's batch runs in."""
    rng = random.Random(seed // BATCH)
    chosen = {name: rng.choice(value) if isinstance(value, list) else value for name, value in mix.runtime.items()}
    for name, values in (OPTIONS | mix.options).items():
        value = rng.choice(values)
        if value != getattr(Config(), name):
            chosen[name] = value
    return {name: value for name, value in chosen.items() if value != {}}


def opened(options: dict[str, Any]) -> cx.Runtime:
    """Return a runtime with these options; `platform` as a number is a small cluster with so many ranks."""
    if isinstance(options.get("platform"), int):
        nodes = options["platform"]
        options = options | {"platform": cluster(nodes, 2 if nodes < 3 else 1), "ranks": nodes}
    return cx.Runtime(store="off", **options)
