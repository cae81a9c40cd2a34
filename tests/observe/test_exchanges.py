"""How long it takes until a device goes on with what another made: learnt from what ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coexec.backend.base import Ran
from coexec.graph.instruction import Copy, Launch
from coexec.machine.platform import Platform
from coexec.observe.exchanges import LITTLE, Exchanges, exchanging

HERE, THERE = 1, 2


class Told:
    """Takes what a platform's links are told."""

    def __init__(self) -> None:
        self.delays: list[tuple[int, int, float]] = []

    def delayed(self, source: int, target: int, seconds: float) -> None:
        self.delays.append((source, target, round(seconds, 6)))


def kernel(id: int, device: str, start: float, stop: float, needs: tuple[int, ...] = ()) -> Ran:
    step = Launch.__new__(Launch)
    instruction: Any = SimpleNamespace(id=id, step=step, needs=needs, after=())
    return Ran(instruction, device, 0, start, stop)


def copied(id: int, start: float, needs: tuple[int, ...], nbytes: int = 64) -> Ran:
    instruction: Any = SimpleNamespace(id=id, step=Copy.__new__(Copy), needs=needs, after=())
    array = SimpleNamespace(itemsize=1)
    instruction.step.source = SimpleNamespace(memory=HERE)
    instruction.step.target = SimpleNamespace(memory=THERE, dtype=array)
    instruction.step.boxes = (SimpleNamespace(volume=nbytes),)
    return Ran(instruction, "gpu", 0, start, start + 1e-6)


def told(*records: Ran) -> list[tuple[int, int, float]]:
    links: Any = Told()
    Exchanges(links).ran(records)
    found: list[tuple[int, int, float]] = links.delays
    return found


def test_the_time_from_one_kernel_to_another_that_waits_for_its_result_alone_is_a_delay() -> None:
    first, halo, second = kernel(1, "cpu", 0.0, 1.0), copied(2, 1.0003, (1,)), kernel(3, "gpu", 1.0005, 2.0, (2,))
    assert told(first, halo, second) == [(HERE, THERE, 5e-4)]


def test_a_device_that_was_busy_was_not_kept_waiting_before_it_was_free() -> None:
    busy = kernel(9, "gpu", 0.5, 1.0002)
    records = kernel(1, "cpu", 0.0, 1.0), busy, copied(2, 1.0003, (1,)), kernel(3, "gpu", 1.0005, 2.0, (2,))
    assert told(*records) == [(HERE, THERE, 3e-4)]


def test_a_kernel_that_had_to_wait_for_something_else_tells_nothing() -> None:
    later = kernel(4, "cpu", 0.5, 1.5)
    records = kernel(1, "cpu", 0.0, 1.0), copied(2, 1.0003, (1,)), later, kernel(3, "gpu", 1.6, 2.0, (2, 4))
    assert told(*records) == []
    beside = kernel(4, "gpu", 0.5, 1.5)  # the device itself
    assert told(kernel(1, "cpu", 0.0, 1.0), copied(2, 1.0003, (1,)), beside, kernel(3, "gpu", 1.6, 2.0, (2,))) == []


def test_large_copies_and_copies_of_what_was_there_tell_nothing() -> None:
    last = kernel(3, "gpu", 1.0005, 2.0, (2,))
    assert told(kernel(1, "cpu", 0.0, 1.0), copied(2, 1.0003, (1,), LITTLE + 1), last) == []
    assert told(copied(2, 1.0003, ()), last) == []


def test_only_devices_that_take_time_and_have_memories_of_their_own_exchange_anything() -> None:
    assert exchanging(Platform.load("workstation"))
    assert not exchanging(Platform.load("laptop"))
