"""Hand-written host code for OpenCL: the same kernels with explicit buffers, copies, queues and events.

Before: schedule.py, hand.py.  After: harness.py.  Takes from coexec only the text of the kernels and how it cuts an index
space into work-groups, so that all ways run the same code.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ...backend.opencl import driver
from ...backend.opencl.layout import WorkRange, dividing_group, launches, rounded
from ...backend.opencl.source import WrittenSource, write
from ..arguments import arguments
from .hand import StepSignals, ThreadCrew, run_step
from .program import Arrays, DagProgram, KernelCall, Reset
from .schedule import Schedule, arrivals
from .ways import Values, copies

HOST, DEVICE = "cpu", "opencl"


class ReadyKernel(NamedTuple):
    """A kernel with its arguments set, and how to launch it."""

    kernel: Any
    launch: WorkRange


class Buffers:
    """A program's arrays as OpenCL buffers: apart from the host's memory, or the host's memory in place."""

    def __init__(self, program: DagProgram, cores: tuple[int, ...], *, shared: bool) -> None:
        import pyopencl as cl

        device = driver.device_at(0)
        self._traits = driver.traits(device)
        driver.pin_workers("opencl:0", self._traits, cores)
        self.program = program
        self.shared = shared
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.arrays = copies(program)
        self._programs: dict[str, Any] = {}
        self.buffers = {name: self._buffer(array) for name, array in self.arrays.items()}
        self.ready = {n: self._prepare(s) for n, s in enumerate(program.steps) if isinstance(s, KernelCall)}

    def _buffer(self, array: Any) -> Any:
        import pyopencl as cl

        flags = cl.mem_flags.USE_HOST_PTR if self.shared else cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE | flags, hostbuf=array)

    def _prepare(self, call: KernelCall) -> list[ReadyKernel]:
        """Build a call's kernel and set its arguments, once."""
        import pyopencl as cl

        kernel = call.kernel
        variant = next(v for v in kernel.variants if v.kind == "opencl")
        named = dict(zip(kernel.passed, call.bind(self.arrays), strict=True))
        arrays = [named[p.name] for p in kernel.array_params]
        shape, _ = kernel.find_space(arrays, {})
        single = all(array.dtype != np.float64 for array in arrays)
        buffers = {
            name: self.buffers[given]
            for name, given in zip(kernel.passed, call.args, strict=True)
            if isinstance(given, str)
        }
        writes = {p.name: p.access.writes for p in kernel.array_params}
        passed = arguments(named.items(), lambda name, _: buffers[name], lambda name, _: writes[name], single=single)
        ready = []
        for launch in self._launches(variant, shape):
            written = write(variant.source, variant.entry, passed.declared, len(shape), checked=launch.checked)
            extents = [named[name].shape[axis] for name, axis in written.extents]
            built = cl.Kernel(self._program(written), written.entry)
            built.set_scalar_arg_dtypes(passed.dtypes + [np.int64] * (len(shape) + len(extents)))
            built.set_args(*passed.values, *shape, *extents)
            ready.append(ReadyKernel(built, launch))
        return ready

    def _program(self, written: WrittenSource) -> Any:
        import pyopencl as cl

        if written.text not in self._programs:
            self._programs[written.text] = cl.Program(self.context, written.text).build(list(written.options))
        return self._programs[written.text]

    def _launches(self, variant: Any, shape: tuple[int, ...]) -> list[WorkRange]:
        if variant.global_size is None:
            return list(launches(shape, exact=True, largest=self._traits.largest_group))
        size, group = tuple(variant.global_size(shape)), variant.local_size
        if group is None:
            return [WorkRange((), size, dividing_group(size, self._traits.largest_group), checked=False)]
        return [WorkRange((), rounded(size, group), group, checked=True)]

    def enqueue(self, number: int) -> list[Any]:
        """Enqueue one step; return its events."""
        import pyopencl as cl

        step = self.program.steps[number]
        if isinstance(step, Reset):
            value = np.asarray(step.value, self.arrays[step.array].dtype)
            buffer = self.buffers[step.array]
            return [cl.enqueue_fill_buffer(self.queue, buffer, value, 0, self.arrays[step.array].nbytes)]
        return [
            cl.enqueue_nd_range_kernel(
                self.queue, kernel, launch.size, launch.group, launch.offset if any(launch.offset) else None
            )
            for kernel, launch in self.ready[number]
        ]

    def to_device(self, name: str) -> Any:
        """Enqueue a copy of an array to its buffer; return the event, to be kept until the copy is over."""
        import pyopencl as cl

        return cl.enqueue_copy(self.queue, self.buffers[name], self.arrays[name], is_blocking=False)

    def to_host(self, name: str) -> Any:
        """Enqueue a copy of an array from its buffer; return the event, to be kept until the copy is over."""
        import pyopencl as cl

        return cl.enqueue_copy(self.queue, self.arrays[name], self.buffers[name], is_blocking=False)

    def element(self, name: str, index: tuple[int, ...]) -> float:
        """Wait for an element and return it."""
        import pyopencl as cl

        array = self.arrays[name]
        found = np.empty(1, array.dtype)
        offset = int(np.ravel_multi_index(index, array.shape)) * array.itemsize
        cl.enqueue_copy(self.queue, found, self.buffers[name], src_offset=offset)
        return float(found[0])

    def rewrite(self) -> None:
        """Write again what the host writes before each iteration."""
        for name in self.program.rewritten:
            np.copyto(self.arrays[name], self.program.arrays[name])

    def close(self) -> None:
        """Give the buffers back."""
        self.queue.finish()
        self.ready.clear()
        for buffer in self.buffers.values():
            buffer.release()
        self.buffers.clear()
        self.arrays.clear()


class PlainOpenCL:
    """One kernel after another on the OpenCL device, each waited for before the next."""

    def __init__(self, program: DagProgram, cores: tuple[int, ...], *, shared: bool) -> None:
        self.program = program
        self.memory = Buffers(program, cores, shared=shared)
        self.seconds: dict[str, list[float]] = {label: [] for label in program.labels()}
        place = {step.label: DEVICE for step in program.steps}
        self._arrivals = dict(arrivals(program, place, HOST))

    def prepare(self) -> None:
        self.memory.rewrite()

    def run(self) -> Values:
        memory = self.memory
        for number, step in enumerate(self.program.steps):
            if not memory.shared:
                for name in self._arrivals[number]:
                    memory.to_device(name).wait()
            events = memory.enqueue(number)
            events[-1].wait()
            if isinstance(step, KernelCall):
                self.seconds[step.label].append((events[-1].profile.end - events[0].profile.start) * 1e-9)
        return [memory.element(name, index) for name, index in self.program.reads]

    def time_moves(self) -> dict[str, float]:
        """Return the seconds to move each array, the better of both directions and three tries; nothing if shared."""
        if self.memory.shared:
            return {}
        found = {}
        for name in self.program.arrays:
            tries = []
            for move in (self.memory.to_device, self.memory.to_host) * 3:
                start = perf_counter()
                move(name).wait()
                tries.append(perf_counter() - start)
            found[name] = min(tries)
        return found

    def results(self) -> Arrays:
        if not self.memory.shared:
            for name in self.program.results:
                self.memory.to_host(name).wait()
        return {name: self.memory.arrays[name] for name in self.program.results}

    def close(self) -> None:
        self.memory.close()


class ByHandOpenCL:
    """A NumPy thread on one core beside an OpenCL queue on another, with a fixed schedule."""

    def __init__(
        self, program: DagProgram, schedule: Schedule, cpu_core: int, cores: tuple[int, ...], *, shared: bool
    ) -> None:
        self.program = program
        self.memory = Buffers(program, cores, shared=shared)
        self._place = [schedule.place[step.label] for step in program.steps]
        self._signals = StepSignals(program, schedule)
        self._arrivals = dict(arrivals(program, schedule.place, HOST)) if not shared else {}
        self._exports = self._leaving()
        self._final = {
            name: self._last_place(name) for name, _ in program.reads + tuple((r, ()) for r in program.results)
        }
        self._kept: list[Any] = []
        self._crew = ThreadCrew()
        self._crew.add(lambda: self._numpy(schedule.order[HOST]), cpu_core)
        self._crew.add(lambda: self._opencl(schedule.order[DEVICE]), None)

    def _leaving(self) -> dict[int, set[str]]:
        """Return, per OpenCL step, the arrays that NumPy steps need of it before anyone overwrites them."""
        found: dict[int, set[str]] = {}
        writer: dict[str, int] = {}
        for number, step in enumerate(self.program.steps):
            if self._place[number] == HOST:
                for name in self._arrivals.get(number, ()):
                    if self._place[writer[name]] == DEVICE:
                        found.setdefault(writer[name], set()).add(name)
            for name in step.writes():
                writer[name] = number
        return found

    def _last_place(self, name: str) -> str:
        writers = [n for n, step in enumerate(self.program.steps) if name in step.writes()]
        return self._place[writers[-1]] if writers else HOST

    def _numpy(self, numbers: list[int]) -> None:
        for number in numbers:
            for event in self._signals.wait(number):
                if event is not None:
                    event.wait()
            run_step(self.program, number, self.memory.arrays)
            self._signals.send(number)

    def _opencl(self, numbers: list[int]) -> None:
        memory, kept = self.memory, self._kept
        kept.clear()
        for number in numbers:
            self._signals.wait(number)
            kept += [memory.to_device(name) for name in self._arrivals.get(number, ())]
            kept += memory.enqueue(number)
            kept += [memory.to_host(name) for name in sorted(self._exports.get(number, ()))]
            memory.queue.flush()
            self._signals.send(number, kept[-1])
        memory.queue.finish()

    def prepare(self) -> None:
        self.memory.rewrite()

    def run(self) -> Values:
        self._crew.run()
        memory = self.memory
        return [
            memory.element(name, index)
            if self._final[name] == DEVICE and not memory.shared
            else float(memory.arrays[name][index])
            for name, index in self.program.reads
        ]

    def results(self) -> Arrays:
        if not self.memory.shared:
            for name in self.program.results:
                if self._final[name] == DEVICE:
                    self.memory.to_host(name).wait()
        return {name: self.memory.arrays[name] for name in self.program.results}

    def close(self) -> None:
        self._crew.close()
        self.memory.close()
