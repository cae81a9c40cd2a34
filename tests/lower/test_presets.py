"""Programs are lowered for every preset, a node at a time: copies go the way the machine has."""

from __future__ import annotations

import pytest

from coexec.machine.platform import HOST, Platform
from coexec.program.mapper import all as map_all
from coexec.testing import GraphBuilder


@pytest.mark.parametrize("name", Platform.presets())
def test_data_comes_to_every_device_of_a_preset_and_back(name: str) -> None:
    platform = Platform.load(name)
    g = GraphBuilder(platform=platform.node(platform.nodes - 1))
    narrow = [device.name for device in g.platform.devices if not device.wide]
    a, b = g.array(64), g.array(64)
    g.call("make", writes=a, on=narrow[-1])
    g.call("use", reads=(a, map_all), writes=b, on=narrow)
    g.call("again", reads=(b, map_all), writes=g.array(64), on=narrow)
    g.read(b)
    g.verify()
    ways = {(copy.step.source.memory, copy.step.target.memory) for copy in g.instructions.of("copy")}
    assert [way for way in ways if way[0] != way[1] and g.platform.link(*way) is None] == []


@pytest.mark.parametrize(("target", "hops"), [("gpu:1", 1), ("gpu:3", 1), ("gpu:4", 2)])
def test_cards_of_one_group_copy_directly_and_others_through_the_host(target: str, hops: int) -> None:
    g = GraphBuilder(platform=Platform.load("mi210x8"))
    a = g.array(100)
    g.call("make", writes=a, on="gpu:0")
    g.call("use", reads=(a, map_all), writes=g.array(100), on=target)
    copies = g.instructions.of("copy")
    assert len(copies) == hops and copies[-1].step.target.memory == g.memory(target)
    assert (copies[0].step.target.memory == HOST) == (hops == 2)
