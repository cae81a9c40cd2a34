"""What stages did: computed by hand from what ran, and from when the consumer asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.graph.instruction import Launch
from coexec.joules.modelled import MODELLED
from coexec.stream.statistics import ConsumerPauses, StageQueues, told
from tests.stream.functions import items, three_calls, weights
from tests.stream.test_results import opened


def launched(id: int, device: str, start: float, stop: float, *needs: int, submitted: float = 0.0) -> Ran:
    """Return a record of one launch of a kernel called k."""
    task = SimpleNamespace(name="k", submitted=submitted)
    step = Launch.__new__(Launch)
    instruction: Any = SimpleNamespace(id=id, step=step, task=task, needs=needs, after=())
    return Ran(instruction, device, 0, start, stop)


def test_calls_wait_from_when_their_data_is_there_until_they_begin() -> None:
    queues = StageQueues()
    queues.ran([launched(1, "a", 0.5, 2.0), launched(2, "a", 2.0, 4.0, submitted=1.0)])
    assert queues.waited == {("a", "k"): 0.5 + 1.0}
    queues.ran([launched(3, "b", 3.0, 4.0, 1), launched(4, "b", 4.0, 5.0, 2)])  # one waited from 2 to 3, one not at all
    assert queues.waited["b", "k"] == 1.0
    queues.ran([launched(5, "b", 9.0, 9.5, 77, submitted=8.0)])  # what it came after is not known any more
    assert queues.waited["b", "k"] == 2.0


def test_devices_are_blocked_while_the_consumer_pauses_and_they_have_nothing_left() -> None:
    pauses = ConsumerPauses()
    pauses.ran([launched(1, "a", 0.0, 1.0)])
    pauses.add(1.0, 5.0)
    pauses.add(7.0, 8.0)
    pauses.ran([launched(2, "a", 1.0, 3.0), launched(3, "a", 5.5, 7.5)])
    pauses.settle()
    assert pauses.blocked("a") == (5.0 - 3.0) + (8.0 - 7.5)
    assert pauses.blocked("never used") == 4.0 + 1.0
    pauses.add(10.0, 12.0)
    pauses.add(12.0, 12.0)  # no pause
    pauses.ran([launched(4, "b", 11.0, 11.5), launched(5, "a", 12.5, 13.0)])
    pauses.settle()
    assert pauses.blocked("a") == 2.5 + 2.0
    assert pauses.blocked("b") == 5.0 + 0.5


def test_shares_of_time_add_up_and_joules_are_those_of_the_devices() -> None:
    with opened(platform="dype-pcie4", execute=True):
        pipe = cx.Pipeline(three_calls, w=weights(64))
        pipe.plan(items(1, 64)[0])
        with pipe.stream(items(12, 64), ahead=6) as stream:
            assert len(list(stream)) == 12
        stats = pipe.stats()
        text = pipe.explain()
    for stage in stats["stages"]:
        assert stage["busy"] + stage["blocked"] + stage["starved"] == pytest.approx(1.0)
        assert stage["queue"] >= 0.0 and stage["energy_from"] == MODELLED
    assert stats["energy_from"] == MODELLED and not stats["energy_measured"]
    active = sum(stage["joules_per_item"] for stage in stats["stages"])
    assert 0.0 < active <= stats["joules_per_item"] * (1 + 1e-9)  # the rest is drawn by devices that only wait
    assert any("waiting" in line for line in told(stats)) and MODELLED in text


def test_more_items_under_way_than_devices_wait_for_them() -> None:
    with opened(platform="workstation", execute=True):
        pipe = cx.Pipeline(lambda item: cx.matmul(item, item))
        pipe.plan(np.ones((256, 256), np.float32), devices="cpu:0")
        alone = _queue(pipe, 1)
        many = _queue(pipe, 8)
    assert alone < 0.2 and many > 1.0


def _queue(pipe: cx.Pipeline, ahead: int) -> float:
    pipe.map([np.ones((256, 256), np.float32)] * 40, ahead=ahead)
    return float(pipe.stats()["stages"][0]["queue"])
