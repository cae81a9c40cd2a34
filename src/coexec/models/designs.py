"""All designs that an accelerator of a platform can have, by name: the analytical engines, and H2H's twelve.

Before: models/engines.py, models/h2h_costs.py.  After: models/fabric.py.
"""

from __future__ import annotations

import numpy as np

from ..errors import unknown_name
from .engines import ENGINES, Accounts, Amounts, EngineDesign, Nest, ceil_div
from .h2h_costs import ACCELERATORS, BITS, FixedEngine
from .loops import CONV


def fixed_design(one: FixedEngine) -> EngineDesign:
    """Return one of H2H's accelerators as a design: loading and computing a tile follow each other, as coded there."""
    clock = one.megahertz * 1e6
    rate, port = one.gops * 1e9, one.port * clock

    def convolution(loops: Nest) -> Amounts:
        tm, tn, tr, tc = one.tile
        taps = loops.kh * loops.kw
        products = 2 * tr * tc * tm * tn * taps / rate
        load = (tm * tn * taps + tn * one.input_tile) * BITS / port
        inner = ceil_div(loops.cin, tn) * (load + products) + tm * tr * tc * BITS / port
        return loops.batch * ceil_div(loops.rows, tr) * ceil_div(loops.columns, tc) * ceil_div(loops.cout, tm) * inner

    def product(loops: Nest) -> Amounts:
        rows = loops.batch * loops.rows
        load = (loops.cout * loops.cin + loops.cin * rows) * BITS / port
        return np.maximum(np.maximum(load, 2 * loops.cout * loops.cin * rows / rate), loops.cout * rows * BITS / port)

    def cycles(loops: Nest, accounts: Accounts) -> Amounts:
        if accounts.kind != one.kind:
            return np.broadcast_to(np.inf, np.broadcast_shapes(*(np.shape(size) for size in loops))).astype(float)
        return (convolution(loops) if one.kind == CONV else product(loops)) * clock

    return EngineDesign(f"h2h.{one.name}", cycles, f"{one.kind} engine on {one.board}", BITS // 8, (one.gops, clock))


DESIGNS: dict[str, EngineDesign] = ENGINES | {f"h2h.{one.name}": fixed_design(one) for one in ACCELERATORS}
"""Every design by the name that a platform file gives it."""


def design(name: str) -> EngineDesign:
    """Return the design of that name."""
    if name not in DESIGNS:
        raise unknown_name("design", name, list(DESIGNS))
    return DESIGNS[name]
