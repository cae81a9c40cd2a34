"""What-if: one sentence changes one thing of a platform and nothing else; mistakes are answered with what there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import ConfigError, UnknownName
from coexec.machine.files.loading import parse
from coexec.machine.platform import HOST, USER, Platform
from coexec.machine.what_if import FIELDS, PlatformChange, parse_change, parse_sweep, what_if

A100 = Platform.load("a100x4")
CLUSTER = Platform.load("a100x128")
WORKSTATION = Platform.load("workstation")


def seconds(platform: Platform, source: str, target: str, nbytes: int = 1 << 30) -> float:
    ids = {memory.name: i for i, memory in enumerate(platform.memories)}
    link = platform.link(ids[source], ids[target])
    assert link is not None
    return link.seconds(nbytes)


def test_twice_the_bandwidth_of_a_link_halves_its_time_and_leaves_other_links_alone() -> None:
    better = what_if(A100, "link pcie bandwidth x2")
    assert seconds(better, "host", "gpu:0") == pytest.approx(5.5e-6 + (1 << 30) / 50e9)
    assert seconds(better, "gpu:0", "gpu:1") == seconds(A100, "gpu:0", "gpu:1")
    assert (better.devices, better.memories) == (A100.devices, A100.memories)


def test_a_link_is_named_by_its_ends_too_and_the_users_memory_follows_the_hosts() -> None:
    better = what_if(WORKSTATION, "link host>gpu:0 bandwidth 25.2GB/s")
    gpus = [WORKSTATION.device(name).memory for name in ("gpu:0", "gpu:1")]
    for source in (USER, HOST):
        one, other = (better.link(source, gpu) for gpu in gpus)
        assert one is not None
        assert other is not None
        assert (one.bandwidth, other.bandwidth) == (25.2e9, 12.6e9)
    back = better.link(gpus[0], HOST)
    assert back is not None
    assert back.bandwidth == 12.6e9


def test_latency_takes_units() -> None:
    better = what_if(A100, "link nvlink latency 5us")
    assert seconds(better, "gpu:0", "gpu:1", 0) == pytest.approx(5e-6)


def test_a_device_is_meant_by_name_by_stem_or_by_kind() -> None:
    assert {d.watts for d in what_if(A100, "device gpu watts 300").devices if d.kind == "gpu"} == {300.0}
    one = what_if(A100, "device gpu:1 watts +50")
    assert [d.watts for d in one.devices if d.kind == "gpu"] == [400.0, 450.0, 400.0, 400.0]
    assert what_if(CLUSTER, "device n3/gpu:1 watts 1000").device("n3/gpu:1").watts == 1000.0
    assert what_if(CLUSTER, "device gpu:1 watts 1000").device("n3/gpu:1").watts == 1000.0


def test_faster_devices_scale_all_their_rates_and_own_measurements_no_more() -> None:
    old, new = A100.device("gpu:0"), what_if(A100, "device gpu flops x2").device("gpu:0")
    assert new.rate("float32") == 2 * (old.rate("float32") or 0)
    assert new.rate("float16") == 2 * (old.rate("float16") or 0)
    assert new.speed != old.speed
    assert what_if(A100, "device gpu launch x2").device("gpu:0").speed == old.speed


def test_the_bandwidth_of_a_device_is_that_of_its_own_memory_too_but_not_of_one_it_shares() -> None:
    faster = what_if(A100, "device gpu:0 bandwidth x2")
    found = {memory.name: memory.bandwidth for memory in faster.memories}
    assert (found["gpu:0"], found["gpu:1"], faster.device("gpu:0").bandwidth) == (3110e9, 1555e9, 3110e9)
    soc = Platform.load("edge-soc")
    assert what_if(soc, "device gpu bandwidth x2").memories == soc.memories


def test_memory_and_network_change() -> None:
    more = what_if(CLUSTER, "memory gpu capacity 80 GB")
    assert {m.capacity for m in more.memories if "gpu" in m.name} == {80 * 10**9}
    assert more.memories[HOST] == CLUSTER.memories[HOST]
    before, after = CLUSTER.topology, what_if(CLUSTER, "network latency x2").topology
    assert before is not None
    assert before.network is not None
    assert after is not None
    assert after.network == before.network._replace(latency=2 * before.network.latency)


def test_a_bus_changes() -> None:
    text = """
        memory = [{ name = "host" }, { name = "gpu" }]
        device = [{ name = "gpu", kind = "gpu", memory = "gpu" }]
        bus = [{ name = "ring", bandwidth = 1e9 }]
        link = [{ from = "host", to = "gpu", bandwidth = 2e9, latency = 0, shared = "ring" }]
    """
    ring = Platform(*parse(text))
    assert what_if(ring, "bus ring bandwidth +1GB/s").limit("ring") == 2e9
    with pytest.raises(UnknownName, match=r"unknown bus 'rings'; did you mean 'ring'\?"):
        what_if(ring, "bus rings bandwidth x2")


@pytest.mark.parametrize("name", Platform.presets())
def test_one_more_device_of_any_kind_is_like_the_last_one_and_one_less_takes_it_back(name: str) -> None:
    before = Platform.load(name)
    for kind in dict.fromkeys(device.kind for device in before.devices):
        more = what_if(before, f"device {kind} count +1")
        assert len(more.devices) == len(before.devices) + before.nodes
        assert what_if(more, f"device {kind} count -1") == before
        new = next(d for d in more.devices if d.name not in {d.name for d in before.devices})
        assert more.link(HOST, new.memory) is not None or new.memory == HOST


def test_what_serves_a_device_alone_comes_with_it_and_what_it_shares_it_shares() -> None:
    more = what_if(A100, "device gpu count +1")
    assert more.topology is not None
    assert {"pcie:4"} == {s.name for s in more.topology.switches} - {"pcie:0", "pcie:1", "pcie:2", "pcie:3"}
    assert "nic:4" in more.topology.cards
    assert seconds(more, "gpu:4", "gpu:3") == seconds(A100, "gpu:2", "gpu:3")
    mi210 = Platform.load("mi210x8")
    assert mi210.topology is not None
    shared = what_if(mi210, "device gpu count +1").topology
    assert shared is not None
    assert shared.switches == mi210.topology.switches


def test_more_cores_make_the_device_of_all_cores_larger() -> None:
    wide, wider = WORKSTATION.device("cpu:all"), what_if(WORKSTATION, "device cpu count x2").device("cpu:all")
    assert len(wider.cores) == 2 * len(wide.cores)
    assert wider.flops == pytest.approx(2 * (wide.flops or 0))
    with pytest.raises(ConfigError, match="no more than one of it"):
        what_if(WORKSTATION, "device cpu:all count +1")


def test_nodes_come_and_go() -> None:
    assert len(what_if(CLUSTER, "nodes 2").devices) == 12
    assert what_if(what_if(CLUSTER, "nodes x2"), "nodes 32") == CLUSTER
    with pytest.raises(ConfigError, match=r"a100x4 has no \[network\]"):
        what_if(A100, "nodes x2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown thing to change ''"),
        ("lnk pcie bandwidth x2", r"did you mean 'link'\? \(known: bus, device, link, memory, network, nodes\)"),
        ("link pcie", r"does not read link NAME bandwidth\|latency x2\|\+1\|VALUE"),
        ("link pci bandwidth x2", r"unknown link 'pci'; did you mean 'pcie'\?"),
        ("device gpus flops x2", r"unknown device 'gpus'; did you mean 'gpu'\?"),
        ("device gpu flop x2", r"unknown field of a device 'flop'; did you mean 'flops'\?"),
        ("device gpu flops twice", "'twice' is not a number for flops"),
        ("device gpu flops x0", "flops of gpu:0 would become 0"),
        ("device gpu count -4", "count of device gpu would become 0"),
        ("device gpu watts 10", "less than its idle_watts 55"),
        ("device gpu idle_watts 500", "more than its watts 400"),
        ("device gpu launch -1", "launch of gpu:0 would become"),
        ("device cpu launch x2", "cpu:0 has no launch"),
        ("memory hots capacity 1GB", r"unknown memory 'hots'; did you mean 'host'\?"),
        ("memory gpu capacity lots", "'lots' is not a number for capacity"),
        ("network latency x2", r"has no \[network\]"),
        ("device gpu count 99999", "more than 128 in one node"),
    ],
)
def test_what_is_wrong_is_said_with_what_there_is(text: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match=message) as error:
        what_if(A100, text)
    assert "\n" not in str(error.value)


def test_a_sweep_is_a_change_with_several_values() -> None:
    assert parse_sweep("devices=1,2, 4") == ("devices", ("1", "2", "4"))
    assert parse_sweep("link pcie  bandwidth = x1,x2") == ("link pcie bandwidth", ("x1", "x2"))
    for wrong in ("devices", "devices=", "=1,2", "devices=1,,2"):
        with pytest.raises(ConfigError, match="a sweep reads WHAT=VALUE"):
            parse_sweep(wrong)
    with pytest.raises(ConfigError, match="a value twice"):
        parse_sweep("devices=1,1")


NUMBERS = st.sampled_from(["x2", "x0.5", "+1", "-1", "3", "1e9", "80GB", "x-1", "nan", "xinf", "+", "", "x"])
WORDS = st.sampled_from(["gpu", "gpu:0", "cpu", "host", "pcie", "nvlink", "host>gpu", ">", "n0/gpu:0", "x", ""])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([*FIELDS, "thing"]),
    WORDS,
    st.sampled_from([field for fields in FIELDS.values() for field in fields]),
    NUMBERS,
)
def test_any_sentence_gives_a_platform_that_can_be_saved_or_is_refused(
    subject: str, name: str, field: str, how: str
) -> None:
    for platform in (A100, WORKSTATION):
        try:
            changed = what_if(platform, f"{subject} {name} {field} {how}")
        except (ConfigError, UnknownName):
            continue
        text = "\n".join(map(str, (changed.devices, changed.memories)))
        assert "nan" not in text
        assert replace(changed) == changed


def test_a_change_is_plain_data() -> None:
    assert parse_change("memory gpu capacity 80GB") == PlatformChange("memory", "gpu", "capacity", "=", 80e9)
    assert parse_change("network latency x0.5") == PlatformChange("network", "", "latency", "x", 0.5)
    assert parse_change("nodes +1") == PlatformChange("nodes", "", "nodes", "+", 1.0)


def test_a_device_without_single_precision_does_not_get_it_by_being_faster() -> None:
    soc = Platform.load("edge-soc")
    old, new = soc.device("npu:0"), what_if(soc, "device npu flops x2").device("npu:0")
    assert (new.rate("float16"), new.rate("float32")) == (2 * (old.rate("float16") or 0), None)
    assert new.speed != old.speed
    with pytest.raises(ConfigError, match=r"flops of npu:0 are for float16, int8, and not for float32.*write x2"):
        what_if(soc, "device npu flops 5e12")
