"""Accelerators of a platform: who is like whom, and the ways between sets."""

from __future__ import annotations

import pytest

from coexec.errors import PlanError
from coexec.machine.platform import HOST, Device, Link, Memory, Platform
from coexec.models.fabric import MEASURED, LinkWay, fabric
from coexec.models.shortest import candidate_sets


def test_eight_fpgas_are_two_classes_with_quick_ways_inside_and_the_host_between() -> None:
    found = fabric(Platform.load("f1.16xlarge"))
    assert found.classes == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.designs(found.all) == ("superlip", "systolic", "winograd")
    assert len(list(found.sets())) == 24
    near, far = LinkWay(1e-9, 2e-6), LinkWay(8e-9, 2e-5)  # 1 GB/s; twice 0.25 GB/s, one after the other
    assert found.ring((4, 0)) == pytest.approx(near) and found.ring((2, 2)) == pytest.approx(far)
    assert found.between((1, 0), (2, 0)) == pytest.approx(near) and found.between((1, 0), (0, 2)) == pytest.approx(far)
    assert found.to_host((1, 1)) == pytest.approx(LinkWay(4e-9, 1e-5))
    assert found.memory(found.all) == 1e9
    assert found.names(found.indices((1, 2), (1, 0))) == ("fpga:1", "fpga:4", "fpga:5")
    assert found.extra_power((1, 1), "systolic") == pytest.approx(2 * 30) and found.idle_power() == pytest.approx(
        8 * 15
    )


def platform(*flops: float, linked: bool = True) -> Platform:
    devices = tuple(Device(f"gpu:{i}", "gpu", 2 + i, flops=rate) for i, rate in enumerate(flops))
    memories = (Memory("user"), Memory("host"), *(Memory(f"m{i}", 1 << 30) for i in range(len(flops))))
    links = {}
    for i in range(len(flops)) if linked else ():
        links[HOST, 2 + i], links[2 + i, HOST] = Link(HOST, 2 + i), Link(2 + i, HOST)
    return Platform(devices, memories, links, name="own")


def test_devices_without_designs_count_by_their_rates_and_unlike_ones_are_told_apart() -> None:
    found = fabric(platform(1e12, 1e12, 2e12))
    assert found.classes == ((0, 1), (2,))
    assert found.designs(found.all) == (MEASURED,)


def test_processors_are_used_where_there_is_nothing_else() -> None:
    assert [a.name for a in fabric(Platform.load("laptop")).accelerators] == ["gpu:0"]
    cpu = Platform((Device("cpu:0", "cpu", HOST, flops=1e11),), name="cpu")
    assert [a.name for a in fabric(cpu).accelerators] == ["cpu:0"]


def test_a_platform_that_cannot_be_planned_for_is_refused_with_the_reason() -> None:
    with pytest.raises(PlanError, match="has no device whose speed is known"):
        fabric(Platform((), name="empty"))
    with pytest.raises(PlanError, match=r"128 accelerators.*16 at most"):
        fabric(Platform.load("a100x128"))
    with pytest.raises(PlanError, match="no way from gpu:0 to gpu:1"):
        fabric(platform(1e12, 1e12, linked=False))
    odd = Platform((Device("fpga:0", "fpga", 2, designs=("systolic",)),), (Memory("user"), Memory("host"), Memory("m")))
    with pytest.raises(PlanError, match="no clock"):
        fabric(odd)


def test_many_unlike_accelerators_are_tried_alone_and_the_fastest_together() -> None:
    found = fabric(platform(*(1e12 * (1 + i) for i in range(8))))
    sets = candidate_sets(found)
    assert len(sets) == 15
    assert (0,) * 7 + (1,) in sets and (0,) * 6 + (1, 1) in sets and (1,) * 8 in sets
