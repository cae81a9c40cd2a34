"""The twelve accelerators of the H2H experiments and what a layer costs on them: compute, weights, input, output.

Before: models/loops.py.  After: models/h2h.py, models/unsharded.py.  Knows one accelerator and its link to the host.

Two variants of the model. As coded: a convolution always reads four times its output's area, and a layer that is fused with
its predecessor reads nothing, even if other modalities feed it too. Repaired: it reads what stride and padding say, and
what comes from other modalities is charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from .loops import CONV, FC, LSTM, WorkLayer, Workload

BITS = 32
"""Of an element."""
TILE = (32, 32, 16, 14)
"""Output channels, input channels, rows and columns of a tile, in all engines for convolutions."""
INPUT_TILE = 16 * 16
"""Points of a tile's input."""
WEIGHT_SHARE = 0.5
"""Part of an accelerator's memory that holds weights."""


@dataclass(frozen=True, slots=True)
class FixedEngine:
    """An accelerator of one design: operations per second, memory, clock, port and power, as published for its board."""

    name: str
    kind: str  # of layers that it can do
    board: str
    gops: float  # 1e9 operations per second
    gigabytes: float
    megahertz: float
    watts: float
    port: int = 512  # bits that the memory port moves in a cycle
    tile: tuple[int, int, int, int] = TILE
    input_tile: int = INPUT_TILE

    def compute(self, layer: WorkLayer) -> float:
        """Return the seconds of a layer whose operands are in the accelerator's memory."""
        rate, port = self.gops * 1e9, self.port * self.megahertz * 1e6
        if layer.kind == CONV:
            return self._convolution(layer, rate, port)
        loops = layer.loops
        inner, rows = loops.cin, loops.batch * loops.rows
        load = (loops.cout * inner + inner * rows) * BITS / port
        store = loops.cout * rows * BITS / port
        return layer.steps * max(load, 2 * loops.cout * inner * rows / rate, store)

    def _convolution(self, layer: WorkLayer, rate: float, port: float) -> float:
        tm, tn, tr, tc = self.tile
        loops = layer.loops
        taps = loops.kh * loops.kw
        products = 2 * tr * tc * tm * tn * taps / rate
        load = (tm * tn * taps + tn * self.input_tile) * BITS / port
        store = tm * tr * tc * BITS / port
        inner = ceil(loops.cin / tn) * (load + products) + store
        return loops.batch * ceil(loops.rows / tr) * ceil(loops.columns / tc) * ceil(loops.cout / tm) * inner

    def holds(self, share: float = WEIGHT_SHARE) -> int:
        """Return how many elements of weights it can keep."""
        return int(self.gigabytes * share * 8e9 / BITS)


ACCELERATORS = (
    FixedEngine("cnn_1", CONV, "Arria10 GX1150", 86.6, 2, 370, 37.46),
    FixedEngine("cnn_2", CONV, "VC707", 61.62, 1, 100, 18.6),
    FixedEngine("cnn_3", CONV, "ZCU102", 75, 0.5, 100, 27),
    FixedEngine("cnn_4", CONV, "ZC706", 28, 1, 100, 10),
    FixedEngine("cnn_6", CONV, "Stratix-V GSMD5", 73, 2, 100, 25),
    FixedEngine("cnn_7", CONV, "GX1150", 130, 4, 150, 21.2),
    FixedEngine("cnn_8", CONV, "GX1150", 44, 1, 200, 8),
    FixedEngine("cnn_9", CONV, "GT1150", 36, 1, 200, 30),
    FixedEngine("fc_10", FC, "XCKU060", 282, 1, 150, 41),
    FixedEngine("fc_11", FC, "XCKU060", 1.2, 1, 150, 9),
    FixedEngine("lstm_12", LSTM, "PYNQ-Z1", 0.8, 0.256, 150, 2.29, port=256),
    FixedEngine("lstm_13", LSTM, "VC707", 10, 1, 150, 19.63),
)
"""Figures as in the public code that H2H's successor uses; there is no cnn_5. Two rates are a tenth of the published."""

BANDWIDTHS = (0.125e9, 0.15e9, 0.25e9, 0.5e9, 1.25e9)
"""Bytes per second between an accelerator and the host, in the published sweep."""


class Transfers(NamedTuple):
    """Elements that a layer moves over its accelerator's link to the host when nothing is kept."""

    weights: int
    input: int
    rest: int  # of the input, what comes from other branches
    output: int


def transfers(layer: WorkLayer, *, repaired: bool = False) -> Transfers:
    """Return what a layer reads and writes, as H2H counts it, or repaired."""
    loops = layer.loops
    if layer.kind != CONV:
        read = loops.batch * loops.cin * loops.rows * layer.steps
        return Transfers(layer.stored, read, 0, layer.output_elements * layer.steps)
    if not repaired:
        return Transfers(layer.weights, layer.channels * 2 * loops.rows * 2 * loops.columns, 0, layer.output_elements)
    rows, columns = layer.read
    return Transfers(layer.weights, layer.input_elements, layer.fresh * rows * columns, layer.output_elements)


class CostTable(NamedTuple):
    """Seconds of each layer on each accelerator; infinite where it cannot run."""

    names: tuple[str, ...]
    compute: np.ndarray[tuple[int, int], np.dtype[np.float64]]  # layer, accelerator
    weights: np.ndarray[tuple[int], np.dtype[np.float64]]  # seconds over the link
    input: np.ndarray[tuple[int], np.dtype[np.float64]]
    rest: np.ndarray[tuple[int], np.dtype[np.float64]]  # of the input, if the predecessor in the branch is at hand
    output: np.ndarray[tuple[int], np.dtype[np.float64]]
    watts: tuple[float, ...]
    holds: tuple[int, ...]  # elements of weights
    stored: tuple[int, ...]  # elements of weights of each layer


def cost_table(
    workload: Workload,
    bandwidth: float,
    accelerators: tuple[FixedEngine, ...] = ACCELERATORS,
    *,
    repaired: bool = False,
    share: float = WEIGHT_SHARE,
) -> CostTable:
    """Return what every layer costs everywhere; `bandwidth` in bytes per second to the host."""
    compute = np.array([
        [a.compute(layer) if a.kind == layer.kind else np.inf for a in accelerators] for layer in workload.layers
    ])  # fmt: skip
    moved = np.array([transfers(layer, repaired=repaired) for layer in workload.layers], float) * BITS / (8 * bandwidth)
    return CostTable(
        tuple(a.name for a in accelerators),
        compute,
        moved[:, 0],
        moved[:, 1],
        moved[:, 2],
        moved[:, 3],
        tuple(a.watts for a in accelerators),
        tuple(a.holds(share) for a in accelerators),
        tuple(layer.stored for layer in workload.layers),
    )
