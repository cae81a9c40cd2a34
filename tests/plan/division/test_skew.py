"""Work that is not the same for all rows: parts are predicted where they lie, so that all finish together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx

TEXT = """
about = "Four cores on one memory"

[[memory]]
name = "host"
capacity = "8 GiB"
bandwidth = 40e9

[[device]]
name = "core"
kind = "core"
count = 4
memory = "host"
flops = {float64 = 1e9}
bandwidth = 10e9
launch = 1e-6
"""


def before(chunk: Any) -> Any:
    return np.s_[: chunk.hi[0]]


def after(chunk: Any) -> Any:
    return np.s_[chunk.lo[0] :]


@cx.kernel(split=0, x=cx.read(before), out=cx.write, flops=lambda x, out: 1.0 * x.size * out.size / 100)
def sum_before(x, out, chunk):
    for i in range(len(out)):
        out[i] = x[: chunk.lo[0] + i + 1].sum()


@cx.kernel(split=0, x=cx.read(after), out=cx.write, flops=lambda x, out: 1.0 * x.size * out.size / 100)
def sum_after(x, out):
    for i in range(len(out)):
        out[i] = x[i:].sum()


@pytest.fixture
def platform(tmp_path: Path) -> cx.Platform:
    file = tmp_path / "cores.toml"
    file.write_text(TEXT)
    return cx.Platform.load(str(file))


@pytest.mark.parametrize("kernel", [sum_before, sum_after])
def test_parts_of_skewed_work_finish_together(platform: cx.Platform, kernel: Any) -> None:
    rows = 80_000
    with cx.Runtime(platform=platform):
        plan = kernel.plan(cx.zeros(rows), cx.zeros(rows))
    assert len(plan.parts) == 4
    times = [part.compute_s for part in plan.parts]
    assert None not in times
    assert max(times) <= 1.1 * min(times), plan.explain()
    sizes = [part.hi[0] - part.lo[0] for part in plan.parts]
    assert sizes == sorted(sizes, reverse=kernel is sum_before)


@pytest.mark.parametrize("kernel", [sum_before, sum_after])
def test_results_of_skewed_work(platform: cx.Platform, kernel: Any) -> None:
    x = np.arange(300.0)
    with cx.Runtime(platform=platform, execute=True):
        out = cx.empty(300)
        kernel(cx.array(x), out)
        expected = np.cumsum(x) if kernel is sum_before else np.cumsum(x[::-1])[::-1]
        np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.parametrize("kernel", [sum_before, sum_after])
def test_parts_of_skewed_work_finish_together_in_plans_of_steps(platform: cx.Platform, kernel: Any) -> None:
    with cx.Runtime(platform=platform) as runtime:
        x, y = cx.zeros(80_000), cx.zeros(80_000)
        for _ in range(30):
            kernel(x, y)
            kernel(y, x)
        runtime.wait()
        plan = runtime.step_plan()
    assert plan is not None and len(plan.children) == 2
    for call in plan.children:
        times = [part.compute_s or 0.0 for part in call.parts]
        assert len(times) == 4 and max(times) <= 1.15 * min(times), plan.explain()
