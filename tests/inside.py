"""Look inside a runtime: what tests ask of the parts that it is made of."""

from __future__ import annotations

import coexec as cx
from coexec.plan.planner import Planner


def planner_of(runtime: cx.Runtime) -> Planner:
    """Return the planner of a runtime with one rank."""
    planner = runtime._driver.scheduler.plan.planner
    assert isinstance(planner, Planner)
    return planner
