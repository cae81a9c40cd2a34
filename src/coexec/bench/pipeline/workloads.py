"""Graph networks and transformer blocks as chains of operations, and how fast each operation is on each class of devices.

Before: plan/pipeline/, machine/presets.  After: bench/pipeline/planner.py.  Numbers only.

Sizes are those of the public data sets and models. Speeds by operation are those of the platforms, most of them ESTIMATES: peaks
alone would make the FPGA pointless in everything. The benchmark halves and doubles each to say which conclusions depend on it.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ...machine.platform import Device, Platform
from ...plan.pipeline import StreamKernel, StreamSystem, StreamValue, StreamWork
from ...plan.pipeline.platforms import Classes, classes_of, worthwhile

Seconds = dict[tuple[str, str], float]
"""By call and class of devices."""


class GraphDataSet(NamedTuple):
    """A graph data set: nodes, stored non-zeros (directed edges), features, classes, and how uneven its rows are."""

    nodes: int
    nonzeros: int
    features: int
    classes: int
    hidden: int
    skew: float  # deviation of row degrees over their mean


GRAPHS = {
    "cora": GraphDataSet(2_708, 10_556, 1_433, 7, 16, 1.3),
    "pubmed": GraphDataSet(19_717, 88_648, 500, 3, 16, 1.7),
    "arxiv": GraphDataSet(169_343, 1_166_243, 128, 40, 128, 3.0),
    "reddit": GraphDataSet(232_965, 114_615_892, 602, 41, 128, 1.6),
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
    watts: float  # while it does that
    basis: str


Speeds = dict[tuple[str, str], Speed]
"""By operation and class of devices."""
OPS = ("spmm", "matmul", "window_attention", "layernorm")
SMALL: dict[tuple[str, str], tuple[float, float]] = {
    ("spmm", "fpga"): (2e6, 0.02),
    ("spmm", "gpu"): (6e7, 0.35),
    ("matmul", "fpga"): (2e7, 0.0),
    ("matmul", "gpu"): (6e8, 0.0),
    ("window_attention", "fpga"): (1e7, 0.0),
    ("window_attention", "gpu"): (3e8, 0.0),
    ("layernorm", "fpga"): (1e5, 0.0),
    ("layernorm", "gpu"): (5e6, 0.0),
}
"""Estimates by operation and kind of device, which no platform has: operations at which half of the rate is reached, since a GPU
needs much work to fill it and an FPGA streams, and what uneven rows cost."""
PER_BYTE = 10 / 8
"""Operations per byte of layernorm: ten for each element that is read and written. Its memory sets the pace."""


class StageOperation(NamedTuple):
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


def true_seconds(call: StageOperation, device: str, speeds: Speeds, launch: float) -> float:
    """Return what a call really takes on a class of devices: small work is slower, and so are uneven rows. inf: it cannot."""
    speed = speeds.get((call.op, device))
    if speed is None:
        return inf
    return launch + (call.flops + speed.half) / speed.rate * (1.0 + speed.skewed * call.skew)


def gcn(graph: GraphDataSet) -> tuple[list[StageOperation], list[float]]:
    """Return the calls of a two-layer GCN, A(XW) where that is cheaper, and bytes before, between and after them."""
    n, stored = float(graph.nodes), float(graph.nonzeros + graph.nodes)
    calls, cuts, width = [], [n * graph.features * 4 + stored * 8], graph.features
    for layer, out in enumerate((graph.hidden, graph.classes)):
        calls.append(
            StageOperation(f"gemm{layer}", "matmul", 2 * n * width * out, n, float(out), weights=4.0 * width * out)
        )
        cuts.append(n * out * 4 + stored * 8)
        calls.append(StageOperation(f"spmm{layer}", "spmm", 2 * stored * out, n, float(out), graph.skew))
        cuts.append(n * out * 4 + (stored * 8 if layer == 0 else 0))
        width = out
    return calls, cuts


def gin(graph: GraphDataSet) -> tuple[list[StageOperation], list[float]]:
    """Return the calls of a two-layer GIN: a sparse product and two equal products of a small network per layer."""
    n, stored = float(graph.nodes), float(graph.nonzeros + graph.nodes)
    calls, cuts, width = [], [n * graph.features * 4 + stored * 8], graph.features
    for layer in range(2):
        calls.append(StageOperation(f"spmm{layer}", "spmm", 2 * stored * width, n, float(width), graph.skew))
        cuts.append(n * width * 4 + (stored * 8 if layer == 0 else 0))
        for part in range(2):
            inner = graph.hidden if part == 0 or layer == 0 else graph.classes
            calls.append(
                StageOperation(
                    f"mlp{layer}{part}", "matmul", 2 * n * width * inner, n, float(inner), weights=4.0 * width * inner
                )
            )
            width = inner
            cuts.append(n * width * 4 + (stored * 8 if layer == 0 else 0))
    return calls, cuts


def block(length: int, window: int) -> tuple[list[StageOperation], list[float]]:
    """Return the calls of a transformer block with attention within a window; its two residuals travel along."""
    n, h = float(length), float(HIDDEN)
    calls = [
        StageOperation("qkv", "matmul", 6 * n * h * h, n, 3 * h, weights=12 * h * h),
        StageOperation("attention", "window_attention", 4 * n * window * HEAD * HEADS, n, h),
        StageOperation("out", "matmul", 2 * n * h * h, n, h, weights=4 * h * h),
        StageOperation("norm", "layernorm", 10 * n * h, n, h),
        StageOperation("up", "matmul", 2 * n * h * FFN, n, float(FFN), weights=4 * h * FFN),
        StageOperation("down", "matmul", 2 * n * h * FFN, n, h, weights=4 * h * FFN),
        StageOperation("norm2", "layernorm", 10 * n * h, n, h),
    ]
    one = 4 * n * h
    return calls, [one, 4 * one, 2 * one, 2 * one, one, one + 4 * n * FFN, 2 * one, one]


class Cards(NamedTuple):
    """The cards of a preset as classes, and how fast they are. Its processor is the host, which computes nothing."""

    classes: Classes
    speeds: Speeds


def cards_of(preset: str) -> Cards:
    """Return the cards of a preset, with what it says of each operation: the same figures that simulations use."""
    platform = Platform.load(preset)
    cards = [device.name for device in platform.devices if device.kind in ("fpga", "gpu")]
    found = classes_of(platform, cards)
    speeds = {}
    for name, members in found.members.items():
        device = platform.device(members[0])
        if name in found.designs:
            ops: tuple[str, ...] = device.design(found.designs[name]).ops
            device = device.under(found.designs[name])
        else:
            ops = OPS
        for op in OPS:
            if op in ops:
                speeds[op, name] = _speed(device, op)
    return Cards(found, speeds)


def _speed(device: Device, op: str) -> Speed:
    known, watts = device.reaches(op), device.watts_for(op) or 0.0
    half, skewed = SMALL[op, device.kind]
    if known is None:
        return Speed(PER_BYTE * (device.bandwidth or 0.0), half, skewed, watts, "data sheet: its memory's bandwidth")
    return Speed(known.of_peak * (device.flops or 0.0), half, skewed, known.watts or watts, known.basis)


def planned_for(
    case: tuple[list[StageOperation], list[float]], cards: Cards, seconds: Seconds
) -> tuple[StreamWork, StreamSystem]:
    """Return calls as a workload, and the classes that are worth looking at; `seconds` by call and class."""
    work = work_of(*case, seconds, cards.speeds)
    return work, worthwhile(cards.classes, work).system


def work_of(calls: list[StageOperation], cuts: list[float], seconds: Seconds, speeds: Speeds) -> StreamWork:
    """Return calls as a workload; `seconds` by call and class."""
    kernels = []
    for call in calls:
        able = {name: t for (which, name), t in seconds.items() if which == call.name and t < inf}
        watts = {name: speeds[call.op, name].watts for name in able}
        kernels.append(StreamKernel(call.name, able, weights=call.weights, watts=watts))
    names: list[str | None] = [None, *[call.name for call in calls]]
    values = [
        StreamValue(cut, names[at], () if at == len(calls) else (calls[at].name,), result=at == len(calls))
        for at, cut in enumerate(cuts)
    ]
    return StreamWork(tuple(kernels), tuple(values))
