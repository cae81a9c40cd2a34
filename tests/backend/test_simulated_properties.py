"""What holds for every simulated run: lower bounds, a fixed plan on faster links, noise and its seed."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.backend.simulated import NOTHING, Costs, Happening, Scenario, simulate
from coexec.backend.simulated.devices import Place
from coexec.machine.platform import HOST, Device
from coexec.plan.plan import save_plans
from tests.backend.simulated_parts import arrays, backend_of, make, opened, platform, use

# Lower bounds -------------------------------------------------------------------------------------------------------------


def machine(speeds: list[float], concurrent: int, bandwidth: float) -> str:
    """Return devices gpu0, gpu1, ... with such speeds in Gflop/s, on links of their own."""
    lines = ['[[memory]]\nname = "host"']
    for number, speed in enumerate(speeds):
        name = f"gpu{number}"
        lines.append(f'[[memory]]\nname = "{name}"')
        lines.append(f'[[device]]\nname = "{name}"\nkind = "gpu"\nmemory = "{name}"\nflops = {speed * 1e9!r}')
        lines.append(f"concurrent = {concurrent}")
        lines.append(f'[[link]]\nfrom = "host"\nto = "{name}"\nbandwidth = {bandwidth!r}\nlatency = 0.01')
    return "\n".join(lines)


programs = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.floats(0.1, 3.0), st.integers(0, 3)), min_size=1, max_size=14
)


class Earliest:
    """The earliest that each array can be in each memory: a value is made once, and copies take a hop each."""

    def __init__(self, hop: float) -> None:
        self.hop = hop
        self.valid: dict[int, dict[str, float]] = {}

    def read(self, array: int, device: str) -> float:
        valid = self.valid[array]
        if device not in valid:
            valid["host"] = min(valid.get("host", inf), min(valid.values()) + self.hop)
            valid[device] = valid["host"] + self.hop
        return valid[device]


@settings(max_examples=40)
@given(programs, st.lists(st.floats(0.5, 4.0), min_size=1, max_size=4), st.integers(1, 3), st.floats(1e5, 1e8))
def test_no_run_is_shorter_than_its_critical_path_or_its_work_on_all_devices(
    program: list[tuple[int, int, float, int]], speeds: list[float], concurrent: int, bandwidth: float
) -> None:
    nbytes = 80_000
    early = Earliest(0.01 + nbytes / bandwidth)
    work = dict.fromkeys([f"gpu{i}" for i in range(len(speeds))], 0.0)
    with opened(machine(speeds, concurrent, bandwidth)) as runtime:
        data = arrays(5, nbytes)
        for number, array in enumerate(data):
            make.using(devices="gpu0")(array, 0.1)
            early.valid[number] = {"gpu0": 0.1 / speeds[0]}
            work["gpu0"] += 0.1 / speeds[0]
        for source, target, seconds, on in program:
            number = on % len(speeds)
            device, takes = f"gpu{number}", seconds / speeds[number]
            use.using(devices=device)(data[source], data[target], seconds)
            begin = max(early.read(source, device), early.read(target, device))
            early.valid[target] = {device: begin + takes}
            work[device] += takes
        cx.wait()
        makespan = backend_of(runtime).now
    path = max(time for valid in early.valid.values() for place, time in valid.items() if place != "host")
    assert makespan >= path * (1 - 1e-9)
    assert makespan >= max(work.values()) * (1 - 1e-9)
    assert makespan >= sum(work.values()) / len(speeds) * (1 - 1e-9)


# A fixed plan -------------------------------------------------------------------------------------------------------------

UNLIKE = """
[[memory]]
name = "host"
[[memory]]
name = "gpu"
count = 3
[[device]]
name = "gpu:0"
kind = "gpu"
memory = "gpu:0"
flops = 1e9
[[device]]
name = "gpu:1"
kind = "gpu"
memory = "gpu:1"
flops = 2e9
[[device]]
name = "gpu:2"
kind = "gpu"
memory = "gpu:2"
flops = 0.7e9
[[switch]]
name = "pcie"
[[link]]
from = "host"
to = "pcie"
bandwidth = 1.5e6
latency = 1e-4
[[link]]
from = "pcie"
to = "gpu"
bandwidth = 1e6
latency = 1e-4
"""


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=100_000)
def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * u[:-2, 1:-1]


@cx.kernel(split=0, x=cx.read, y=cx.read(cx.all), out=cx.write, flops=lambda x, y, out: 3.0 * x.size * y.size)
def gather(x, y, out):
    out[...] = x + y.sum()


def faster(here: cx.Platform, factor: float) -> cx.Platform:
    """Return a platform whose wires are all so many times as fast."""
    topology = here.topology
    assert topology is not None
    wires = tuple(wire._replace(bandwidth=wire.bandwidth * factor) for wire in topology.wires)
    links = {pair: replace(link, bandwidth=link.bandwidth * factor) for pair, link in here.links.items()}
    return replace(here, links=links, topology=replace(topology, wires=wires))


def seconds_of(here: cx.Platform, plan: Path, steps: int, rows: int) -> float:
    """Return the time of a program whose divisions are fixed."""
    with cx.Runtime(machine=simulate(here, costs=NOTHING), plan=str(plan), store="off", diagnostics="off") as runtime:
        u, v = cx.zeros((rows, 50)), cx.zeros((rows, 50))
        for step in range(steps):
            heat(u, v, 0.1)
            u, v = v, u
            if step % 3 == 2:
                gather(u, v, cx.empty_like(v))
        cx.wait()
        return backend_of(runtime).now


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the divisions of two kernels on three devices, in the order of the devices."""
    file = tmp_path_factory.mktemp("plans") / "plans.json"
    with opened(platform(UNLIKE)):
        u, v = cx.zeros((600, 50)), cx.zeros((600, 50))
        made = [heat.plan(u, v, 0.1), gather.plan(u, v, cx.empty_like(v))]
        assert all(len(plan.shares) == 3 for plan in made)
        save_plans(made, file)
    return file


@settings(max_examples=25)
@given(st.floats(0.02, 20.0), st.floats(1.0, 10.0), st.integers(1, 7))
def test_more_bandwidth_never_hurts_a_fixed_plan(plans: Path, first: float, more: float, steps: int) -> None:
    here = platform(UNLIKE)
    slow, fast = (seconds_of(faster(here, factor), plans, steps, 600) for factor in (first, first * more))
    assert fast <= slow * (1 + 1e-9)


def test_bandwidth_matters_until_it_hides_behind_the_kernels(plans: Path) -> None:
    here = platform(UNLIKE)
    times = [seconds_of(faster(here, factor), plans, 6, 600) for factor in (0.02, 0.1, 1.0, 1e6, 1e9)]
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[2]
    assert times[-1] == pytest.approx(times[-2], rel=1e-6)


# Noise --------------------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.floats(0.01, 0.5), st.integers(0, 1000))
def test_noise_is_1_on_average_and_as_wide_as_it_says(spread: float, seed: int) -> None:
    place = Place(Device("gpu:0", "gpu", HOST), 1, spread, seed)
    factors = np.array([place.jitter() for _ in range(20_000)])
    assert factors.mean() == pytest.approx(1.0, abs=5 * spread / np.sqrt(20_000) + 1e-9)
    assert np.log(factors).std() == pytest.approx(spread, rel=0.05)
    assert (factors > 0).all()


def test_devices_have_noise_of_their_own() -> None:
    drawn = [Place(Device(name, "gpu", HOST), 1, 0.1, 1).jitter() for name in ("gpu:0", "gpu:1", "gpu:0")]
    assert drawn[0] == drawn[2] != drawn[1]


class Run(NamedTuple):
    """What came out of a run, to be compared."""

    rows: list[dict[str, Any]]
    tasks: list[tuple[Any, ...]]
    seconds: float
    energy: Any


def run(file: Path, seed: int) -> Run:
    scenario = Scenario(
        (Happening.slow("gpu:1", 2.0, at=0.5), Happening.degraded("host>pcie", 0.5, at=1.0)), {"gpu": 0.1}, seed
    )
    opening = simulate(platform(UNLIKE), scenario=scenario, costs=Costs())
    with cx.Runtime(machine=opening, trace=file, store="off", diagnostics="off") as runtime:
        u, v = cx.zeros((600, 50)), cx.zeros((600, 50))
        for _ in range(8):
            heat(u, v, 0.1)
            u, v = v, u
        gather(u, v, cx.empty_like(v))
        cx.wait()
        simulation = backend_of(runtime)
        seconds, energy = simulation.now, simulation.energy()
    trace = cx.Trace.load(file)
    return Run(trace.ran, [(t["id"], t["name"], t.get("submitted")) for t in trace.tasks], seconds, energy)


def test_a_seed_gives_the_same_trace_again_and_another_seed_another(tmp_path: Path) -> None:
    first, again, other = (run(tmp_path / f"{i}.json", seed) for i, seed in enumerate((1, 1, 2)))
    assert first == again
    assert first.seconds != other.seconds and first.rows != other.rows and first.energy != other.energy
