"""Calls outside of streams: a device that holds another design loads the one that a call needs, and plans count that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated.scenario import Happening, Scenario
from coexec.machine.parts import AchievedRate, Device, DeviceDesign
from coexec.models.building import NetBuilder
from coexec.observe.trace import Row
from tests.backend.simulated_parts import backend_of
from tests.stream.test_results import opened

MACHINE = """
[[memory]]
name = "host"
[[memory]]
name = "fpga"
[[device]]
name = "cpu:0"
kind = "cpu"
cores = 1
memory = "host"
flops = 1e9
watts = 40.0
idle_watts = 10.0
[[device]]
name = "fpga:0"
kind = "fpga"
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
of_peak = 0.5
watts = 25.0
[[link]]
from = "host"
to = "fpga"
bandwidth = 1e15
latency = 0.0
"""
GATHER, BLEND = 10e-3, 20e-3  # seconds of each call under its design
FIRST, SECOND = 0.5, 0.25  # seconds to load each design


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 1e6 * x.size, split=None)
def gather(x: Any, y: Any) -> None:
    y[...] = x * 2


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x: 1e6 * x.size, split=None)
def blend(x: Any, y: Any) -> None:
    y[...] = x + 1


X = np.ones((100, 100), np.float32)  # 1e10 operations


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.toml"
    path.write_text(MACHINE)
    return path


def work_on(trace: Path, device: str) -> list[tuple[str, float, float]]:
    """Return what a device did, in order: the kind or kernel, the begin and the seconds."""
    rows: list[Row] = sorted(
        (
            row
            for row in cx.Trace.load(trace).work
            if row["device"] == device and row["kind"] in ("kernel", "configure")
        ),
        key=lambda row: float(row["start"]),
    )
    return [(row["name"], row["start"], row["stop"] - row["start"]) for row in rows]


def alternating(turns: int) -> Any:
    """Return the result of calls that need different designs, each on what the one before made."""
    x, y = cx.array(X), cx.empty(X.shape, X.dtype)
    for _ in range(turns):
        gather(x, y)
        blend(y, x)
    return np.asarray(x)


def test_a_call_loads_the_design_that_it_needs_and_the_next_one_finds_it(machine: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    with opened(platform=machine, devices="fpga:0", execute=True, trace=str(trace)) as runtime:
        x, y = cx.array(X), cx.empty(X.shape, X.dtype)
        for kernel in (gather, gather, blend, gather):
            kernel(x, y)
        assert np.all(np.asarray(y) == 2.0)
        wall = backend_of(runtime).now
        drawn = backend_of(runtime).energy().total
    done = work_on(trace, "fpga:0")
    names = ["configure first", "gather", "gather", "configure second", "blend", "configure first", "gather"]
    seconds = [FIRST, GATHER, GATHER, SECOND, BLEND, FIRST, GATHER]
    assert [name for name, _, _ in done] == names
    assert [took for _, _, took in done] == pytest.approx(seconds, rel=1e-3)
    assert [begin for _, begin, _ in done] == pytest.approx([sum(seconds[:n]) for n in range(7)], abs=1e-3), (
        "one by one"
    )
    computing = 3 * GATHER * 45.0 + BLEND * 25.0
    idle = (wall - 3 * GATHER - BLEND) * 5.0
    assert drawn == pytest.approx(computing + idle, rel=1e-3), (
        "each kernel draws what its design does; to load draws nothing"
    )


def test_alternate_calls_pay_for_every_change(machine: Path, tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    with opened(platform=machine, devices="fpga:0", execute=True, trace=str(trace)) as runtime:
        assert np.all(alternating(5) == 63.0)
        assert backend_of(runtime).now == pytest.approx(5 * (FIRST + GATHER + SECOND + BLEND), rel=1e-3)
    assert [name for name, _, _ in work_on(trace, "fpga:0")].count("configure first") == 5


def test_a_call_goes_where_it_is_done_first_with_the_design_to_load(machine: Path) -> None:
    machine.write_text(MACHINE.replace("flops = 1e9", "flops = 5e10"))  # 0.2 s of each call on the processor
    with opened(platform=machine) as runtime:
        x, y, z = cx.array(X), cx.empty(X.shape, X.dtype), cx.empty(X.shape, X.dtype)
        assert gather.plan(x, y).parts[0].device == "cpu:0", "0.2 s, instead of 0.51 s"
        gather.using(devices="fpga:0")(x, y)
        runtime.wait()
        assert gather.plan(x, y).parts[0].device == "fpga:0", "its design is there"
        assert blend.plan(x, z).parts[0].device == "cpu:0", "0.2 s, instead of 0.27 s"
        there = blend.using(devices="fpga:0").plan(x, z).predicted
        assert there is not None and there.seconds == pytest.approx(SECOND + BLEND, rel=1e-3)
        assert backend_of(runtime).now == pytest.approx(FIRST + GATHER, rel=1e-3)


def test_a_step_gives_an_fpga_one_design_and_leaves_the_rest_to_others(machine: Path) -> None:
    machine.write_text(MACHINE.replace("flops = 1e9", "flops = 1e11"))  # 0.1 s of each call on the processor
    with opened(platform=machine, execute=True) as runtime:
        alternating(40)
        plan = runtime.step_plan()
        assert plan is not None
        assert {call.name: call.parts[0].device for call in plan.children} == {"gather": "fpga:0", "blend": "cpu:0"}
        assert plan.predicted is not None and plan.predicted.seconds == pytest.approx(GATHER + 0.1, rel=0.01)
        assert plan.considered["fpga:0"] == pytest.approx(FIRST + GATHER + SECOND + BLEND, rel=0.01)


def test_kernels_that_run_at_once_share_a_design_and_another_one_waits_for_all_of_them(
    machine: Path, tmp_path: Path
) -> None:
    machine.write_text(MACHINE.replace("idle_watts = 5.0", "idle_watts = 5.0\nconcurrent = 2"))
    trace = tmp_path / "run.jsonl"
    with opened(platform=machine, devices="fpga:0", execute=True, trace=str(trace)):
        x, made = cx.array(X), [cx.empty(X.shape, X.dtype) for _ in range(3)]
        for kernel, y in zip((gather, gather, blend), made, strict=True):
            kernel(x, y)
        assert [float(y[0, 0]) for y in made] == [2.0, 2.0, 2.0]
    done = work_on(trace, "fpga:0")
    assert [name for name, _, _ in done] == ["configure first", "gather", "gather", "configure second", "blend"]
    begins = [begin for _, begin, _ in done]
    together = FIRST + 2 * GATHER  # they share its rate
    assert begins == pytest.approx([0.0, FIRST, FIRST, together, together + SECOND], abs=1e-3)


def test_a_device_that_is_lost_while_it_loads_leaves_its_call_to_others(machine: Path) -> None:
    scenario = Scenario((Happening.lost("fpga:0", at=0.2),))
    with opened(platform=machine, execute=True, scenario=scenario) as runtime:
        x, y = cx.array(X), cx.empty(X.shape, X.dtype)
        gather(x, y)
        assert np.all(np.asarray(y) == 2.0)
        assert backend_of(runtime).now == pytest.approx(FIRST + 10.0, rel=0.01), "the processor computes it, in 10 s"


def test_the_layers_of_a_model_load_what_they_need(machine: Path, tmp_path: Path) -> None:
    machine.write_text(MACHINE.replace("flops = 1e9", "flops = 1e4").replace("achieved.gather", "achieved.conv2d"))
    trace = tmp_path / "run.jsonl"
    net = NetBuilder("convolutions")
    x = net.same("Relu", net.conv(net.input("x", (1, 3, 12, 10)), 6, 3))
    model = cx.Model(net.done(net.conv(x, 6, 3)))
    item = np.random.default_rng(0).standard_normal((1, 3, 12, 10)).astype(np.float32)
    with opened(devices="cpu:0"):
        expected = np.asarray(model(item))
    with opened(platform=machine, execute=True, trace=str(trace)):
        np.testing.assert_allclose(np.asarray(model(item)), expected, rtol=1e-4, atol=1e-5)
    names = [name for name, _, _ in work_on(trace, "fpga:0")]
    assert names == ["configure first", "conv2d_float32", "conv2d_float32"]


def test_a_design_that_is_there_is_kept_and_else_the_quickest_is_taken() -> None:
    slow = DeviceDesign("slow", ("gather", "blend"), (AchievedRate("gather", 0.1),), 0.1)
    quick = DeviceDesign("quick", ("gather",), (AchievedRate("gather", 0.9),), 0.5)
    card = Device("fpga:0", "fpga", 2, configurations=(slow, quick))
    assert card.design_for("gather") == quick
    assert card.design_for("gather", "slow") == slow
    assert card.design_for("blend", "quick") == slow
    assert card.design_for("sort", "quick") is None, "nothing is loaded for what no design names"
