"""Plans are checked by simulation: every pipeline of a front, on the platforms that publish figures."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coexec as cx
from coexec.machine.files.loading import presets
from coexec.plan.pipeline import PipelinePoint, StreamKernel, StreamWork, judged, plan_pipeline
from coexec.plan.pipeline.platforms import Classes, classes_of
from coexec.stream.checking import check
from coexec.stream.planning import PreparedFront
from tests.stream.test_results import opened

HOST = """about = "cards behind switches"
[[memory]]
name = "host"
capacity = "64 GiB"
bandwidth = 400e9
[[device]]
name = "cpu"
kind = "cpu"
memory = "host"
flops = 1e12
watts = 100.0
idle_watts = 10.0"""
CARD = """[[memory]]
name = "{name}"
count = {count}
capacity = "40 GB"
bandwidth = 1000e9
[[device]]
name = "{name}"
kind = "gpu"
count = {count}
memory = "{name}"
flops = 1e12
watts = {watts}
idle_watts = 20.0
copies = 1"""
LINK = """[[link]]
from = "{a}"
to = "{b}"
bandwidth = {bandwidth}
latency = {latency}
"""


def layers(item: Any, w1: Any, w2: Any) -> Any:
    graph, x = item
    return graph @ (cx.relu(graph @ (x @ w1)) @ w2)


def planned(platform: str, **options: Any) -> tuple[cx.Pipeline, cx.Platform]:
    nodes, random = 20_000, np.random.default_rng(0)
    graph = sp.random_array((nodes, nodes), density=7 / nodes, format="csr", dtype=np.float32, rng=random)
    w1, w2 = (np.ones(shape, np.float32) for shape in ((128, 32), (32, 8)))
    pipe = cx.Pipeline(layers, w1=w1, w2=w2)
    pipe.plan((graph, np.ones((nodes, 128), np.float32)), **options)
    return pipe, cx.Platform.load(platform)


@pytest.mark.parametrize("platform", ["dype-pcie4", "dype-cxl3"])
def test_every_point_of_a_front_comes_out_in_simulation_as_its_stages_say(platform: str) -> None:
    with opened(platform=platform):
        pipe, machine = planned(platform)
        prepared = pipe.planned
        points = list(prepared.front.wide)
        points += [point for point in prepared.one_class("energy").values() if point not in points]
        assert len(points) > 3 and any("fpga" in s.group[0][0] for p in points for s in p.stages)
        for point in points:
            again = judged(prepared.work, prepared.system, point.stages)
            assert (again.period, again.active, again.latency) == (point.period, point.active, point.latency)
            found = check(prepared, point, machine)
            assert found.period == point.quickest
            assert found.simulated_period == pytest.approx(point.quickest, rel=0.01)
            assert found.simulated_latency == pytest.approx(
                point.latency, rel=0.05
            )  # which ends with a copy for the program


def test_the_chosen_plan_is_checked_and_the_difference_told() -> None:
    with opened(platform="dype-pcie4"):
        pipe, machine = planned("dype-pcie4")
        assert pipe.check() == check(pipe.planned, pipe.planned.front.choose("throughput"), machine)
        assert pipe.check().told() in pipe.explain()
        assert pipe.check().as_dict()["error"] == pytest.approx(0.0, abs=0.01)


@cx.kernel(x=cx.read, y=cx.write, flops=1)
def touch(x: Any, y: Any) -> None:
    y[...] = x


def both_ways(x: Any) -> Any:
    y = cx.empty(x.shape, x.dtype)
    touch(x, y)
    return y


def two_products(x: Any, w: Any) -> Any:
    return np.tanh(cx.matmul(cx.relu(cx.matmul(x, w)), w))


@pytest.mark.parametrize(
    "platform", sorted(set(presets()) - {"a100x128"})
)  # whose cards are on 32 nodes, and a stream on one
@pytest.mark.parametrize("function", [both_ways, two_products])
def test_on_every_preset_every_point_of_a_front_comes_out_as_its_stages_say(platform: str, function: Any) -> None:
    x = np.ones((2048, 2048), np.float32)
    with opened(platform=platform):
        pipe = cx.Pipeline(function, **({} if function is both_ways else {"w": x}))
        pipe.plan(x)
        for point in pipe.planned.front.wide:
            error = check(pipe.planned, point, cx.Platform.load(platform)).error
            assert error == pytest.approx(0.0, abs=0.25 if returns(point) else 0.04 if crowded(point) else 0.01), point


def returns(point: PipelinePoint) -> bool:
    """Tell whether items come back to a group: which of its stages is served first, and what waits meanwhile, is not modelled."""
    return len({stage.slot for stage in point.stages}) < len(point.stages)


def crowded(point: PipelinePoint) -> bool:
    """Tell whether items pass links that are shared several times, into different groups: they wait for each other there."""
    return bool(point.links) and len([stage for stage in point.stages if stage.transfer]) > 2


def test_items_come_one_after_the_other_also_where_a_card_could_take_all_at_once() -> None:
    with opened(platform="workstation"):  # whose cards say no number of copy engines
        pipe = cx.Pipeline(both_ways)
        pipe.plan(np.ones((1024, 1024), np.float32), devices="gpu:0")
        assert pipe.check().period == pytest.approx(8e-6 + 4 * 2**20 / 12.6e9)
        assert pipe.check().error == pytest.approx(0.0, abs=0.01)
        pipe.map([np.ones((1024, 1024), np.float32)] * 40)
        assert pipe.stats()["seconds"] / 40 == pytest.approx(pipe.check().period, rel=0.1), "the ends count, too"


def invented_platform(draw: random.Random) -> str:
    """Return a platform of one or two kinds of cards, some behind switches that are narrower than they are together."""
    text = [HOST]
    for name in draw.choice(["g", "g", "gh"]):
        count, switches = draw.randint(1, 4), draw.choice([0, 1, 2])
        bandwidth, latency = draw.choice([5e9, 10e9, 20e9]), draw.choice([1e-6, 1e-5])
        text.append(CARD.format(name=name, count=count, watts=draw.choice([100.0, 300.0])))
        if switches and count % switches == 0:
            wide = draw.choice([1, 1, 2]) * bandwidth
            text.append(f'[[switch]]\nname = "s{name}"\ncount = {switches}')
            text.append(LINK.format(a="host", b=f"s{name}", bandwidth=wide, latency=latency))
            text.append(LINK.format(a=f"s{name}", b=name, bandwidth=bandwidth, latency=1e-6) + "pairwise = true")
        else:
            text.append(LINK.format(a="host", b=name, bandwidth=bandwidth, latency=latency))
        if count > 1 and draw.random() < 0.4:
            text.append(LINK.format(a=name, b=name, bandwidth=draw.choice([20e9, 50e9]), latency=2e-6))
    return "\n".join(text)


def invented_work(draw: random.Random, classes: Classes) -> StreamWork:
    """Return a chain of kernels that cards compute in about as long as their data comes."""
    kernels = []
    for number in range(draw.randint(1, 4)):
        able = [c for c in classes.system.classes if c.name == "cpu" or draw.random() < 0.85]
        seconds = {c.name: draw.uniform(1e-4, 2e-3) * (4 if c.name == "cpu" else 1) for c in able}
        many = {c.name: [seconds[c.name] / n**0.8 for n in range(1, c.count + 1)] for c in able}
        kernels.append(StreamKernel(f"k{number}", many, draw.random() < 0.8))
    sizes = [draw.choice([84e4, 84e5, 336e4]) for _ in range(len(kernels) + 1)]  # rows are of whole bytes
    return StreamWork.chain(kernels, sizes)


def regrouped(point: PipelinePoint) -> bool:
    """Tell whether devices in turn hand items to devices that divide them, or the other way round: what waits there is not modelled."""
    modes = [stage.mode for stage in point.stages if stage.devices > 1]
    return any(one != other for one, other in pairwise(modes))


@pytest.mark.parametrize("seed", range(6))
def test_every_point_of_a_front_comes_out_on_any_platform_with_shared_links(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    for number in range(3):
        file = tmp_path / f"{number}.toml"
        file.write_text(invented_platform(draw), encoding="utf-8")
        platform = cx.Platform.load(file)
        classes = classes_of(platform)
        work = invented_work(draw, classes)
        front = plan_pipeline(work, classes.system, shared=draw.choice([True, False]))
        names = tuple([kernel.name for kernel in work.kernels])
        prepared = PreparedFront(
            front, work, classes.system, classes.members, names, names, names, 0, "", 0.0, frozenset(), 0.0
        )
        for point in front.wide:
            error = check(prepared, point, platform).error
            assert error == pytest.approx(0.0, abs=0.01) or regrouped(point), (seed, number, error, point)
