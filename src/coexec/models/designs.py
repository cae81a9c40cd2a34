"""All designs that an accelerator of a platform can have: the analytical engines and H2H's twelve by name, others by their tables.

Before: models/engines.py, models/h2h_costs.py, machine/parts.py.  After: models/fabric.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..errors import PlanError, unknown_name
from ..machine.parts import AchievedRate, Device, DeviceDesign
from .engines import ENGINES, Accounts, Amounts, EngineDesign, LoopSizes, ceil_div, roofline_design
from .h2h_costs import ACCELERATORS, BITS, FixedEngine
from .loops import CONV, FC, LSTM

OPS: Mapping[str, tuple[str, ...]] = {CONV: ("conv2d",), FC: ("matmul", "gemm"), LSTM: ("matmul", "gemm")}
"""The operations that a layer of each kind consists of, as platform files call them; one of them will do."""


def never(loops: LoopSizes) -> Amounts:
    """Return infinite amounts for many parts: a design that cannot compute them."""
    return np.broadcast_to(np.inf, np.broadcast_shapes(*(np.shape(size) for size in loops))).astype(float)


def fixed_design(one: FixedEngine) -> EngineDesign:
    """Return one of H2H's accelerators as a design: loading and computing a tile follow each other, as coded there."""
    clock = one.megahertz * 1e6
    rate, port = one.gops * 1e9, one.port * clock

    def convolution(loops: LoopSizes) -> Amounts:
        tm, tn, tr, tc = one.tile
        taps = loops.kh * loops.kw
        products = 2 * tr * tc * tm * tn * taps / rate
        load = (tm * tn * taps + tn * one.input_tile) * BITS / port
        inner = ceil_div(loops.cin, tn) * (load + products) + tm * tr * tc * BITS / port
        return loops.batch * ceil_div(loops.rows, tr) * ceil_div(loops.columns, tc) * ceil_div(loops.cout, tm) * inner

    def product(loops: LoopSizes) -> Amounts:
        rows = loops.batch * loops.rows
        load = (loops.cout * loops.cin + loops.cin * rows) * BITS / port
        return np.maximum(np.maximum(load, 2 * loops.cout * loops.cin * rows / rate), loops.cout * rows * BITS / port)

    def cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
        if accounts.kind != one.kind:
            return never(loops)
        return (convolution(loops) if one.kind == CONV else product(loops)) * clock

    return EngineDesign(f"h2h.{one.name}", cycles, f"{one.kind} engine on {one.board}", BITS // 8, (one.gops, clock))


DESIGNS: dict[str, EngineDesign] = ENGINES | {f"h2h.{one.name}": fixed_design(one) for one in ACCELERATORS}
"""Every design by the name that a platform file gives it."""


def design(name: str) -> EngineDesign:
    """Return the design of that name."""
    if name not in DESIGNS:
        raise unknown_name("design", name, list(DESIGNS))
    return DESIGNS[name]


def designs_of(device: Device) -> tuple[EngineDesign, ...]:
    """Return the designs that a device can be given: as its own tables say, else those of that name."""
    tables = {known.name: known for known in device.configurations}
    names = dict.fromkeys([*device.designs, *tables])
    return tuple([tabled_design(device, tables[name]) if name in tables else design(name) for name in names])


def tabled_design(device: Device, known: DeviceDesign) -> EngineDesign:
    """Return a design as a platform's table states it: which operations it does, at which part of the device's peak.

    A table without rates, whose name is that of an analytical engine, has that engine's cycles for what it does.
    """
    parts = {kind: part_of_peak(known.achieved, known.ops, kind) for kind in OPS}
    watts = drawn_watts(known.achieved)
    engine = DESIGNS.get(known.name) if not known.achieved else None
    if engine is None:
        made = rated_design(known.name, device, parts, device.clock or 1.0)
        figures = (*made.figures, *parts.values(), watts or 0.0)
        return replace(made, about=known.basis or made.about, figures=figures, watts=watts)

    def cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
        return engine.cycles(loops, accounts) if parts[accounts.kind] else never(loops)

    return replace(engine, cycles=cycles, figures=(*parts.values(), watts or 0.0), watts=watts)


def plain_design(name: str, device: Device) -> EngineDesign:
    """Return what is known of a device without designs: its peaks, and what it reaches of them in a layer's operations."""
    parts = {
        kind: part_of_peak(device.achieved, [op for op in ops if device.does(op)], kind) for kind, ops in OPS.items()
    }
    made = rated_design(name, device, parts, 1.0)
    watts = drawn_watts(device.achieved)
    if set(parts.values()) == {1.0} and watts is None:
        return made
    return replace(made, figures=(*made.figures, *parts.values(), watts or 0.0), watts=watts)


def rated_design(name: str, device: Device, parts: Mapping[str, float], clock: float) -> EngineDesign:
    """Return a design that reaches a part of a device's peak in each kind of layer; 0 is what it cannot do."""
    rate = device.rate("float32")
    if rate is None:
        raise PlanError(f"the speed of {device.name} as {name!r} is not known; give the device `flops`")
    peak = roofline_design(name, rate, device.bandwidth, device.launch or 0.0)
    each = {
        kind: roofline_design(name, rate * part, device.bandwidth, device.launch or 0.0)
        for kind, part in parts.items()
        if part
    }

    def cycles(loops: LoopSizes, accounts: Accounts) -> Amounts:
        able = each.get(accounts.kind)
        return never(loops) if able is None else able.cycles(loops, accounts) * clock

    return replace(peak, cycles=cycles)


def part_of_peak(achieved: Sequence[AchievedRate], ops: Sequence[str], kind: str) -> float:
    """Return the part of a device's peak that a kind of layer reaches with some operations; 0 if it needs another one."""
    able = [op for op in OPS[kind] if op in ops]
    return max([one.of_peak for one in achieved if one.op in able], default=1.0 if able else 0.0)


def drawn_watts(achieved: Sequence[AchievedRate]) -> float | None:
    """Return what a device draws in the layers' operation that needs most; None if nothing is stated."""
    every = {op for ops in OPS.values() for op in ops}
    return max([one.watts for one in achieved if one.watts is not None and one.op in every], default=None)
