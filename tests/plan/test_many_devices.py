"""Divisions over the 128 GPUs of a cluster: where data is counts, and who is near."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.machine.platform import Platform
from coexec.plan.division.bisection import divide
from coexec.plan.division.offers import Curve, Offer
from coexec.plan.division.whole_rows import adapt, good_enough
from coexec.plan.planned import Planned
from tests.plan.offers import keeps_the_rules
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


@pytest.mark.parametrize(("launch", "devices"), [(5e-6, 4), (50e-6, 1), (None, 1)])
def test_devices_that_begin_quickly_share_short_work(launch: float | None, devices: int) -> None:
    """A part of 200 us is worth dividing over GPUs that need 5 us for a launch, and not where threads must be woken."""
    gpus = tuple(replace(device, launch=launch) for device in cluster().devices[:4])
    made = Planning(platform=replace(cluster(), devices=gpus))
    arrays = [made.g.array((42, 4096), 0.0) for _ in range(2)]
    made.teach(smooth, arrays, {"n0/gpu:0": RATE})
    assert len(shares(run(made, *arrays))) == devices


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


# Numbers only ---------------------------------------------------------------------------------------------------------


@st.composite
def many(draw: st.DrawFn) -> tuple[list[Offer], int]:
    """Draw devices of a few kinds, some of which have their rows already."""
    kinds = draw(st.lists(st.tuples(st.floats(1e-6, 1e-4), st.floats(0.0, 1e-3)), min_size=1, max_size=3))
    count, granule = draw(st.integers(17, 40)), draw(st.sampled_from([1, 8]))
    rows = count * granule * draw(st.integers(4, 30)) + draw(st.integers(0, 5))
    placed = draw(st.booleans())
    offers = []
    for i in range(count):
        per_row, fixed = kinds[i % len(kinds)]
        there = (rows * i // count, rows * (i + 1) // count) if placed else (0, 0)
        moving = draw(st.sampled_from([0.0, 1e-6, 1e-4])) if placed else 0.0
        offers.append(
            Offer(f"d{i}", Curve.line(per_row, fixed), granule=granule, there=there, in_per_row=moving, fixed_in=1e-5)
        )
    return offers, rows


@settings(max_examples=40)
@given(many())
def test_many_devices_take_at_most_a_granule_more_than_the_best(case: tuple[list[Offer], int]) -> None:
    offers, rows = case
    division = divide(offers, rows)
    adapted = adapt(offers, rows, division)
    assert sum(adapted.shares) == rows and keeps_the_rules(offers, adapted.shares)
    granule = max(o.granule * (o.compute.slopes()[0] + o.in_per_row) for o in offers)
    shifted = max(o.in_per_row for o in offers) * offers[0].granule * len(offers)  # what rounding moves from its place
    assert adapted.seconds <= (division.seconds + granule + shifted) * 1.01


@settings(max_examples=40)
@given(many(), st.data())
def test_cuts_that_are_good_enough_are_those_that_would_be_kept(
    case: tuple[list[Offer], int], data: st.DataObject
) -> None:
    offers, rows = case
    even = [rows * i // len(offers) for i in range(len(offers) + 1)]
    best = [round(cut) for cut in divide(offers, rows).cuts]
    sticky = data.draw(st.sampled_from([even, best]))
    found = good_enough(offers, rows, sticky)
    if found is not None:
        kept = adapt(offers, rows, divide(offers, rows), sticky=sticky)
        assert kept.sticky and (kept.cuts, kept.seconds) == (found.cuts, found.seconds)
        assert set(kept.left_out) == set(found.left_out) and kept.single == found.single


def test_few_devices_and_devices_that_queue_are_looked_at_in_full() -> None:
    alike = [Offer(f"d{i}", Curve.line(1e-5)) for i in range(20)]
    cuts = [10 * i for i in range(21)]
    assert good_enough(alike, 200, cuts) is not None
    assert good_enough(alike, 200, None) is None and good_enough(alike, 201, cuts) is None
    assert good_enough(alike[:8], 80, cuts[:9]) is None
    assert good_enough([o._replace(link="bus", fixed_in=1e-6) for o in alike], 200, cuts) is None


def test_planning_again_looks_at_each_device_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each pair of devices, however many there are: what a cut costs is asked once for every device."""
    asked = []
    seconds = Curve.seconds

    def counted(curve: Curve, rows: float) -> float:
        asked.append(rows)
        return seconds(curve, rows)

    made = planning()
    u, v = (made.g.array((SIDE, SIDE), 0.0) for _ in range(2))
    run(made, u, v)
    monkeypatch.setattr(Curve, "seconds", counted)
    run(made, v, u)
    assert len(asked) < 30 * 128
