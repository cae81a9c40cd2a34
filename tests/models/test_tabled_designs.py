"""Designs that a platform file states as tables: operations, rates and watts decide which layers run under which of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import coexec as cx
from coexec.errors import PlanError, UnknownName
from coexec.machine.platform import HOST, Device, Platform
from coexec.models.baselines import PLAIN
from coexec.models.building import NetBuilder
from coexec.models.fabric import fabric
from coexec.models.mapping import evaluate
from coexec.models.planning import plan_model

CARDS = """
[[memory]]
name = "host"

[[memory]]
name = "card"
count = {count}
capacity = "4 GB"

[[device]]
name = "fpga"
kind = "fpga"
count = {count}
memory = "card"
flops = 1e12
clock = 2e8
watts = 100.0
idle_watts = 10.0
{more}
[device.design.images]
load = 0.5
[device.design.images.achieved.conv2d]
flops = 5e11
watts = 60.0

[device.design.dense]
load = 0.25
[device.design.dense.achieved.matmul]
flops = 2.5e11
watts = 30.0

[[link]]
from = "host"
to = "card"
bandwidth = {bandwidth}
latency = 0.0
"""

BOTH = """
[device.design.both]
ops = ["conv2d"]
load = 0.25
[device.design.both.achieved.matmul]
flops = 1e11
watts = 20.0
"""


def cards(folder: Path, count: int = 2, bandwidth: float = 1e15, more: str = BOTH) -> Platform:
    file = folder / "cards.toml"
    file.write_text(CARDS.format(count=count, bandwidth=bandwidth, more=more), encoding="utf-8")
    return Platform.load(file)


def net() -> cx.Model:
    """Return 2 x 4,718,592 operations of convolutions and 2 x 1,048,576 of a product."""
    made = NetBuilder("net")
    x = made.conv(made.input("x", (1, 32, 16, 16)), 64, 3)
    return cx.Model(made.done(made.fc(made.flatten(x), 64)))


def test_each_set_gets_the_design_that_does_its_layers(tmp_path: Path) -> None:
    model = net()
    conv, product = model.layers.layers
    plan = model.plan(cards(tmp_path, more=""), budget="20min")
    assert [group.policy for group in plan.children] == ["images", "dense"]
    assert [layer.parts[0].device for group in plan.children for layer in group.children] == ["fpga:0", "fpga:1"]
    assert plan.seconds == pytest.approx(2 * conv.macs / 5e11 + 2 * product.macs / 2.5e11, rel=1e-3)
    assert "designs are loaded once before, in 0.5 s" in plan.why


def test_one_card_does_all_under_the_design_that_does_everything(tmp_path: Path) -> None:
    model = net()
    conv, product = model.layers.layers
    plan = model.plan(cards(tmp_path, count=1), budget="20min")
    (only,) = plan.children
    assert only.policy == "both"
    assert plan.seconds == pytest.approx(2 * conv.macs / 1e12 + 2 * product.macs / 1e11, rel=1e-3)


@pytest.mark.parametrize("bandwidth", [1e9, 1e15])
def test_the_least_energy_counts_what_each_design_draws(tmp_path: Path, bandwidth: float) -> None:
    workload, platform = net().layers, fabric(cards(tmp_path, bandwidth=bandwidth))
    found = plan_model(workload, platform, "energy", PLAIN)
    assert found.value == pytest.approx(found.bound, rel=1e-9), "the search prices as the checker does"
    (joules,) = [evaluate(workload, platform, found.mapping, PLAIN).joules]
    drawn = {"images": 60.0, "dense": 30.0, "both": 20.0}
    stages = zip(found.evaluation.stages, found.mapping, strict=True)
    extra = sum(seconds * sum(stage.members) * (drawn[stage.design] - 10.0) for seconds, stage in stages)
    assert joules == pytest.approx(20.0 * found.evaluation.latency + extra)


def test_a_table_without_rates_whose_name_is_that_of_an_engine_has_its_cycles(tmp_path: Path) -> None:
    more = '[device.design.systolic]\nops = ["conv2d", "matmul"]\nload = 0.1\n'
    tabled = fabric(cards(tmp_path, count=1, more=BOTH + more)).accelerators[0]
    engines = {design.name: design for design in tabled.designs}
    named = fabric(Platform.load("f1.16xlarge")).accelerators[0]
    (systolic,) = [design for design in named.designs if design.name == "systolic"]
    assert set(engines) == {"systolic", "images", "dense", "both"}
    from coexec.models.engines import Accounts, nest

    sizes = nest(1, 64, 32, 16, 16, 3, 3)
    assert engines["systolic"].seconds(sizes, Accounts(), 2e8) == systolic.seconds(sizes, Accounts(), 2e8)


def test_a_design_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="imagse"):
        net().plan(cards(tmp_path, more='designs = ["imagse"]\n'))
    unknown = fabric_of_one("slow")
    with pytest.raises(PlanError, match="give the device `flops`"):
        fabric(unknown)


def fabric_of_one(design: str) -> Platform:
    from coexec.machine.parts import DeviceDesign

    return Platform(
        (Device("fpga:0", "fpga", HOST, configurations=(DeviceDesign(design, ("conv2d",)),), designs=(design,)),)
    )


def test_devices_with_designs_and_without_are_planned_for_together() -> None:
    encoder = cx.Model.named("encoder", length=32, width=64, blocks=1, heads=2)
    pairs = Platform.load("dype-pcie5")
    names = [one.name for one in fabric(pairs).accelerators]
    assert names == [d.name for d in pairs.devices if d.kind in ("gpu", "fpga")]
    plan = encoder.plan(pairs, budget="20min")
    assert {part.device.partition(":")[0] for group in plan.children for part in group.children[0].parts} == {"gpu"}
    assert "designs are loaded" not in plan.why


def test_a_device_reaches_of_its_peak_what_the_platform_says() -> None:
    pairs = fabric(Platform.load("dype-pcie5"))
    gpu = next(one for one in pairs.accelerators if one.name == "gpu:0")
    known = next(d for d in Platform.load("dype-pcie5").devices if d.name == "gpu:0")
    from coexec.models.engines import Accounts, nest

    sizes = nest(1, 4096, 4096, 4096, 1, 1, 1)
    seconds = gpu.designs[0].seconds(sizes, Accounts(kind="fc"), gpu.clock)
    reached = known.reaches("matmul")
    assert reached is not None and known.flops is not None and known.launch is not None
    assert float(seconds) == pytest.approx(2 * 4096**3 / (known.flops * reached.of_peak) + known.launch)
