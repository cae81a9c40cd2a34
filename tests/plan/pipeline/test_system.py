from __future__ import annotations

from math import inf

import pytest

from coexec import Platform
from coexec.errors import ArgumentError, ConfigError, PlanError, ShapeError, UnknownName
from coexec.plan.pipeline import (
    DeviceClass,
    Hop,
    StreamKernel,
    StreamSystem,
    StreamValue,
    StreamWork,
    plan_pipeline,
)
from coexec.plan.pipeline.platforms import classes_of

ENDS = {("host", "f"): Hop(), ("f", "host"): Hop()}


def test_what_no_system_can_be_is_refused():
    for wrong, message in [
        (lambda: DeviceClass("host", 1), "other than 'host'"),
        (lambda: DeviceClass("f", 0), "count=0"),
        (lambda: DeviceClass("f", 1, watts=-1.0), "watts=-1"),
        (lambda: DeviceClass("f", 1, watts=1.0, idle_watts=2.0), "the first includes the second"),
        (lambda: DeviceClass("f", 1, memory=float("nan")), "memory=nan"),
        (lambda: Hop(bandwidth=0.0), "above 0"),
        (lambda: StreamSystem((), {}), "at least one class"),
        (lambda: StreamSystem((DeviceClass("f", 1),), {}), "the way from 'host' to 'f'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            wrong()
    with pytest.raises(UnknownName, match="did you mean 'f'"):
        StreamSystem((DeviceClass("f", 1),), {**ENDS, ("f", "ff"): Hop()})
    classes = (DeviceClass("f", 1, 9.0, 1.0, budget="x"), DeviceClass("g", 1, 9.0, 2.0, budget="x"))
    with pytest.raises(ConfigError, match="same silicon"):
        StreamSystem(classes, {**ENDS, ("host", "g"): Hop(), ("g", "host"): Hop()})


def test_what_no_workload_can_be_is_refused():
    one, two = StreamKernel("a", {"f": 1.0}), StreamKernel("b", {"f": 1.0})
    with pytest.raises(ShapeError, match="2 kernels have 3 cuts"):
        StreamWork.chain([one, two], [0.0])
    with pytest.raises(ArgumentError, match="a name of its own"):
        StreamWork.chain([one, one], [0.0] * 3)
    with pytest.raises(UnknownName, match="unknown kernel 'c'"):
        StreamWork((one,), (StreamValue(1.0, None, ("c",)),))
    with pytest.raises(ArgumentError, match="from 0"):
        StreamKernel("a", {"f": -1.0})
    with pytest.raises(PlanError, match="wait for each other"):
        StreamWork((one, two), (StreamValue(1.0, "a", ("b",)), StreamValue(1.0, "b", ("a",))))


def test_ways_add_up_through_the_host_and_share_what_is_limited():
    system = StreamSystem(
        (DeviceClass("f", 4), DeviceClass("g", 2)),
        {**ENDS, ("f", "host"): Hop(1.0, 10.0, 15.0), ("host", "g"): Hop(2.0, 5.0), ("g", "host"): Hop()},
    )
    assert system.moved(("f", 1), ("g", 2)) == (3.0, 1 / 10 + 1 / 10)
    assert system.moved(("f", 4), ("g", 1)) == (3.0, 1 / 15 + 1 / 5)


def test_a_platform_has_classes_of_alike_devices():
    system, members, designs = classes_of(Platform.load("dype-pcie4"))
    alike = {name: len(found) for name, found in members.items() if name not in designs}
    assert alike == {"cpu": 1, "gpu": 2}
    gpu = system.named("gpu")
    assert (gpu.watts, gpu.idle_watts, gpu.count) == (300.0, 40.0, 2) and gpu.memory < 64e9
    assert system.hops["host", "cpu"] == Hop() and system.hops["host", "gpu"].bandwidth == 25e9
    assert system.hops["host", "gpu"].total == 25e9, "both cards hang on one switch"
    assert ("fpga as spmm", "gpu") in system.hops


def test_devices_that_can_be_configured_are_a_class_for_each_design_and_one_budget():
    system, members, designs = classes_of(Platform.load("dype-pcie4"), ["fpga:0", "fpga:1", "fpga:2"])
    assert designs["fpga as spmm"] == "spmm" and designs["fpga as graph"] == "graph"
    assert set(members.values()) == {("fpga:0", "fpga:1", "fpga:2")} and system.budgets == {"fpga": 3}
    assert system.idle_watts == 3 * 30.0, "the same silicon, whatever it is configured as"
    assert all(c.load == 1.0 for c in system.classes)
    both = StreamKernel("a", {"fpga as spmm": 1.0}), StreamKernel("b", {"fpga as gemm": 0.5})
    best = plan_pipeline(StreamWork.chain(both, [0.0] * 3), system, shared=False).choose("throughput")
    assert [stage.group for stage in best.stages] == [(("fpga as spmm", 2),), (("fpga as gemm", 1),)]
    assert best.setup == 1.0


def test_cores_alone_and_all_at_once_are_one_budget():
    system, members, _ = classes_of(Platform.load("workstation"))
    assert len(members["cpu:0"]) == 16 and members["cpu:all"] == ("cpu:all",)
    assert system.budgets["cores"] == 16 and system.named("cpu:all").units == 16
    assert system.named("gpu:0").memory < inf
    some, _, _ = classes_of(Platform.load("workstation"), ["gpu:1"])
    assert [c.name for c in some.classes] == ["gpu"]
    with pytest.raises(ConfigError, match="at least one"):
        classes_of(Platform.load("workstation"), [])


@pytest.mark.parametrize("name", Platform.presets())
def test_every_preset_of_one_machine_can_be_asked(name):
    system, members, _ = classes_of(Platform.load(name).node(0))
    assert sum(len(found) for found in members.values()) == sum(c.count for c in system.classes)
