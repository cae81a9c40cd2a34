"""Which variant a device runs: plans of steps say where, and what is known by now says how."""

from __future__ import annotations

from typing import Any

import pytest

import coexec as cx
from coexec.plan.plan import Part, Plan
from coexec.predict.features import work_of, work_of_part
from coexec.program.variant import Variant
from tests.plan.planning import Planning

ROWS = 1000


def two_ways() -> cx.Kernel:
    @cx.kernel(split=0, x=cx.update)
    def twice(x: Any) -> None:
        x *= 2

    twice.variants.append(Variant("quick", "cuda"))
    return twice


def teach(planning: Planning, kernel: cx.Kernel, x: Any, **seconds: float) -> None:
    """Let variants have taken so many seconds for all rows, and half of them for half the rows."""
    task = planning.task(kernel, x)
    for candidate in planning.candidates.of(kernel, None).all:
        if candidate.variant.name in seconds:
            took = seconds[candidate.variant.name]
            for together in (False, True):
                candidate.model.learn(work_of(task), took, together=together)
                for part in (task.domain._replace(hi=(ROWS // 2,)), task.domain._replace(lo=(ROWS // 2,))):
                    candidate.model.learn(work_of_part(task, part), took / 2, together=together)


def plan_of(planning: Planning, kernel: cx.Kernel, x: Any, parts: int) -> Plan:
    """Return a plan that gives a call to the first devices, each with the variant that was known when it was made."""
    edges = [ROWS * n // parts for n in range(parts + 1)]
    made = [Part(f"dev:{n}", "python", (edges[n],), (edges[n + 1],), 1 / parts) for n in range(parts)]
    key = repr(planning.task(kernel, x).key)
    return Plan("kernel", kernel.name, key, (ROWS,), tuple(made), None)


def names(planning: Planning, kernel: cx.Kernel, x: Any) -> list[str]:
    return [share.variant.name for share in planning.plan(kernel, x).shares]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_plan_of_a_step_says_where_and_the_variant_is_the_best_that_is_known_now(parts: int) -> None:
    planning, kernel = Planning(2), two_ways()
    x = planning.on_host(ROWS)
    teach(planning, kernel, x, python=0.01, quick=0.02)
    planning.planner.adopt(plan_of(planning, kernel, x, parts), lambda _: None)
    assert names(planning, kernel, x) == ["python"] * parts
    for _ in range(8):
        teach(planning, kernel, x, quick=0.001)
    assert names(planning, kernel, x) == ["quick"] * parts
    assert planning.devices(kernel, x) == ["dev:0", "dev:1"][:parts]


def test_a_plan_that_the_user_gave_is_followed_to_the_letter() -> None:
    planning, kernel = Planning(2), two_ways()
    x = planning.on_host(ROWS)
    planning.planner.follow([plan_of(planning, kernel, x, 2)])
    teach(planning, kernel, x, python=0.01, quick=0.001)
    assert names(planning, kernel, x) == ["python", "python"]
