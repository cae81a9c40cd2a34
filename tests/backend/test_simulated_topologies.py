"""Who shares what on the way: PCIe switches, pairs of NVLink, network cards and networks; and presets as they are."""

from __future__ import annotations

import random
import re
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.backend.simulated import NOTHING, Happening, Scenario, simulate
from coexec.errors import PlatformError
from coexec.machine.files import loading as files
from tests.backend.simulated_parts import MB, arrays, backend_of, make, opened, use

EXACT = 1e-12

NODE = """
[[memory]]
name = "host"
[[memory]]
name = "gpu"
count = 4
[[device]]
name = "gpu"
kind = "gpu"
count = 4
memory = "gpu"
flops = 1e9
[[switch]]
name = "pcie"
count = 2
[[link]]
from = "host"
to = "pcie"
bandwidth = 1e6
latency = 0.0
[[link]]
from = "pcie"
to = "gpu"
pairwise = true
bandwidth = 1e6
latency = 0.0
name = "pcie"
[[link]]
from = "gpu:0"
to = "gpu:1"
bandwidth = 4e6
latency = 0.0
name = "nvlink"
[[link]]
from = "gpu:2"
to = "gpu:3"
bandwidth = 4e6
latency = 0.0
name = "nvlink"
"""
"""Four devices, two behind each of two switches; the two of a switch are joined directly, too."""

CLUSTER = (
    "nodes = 3\n"
    + NODE
    + """
[[nic]]
name = "nic"
[[link]]
from = "host"
to = "nic"
bandwidth = 8e6
latency = 0.0
[[link]]
from = "pcie"
to = "nic"
bandwidth = 8e6
latency = 0.0
[network]
bandwidth = 0.5e6
latency = 0.125
"""
)


def copied(text: str, pairs: list[tuple[str, str]], megabytes: int = 1, scenario: Scenario | None = None) -> float:
    """Return how long it takes until devices have got what others have, all at once."""
    with opened(text, scenario=scenario) as runtime:
        data, results = arrays(len(pairs), megabytes * MB), arrays(len(pairs))
        for (source, _), array in zip(pairs, data, strict=True):
            if source != "host":
                make.using(devices=source)(array, 1.0)
        cx.wait()
        if pairs[0][0] == "host":
            data = [cx.asarray(np.zeros(megabytes * MB // 8)) for _ in pairs]
        begin = backend_of(runtime).now
        for (_, target), array, result in zip(pairs, data, results, strict=True):
            use.using(devices=target)(array, result, 0.0)  # no operations, and no bandwidth stated: 1 ms
        cx.wait()
        return backend_of(runtime).now - begin - 1e-3


def exactly(seconds: float) -> object:
    return pytest.approx(seconds, rel=EXACT)


def test_two_behind_one_switch_share_its_link_to_the_host_and_two_behind_two_do_not() -> None:
    assert copied(NODE, [("host", "gpu:0")]) == exactly(1.0)
    assert copied(NODE, [("host", "gpu:0"), ("host", "gpu:1")]) == exactly(2.0)
    assert copied(NODE, [("host", "gpu:0"), ("host", "gpu:2")]) == exactly(1.0)
    assert copied(NODE, [("host", f"gpu:{i}") for i in range(4)]) == exactly(2.0)


def test_pairs_that_are_joined_directly_share_nothing_with_anybody() -> None:
    assert copied(NODE, [("gpu:0", "gpu:1")]) == exactly(0.25)
    assert copied(NODE, [("gpu:0", "gpu:1"), ("gpu:2", "gpu:3")]) == exactly(0.25)
    assert copied(NODE, [("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")]) == exactly(0.25)  # directions do not meet
    assert copied(NODE, [("gpu:0", "gpu:1"), ("gpu:0", "gpu:1")]) == exactly(0.5 + 1e-3)  # and one kernel more


def test_from_one_pair_to_the_other_the_way_leads_over_both_switches_through_the_host() -> None:
    assert copied(NODE, [("gpu:0", "gpu:2")]) == exactly(2.0)  # to the host, then on
    assert copied(NODE, [("gpu:0", "gpu:2"), ("gpu:1", "gpu:3")]) == exactly(4.0)
    assert copied(NODE, [("gpu:0", "gpu:2"), ("gpu:2", "gpu:0")]) == exactly(2.0)


def test_what_is_sent_to_another_node_shares_the_card_and_nothing_else() -> None:
    one = 0.125 + 2.0  # 1 MB at 0.5 MB/s
    assert copied(CLUSTER, [("n0/gpu:0", "n1/gpu:0")]) == exactly(one)
    assert copied(CLUSTER, [("n0/gpu:0", "n1/gpu:0"), ("n0/gpu:2", "n2/gpu:0")]) == exactly(0.125 + 4.0)  # one card out
    assert copied(CLUSTER, [("n0/gpu:0", "n2/gpu:0"), ("n1/gpu:0", "n2/gpu:2")]) == exactly(0.125 + 4.0)  # one card in
    assert copied(CLUSTER, [("n0/gpu:0", "n1/gpu:0"), ("n1/gpu:0", "n2/gpu:0")]) == exactly(one)  # a card's two ways
    assert copied(CLUSTER, [("n0/gpu:0", "n1/gpu:0"), ("n1/gpu:0", "n0/gpu:0")]) == exactly(one)


def test_a_network_that_blocks_is_shared_by_all() -> None:
    text = CLUSTER + "total = 0.75e6\n"
    pairs = [("n0/gpu:0", "n1/gpu:0"), ("n1/gpu:0", "n2/gpu:0"), ("n2/gpu:0", "n0/gpu:0")]
    assert copied(text, pairs) == exactly(0.125 + 4.0)  # 0.25 MB/s each
    assert copied(CLUSTER, pairs) == exactly(0.125 + 2.0)


def test_a_wire_that_degrades_slows_down_those_who_cross_it_from_then_on() -> None:
    happens = Scenario((Happening.degraded("nvlink", 0.25, at=1.0 + 0.125),))  # the arrays are made at 1
    assert copied(NODE, [("gpu:0", "gpu:1")], scenario=happens) == exactly(0.125 + 0.5)
    assert copied(NODE, [("gpu:0", "gpu:2")], scenario=happens) == exactly(2.0)
    happens = Scenario((Happening.degraded("host>pcie:0", 0.5),))
    assert copied(NODE, [("host", "gpu:0"), ("host", "gpu:2")], scenario=happens) == exactly(2.0)


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * u[:-2, 1:-1]


@pytest.mark.parametrize("name", cx.Platform.presets())
def test_every_preset_runs_a_program(name: str) -> None:
    platform = cx.Platform.load(name)
    with cx.Runtime(machine=simulate(platform, costs=NOTHING), store="off", diagnostics="off") as runtime:
        u, v = cx.zeros((2000, 2000), np.float32), cx.zeros((2000, 2000), np.float32)
        for _ in range(3):
            heat(u, v, 0.1)
            u, v = v, u
        if platform.nodes == 1:
            cx.matmul(u, v)
        cx.wait()
        simulation = backend_of(runtime)
        assert 0.0 < simulation.now < 10.0
        energy = simulation.energy()
        assert set(energy.devices) == {device.name for device in platform.devices}
        assert energy.total >= sum(d.idle_watts or 0.0 for d in platform.devices if not d.wide) * simulation.now * 0.999
        assert set(simulation.sources()["heat"]) == {"roofline"}


NUMBERS = ["1e30", "1e-6", "1e15", "1", "3.5e-3", "1e9"]
TEXTS = [files.presets()[name].read_text(encoding="utf-8") for name in cx.Platform.presets() if name != "a100x128"]


def with_other_numbers(text: str, source: random.Random) -> str:
    for _ in range(source.randint(1, 4)):
        found = source.choice(list(re.finditer(r"(?<== )[0-9][0-9.e+-]*", text)))
        text = text[: found.start()] + source.choice(NUMBERS) + text[found.end() :]
    return text


@settings(max_examples=40)
@given(st.sampled_from([*TEXTS, NODE]), st.randoms(use_true_random=False))
def test_whatever_platform_loads_runs_a_program(text: str, source: random.Random) -> None:
    try:
        made = cx.Platform(*files.parse(with_other_numbers(text, source)))
    except PlatformError:
        return
    if len(made.devices) > 40:
        return
    with cx.Runtime(machine=simulate(made), store="off", diagnostics="off") as runtime:
        u, v = cx.zeros((300, 40)), cx.zeros((300, 40))
        for _ in range(3):
            heat(u, v, 0.1)
            u, v = v, u
        u += 1
        cx.wait()
        simulation = backend_of(runtime)
        assert 0.0 < simulation.now < inf and 0.0 <= simulation.energy().total < inf
