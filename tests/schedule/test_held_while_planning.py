"""Commands that lookahead holds back go before planning takes long: devices have something to do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

import coexec as cx
from coexec.plan.steps.telling import ToldPlanner
from coexec.schedule.plan import LONG_LOOK


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="inside")), y=cx.update, flops=4)
def smooth(x: Any, y: Any) -> None:
    y[...] = x[:-2] + x[2:]


@pytest.mark.parametrize(("seconds", "held"), [(2 * LONG_LOOK, False), (LONG_LOOK / 2, True)])
def test_what_is_held_goes_if_planning_takes_long(seconds: float, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(self: Any, *_: Any, **__: Any) -> None:
        self._spend(seconds, later=False)

    with cx.Runtime("gpu:0,gpu:1", platform="a100x4", store="off", diagnostics="off") as runtime:
        x, y = cx.zeros(1 << 22), cx.zeros(1 << 22)
        hold = runtime._driver.scheduler.hold
        there = smooth.using(devices="gpu:0,gpu:1", policy="even")
        there(x, y)
        assert hold.holding
        monkeypatch.setattr(ToldPlanner, "called", called)
        before = hold.held[0]
        there(x, y)
        assert (before in hold.held) == held
