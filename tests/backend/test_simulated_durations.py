"""Where durations of simulated kernels come from: measurements of real devices, scaled ones, peak rates, or a default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import NOTHING, Durations, GivenDurations, fixed_durations, simulate
from coexec.backend.simulated.measured import StoredModels
from coexec.graph.instruction import Instruction, Launch
from coexec.observe.pictures.gantt import gantt_svg
from coexec.predict.store import Store
from tests.backend.simulated_parts import CORES, DIRECT, arrays, backend_of, make, opened, platform


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=2)
def work(x, y):
    y[...] = 2 * x + 1


def measured_here(store: Any) -> str:
    """Run a kernel for real, so that a store knows it; return the speed class of the device that ran it."""
    with cx.Runtime("cpu:0", store=store, inline=False) as runtime:
        x, y = cx.array(np.ones(100_000)), cx.empty(100_000)
        for _ in range(12):
            work(x, y)
            cx.wait()
        return runtime.platform.devices[0].speed


def simulated_work(here: cx.Platform, store: Any) -> tuple[float, dict[str, Any]]:
    with cx.Runtime(machine=simulate(here, devices="cpu:0", store=store, costs=NOTHING), store="off") as runtime:
        x, y = cx.asarray(np.ones(100_000)), cx.empty(100_000)
        work(x, y)
        cx.wait()
        return backend_of(runtime).now, backend_of(runtime).sources()["work"]


def test_what_was_measured_is_taken_as_it_is_or_scaled_by_peak_rates(tmp_path) -> None:
    store = tmp_path / "store.sqlite"
    speed = measured_here(store)
    Store(store).save_rates({(speed, ""): (4e9, 4e6)})
    here = platform(CORES)
    same = replace(here, devices=(replace(here.devices[0], speed=speed), *here.devices[1:]))
    seconds, sources = simulated_work(same, store)
    assert list(sources) == ["measured"]
    other, sources = simulated_work(here, store)
    assert list(sources) == [f"scaled from {speed}"]
    waits = [share for (_, how), (share, _) in Store(store).waits().items() if how == "alone"]
    waited = max(waits, default=0.0)  # for the interpreter lock, which goes with what was measured here only
    assert other == pytest.approx(2.0 * seconds / (1.0 + waited))  # it moves data, and has 2 MB/s instead of 4
    _, sources = simulated_work(here, tmp_path / "empty.sqlite")
    assert list(sources) == ["roofline"]


def test_without_rates_to_compare_nothing_is_scaled(tmp_path) -> None:
    store = tmp_path / "store.sqlite"
    measured_here(store)
    assert list(simulated_work(platform(CORES), store)[1]) == ["roofline"]


def seconds_of(text: str, dtype: Any) -> float:
    @cx.kernel(y=cx.write, flops=lambda y: 1e9)
    def compute(y):
        pass

    with opened(text) as runtime:
        compute.using(devices="gpu:0")(cx.empty(10, dtype))
        cx.wait()
        return backend_of(runtime).now


def test_rates_go_by_type() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = { float64 = 0.5e9, float32 = 1e9, float16 = 4e9 }")
    assert seconds_of(text, np.float64) == pytest.approx(2.0)
    assert seconds_of(text, np.float32) == pytest.approx(1.0)
    assert seconds_of(text, np.float16) == pytest.approx(0.25)
    assert seconds_of(text, np.complex128) == pytest.approx(2.0)


def test_a_function_may_say_how_long_everything_takes() -> None:
    law = GivenDurations(fixed_durations(kernel=2.0))
    from coexec.geometry import whole
    from coexec.graph.command import Chunk
    from coexec.testing.conformance import NO_SHARE

    kernel = Instruction(0, Launch("gpu:0", Chunk("gpu:0", whole((1,))), NO_SHARE, ()), None)
    assert law.timed(kernel)[:2] == (2.0, "given")
    assert Durations(platform(DIRECT), StoredModels(Store(None))).seconds(kernel) == (1e-3, "default")


def test_a_simulated_trace_opens_in_the_same_viewer(tmp_path) -> None:
    file = tmp_path / "run.json"
    with cx.Runtime("gpu", platform="a100x4", trace=file, store="off"):
        for y in arrays(8, 1 << 20):
            make(y, 0.01)
        cx.wait()
    trace = cx.Trace.load(file)
    assert {row["device"] for row in trace.ran} >= {"gpu:0"}
    assert "gpu:0" in gantt_svg(trace)
