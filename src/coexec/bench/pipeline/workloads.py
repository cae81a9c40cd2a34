"""Graph networks and transformer blocks as chains of operations, and how fast each operation is on each class of devices.

Before: plan/pipeline/, machine/presets.  After: bench/pipeline/planner.py.  Numbers only.

Sizes are those of the public data sets and models. Speeds by operation are ESTIMATES: peaks alone would make the FPGA pointless
in everything. Each has its basis beside it, and the benchmark halves and doubles each to say which conclusions depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...machine.platform import Platform
from ...plan.pipeline import StreamKernel, StreamSystem, StreamValue, StreamWork
from ...plan.pipeline.platforms import classes_of


class Graph(NamedTuple):
    """A graph data set: nodes, stored non-zeros (directed edges), features, classes, and how uneven its rows are."""

    nodes: int
    nonzeros: int
    features: int
    classes: int
    hidden: int
    skew: float  # deviation of row degrees over their mean


GRAPHS = {
    "cora": Graph(2_708, 10_556, 1_433, 7, 16, 1.3),
    "pubmed": Graph(19_717, 88_648, 500, 3, 16, 1.7),
    "arxiv": Graph(169_343, 1_166_243, 128, 40, 128, 3.0),
    "reddit": Graph(232_965, 114_615_892, 602, 41, 128, 1.6),
}
"""Public data sets; the self-loop of each node is added. Hidden widths as usual for each, skews estimated."""
WINDOWS = [
    (length, window)
    for length in (1024, 2048, 4096, 8192, 16384)
    for window in (128, 256, 512)
    if window <= length // 4
]
HIDDEN, HEADS, HEAD, FFN = 768, 12, 64, 3072  # of a transformer block, as in Longformer's base model


class Speed(NamedTuple):
    """What one device of a class achieves in an operation."""

    rate: float  # operations per second, for large work
    half: float  # operations at which half of it is reached
    skewed: float  # by how much uneven rows slow it down: seconds times 1 + skewed * skew
    basis: str


SPEEDS: dict[tuple[str, str], Speed] = {
    ("spmm", "fpga"): Speed(150e9, 2e6, 0.02, "estimate: Sextans on a U280 is reported with up to 181 Gflop/s"),
    ("spmm", "gpu"): Speed(300e9, 6e7, 0.35, "estimate: bound by bandwidth, some 1-2 % of float32's peak"),
    ("gemm", "fpga"): Speed(500e9, 2e7, 0.0, "estimate: half of the 1.08 Tflop/s that its DSPs allow"),
    ("gemm", "gpu"): Speed(15e12, 6e8, 0.0, "estimate: 65 % of the data sheet's 22.6 Tflop/s"),
    ("window", "fpga"): Speed(
        700e9, 1e7, 0.0, "estimate: SWAT reports a fraction of a GPU's energy; no rate is public"
    ),
    ("window", "gpu"): Speed(1.5e12, 3e8, 0.0, "estimate: banded products reach a tenth of dense ones"),
    ("row", "fpga"): Speed(40e9, 1e5, 0.0, "estimate: bound by bandwidth"),
    ("row", "gpu"): Speed(130e9, 5e6, 0.0, "estimate: bound by bandwidth"),
}
WATTS = {"fpga": 60.0, "gpu": 250.0}
"""Of a device while it computes: estimates below the cards' limits (52 W are reported for Sextans)."""


class Call(NamedTuple):
    """One operation: what it is, its operations, rows, columns, and how uneven its rows are."""

    name: str
    op: str
    flops: float
    rows: float
    width: float
    skew: float = 0.0
    weights: float = 0.0  # bytes

    @property
    def features(self) -> tuple[float, ...]:
        """What is known of it before it runs: bytes first, as for kernels."""
        return (8.0 * self.rows * self.width, self.rows, self.flops, self.flops * self.skew)


def true_seconds(call: Call, device: str, speeds: dict[tuple[str, str], Speed], launch: float) -> float:
    """Return what a call really takes on a class of devices: small work is slower, and so are uneven rows."""
    speed = speeds[call.op, device]
    return launch + (call.flops + speed.half) / speed.rate * (1.0 + speed.skewed * call.skew)


def gcn(graph: Graph) -> tuple[list[Call], list[float]]:
    """Return the calls of a two-layer GCN, A(XW) where that is cheaper, and bytes before, between and after them."""
    n, stored = float(graph.nodes), float(graph.nonzeros + graph.nodes)
    calls, cuts, width = [], [n * graph.features * 4 + stored * 8], graph.features
    for layer, out in enumerate((graph.hidden, graph.classes)):
        calls.append(Call(f"gemm{layer}", "gemm", 2 * n * width * out, n, float(out), weights=4.0 * width * out))
        cuts.append(n * out * 4 + stored * 8)
        calls.append(Call(f"spmm{layer}", "spmm", 2 * stored * out, n, float(out), graph.skew))
        cuts.append(n * out * 4 + (stored * 8 if layer == 0 else 0))
        width = out
    return calls, cuts


def gin(graph: Graph) -> tuple[list[Call], list[float]]:
    """Return the calls of a two-layer GIN: a sparse product and two equal products of a small network per layer."""
    n, stored = float(graph.nodes), float(graph.nonzeros + graph.nodes)
    calls, cuts, width = [], [n * graph.features * 4 + stored * 8], graph.features
    for layer in range(2):
        calls.append(Call(f"spmm{layer}", "spmm", 2 * stored * width, n, float(width), graph.skew))
        cuts.append(n * width * 4 + (stored * 8 if layer == 0 else 0))
        for part in range(2):
            inner = graph.hidden if part == 0 or layer == 0 else graph.classes
            calls.append(
                Call(f"mlp{layer}{part}", "gemm", 2 * n * width * inner, n, float(inner), weights=4.0 * width * inner)
            )
            width = inner
            cuts.append(n * width * 4 + (stored * 8 if layer == 0 else 0))
    return calls, cuts


def block(length: int, window: int) -> tuple[list[Call], list[float]]:
    """Return the calls of a transformer block with attention within a window; its two residuals travel along."""
    n, h = float(length), float(HIDDEN)
    calls = [
        Call("qkv", "gemm", 6 * n * h * h, n, 3 * h, weights=12 * h * h),
        Call("attention", "window", 4 * n * window * HEAD * HEADS, n, h),
        Call("out", "gemm", 2 * n * h * h, n, h, weights=4 * h * h),
        Call("norm", "row", 10 * n * h, n, h),
        Call("up", "gemm", 2 * n * h * FFN, n, float(FFN), weights=4 * h * FFN),
        Call("down", "gemm", 2 * n * h * FFN, n, h, weights=4 * h * FFN),
        Call("norm2", "row", 10 * n * h, n, h),
    ]
    one = 4 * n * h
    return calls, [one, 4 * one, 2 * one, 2 * one, one, one + 4 * n * FFN, 2 * one, one]


def system_of(preset: str) -> StreamSystem:
    """Return the cards of a preset with the watts from above; its processor is the host, which computes nothing."""
    platform = Platform.load(preset)
    cards = [device.name for device in platform.devices if device.kind in WATTS]
    found = classes_of(platform, cards).system
    classes = tuple([replace(c, watts=max(WATTS[c.name], c.idle_watts)) for c in found.classes])
    return StreamSystem(classes, found.hops)


def work_of(calls: list[Call], cuts: list[float], seconds: dict[tuple[str, str], float]) -> StreamWork:
    """Return calls as a workload; `seconds` by call and class."""
    kernels = [
        StreamKernel(
            call.name, {name: t for (which, name), t in seconds.items() if which == call.name}, weights=call.weights
        )
        for call in calls
    ]
    names: list[str | None] = [None, *[call.name for call in calls]]
    values = [
        StreamValue(cut, names[at], () if at == len(calls) else (calls[at].name,), result=at == len(calls))
        for at, cut in enumerate(cuts)
    ]
    return StreamWork(tuple(kernels), tuple(values))
