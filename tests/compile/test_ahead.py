"""Calls that were planned before their kernel was compiled: what has not begun by then is computed by the compiled form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile.forms import Forms, Way
from coexec.compile.serving import Bodies, ServedLaunch
from tests.holding import closed_gate, pass_gate

pytest.importorskip("llvmlite")
AHEAD = 6  # calls that wait behind a gate: NumPy's, the one that is compared, and four more
rng = np.random.default_rng(0)


@cx.kernel(x=cx.update)
def gated(x: Any) -> None:
    pass_gate("ahead")
    x += 1


def blend_kernel() -> cx.Kernel:
    @cx.kernel(x=cx.read, y=cx.update)
    def blend(x, y):
        y[...] = 0.5 * y + np.sqrt(x)

    return blend


def blended(x: Any, y: Any, times: int) -> Any:
    for _ in range(times):
        y = 0.5 * y + np.sqrt(x)
    return y


class Records:
    """Keeps who was to run each launch of a kernel, and whether another did."""

    def __init__(self, kernel: cx.Kernel) -> None:
        self.found: list[tuple[str, bool]] = []
        self._kernel = kernel

    def ran(self, records: Sequence[Any]) -> None:
        """Take what ran."""
        self.found += [
            (r.instruction.step.body.name, r.instruction.odd)
            for r in records
            if r.instruction.kind == "kernel" and r.instruction.task.kernel is self._kernel
        ]


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NumPy computed of the kernel, call by call."""
    computed: list[str] = []
    original = Forms._numpy

    def counted(self: Forms, arguments: tuple[Any, ...]) -> Any:
        if self.body is not gated.function:
            computed.append(self.body.__name__)
        return original(self, arguments)

    monkeypatch.setattr(Forms, "_numpy", counted)
    return computed


def let_time_pass(monkeypatch: pytest.MonkeyPatch, *, quicker: bool) -> None:
    """Let the second of two calls take longer by the clock of the forms than the first, or shorter."""
    ticks = count(1)
    now = (lambda: float(next(ticks)) ** 2) if quicker else (lambda: float(next(ticks)) ** 0.5)
    monkeypatch.setattr("coexec.compile.forms.thread_time", now)


def run_behind_a_gate(blend: cx.Kernel, **options: Any) -> list[tuple[str, bool]]:
    """Call a kernel while the only device is held, so that all calls are planned before the first begins; check what comes out."""
    x, y = rng.random(500), rng.random(500)
    given = {"devices": "cpu:0", "store": "off", "compile_bodies": "always", "inline": False, "lookahead": "none"}
    with closed_gate("ahead") as gate, cx.Runtime(**{**given, **options}) as rt:
        a, b, c = cx.array(x), cx.array(y), cx.zeros(4)
        records = Records(blend)
        rt._driver.pump.observe(records)
        gated(c)
        gate.wait_for_arrival()
        for _ in range(AHEAD):
            blend(a, b)
        gate.open.set()
        cx.wait()
        np.testing.assert_array_equal(np.asarray(b), blended(x, y, AHEAD))
    return records.found


def test_calls_that_were_planned_for_numpy_take_the_compiled_form_once_it_is_known_to_be_right(
    monkeypatch: pytest.MonkeyPatch, by_numpy: list[str]
) -> None:
    let_time_pass(monkeypatch, quicker=True)
    records = run_behind_a_gate(blend_kernel())
    assert len(by_numpy) == 2  # the first call, and the one that was compared
    # NumPy's model learns from what NumPy computed, and from nothing else
    assert records == [("python", False), *[("python", True)] * (AHEAD - 1)]


def test_a_form_that_was_slower_when_it_was_compared_waits_for_the_planner(
    monkeypatch: pytest.MonkeyPatch, by_numpy: list[str]
) -> None:
    let_time_pass(monkeypatch, quicker=False)
    records = run_behind_a_gate(blend_kernel())
    assert len(by_numpy) == AHEAD
    assert records == [("python", False), ("python", True), *[("python", False)] * (AHEAD - 2)]


def test_debug_runs_what_was_planned(monkeypatch: pytest.MonkeyPatch, by_numpy: list[str]) -> None:
    let_time_pass(monkeypatch, quicker=True)
    run_behind_a_gate(blend_kernel(), debug=True)
    assert len(by_numpy) == AHEAD


def test_a_plan_is_followed_to_the_letter(monkeypatch: pytest.MonkeyPatch, by_numpy: list[str], tmp_path: Path) -> None:
    with cx.Runtime("cpu:0", store="off"):
        blend_kernel().plan(cx.zeros(500), cx.zeros(500)).save(tmp_path / "plan.json")
    let_time_pass(monkeypatch, quicker=True)
    run_behind_a_gate(blend_kernel(), plan=tmp_path / "plan.json")
    assert len(by_numpy) == AHEAD


def test_calls_that_are_planned_later_or_for_other_devices_run_what_their_plan_says(
    monkeypatch: pytest.MonkeyPatch, by_numpy: list[str]
) -> None:
    let_time_pass(monkeypatch, quicker=True)
    blend, x, y = blend_kernel(), rng.random(64), np.zeros(64)
    python = blend.variants[0]
    bodies = Bodies("always")
    bodies.ahead = lambda: {"cpu:0": 5}  # the last task that was planned for it
    for task in (1, 2):  # NumPy computes; both are compared
        bodies.turn(blend, blend.function, python, "cpu:0", task)(x, y)
    by_numpy.clear()
    for device, task in (("cpu:0", 3), ("cpu:0", 5)):
        bodies.turn(blend, blend.function, python, device, task)(x, y)
    assert not by_numpy
    for device, task in (("cpu:0", 6), ("cpu:all", 4)):
        turn = bodies.turn(blend, blend.function, python, device, task)
        turn(x, y)
        assert isinstance(turn, ServedLaunch) and turn.typical
    assert len(by_numpy) == 2


def test_a_stand_in_leaves_what_does_not_fit_to_numpy(monkeypatch: pytest.MonkeyPatch, by_numpy: list[str]) -> None:
    let_time_pass(monkeypatch, quicker=True)
    forms = Forms(blend_kernel().function, writes={"y"})
    x, y = rng.random(64), np.zeros(64)
    way = Way()
    for _ in range(2):
        forms.watch((x, y), (), way)
    assert forms.stand_in((x, y), (), way)[0] == "compiled"
    assert len(by_numpy) == 2
    assert forms.stand_in((x[::2], y[:32]), (), way)[0] == "numpy"  # other sizes, and gaps
    assert forms.stand_in((y, y), (), way)[0] == "numpy"  # they share memory
    assert forms.stand_in((x.astype(np.float32), y), (), way)[0] == "numpy"  # other types, not compiled yet
    assert len(by_numpy) == 5
