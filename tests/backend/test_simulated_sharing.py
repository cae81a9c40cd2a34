"""Fair shares of links, and properties that every simulated run has."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.backend.simulated.sharing import Crowding, FairShare, Resource, SharedResource
from coexec.backend.simulated.timeline import Job, Timeline
from tests.backend.simulated_parts import DIRECT, arrays, backend_of, make, opened, use


class Transfers:
    """Transfers that begin when they are told, over resources with limits."""

    def __init__(self, **limits: float) -> None:
        self.time = Timeline()
        self.limits = limits
        self.share = FairShare(self.time, lambda resource: self.limits[str(resource)])
        self.over: dict[str, float] = {}
        self.jobs: dict[str, Job] = {}

    def begin(self, name: str, amount: float, *resources: str, at: float = 0.0) -> None:
        job = self.jobs[name] = Job(name, amount, self._end, resources)
        self.time.at(at, self.share.join, job)

    def _end(self, name: str) -> None:
        self.over[name] = self.time.now
        self.share.leave(self.jobs[name])

    def run(self) -> dict[str, float]:
        while self.time.step():
            pass
        return self.over


def test_what_is_alone_gets_the_narrowest_part_of_its_way() -> None:
    transfers = Transfers(a=10.0, b=5.0)
    transfers.begin("x", 10.0, "a", "b")
    assert transfers.run() == {"x": 2.0}


def test_two_on_one_link_get_half_each_until_one_is_over() -> None:
    transfers = Transfers(a=10.0)
    transfers.begin("short", 10.0, "a")
    transfers.begin("long", 20.0, "a")
    assert transfers.run() == {"short": 2.0, "long": 3.0}


def test_what_one_cannot_use_goes_to_the_others() -> None:
    transfers = Transfers(wide=10.0, narrow=2.0)
    transfers.begin("slow", 2.0, "wide", "narrow")
    transfers.begin("fast", 8.0, "wide")
    assert transfers.run() == {"slow": 1.0, "fast": 1.0}


def test_max_min_shares_over_several_links() -> None:
    transfers = Transfers(a=6.0, b=12.0)
    transfers.begin("both", 3.0, "a", "b")
    transfers.begin("first", 3.0, "a")
    transfers.begin("second", 9.0, "b")
    assert transfers.run() == {"both": 1.0, "first": 1.0, "second": 1.0}  # 3, 3 and 9 of 12


def test_one_that_comes_later_slows_the_first_down() -> None:
    transfers = Transfers(a=10.0)
    transfers.begin("first", 20.0, "a")
    transfers.begin("second", 10.0, "a", at=1.0)
    assert transfers.run() == {"first": 3.0, "second": 3.0}


def test_ties_go_by_the_order_of_issue() -> None:
    transfers = Transfers(a=10.0, b=10.0)
    for name in "zyx":
        transfers.begin(name, 10.0, "a" if name == "y" else "b")
    assert list(transfers.run()) == ["y", "z", "x"]


def test_what_begins_and_ends_at_one_moment_is_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange of each with each is hundreds of transfers that are all connected."""
    fills = []
    fill = FairShare._fill

    def counted(share: FairShare, around: Iterable[Resource]) -> None:
        fills.append(1)
        fill(share, around)

    monkeypatch.setattr(FairShare, "_fill", counted)
    names = "abcdefgh"
    transfers = Transfers(**{name: 7.0 for way in names for name in (way, way.upper())})
    for source in names:
        for target in names:
            if source != target:
                transfers.begin(source + target, 3.0, source, target.upper())
    assert set(transfers.run().values()) == {3.0}
    assert len(fills) <= 2


ways = st.lists(
    st.tuples(st.floats(0.1, 100.0), st.sets(st.sampled_from("abcd"), min_size=1, max_size=3), st.floats(0.0, 5.0)),
    min_size=1,
    max_size=8,
)
bandwidths = st.fixed_dictionaries({name: st.floats(0.5, 20.0) for name in "abcd"})


@given(ways, bandwidths)
def test_no_link_carries_more_than_it_can_and_none_is_idle_without_need(transfers, limits) -> None:
    sim = Transfers(**limits)
    for number, (amount, resources, at) in enumerate(transfers):
        sim.begin(f"t{number}", amount, *sorted(resources), at=at)
    while sim.time.step():
        if sim.time.next_time() == sim.time.now:
            continue  # rates hold from when everything of a moment has happened
        rates = {job: job.speed for name, job in sim.jobs.items() if name not in sim.over and job.speed}
        used = {r: sum(rate for job, rate in rates.items() if r in job.uses) for r in limits}
        assert all(used[r] <= limits[r] * (1 + 1e-9) for r in limits)
        for job in rates:  # none can get more: one of its links is full
            assert any(used[r] >= limits[r] * (1 - 1e-9) for r in job.uses)
    for number, (amount, resources, at) in enumerate(transfers):
        alone = amount / min(limits[r] for r in resources)
        assert sim.over[f"t{number}"] >= (at + alone) * (1 - 1e-9)


@given(ways, bandwidths, st.floats(1.0, 10.0))
def test_independent_transfers_are_over_no_later_on_faster_links(transfers, limits, factor) -> None:
    over = []
    for times in (1.0, factor):
        sim = Transfers(**{name: limit * times for name, limit in limits.items()})
        for number, (amount, resources, _) in enumerate(transfers):
            sim.begin(f"t{number}", amount, *sorted(resources))
        over.append(sim.run())
    assert all(over[1][name] <= over[0][name] * (1 + 1e-9) for name in over[0])


def test_a_crowd_that_asks_for_too_much_is_slowed_down_alike() -> None:
    time, ends = Timeline(), {}
    crowding, crowd = Crowding(time, lambda job: 1.0), SharedResource(2.0)
    jobs: dict[str, Job] = {}

    def end(name: str) -> None:
        ends[name] = time.now
        crowding.leave(jobs[name])

    for name, asked in (("one", 1.0), ("two", 2.0), ("three", 1.0)):
        jobs[name] = Job(name, 1.0, end, (crowd,))
        crowding.join(jobs[name], (asked,))
    assert crowd.fraction == 0.5
    while time.step():
        pass
    assert ends == {"one": 2.0, "two": 2.0, "three": 2.0}


# Programs -----------------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0.1, 5.0), st.integers(0, 1)), min_size=1, max_size=12
)


def span(program, bandwidth: float = 1e6) -> tuple[float, list[tuple[float, float, str]]]:
    """Return the virtual time of a program, and its kernels: begin, end and device."""
    with opened(DIRECT.replace("bandwidth = 1e6", f"bandwidth = {bandwidth}")) as runtime:
        data = arrays(4, 80_000)
        for array in data:
            make.using(devices="gpu:0")(array, 0.1)
        for source, target, seconds, device in program:
            use.using(devices=f"gpu:{device}")(data[source], data[target], seconds)
        ran = []
        before = runtime._driver.executor.on_finished

        def note(record) -> None:
            before(record)
            if record.instruction.kind == "kernel":
                ran.append((record.start, record.stop, record.device))

        runtime._driver.executor.on_finished = note
        cx.wait()
        return backend_of(runtime).now, ran


@settings(max_examples=30, deadline=None)
@given(steps)
def test_a_run_is_no_shorter_than_its_critical_path_nor_than_its_work_on_all_devices(program) -> None:
    makespan, ran = span(program)
    path = [0.1] * 4
    for source, target, seconds, _ in program:
        path[target] = max(path[source], path[target]) + seconds
    assert makespan >= max(path) * (1 - 1e-9)
    assert makespan >= (sum(seconds for _, _, seconds, _ in program) + 0.4) / 2 * (1 - 1e-9)
    for device in ("gpu:0", "gpu:1"):
        on = sorted((start, stop) for start, stop, name in ran if name == device)
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(on))


chains = st.lists(st.tuples(st.floats(0.1, 2.0), st.integers(0, 1)), min_size=1, max_size=8)


@settings(max_examples=20, deadline=None)
@given(chains, st.floats(1.0, 50.0))
def test_more_bandwidth_never_hurts_a_fixed_plan(chain, factor) -> None:
    program = [(0, 0, seconds, device) for seconds, device in chain]
    slow, fast = span(program)[0], span(program, 1e6 * factor)[0]
    assert fast <= slow * (1 + 1e-9)


def test_a_simulation_repeats_to_the_last_bit() -> None:
    program = [(0, 1, 0.3, 0), (1, 2, 0.7, 1), (0, 3, 0.2, 1), (3, 2, 1.1, 0)]
    assert span(program) == span(program)
