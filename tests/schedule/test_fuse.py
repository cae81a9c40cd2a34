"""Chains on real devices: NumPy's values whatever is dropped, held or read in between; let go in time; nothing is lost."""

from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import PlanError, ProgramError
from coexec.observe.trace import Trace
from coexec.plan import planner
from coexec.program import session, ufunc
from tests.devices import TWO
from tests.holding import PATIENCE, until
from tests.inside import planner_of
from tests.ops.forced import DEVICES
from tests.small_kernels import increment

SIZE = 1 << 16  # of doubles: held back as they are


@pytest.fixture(params=DEVICES, scope="module")
def runtime(request):
    """Small arrays are held back, and divided over all devices, as large ones are."""
    with pytest.MonkeyPatch.context() as patch, cx.Runtime(request.param, policy="even") as opened:
        patch.setattr(ufunc, "FUSED_FROM", 1)
        patch.setattr(planner, "WORTH_DIVIDING", 0.0)
        patch.setattr(planner, "UNKNOWN_BYTES", 0)
        yield opened


# Random programs --------------------------------------------------------------------------------------------------------

SHAPES: tuple[tuple[int, ...], ...] = ((40,), (5, 8), (1, 40), (3, 1, 7))
DTYPES = ("f8", "f4", "i4", "u1", "?")
BINARY = (np.add, np.subtract, np.multiply, np.maximum, np.less, np.logical_or)
UNARY = (np.negative, np.sqrt, np.absolute, np.isnan, np.square)


class Pair:
    """The same values, ours and NumPy's."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs

    def check(self) -> None:
        got = np.asarray(self.ours)
        assert got.dtype == self.theirs.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, self.theirs, rtol=1e-5 if got.dtype.itemsize == 4 else 1e-13)
        else:
            np.testing.assert_array_equal(got, self.theirs)


def both(function: Any, *values: Any) -> Pair | None:
    """Return a function of pairs and scalars, or None if NumPy has none of these types."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        try:
            theirs = function(*[v.theirs if isinstance(v, Pair) else v for v in values])
        except (TypeError, OverflowError):
            return None
        return Pair(function(*[v.ours if isinstance(v, Pair) else v for v in values]), theirs)


def same_shape(pairs: list[Pair], shape: tuple[int, ...]) -> list[Pair]:
    return [p for p in pairs if p.theirs.shape == shape]


def step(draw: Any, pairs: list[Pair]) -> None:
    """Do one random thing to both sides."""
    kind = draw(st.sampled_from(("binary", "binary", "unary", "scalar", "drop", "read", "in place", "slice", "set")))
    mine = draw(st.sampled_from(pairs))
    fellow = draw(st.sampled_from(same_shape(pairs, mine.theirs.shape)))
    made: Pair | None = None
    match kind:
        case "binary":
            made = both(draw(st.sampled_from(BINARY)), mine, fellow)
        case "unary":
            made = both(draw(st.sampled_from(UNARY)), mine)
        case "scalar":
            made = both(draw(st.sampled_from(BINARY)), mine, draw(st.sampled_from((2, 0.5, True, np.float32(3)))))
        case "drop":
            if len(pairs) > 4:
                pairs.remove(mine)
        case "read":
            mine.check()
        case "in place":
            if fellow.theirs.dtype == mine.theirs.dtype and mine.theirs.dtype != bool:
                with np.errstate(all="ignore"):
                    mine.ours += fellow.ours
                    mine.theirs = mine.theirs + fellow.theirs
        case "slice":
            rows = slice(None, None, -1)
            made = both(lambda a, b: a[rows] + b, mine, fellow)
        case "set":
            mine.ours[..., :1] = 1
            mine.theirs = mine.theirs.copy()
            mine.theirs[..., :1] = 1
    if made is not None:
        pairs.append(made)


@settings(max_examples=40)
@given(st.data())
def test_random_expressions_equal_numpy(runtime, data) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    pairs = []
    for shape in data.draw(st.sets(st.sampled_from(SHAPES), min_size=1, max_size=2)):
        for dtype in data.draw(st.lists(st.sampled_from(DTYPES), min_size=2, max_size=3)):
            values = (rng.random(shape) * 9).astype(dtype)
            pairs.append(Pair(cx.array(values), values))
    for _ in range(data.draw(st.integers(1, 25))):
        step(data.draw, pairs)
    with np.errstate(all="ignore"):
        for pair in pairs:
            pair.check()


@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_on_cores_chains_give_numpys_bits(devices) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 300, 401))
    for dtype in ("f8", "f4"):
        x, y = a.astype(dtype), b.astype(dtype)
        expected = np.exp(np.sin(x) * y + 0.25) / (x + 1) - y**2
        with cx.Runtime(devices) as opened:
            for how in ("even", "static"):
                ours, other = cx.array(x), cx.array(y)
                planner_of(opened)._policy = how
                got = np.asarray(np.exp(np.sin(ours) * other + 0.25) / (ours + 1) - other**2)
                np.testing.assert_array_equal(got, expected)


def test_several_threads_build_chains_at_once() -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            data = np.full(SIZE, float(seed))
            x = cx.array(data)
            for turn in range(15):
                y = (x * 2 + turn) * x - seed
                kept = x + turn
                np.testing.assert_array_equal(np.asarray(y), (data * 2 + turn) * data - seed)
                np.testing.assert_array_equal(np.asarray(kept), data + turn)
        except BaseException as error:
            failed.append(error)

    with cx.Runtime(TWO):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert not failed


# Let go -----------------------------------------------------------------------------------------------------------------


def test_a_chain_runs_without_any_further_call() -> None:
    with cx.Runtime("cpu:0") as opened:
        x = cx.array(np.ones(SIZE))
        y = x * 3 + 1
        state = y._storage.state

        def over() -> bool:
            with opened._driver.lock:  # or it might look between lowering and submission
                return (
                    opened._driver.scheduler.fuse.held is None
                    and bool(state.all_backings())
                    and opened._driver.executor.engine.idle
                )

        until(over)
        assert next(iter(state.all_backings())).allocation.data[0] == 4.0


def test_another_call_a_wait_a_plan_and_a_cancellation_let_a_chain_go() -> None:
    with cx.Runtime("cpu:0") as opened:
        x, small = cx.array(np.ones(SIZE)), cx.zeros(3)
        for act in (lambda: increment(small), opened.wait, lambda: increment.plan(small), lambda: np.asarray(small)):
            y = x * 3 + 1
            act()
            assert opened._driver.scheduler.fuse.held is None
            np.testing.assert_array_equal(np.asarray(y), np.full(SIZE, 4.0))
        y = x * 3 + 1
        opened.cancel_pending("test")
        assert opened._driver.scheduler.fuse.held is None


def test_what_is_written_after_a_chain_is_not_seen_by_it() -> None:
    with cx.Runtime(TWO):
        x = cx.array(np.ones(SIZE))
        y = x * 3
        x[:] = 100
        z = x + 1
        x += 1
        assert (y[0].item(), z[0].item(), x[0].item()) == (3.0, 101.0, 101.0)


@pytest.mark.parametrize("leave", ["close", "exit"])
def test_a_runtime_that_ends_computes_what_it_holds(leave) -> None:
    before = set(threading.enumerate())
    opened = cx.Runtime("cpu:0")
    if leave == "exit":
        with opened:
            y = cx.array(np.ones(SIZE)) * 3 + 1
    else:
        session.push(opened)
        y = cx.array(np.ones(SIZE)) * 3 + 1
        opened.close()
    np.testing.assert_array_equal(np.asarray(y), np.full(SIZE, 4.0))
    assert set(threading.enumerate()) <= before


def test_a_program_of_chains_alone_passes_horizons() -> None:
    with cx.Runtime("cpu:0", horizon=8) as opened:
        x = cx.array(np.ones(SIZE))
        for _ in range(600):
            x = x * 0.5 + 1
            assert opened._driver.scheduler.link.graph.since_horizon <= 2 * 8 + 1  # between steps that are replayed
        assert len(opened._driver.executor.records) < 200
        assert x[0].item() == pytest.approx(2.0)


def test_nothing_is_held_where_each_call_is_to_run_at_once() -> None:
    for opened in (cx.Runtime("cpu:0", sync=True), cx.Runtime("cpu:0", fuse=False)):
        with opened:
            y = cx.array(np.ones(SIZE)) * 3 + 1
            assert opened._driver.scheduler.fuse.held is None
            assert y[7].item() == 4.0


# What is spared ---------------------------------------------------------------------------------------------------------


def traced(devices: str, path: Path, program: Any) -> Trace:
    with cx.Runtime(devices, trace=path) as opened, opened._driver.lock:  # no moment is long enough for the thread
        result = program()
        opened.flush()
    del result
    return Trace.load(path)


def kernels(trace: Trace) -> list[str]:
    return sorted(f"{i['name']} on {i['device']}" for i in trace.instructions if i["kind"] == "kernel")


def test_a_chain_of_five_is_one_kernel_and_one_allocation(tmp_path) -> None:
    def program() -> Any:
        x, y = cx.array(np.ones(SIZE)), cx.array(np.ones(SIZE))
        return np.sqrt(x * y + 1.0) * 0.5 + x

    trace = traced("cpu:0", tmp_path / "t.json", program)
    assert kernels(trace) == ["multiply+add+sqrt+multiply+add on cpu:0"]
    assert [i["bytes"] for i in trace.instructions if i["kind"] == "alloc"] == [8 * SIZE]


def test_each_device_runs_one_kernel_of_a_chain(tmp_path) -> None:
    def program() -> Any:
        x = cx.array(np.ones(1 << 20))
        return np.exp(x * 2 + 1)

    trace = traced(TWO, tmp_path / "t.json", program)
    assert kernels(trace) == [f"multiply+add+exp on {name}" for name in TWO.split(",")]
    assert sum(i["bytes"] for i in trace.instructions if i["kind"] == "alloc") == 8 << 20


def test_the_dead_are_forgotten() -> None:
    with cx.Runtime("cpu:0") as opened:
        x = cx.array(np.ones(SIZE))
        for _ in range(50):
            x = (x * 0.5 + 1) - x * 0.25
        opened.wait()
        assert len(opened._driver.scheduler.lowering.states()) == 1
        assert len(opened._driver.scheduler.lowering.states()) == 1


def test_results_that_have_nothing_in_common_do_not_share_a_fate() -> None:
    with cx.Runtime("cpu:0"), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = cx.array(np.zeros(SIZE))
        bad = 1 / x
        good = x + 1
        assert good[3].item() == 1.0
        with pytest.raises(cx.TaskFailed, match="divide by zero"):
            np.asarray(bad)


# What goes wrong --------------------------------------------------------------------------------------------------------


def test_an_error_that_is_to_be_raised_names_its_line_and_spoils_only_its_result() -> None:
    with cx.Runtime("cpu:0") as opened:
        x = cx.array(np.zeros(SIZE))
        with np.errstate(divide="raise"):
            before = x + 1
            line = sys._getframe().f_lineno + 1
            bad = np.divide(before, x)
            after = before * 2
            assert opened._driver.scheduler.fuse.held is None
        assert after[0].item() == 2.0
        with pytest.raises(cx.TaskFailed, match="divide by zero") as raised:
            np.asarray(bad)
        assert isinstance(raised.value.__cause__, FloatingPointError)
        assert f"{__file__}:{line}" in str(raised.value)


def test_a_failing_chain_names_its_line_and_operation() -> None:
    with cx.Runtime("cpu:0") as opened:
        x = cx.array(np.ones(SIZE, int))
        line = sys._getframe().f_lineno + 2
        with opened._driver.lock:  # the thread has to wait
            z = (x + 1) ** -x
        with pytest.raises(cx.TaskFailed, match="negative integer powers") as raised:
            np.asarray(z)
        assert f"{__file__}:{line}" in str(raised.value)
        assert getattr(raised.value.__cause__, "__notes__", None) == ["in operation 3 of a chain, power"]


def test_other_ways_to_treat_errors_end_a_chain() -> None:
    with cx.Runtime("cpu:0") as opened, warnings.catch_warnings():
        warnings.simplefilter("error")
        x = cx.array(np.zeros(SIZE))
        with np.errstate(divide="ignore"):
            y = 1 / x
        held = opened._driver.scheduler.fuse.held
        z = y + 1
        assert opened._driver.scheduler.fuse.held is not held or held is None
        assert z[0].item() == np.inf


def test_an_operation_that_no_device_can_run_is_a_task_of_its_own_on_the_host() -> None:
    if len(DEVICES) < 3:
        return
    with cx.Runtime("opencl:0"):
        x = cx.array(np.ones(SIZE))
        y = x * 2
        z = np.nextafter(y, 3.0)
        assert (y[5].item(), z[5].item()) == (2.0, np.nextafter(2.0, 3.0))


def test_arrays_of_another_runtime_are_refused_at_the_call() -> None:
    with cx.Runtime("cpu:0"):
        x = cx.array(np.ones(SIZE))
        with cx.Runtime("cpu:0"), pytest.raises(ProgramError, match="another runtime"):
            x + 1


def test_what_goes_wrong_on_the_thread_is_told_when_the_program_asks() -> None:
    with cx.Runtime("cpu:0") as opened:
        x = cx.array(np.ones(SIZE))

        def gone(*_: Any) -> Any:
            raise PlanError("the device is gone")

        fuse = opened._driver.scheduler.fuse
        describe, fuse._describe = fuse._describe, gone
        y = x + 1
        until(lambda: opened._driver.pump.late is not None)
        with pytest.raises(PlanError, match="the device is gone"):
            np.asarray(y)
        fuse._describe = describe
        assert (x * 2)[0].item() == 2.0
