"""A Plan for one call, without making the call: what the planner would do, and what is predicted of it.

Before: plan/planner.py, plan/division/divided.py.  After: schedule/scheduler.py.  Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..geometry import Box
from ..graph.task import Task
from ..predict.features import share_of_work
from ..predict.work import Estimate, Work
from .candidate import Candidate, Share
from .division.divided import Divided
from .division.offers import Times, joules
from .plan import Part, Plan
from .planned import Planned
from .policies import Loads, Where


class LookedAt(NamedTuple):
    """What the planner saw before it decided."""

    divided: Divided | None  # the division that was looked at, whether or not it was made
    whole: str  # why it was not
    candidates: Sequence[Candidate]
    unfit: dict[str, str]  # devices that cannot run it, and why
    alone: dict[str, float]  # seconds of each device doing all of it, copies included
    work: Work
    loading: Mapping[str, float]  # seconds until each device can begin that must load a design first


def preview(task: Task, planned: Planned, looked_at: LookedAt, *, objective: str, policy: str) -> Plan:
    """Return what was planned for `task` as data."""
    divided, candidates, loading = looked_at.divided, looked_at.candidates, looked_at.loading
    alone = {device: seconds + loading.get(device, 0.0) for device, seconds in looked_at.alone.items()}
    chunks, shares = planned.command.chunks, planned.shares
    kept = divided if divided is not None and divided.chunks == chunks else None
    times = dict(zip([o.device for o in kept.offers], kept.division.times, strict=True)) if kept is not None else {}
    parts = _in_turn(
        [
            _part(chunk.device, chunk.box, share, share_of_work(task, chunk.box), times.get(chunk.device))
            for chunk, share in zip(chunks, shares, strict=True)
        ],
        times,
        loading,
    )
    finishes = [part.finish_s for part in parts]
    seconds = max((f for f in finishes if f is not None), default=None) if None not in finishes else None
    left_out = dict(looked_at.unfit)
    if divided is not None:
        left_out |= divided.division.left_out
    used = {chunk.device for chunk in chunks}
    for candidate in candidates:
        if candidate.name not in used and candidate.name not in left_out:
            left_out[candidate.name] = looked_at.whole or _slower(candidate, alone, seconds)
    return Plan(
        "kernel",
        task.name,
        repr(task.key),
        task.extents,
        parts,
        seconds,
        spread=max((part.spread for part in parts), default=0.0),
        joules=joules(kept.offers, kept.division.times) if kept is not None and _powered(kept) else None,
        objective=objective,
        policy=policy,
        axis=planned.site.axis if planned.site is not None else (kept.site.axis if kept is not None else None),
        single=alone,
        left_out={device: why for device, why in left_out.items() if device not in used},
        why=(planned.command.why or "the device that is predicted to finish first") + _off(task),
        limit_s=_limit(parts, candidates, looked_at.work),
    )


def _off(task: Task) -> str:
    """Return which variants of a task's kernel are off, and why."""
    variants = task.kernel.variants if task.kernel is not None else ()
    return "".join([f"; variant {v.name!r} is off: {v.off}" for v in variants if v.off])


def _in_turn(parts: Sequence[Part], times: Mapping[str, Times], loading: Mapping[str, float]) -> tuple[Part, ...]:
    """Return the parts of a device one after the other, unless a division says when it is done with all of them.

    Those come first that take `loading` seconds until they can begin.
    """
    ends: dict[str, float | None] = {}
    found = []
    for part in parts:
        before, end = ends.get(part.device, loading.get(part.device, 0.0)), part.finish_s
        if part.device not in times and end is not None:
            end = None if before is None else before + end
        ends[part.device] = end
        found.append(replace(part, finish_s=end))
    return tuple(found)


def _limit(parts: Sequence[Part], candidates: Sequence[Candidate], work: Work) -> float | None:
    """Return the seconds with every device at its best speed that is known, from the first moment, and nothing to copy.

    Its best speed is that of doing all of it, or that of doing its part, which may fit a cache or run in another way.
    So no plan is predicted to be faster. All cores as one device count in place of the cores, not beside them.
    """
    rates: dict[str, float] = {}
    for candidate in candidates:
        estimate = candidate.model.estimate(work)
        if estimate is not None and estimate.seconds > 0.0:
            rates[candidate.name] = max(rates.get(candidate.name, 0.0), 1.0 / estimate.seconds)
    for device in {part.device for part in parts}:
        mine = [part for part in parts if part.device == device]
        computing = sum(part.compute_s or 0.0 for part in mine)
        took = min(computing, max(part.finish_s or 0.0 for part in mine))
        if took > 0.0:
            rates[device] = max(rates.get(device, 0.0), sum(part.share for part in mine) / took)
    wide = {c.name: c.device for c in candidates if c.wide and c.name in rates}
    within = {
        c.name for c in candidates if not c.wide and any(set(c.device.cores) & set(d.cores) for d in wide.values())
    }
    cores = max([sum(rates.get(name, 0.0) for name in within), *[rates[name] for name in wide]])
    total = cores + sum(rate for name, rate in rates.items() if name not in wide and name not in within)
    return 1.0 / total if total else None


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


def who_is_first(candidates: Sequence[Candidate], work: Work, loads: Loads) -> str:
    """Return why a task that is not divided goes where it does: what each device is predicted to take, and after what."""
    parts = []
    for candidate in candidates:
        seconds = candidate.model.seconds(work)
        known = f"{seconds * 1e3:.3g} ms" if seconds is not None else "unknown"
        parts.append(f"{candidate.name} {known} after {loads.seconds[candidate.name] * 1e3:.3g} ms of work")
    return "earliest predicted finish: " + ", ".join(parts)
