"""Plans are checked by simulation: every pipeline of a front, on the platforms that publish figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coexec as cx
from coexec.plan.pipeline import judged
from coexec.stream.checking import check
from tests.stream.test_results import opened


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


def test_copies_that_meet_on_a_link_are_found_by_simulation_only() -> None:
    @cx.kernel(x=cx.read, y=cx.write, flops=1)
    def touch(x: Any, y: Any) -> None:
        y[...] = x

    def both_ways(x: Any) -> Any:
        y = cx.empty(x.shape, x.dtype)
        touch(x, y)
        return y

    with opened(
        platform="workstation"
    ):  # whose cards share nothing but have no limit of copies: all items come at once
        pipe = cx.Pipeline(both_ways)
        pipe.plan(np.ones((1024, 1024), np.float32), devices="gpu:0")
        found = pipe.check()
        assert found.period == pytest.approx(8e-6 + 4 * 2**20 / 12.6e9)
        assert found.error > 0.05 and f"({found.error:+.1%})" in found.told()
