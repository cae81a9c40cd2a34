"""A program on ranks that are threads: the same drivers, graphs and messages as between processes, through memory."""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.errors import ProgramError, RankAborted, RanksDiverge, RanksHang
from coexec.graph.instruction import Launch
from coexec.joined import RankDriver
from coexec.testing import on_teams
from tests.clusters import cluster
from tests.examples.programs import APPLICATIONS, Application
from tests.fuzz.fresh import FIRST_SEED
from tests.fuzz.on_ranks import run_on_ranks, two_axes
from tests.fuzz.steps import program_of
from tests.test_ranked import fail, half, smooth, total_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::coexec.CoexecWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def on(ranks: int, program: Any, **options: Any) -> list[Any]:
    """Run a program on so many ranks with one core each."""

    def run() -> Any:
        with cx.Runtime("cpu:0", store="off", **options) as runtime:
            return program(runtime)

    return on_teams(ranks, run)


def driver(runtime: cx.Runtime) -> RankDriver:
    assert isinstance(runtime._way, RankDriver)
    return runtime._way


# Results ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("app", APPLICATIONS, ids=lambda app: app.name)
def test_examples_compute_what_numpy_computes_on_any_number_of_ranks(app: Application, ranks: int) -> None:
    wanted = app.expected()
    for found in on_teams(ranks, lambda: app.computed(devices="cpu:0", store="off")):
        assert app.differing(found, wanted) == []


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 24))
def test_random_programs_compute_what_numpy_computes_on_ranks(seed: int) -> None:
    program = program_of("ranks", seed)
    outcome = run_on_ranks(program)
    assert outcome.fine, (seed, program.options, outcome)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 12))
def test_random_programs_compute_the_same_where_ranks_cut_along_two_axes(seed: int) -> None:
    program = program_of("ranks", seed)
    with two_axes():
        outcome = run_on_ranks(program, ranks=4)
    assert outcome.fine, (seed, program.options, outcome)


def test_two_axes_are_cut_where_a_test_asks_for_it() -> None:
    def parts_of(runtime: cx.Runtime) -> Any:
        u, v = cx.zeros((40, 30)), cx.zeros((40, 30))
        return tilewise.plan(u, v).parts

    with two_axes():
        assert {part.lo for part in on(4, parts_of, policy="even")[0]} == {(0, 0), (0, 15), (20, 0), (20, 15)}


@cx.kernel(split=(0, 1), x=cx.read, y=cx.write)
def tilewise(x: Any, y: Any) -> None:
    y[...] = x


def test_a_reduction_has_the_same_bits_on_any_number_of_ranks_as_simulated() -> None:
    data = np.random.default_rng(1).random((300, 1000))

    def program(runtime: cx.Runtime) -> float:
        total = cx.zeros(())
        total_of(cx.array(data), total)
        return float(total)

    found = {value for ranks in (1, 2, 3) for value in on(ranks, program)}
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True) as runtime:
        found.add(program(runtime))
    assert len(found) == 1


def test_what_is_simulated_and_what_is_real_sends_the_same_messages(tmp_path) -> None:
    def program() -> None:
        u, v = cx.array(np.arange(3000.0)), cx.zeros(3000)
        for _ in range(6):
            smooth(u, v)
            u, v = v, u
        total = cx.zeros(())
        total_of(u, total)
        float(total)
        half(u)
        cx.wait()

    def sent(runtime: cx.Runtime) -> tuple[int, int]:
        program()
        network = driver(runtime).network
        return network.messages, network.bytes

    real = on(3, sent)
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True, trace=tmp_path / "run.json"):
        program()
    messages = [row for row in cx.Trace.load(tmp_path / "run.json").instructions if row["name"] == "message"]
    simulated = [[row["bytes"] for row in messages if row["from"] == f"n{rank}/host"] for rank in range(3)]
    assert real == [(len(sizes), sum(sizes)) for sizes in simulated]


def test_every_rank_replays_a_loop() -> None:
    def program(runtime: cx.Runtime) -> int:
        u, v = cx.array(np.arange(60.0)), cx.zeros(60)
        for _ in range(40):
            smooth(u, v)
            u, v = v, u
        cx.wait()
        return driver(runtime).scheduler.counts.replayed

    assert all(replayed > 15 for replayed in on(3, program))


def test_results_can_be_read_after_the_end_on_every_rank() -> None:
    def program() -> Any:
        with cx.Runtime("cpu:0", store="off"):
            y = half(half(cx.array(np.arange(10.0))))
            z = y + 1
        return np.asarray(z), cx.rank(), cx.ranks()

    for rank, (found, own, ranks) in enumerate(on_teams(3, program)):
        np.testing.assert_array_equal(found, np.arange(10.0) / 4 + 1)
        assert (own, ranks) == (rank, 3)


def test_a_program_may_open_several_runtimes_one_after_the_other() -> None:
    def program() -> float:
        total = 0.0
        for _ in range(3):
            with cx.Runtime("cpu:0", store="off"):
                total += float(cx.sum(half(cx.array(np.arange(10.0)))))
        return total

    assert on_teams(2, program) == [67.5] * 2


def test_a_plan_is_that_of_all_ranks() -> None:
    def program(runtime: cx.Runtime) -> Any:
        plan = half.plan(cx.zeros(1000))
        return plan.shares, half.using(devices="n1/cpu:0").plan(cx.zeros(1000)).shares

    for shares, only in on(2, program):
        assert shares == {"n0/cpu:0": pytest.approx(0.5), "n1/cpu:0": pytest.approx(0.5)}
        assert set(only) == {"n1/cpu:0"}


def test_without_a_launcher_a_program_is_rank_0_of_1() -> None:
    assert (cx.rank(), cx.ranks()) == (0, 1)
    with cx.Runtime("cpu:0") as runtime:
        assert not isinstance(runtime._way, RankDriver)


# Failures ---------------------------------------------------------------------------------------------------------------


@cx.kernel(split=0, y=cx.update)
def fail_above(y, chunk):
    if chunk.hi[0] > 20:
        raise ValueError("wrong")
    y += 1


@pytest.mark.parametrize("look", ["read", "result", "exception", "wait"])
def test_a_kernel_that_fails_on_one_rank_fails_alike_for_all(look: str) -> None:
    def program(runtime: cx.Runtime) -> str:
        x = cx.zeros(40)
        task = fail_above(x)
        if look == "read":
            with pytest.raises(ValueError, match="wrong"):
                np.asarray(x)
            np.testing.assert_array_equal(np.asarray(x[:20]), 1)
        elif look == "result":
            with pytest.raises(ValueError, match="wrong"):
                task.result()
        elif look == "exception":
            assert isinstance(task.exception(), ValueError)
            assert task.done()
        else:
            with pytest.raises(ExceptionGroup, match="1 task failed"):
                cx.wait()
        cx.wait()
        return look

    assert on(2, program) == [look] * 2


def test_a_call_that_failed_everywhere_is_one_failure_on_every_rank() -> None:
    def program(runtime: cx.Runtime) -> int:
        fail(cx.zeros(10))
        fail(cx.zeros(10))
        try:
            cx.wait()
        except ExceptionGroup as group:
            return len(group.exceptions)
        return 0

    assert on(3, program) == [2] * 3


def test_a_failure_is_passed_on_from_rank_to_rank() -> None:
    def program(runtime: cx.Runtime) -> None:
        x = cx.array(np.arange(30.0))
        fail.using(devices="n2/cpu:0")(x[10:])
        y = half.using(devices="n1/cpu:0")(x)
        z = half.using(devices="n0/cpu:0")(y)
        with pytest.raises(ValueError, match="wrong"):
            np.asarray(z)
        np.testing.assert_array_equal(np.asarray(x[:10]), np.arange(10.0))
        cx.wait()

    on(3, program)


def test_what_does_not_fit_on_one_rank_is_told_to_all_and_nothing_hangs() -> None:
    @cx.kernel(x=cx.read, y=cx.write)
    def spread(x, y):
        y[...] = x

    def program() -> None:
        memory = {"host": "20kB"} if cx.rank() else {}
        with cx.Runtime("cpu:0", store="off", memory=memory, lookahead="none"):
            y = cx.zeros(5000)
            spread.using(devices="n1/cpu:0")(cx.zeros(5000), y)
            np.asarray(y[:10])

    with pytest.raises(RankAborted, match=r"rank 1 gave up: DoesNotFit: task 'spread'.*needs 40,000 bytes"):
        on_teams(2, program)


# What ranks must not do -------------------------------------------------------------------------------------------------


def test_ranks_that_make_different_calls_are_told_which() -> None:
    def program(runtime: cx.Runtime) -> None:
        u, v = cx.zeros(1000), cx.zeros(1000)
        smooth(u, v)
        smooth(v, u) if cx.rank() else half(u)
        smooth(u, v)
        np.asarray(v)

    with pytest.raises(Exception, match=r"they part at call 2: rank \d.* calls (smooth|half)\(") as caught:
        on(2, program)
    assert isinstance(caught.value, RanksDiverge)
    assert "test_joined.py" in str(caught.value)


def test_numbers_that_differ_between_ranks_are_a_difference_too() -> None:
    @cx.kernel(split=0, y=cx.update)
    def add(y, a):
        y += a

    def program(runtime: cx.Runtime) -> None:
        y = cx.zeros(100)
        add(y, float(cx.rank()))
        np.asarray(y)

    with pytest.raises(RanksDiverge, match=r"a=0\.0.*a=1\.0|a=1\.0.*a=0\.0"):
        on(2, program)


def test_ranks_that_wait_for_each_other_are_told_for_what() -> None:
    def program(runtime: cx.Runtime) -> None:
        x = half(cx.array(np.arange(10.0)))
        if cx.rank():
            x = half(x)
            cx.wait()  # rank 0 never comes here
        else:
            np.asarray(x)
            np.asarray(half(x))

    with pytest.raises(Exception, match=r"wait for each other|part at call") as caught:
        on(2, program)
    assert isinstance(caught.value, RanksHang | RanksDiverge)


def test_a_second_thread_is_refused_with_the_reason() -> None:
    def program(runtime: cx.Runtime) -> str:
        said: list[str] = []
        x = cx.zeros(10)

        def other() -> None:
            try:
                half(x)
            except ProgramError as error:
                said.append(str(error))

        thread = threading.Thread(target=copy_context().run, args=(other,))
        thread.start()
        thread.join()
        return said[0]

    assert all("one thread makes all calls" in said for said in on(2, program))


def test_options_that_differ_between_ranks_are_refused() -> None:
    def program() -> None:
        with cx.Runtime("cpu:0", store="off", fuse=cx.rank() == 0):
            pass

    with pytest.raises(cx.errors.ConfigError, match="rank 0 has fuse=True and rank 1 has fuse=False"):
        on_teams(2, program)


def test_cancelling_is_for_one_rank_and_to_follow_no_plans_changes_nothing() -> None:
    def program(runtime: cx.Runtime) -> bool:
        runtime.follow()
        return bool(half_of(cx.zeros(10)).cancel())

    assert on(2, program) == [False] * 2


@cx.kernel(split=0, y=cx.update)
def half_of(y):
    y /= 2


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("make", [cx.array, cx.asarray])
def test_contents_that_differ_between_ranks_are_found_and_their_line_is_named(make: Any, size: int) -> None:
    def program(runtime: cx.Runtime) -> None:
        data = np.zeros(size)
        data[size // 2] = cx.rank() == 1
        x = make(data)
        for _ in range(3):
            np.asarray(half(x)[:3])

    with pytest.raises(RanksDiverge, match=r"test_joined\.py") as caught:
        on(3, program)
    assert "contents" in str(caught.value)


def test_what_a_rank_changes_after_it_made_an_array_is_its_own_business() -> None:
    def program(runtime: cx.Runtime) -> float:
        data = np.zeros(100_000)
        x = cx.array(data)
        data[:] = cx.rank()
        half_of(x)
        return float(cx.sum(x))

    assert on(2, program) == [0.0] * 2


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_tries_the_compiled_form_of_a_body(ranks: int) -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.update, flops=2)
    def scaled(x: Any, y: Any) -> None:
        y[...] = 0.5 * y + x

    def program(runtime: cx.Runtime) -> Any:
        way, kinds = driver(runtime), set()
        then = way.executor.on_finished

        def finished(ran: Ran) -> None:
            if isinstance(ran.instruction.step, Launch):
                kinds.add(ran.instruction.step.body.kind)
            then(ran)

        way.executor.on_finished = finished
        x, y = cx.ones(600_000), cx.zeros(600_000)
        for _ in range(20):
            scaled(x, y)
            cx.wait()
        return kinds

    assert all("compiled" in kinds for kinds in on(ranks, program, compile_bodies="always"))
