"""Divisions over the 128 GPUs of a cluster: where data is counts, and who is near."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import coexec as cx
from coexec.machine.platform import Platform
from coexec.plan.planned import Planned
from tests.plan.planning import Planning

SIDE = 128 * 16 + 2
RATE = 2e5  # rows per second: 80 us for 16 of them


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def smooth(u, out):
    out[...] = u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1]


@cache
def cluster() -> Platform:
    platform = Platform.load("a100x128")
    return replace(platform, devices=tuple([replace(d, granule=1) for d in platform.devices if d.kind == "gpu"]))


def planning() -> Planning:
    made = Planning(platform=cluster())
    made.teach(smooth, [made.array(SIDE, SIDE), made.array(SIDE, SIDE)], {"n0/gpu:0": RATE})
    return made


def run(made: Planning, *arrays: cx.Array) -> Planned:
    planned = made.plan(smooth, *arrays)
    made.g.lowering.lower(planned.command, planned.shares)
    made.loads.seconds.update(dict.fromkeys(made.loads.seconds, 0.0))
    made.loads.tasks.update(dict.fromkeys(made.loads.tasks, 0))
    return planned


def shares(planned: Planned) -> dict[str, int]:
    return {chunk.device: chunk.box.shape[0] for chunk in planned.command.chunks}


def test_a_cut_whose_data_is_there_is_kept_on_any_number_of_devices() -> None:
    """Halos come from neighbours, each over its own wires: they do not queue where the host's data would."""
    made = planning()
    u, v = (made.g.array((SIDE, SIDE), 0.0) for _ in range(2))
    first = shares(run(made, u, v))
    assert len(first) == 128 and set(first.values()) == {16}
    for _ in range(4):
        u, v = v, u
        again = run(made, u, v)
        assert shares(again) == first
        division = made.planner.last
        assert division is not None
        halo = 2 * SIDE * 8 / 25e9 + 10e-6  # two rows over a network card, and latencies
        assert division.seconds < 16 / RATE + 50e-6 + 2 * halo


def test_rows_that_only_the_host_has_queue_on_its_way_out() -> None:
    """Bringing them to other nodes takes longer than computing them near the host."""
    made = planning()
    u, v = made.on_host(SIDE, SIDE), made.g.array((SIDE, SIDE), 0.0)
    found = shares(run(made, u, v))
    near = sum(rows for device, rows in found.items() if device.startswith("n0/"))
    assert near > SIDE / 3 and max(found.values()) == max(found[f"n0/gpu:{i}"] for i in range(4))


def test_what_one_gpu_has_stays_there_unless_sharing_it_pays() -> None:
    made = planning()
    u, v = (made.g.array((SIDE, SIDE), 0.0) for _ in range(2))
    made.g.call("make", writes=u, on="n3/gpu:1")
    made.g.call("make", writes=v, on="n3/gpu:1")
    found = shares(run(made, u, v))
    assert found["n3/gpu:1"] == max(found.values())
    beside = [found.get(f"n3/gpu:{i}", 0) for i in (0, 2, 3)]  # over NVLink, four times as fast as the network
    assert min(beside) > max(rows for device, rows in found.items() if not device.startswith("n3/"))


@pytest.mark.parametrize("rows", [2048, 2049, 1000])
def test_rows_are_spread_evenly_over_alike_devices(rows: int) -> None:
    made = planning()
    u, v = (made.g.array((rows + 2, SIDE), 0.0) for _ in range(2))
    found = list(shares(run(made, u, v)).values())
    assert sum(found) == rows and max(found) == -(-rows // 128)
