"""An OpenCL device by itself, without coexec: PyOpenCL with buffers that are there beforehand, copies in, kernel, copies out.

Before: cases.py.  After: harness.py.  Takes from coexec the text of the kernels and how it cuts an index space into
work-groups, so that both run the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...backend.launch import aligned_empty
from ...backend.opencl import driver
from ...backend.opencl.layout import WorkRange, launches, rounded
from ...backend.opencl.source import is_long, write
from ...program.kernel import Kernel
from ..arguments import arguments
from .cases import FLOAT, Problem, Values


class Code(NamedTuple):
    """A kernel as coexec calls it for a problem."""

    kernel: Kernel
    named: Mapping[str, Any]  # the problem's inputs, and scalars
    outputs: Mapping[str, tuple[int, ...]]  # names and shapes; the last is the result


class InOpenCL:
    """A problem as hand-written host code, its driver's threads kept on `core`."""

    def __init__(self, problem: Problem, code: Code, core: int, index: int = 0) -> None:
        import pyopencl as cl

        device = driver.device_at(index)
        self._traits = driver.traits(device)
        driver.pin_workers(f"opencl:{index}", self._traits, (core,))
        self._context: Any = cl.Context([device])
        self._queue: Any = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self._finish = problem.finish
        outputs = {name: aligned_empty(shape, FLOAT) for name, shape in code.outputs.items()}
        self._made = list(outputs.values())[-1]
        self._result = self._made if problem.finish is None else aligned_empty(problem.out, FLOAT)
        flags = cl.mem_flags.READ_WRITE
        self._inputs = [(array, cl.Buffer(self._context, flags, array.nbytes)) for array in problem.inputs]
        self._outputs = [(array, cl.Buffer(self._context, flags, array.nbytes)) for array in outputs.values()]
        self._launches = self._prepared(code.kernel, {**code.named, **outputs})
        self.kernel_seconds: list[float] = []

    def _prepared(self, called: Kernel, named: Mapping[str, Any]) -> list[tuple[Any, WorkRange]]:
        """Build the kernel and set its arguments, once."""
        import pyopencl as cl

        variant = next(v for v in called.variants if v.kind == "opencl")
        buffers = {id(array): buffer for array, buffer in self._inputs + self._outputs}
        outputs = {id(array) for array, _ in self._outputs}
        passed = arguments(
            [(name, named[name]) for name in called.passed],
            lambda _, array: buffers[id(array)],
            lambda _, array: id(array) in outputs,
            single=True,
        )
        shape, found = self._made.shape, []
        for launch in self._cut(variant, shape):
            written = write(
                variant.source,
                variant.entry,
                passed.declared,
                len(shape),
                checked=launch.checked,
                contract=variant.contract,
            )
            extents = [named[name].shape[axis] for name, axis in written.extents]
            last = [*shape, *extents, *([0] * len(shape) if written.origin else [])]
            kernel = cl.Kernel(cl.Program(self._context, written.text).build(list(written.options)), written.entry)
            kernel.set_scalar_arg_dtypes(passed.dtypes + [np.int64] * len(last))
            kernel.set_args(*passed.values, *last)
            found.append((kernel, launch))
        return found

    def _cut(self, variant: Any, shape: tuple[int, ...]) -> list[WorkRange]:
        if variant.global_size is None:
            return list(launches(shape, exact=True, largest=self._traits.largest_group))
        size = tuple(variant.global_size(shape))
        group = variant.local_size(shape) if callable(variant.local_size) else variant.local_size
        group = (*group, *(1 for _ in size[len(group) :]))
        return [WorkRange((), rounded(size, group), group, checked=not is_long(variant.source))]

    def begin(self) -> None:
        pass

    def run(self) -> None:
        import pyopencl as cl

        queue = self._queue
        kept = [cl.enqueue_copy(queue, buffer, array, is_blocking=False) for array, buffer in self._inputs]
        events = [
            cl.enqueue_nd_range_kernel(
                queue, kernel, launch.size, launch.group, launch.offset if any(launch.offset) else None
            )
            for kernel, launch in self._launches
        ]
        kept.append(cl.enqueue_copy(queue, *self._outputs[-1], is_blocking=False))
        queue.finish()
        self.kernel_seconds.append((events[-1].profile.end - events[0].profile.start) * 1e-9)
        if self._finish is not None:
            self._finish(self._made, self._result)

    def result(self) -> Values:
        return self._result

    def close(self) -> None:
        self._queue.finish()
        self._launches.clear()
        for _, buffer in self._inputs + self._outputs:
            buffer.release()
        self._inputs.clear()
        self._outputs.clear()
