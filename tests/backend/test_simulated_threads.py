"""Cores in simulations, whose threads are coexec's own: what they take over, wake, and cost each other."""

from __future__ import annotations

from time import thread_time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.backend.simulated import NOTHING, Costs, admission, simulate
from coexec.backend.simulated.devices import Place
from coexec.graph.instruction import Instruction, Launch, Reduce
from coexec.machine.platform import HOST, Device
from coexec.predict.learned import CONDITIONS
from coexec.predict.store import Store
from tests.backend.simulated_parts import CORES, MB, arrays, backend_of, kernels_of, make, opened, platform, use

OURS = CORES.replace('memory = "host"\nflops = 1e9', 'memory = "host"\neager = false\nflops = 1e9')
"""Two cores with threads of ours, and the wide device."""
TWO = {"devices": "cpu:0,cpu:1"}


# Who runs what --------------------------------------------------------------------------------------------------------------


def waiting_kernel(place: Place, devices: str | None) -> Any:
    task = SimpleNamespace(options=SimpleNamespace(devices=devices))
    entry = SimpleNamespace(
        place=place, computes=True, instruction=SimpleNamespace(task=task, step=SimpleNamespace(priority=0))
    )
    admission.wait(entry)  # type: ignore[arg-type]
    return entry


def test_an_idle_core_takes_over_what_waits_for_another() -> None:
    one, two = (Place(Device(f"cpu:{i}", "cpu", HOST, cores=(i,), eager=False), 1, 0.0, 0) for i in range(2))
    admission.relate({place.device.name: place for place in (one, two)})
    named, free = waiting_kernel(two, "cpu:1"), waiting_kernel(two, None)
    assert admission.idle_sibling(free) is one
    assert admission.idle_sibling(named) is None  # the user has named its core
    assert next(admission.found_by(one)) is free
    assert free.place is one
    assert list(two.waiting) == [named]


def test_what_names_a_core_is_not_taken_over() -> None:
    with opened(OURS, **TWO) as runtime:
        ran = kernels_of(runtime)
        for array in arrays(3):
            make.using(devices="cpu:0")(array, 1.0)
        cx.wait()
    assert ran == {"cpu:0": [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]}


def test_a_core_takes_the_most_urgent_first() -> None:
    order = []
    with opened(OURS, **TWO) as runtime:
        before = runtime._driver.executor.on_finished

        def note(record: Ran) -> None:
            before(record)
            if isinstance(record.instruction.step, Launch):
                order.append(record.instruction.task.scalars["s"])

        runtime._driver.executor.on_finished = note
        for priority, (seconds, array) in zip((0, 0, 2, 1), enumerate(arrays(4), 1), strict=True):
            make.using(devices="cpu:0", priority=priority)(array, float(seconds))
        cx.wait()
    assert order == [1.0, 3.0, 4.0, 2.0]


# What that costs ------------------------------------------------------------------------------------------------------------


def test_a_thread_that_sleeps_must_be_woken_and_one_that_reports_need_not() -> None:
    costs = NOTHING._replace(completion=0.25, wake=0.5)
    with opened(OURS, costs=costs, **TWO) as runtime:
        ran = kernels_of(runtime)
        x, y = arrays(2)
        make.using(devices="cpu:0")(x, 1.0)  # woken: 0.5
        use.using(devices="cpu:0")(x, y, 1.0)  # its own thread has reported the first: 1.5 + 0.25
        use.using(devices="cpu:1")(x, y, 1.0)  # another thread: 2.75 + 0.25 + 0.5
        cx.wait()
        assert backend_of(runtime).clock() == pytest.approx(5.25)  # 4.5, the completion, and the program is woken
    assert ran == {"cpu:0": [(0.5, 1.5), (1.75, 2.75)], "cpu:1": [(3.5, 4.5)]}


def test_small_work_of_our_threads_costs_what_it_costs_besides_its_bytes() -> None:
    with opened(OURS, costs=NOTHING._replace(step=0.125), **TWO) as runtime:
        x = cx.array(np.zeros(1))
        assert x[0].item() == 0.0
        assert backend_of(runtime).clock() == pytest.approx(0.125 + 2 * 8 / 3e6)


def test_a_reduction_costs_a_bit_for_every_part() -> None:
    costs = NOTHING._replace(step=1.0, part=0.25)
    partials: Any = SimpleNamespace(box=SimpleNamespace(shape=(8, 2)))
    reduce = Instruction(1, Reduce(partials, partials, None), None)
    assert costs.carrying_out(reduce) == 3.0


@pytest.mark.parametrize(("touched", "seconds"), [(10, 1.0), (100, 1.0), (200, 2.0), (300, 3.0), (900, 3.0)])
def test_completions_cost_more_the_more_was_driven_out_of_the_caches(touched, seconds) -> None:
    costs = Costs(completion=9.0, cold=((100.0, 1.0), (300.0, 3.0)))
    assert costs.completing(touched) == seconds
    assert costs._replace(cold=()).completing(touched) == 9.0


def test_the_caches_are_those_of_all_kernels_that_run() -> None:
    costs = NOTHING._replace(cold=((1e6, 0.0), (3e6, 2.0)))
    with opened(OURS.replace("bandwidth = 3e6\n", ""), costs=costs, **TWO) as runtime:
        ran = kernels_of(runtime)
        x, y, z = arrays(3, MB)
        make.using(devices="cpu:0")(x, 1.0)
        make.using(devices="cpu:1")(y, 1.5)  # both together have touched 2 MB when the first ends: 1 s
        make.using(devices="cpu:0")(z, 1.0)
        cx.wait()
    assert ran["cpu:0"] == [(0.0, 1.0), (2.0, 3.0)]


# The program's own time -----------------------------------------------------------------------------------------------------


def burn(seconds: float) -> None:
    begin = thread_time()
    while thread_time() - begin < seconds:
        pass


@pytest.mark.parametrize("live", [False, True])
def test_what_the_program_computes_itself_counts_if_that_is_asked_for(live) -> None:
    with opened(OURS, costs=NOTHING._replace(live=live), **TWO) as runtime:
        for array in arrays(3):
            burn(0.01)
            make(array, 1e-3)
        cx.wait()
        assert (backend_of(runtime).clock() >= 0.03) == live


def test_bodies_that_are_run_for_their_values_take_the_program_no_time() -> None:
    @cx.kernel(y=cx.write, flops=lambda y: 1e3)
    def slow(y):
        burn(0.05)
        y[...] = 1.0

    with opened(OURS, execute=True, costs=NOTHING._replace(live=True), **TWO) as runtime:
        (y,) = arrays(1)
        slow(y)
        assert y[0].item() == 1.0
        assert backend_of(runtime).clock() < 0.05


# What was measured with it --------------------------------------------------------------------------------------------------


@cx.kernel(x=cx.read, y=cx.write)
def work(x, y):
    y[...] = 2 * x


def learnt(path: Any) -> tuple[str, str]:
    """Run a kernel for real; return the key of its model and the speed class of its device."""
    with cx.Runtime("cpu:0", store=path, inline=False) as runtime:
        x, y = cx.array(np.ones(200_000)), cx.empty(200_000)
        for _ in range(6):
            work(x, y)
            cx.wait()
        return next(key for key in runtime.learned.models() if key.startswith("work ")), runtime.platform.devices[
            0
        ].speed


def simulated(path: Any, speed: str, **options: Any) -> list[Ran]:
    """Run it three times in a simulation; return the records."""
    here = platform(OURS.replace('name = "cpu"', f'name = "cpu"\nspeed = "{speed}"'))
    records = []
    machine = simulate(here, devices="cpu:0", store=path, costs=NOTHING, **options)
    with cx.Runtime(machine=machine, store="off", diagnostics="off") as runtime:
        before = runtime._driver.executor.on_finished

        def note(record: Ran) -> None:
            before(record)
            if isinstance(record.instruction.step, Launch):
                records.append(record)

        runtime._driver.executor.on_finished = note
        x, y = cx.asarray(np.ones(200_000)), cx.empty(200_000)
        for _ in range(3):
            work(x, y)
        cx.wait()
    return records


def test_waits_for_the_interpreter_lock_lengthen_kernels_and_are_told_apart(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    key, speed = learnt(path)
    Store(path).save_waits({(key, CONDITIONS[False]): (0.0, 1.0)})
    first = simulated(path, speed)[0]
    Store(path).save_waits({(key, CONDITIONS[False]): (0.5, 1.0)})
    second = simulated(path, speed)[0]
    assert first.waited == 0.0
    assert second.stop - second.start == pytest.approx(1.5 * (first.stop - first.start))
    assert second.waited == pytest.approx(0.5 * (first.stop - first.start))


def test_durations_vary_if_asked_to_and_the_same_way_again(tmp_path) -> None:
    path = tmp_path / "store.sqlite"
    _, speed = learnt(path)
    steady, one, two = (
        [record.stop - record.start for record in simulated(path, speed, vary=vary)] for vary in (False, True, True)
    )
    assert len({round(seconds, 12) for seconds in steady}) == 1
    assert len({round(seconds, 12) for seconds in one}) == 3
    assert one == two
