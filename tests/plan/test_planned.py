"""Tests of plan/planned.py: calls that their caller runs."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.plan import planned
from tests.devices import TWO


@cx.kernel(x=cx.update)
def nothing(x: Any) -> None:
    """Touch an array."""


@pytest.mark.parametrize("limit", [0.0, inf])  # seconds, whatever this machine takes for the call
def test_a_short_call_runs_in_the_caller_also_where_the_plan_of_its_step_names_a_core(
    monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    monkeypatch.setattr(planned, "CHEAP", limit)
    with cx.Runtime(TWO, store="off", replay=False) as runtime:
        x = cx.array(np.zeros(8))
        nothing(x).result()
        planner: Any = runtime._driver.scheduler.plan.planner
        planner.adopt(nothing.using(devices="cpu:1").plan(x), lambda _: None)
        cx.wait()
        task = nothing(x)
        task.result()
        assert (task.why == planned.IN_CALLER) is (limit > 0), task.why
