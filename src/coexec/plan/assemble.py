"""Put a planner together as the options say.

Before: every module of plan/.  After: assembly.py.  Takes the whole Config, since most options are about planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..config import Config, blamed
from ..graph.task import Task
from ..machine.abilities import abilities_of
from ..machine.platform import Platform
from ..predict.learned import Learned
from .candidate import Candidates, Residency
from .division.divider import Divider
from .plan import check_ranks, load_plans
from .planner import Planner
from .policies import Loads, load_placement
from .reproducible import AlikeCandidates, AlikePlanner


class Runs(Protocol):
    """What is asked of whatever drives a device."""

    kind: str
    runs_python: bool

    def supports(self, dtype: Any) -> bool:
        """Tell whether the device holds elements of this type."""


class Told(Protocol):
    """Who is told what is odd about a program."""

    def conflict(self, task: Task, text: str, both_write: bool) -> None:
        """Take note that parts of a task get in each other's way. May raise."""

    def kept_out(self, task: Task, devices: Sequence[str]) -> None:
        """Take note that devices do nothing of a task because its arguments overlap."""


def make_candidates(
    platform: Platform,
    learned: Learned,
    drivers: Mapping[str, Runs],
    residency: Residency | None = None,
    *,
    reproducible: bool = False,
    compiled: bool = True,
) -> Candidates:
    """Return who could run what, as far as the devices' drivers and the room in their memories say."""
    can = {device.name: device.abilities for device in platform.devices}
    names, invented = list(can), {name for name in can if abilities_of(drivers[name].kind).invented}
    runs_python = {name: drivers[name].runs_python for name in names}
    runs_python |= {name: can[name].runs_python for name in invented if can[name].driven}  # as the real one would
    kind = AlikeCandidates if reproducible else Candidates
    supports = {name: drivers[name].supports for name in names}
    return kind(platform, learned, runs_python, supports, invented, residency, compiled=compiled)


def make_planner(
    config: Config,
    platform: Platform,
    candidates: Candidates,
    loads: Loads,
    cache: int,
    note: Callable[[str], None] | None,
    told: Told,
    residency: Residency,
) -> Planner:
    """Return a planner. `cache` is how many bytes a piece may touch; remarks go to `note`, oddities to `told`."""
    divider = Divider(
        platform,
        residency,
        cache,
        objective=config.objective,
        cap=config.energy_cap or None,
    )
    with blamed("placement", config.placement):
        placement = load_placement(config.placement, loads, config.data_threshold)
    with blamed("plan", config.plan):
        plans = load_plans(config.plan) if config.plan else []
        check_ranks(plans, 1)
    kind = AlikePlanner if config.reproducible else Planner
    return kind(
        candidates,
        placement,
        loads,
        residency,
        divider,
        policy=config.policy,
        objective=config.objective,
        plans=plans,
        cache=cache,
        note=note,
        tell=told.conflict,
        remark=told.kept_out,
    )
