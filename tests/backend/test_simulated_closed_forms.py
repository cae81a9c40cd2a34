"""Makespans and energies that can be written down: a simulation gives them to the last digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from tests.backend.simulated_parts import (
    CORES,
    DIRECT,
    MB,
    SWITCHED,
    arrays,
    backend_of,
    join,
    kernels_of,
    make,
    opened,
    use,
)

EXACT = 1e-12
FOUR = DIRECT.replace("count = 2", "count = 4")
HOP = 2 * (0.25 + 8 / MB)  # seconds of 8 bytes from one device to another: two links, through the host


def on(device: int, kernel: cx.Kernel = make) -> Any:
    return kernel.using(devices=f"gpu:{device}")


def exactly(seconds: float) -> object:
    return pytest.approx(seconds, rel=EXACT)


# Chains -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [[1.0], [0.3, 0.7, 0.11, 2.5], [0.1] * 50])
def test_a_chain_on_one_device_takes_the_sum_of_its_kernels(times: Sequence[float]) -> None:
    with opened(DIRECT) as runtime:
        (y,) = arrays(1)
        on(0)(y, times[0])
        for seconds in times[1:]:
            on(0, use)(y, y, seconds)
        cx.wait()
        assert backend_of(runtime).now == exactly(sum(times))


def test_a_chain_that_changes_devices_takes_its_copies_too() -> None:
    with opened(DIRECT) as runtime:
        (y,) = arrays(1)
        on(0)(y, 1.0)
        for step in range(1, 8):
            on(step % 2, use)(y, y, 1.0)
        cx.wait()
        assert backend_of(runtime).now == exactly(8 * 1.0 + 7 * HOP)


def test_launches_of_a_chain_add_up_only_where_the_host_is_between() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\nlaunch = 0.125")
    with opened(text) as runtime:
        (y,) = arrays(1)
        on(0)(y, 1.0)
        on(0, use)(y, y, 1.0)  # handed over behind the first
        cx.wait()
        on(0, use)(y, y, 1.0)  # handed over when the first are over
        cx.wait()
        assert backend_of(runtime).now == exactly(3.0 + 2 * 0.125)


# Fork and join ------------------------------------------------------------------------------------------------------------


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x, y, s: s * 1e9)
def derive(x, y, s):
    """Take s seconds after x."""
    y[...] = x + s


@pytest.mark.parametrize("branches", [[1.0, 1.5, 2.0, 2.5], [0.5, 2.0, 1.0, 3.0], [4.0, 0.1, 0.1, 0.1]])
def test_a_join_begins_when_its_last_input_is_there(branches: Sequence[float]) -> None:
    with opened(FOUR) as runtime:
        (root,), parts = arrays(1), arrays(4)
        on(0)(root, 1.0)
        for device, seconds in enumerate(branches):
            on(device, derive)(root, parts[device], seconds)
        for device in range(1, 4):
            on(0, use)(parts[device], parts[0], 1.0)
        cx.wait()
        # The root goes to the host once, and from there to each of the others.
        ends = [1.0 + (HOP if device else 0.0) + branches[device] for device in range(4)]
        joined = ends[0]
        for device in range(1, 4):
            joined = max(joined, ends[device] + HOP) + 1.0
        assert backend_of(runtime).now == exactly(joined)


def test_a_fork_on_one_device_takes_the_sum_of_its_branches() -> None:
    with opened(DIRECT) as runtime:
        (root,), parts = arrays(1), arrays(5)
        on(0)(root, 0.5)
        for number, part in enumerate(parts):
            on(0)(part, 0.25 * (number + 1))
            on(0, use)(root, part, 1.0)
        cx.wait()
        assert backend_of(runtime).now == exactly(0.5 + 0.25 * 15 + 5 * 1.0)


def test_independent_kernels_take_as_long_as_the_fullest_device() -> None:
    with opened(FOUR) as runtime:
        for number, y in enumerate(arrays(10)):
            on(number % 4)(y, 1.0 + number)
        cx.wait()
        assert backend_of(runtime).now == exactly(max(1 + 5 + 9, 2 + 6 + 10, 3 + 7, 4 + 8))


# Shared links -------------------------------------------------------------------------------------------------------------


def arrivals(sizes: Sequence[float], bandwidth: float) -> list[float]:
    """Return when each of some transfers that begin at once is over, if all get equal shares of one link."""
    now, before, left = 0.0, 0.0, len(sizes)
    over: dict[float, float] = {}
    for size in sorted(set(sizes)):
        now += (size - before) * left / bandwidth
        over[size] = now
        left -= list(sizes).count(size)
        before = size
    return [over[size] for size in sizes]


def test_the_formula_for_equal_shares_is_right() -> None:
    assert arrivals([1.0, 1.0], 1.0) == [2.0, 2.0]
    assert arrivals([1.0, 3.0], 1.0) == [2.0, 4.0]


@pytest.mark.parametrize("sizes", [[1], [1, 1], [1, 2], [3, 1, 2], [1, 1, 2, 4, 4]])
def test_transfers_over_one_link_get_equal_shares(sizes: Sequence[int]) -> None:
    with opened(SWITCHED) as runtime:
        ran = kernels_of(runtime)
        for number, size in enumerate(sizes):
            (y,) = arrays(1)
            on(number % 2, use)(cx.asarray(np.zeros(size * MB // 8)), y, 100.0)
        cx.wait()
        begun = sorted(start for spans in ran.values() for start, _ in spans)[: min(2, len(sizes))]
    # Kernels take turns on their devices, so the first on each begins when its input is there.
    over = arrivals([float(size) for size in sizes], 1.0)
    first = [min(over[device::2]) for device in range(min(2, len(sizes)))]
    assert begun == [exactly(seconds) for seconds in sorted(first)]


def test_a_link_that_is_faster_than_the_way_on_is_not_shared_in_equal_parts() -> None:
    text = SWITCHED.replace(
        'from = "host"\nto = "hub"\nbandwidth = 1e6', 'from = "host"\nto = "hub"\nbandwidth = 1.5e6'
    )
    with opened(text) as runtime:
        for number in range(2):
            (y,) = arrays(1)
            on(number, use)(cx.asarray(np.zeros(MB // 8)), y, 0.5)
        cx.wait()
        assert backend_of(runtime).now == exactly(1.0 / 0.75 + 0.5)  # 0.75 MB/s each, of 1.5


# Pipelines ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [[1.0, 1.0, 1.0], [0.5, 2.0, 1.0], [3.0, 1.0, 2.0]])
def test_a_pipeline_takes_one_item_through_and_the_others_at_the_pace_of_its_slowest_stage(
    stages: Sequence[float],
) -> None:
    items = 7
    with opened(FOUR) as runtime:
        for _ in range(items):
            (y,) = arrays(1)
            on(0)(y, stages[0])
            for device, seconds in enumerate(stages[1:], 1):
                on(device, use)(y, y, seconds)
        cx.wait()
        through = sum(stages) + (len(stages) - 1) * HOP
        assert backend_of(runtime).now == exactly(through + (items - 1) * max(stages))


def test_a_pipeline_whose_copies_are_slowest_goes_at_their_pace() -> None:
    items, size = 6, MB  # 1 s each
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\ncopies = 1").replace("latency = 0.25", "latency = 0.0")
    with opened(text) as runtime:
        for _ in range(items):
            (y,) = arrays(1)
            on(0, use)(cx.asarray(np.zeros(size // 8)), y, 0.5)
        cx.wait()
        assert backend_of(runtime).now == exactly(items * 1.0 + 0.5 + 0.0)


# Energy -------------------------------------------------------------------------------------------------------------------


def test_the_energy_of_a_pipeline_is_that_of_its_stages_and_their_waiting() -> None:
    items, stages = 5, (1.0, 2.0)
    with opened(DIRECT) as runtime:
        for _ in range(items):
            (y,) = arrays(1)
            on(0)(y, stages[0])
            on(1, use)(y, y, stages[1])
        cx.wait()
        total = sum(stages) + HOP + (items - 1) * max(stages)
        energy = backend_of(runtime).energy()
        assert energy.seconds == exactly(total)
        for device, seconds in zip(("gpu:0", "gpu:1"), stages, strict=True):
            assert energy.active[device] == exactly(items * seconds)
            assert energy.devices[device] == exactly(100.0 * items * seconds + 10.0 * (total - items * seconds))
        assert energy.total == exactly(sum(energy.devices.values()))


def test_kernels_at_once_draw_the_watts_of_their_device_once() -> None:
    with opened(DIRECT.replace("flops = 1e9", "flops = 1e9\nconcurrent = 3")) as runtime:
        for y in arrays(3):
            on(0)(y, 2.0)
        cx.wait()
        assert backend_of(runtime).energy().devices == {"gpu:0": exactly(600.0), "gpu:1": exactly(60.0)}


def test_a_device_that_slows_down_draws_longer() -> None:
    with opened(DIRECT, scenario=Scenario((Happening.slow("gpu:0", 2.0, at=1.0),))) as runtime:
        on(0)(arrays(1)[0], 3.0)
        cx.wait()
        assert backend_of(runtime).energy().devices == {"gpu:0": exactly(500.0), "gpu:1": exactly(50.0)}


def test_copies_and_waiting_draw_what_an_idle_device_does() -> None:
    with opened(DIRECT) as runtime:
        on(0, use)(cx.asarray(np.zeros(MB // 8)), arrays(1)[0], 1.0)
        cx.wait()
        assert backend_of(runtime).energy().devices["gpu:0"] == exactly(100.0 * 1.0 + 10.0 * 1.25)


def test_what_states_no_watts_is_not_counted() -> None:
    with opened(CORES) as runtime:
        make.using(devices="cpu:0")(arrays(1)[0], 1.0)
        cx.wait()
        energy = backend_of(runtime).energy()
        assert energy.devices == {} and energy.total == 0.0 and energy.active["cpu:0"] == exactly(1.0)


# Rates and bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flops", "megabytes", "seconds"), [(3.0, 4, 3.0), (0.5, 4, 1.0), (0.0, 2, 0.5)])
def test_a_kernel_takes_the_longer_of_computing_and_moving(flops: float, megabytes: int, seconds: float) -> None:
    with opened(DIRECT) as runtime:
        on(0)(arrays(1, megabytes * MB)[0], flops)
        cx.wait()
        assert backend_of(runtime).now == exactly(seconds)


def test_reading_together_what_several_devices_made() -> None:
    with opened(FOUR) as runtime:
        xs = cx.empty(4)
        for device in range(4):
            on(device)(xs[device : device + 1], 1.0 + device)
        on(0, join)(xs, xs[0:1], 2.0)
        cx.wait()
        assert backend_of(runtime).now == exactly(4.0 + HOP + 2.0)
