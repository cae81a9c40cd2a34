"""Placement policies on plain data: behaviours G34 to G45 of the GrCUDA reference as they apply, and our own default."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from coexec.errors import UnknownName
from coexec.machine.platform import HOST, USER, Device, Link, Memory, Platform, host_links
from coexec.plan.candidate import Candidate
from coexec.plan.policies import LOOKS, PLACEMENTS, Asked, Loads, load_placement
from coexec.predict.model import KernelModel
from coexec.predict.work import Work
from coexec.program.array import Array
from coexec.program.variant import Variant
from coexec.testing.graphs import GraphBuilder
from coexec.testing.invented import invented_platform

MB = 1 << 20
PYTHON = Variant("python", "python")


class Choosing:
    """A policy on a machine of so many devices, each with a memory of its own (dev:0's is 2)."""

    def __init__(
        self, policy: str, devices: int = 4, *, threshold: float = 0.1, platform: Platform | None = None
    ) -> None:
        self.platform = platform or invented_platform(devices)
        self.loads = Loads(self.platform)
        self.policy = load_placement(policy, self.loads, threshold)
        self.candidates = [Candidate(device, PYTHON, KernelModel()) for device in self.platform.devices]

    def __call__(
        self, where: Sequence[tuple[int, int]] = (), *, among: Sequence[int] | None = None, size: int = 1000
    ) -> int:
        """Return the number of the chosen device."""
        candidates = [self.candidates[i] for i in (range(len(self.candidates)) if among is None else among)]
        chosen, _ = self.policy.choose(candidates, asked(size), lambda: where)
        return self.candidates.index(chosen)


def work(size: int) -> Work:
    """Return so many bytes of work."""
    return Work((float(size),), "", size)


def asked(size: int) -> Asked:
    return Asked(work(size))


def on(*memories: int) -> int:
    """Return memories as bits."""
    return sum(1 << memory for memory in memories)


def test_round_robin_goes_round_and_a_restricted_call_counts() -> None:
    """G34."""
    choose = Choosing("round-robin")
    assert [choose() for _ in range(5)] == [0, 1, 2, 3, 0]
    assert choose(among=[2, 3]) == 3
    assert choose() == 2


def test_least_busy_takes_the_first_device_with_the_fewest_unfinished_tasks() -> None:
    """G35. The reference counts busy streams, which end at host reads only; ours counts tasks, and knows their end."""
    choose = Choosing("least-busy")
    for device in ("dev:0", "dev:0", "dev:1", "dev:3"):
        choose.loads.add(device, 0.0)
    assert choose() == 2
    assert choose(among=[0, 1]) == 1 and choose(among=[1, 3]) == 1 and choose(among=[0, 3]) == 3
    choose.loads.remove("dev:1", 0.0)
    assert choose() == 1


def test_least_busy_spreads_independent_tasks() -> None:
    """G39 and G40: in ours a graph nobody waits for is dealt out evenly."""
    choose = Choosing("least-busy", 3)
    seen = []
    for _ in range(7):
        seen.append(choose())
        choose.loads.add(f"dev:{seen[-1]}", 0.0)
    assert seen == [0, 1, 2, 0, 1, 2, 0]


def uneven_links() -> Platform:
    """Two devices: dev:0 has a slow and a fast way in, dev:1 two middling ones."""
    memories = (Memory("user"), Memory("host"), Memory("dev:0"), Memory("dev:1"), Memory("store"))
    links = host_links([])
    for source, target, bandwidth in [(HOST, 2, 1e9), (4, 2, 16e9), (HOST, 3, 4e9), (4, 3, 5e9)]:
        links[source, target] = Link(source, target, latency=0.0, bandwidth=bandwidth)
    devices = (Device("dev:0", "invented", 2, (2,)), Device("dev:1", "invented", 3, (3,)))
    return Platform(devices, memories, links)


def test_the_cost_of_a_transfer_is_that_of_the_best_or_the_worst_link() -> None:
    """G37. What is already there costs nothing."""
    loads = Loads(uneven_links())
    both = [(16 * 10**9, on(HOST, 4))]
    assert loads.transfer(2, both, best=True) == 1.0 and loads.transfer(2, both, best=False) == 16.0
    assert loads.transfer(2, [(16 * 10**9, on(HOST, 2))]) == 0.0
    assert loads.transfer(2, [*both, *both]) == 2.0


def test_what_was_never_written_costs_no_transfer() -> None:
    """G37. The reference raises when an array is nowhere; ours has arrays that were never touched."""
    assert Loads(uneven_links()).transfer(2, [(MB, 0)]) == 0.0


def test_what_no_link_leads_to_costs_two_hops() -> None:
    loads = Loads(invented_platform(2, peers=False))
    assert loads.transfer(3, [(8 * 10**9, on(2))]) == pytest.approx(2.0)


def test_the_transfer_policies_differ_where_links_do() -> None:
    """G37: minmin believes in the best link, minmax fears the worst."""
    where = [(100 * MB, on(HOST, 4)), (20 * MB, on(2, 3))]
    assert Choosing("minmin-transfer-time", platform=uneven_links())(where) == 0
    assert Choosing("minmax-transfer-time", platform=uneven_links())(where) == 1


@pytest.mark.parametrize("policy", PLACEMENTS)
def test_one_device_gets_everything(policy: str) -> None:
    """G38."""
    choose = Choosing(policy, 1)
    assert {choose([(MB, on(HOST))]) for _ in range(5)} == {0}


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_independent_tasks_go_round(devices: int) -> None:
    """G39, and G45 for partitions that share nothing: partition i goes to device i modulo N."""
    choose = Choosing("round-robin", devices)
    assert [choose() for _ in range(24)] == [i % devices for i in range(24)]


DATA_POLICIES = ["min-transfer-size", "minmin-transfer-time", "minmax-transfer-time"]


@pytest.mark.parametrize("policy", DATA_POLICIES)
def test_data_attracts_work(policy: str) -> None:
    choose = Choosing(policy)
    assert choose([(MB, on(HOST, 4))]) == 2
    assert choose([(MB, on(HOST)), (3 * MB, on(5)), (2 * MB, on(3))]) == 3


@pytest.mark.parametrize("policy", DATA_POLICIES)
def test_equal_data_goes_to_the_first_device(policy: str) -> None:
    assert Choosing(policy)([(MB, on(3)), (MB, on(4))]) == 1


@pytest.mark.parametrize("policy", DATA_POLICIES)
def test_a_device_counts_only_if_it_holds_more_than_the_threshold(policy: str) -> None:
    """The data threshold: below it work goes round, so a high one explores and a low one exploits."""
    where = [(30 * MB, on(5)), (70 * MB, on(HOST))]
    exploit, explore = Choosing(policy, threshold=0.29), Choosing(policy, threshold=0.3)
    assert [exploit(where) for _ in range(3)] == [3, 3, 3]
    assert [explore(where) for _ in range(3)] == [0, 1, 2]  # strictly more is asked for


@pytest.mark.parametrize("policy", DATA_POLICIES)
def test_work_without_data_goes_round(policy: str) -> None:
    choose = Choosing(policy, 2)
    assert [choose() for _ in range(3)] == [0, 1, 0]
    assert [choose([(MB, on(USER))]) for _ in range(2)] == [1, 0]


# Whole programs: the policy sees where the lowering has put the data ------------------------------------------------------


class Program:
    """Calls placed by a policy, one after another, and lowered."""

    def __init__(self, policy: str, devices: int = 2) -> None:
        self.g = GraphBuilder(devices)
        self.choose = Choosing(policy, platform=self.g.platform)
        self._arrays: dict[str, Array] = {}
        self.placed: list[int] = []

    def array(self, name: str, size: int = 1000) -> Array:
        return self._arrays.setdefault(name, self.g.array(size, data=np.zeros(size)))

    def call(self, reads: str, updates: str) -> None:
        read, written = [self.array(n) for n in reads.split()], [self.array(n) for n in updates.split()]
        where = []
        for array in [*read, *written]:
            mask = -1
            for _, bits in array._storage.state.valid.get(array._box):
                mask &= bits
            where.append((array.nbytes, mask))
        self.placed.append(self.choose(where))
        self.g.call("k", reads=read, updates=written, on=f"dev:{self.placed[-1]}", over=(1000,))


def test_the_first_user_of_an_image_attracts_the_whole_pipeline() -> None:
    """G41."""
    program = Program("min-transfer-size")
    steps = ["image>bs", "image>bl", "image>bu", "bs>ms", "bl>ml", "ml>mx", "ml>mn", "mx mn>ml", "image bu>iu"]
    for step in [*steps, "iu bl ml>image2", "image2 bs ms>image3"]:
        program.call(*step.split(">"))
    assert program.placed == [0] * 11
    program.g.verify()


def test_hits_collapses_on_one_device_when_data_decides() -> None:
    """G42. The reference's other outcome needs a policy that stays on the parents' devices, which ours has not."""
    program = Program("min-transfer-size")
    for _ in range(4):
        for step in ["h1>a2", "a1>h2", "a2>an", "h2>hn", "a2 an>a1", "h2 hn>h1"]:
            program.call(*step.split(">"))
    assert program.placed[:4] == [0, 1, 0, 1]
    assert set(program.placed[12:]) == {0}


def test_a_join_goes_where_the_larger_array_is() -> None:
    """G43."""
    for larger in (0, 1):
        program = Program("min-transfer-size")
        sizes = [1000 * (2 if larger == 0 else 1), 1000 * (2 if larger == 1 else 1)]
        left, right = program.array("left", sizes[0]), program.array("right", sizes[1])
        program.g.call("left", updates=left, on="dev:0")
        program.g.call("right", updates=right, on="dev:1")
        where = [(left.nbytes, on(2)), (right.nbytes, on(3))]
        assert program.choose(where) == larger


def test_finished_work_does_not_make_a_device_look_busy() -> None:
    """G44 in the reference is 0 1 0 0 0: a known weakness. Ours knows what is over."""
    choose = Choosing("least-busy", 2)
    seen = []
    for together in (1, 2, 1, 1):  # a fork and a join; each group is over before the next begins
        group = []
        for _ in range(together):
            group.append(choose())
            choose.loads.add(f"dev:{group[-1]}", 0.0)
        for device in group:
            choose.loads.remove(f"dev:{device}", 0.0)
        seen += group
    assert seen == [0, 0, 1, 0, 0]


# Earliest predicted finish ------------------------------------------------------------------------------------------------


def measured(choose: Choosing, *seconds: float | None, size: int = 1000) -> None:
    for candidate, value in zip(choose.candidates, seconds, strict=True):
        for _ in range(LOOKS):
            if value is not None:
                candidate.model.learn(work(size), value)


def test_the_faster_device_is_taken_until_its_queue_is_longer() -> None:
    choose = Choosing("earliest-finish", 2, platform=invented_platform(2, shared=True))
    measured(choose, 1e-3, 3e-3)
    seen = []
    for _ in range(8):
        seen.append(choose())
        choose.loads.add(f"dev:{seen[-1]}", [1e-3, 3e-3][seen[-1]])
    assert seen == [0, 0, 0, 1, 0, 0, 0, 1]


def test_transfers_count() -> None:
    choose = Choosing("earliest-finish", 2)
    measured(choose, 2e-3, 1e-3)
    assert choose([(1000, on(HOST))]) == 1
    assert choose([(80 * MB, on(2))]) == 0


def test_devices_nobody_measured_share_the_first_work() -> None:
    choose = Choosing("earliest-finish", 3, platform=invented_platform(3, shared=True))
    seen = []
    for _ in range(3):
        seen.append(choose())
        choose.loads.add(f"dev:{seen[-1]}", 50e-6)
    assert seen == [0, 1, 2]


def wide_platform() -> Platform:
    narrow = tuple(Device(f"cpu:{i}", "cpu", HOST, (HOST, USER), "core", (i,)) for i in range(2))
    return Platform((*narrow, Device("cpu:all", "cpu", HOST, (HOST, USER), "cores", (0, 1), wide=True)))


def test_a_wide_device_is_tried_once_the_narrow_one_is_known_to_be_slow() -> None:
    choose = Choosing("earliest-finish", platform=wide_platform())
    assert choose() == 0
    measured(choose, 20e-3, 20e-3, None)
    assert choose() == 2


def test_a_wide_device_must_be_clearly_faster() -> None:
    choose = Choosing("earliest-finish", platform=wide_platform())
    measured(choose, 20e-3, 20e-3, 18e-3)
    assert choose() == 0
    choose = Choosing("earliest-finish", platform=wide_platform())
    measured(choose, 20e-3, 20e-3, 11e-3)
    assert choose() == 2


def test_short_kernels_never_take_all_cores() -> None:
    choose = Choosing("earliest-finish", platform=wide_platform())
    measured(choose, 100e-6, 100e-6, 10e-6)
    assert choose() == 0


def test_work_of_a_wide_device_occupies_the_narrow_ones_and_the_other_way_round() -> None:
    loads = Loads(wide_platform())
    loads.add("cpu:all", 1.0)
    assert loads.seconds == {"cpu:0": 1.0, "cpu:1": 1.0, "cpu:all": 1.0}
    loads.add("cpu:0", 0.5)
    assert loads.seconds == {"cpu:0": 1.5, "cpu:1": 1.0, "cpu:all": 1.5}
    loads.remove("cpu:all", 1.0)
    loads.remove("cpu:0", 0.5)
    assert loads.seconds == {"cpu:0": 0.0, "cpu:1": 0.0, "cpu:all": 0.0}
    assert set(loads.tasks.values()) == {0}


def test_an_unknown_policy_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'round-robin'"):
        load_placement("round-robbin", Loads(invented_platform(1)), 0.1)


@pytest.mark.parametrize("policy", PLACEMENTS)
def test_a_policy_says_why_or_leaves_it_to_the_planner(policy: str) -> None:
    choose = Choosing(policy, 2)
    _, why = choose.policy.choose(choose.candidates, asked(1000), lambda: [(MB, on(3))])
    assert bool(why) == (policy != "earliest-finish")


def cores_and_all() -> Choosing:
    """Two cores, which share what was measured, and the wide device over both."""
    choose = Choosing("earliest-finish", platform=wide_platform())
    choose.candidates[1].model = choose.candidates[0].model
    return choose


def rounds(choose: Choosing, seconds: dict[str, float], count: int) -> list[list[str]]:
    """Place two independent tasks at a time; the first two runs on a core take three times as long."""
    chosen = []
    for _ in range(count):
        pair = []
        for _ in range(2):
            candidate = choose.candidates[choose()]
            choose.loads.add(candidate.name, candidate.model.seconds(work(1000)) or 0.0)
            pair.append(candidate)
        for candidate in pair:
            cold = 3.0 if not candidate.wide and candidate.model.measured(work(1000)) < 2 else 1.0
            choose.loads.remove(candidate.name, choose.loads.seconds[candidate.name])
            candidate.model.learn(work(1000), cold * seconds[candidate.device.speed])
        choose.loads.seconds.update(dict.fromkeys(choose.loads.seconds, 0.0))
        chosen.append([candidate.name for candidate in pair])
    return chosen


def test_cold_first_runs_do_not_give_all_cores_to_a_call_that_uses_one() -> None:
    """np.sort takes as long on all cores as on one, so two of them belong on a core each."""
    placed = rounds(cores_and_all(), {"core": 0.1, "cores": 0.1}, 8)
    assert placed[1].count("cpu:all") == 1, "one try at a time"
    assert placed[-4:] == [["cpu:0", "cpu:1"]] * 4


def test_a_call_that_uses_all_cores_well_gets_them() -> None:
    placed = rounds(cores_and_all(), {"core": 0.1, "cores": 0.04}, 10)
    assert placed[-3:] == [["cpu:all", "cpu:all"]] * 3


def test_independent_tasks_that_queue_up_do_not_take_all_cores_each() -> None:
    """Two products on a core each take 0.69; one after the other on all cores, 0.9."""
    choose = cores_and_all()
    measured(choose, 0.69, 0.69, 0.45)
    chosen = []
    for _ in range(6):
        candidate = choose.candidates[choose()]
        choose.loads.add(candidate.name, candidate.model.seconds(work(1000)) or 0.0)
        chosen.append(candidate.name)
    assert chosen[1:] == ["cpu:0", "cpu:1"] * 2 + ["cpu:0"]
    while_waiting = Asked(work(1000), ready=choose.loads.seconds["cpu:all"] + 1.0)
    candidate, _ = choose.policy.choose(choose.candidates, while_waiting, list)
    assert candidate.name == "cpu:all", "nothing else could begin before its inputs are there"
