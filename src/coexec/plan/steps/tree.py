"""A step's plan as a tree of plain data: one node for the step, and one for each of its calls.

Before: plan/plan.py, profile.py, account.py.  After: planner.py.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...predict.features import share_of_work
from ..plan import Part, Plan
from .account import PlanAccount
from .bounds import Target, lower_limit
from .choose import Considered
from .cuts import StepParts, part_seconds
from .profile import CallProfile, StepProfile


def step_plan(step: StepProfile, account: PlanAccount, considered: Sequence[Considered], machine: Target) -> Plan:
    """Return the plan of a step."""
    calls = tuple([call_plan(c.profile, p, machine) for c, p in zip(step.calls, account.plan, strict=True)])
    return Plan(
        "step",
        " ".join(dict.fromkeys(call.profile.name for call in step.calls)),
        "",
        (),
        (),
        account.estimated.period if account.estimated is not None else None,
        why=f"{len(calls)} calls on {', '.join(account.devices)}",
        limit_s=lower_limit(step, machine),
        children=calls,
        considered={_label(c.account): c.account.period for c in considered if c.account is not None},
        left_out={",".join(c.devices): c.why for c in considered if c.account is None},
        measured_s=account.measured,
    )


def followed(step: StepProfile, account: PlanAccount) -> Plan:
    """Return the plan of a step as far as calls follow it: where their parts are, and nothing that is predicted."""
    calls = tuple([_where(call.profile, parts) for call, parts in zip(step.calls, account.plan, strict=True)])
    return Plan("step", "", "", (), (), None, children=calls)


def _where(call: CallProfile, parts: StepParts) -> Plan:
    """Return the plan of a call without times."""
    volume = call.box.volume or 1
    made = tuple(
        [
            Part(p.device, call.devices[p.device].variant.name, p.box.lo, p.box.hi, p.box.volume / volume)
            for p in parts
            if not call.host
        ]
    )
    return Plan("kernel", call.name, call.text, call.task.extents, made, None, axis=call.axis)


def _label(account: PlanAccount) -> str:
    """Return what to call a plan: by its devices, unless each call was planned by itself."""
    devices = ",".join(account.devices)
    return devices if account.shares or len(account.devices) < 2 else f"{devices}, call by call"


def call_plan(call: CallProfile, parts: StepParts, machine: Target) -> Plan:
    """Return the plan of one call of a step."""
    seconds = [] if call.host else part_seconds(call, parts, machine.platform)
    made = tuple(
        [
            Part(
                part.device,
                call.devices[part.device].variant.name,
                part.box.lo,
                part.box.hi,
                share_of_work(call.task, part.box),
                compute_s=took,
                finish_s=took,
                source="regression",
            )
            for part, (_, took) in zip(parts, seconds, strict=True)
        ]
        if seconds
        else []
    )
    return Plan(
        "kernel",
        call.name,
        call.text,
        call.task.extents,
        made,
        max([took for _, took in seconds], default=None),
        axis=call.axis,
        why="as the plan of its step says",
    )
