from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import coexec as cx
from coexec.backend.cpu import CpuBackend
from coexec.backend.launch import aligned_empty
from coexec.backend.library_threads import LibraryThreads
from coexec.errors import DoesNotFit
from coexec.geometry import whole
from coexec.graph.command import Chunk
from coexec.graph.instruction import Allocation, Binding, Fence, Fill, Instruction, Launch, Reduce
from coexec.graph.task import Task
from coexec.machine.platform import HOST, USER, Device
from coexec.plan.candidate import Share
from coexec.program.kernel import Kernel as Definition
from coexec.program.variant import Variant
from coexec.testing.conformance import check_backend


def narrow(index: int) -> Device:
    return Device(f"cpu:{index}", "cpu", HOST, (HOST, USER), "cpu", (sorted(os.sched_getaffinity(0))[index],))


def wide() -> Device:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return Device("cpu:all", "cpu", HOST, (HOST, USER), "cpu x2", cores, wide=True)


def scale_and_add(x, y, a):
    y[...] = a * y + x


DEFINITION = Definition(scale_and_add, {"x": cx.read, "y": cx.update})


def cpu_kernel(id, device, x, y, a):
    task = Task(id, "scale", DEFINITION, None)
    task.scalars, task.body, task.open = {"a": a}, scale_and_add, 1
    bindings = (Binding("x", x, x.box, None, writes=False), Binding("y", y, y.box, None, writes=True))
    share = Share(Variant("python", "python"), None, None, None)
    return Instruction(id, Launch(device.name, Chunk(device.name, y.box), share, bindings), task)


@pytest.mark.parametrize("devices", [[narrow(0)], [narrow(0), narrow(1)], [wide()], [narrow(0), narrow(1), wide()]])
def test_the_cpu_keeps_the_contract(devices):
    check_backend(lambda: CpuBackend(devices), kernel=cpu_kernel)


def test_the_cpu_keeps_the_contract_when_threads_switch_all_the_time():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        check_backend(lambda: CpuBackend([narrow(0), narrow(1), wide()]), kernel=cpu_kernel)
    finally:
        sys.setswitchinterval(before)


def test_host_memory_is_aligned_for_every_device():
    for shape in [(3,), (5, 7), (1,), (0, 4)]:
        array = aligned_empty(shape, np.dtype("f4"))
        assert array.shape == shape
        assert array.ctypes.data % 128 == 0 or not array.size


def allocation_of(elements: int) -> Allocation:
    return Allocation(1, HOST, 1, whole((elements,)), np.dtype("f8"))


def test_freed_memory_is_used_again_for_the_same_size():
    backend = CpuBackend([narrow(0)])
    first, second = allocation_of(1000), allocation_of(1000)
    backend.allocate(first)
    address = first.data.ctypes.data
    backend.release(first)
    backend.allocate(second)
    assert second.data.ctypes.data == address
    assert first.data is None


def test_an_allocation_beyond_the_limit_names_both_sizes():
    backend = CpuBackend([narrow(0)], capacity=4 << 20)
    with pytest.raises(DoesNotFit, match=r"needs 7\.6 MiB in memory 'host', which has 4\.0 MiB") as caught:
        backend.allocate(allocation_of(1_000_000))
    assert caught.value.needs == 8_000_000


def test_memory_kept_for_later_stays_within_the_limit():
    backend = CpuBackend([narrow(0)], capacity=20_000_000)
    first, second = allocation_of(2_000_000), allocation_of(1_500_000)
    backend.allocate(first)
    backend.release(first)
    assert backend._memory._pooled == 16_000_000
    backend.allocate(second)
    assert backend._memory._pooled == 0


def test_a_program_that_outgrows_host_memory_gets_the_error_and_goes_on():
    with cx.Runtime(devices="cpu:0", memory={"host": "4MB"}):
        big = cx.zeros(1_000_000)
        small = cx.zeros(10)
        with pytest.raises(DoesNotFit, match="raise the limit"):
            np.asarray(big)
        assert np.asarray(small).sum() == 0


def test_library_threads_are_limited_and_given_back():
    threads = LibraryThreads()
    before = [library.get_num_threads() for library, _ in threads._found()]
    threads.limit()
    limited = [library.get_num_threads() for library, _ in threads._found()]
    threads.restore()
    after = [library.get_num_threads() for library, _ in threads._found()]
    assert before
    assert all(count in (1, None) for count in limited)
    assert after == before


def blas_threads() -> list[int]:
    from threadpoolctl import threadpool_info

    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


def test_kernels_on_one_core_see_one_library_thread_and_the_program_sees_all_again():
    before = blas_threads()

    @cx.kernel(out=cx.write)
    def look(out):
        out[...] = max(blas_threads(), default=1)

    with cx.Runtime(devices="cpu:0,cpu:1"):
        seen = cx.zeros(1, int)
        look(seen)
        assert int(seen[0]) == 1
        cx.wait()
        assert blas_threads() == before


def test_a_wait_for_what_is_over_gives_library_threads_back():
    before = blas_threads()
    with cx.Runtime(devices="cpu:0") as runtime:
        cx.wait()
        runtime.machine.lanes[
            "cpu:0"
        ].limit_threads()  # as after a wait that ended while the last task was being reported
        assert max(blas_threads(), default=1) == 1
        cx.wait()
        assert blas_threads() == before


def test_a_kernel_runs_on_the_core_of_its_device():
    cores = sorted(os.sched_getaffinity(0))

    @cx.kernel(out=cx.write)
    def where(out):
        out[...] = min(os.sched_getaffinity(0)) if len(os.sched_getaffinity(0)) == 1 else -1

    with cx.Runtime(devices="cpu:0,cpu:1", inline=False):
        out = cx.zeros(2, int)
        where.using(devices="cpu:0")(out[:1])
        where.using(devices="cpu:1")(out[1:])
        assert np.asarray(out).tolist() == cores[:2]


def test_the_wide_device_has_all_cores_to_itself():
    running: set[str] = set()
    together: list[set[str]] = []
    lock = threading.Lock()

    class Watch:
        def __enter__(self):
            with lock:
                running.add(threading.current_thread().name)
                together.append(set(running))

        def __exit__(self, *exc):
            with lock:
                running.discard(threading.current_thread().name)

    @cx.kernel(x=cx.update)
    def work(x):
        with watch():
            x += np.sin(np.arange(20_000)).sum()

    def watch():
        return Watch()

    with cx.Runtime(devices="cpu:0,cpu:1,cpu:all", inline=False):
        arrays = [cx.zeros(1) for _ in range(30)]
        for number, array in enumerate(arrays):
            work.using(devices=["cpu:0", "cpu:1", "cpu:all"][number % 3])(array)
        cx.wait()
    assert together
    assert all(names == {"coexec-cpu:all"} for names in together if "coexec-cpu:all" in names)


def test_little_work_is_done_where_it_became_ready_and_wakes_nobody():
    backend, reported = CpuBackend([narrow(0)]), threading.Event()
    backend.start(lambda _: reported.set())
    parts, total, many = (Allocation(1, HOST, 1, whole(shape), np.dtype("f8")) for shape in ((8,), (), (1 << 16,)))
    for allocation in (parts, total, many):
        backend.allocate(allocation)
    sources, sink = Binding("", parts, parts.box, None, writes=False), Binding("", total, total.box, None, writes=True)
    adds = cx.reduce("sum", fresh=True).operator
    found: list[np.ndarray] = []
    for step in (
        Fill("cpu:0", parts, (parts.box,), np.float64(2.5)),
        Reduce(sources, sink, adds),
        Fence(sink._replace(writes=False), found.append),
    ):
        ran = backend.issue(Instruction(1, step, None), 0)
        assert ran is not None and ran.error is None
    assert found == [20.0]
    assert all(worker.thread is None for worker in backend._workers.values())

    assert backend.issue(Instruction(2, Fill("cpu:0", many, (many.box,), np.float64(1.0)), None), 0) is None
    assert reported.wait(60) and many.data[-1] == 1.0
    backend.stop()


def test_a_programs_own_operator_runs_on_a_thread_of_the_host():
    """It is the program's code: nobody knows how long it takes, and what it calls."""
    backend, reported = CpuBackend([narrow(0)]), threading.Event()
    backend.start(lambda _: reported.set())
    parts, total = (Allocation(1, HOST, 1, whole(shape), np.dtype("f8")) for shape in ((8,), ()))
    for allocation in (parts, total):
        backend.allocate(allocation)
    parts.data[...] = 2.0
    threads: list[str] = []

    def add(a: float, b: float) -> float:
        threads.append(threading.current_thread().name)
        return a + b

    own = cx.reduce(np.frompyfunc(add, 2, 1), 0.0, fresh=True).operator
    sources, sink = Binding("", parts, parts.box, None, writes=False), Binding("", total, total.box, None, writes=True)
    assert backend.issue(Instruction(1, Reduce(sources, sink, own), None), 0) is None
    assert reported.wait(60) and float(total.data) == 16.0
    assert set(threads) == {"coexec-host"}
    backend.stop()
