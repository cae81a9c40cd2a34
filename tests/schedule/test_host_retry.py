"""A device that cannot run its part of a divided task: the host redoes it, the result is right, and it is reported."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Postponed
from coexec.backend.opencl.lanes import OpenCLLanes
from coexec.backend.opencl.program import Launcher
from coexec.errors import BackendError, CoexecWarning, PlanError, VariantRefused
from coexec.execute.engine import followed
from tests.devices import MIXED
from tests.execute.stage import Stage
from tests.holding import PATIENCE, closed_gate, pass_gate
from tests.inside import planner_of

BOTH = MIXED.replace("@1", "")
ROWS = 2000
POLICIES = ("even", "static", "dynamic", "auto")
MEMORY = ("own", "shared")


def kernels() -> tuple[Any, Any, Any]:
    """Return kernels that nobody measured: `doomed`, whose OpenCL part fails if told so, one that reads, one that writes."""

    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def doomed(x, y):
        pass_gate("redo")
        y[...] = 2 * x

    @cx.kernel(split=0, y=cx.read, z=cx.update)
    def use(y, z):
        z += y

    @cx.kernel(split=0, x=cx.write)
    def clear(x, value):
        x[...] = value

    doomed.opencl("y(i) = 2 * x(i);")
    use.opencl("z(i) += y(i);")
    clear.opencl("x(i) = value;")
    return doomed, use, clear


@pytest.fixture
def broken_driver(monkeypatch) -> Callable[[str], None]:
    """Return a function that lets the driver refuse to launch the kernel of that name."""

    def break_for(name: str) -> None:
        launch = Launcher.launch

        def refuse(self, queue, task, step, waits):
            if task.name == name:
                raise RuntimeError("clEnqueueNDRangeKernel failed: OUT_OF_RESOURCES")
            return launch(self, queue, task, step, waits)

        monkeypatch.setattr(Launcher, "launch", refuse)

    return break_for


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_source_that_does_not_compile_turns_its_variant_off(policy, memory, tmp_path) -> None:
    doomed, use, _ = kernels()
    doomed.opencl("y(i) = 2 * x(i) nonsense;")
    del doomed.variants[1]
    with cx.Runtime(MIXED, memory={"opencl:0": memory}, trace=tmp_path / "t.json") as runtime:
        x, y, z = cx.array(np.arange(ROWS, dtype=float)), cx.zeros(ROWS), cx.zeros(ROWS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            doomed.using(devices=BOTH, policy=policy)(x, y)
            use.using(devices=BOTH, policy=policy)(y, z)
            np.testing.assert_array_equal(np.asarray(z), 2 * np.arange(ROWS))
        assert "variant 'opencl' is off" in str(caught[0].message)
        assert len(caught) == 1, "said once, however many parts were redone"
        assert doomed.variants[1].off and not planner_of(runtime)._candidates.lost
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            doomed.using(devices=BOTH, policy=policy)(z, y)
            np.testing.assert_array_equal(np.asarray(y), 4 * np.arange(ROWS))
            use.using(devices="opencl:0")(y, z)  # the device itself is well
            cx.wait()
    notes = str(cx.Trace.load(tmp_path / "t.json").notes)
    assert "variant 'opencl' is off" in notes


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_device_that_fails_is_reported_and_not_used_again(policy, memory, broken_driver, tmp_path) -> None:
    doomed, use, clear = kernels()
    broken_driver("doomed")
    with cx.Runtime(MIXED, memory={"opencl:0": memory}, trace=tmp_path / "t.json") as runtime:
        x, y, z = cx.array(np.arange(ROWS, dtype=float)), cx.zeros(ROWS), cx.zeros(ROWS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            doomed.using(devices=BOTH, policy=policy)(x, y)
            np.testing.assert_array_equal(np.asarray(y), 2 * np.arange(ROWS))
        assert "opencl:0 failed in kernel 'doomed' and is not used any more" in str(caught[0].message)
        assert len(caught) == 1 and caught[0].category is CoexecWarning
        assert "OUT_OF_RESOURCES" in planner_of(runtime)._candidates.lost["opencl:0"]
        plan = use.plan(y, z)
        assert plan.shares == {"cpu:0": 1.0} and "it failed" in plan.left_out["opencl:0"]
        use.using(devices=BOTH, policy=policy)(y, z)
        clear(x, 3.0)
        np.testing.assert_array_equal(np.asarray(z), 2 * np.arange(ROWS))
        assert np.asarray(x).sum() == 3 * ROWS
        with pytest.raises(PlanError, match=r"opencl:0 failed .*OUT_OF_RESOURCES"):
            use.using(devices="opencl:0")(y, z)
    assert "not used any more" in str(cx.Trace.load(tmp_path / "t.json").notes)


def test_an_undivided_task_on_a_failing_device_raises(broken_driver) -> None:
    doomed, _, _ = kernels()
    broken_driver("doomed")
    with cx.Runtime(MIXED, memory={"opencl:0": "own"}):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        task = doomed.using(devices="opencl:0")(x, y)
        with pytest.raises(BackendError, match="OUT_OF_RESOURCES"):
            np.asarray(y)
        assert isinstance(task.exception(), cx.TaskFailed)
        doomed.using(devices="cpu:0")(x, y)
        assert np.asarray(y).sum() == 2 * ROWS


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("fault", ["compiler", "driver"])
def test_what_follows_a_redone_part_sees_it_and_not_more(fault, memory, broken_driver) -> None:
    """Readers, an overwrite of its input and a host read: queued before it failed, and while it is being redone."""
    for round in range(4):
        doomed, use, clear = kernels()
        if fault == "compiler":
            doomed.opencl("y(i) = 2 * x(i) nonsense;")
            del doomed.variants[1]
        else:
            broken_driver("doomed")
        with cx.Runtime(MIXED, memory={"opencl:0": memory}), closed_gate("redo") as gate:
            values = np.arange(ROWS, dtype=float)
            x, y, z = cx.array(values), cx.zeros(ROWS), cx.zeros(ROWS)
            use.using(devices=BOTH, policy="even")(x, z)  # both memories have their half now
            doomed.using(devices=BOTH, policy="even")(x, y)
            early = round % 2 == 0
            if early:
                use.using(devices=BOTH, policy="even")(y, z)
                clear.using(devices=BOTH, policy="even")(x, 7.0)
            gate.wait_for_arrival()
            if not early:
                use.using(devices=BOTH, policy="even")(y, z)
                clear.using(devices=BOTH, policy="even")(x, 7.0)
            seen: list[Any] = []
            reader = threading.Thread(target=lambda seen=seen, y=y: seen.append(np.asarray(y)))
            reader.start()
            gate.open.set()
            reader.join()
            np.testing.assert_array_equal(seen[0], 2 * values)
            np.testing.assert_array_equal(np.asarray(z), 3 * values)
            assert np.asarray(x).tolist() == [7.0] * ROWS


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
def test_a_part_that_fails_on_the_host_too_poisons_its_rows() -> None:
    @cx.kernel(split=0, y=cx.update)
    def hopeless(y, chunk):
        if chunk.hi[0] == 2000:
            raise ValueError("not even here")
        y += 1

    hopeless.opencl("y(i) += nonsense + lo0;")
    with cx.Runtime(MIXED):
        y = cx.zeros(ROWS)
        hopeless.using(devices=BOTH, policy="even")(y)
        assert np.asarray(y[: ROWS // 2]).sum() == ROWS // 2
        with pytest.raises(ValueError, match="not even here"):
            np.asarray(y)
        y.fill(0)
        assert np.asarray(y).sum() == 0


def test_what_the_program_raises_is_never_redone() -> None:
    calls: list[int] = []

    def note(row):
        calls.append(row)

    for error in (ValueError("mine"), BackendError("mine too"), VariantRefused("and mine")):

        def fail(error=error):
            raise error

        @cx.kernel(split=0, y=cx.update)
        def raiser(y, chunk):
            note(chunk.lo[0])
            fail()

        calls.clear()
        with cx.Runtime(MIXED), warnings.catch_warnings():
            warnings.simplefilter("error")
            y = cx.zeros(ROWS)
            task = raiser.using(devices="cpu", policy="even")(y)
            with pytest.raises(type(error), match="mine"):
                task.result()
        assert len(calls) == len(set(calls)), "each part ran once"


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
@pytest.mark.parametrize("updates", [False, True])
def test_a_part_that_failed_half_way_is_redone_only_if_its_inputs_are_intact(updates, monkeypatch) -> None:
    doomed, use, _ = kernels()
    kernel = use if updates else doomed
    await_it = OpenCLLanes._await

    def lose(self, running):
        failure = await_it(self, running)
        if failure is None and running.instruction.task is not None and running.instruction.kind == "kernel":
            failure = self._failure(running.instruction, RuntimeError("the device fell off the bus"))
            failure.begun = True
        return failure

    monkeypatch.setattr(OpenCLLanes, "_await", lose)
    with cx.Runtime(MIXED, memory={"opencl:0": "own"}):
        x, y = cx.ones(ROWS), cx.zeros(ROWS)
        task = kernel.using(devices=BOTH, policy="even")(x, y)
        if updates:
            with pytest.raises(BackendError, match="fell off the bus"):
                task.result()
        else:
            task.result()  # nothing is queued behind it, which could have run on wrong data
            assert np.asarray(y).sum() == 2 * ROWS


def test_who_comes_after_what_was_redone_is_not_blamed_for_its_failure(monkeypatch) -> None:
    doomed, use, _ = kernels()
    doomed.opencl("y(i) = 2 * x(i) nonsense;")
    del doomed.variants[1]
    submit, tell = OpenCLLanes._submit, OpenCLLanes._tell
    came = threading.Event()

    def note(self, instruction, *rest):
        submit(self, instruction, *rest)
        if instruction.task is not None and instruction.task.kernel is use and instruction.kind == "kernel":
            came.set()

    def slow(self, ran):
        """The thread of a lane stands still after it told of the failure, until the next kernel is in the driver."""
        tell(self, ran)
        if isinstance(ran.error, VariantRefused):
            came.wait(PATIENCE)

    monkeypatch.setattr(OpenCLLanes, "_submit", note)
    monkeypatch.setattr(OpenCLLanes, "_tell", slow)
    with cx.Runtime(MIXED, memory={"opencl:0": "shared"}), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, y, z = cx.array(np.arange(ROWS, dtype=float)), cx.zeros(ROWS), cx.zeros(ROWS)
        doomed.using(devices=BOTH, policy="even")(x, y).result()
        use.using(devices=BOTH, policy="even")(y, z)
        np.testing.assert_array_equal(np.asarray(z), 2 * np.arange(ROWS))
    assert [str(w.message).partition(" is off")[0] for w in caught] == ["kernel 'doomed': variant 'opencl'"]
    assert not use.variants[1].off


# The engine ---------------------------------------------------------------------------------------------------------------


def postponed(stage: Stage, name: str) -> bool:
    return isinstance(stage.named[name].failure, Postponed)


def test_what_was_put_back_is_issued_again_when_its_parents_are_over() -> None:
    stage = Stage()
    stage.submit("a")
    stage.submit("b", needs="a")
    assert stage.order == ["a", "b"], "b is queued behind a"
    b = stage.named["b"]
    stage.engine.take_over(stage.named["a"])
    assert postponed(stage, "b")
    stage.engine.put_back(b)
    assert b.failure is None and stage.active() == [0]
    del stage.issues["b"]
    assert stage.issue() == [], "not before a is over"
    assert stage.finish("a") == ["b"]
    stage.finish("b")
    assert stage.engine.idle


def test_nothing_is_queued_behind_what_is_being_redone() -> None:
    stage = Stage()
    stage.submit("a")
    stage.engine.take_over(stage.named["a"])
    stage.submit("reads", needs="a")
    stage.submit("overwrites", "a")
    assert stage.order == ["a"]
    assert sorted(stage.finish("a")) == ["overwrites", "reads"]


def test_what_was_put_back_behind_a_failure_fails_without_running() -> None:
    stage = Stage()
    stage.submit("a")
    stage.submit("reads", needs="a")
    stage.submit("overwrites", "reads")
    assert stage.order == ["a", "reads", "overwrites"]
    stage.engine.take_over(stage.named["a"])
    for name in ("reads", "overwrites"):
        stage.engine.put_back(stage.named[name])
        del stage.issues[name]
    assert stage.finish("a", failure=ValueError("in the end")) == ["overwrites"]
    assert isinstance(stage.named["reads"].failure, ValueError)
    assert stage.named["overwrites"].failure is None


def test_children_of_what_is_put_back_are_postponed_in_turn() -> None:
    stage = Stage()
    stage.submit("a")
    stage.submit("b", needs="a")
    stage.submit("c", "b")
    stage.engine.take_over(stage.named["a"])
    assert postponed(stage, "b") and stage.named["c"].failure is None
    stage.engine.put_back(stage.named["b"])
    assert postponed(stage, "c")
    assert followed(stage.named["b"])
    stage.engine.put_back(stage.named["c"])
    assert not followed(stage.named["b"])
