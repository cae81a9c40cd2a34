"""The rules for cores, and that the CPU backend and its simulation follow the same ones."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from coexec.backend.core_policy import cores_free, insert_by_priority, may_move, rivals, siblings
from coexec.backend.cpu import CpuBackend
from coexec.backend.simulated.world import World
from coexec.machine.platform import HOST, Device, Memory, Platform


def core(number: int, memory: int = HOST) -> Device:
    """Return a device that is one core."""
    return Device(f"cpu:{number}", "cpu", memory, cores=(number,), eager=False)


def all_cores(*numbers: int) -> Device:
    """Return a device that is several cores at once."""
    return Device("cpu:all", "cpu", HOST, cores=numbers, wide=True, eager=False)


def test_what_is_more_urgent_is_taken_first_and_what_came_first_within_one_priority() -> None:
    def instruction(entry: tuple[str, int]) -> Any:
        return SimpleNamespace(step=SimpleNamespace(priority=entry[1]))

    queue: deque[tuple[str, int]] = deque()
    for entry in [("a", 0), ("b", 1), ("c", 0), ("d", 2), ("e", 1), ("f", 2)]:
        insert_by_priority(queue, entry, instruction)
    assert [name for name, _ in queue] == ["d", "f", "b", "e", "a", "c"]


def test_only_what_no_user_gave_to_a_device_may_move() -> None:
    def named(devices: str | None) -> Any:
        return SimpleNamespace(task=SimpleNamespace(options=SimpleNamespace(devices=devices)))

    assert may_move(named(None)) and not may_move(named("cpu:0"))
    assert may_move(SimpleNamespace(task=None)) and may_move(SimpleNamespace(task=SimpleNamespace(options=None)))  # type: ignore[arg-type]


def test_all_cores_at_once_come_before_single_ones_that_wait() -> None:
    one, every = core(0), all_cores(0, 1)
    assert cores_free(every, rival_runs=False, rival_waits=True) and not cores_free(
        one, rival_runs=False, rival_waits=True
    )
    assert not cores_free(every, rival_runs=True, rival_waits=False) and not cores_free(
        one, rival_runs=True, rival_waits=False
    )


def test_cores_of_another_memory_are_neither_siblings_nor_rivals() -> None:
    devices = [core(0), core(1), core(2, memory=2), all_cores(0, 1)]
    assert siblings(devices) == {"cpu:0": ("cpu:1",), "cpu:1": ("cpu:0",), "cpu:2": ()}
    assert rivals(devices) == {"cpu:0": ("cpu:all",), "cpu:1": ("cpu:all",), "cpu:2": (), "cpu:all": ("cpu:0", "cpu:1")}


@pytest.mark.parametrize(
    "devices",
    [
        [core(0), core(1), all_cores(0, 1)],
        [core(0), core(1)],
        [all_cores(0, 1)],
        [core(0), all_cores(1, 2)],  # they share no core, but the number of threads of library calls
    ],
)
def test_simulated_cores_are_related_as_real_ones_are(devices: list[Device]) -> None:
    backend = CpuBackend(devices)
    try:
        real = {
            name: ([other.device.name for other in worker.siblings], backend._rivals[name])
            for name, worker in backend._workers.items()
            if name != "host"
        }
    finally:
        backend.stop()
    world = World(Platform(tuple(devices), (Memory("user"), Memory("host")), {}))
    simulated = {
        name: ([other.device.name for other in place.siblings], tuple(other.device.name for other in place.rivals))
        for name, place in world.places.items()
    }
    assert simulated == real
