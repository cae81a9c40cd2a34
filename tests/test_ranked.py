"""Several ranks of a simulated cluster in one process: options, bits, time, traces, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated.scenario import Happening, Scenario
from coexec.ranked import Ranks
from tests.clusters import cluster


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def total_of(x, total):
    total += x.sum()


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def smooth(u, out):
    out[...] = (u[:-2] + u[1:-1] + u[2:]) / 3


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def half(x):
    return x / 2


def test_a_reduction_has_the_same_bits_on_any_number_of_ranks():
    data = np.random.default_rng(1).random((300, 1000))
    found = set()
    for nodes in (1, 2, 3):
        with cx.Runtime(platform=cluster(nodes), ranks=nodes, execute=True):
            total = cx.zeros(())
            total_of(cx.array(data), total)
            found.add(float(total))
    assert len(found) == 1


def test_results_can_be_read_after_the_end_and_new_arrays_are_made_on_every_rank():
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True):
        y = half(half(cx.array(np.arange(10.0))))
        z = y + 1
    np.testing.assert_array_equal(np.asarray(y), np.arange(10.0) / 4)
    np.testing.assert_array_equal(np.asarray(z), np.arange(10.0) / 4 + 1)


def test_two_ranks_halve_the_time_of_a_long_kernel():
    seconds = []
    for nodes in (1, 2):
        with cx.Runtime(platform=cluster(nodes), ranks=nodes) as runtime:
            u, v = cx.zeros(1 << 26), cx.zeros(1 << 26)
            for _ in range(4):
                smooth(u, v)
                u, v = v, u
            cx.wait()
            seconds.append(runtime.machine.lanes["host"].now)
    assert 0.5 <= seconds[1] / seconds[0] < 0.6


def test_a_message_takes_the_time_of_the_network():
    with cx.Runtime(platform=cluster(2), ranks=2) as runtime:
        u = cx.zeros((2, 1_000_000))
        v = cx.zeros((2, 1_000_000))
        smooth_rows(u, v)
        cx.wait()
        before = runtime.machine.lanes["host"].now
        smooth_rows(v, u)
        cx.wait()
    assert runtime.machine.lanes["host"].now - before >= 8_000_000 / 10e9


@cx.kernel(split=0, u=cx.read(cx.all), out=cx.write, flops=1)
def smooth_rows(u, out):
    out[...] = u.mean(axis=0)


def test_the_trace_has_all_ranks_and_messages_are_copies_between_hosts(tmp_path):
    with cx.Runtime(platform=cluster(2), ranks=2, trace=tmp_path / "run.json"):
        u, v = cx.zeros(1000), cx.zeros(1000)
        for _ in range(3):
            smooth(u, v)
            u, v = v, u
    trace = cx.Trace.load(tmp_path / "run.json")
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
    messages = [row for row in trace.instructions if row["name"] == "message"]
    assert {(row["from"], row["to"]) for row in messages} == {("n0/host", "n1/host"), ("n1/host", "n0/host")}
    kinds = {row["id"]: row["kind"] for row in trace.instructions}
    assert len(messages) == 4 and len(kinds) == len(trace.instructions)
    assert all("copy" in [kinds[id] for id in row["needs"]] for row in messages)  # from the sender's device
    spans = {row["id"]: (row["start"], row["stop"]) for row in trace.ran}
    for row in trace.instructions:
        assert all(spans[id][1] <= spans[row["id"]][0] + 1e-12 for id in row["needs"])
    pushes = [command["pushes"] for command in trace.commands if command.get("pushes")]
    assert sorted(push["targets"] for [push] in pushes) == [[0], [0], [1], [1]]
    assert trace.links["n0/host", "n1/host"]["bytes_per_s"] == 10e9
    assert trace.simulation["nodes"] == 2


def test_ranks_are_nodes_of_a_simulated_cluster():
    with pytest.raises(cx.errors.ConfigError, match="has 2 nodes: give ranks=2"):
        cx.Runtime(platform=cluster(2), ranks=3)
    with pytest.raises(cx.errors.ConfigError, match="is for simulated clusters"):
        cx.Runtime("cpu:0", ranks=2)
    with cx.Runtime(platform=cluster(2), ranks=0) as runtime:
        assert "2 ranks" in repr(runtime)
    with cx.Runtime(platform=cluster(2)) as runtime:
        assert type(runtime) is cx.Runtime


def test_the_environment_may_ask_for_ranks(monkeypatch):
    monkeypatch.setenv("COEXEC_RANKS", "2")
    with cx.Runtime(platform=cluster(2)) as runtime:
        assert "2 ranks" in repr(runtime)


def test_what_belongs_elsewhere_is_refused():
    with cx.Runtime(platform=cluster(2), ranks=2):
        x = cx.zeros(10)
        with pytest.raises(cx.errors.UnknownName, match="did you mean 'n1/gpu:0'"):
            half.using(devices="n1/gpu:1")(x)
        with cx.Runtime(platform=cluster(1)):
            other = cx.zeros(10)
        with pytest.raises(cx.errors.RuntimeClosed, match="whose runtime is closed"):
            half(other)


def test_a_plan_is_that_of_all_ranks_and_changes_nothing():
    with cx.Runtime(platform=cluster(3, 2), ranks=3, policy="even") as runtime:
        x = cx.zeros((1 << 26,))
        plan = half.plan(x)
        assert sorted(plan.shares) == [f"n{node}/gpu:{gpu}" for node in range(3) for gpu in range(2)]
        assert sum(plan.shares.values()) == pytest.approx(1.0) and plan.seconds is not None
        assert [part.lo for part in plan.parts] == sorted(part.lo for part in plan.parts)
        assert set(half.using(devices="n2/gpu:1").plan(x).shares) == {"n2/gpu:1"}
        assert len(half.using(split=False).plan(x).parts) == 1
        before = runtime.instructions
        half.plan(x)
        assert runtime.instructions == before


def test_calls_may_name_devices_of_some_nodes(tmp_path):
    with cx.Runtime(platform=cluster(3, 2), ranks=3, execute=True, trace=tmp_path / "run.json"):
        x = cx.array(np.arange(90.0))
        y = half.using(devices="n1/gpu:1,n2/gpu:0")(x)
        z = half.using(devices="n2/gpu:1", split=False)(y)
        np.testing.assert_array_equal(np.asarray(z), np.arange(90.0) / 4)
    ran = cx.Trace.load(tmp_path / "run.json").ran
    assert sorted(row["device"] for row in ran if row["kind"] == "kernel") == ["n1/gpu:1", "n2/gpu:0", "n2/gpu:1"]


def test_what_does_not_fit_on_one_rank_fails_there_and_nothing_hangs():
    @cx.kernel(split=0, x=cx.read(cx.all), y=cx.write)
    def spread(x, y):
        y[...] = x[: len(y)]

    with cx.Runtime(platform=cluster(2), ranks=2, execute=True, memory={"n1/gpu:0": "2kB"}, lookahead="none"):
        x, y, total = cx.array(np.arange(1000.0)), cx.zeros(1000), cx.zeros(())
        spread(x, y)
        total_of(y, total)
        with pytest.raises(cx.errors.DoesNotFit):
            np.asarray(y[500:])
        with pytest.raises(cx.errors.DoesNotFit):
            float(total)
        np.testing.assert_array_equal(np.asarray(y[:500]), np.arange(500.0))
        cx.wait()


@cx.kernel(split=0, y=cx.update)
def fail(y):
    raise ValueError("wrong")


@pytest.mark.parametrize(
    "look", [lambda task, x: task.result(), lambda task, x: np.asarray(x[:1]), lambda task, x: np.asarray(x + 1)]
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_failure_that_was_looked_at_is_not_raised_again_though_every_chunk_failed(nodes, look):
    with cx.Runtime(platform=cluster(nodes, 2), ranks=nodes, execute=True, policy="even"):
        x = cx.zeros(40)
        task = fail(x)
        with pytest.raises(ValueError, match="wrong"):
            look(task, x)
        cx.wait()


def test_a_call_that_failed_on_every_rank_is_one_failure():
    with (
        pytest.raises(ExceptionGroup, match="2 tasks failed"),
        cx.Runtime(platform=cluster(2), ranks=2, execute=True),
    ):
        fail(cx.zeros(10))
        fail(cx.zeros(10))


@pytest.mark.parametrize("lookahead", ["none", "infinite"])
def test_ranks_may_drop_arrays_at_different_times(lookahead):
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True, lookahead=lookahead) as runtime:
        x, y, kept = cx.array(np.arange(40.0)), cx.zeros(40), cx.ones(40)
        half_into.using(devices="n0/gpu:0", split=False)(x[20:], y[20:])  # which n0 may hold back, and n1 never sees
        half_into(x, kept)
        del x, y
        runtime.close()
    np.testing.assert_array_equal(np.asarray(kept), np.arange(40.0) / 2)


@cx.kernel(split=0, x=cx.read, out=cx.write)
def half_into(x, out):
    out[...] = x / 2


def test_an_array_that_one_rank_refuses_leaves_the_numbers_of_all_others_alike():
    memory = {"n1/host": "100kB"}
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True, memory=memory, replay=False):
        with pytest.raises(cx.errors.DoesNotFit):
            cx.array(np.zeros(100_000))
        cx.array(np.arange(40.0))
        kept, dropped, out = cx.array(np.arange(40.0)), cx.array(np.arange(40.0)), cx.zeros(40)
        half_into(kept, kept)  # from now on each rank has its part of it
        del dropped
        half_into(kept[::-1], out)
        np.testing.assert_array_equal(np.asarray(out), np.arange(40.0)[::-1] / 4)


def test_a_simulation_without_values_holds_what_the_program_gave_once():
    data = np.arange(1000.0)
    with cx.Runtime(platform=cluster(3), ranks=3):
        x = cx.array(data)
        data[0] = 7.0
        places = {id(shadow.state.complete[1].allocation.data) for shadow in x._storage.state}
        assert len(places) == 1
        np.testing.assert_array_equal(np.asarray(x), np.arange(1000.0))
        smooth(x, x.copy())
        np.testing.assert_array_equal(np.asarray(x), np.arange(1000.0))


def test_a_call_that_is_refused_leaves_all_ranks_where_they_were():
    @cx.kernel(split=0, y=cx.update, flops=lambda y: -1.0)
    def wrong(y):
        y += 1

    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        x = cx.array(np.arange(8.0))
        with pytest.raises(cx.errors.ArgumentError):
            wrong(x)
        np.testing.assert_array_equal(np.asarray(half(x)), np.arange(8.0) / 2)


def test_handles_wait_for_all_ranks_and_failures_are_told_once():
    @cx.kernel(split=0, y=cx.update)
    def fail(y):
        raise ValueError("wrong")

    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        x, y = cx.zeros(10), cx.zeros(10)
        task = fail(x)
        assert isinstance(task.exception(), ValueError) and task.done()
        good = smooth(y, y.copy())
        good.result()
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x)
        cx.wait()


# Failures on stepped views --------------------------------------------------------------------------------------------


@cx.kernel(y=cx.update)
def fail_whole(y):
    raise ValueError("wrong")


def readable(x: cx.Array) -> list[bool]:
    """Tell which elements along the first axis every rank can read."""

    def one(i: int) -> bool:
        try:
            np.asarray(x[i, ...])
        except ValueError:
            return False
        return True

    return [one(i) for i in range(len(x))]


@pytest.mark.parametrize("kernel", [fail, fail_whole])
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_failure_in_steps_loses_nothing_else_though_ranks_have_sent_it(nodes, kernel):
    with cx.Runtime(platform=cluster(nodes), ranks=nodes, execute=True):
        x = cx.full((8, 3), 1.0)
        x[:4] = 2
        kernel(x[1::3]).exception()
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x)  # every rank was sent all of it
        assert readable(x) == [i % 3 != 1 for i in range(8)]
        np.testing.assert_array_equal(np.asarray(x[0::3])[:, 0], [2, 2, 1])
        half(x[2::3])
        x[1::3] = 7
        np.testing.assert_array_equal(np.asarray(x)[:, 0], [2, 7, 2, 2, 7, 1, 1, 7])


def test_a_failure_in_steps_is_passed_on_from_rank_to_rank():
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True):
        x, total = cx.full(9, 1.0), cx.zeros(())
        fail_whole(x[::2]).exception()
        sent = half.using(devices="n1/gpu:0")(x[1::2])
        x[7:8] = 5
        lost = half.using(devices="n2/gpu:0")(x)
        total_of(x[1::2], total)
        np.testing.assert_array_equal(np.asarray(sent), [0.5] * 4)
        assert float(total) == 8
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(lost)
        assert readable(x) == [i % 2 == 1 for i in range(9)]


def test_a_stepped_view_heals_its_part_of_a_failed_box_on_every_rank():
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True):
        x = cx.full((9, 2), 1.0)
        fail_whole(x[2:7]).exception()
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x)
        x[::2] = 7
        sent = half.using(devices="n2/gpu:0")(x[::2])
        np.testing.assert_array_equal(np.asarray(sent), np.full((5, 2), 3.5))
        assert readable(x) == [i not in (3, 5) for i in range(9)]
        x[1::2] = 8
        np.testing.assert_array_equal(np.asarray(half(x))[:, 0], [3.5, 4] * 4 + [3.5])


def test_more_stepped_views_than_are_told_apart_lose_nothing_silently():
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        x = cx.full(120, 1.0)
        fail_whole(x[::40]).exception()
        for start in range(1, 39):
            x[start::40] = start
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x)
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(x[::40])
        x[...] = 3
        np.testing.assert_array_equal(np.asarray(x), [3] * 120)


def shares_of(runtime: cx.Runtime) -> tuple[float, ...]:
    assert isinstance(runtime._way, Ranks)
    return runtime._way.balance.shares


def test_ranks_of_speed_one_and_three_come_close_to_the_best_there_is():
    """Node 0's device takes three times as long: of 4 parts it should compute 1."""

    def step_time(policy: str, slow: float, *, wait: bool) -> tuple[float, tuple[float, ...]]:
        scenario = Scenario((Happening.slow("n0/gpu:0", slow),))
        with cx.Runtime(platform=cluster(2), ranks=2, scenario=scenario, policy=policy) as runtime:
            u, v = cx.zeros(1 << 25), cx.zeros(1 << 25)
            marks = []
            for step in range(320):
                smooth(u, v)
                u, v = v, u
                if wait or step in (279, 319):
                    cx.wait()
                if step in (279, 319):
                    marks.append(runtime.machine.lanes["host"].now)
            return marks[1] - marks[0], shares_of(runtime)

    for wait in (False, True):
        alike, _ = step_time("even", 1.0, wait=wait)
        unlike, shares = step_time("static", 3.0, wait=wait)
        assert shares == (0.25, 0.75)
        best = alike * 2 * 3 / (1 + 3)  # two ranks of speed 3 have done it in `alike`
        assert best / unlike >= 0.9
        even, shares = step_time("even", 3.0, wait=wait)
        assert shares == (0.5, 0.5)
        assert even > 1.5 * unlike


def test_ranks_that_are_alike_keep_equal_shares():
    with cx.Runtime(platform=cluster(3), ranks=3) as runtime:
        u, v = cx.zeros(1 << 24), cx.zeros(1 << 24)
        for _ in range(100):
            smooth(u, v)
            u, v = v, u
        cx.wait()
        assert shares_of(runtime) == (1 / 3,) * 3


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
def test_a_target_that_all_ranks_pass_on_is_joined_without_the_partial_results_of_its_reduction() -> None:
    @cx.kernel(split=0, over="x", x=cx.read, counts=cx.reduce("sum"))
    def count(x, counts):
        counts += len(x)

    with cx.Runtime(platform=cluster(4, 1), execute=True, ranks=4, store="off"):
        x, counts = cx.ones((2,), np.float64), cx.full((4,), 3, np.float64).copy()
        count(x[1:1], counts[2::2])
        count(x, counts)
        assert np.asarray(counts).tolist() == [5.0] * 4
