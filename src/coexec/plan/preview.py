"""A Plan for one call, without making the call: what the planner would do, and what is predicted of it.

Before: plan/planner.py, plan/divided.py.  After: runtime.py.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..geometry import Box
from ..graph.task import Task
from ..predict.work import Estimate, Work
from .candidate import Candidate, Share
from .divided import Divided
from .offer import Times, joules
from .place import Loads, Where
from .plan import Part, Plan
from .planned import Planned


def preview(
    task: Task,
    planned: Planned,
    divided: Divided | None,
    candidates: Sequence[Candidate],
    unfit: dict[str, str],
    alone: dict[str, float],
    *,
    objective: str,
    policy: str,
) -> Plan:
    """Return what was planned for `task` as data."""
    chunks, shares = planned.command.chunks, planned.shares
    kept = divided if divided is not None and divided.chunks == chunks else None
    times = dict(zip([o.device for o in kept.offers], kept.division.times, strict=True)) if kept is not None else {}
    total = task.box.volume or 1
    parts = tuple(
        _part(chunk.device, chunk.box, share, chunk.box.volume / total, times.get(chunk.device))
        for chunk, share in zip(chunks, shares, strict=True)
    )
    finishes = [part.finish_s for part in parts]
    seconds = max((f for f in finishes if f is not None), default=None) if None not in finishes else None
    left_out = dict(unfit)
    if divided is not None:
        left_out |= divided.division.left_out
    used = {chunk.device for chunk in chunks}
    for candidate in candidates:
        if candidate.name not in used and candidate.name not in left_out:
            left_out[candidate.name] = _slower(candidate, alone, seconds)
    return Plan(
        "kernel",
        task.name,
        repr(task.key),
        task.space,
        parts,
        seconds,
        spread=max((part.spread for part in parts), default=0.0),
        joules=joules(kept.offers, kept.division.times) if kept is not None and _powered(kept) else None,
        objective=objective,
        policy=policy,
        axis=planned.site.axis if planned.site is not None else (kept.site.axis if kept is not None else None),
        single=alone,
        left_out={device: why for device, why in left_out.items() if device not in used},
        why=planned.command.why or "the device that is predicted to finish first",
    )


def _part(device: str, box: Box, share: Share, fraction: float, times: Times | None) -> Part:
    estimate: Estimate | None = None
    if share.model is not None and share.work is not None:
        estimate = share.model.estimate(share.work, together=share.together)
    compute = None if estimate is None else estimate.seconds
    return Part(
        device,
        share.variant.name,
        box.lo,
        box.hi,
        fraction,
        input_s=times.input_end - times.input_start if times is not None else 0.0,
        compute_s=compute,
        output_s=times.finish - times.compute_end if times is not None else 0.0,
        finish_s=times.finish if times is not None and compute is not None else compute,  # no guess is passed on
        spread=estimate.spread if estimate is not None else 1.0,
        source=estimate.source if estimate is not None else "unknown",
    )


def _powered(divided: Divided) -> bool:
    return any(offer.watts for offer in divided.offers)


def _slower(candidate: Candidate, alone: dict[str, float], seconds: float | None) -> str:
    mine = alone.get(candidate.name)
    if candidate.wide:
        took = "not measured" if mine is None else f"{mine * 1e3:.3g} ms"
        return f"it is all cores as one device ({took}), and the cores are used one by one"
    if mine is None:
        return "nothing is known of its speed here"
    if seconds is None:
        return f"alone it would take {mine * 1e3:.3g} ms"
    return f"alone it would take {mine * 1e3:.3g} ms, and a part for it would not shorten the {seconds * 1e3:.3g} ms"


def alone_seconds(candidates: Sequence[Candidate], work: Work, loads: Loads, where: Where) -> dict[str, float]:
    """Return the predicted seconds of each device doing all of `work` by itself, copies included.

    All cores as one device stand aside: beside the cores themselves they would count twice.
    """
    found: dict[str, float] = {}
    held = where()
    for candidate in [c for c in candidates if not c.wide] or candidates:
        estimate = candidate.model.estimate(work)
        if estimate is not None:
            seconds = estimate.seconds + loads.transfer(candidate.memory, held)
            found[candidate.name] = min(seconds, found.get(candidate.name, seconds))
    return found
