"""Plans whose results have the same bits whatever the devices, shares, order, ranks and policy: `reproducible=True`.

Before: plan/fixed_blocks.py, plan/planner.py.  After: plan/assemble.py.  Decides by what is declared, never by what was measured.

A kernel's Python body on NumPy arrays is what everybody must agree with. A device that does not run it takes part with a
variant that declares `cx.exact`, and is left out otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvariantError, PlanError
from ..graph.task import Task
from ..program.kernel import Kernel
from ..program.variant import Variant, exact
from .candidate import Candidate, Candidates, Choice
from .fixed_blocks import in_blocks, set_grain
from .plan import Plan
from .planned import Planned
from .planner import Planner

ALL_CORES = "reproducible=True: how many threads a library uses changes bits, so cores compute one by one"
Exclusions = dict[str, str]


class AlikeCandidates(Candidates):
    """Finds who computes a kernel with the bits of its Python body."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._left_out: dict[Kernel, Exclusions] = {}

    def _find(self, kernel: Kernel, devices: str | None) -> Choice:
        found = super()._find(kernel, devices).all
        kept, left_out = exact_only(found)
        self._left_out[kernel] = self._left_out.get(kernel, {}) | left_out
        if not kept:
            raise PlanError(
                f"kernel {kernel.name!r}: with reproducible=True its Python body decides the bits, and none of the devices "
                f"computes them ({'; '.join(f'{device}: {why}' for device, why in left_out.items())}); allow a CPU device "
                "(devices='...,cpu:0'), or declare numerics=cx.exact for a variant that gives NumPy's bits"
            )
        return Choice(kept, [], all(c.device.abilities.on_numpy for c in kept))

    def unfit(self, task: Task) -> Exclusions:
        assert task.kernel is not None
        return super().unfit(task) | self.left_out(task.kernel)

    def left_out(self, kernel: Kernel) -> Exclusions:
        """Return the devices that could run a kernel, but with other bits, and why."""
        return self._left_out.get(kernel, {})

    def forget(self) -> None:
        super().forget()
        self._left_out = {}  # not cleared: any thread may ask for this


def exact_only(found: Sequence[Candidate]) -> tuple[list[Candidate], Exclusions]:
    """Return one candidate per device that gives the bits of the Python body, and the devices without, with the reason."""
    kept: dict[str, Candidate] = {}
    left_out: Exclusions = {}
    for candidate in found:
        known = kept.get(candidate.name)
        if _is_exact(candidate.variant) and (known is None or candidate.variant.kind == "python"):
            kept[candidate.name] = candidate
    for candidate in found:
        if candidate.name not in kept:
            variant = candidate.variant
            left_out[candidate.name] = (
                f"reproducible=True: its variant {variant.name!r} is {variant.numerics}, not exact: other bits than NumPy's"
            )
    cores = [c for c in kept.values() if c.device.is_core]
    for wide in [c.name for c in kept.values() if c.wide and cores]:
        del kept[wide]
        left_out[wide] = ALL_CORES
    return list(kept.values()), left_out


def _is_exact(variant: Variant) -> bool:
    other = variant.elsewhere
    return variant.numerics == exact and (other is None or other.numerics == exact)


class AlikePlanner(Planner):
    """Plans tasks in fixed blocks."""

    _candidates: AlikeCandidates

    def plan(self, task: Task, *, idle: bool = False) -> Planned:
        """Return the command: chunks are runs of blocks that depend on shapes alone."""
        set_grain(task, self._conflicts.independent)
        planned = super().plan(task, idle=idle)
        command = planned.command
        if task.kernel is None or task.kernel.host:
            return planned
        chunks = tuple([in_blocks(task, chunk) for chunk in command.chunks])
        if not task.shapes:  # pieces are mapped by whoever runs them
            task.shapes = [array.shape for array in task.arrays]
        if any(chunk.pieces for chunk in chunks):
            task.map_parts()
        left_out = self._candidates.left_out(task.kernel)
        why = (
            f"{command.why or 'earliest predicted finish'}; left out: {', '.join(left_out)} (other bits)"
            if left_out
            else command.why
        )
        return planned._replace(command=command._replace(chunks=chunks, why=why))

    def _followed(
        self, task: Task, plan: Plan, candidates: Sequence[Candidate], *, loosely: bool = False
    ) -> Planned | None:
        followed = super()._followed(task, plan, candidates, loosely=loosely)
        if followed is not None:
            try:
                for chunk in followed.command.chunks:
                    in_blocks(task, chunk)
            except InvariantError as error:
                raise PlanError(
                    f"the plan for {task.name!r} was made without reproducible=True: {error}; make it anew"
                ) from None
        return followed
