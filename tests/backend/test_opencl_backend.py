from __future__ import annotations

import os
import threading
import warnings
from importlib.metadata import version

import numpy as np
import pytest

from coexec.backend.opencl import OpenCLBackend, driver
from coexec.backend.opencl.lanes import DeviceClock
from coexec.errors import BackendError, CoexecWarning, ConfigError, DoesNotFit, InvariantError, RuntimeClosed
from coexec.geometry import whole
from coexec.graph.instruction import Alloc, Allocation, Binding, Fence, Free, Instruction
from coexec.machine.cores import available_cores
from coexec.machine.platform import HOST, USER
from tests.backend.opencl_parts import OWN, Rig, needs_opencl

pytestmark = needs_opencl


def test_it_describes_itself_as_data():
    own, shared = OpenCLBackend(0, "opencl:0", 2), OpenCLBackend(0, "fast", 2, "shared", cores=(0,))
    assert own.devices[0].memory == 2 and own.devices[0].readable == () and own.devices[0].waits_across_lanes
    assert own.memories[2].capacity and own.kind == own.devices[0].kind == "opencl"
    assert shared.devices[0].memory == HOST and shared.devices[0].reads(USER) and shared.memories == {}
    assert (shared.devices[0].name, shared.devices[0].cores) == ("fast", (0,))
    assert own.devices[0].cores == (available_cores() if own._traits.cpu else ())
    assert own.devices[0].speed != shared.devices[0].speed
    assert own.devices[0].software == f"pyopencl {version('pyopencl')}, driver {own._device.driver_version}"
    assert not own.runs_python and not own.helps and own.help() is False


def test_supports_what_kernels_can_compute_with():
    backend = OpenCLBackend()
    assert all(backend.supports(dtype) for dtype in (np.float32, bool, np.int8, np.uint64))
    assert backend.supports(np.float64) == backend._traits.fp64
    assert not any(backend.supports(dtype) for dtype in (np.complex64, "i4,f4", ">f4", "U3", "M8[s]"))
    weak = backend._traits._replace(fp64=False, fp16=False)
    assert not weak.supports(np.float64) and not weak.supports(np.float16)


def test_options_that_make_no_sense_are_errors_at_once():
    with pytest.raises(ConfigError, match="memory='both' is neither"):
        OpenCLBackend(memory="both")  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="no OpenCL device 99"):
        OpenCLBackend(99)


def test_memory_is_shared_only_where_that_is_coherent():
    discrete = OpenCLBackend()._traits._replace(name="Big GPU", cpu=False, coherent=False)
    with pytest.raises(ConfigError, match=r"gpu \(Big GPU\) does not see the host's memory coherently.*'own'"):
        driver.require_coherent("gpu", discrete)


def test_what_is_too_large_says_how_much_there_is():
    backend = OpenCLBackend()
    huge = Allocation(0, OWN, 0, whole((1 << 50,)), np.dtype(np.float64))
    with pytest.raises(DoesNotFit, match=r"needs .* MiB in memory 'opencl:0'"):
        backend.allocate(huge)
    with pytest.raises(InvariantError, match="no memory of its own"):
        OpenCLBackend(memory="shared").allocate(huge)


def test_allocating_and_freeing_also_come_as_instructions():
    with Rig() as rig:
        allocation = Allocation(0, OWN, 0, whole((3, 0)), np.dtype(np.float64))
        rig.run(Instruction(rig.id(), Alloc(allocation), None))
        assert allocation.data is not None
        rig.run(Instruction(rig.id(), Free(allocation), None))
        assert allocation.data is None


def test_instructions_of_the_host_are_refused():
    with Rig() as rig, pytest.raises(BackendError, match="cannot run 'fence' instructions"):
        fence = Fence(Binding("", None, whole((3,)), None, writes=False), lambda _: None)
        rig.run(Instruction(rig.id(), fence, None))


def test_the_workers_are_kept_on_the_cores_named_and_let_go_again():
    workers = driver.drivers().workers
    if not workers:
        pytest.skip("this driver has no worker threads of its own")
    last = available_cores()[-1]
    with Rig(cores=(last,)):
        assert all(os.sched_getaffinity(worker) == {last} for worker in workers)
    with Rig():
        assert all(os.sched_getaffinity(worker) == set(available_cores()) for worker in workers)


def test_a_core_that_cannot_be_had_is_a_warning():
    with pytest.warns(CoexecWarning, match=r"opencl:0 .* could not be kept on cores \[99999\]"), Rig(cores=(99_999,)):
        pass


def test_an_error_of_the_listener_does_not_end_the_lane(monkeypatch):
    shown: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    told = threading.Semaphore(0)

    def listener(ran):
        told.release()
        raise ValueError("mine")

    backend = OpenCLBackend(memory_id=OWN)
    backend.start(listener)
    for id in range(3):
        allocation = Allocation(id, OWN, 0, whole((2,)), np.dtype(np.int8))
        backend.issue(Instruction(id, Alloc(allocation), None), 0)
    backend.stop()
    assert [told.acquire(blocking=False) for _ in range(4)] == [True, True, True, False]
    assert [str(hook.exc_value) for hook in shown] == ["mine"] * 3


def test_more_lanes_than_queues_still_keep_their_order():
    with Rig(lanes=2) as rig:
        y = rig.put(np.zeros(4, np.int64))
        for lane in (5, 3, 1):
            (ran,) = rig.run(rig.kernel("y(i) = 10 * y(i) + a", whole((4,)), {"y": y}, a=lane), lane=lane)
            assert ran.lane == lane
        assert (rig.get(y) == 531).all()
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("coexec-opencl:0")]
        assert sorted(names) == ["coexec-opencl:0-lane0", "coexec-opencl:0-lane1", "coexec-opencl:0-submit"]


def test_it_is_started_once_used_between_and_closed_for_good():
    backend = OpenCLBackend(memory_id=OWN)
    alloc = Instruction(0, Alloc(Allocation(0, OWN, 0, whole((2,)), np.dtype(np.int8))), None)
    with pytest.raises(InvariantError, match="before opencl:0 was started"):
        backend.issue(alloc, 0)
    backend.stop()
    backend.start(lambda ran: None)
    with pytest.raises(InvariantError, match="started twice"):
        backend.start(lambda ran: None)
    backend.stop()
    with pytest.raises(RuntimeClosed, match="opencl:0 was stopped"):
        backend.issue(alloc, 0)


def test_times_lie_on_the_backends_clock_and_in_lane_order():
    with Rig() as rig:
        begin = rig.backend.clock()
        y = rig.put(np.zeros(10_000, np.float32))
        ran = rig.run(*(rig.kernel("y(i) += 1", whole((10_000,)), {"y": y}) for _ in range(20)))
        end = rig.backend.clock()
    assert all(begin <= r.start <= r.stop <= end for r in ran)
    assert [r.stop for r in ran] == sorted(r.stop for r in ran)


def test_the_devices_clock_is_mapped_by_its_best_observation_and_may_drift():
    clock = DeviceClock()
    clock.observe(end=10.0, now=110.5)  # seen half a second late
    clock.observe(end=11.0, now=111.1)
    clock.observe(end=12.0, now=112.9)
    assert clock.host(12.0) == pytest.approx(112.1, abs=1e-3)
    for second in range(1, 2001):  # a device clock that loses 50 us per second
        clock.observe(end=12.0 + second * (1 - 5e-5), now=112.1 + second)
    assert clock.host(12.0 + 2000 * (1 - 5e-5)) == pytest.approx(2112.1, abs=1e-3)


def test_building_programs_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Rig() as rig:
            y = rig.put(np.zeros(3, np.float32))
            rig.run(rig.kernel("int unused_variable; y(i) = 1", whole((3,)), {"y": y}))
