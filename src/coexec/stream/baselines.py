"""Pipelines to compare a front with: one device, one class of devices, and each kind of kernel tied to one class.

Before: stream/planning.py.  After: cli/plan_pipeline.py, bench/.  Searches with the planner itself, on less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod

from ..errors import PlanError
from ..plan.pipeline import PipelinePoint, StreamWork, plan_pipeline
from ..plan.pipeline.front import OBJECTIVES
from .planning import PreparedFront

MOST_TIES = 64  # ways to tie kinds of kernels to classes that are tried


def kind_of(name: str) -> str:
    """Return the kind of a call: its kernel, without its number."""
    return name.partition(".")[2] or name


Alike = Mapping[str, tuple[str, ...]]
"""The devices of each class: classes with the same devices are their designs."""


def tied(work: StreamWork, members: Alike, chosen: Mapping[str, tuple[str, ...]]) -> StreamWork:
    """Return a workload in which each kind of kernel runs on some devices that are alike only, whatever their design."""
    kernels = [
        replace(
            kernel,
            seconds={
                name: t for name, t in kernel.seconds.items() if members.get(name) == chosen[kind_of(kernel.name)]
            },
        )
        for kernel in work.kernels
    ]
    return replace(work, kernels=tuple(kernels))


def ways_to_tie(work: StreamWork, members: Alike) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield assignments of kinds of kernels to devices that are alike, at most MOST_TIES of them."""
    able: dict[str, list[tuple[str, ...]]] = {}
    for kernel in work.kernels:
        names = list(dict.fromkeys(members[name] for name in kernel.seconds if name in members))
        kind = kind_of(kernel.name)
        able[kind] = [name for name in able.get(kind, names) if name in names]
    if not all(able.values()) or prod(len(names) for names in able.values()) > MOST_TIES:
        return
    for chosen in product(*able.values()):
        yield dict(zip(able, chosen, strict=True))


def best_tied(prepared: PreparedFront, objective: str) -> PipelinePoint | None:
    """Return the best pipeline in which each kind of kernel is tied to one class; None if there are too many ways."""
    found = []
    for chosen in ways_to_tie(prepared.work, prepared.members):
        try:
            found.append(
                plan_pipeline(tied(prepared.work, prepared.members, chosen), prepared.system, shared=True).choose(
                    objective
                )
            )
        except PlanError:
            continue
    return min(found, key=OBJECTIVES[objective], default=None)


def compared(prepared: PreparedFront, objective: str) -> dict[str, PipelinePoint]:
    """Return pipelines to compare with, by name: the best single device, the best single class, kinds tied to classes."""
    key = OBJECTIVES[objective]
    found = {}
    singles = prepared.singles()
    if singles:
        name = min(singles, key=lambda n: key(singles[n]))
        found[f"one {name}"] = singles[name]
    classes = prepared.one_class(objective)
    if classes:
        name = min(classes, key=lambda n: key(classes[n]))
        found[f"all {name}"] = classes[name]
    static = best_tied(prepared, objective)
    if static is not None:
        found["each kind of kernel on one class"] = static
    return found
