"""Divisions of real tasks over invented devices: learnt speeds, places of data, limits, and cuts that stay."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, CoexecError, CoexecWarning
from coexec.graph.command import Chunk
from coexec.machine.platform import HOST, Memory, Platform
from coexec.plan.division import divider
from coexec.plan.division.divided import holds
from coexec.plan.division.divider import KEEP
from coexec.plan.planned import Planned
from coexec.predict.features import work_of
from coexec.program.array import Array
from tests.plan.planning import BANDWIDTH, Planning, unlike

ROWS = 10_000
FAST, SLOW = 1e6, 1e6 / 3  # rows per second: 10 ms and 30 ms for all


@cx.kernel(split=0, x=cx.read, y=cx.write)
def double(x, y):
    y[...] = 2 * x


@cx.kernel(split=0, y=cx.update)
def increment(y):
    y += 1


def learnt(*rates: float, **options) -> Planning:
    """Return a planner whose devices have been measured at so many rows per second."""
    platform = options.pop("platform", None) or unlike(own=options.pop("own", (False,) * len(rates)))
    planning = Planning(platform=platform, **options)
    for kernel, count in ((double, 2), (increment, 1)):
        arrays = [planning.on_host(ROWS) for _ in range(count)]
        planning.teach(kernel, arrays, {f"dev:{i}": rate for i, rate in enumerate(rates)})
    return planning


def arrays(planning: Planning, count: int = 2) -> list[Array]:
    return [planning.on_host(ROWS) for _ in range(count)]


def test_devices_get_rows_by_their_measured_speed() -> None:
    planning = learnt(FAST, SLOW)
    planned = planning.plan(double, *arrays(planning))
    shares = [chunk.box.hi[0] - chunk.box.lo[0] for chunk in planned.command.chunks]
    assert shares[0] == pytest.approx(7500, rel=0.02) and sum(shares) == ROWS
    assert "all finish together" in planned.command.why and "dev:0 75" in planned.command.why
    first, second = (share.seconds or 0.0 for share in planned.shares)
    assert first == pytest.approx(second, rel=0.05)
    assert all(share.together for share in planned.shares)


def on_one_bus(*bandwidths: float) -> Platform:
    """Return devices with memories of their own, whose links to them carry one transfer at a time."""
    platform = unlike(own=(True,) * len(bandwidths))
    speeds = dict(enumerate(bandwidths, start=2))
    links = {
        pair: replace(link, bandwidth=speeds[pair[1]], shared=("bus",)) if pair[0] == HOST else link
        for pair, link in platform.links.items()
    }
    return replace(platform, links=links)


def by_rows(chunks: Sequence[Chunk]) -> list[Chunk]:
    return sorted(chunks, key=lambda chunk: chunk.box.lo)


def test_the_device_that_gains_most_goes_first_on_a_shared_link(monkeypatch) -> None:
    """Copies are emitted in that order; slots, and with them the order of sums, stay those of the rows."""
    planning = learnt(SLOW, FAST, platform=on_one_bus(8e6, 16e6))
    planned = planning.plan(double, *arrays(planning))
    assert planning.planner.last is not None
    chosen = planning.planner.last.seconds
    chunks = planned.command.chunks
    assert list(dict.fromkeys(chunk.device for chunk in chunks)) == ["dev:1", "dev:0"]
    assert [chunk.slot for chunk in by_rows(chunks)] == list(range(len(chunks)))
    models = {candidate.name: candidate.model for candidate in planning.candidates.of(double, None).all}
    assert [share.model for share in planned.shares] == [models[chunk.device] for chunk in chunks]
    monkeypatch.setattr(divider, "ordered", lambda offers, rows: offers)
    as_they_stand = learnt(SLOW, FAST, platform=on_one_bus(8e6, 16e6))
    as_they_stand.plan(double, *arrays(as_they_stand))
    assert as_they_stand.planner.last is not None
    assert chosen < 0.99 * as_they_stand.planner.last.seconds


@pytest.mark.parametrize("rates", [(FAST, FAST / 2, FAST / 4, FAST / 8), (FAST, FAST, FAST, FAST)])
def test_four_devices_finish_together(rates) -> None:
    planning = learnt(*rates)
    planned = planning.plan(double, *arrays(planning))
    times = [share.seconds or 0.0 for share in planned.shares]
    assert len(times) == 4 and max(times) == pytest.approx(ROWS / sum(rates), rel=0.05)
    assert max(times) < 1.05 * min(times)


def test_a_division_predicted_slower_than_one_device_is_not_made() -> None:
    planning = learnt(FAST, 1.0)
    assert planning.devices(double, *arrays(planning)) == ["dev:0"]
    assert planning.planner.last is not None
    assert "one row would take it" in planning.planner.last.division.left_out["dev:1"]


def test_a_slow_link_keeps_a_fast_device_out_until_the_data_is_there() -> None:
    """Moving the rows takes eight times as long as computing them; what is there already is free."""
    slow_link = unlike(own=(False, True))
    links = {pair: replace(link, bandwidth=1e6) for pair, link in slow_link.links.items()}
    planning = learnt(SLOW, FAST, platform=replace(slow_link, links=links))
    assert planning.rows(double, *arrays(planning))["dev:0"] > 0.8 * ROWS
    idle(planning)
    y = planning.array(ROWS)
    planning.g.call("make", writes=y, on="dev:1")
    assert planning.rows(increment, y)["dev:1"] > 0.9 * ROWS


def test_cuts_move_to_where_the_data_is() -> None:
    own = unlike(own=(True, True))
    links = {pair: replace(link, bandwidth=4e6) for pair, link in own.links.items()}
    planning = learnt(FAST, FAST, platform=replace(own, links=links))
    x = planning.array(ROWS)
    planning.g.call("left", writes=x[:8000], on="dev:0")
    planning.g.call("right", writes=x[8000:], on="dev:1")
    rows = planning.rows(increment, x)
    # A row takes 1 us to compute and 2 us to move: with 6500 rows, or with 3500 of which 1500 came, both are done at once.
    assert rows["dev:0"] == pytest.approx(6500, abs=50)
    idle(planning)
    assert planning.rows(double, *arrays(planning))["dev:0"] == pytest.approx(5000, abs=50), "both have to fetch"


def test_transfers_are_part_of_the_prediction() -> None:
    planning = learnt(FAST, FAST, own=(False, True))
    divided = planning.plan(double, *arrays(planning))
    found = planning.planner.last
    assert found is not None and len(divided.command.chunks) == 2
    offer = found.offers[1]
    assert offer.in_per_row == pytest.approx(8 / BANDWIDTH) and offer.out_per_row == pytest.approx(8 / BANDWIDTH)
    assert found.offers[0].out_per_row == 0.0
    assert found.seconds == max(t.finish for t in found.division.times)


def test_memory_limits_bind() -> None:
    planning = learnt(SLOW, FAST, platform=unlike(own=(False, True), capacity=16 * 1000))
    rows = planning.rows(double, *arrays(planning))
    assert rows == {"dev:0": ROWS - 1000, "dev:1": 1000}  # 8 bytes of x and 8 of y for each row


def test_what_no_memories_together_can_hold_is_divided_by_speed_alone() -> None:
    """Shares are divided further by the lowering, one part after the other."""
    planning = learnt(SLOW, FAST, platform=unlike(own=(True, True), capacity=16 * 1000))
    rows = planning.rows(double, *arrays(planning))
    assert sum(rows.values()) == ROWS and 1000 < rows["dev:0"] < rows["dev:1"]


def test_shares_are_whole_granules() -> None:
    planning = learnt(FAST, SLOW, platform=unlike(granule=64))
    rows = planning.rows(double, *arrays(planning))
    assert sum(rows.values()) == ROWS and sum(share % 64 == 0 for share in rows.values()) >= 1


def test_a_wide_device_wins_only_if_it_was_measured_to_be_clearly_faster() -> None:
    for seconds, expected in ((None, 2), (7e-3, 2), (2e-3, 1)):
        planning = learnt(FAST, FAST, platform=unlike(wide=True), placement="earliest-finish")
        both = arrays(planning)
        if seconds is not None:
            planning.teach(double, both, {"dev:all": ROWS / seconds})
        found = planning.devices(double, *both)
        assert len(found) == expected and (expected == 2 or found == ["dev:all"])


# Cuts that stay -----------------------------------------------------------------------------------------------------------


def test_the_second_plan_of_a_call_is_the_same_object() -> None:
    planning = learnt(FAST, SLOW)
    x, y = arrays(planning)
    planning.plan(double, x, y)
    planning.loads.seconds.update(dict.fromkeys(planning.loads.seconds, 0.0))
    planning.plan(double, x, y)  # the arrays have cuts now
    second = planning.planner.last
    planning.loads.seconds.update(dict.fromkeys(planning.loads.seconds, 0.0))
    planning.plan(double, x, y)
    assert planning.planner.last is second


def test_new_measurements_change_the_plan_of_a_call() -> None:
    planning = learnt(FAST, SLOW)
    x, y = arrays(planning)
    before = planning.rows(double, x, y)
    planning = learnt(FAST, FAST)
    x, y = arrays(planning)
    assert planning.rows(double, x, y)["dev:0"] < before["dev:0"] - 1000


def guessed(planning: Planning, *arrays: Array) -> tuple[bool, Planned]:
    """Plan a call; tell whether it was a guess."""
    task = planning.task(double, *arrays)
    planned = planning.planner.plan(task)
    idle(planning)
    return planned.lesson.guess, planned


def test_a_first_guess_ends_with_the_first_measurements_however_well_it_was_balanced() -> None:
    """Like devices are guessed right: nothing moves, but from then on the times are known ones."""
    planning = Planning(2)
    x, y = planning.on_host(250_000), planning.on_host(250_000)
    first, planned = guessed(planning, x, y)
    assert first and "a first guess" in planned.command.why
    chunks = planned.command.chunks
    assert guessed(planning, x, y)[0], "nothing was measured meanwhile"
    for share in planned.shares:
        assert share.model is not None and share.work is not None
        for _ in range(3):
            share.model.learn(share.work, 1e-3, together=True)
    second, planned = guessed(planning, x, y)
    assert not second and planned.command.chunks == chunks
    assert "kept cuts" in planned.command.why and "1.05 ms" in planned.command.why
    assert not guessed(planning, x, y)[0]


def test_parts_that_take_no_time_at_all_finish_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit may give no seconds for small parts: none of them is later than another by any factor."""
    planning = learnt(FAST, FAST)
    _, planned = guessed(planning, *arrays(planning))
    (known,) = planning.divider._memo.values()
    monkeypatch.setattr(type(planned.shares[0].model), "seconds", lambda *args, **options: 0.0)
    assert holds(known._replace(versions=()), (1,))


def test_a_device_that_is_given_nothing_does_not_make_a_division_a_guess() -> None:
    """It would never be measured by it, so that the guess would never end."""
    slow_link = unlike(own=(False, False, True))
    links = {pair: replace(link, bandwidth=1e3) for pair, link in slow_link.links.items()}
    planning = Planning(platform=replace(slow_link, links=links))
    x, y = arrays(planning)
    planning.teach(double, [x, y], {"dev:0": FAST, "dev:1": FAST})
    guess, planned = guessed(planning, x, y)
    assert {chunk.device for chunk in planned.command.chunks} == {"dev:0", "dev:1"}
    assert not guess and "all finish together" in planned.command.why


def test_a_plan_made_while_a_device_was_busy_is_not_kept_for_when_it_is_free() -> None:
    planning = learnt(FAST, FAST)
    x, y = arrays(planning)
    planning.loads.add("dev:1", 10.0)
    assert planning.devices(double, x, y) == ["dev:0"]
    planning.loads.remove("dev:1", 10.0)
    idle(planning)
    assert planning.rows(double, *arrays(planning)) == {"dev:0": ROWS // 2, "dev:1": ROWS // 2}


def test_cuts_are_sticky_until_moving_them_pays() -> None:
    planning = learnt(FAST, FAST)
    x, y = arrays(planning)
    first = planning.rows(double, x, y)
    idle(planning)
    task = planning.task(double, x, y)
    for candidate in planning.candidates.of(double, None).all:  # one of them is 2 % slower from now on
        factor = 1.02 if candidate.name == "dev:1" else 1.0
        for _ in range(9):
            candidate.model.learn(work_of(task), factor * ROWS / FAST)
    assert planning.rows(double, x, y) == first
    assert "kept cuts" in planning.plan(double, x, y).command.why
    assert KEEP >= 0.02


def test_neighbouring_tasks_on_the_same_array_are_cut_alike() -> None:
    """`increment` was measured a little differently: the cuts of `double` serve it too."""
    planning = Planning(platform=unlike())
    x, y = arrays(planning)
    planning.teach(double, (x, y), {"dev:0": FAST, "dev:1": SLOW})
    planning.teach(increment, (y,), {"dev:0": FAST, "dev:1": SLOW * 1.02})
    rows = planning.rows(double, x, y)
    idle(planning)
    assert planning.rows(increment, y) == rows
    idle(planning)
    assert planning.rows(increment, planning.on_host(ROWS)) == rows, "so that a new array fits to the others"


def test_an_array_is_cut_by_a_division_that_was_remembered_too() -> None:
    planning = learnt(FAST, SLOW)
    for _ in range(3):
        x, y = arrays(planning)
        planning.plan(double, x, y)
        idle(planning)
        assert y._storage.cuts is not None and x._storage.cuts is None


def idle(planning: Planning) -> None:
    """Let everything that was planned be over."""
    planning.loads.seconds.update(dict.fromkeys(planning.loads.seconds, 0.0))
    planning.loads.tasks.update(dict.fromkeys(planning.loads.tasks, 0))


# What the kernel says -----------------------------------------------------------------------------------------------------


def test_a_weight_makes_shares_of_work_out_of_shares_of_rows() -> None:
    """Row i of a triangle is i+1 long: half of the work is done at rows * sqrt(1/2)."""

    @cx.kernel(split=0, y=cx.write, weight=lambda rows: rows + 1.0)
    def triangle(y):
        y[...] = 0

    planning = Planning(platform=unlike())
    y = planning.on_host(ROWS)
    planned = planning.plan(triangle, y, devices="dev:0,dev:1")
    cut = planned.command.chunks[0].box.hi[0]
    assert cut == pytest.approx(ROWS * np.sqrt(0.5), rel=0.02)
    works = [share.work for share in planned.shares]
    assert works[0] is not None and works[1] is not None
    assert works[0].features[1] == pytest.approx(works[1].features[1], rel=0.02), "points, weighed"
    assert "dev:0 50" in planned.command.why and "dev:1 50" in planned.command.why
    plan = planning.planner.preview(planning.task(triangle, y, devices="dev:0,dev:1"))
    assert plan.shares == {"dev:0": pytest.approx(0.5, abs=0.01), "dev:1": pytest.approx(0.5, abs=0.01)}
    even = planning.planner.preview(planning.task(triangle, y, devices="dev:0,dev:1", policy="even"))
    assert even.parts[0].hi == (ROWS // 2,) and even.shares["dev:0"] == pytest.approx(0.25, abs=0.01), "of the work"


@pytest.mark.parametrize(
    "weight", [lambda rows: -rows, lambda rows: rows * np.nan, lambda rows: 1.0, lambda rows: rows * 0]
)
def test_a_weight_that_makes_no_sense_is_an_error(weight) -> None:
    @cx.kernel(split=0, y=cx.write, weight=weight)
    def odd(y):
        y[...] = 0

    planning = Planning(platform=unlike())
    with pytest.raises(ArgumentError, match=r"odd.*weight\(rows\)"):
        planning.plan(odd, planning.on_host(ROWS), devices="dev:0,dev:1")


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["flops", "edges"])
def test_a_feature_that_is_negative_or_not_finite_is_an_error_that_names_it(name, value) -> None:
    declared = {"flops": lambda y: value} if name == "flops" else {"features": {"edges": lambda y: value}}

    @cx.kernel(split=0, y=cx.write, **declared)
    def odd(y):
        y[...] = 0

    planning = Planning(platform=unlike())
    with pytest.raises(ArgumentError, match=rf"odd.*{name}"):
        planning.plan(odd, planning.on_host(ROWS))


def test_an_axis_that_is_not_there_cannot_be_split() -> None:
    @cx.kernel(split=2, y=cx.write)
    def flat(y):
        y[...] = 0

    planning = Planning(platform=unlike())
    with pytest.raises(CoexecError, match=r"flat.*split"):
        planning.plan(flat, planning.on_host(100, 100))


def test_a_range_mapper_with_overlapping_writes_stays_whole_with_one_warning() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write(cx.halo(1)))
    def smear(x, y):
        y[...] = 0

    planning = Planning(platform=unlike())
    x, y = planning.on_host(ROWS), planning.on_host(ROWS)
    with pytest.warns(CoexecWarning, match="runs undivided") as caught:
        assert len(planning.devices(smear, x, y, devices="dev:0,dev:1")) == 1
    assert len(caught) == 1 and any("runs undivided" in note for note in planning.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for policy in ("static", "dynamic", "auto", "even"):
            assert len(planning.devices(smear, x, y, devices="dev:0,dev:1", policy=policy)) == 1


def test_capacity_counts_where_it_is_declared_only() -> None:
    platform = unlike(own=(True, True))
    limited = replace(platform, memories=(*platform.memories[:3], Memory("dev:1", 16 * 2000)))
    planning = learnt(FAST, FAST, platform=limited)
    assert planning.rows(double, *arrays(planning)) == {"dev:0": ROWS - 2000, "dev:1": 2000}
