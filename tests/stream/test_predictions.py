"""What plans promise, against the same streams on the virtual clock, which knows nothing of plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.stream.test_results import opened


def two_products(x: Any, w: Any) -> Any:
    return np.tanh(cx.matmul(cx.relu(cx.matmul(x, w)), w))


def product_and_softmax(x: Any, w: Any) -> Any:
    return cx.softmax(cx.matmul(x, w))


def period(pipe: cx.Pipeline, item: Any, plan: Any) -> float:
    """Return seconds between two results once the stages are full."""

    def seconds(count: int) -> float:
        for _ in pipe.stream([item] * count, plan=plan):
            pass
        return float(pipe.stats()["seconds"])

    return (seconds(60) - seconds(20)) / 40


@pytest.mark.parametrize("function", [two_products, product_and_softmax])
@pytest.mark.parametrize("platform", ["laptop", "workstation", "edge-soc"])
def test_where_devices_set_the_pace_periods_come_out_as_predicted(platform: str, function: Any) -> None:
    side = 1024
    item = np.ones((side, side), np.float32)
    with opened(platform=platform):
        pipe = cx.Pipeline(function, w=item)
        (front, *_) = pipe.plan(item)
        promised = front.period or 0.0
        assert promised > pipe.planned.host  # else the program's own Python would set the pace
        assert period(pipe, item, front) == pytest.approx(promised, rel=0.1)


def test_where_python_sets_the_pace_the_plan_says_so() -> None:
    item = np.ones((64, 64), np.float32)
    with opened(platform="workstation"):
        pipe = cx.Pipeline(two_products, w=item)
        (front, *_) = pipe.plan(item)
        assert "Python sets the pace" in front.why
        promised = front.period or 0.0
        assert 0.5 * promised < period(pipe, item, front) <= promised  # calls that repeat cost less
