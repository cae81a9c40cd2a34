"""Tasks too small, waits too frequent, starvation and standstill, found in records with times made by hand."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from math import inf

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.errors import CoexecWarning, PerformanceWarning, ProgramError
from coexec.execute import executor
from coexec.execute.inline_calls import EVERY
from coexec.observe.diagnostics import Diagnostics
from coexec.observe.keeping_up import ALL_OF, FEW, MANY, Progress, SchedulingPace
from coexec.testing import GraphBuilder

MS, US = 1e-3, 1e-6


class Said:
    """What was said, once per kind and subject as Diagnostics does."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}

    def __call__(self, kind: str, subject: str, text: str) -> None:
        self.texts.setdefault((kind, subject), text)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.texts]


def records(count: int, scheduling: float, seconds: float, *, starved: bool = False, name: str = "f") -> Iterator[Ran]:
    """Yield kernels one after another, each scheduled and then run, without a gap."""
    g = GraphBuilder()
    a = g.array(10, 0.0)
    now = 0.0
    for _ in range(count):
        task = g.call(name, updates=a)
        task.scheduling, task.starved = scheduling, starved
        now += scheduling
        yield Ran(g.batches[-1][-1], "dev:0", 0, now, now + seconds)
        now += seconds


def test_many_tasks_shorter_than_their_scheduling_are_reported_with_both_times() -> None:
    said = Said()
    SchedulingPace(said).ran(list(records(MANY, 30 * US, 10 * US)))
    assert said.kinds == ["small tasks"]
    text = said.texts["small tasks", "f"]
    assert "'f'" in text and "10.0 µs" in text and "30.0 µs" in text and "larger" in text


def test_what_coexec_itself_tries_is_no_pace_of_the_program() -> None:
    def paced(diagnostics: Diagnostics) -> list[str]:
        diagnostics.ran(list(records(MANY, 30 * US, 10 * US)))
        return [text for _, text in diagnostics.pending]

    own, tried = (Diagnostics("warn", cx.Platform.load("workstation"), timed=True) for _ in range(2))
    with tried.unpaced():
        assert not paced(tried)
        for number in range(2 * FEW):
            tried.waited(10 * US, number + 1, own=False)
        tried.close()
    assert not tried.pending
    tried.waited(10 * US, 2 * FEW + 1, own=False)
    assert not tried.pending, "waits within are not counted afterwards"
    assert paced(own) == paced(tried) != [], "and what comes then is"


@pytest.mark.parametrize(("count", "scheduling", "seconds"), [(MANY - 1, 30 * US, 10 * US), (MANY, 30 * US, 40 * US)])
def test_few_small_tasks_and_many_larger_ones_are_not(count: int, scheduling: float, seconds: float) -> None:
    said = Said()
    SchedulingPace(said).ran(list(records(count, scheduling, seconds)))
    assert said.kinds == []


def test_starvation_is_a_share_of_the_active_time_and_reported_at_the_end_with_names() -> None:
    """B66."""
    said = Said()
    pace = SchedulingPace(said)
    pace.ran(list(records(FEW + 1, 0.5 * MS, 1.5 * MS, starved=True, name="heat")))
    assert said.kinds == []
    starved, active = pace.starvation()
    assert starved == pytest.approx(101 * 0.5 * MS)
    assert active == pytest.approx(101 * 2 * MS)
    pace.close()
    assert said.kinds == ["starvation"]
    assert "25%" in said.texts["starvation", ""] and "'heat'" in said.texts["starvation", ""]


@pytest.mark.parametrize(
    ("count", "scheduling", "seconds", "starved"),
    [
        (200, 0.5 * MS, 1.5 * MS, False),
        (200, 0.5 * MS, 3 * MS, True),
        (200, 10 * US, 10 * US, True),
        (50, MS, MS, True),
    ],
    ids=["hidden", "a sixth", "no time at all", "few tasks"],
)
def test_starvation_is_not_reported_where_it_does_not_matter(
    count: int, scheduling: float, seconds: float, starved: bool
) -> None:
    """B66: only while the scheduler is busy and nothing runs; only if it matters."""
    said = Said()
    pace = SchedulingPace(said)
    pace.ran(list(records(count, scheduling, seconds, starved=starved)))
    pace.close()
    assert said.kinds == []


def test_of_many_records_one_in_eight_is_studied_and_stands_for_the_others() -> None:
    pace = SchedulingPace(Said())
    batch = list(records(64, 1 * MS, 3 * MS, starved=True))
    tasks = [ran.instruction.task for ran in batch if ran.instruction.task is not None]
    for _ in range(400):
        for task in tasks:
            task.studied = False  # as if it were another one
        pace.ran(batch)
    starved, active = pace.starvation()
    assert starved / active == pytest.approx(0.25)
    assert starved == pytest.approx(400 * 64 * MS, rel=0.01)
    assert ALL_OF < pace._studied < 400 * 64 / 4


def test_a_known_call_that_runs_again_in_the_caller_is_busy_time_and_no_task() -> None:
    said = Said()
    pace = SchedulingPace(said)
    (ran,) = records(1, 100 * US, 10 * US, starved=True)
    for _ in range(2 * MANY):
        pace.ran([ran])
    starved, active = pace.starvation()
    assert starved == pytest.approx(100 * US) and active > EVERY * MANY * 10 * US
    assert said.kinds == []


def test_short_waits_after_a_tenth_of_the_tasks_are_reported_once() -> None:
    said = Said()
    pace = SchedulingPace(said)
    for tasks in range(5, 300, 5):
        pace.waited(100 * US, tasks, own=True)
    assert said.kinds == ["waits"]
    assert "waited" in said.texts["waits", ""] and "every tenth step" in said.texts["waits", ""]


@pytest.mark.parametrize(("step", "seconds"), [(5, 20 * MS), (20, 100 * US)], ids=["big steps", "rare waits"])
def test_a_convergence_test_on_a_big_step_and_rare_waits_are_fine(step: int, seconds: float) -> None:
    said = Said()
    pace = SchedulingPace(said)
    for tasks in range(step, 2000, step):
        pace.waited(seconds, tasks, own=True)
    assert said.kinds == []


def test_reading_many_results_at_the_end_is_one_wait() -> None:
    said = Said()
    pace = SchedulingPace(said)
    for tasks in range(101, 400):
        pace.waited(10 * US, tasks, own=True)
    assert said.kinds == []


def test_a_standstill_is_reported_with_what_runs_and_where() -> None:
    """B66: a stuck task."""
    said, now, g = Said(), [0.0], GraphBuilder()
    task = g.call("endless", updates=g.array(10, 0.0))
    progress = Progress(said, threading.Lock(), lambda: g.batches[-1], lambda: now[0])
    for now[0] in (0.0, 10.0, 19.9):
        progress.look()
    assert said.kinds == []
    now[0] = 20.0
    progress.look()
    assert list(said.texts) == [("no progress", "endless")]
    text = said.texts["no progress", "endless"]
    assert f"T{task.id} 'endless' on dev:0" in text and "20 s" in text and "sync=True" in text


def test_a_completion_is_progress_and_new_work_is_none() -> None:
    said, now, g = Said(), [0.0], GraphBuilder()
    a, b = g.array(10, 0.0), g.array(10, 0.0)
    first, second = g.call("first", updates=a), g.call("second", updates=b)
    running = [g.kernels(first).only(), g.kernels(second).only()]
    progress = Progress(said, threading.Lock(), lambda: running, lambda: now[0])
    progress.look()
    now[0] = 15.0
    del running[0]
    progress.look()
    now[0] = 30.0
    running.append(g.kernels(g.call("third", updates=a)).only())
    progress.look()
    assert said.kinds == []
    now[0] = 35.0
    progress.look()
    assert list(said.texts) == [("no progress", "second")]


# End to end -------------------------------------------------------------------------------------------------------------


@cx.kernel(x=cx.read, y=cx.write)
def double(x, y):
    y[...] = 2 * x


def test_a_runtime_warns_at_the_programs_line_and_once() -> None:
    with cx.Runtime(devices="cpu:0", store="off"):
        x, y = cx.empty(10), cx.empty(10)
        with pytest.warns(CoexecWarning, match=r"'double' \(test_keeping_up.py:\d+\) reads \[0:10\] of 'x'") as caught:
            double(x, y)
        assert [w.filename for w in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            double(x, y)
            np.asarray(y)


@pytest.mark.parametrize("options", [{}, {"policy": "dynamic"}, {"devices": "cpu:0,cpu:1"}])
def test_a_runtime_raises_at_the_call_under_the_policy_error_and_stays_usable(options: dict[str, str]) -> None:
    with cx.Runtime(store="off", diagnostics="error", **options):  # type: ignore[arg-type]
        x, y = cx.empty(10), cx.empty(10)
        with pytest.raises(ProgramError, match="which nothing has written"):
            double(x, y)
        with pytest.raises(ProgramError, match="host read"):
            np.asarray(x)
        with pytest.raises(ProgramError, match="which nothing has written"):
            x + y
        x[...] = 1.0
        double(x, y)
        assert np.asarray(y).tolist() == [2.0] * 10


def test_a_runtime_says_nothing_under_the_policy_off() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with cx.Runtime(devices="cpu:0", store="off", diagnostics="off"):
            double(cx.empty(10), y := cx.empty(10))
            assert np.asarray(y).shape == (10,)


def test_a_task_that_does_not_end_is_named_while_the_program_waits(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """B66."""
    monkeypatch.setattr(executor, "LOOK_UP", 0.01)
    told = threading.Event()
    until_told = told.wait

    @cx.kernel(y=cx.write)
    def stuck(y):
        until_told(60)
        y[...] = 1.0

    file = tmp_path / "run.json"
    with cx.Runtime(devices="cpu:0", store="off", inline=False, trace=file) as runtime:
        said = runtime._driver.diagnostics.say

        def say(kind: str, subject: str, text: str) -> None:
            said(kind, subject, text)
            told.set()

        runtime._driver.diagnostics.stuck._say = say
        runtime._driver.diagnostics.stuck.patience = 0.0
        stuck(y := cx.empty(10))
        with pytest.warns(PerformanceWarning, match="nothing has finished.*'stuck' on cpu:0"):
            np.asarray(y)
    assert any("'stuck' on cpu:0" in note["text"] for note in cx.Trace.load(file).notes)


def _many_steps() -> SchedulingPace:
    with cx.Runtime(devices="cpu:0", store="off", inline=False) as runtime:
        x, y = cx.zeros(4), cx.empty(4)
        for _ in range(FEW):
            double(x, y)
            double(y, x)
            np.asarray(x)
    pace = runtime._driver.diagnostics._pace
    assert pace is not None
    return pace


def test_a_runtime_counts_its_tasks_and_waits_and_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coexec.observe.keeping_up.SHORT", inf)  # however slow the machine is at the moment
    with pytest.warns(PerformanceWarning, match=r"the program waited \d+ times in \d+ tasks") as caught:
        pace = _many_steps()
    assert len([w for w in caught if str(w.message).startswith("the program waited")]) == 1
    tally = pace._kernels["double"]
    assert tally.tasks == 2 * FEW and tally.scheduling > 0.0 and tally.seconds > 0.0
    starved, active = pace.starvation()
    assert 0.0 < starved < active
