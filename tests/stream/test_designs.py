"""Devices that have one design at a time: stages need designs, and loading them takes time once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.stream.rescheduling import CHANGE
from tests.stream.test_results import opened

MACHINE = """
[[memory]]
name = "host"
[[memory]]
name = "fpga"
count = 2
[[device]]
name = "cpu:0"
kind = "cpu"
cores = 1
memory = "host"
flops = 1e9
watts = 40.0
idle_watts = 10.0
[[device]]
name = "fpga"
kind = "fpga"
count = 2
memory = "fpga"
flops = 1e12
watts = 60.0
idle_watts = 5.0
[device.design.first]
load = 0.5
[device.design.first.achieved.gather]
of_peak = 1.0
watts = 45.0
[device.design.second]
load = 0.25
[device.design.second.achieved.blend]
of_peak = 1.0
[device.design.both]
load = 0.05
[device.design.both.achieved.gather]
of_peak = 0.8
watts = 25.0
[device.design.both.achieved.blend]
of_peak = 0.8
[[link]]
from = "host"
to = "fpga"
bandwidth = 1e13
latency = 0.0
"""


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x, k: 1e5 * k * x.size)
def gather(x: Any, y: Any, k: float) -> None:
    y[...] = x * k


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 1e6 * x.size)
def blend(x: Any, y: Any) -> None:
    y[...] = x + 1


def layer(item: Any) -> Any:
    x, k = item
    y, z = cx.empty(x.shape, x.dtype), cx.empty(x.shape, x.dtype)
    gather(x, y, k)
    blend(y, z)
    return z


X = np.ones((100, 100), np.float32)  # 1e10 operations of blend: 10 ms at the peak


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.toml"
    path.write_text(MACHINE)
    return path


def test_stages_get_designs_which_are_loaded_once(machine: Path) -> None:
    with opened(platform=machine, execute=True):
        pipe = cx.Pipeline(layer)
        front = pipe.plan((X, 10.0))
        assert [[part.device for part in stage.parts] for stage in front[0].stages] == [["fpga:0"], ["fpga:1"]]
        assert front[0].period == pytest.approx(10e-3, rel=0.01)
        results = pipe.map([(X, 10.0)] * 6, plan=front[0])
        assert all(np.all(result == 11.0) for result in results)
        first = pipe.stats()
        assert first["seconds"] == pytest.approx(0.5 + 7 * 10e-3, rel=0.02), "both designs are loaded at once"
        pipe.map([(X, 10.0)] * 6, plan=front[0])
        assert pipe.stats()["seconds"] == pytest.approx(7 * 10e-3, rel=0.02), "they are there"


def test_what_a_device_draws_is_what_its_design_draws(machine: Path) -> None:
    with opened(platform=machine):
        pipe = cx.Pipeline(layer)
        (plan, *_) = pipe.plan((X, 10.0), devices="fpga:0")
        assert [stage.parts[0].device for stage in plan.stages] == ["fpga:0"]
        assert plan.period == pytest.approx(25e-3, rel=0.01), "one design does both, each at 0.8 of the peak"
        for _ in pipe.stream([(X, 10.0)] * 4, plan=plan):
            pass
        stats = pipe.stats()
        (stage,) = stats["stages"]
        wall = stats["seconds"]
        assert wall == pytest.approx(0.05 + 4 * 25e-3, rel=0.02)
        drawn = 4 * 12.5e-3 * (25.0 + 60.0) + (wall - 4 * 25e-3) * 5.0
        assert stage["joules_per_item"] * 4 == pytest.approx(drawn, rel=0.01)
        everyone = drawn + wall * (5.0 + 10.0)  # the other card and the processor wait
        assert stats["joules_per_item"] * 4 == pytest.approx(everyone, rel=0.01)


def test_a_change_of_plan_waits_for_what_is_under_way_and_loads_only_what_is_not_there(
    machine: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "run.json"
    even, slim = (X, 10.0), (X, 0.1)
    with opened(platform=machine, execute=True, trace=trace):
        pipe = cx.Pipeline(layer)
        pipe.plan(even)
        results = pipe.map([even] * 10 + [slim] * 40)
        assert [result[0, 0] for result in results] == [11.0] * 10 + [np.float32(1.1)] * 40
        changes = [decision for decision in pipe.decisions if decision.what == CHANGE]
        assert len(changes) == 1 and changes[0].stall == pytest.approx(20e-3 + 0.05, rel=0.01)
    notes = [row["text"] for row in cx.Trace.load(trace).notes]
    loaded = [text.partition(": ")[2] for text in notes if "is configured as" in text]
    assert loaded[:2] == ["fpga:0 is configured as first", "fpga:1 is configured as second"]
    assert loaded[2:] == ["fpga:0 is configured as both", "fpga:1 is configured as both"]


def two_bounds(x: Any, w: Any) -> Any:
    return np.maximum(np.maximum(x @ w, 0), 1)


def test_operations_on_a_device_that_does_some_only_are_not_computed_as_one_elsewhere(tmp_path: Path) -> None:
    trace, x = tmp_path / "run.json", np.full((64, 64), 3.0, np.float32)
    with opened(platform="dype-pcie4", execute=True, trace=trace):
        pipe = cx.Pipeline(two_bounds, w=np.eye(64, dtype=np.float32))
        plan = pipe.plan(x, devices="fpga:0")[0]
        assert all(np.all(result == 3.0) for result in pipe.map([x] * 5, plan=plan))
    rows = [row for row in cx.Trace.load(trace).work if row["kind"] == "kernel"]
    assert [row["device"] for row in rows[-15:]] == ["fpga:0"] * 15
