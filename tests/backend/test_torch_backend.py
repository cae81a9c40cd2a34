from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import coexec as cx
from coexec.backend.base import Ran
from coexec.errors import BackendError, ConfigError, DoesNotFit, InvariantError
from coexec.geometry import whole
from coexec.graph.command import Chunk
from coexec.graph.instruction import Alloc, Allocation, Binding, Fence, Free, Instruction, Launch
from coexec.graph.task import Task
from coexec.machine.cores import available_cores
from coexec.machine.platform import HOST, USER
from coexec.plan.candidate import Share
from coexec.testing.conformance import check_backend

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from coexec.backend.torch.backend import TorchBackend  # noqa: E402
from coexec.backend.torch.driver import TorchDriver  # noqa: E402
from tests.backend.torch_parts import OWN, Rig, back_on_host, on_torch  # noqa: E402

both = pytest.mark.parametrize("memory", ["shared", "own"])


@cx.kernel(x=cx.read, y=cx.update)
def scale_and_add(x, y, a):
    y[...] = a * y + x


def conforming(id, device, x, y, a):
    task = Task(id, "scale", scale_and_add, None)
    task.scalars, task.body, task.open, task.accesses = {"a": a}, scale_and_add.body(), 1, scale_and_add.array_params
    bindings = (Binding("x", x, x.box, None, writes=False), Binding("y", y, y.box, None, writes=True))
    step = Launch(device.name, Chunk(device.name, y.box), Share(on_torch(), None, None, None), bindings)
    return Instruction(id, step, task)


def test_torch_in_the_hosts_memory_keeps_the_contract():
    check_backend(TorchBackend, kernel=conforming, allocate=back_on_host)


def test_torch_with_memory_of_its_own_keeps_the_contract():
    check_backend(lambda: TorchBackend(memory="own"), kernel=conforming)


class Later(TorchDriver):
    """The CPU as if it had streams: what is recorded is over when a thread of its own says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asynchronous = True

    def open_stream(self):
        return object()

    def on(self, stream):
        return super().on(None)

    def order(self, stream, event):
        assert event.wait(60)

    def record(self, stream):
        event = threading.Event()
        threading.Thread(target=event.set).start()
        return event

    def finish(self, event):
        assert event.wait(60)


def test_a_device_that_finishes_later_keeps_the_contract():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        check_backend(lambda: TorchBackend(Later(), memory="own"), kernel=conforming)
    finally:
        sys.setswitchinterval(before)


def test_what_needs_a_failed_instruction_does_not_run_though_it_was_issued_before_the_failure_was_known():
    launched = threading.Event()

    class Noticed(Later):
        def record(self, stream):  # of the second one: the first fails before
            launched.set()
            return super().record(stream)

    class Late(list[Ran]):
        def append(self, ran):
            assert launched.wait(60)
            super().append(ran)

    with Rig("own", driver=Noticed()) as rig:
        rig.reports = Late()
        empty = Allocation(rig.id(), OWN, 0, whole((4,)), np.dtype(float))
        broken = rig.copy(empty, empty)
        target = Allocation(rig.id(), OWN, 0, whole((4,)), np.dtype(float))
        rig.backend.allocate(target)
        target.data.fill_(1.0)
        behind = rig.fill(target, 2)
        behind.needs = (broken.id,)
        rig.backend.issue(broken, 0)
        rig.backend.issue(behind, 0)
        rig.backend.stop()
        assert [type(ran.error) for ran in rig.reports] == [BackendError, BackendError]
        assert target.data.tolist() == [1, 1, 1, 1]


def test_it_describes_itself_as_data():
    shared, own = TorchBackend(cores=(available_cores()[0],)), TorchBackend(memory="own", memory_id=5, capacity=1000)
    device = shared.devices[0]
    assert (device.name, device.kind, device.memory, device.readable) == ("torch:cpu", "torch", HOST, (HOST, USER))
    assert device.cores == (available_cores()[0],) and shared.memories == {} and not device.eager
    assert device.software == f"torch {torch.__version__}" and device.description
    assert own.devices[0].memory == 5 and own.devices[0].readable == () and own.memories[5].capacity == 1000
    assert own.devices[0].cores == available_cores() and own.devices[0].speed != device.speed
    assert device.flops is None and device.bandwidth is None


def test_it_supports_the_types_that_torch_computes_with():
    backend = TorchBackend()
    assert all(map(backend.supports, list("?bhiqBefdFD")))
    assert not any(map(backend.supports, ["u2", "u4", "u8", "i4,f4", ">f4", "U3", "M8[s]", "O", "g"]))


@both
def test_the_devices_thread_keeps_to_its_cores_and_leaves_the_programs_threads_alone(memory):
    before = torch.get_num_threads()
    seen: dict[str, object] = {}

    def look(y):
        seen.update(cores=os.sched_getaffinity(0), threads=torch.get_num_threads(), grad=torch.is_grad_enabled())
        y[...] = 1

    kernel = cx.kernel(y=cx.update)(lambda y: None)
    core = available_cores()[-1]
    with Rig(memory, cores=(core,)) as rig:
        rig.call(kernel, np.zeros(3), variant=on_torch(look))
    assert seen == {"cores": {core}, "threads": 1, "grad": False}
    assert torch.get_num_threads() == before


def test_memory_of_its_own_has_a_limit():
    backend = TorchBackend(memory="own", capacity=1000)
    small, large = (Allocation(i, 2, 0, whole((n,)), np.dtype(float)) for i, n in enumerate((100, 101)))
    backend.allocate(small)
    with pytest.raises(DoesNotFit, match="memory 'torch:cpu'"):
        backend.allocate(large)
    backend.release(small)
    backend.release(small)
    huge = Allocation(3, 2, 0, whole((1 << 50,)), np.dtype(float))
    with pytest.raises(DoesNotFit):
        TorchBackend(memory="own", capacity=1 << 60).allocate(huge)
    with pytest.raises(InvariantError, match="no memory of its own"):
        TorchBackend().allocate(small)


def test_allocating_and_freeing_also_come_as_instructions_and_those_of_the_host_are_refused():
    with Rig("own") as rig:
        allocation = Allocation(rig.id(), OWN, 0, whole((3,)), np.dtype(float))
        rig.run(Instruction(rig.id(), Alloc(allocation), None))
        assert allocation.data is not None
        rig.run(Instruction(rig.id(), Free(allocation), None))
        assert allocation.data is None
        with pytest.raises(BackendError, match="cannot run 'fence' instructions"):
            rig.run(
                Instruction(rig.id(), Fence(Binding("", None, whole((3,)), None, writes=False), lambda _: None), None)
            )
        host = rig.host(np.zeros(3))
        with pytest.raises(BackendError, match=r"neither .* is in a memory of torch:cpu"):
            rig.run(rig.copy(host, host))


def test_only_the_cpu_works_in_the_hosts_memory():
    driver = TorchDriver()
    driver.type = "cuda"
    with pytest.raises(ConfigError, match="does not work in the host's memory"):
        TorchBackend(driver, "torch:cuda0", memory="shared")


def test_a_device_that_fails_in_the_middle_is_a_backend_error():
    class Broken(Later):
        def finish(self, event):
            raise RuntimeError("device-side assert")

    with (
        Rig("own", driver=Broken()) as rig,
        pytest.raises(BackendError, match=r"torch:cpu failed in .*device-side assert") as error,
    ):
        step = Alloc(Allocation(rig.id(), OWN, 0, whole((3,)), np.dtype(float)))
        rig.run(Instruction(rig.id(), step, None))
    assert error.value.begun
