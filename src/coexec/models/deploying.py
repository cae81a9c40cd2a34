"""Run a model as a plan says: its layers as they are cut, and what lies between them where the layer before it ran.

Before: models/sharded.py, models/plan_tree.py.  After: models/model.py.  Knows plans, and devices by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PlanError
from ..program.array import Array
from .extract import HEAVY, layer_numbers
from .operators.calls import OpCall
from .running import RunNode, as_called
from .sharded import LayerCut, cut_calls, in_one_call, run_conv, run_product
from .values import LayerGraph

AXES = 2
"""Spatial axes of a convolution up to which it runs in parts."""


def check_devices(cuts: Sequence[LayerCut], known: Sequence[str]) -> None:
    """Raise PlanError if a plan names a device that is not here."""
    named = sorted({device for cut in cuts for device in cut.devices})
    if missing := [name for name in named if name not in known]:
        raise PlanError(
            f"the plan uses {', '.join(missing)}, and this runtime has {', '.join(known)}; open one with these devices, "
            "or plan for this machine with model.plan()"
        )


class PlannedRun:
    """How operations are run under a plan. `alone` is the one device that does them all; None if there are several."""

    def __init__(self, graph: LayerGraph, cuts: Sequence[LayerCut]) -> None:
        self._cuts, self._layer_of = cuts, layer_numbers(graph)
        used = {device for cut in cuts for device in cut.devices}
        self.alone = used.pop() if len(used) == 1 else None

    def __call__(self, position: int, call: OpCall) -> list[Array]:
        """Run an operation."""
        cut = self._cuts[self._layer_of[position]]
        if call.node.kind in HEAVY:
            found = in_parts(call, cut)
            if found is not None:
                return [found]
        with cut_calls(cut):
            return as_called(position, call)


def planned(graph: LayerGraph, cuts: Sequence[LayerCut]) -> RunNode:
    """Return how operations are run under a plan."""
    return PlannedRun(graph, cuts)


def in_parts(call: OpCall, cut: LayerCut) -> Array | None:
    """Return the result of a layer computed part by part, or None for layers that are one call, placed on their set."""
    if len(cut.devices) == 1:
        return None
    if call.node.kind == "Conv" and len(call.shape) - 2 == AXES and in_one_call(cut):
        return None
    if call.node.kind == "Conv" and len(call.shape) - 2 <= AXES and call.dtype.name in ("float32", "float64"):
        return run_conv(call, cut)
    if call.node.kind in ("Gemm", "MatMul"):
        return run_product(call, cut)
    return None
