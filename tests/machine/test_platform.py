"""A platform is what its file says: counts become devices, links lead over switches and nodes by rule."""

from __future__ import annotations

import pytest

from coexec.errors import UnknownName
from coexec.machine.files.loading import parse
from coexec.machine.files.writing import text_of
from coexec.machine.platform import HOST, USER, Device, Link, Platform, host_links
from tests.machine.platform_files import CLUSTER, HOST_ONLY, NODE, ids, platform, way


def test_a_count_becomes_named_devices_with_a_memory_each() -> None:
    node = platform(NODE)
    assert [device.name for device in node.devices] == ["cpu:0", "cpu:1", "gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert [node.memories[device.memory].name for device in node.devices[2:]] == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert {node.memories[device.memory].capacity for device in node.devices[2:]} == {2 * 10**9}
    assert [device.memory for device in node.devices[:2]] == [HOST, HOST]
    assert node.device("cpu:1").cores == (4, 5, 6, 7)
    assert node.device("gpu:3").speed == "Fast GPU"


def test_several_devices_may_share_each_of_several_memories() -> None:
    shared = platform(NODE.replace('name = "gpu"\ncount = 4\ncapacity', 'name = "gpu"\ncount = 2\ncapacity'))
    assert [shared.memories[d.memory].name for d in shared.devices[2:]] == ["gpu:0", "gpu:0", "gpu:1", "gpu:1"]


def test_a_wide_device_has_the_cores_of_the_narrow_ones() -> None:
    wide = '\n[[device]]\nname = "cpu:all"\nkind = "cpu"\nwide = true\nmemory = "host"\n'
    assert platform(NODE + wide).device("cpu:all").cores == tuple(range(8))


def test_rates_are_known_by_type_and_fall_back_to_single_precision() -> None:
    gpu = platform(NODE).device("gpu:0")
    assert (gpu.flops, gpu.rate("float32"), gpu.rate("float64")) == (2e12, 2e12, 1e12)
    assert (gpu.rate("complex128"), gpu.rate("int32")) == (1e12, 2e12)
    assert Device("x", "x", HOST).rate("float32") is None


def test_devices_of_unlike_figures_share_no_measurements_unless_the_file_says_so() -> None:
    text = "\n".join(
        [
            HOST_ONLY,
            *(f'[[device]]\nname = "gpu:{i}"\nkind = "gpu"\nmemory = "host"\nflops = {i // 2 + 1}e9' for i in range(4)),
        ]
    )
    made = platform(text)
    assert [device.speed for device in made.devices[1:]] == ["gpu", "gpu", "gpu #2", "gpu #2"]
    assert Platform(*parse(text_of(made._parts()))) == made
    same = platform(text.replace("flops", 'speed = "alike"\nflops'))
    assert {device.speed for device in same.devices[1:]} == {"alike"}


def test_a_device_does_everything_unless_it_names_operations() -> None:
    assert Device("x", "x", HOST).does("conv2d")
    assert Device("x", "x", HOST, ops=("conv2d",)).does("conv2d")
    assert not Device("x", "x", HOST, ops=("conv2d",)).does("sort")


def test_a_way_over_a_switch_adds_latencies_and_is_as_narrow_as_its_narrowest_wire() -> None:
    link = way(platform(NODE), "host", "gpu:2")
    assert link is not None
    assert link.latency == pytest.approx(5e-6) and link.bandwidth == 10e9
    assert link.seconds(10**9) == pytest.approx(5e-6 + 0.1)
    assert link.shared == ("host>pcie:1", "pcie:1>gpu:2") and link.bus == "host>pcie:1" and link.name == "pcie"


def test_what_links_share_has_a_limit_in_each_direction() -> None:
    node = platform(NODE)
    down, up = way(node, "host", "gpu:0"), way(node, "gpu:0", "host")
    assert down is not None and up is not None
    assert set(down.shared) & set(up.shared) == set()
    assert [node.limit(name) for name in down.shared] == [10e9, 20e9]
    other = way(node, "host", "gpu:1")
    assert other is not None and set(down.shared) & set(other.shared) == {"host>pcie:0"}
    with pytest.raises(UnknownName, match="did you mean 'host>pcie:0'"):
        node.limit("host>pcie:00")


def test_a_direct_link_wins_over_a_way_through_a_switch() -> None:
    node = platform(NODE)
    assert way(node, "gpu:0", "gpu:1") == Link(2, 3, 2e-6, 100e9, (), "nvlink")
    assert way(node, "gpu:2", "gpu:3") == Link(4, 5, 2e-6, 20e9, ("gpu:2>pcie:1", "pcie:1>gpu:3"), "pcie")


def test_nothing_is_passed_on_by_a_memory() -> None:
    node = platform(NODE)
    assert way(node, "gpu:0", "gpu:2") is None  # their switches are joined by the host's memory only
    assert way(node, "gpu:0", "gpu:0") is None


def test_a_switch_without_peers_serves_the_host_only() -> None:
    node = platform(NODE.replace('name = "pcie"\ncount = 2', 'name = "pcie"\ncount = 2\npeers = false'))
    assert way(node, "host", "gpu:2") is not None and way(node, "gpu:2", "host") is not None
    assert way(node, "gpu:2", "gpu:3") is None


def test_the_quickest_of_several_ways_is_taken() -> None:
    slow = (
        '\n[[switch]]\nname = "slow"\n[[link]]\nfrom = "slow"\nto = ["host", "gpu:0"]\nbandwidth = {}\nlatency = {}\n'
    )
    narrow = way(platform(NODE + slow.format("1e9", "0.0")), "host", "gpu:0")
    assert narrow is not None and narrow.bandwidth == 10e9
    quick = way(platform(NODE + slow.format("9.9e9", "0.0")), "host", "gpu:0")  # 5 us less beat 1 % of bandwidth
    assert quick is not None and quick.bandwidth == 9.9e9


def test_what_the_user_owns_is_on_the_host() -> None:
    node = platform(NODE)
    assert way(node, "user", "host") == Link(USER, HOST, bandwidth=20e9)  # read and written: half the memory's
    from_host, from_user = way(node, "host", "gpu:3"), way(node, "user", "gpu:3")
    assert from_host is not None and from_user is not None
    assert (from_user.latency, from_user.bandwidth) == (from_host.latency, from_host.bandwidth)
    assert way(node, "gpu:3", "user") is None and way(node, "host", "user") is None


def test_a_bus_is_shared_in_both_directions() -> None:
    text = (
        HOST_ONLY
        + """
[[memory]]
name = "gpu"
count = 2
[[device]]
name = "gpu"
kind = "gpu"
count = 2
memory = "gpu"
[[bus]]
name = "old"
bandwidth = 1e9
[[link]]
from = "host"
to = "gpu"
bandwidth = 1e9
latency = 0.0
shared = "old"
"""
    )
    found = platform(text)
    assert {link.bus for link in found.links.values() if USER not in (link.source, link.target)} == {"old"}
    assert found.limit("old") == 1e9


def test_nodes_repeat_devices_and_memories_under_their_own_names() -> None:
    cluster = platform(CLUSTER)
    assert cluster.nodes == 3 and len(cluster.devices) == 18 and len(cluster.memories) == 1 + 3 * 5
    names = [device.name for device in cluster.devices]
    assert (names[0], names[6], names[-1]) == ("n0/cpu:0", "n1/cpu:0", "n2/gpu:3")
    gpu = cluster.device("n2/gpu:3")
    assert cluster.memories[gpu.memory].name == "n2/gpu:3" and gpu.readable == (gpu.memory,)
    cpu = cluster.device("n1/cpu:1")
    assert cluster.memories[cpu.memory].name == "n1/host" and cpu.reads(USER)
    every = [core for device in cluster.devices for core in device.cores]
    assert len(set(every)) == len(every) == 24


def test_links_within_every_node_are_those_of_the_first() -> None:
    cluster = platform(CLUSTER)
    for one, other in [("host", "gpu:2"), ("gpu:0", "gpu:1"), ("gpu:3", "gpu:2")]:
        first, third = (way(cluster, f"n{n}/{one}", f"n{n}/{other}") for n in (0, 2))
        assert first is not None and third is not None
        assert (first.latency, first.bandwidth, first.name) == (third.latency, third.bandwidth, third.name)
        assert [name.replace("n0/", "n2/") for name in first.shared] == list(third.shared)


def test_the_way_to_another_node_leads_over_network_cards() -> None:
    cluster = platform(CLUSTER)
    link = way(cluster, "n0/gpu:0", "n2/gpu:1")
    assert link is not None
    assert link.latency == pytest.approx(1e-6 + 1e-6 + 3e-6 + 1e-6 + 1e-6) and link.bandwidth == 5e9
    assert link.seconds(5 * 10**9) == pytest.approx(1.000007)
    assert set(link.shared[:2]) == {"n0/nic>network", "n2/network>nic"}
    assert set(link.shared[2:]) == {"n0/gpu:0>pcie:0", "n0/pcie:0>nic", "n2/nic>pcie:0", "n2/pcie:0>gpu:1"}
    assert [cluster.limit(name) for name in link.shared] == [5e9, 5e9, 20e9, 20e9, 20e9, 20e9]


def test_a_device_that_reaches_no_card_sends_through_its_host() -> None:
    cluster = platform(CLUSTER)
    assert way(cluster, "n0/gpu:2", "n1/gpu:2") is None
    assert way(cluster, "n0/gpu:2", "n0/host") is not None and way(cluster, "n0/host", "n1/host") is not None


def test_a_network_that_blocks_is_one_more_thing_to_share() -> None:
    cluster = platform(CLUSTER + "total = 6e9\n")
    for source, target in [("n0/host", "n1/host"), ("n2/host", "n1/host")]:
        link = way(cluster, source, target)
        assert link is not None and "network" in link.shared
    assert cluster.limit("network") == 6e9


def test_memories_take_turns_among_cards_that_are_equally_near() -> None:
    cluster = platform(CLUSTER.replace('[[nic]]\nname = "nic"', '[[nic]]\nname = "nic"\ncount = 2'))
    cards = set()
    for gpu in ("n0/gpu:0", "n0/gpu:1"):
        link = way(cluster, gpu, "n1/host")
        assert link is not None
        cards |= {name for name in link.shared if name.endswith(">network")}
    assert cards == {"n0/nic:0>network", "n0/nic:1>network"}


def test_a_node_of_a_cluster_is_a_platform_of_its_own() -> None:
    cluster = platform(CLUSTER)
    node = cluster.node(1)
    assert [device.name for device in node.devices] == [f"n1/{d.name}" for d in platform(NODE).devices]
    assert [memory.name for memory in node.memories][:3] == ["user", "n1/host", "n1/gpu:0"]
    link, same = way(node, "n1/host", "n1/gpu:2"), way(cluster, "n1/host", "n1/gpu:2")
    assert link is not None and same is not None
    assert (link.shared, link.seconds(10**6)) == (same.shared, same.seconds(10**6))
    assert node.devices[0].readable == (HOST, USER) and node.node(0) is node
    with pytest.raises(UnknownName, match="unknown node 3"):
        cluster.node(3)


def test_every_two_of_128_gpus_are_joined_without_a_link_being_stored_for_them() -> None:
    cluster = Platform.load("a100x128")
    known = ids(cluster)
    gpus = [device.name for device in cluster.devices if device.kind == "gpu"]
    assert len(gpus) == 128 and len(cluster.links) < 20
    within, across = cluster.link(known["n5/gpu:0"], known["n5/gpu:3"]), None
    assert within is not None and within.bandwidth == 100e9 and within.name == "nvlink"
    for i, gpu in enumerate(gpus):
        across = cluster.link(known[gpu], known[gpus[(i + 37) % 128]])
        assert across is not None and across.bandwidth == 25e9
        assert across.latency == pytest.approx(1.5e-6 + 4 * 0.5e-6)
        assert f"{gpu.replace('gpu', 'nic')}>network" in across.shared


def test_ways_into_a_memory_are_found_whatever_they_are_made_of() -> None:
    node = platform(NODE)
    assert {node.memories[link.source].name for link in node.links_into(HOST)} == {
        "user", "gpu:0", "gpu:1", "gpu:2", "gpu:3",
    }  # fmt: skip
    plain = Platform((Device("gpu:0", "gpu", 2),), (*platform(HOST_ONLY).memories, node.memories[2]), host_links([2]))
    assert [link.source for link in plain.links_into(HOST)] == [USER, 2] and plain.limit("x") is None
    assert plain.nodes == 1 and plain.node(0) is plain


def test_a_platform_describes_itself() -> None:
    text = platform(CLUSTER).describe()
    assert "3 nodes, 18 devices in all" in text
    assert "4 x gpu (Fast GPU), 1 Tflop/s float64, 2 Tflop/s float32, 100 W (10 idle), memory gpu" in text
    assert "gpu:0 and gpu:1 (nvlink), 100 GB/s, 2 µs" in text and "pcie and its gpu (pcie), 20 GB/s, 1 µs" in text
    assert "5 GB/s per nic" in text


def test_a_device_says_whether_it_is_one_core_and_whether_it_loops_by_itself() -> None:
    asked = [Device("cpu:0", "cpu", HOST), Device("cpu:all", "cpu", HOST, wide=True)]
    asked += [Device(f"{kind}:0", kind, 2) for kind in ("torch", "opencl", "gpu", "null")]
    assert [device.name for device in asked if device.is_core] == ["cpu:0"]
    assert [device.name for device in asked if device.loops] == ["cpu:0", "cpu:all", "torch:0"]
