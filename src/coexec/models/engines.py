"""Accelerator designs: how many seconds a layer's loop nest takes on one accelerator, from an analytical model.

Before: models/loops.py.  After: models/fabric.py, models/tables.py.  Knows no platform and no other accelerator.

All arguments may be arrays: a search asks for thousands of shapes at once. Amounts are those of one part of a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .loops import CONV

Amounts = np.ndarray[Any, np.dtype[np.float64]]


class LoopSizes(NamedTuple):
    """Loop sizes of many parts at once, each an array or a number that goes with arrays."""

    batch: Amounts
    cout: Amounts
    cin: Amounts
    rows: Amounts
    columns: Amounts
    kh: Amounts
    kw: Amounts


def nest(*sizes: Any) -> LoopSizes:
    """Return loop sizes as arrays of floats, in which products of six sizes cannot overflow."""
    return LoopSizes(*(np.asarray(size, dtype=float) for size in sizes))


def ceil_div(size: Amounts, step: float) -> Amounts:
    """Return how many steps cover a size."""
    return np.ceil(size / step)


class Accounts(NamedTuple):
    """What an analytical model is given besides the loop nest."""

    stride: tuple[int, int] = (1, 1)
    groups: int = 1
    kind: str = CONV


@dataclass(frozen=True, slots=True)
class EngineDesign:
    """A design that an accelerator can be given: how many cycles it takes for a loop nest."""

    name: str
    cycles: Callable[[LoopSizes, Accounts], Amounts]
    about: str
    element: int = 2  # bytes of an element: these engines compute with 16 bits
    figures: tuple[float, ...] = ()  # what makes it differ from another design of the same name
    watts: float | None = None  # while a device works under it; None = what the device draws

    def seconds(self, loops: LoopSizes, accounts: Accounts, clock: float) -> Amounts:
        """Return the seconds of many parts at `clock` hertz."""
        return self.cycles(loops, accounts) / clock


# Tile engine (Super-LIP) ----------------------------------------------------------------------------------------------------

TILE = (64, 7, 13, 13)
"""Output channels, input channels, rows and columns of a tile: Tm, Tn, Tr, Tc."""


def tile_engine_cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
    """Return cycles of a tile engine that computes Tm x Tn products in each cycle, one point and tap after the other."""
    del accounts
    tm, tn, tr, tc = TILE
    tiles = ceil_div(loops.rows, tr) * ceil_div(loops.columns, tc) * ceil_div(loops.cout, tm) * ceil_div(loops.cin, tn)
    return loops.batch * tiles * loops.kh * loops.kw * tr * tc


class Ports(NamedTuple):
    """Words that a tile engine's memory ports move in a cycle."""

    input: float
    weights: float
    output: float


def tile_engine_with_ports(loops: LoopSizes, ports: Ports, tile: tuple[int, int, int, int] = TILE) -> Amounts:
    """Return cycles of a tile engine whose loads, products and stores overlap: the slowest of them counts."""
    tm, tn, tr, tc = tile
    load = tn * tr * tc / ports.input
    weights = tm * tn * loops.kh * loops.kw / ports.weights
    store = tm * tr * tc / ports.output
    first = np.maximum(loops.kh * loops.kw * tr * tc, np.maximum(load, weights))
    second = np.maximum(ceil_div(loops.cin, tn) * first, store)
    tiles = ceil_div(loops.rows, tr) * ceil_div(loops.columns, tc) * ceil_div(loops.cout, tm)
    return loops.batch * tiles * second + store + first


# Systolic array -------------------------------------------------------------------------------------------------------------

ARRAY = (11, 13, 8)
"""Rows of the array take output channels, columns take output columns, lanes take input channels."""


def systolic_cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
    """Return cycles of a systolic array: three loops are mapped to it, the others run one after the other."""
    del accounts
    rows, columns, lanes = ARRAY
    mapped = ceil_div(loops.cout, rows) * ceil_div(loops.columns, columns) * ceil_div(loops.cin, lanes)
    return loops.batch * mapped * loops.rows * loops.kh * loops.kw


# Winograd engine ------------------------------------------------------------------------------------------------------------

WINOGRAD = (6, 2, 8)
"""Side of a transformed tile, and input and output channels that are computed at once: n, Pn, Pm."""
TAPS = 3
"""Rows and columns of the one kernel that the transform is made for."""


def winograd_cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
    """Return cycles of a Winograd engine F(m x m, 3 x 3); larger kernels and strides by decomposition."""
    n, pn, pm = WINOGRAD
    m = n - TAPS + 1
    tiles = ceil_div(loops.cout, pm) * ceil_div(loops.cin, pn) * ceil_div(loops.rows, m) * ceil_div(loops.columns, m)
    pieces = ceil_div(loops.kh, TAPS) * ceil_div(loops.kw, TAPS) * accounts.stride[0] * accounts.stride[1]
    return loops.batch * tiles * pieces


ENGINES = {
    engine.name: engine
    for engine in (
        EngineDesign("superlip", tile_engine_cycles, "tile engine, 64 x 7 products per cycle"),
        EngineDesign("systolic", systolic_cycles, "systolic array, 11 x 13 x 8 products per cycle"),
        EngineDesign("winograd", winograd_cycles, "Winograd F(4 x 4, 3 x 3), 576 products per cycle"),
    )
}
"""Every analytical design by the name that a platform file gives it."""


def roofline_design(name: str, flops: float, bandwidth: float | None, launch: float = 0.0) -> EngineDesign:
    """Return what is known of a device without designs: its peak rates, as cycles of a clock of one hertz.

    Operands are read once, and each layer costs a launch.
    """

    def cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
        products = loops.batch * loops.cout * loops.cin * loops.rows * loops.columns * loops.kh * loops.kw
        rows, columns = loops.rows * accounts.stride[0], loops.columns * accounts.stride[1]
        moved = loops.batch * (loops.cin * rows * columns + loops.cout * loops.rows * loops.columns)
        moved = moved + loops.cout * loops.cin * loops.kh * loops.kw
        seconds = 2 * products / flops
        return (np.maximum(seconds, moved * FLOAT / bandwidth) if bandwidth else seconds) + launch

    return EngineDesign(name, cycles, "peak rates", FLOAT, (flops, bandwidth or 0.0, launch))


FLOAT = 4
"""Bytes of a float32, with which devices without designs compute."""
