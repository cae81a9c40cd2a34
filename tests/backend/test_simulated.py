from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.backend.machine import Machine, Opening, assemble
from coexec.backend.simulated import SimulatedBackend, fixed_durations
from coexec.graph.instruction import Copy, Launch
from coexec.machine.platform import HOST, Device, Memory
from coexec.testing.conformance import check_backend


def machine(seconds, *, own_memory: bool, concurrent: int = 1) -> tuple[Machine, SimulatedBackend]:
    opening = Opening({}, memories=[Memory("user"), Memory("host", paged=True)])
    devices = []
    for index in range(2):
        memory = opening.add_memory(Memory(f"sim:{index}")) if own_memory else HOST
        devices.append(Device(f"sim:{index}", "simulated", memory, (memory,), f"sim {index}"))
    backend = SimulatedBackend(devices, seconds, concurrent)
    return assemble([backend], opening), backend


@cx.kernel(x=cx.read, y=cx.update)
def use(x, y):
    pass


@cx.kernel(y=cx.write)
def make(y):
    pass


def durations(instruction) -> float:
    if isinstance(instruction.step, Launch):
        return 3.0 if instruction.device == "sim:0" else 2.0
    return 1.0 if isinstance(instruction.step, Copy) else 0.0


def test_simulated_devices_keep_the_contract():
    check_backend(lambda: SimulatedBackend([Device("sim:0", "simulated", 2)]), executes=False)


def test_two_devices_overlap_and_a_join_waits_for_the_slower():
    opened, backend = machine(durations, own_memory=False)
    with cx.Runtime(machine=opened):
        a, b = cx.zeros(10), cx.zeros(10)
        make.using(devices="sim:0")(a)
        make.using(devices="sim:1")(b)
        use.using(devices="sim:1")(a, b)
        cx.wait()
        assert backend.now == 5.0  # the join starts at 3 and takes 2


def test_data_on_another_device_costs_its_copies_first():
    opened, backend = machine(durations, own_memory=True)
    with cx.Runtime(machine=opened):
        a, b = cx.zeros(10), cx.empty(10)
        make.using(devices="sim:0")(a)
        make.using(devices="sim:1")(b)
        use.using(devices="sim:1")(a, b)
        cx.wait()
        assert backend.now == 7.0  # made at 3, to the host at 4, to sim:1 at 5, used at 7


def test_a_copy_overlaps_a_kernel_on_the_same_device():
    opened, backend = machine(durations, own_memory=True)
    with cx.Runtime(machine=opened):
        a, b, c = cx.array(np.zeros(10)), cx.empty(10), cx.empty(10)
        make.using(devices="sim:0")(b)
        make.using(devices="sim:0")(c)  # 0 to 6: two kernels, one after the other
        use.using(devices="sim:0")(a, b)  # its copy runs beside them
        cx.wait()
        assert backend.now == 9.0


def test_a_device_runs_as_many_kernels_at_once_as_it_is_told():
    opened, backend = machine(durations, own_memory=False, concurrent=2)
    with cx.Runtime(machine=opened):
        arrays = [cx.empty(10) for _ in range(4)]
        for array in arrays:
            make.using(devices="sim:0")(array)
        cx.wait()
        assert backend.now == 6.0


def test_the_same_program_takes_the_same_virtual_time_again():
    times = []
    for _ in range(3):
        opened, backend = machine(fixed_durations(kernel=1.0), own_memory=True)
        with cx.Runtime(machine=opened):
            arrays = [cx.zeros(10) for _ in range(5)]
            for first in arrays:
                for second in arrays:
                    if first is not second:
                        use(first, second)
            cx.wait()
            times.append(backend.now)
    assert times[0] == pytest.approx(times[1]) == pytest.approx(times[2])
