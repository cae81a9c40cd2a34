"""What plans promise, against the same streams on the virtual clock, which knows nothing of plans."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.stream.rehearsing import STREAMED
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
        assert period(pipe, item, front) == pytest.approx(promised, rel=0.1)


def test_on_real_devices_the_pace_of_python_is_that_of_items_that_follow_each_other() -> None:
    runs = ctypes.c_long(
        0
    )  # which planning does not see: a function that is seen to count is run no more often than it must

    def counted(x: Any, w: Any) -> Any:
        runs.value += 1
        return two_products(x, w)

    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(counted, w=np.ones((8, 8), np.float32))
        pipe.plan(np.ones((8, 8), np.float32))
        short = runs.value
        assert pipe.planned.host > 0.0
    with opened(platform="workstation"):
        again = cx.Pipeline(counted, w=np.ones((8, 8), np.float32))
        again.plan(np.ones((8, 8), np.float32))
    assert short - (runs.value - short) >= STREAMED  # a virtual clock learns nothing from a short stream


def test_a_kernel_that_is_about_to_be_tried_in_pieces_is_measured_until_it_is_known() -> None:
    x = np.ones((1024, 256), np.float32)  # large enough for pieces, of which nothing is known after three runs
    with opened(devices="cpu:0"):
        for _ in range(3):
            pipe = cx.Pipeline(cx.gelu)
            (plan, *_) = pipe.plan(x)
            assert plan.stages[0].parts[0].source != "unknown"
