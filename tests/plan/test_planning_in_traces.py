"""What planning and trials take of a program's time is in its trace, and in what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import coexec as cx
from coexec.bench.plan.program import ArrayMaker
from coexec.cli.answers import tables
from coexec.observe.report import summary
from coexec.observe.trace import Trace


@cx.kernel(split=0, x=cx.read, out=cx.write, flops=40)
def heavy(x: Any, out: Any) -> None:
    out[...] = x


def test_a_trace_tells_what_planning_took_and_how_long_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with cx.Runtime("", platform="workstation", store="off", diagnostics="off", trace=file) as runtime:
        given = ArrayMaker(runtime._driver)
        x, out = given(4000, 4000), given(4000, 4000)
        for _ in range(20):
            heavy(x, out)
        runtime.wait()
        steps: Any = runtime._driver.scheduler.plan.steps
        figures = steps.figures()
    told = summary(Trace.load(file))["planning"]
    assert told == figures
    assert told["seconds"] > 0.0 and 0.0 < told["longest_s"] <= 5e-3
    assert told["later_s"] <= 0.01 * told["computed_s"] + 1e-3 and told["trials_s"] == 0.0
    assert "Planning of steps" in [str(table.title) for table in tables(summary(Trace.load(file)))]


def test_a_program_that_plans_nothing_says_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with cx.Runtime("gpu:0", platform="workstation", store="off", diagnostics="off", trace=file) as runtime:
        given = ArrayMaker(runtime._driver)
        heavy(given(100, 100), given(100, 100))
        runtime.wait()
    assert summary(Trace.load(file))["planning"] is None
