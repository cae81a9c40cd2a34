"""Models of programs that ask for results at once are computed by the program's own thread, with the same results."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.models import at_once
from coexec.models.at_once import MISSED, MOST, NEAR, SURE, AtOnce
from coexec.models.building import NetBuilder
from coexec.models.whole import RecordedBody

CALLS = 24
"""Calls of a program, of which one and another may come before the last completion has been reported."""


def ask(turns: AtOnce, times: int, *, late: float = 0.0, tasks: int = 1) -> bool:
    """Let a program call and ask; return whether it is expected to ask at once the next time."""
    found = False
    for _ in range(times):
        turns.returned(1.0, 10, 1)
        found = turns.expected(1.0 + late, 10 + tasks)
    return found


def test_a_program_is_expected_to_ask_at_once_after_it_did_so_some_times() -> None:
    turns = AtOnce(2)
    assert not turns.expected(0.0, 0), "nothing is known before the first call"
    assert not ask(turns, SURE - 1)
    assert ask(turns, 1)


def test_a_program_that_asks_late_before_or_after_other_tasks_is_not() -> None:
    for given in ({"late": 2 * NEAR}, {"late": -0.5}, {"tasks": 2}):
        assert not ask(AtOnce(2), 2 * MOST, **given)


def test_one_late_question_is_forgiven_and_a_program_that_changes_is_not() -> None:
    turns = AtOnce(2)
    ask(turns, MOST)
    assert ask(turns, 1, late=1.0)
    assert not ask(turns, MOST // MISSED, late=1.0)
    assert not ask(turns, SURE - 1)


# With a runtime -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, the program asks at once."""
    pytest.importorskip("torch", reason="the device whose work the program's thread may do")
    monkeypatch.setattr(at_once, "NEAR", 1e9)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that compute models, call by call."""
    found: list[threading.Thread] = []
    compute = RecordedBody.__call__

    def noting(self: Any, *values: Any) -> None:
        found.append(threading.current_thread())
        compute(self, *values)

    monkeypatch.setattr(RecordedBody, "__call__", noting)
    return found


def network() -> cx.Model:
    net = NetBuilder("small")
    x = net.same("Relu", net.conv(net.input("x", (1, 3, 9, 9)), 4, 3))
    return cx.Model(net.done(net.fc(net.flatten(net.global_pool(x)), 5)))


def image(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((1, 3, 9, 9)).astype(np.float32)


def expected(model: cx.Model, count: int) -> list[np.ndarray[Any, Any]]:
    with cx.Runtime("cpu:0", store="off", replay=False):
        return [np.array(model(image(seed))) for seed in range(count)]


def here(threads: list[threading.Thread]) -> list[bool]:
    return [thread is threading.current_thread() for thread in threads]


@pytest.mark.usefixtures("patient")
def test_who_asks_at_once_computes_and_gets_the_same(threads: list[threading.Thread]) -> None:
    model = network()
    right = expected(model, 4)
    threads.clear()
    with cx.Runtime("torch:cpu", store="off") as runtime:
        for number in range(CALLS):
            before = runtime.recorded
            found = model(image(number % 4))
            tasks = runtime.recorded - before
            np.testing.assert_allclose(found, right[number % 4], rtol=1e-4, atol=1e-5)
            assert tasks == (not here(threads)[-1])
    assert not any(here(threads)[: SURE + 1])
    assert any(here(threads)[SURE + 1 :])


@pytest.mark.usefixtures("patient")
def test_who_goes_on_without_asking_leaves_it_to_the_device(threads: list[threading.Thread]) -> None:
    model = network()
    right = expected(model, 4)
    threads.clear()
    with cx.Runtime("torch:cpu", store="off"):
        for _ in range(3):
            for found, one in zip([model(image(seed)) for seed in range(4)], right, strict=True):
                np.testing.assert_allclose(found, one, rtol=1e-4, atol=1e-5)
    assert not any(here(threads))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("options", [{"inline": False}, {"sync": True}, {"trace": "trace.json"}])
def test_who_wants_every_call_to_be_a_task_gets_tasks(
    options: dict[str, Any], threads: list[threading.Thread], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = network()
    with cx.Runtime("torch:cpu", store="off", **options):
        for _ in range(8):
            np.asarray(model(image()))
    assert not any(here(threads))


@pytest.mark.usefixtures("patient", "threads")
@pytest.mark.parametrize("devices", ["torch:cpu", "cpu:0,torch:cpu"])
def test_results_are_arrays_like_any_other(devices: str) -> None:
    model = network()
    right = expected(model, 1)[0]
    with cx.Runtime(devices, store="off"):
        plan = None
        if "," in devices:
            with cx.Runtime("torch:cpu", store="off"):
                plan = model.plan(budget=0.1)
        for _ in range(8):
            found = model(image(), plan=plan)
            kept = np.array(found)
        found[0, 0] = 7.0
        twice = found[:, ::2] * 2.0 + found[0, 1]
        changed = kept.copy()
        changed[0, 0] = 7.0
        np.testing.assert_allclose(np.asarray(twice), changed[:, ::2] * 2.0 + changed[0, 1], rtol=1e-5)
        np.testing.assert_allclose(kept, right, rtol=1e-4, atol=1e-5)
        again = model(image(), plan=plan)
        last = model(image(), plan=plan)
    np.testing.assert_allclose(last, right, rtol=1e-4, atol=1e-5, err_msg="read after the end")
    np.testing.assert_allclose(again, right, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("patient")
def test_what_fails_at_once_is_a_task_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    right = expected(model, 1)[0]
    with cx.Runtime("torch:cpu", store="off"):
        for _ in range(6):
            np.asarray(model(image()))
        with monkeypatch.context() as broken:

            def refuse(*_: Any) -> None:
                raise ValueError("out of order")

            broken.setattr(RecordedBody, "__call__", refuse)
            with pytest.raises(cx.errors.TaskFailed, match="out of order"):
                np.asarray(model(image()))
        np.testing.assert_allclose(model(image()), right, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("patient")
def test_a_thread_that_was_left_with_one_thread_computes_with_all_and_keeps_its_number(
    threads: list[threading.Thread],
) -> None:
    import torch

    model = network()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with cx.Runtime("torch:cpu", store="off"):
            for _ in range(CALLS):
                np.asarray(model(image()))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert any(here(threads))
