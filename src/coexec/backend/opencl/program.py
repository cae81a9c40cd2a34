"""Build programs once and launch kernels.

Before: source.py (text), layout.py (arithmetic).  After: backend.py.  Knows nothing of lanes or other instructions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import BackendError, VariantRefused
from ..launch import seen
from .bodies import OpenClBodies, Prepared, dtype_of
from .borders import SOURCE, TARGET, pad_scalars, pad_source
from .driver import OpenCLTraits
from .layout import (
    PaddedLayout,
    Shape,
    WorkRange,
    binding_layout,
    dense_strides,
    dividing_group,
    folded,
    launches,
    rounded,
)
from .source import SourceArgument, WrittenSource, is_long, scalar, signature, singles, write

if TYPE_CHECKING:
    from ...graph.instruction import Allocation, Binding, Launch
    from ...graph.task import Task

INJECTED = ("chunk", "xp")
"""Parameters of a Python body that are no data: OpenCL sources have indices and types instead."""


class LaunchPlace(NamedTuple):
    """Where an allocation's elements are, as a kernel reaches them."""

    buffer: Any  # a cl.Buffer, or None for no memory
    start: int  # elements before the first one
    strides: tuple[int, ...] | None  # in elements; None = dense
    keep: Any = None  # what must live until the kernel is over


class Built(NamedTuple):
    """A kernel ready for arguments."""

    kernel: Any
    written: WrittenSource


class Programs:
    """The programs of one device, each built once."""

    def __init__(self, context: Any, device: OpenCLTraits) -> None:
        self.context = context
        self._device = device
        self._built: dict[object, Built | VariantRefused] = {}
        self._lock = threading.Lock()

    def get(
        self,
        source: str,
        entry: str | None,
        arguments: tuple[SourceArgument, ...],
        ndim: int,
        *,
        checked: bool,
        contract: bool = False,
    ) -> Built:
        """Return the kernel for these arguments; raise VariantRefused with the compiler's words if it does not build."""
        key = (source, entry, arguments, ndim, checked, contract)
        with self._lock:
            built = self._built.get(key)
            if built is None:
                try:
                    written = write(source, entry, arguments, ndim, checked=checked, contract=contract)
                    built = self._build(written, arguments, ndim)
                except BackendError as error:
                    built = error if isinstance(error, VariantRefused) else VariantRefused(*error.args)
                self._built[key] = built
        if isinstance(built, VariantRefused):
            raise VariantRefused(*built.args) from built.__cause__
        return built

    def _build(self, written: WrittenSource, arguments: tuple[SourceArgument, ...], ndim: int) -> Built:
        import pyopencl as cl

        try:
            program = cl.Program(self.context, written.text).build(list(written.options))
            kernel = cl.Kernel(program, written.entry)
        except cl.Error as error:
            raise VariantRefused(
                f"the OpenCL source does not compile for {self._device.name}:\n{_said(error)}"
            ) from error
        parameters = signature(arguments, ndim, written.extents, written.places, origin=written.origin)
        more = ndim + len(written.extents) + ndim * written.origin + len(written.places)
        dtypes = _scalar_dtypes(arguments) + [np.int64] * more
        if kernel.num_args != len(dtypes):
            raise VariantRefused(
                f"kernel {written.entry!r} takes {kernel.num_args} arguments, coexec passes {len(dtypes)}: "
                f"void {written.entry}({', '.join(parameters)})"
            )
        kernel.set_scalar_arg_dtypes(dtypes)
        return Built(kernel, written)


def _said(error: Exception) -> str:
    """Return what the compiler said, without what PyOpenCL says around it."""
    lines = str(error).partition("\n\n")[2].splitlines()
    return "\n".join(line for line in lines if line and not line.startswith("(options:")) or str(error)


def _scalar_dtypes(arguments: Sequence[SourceArgument]) -> list[Any]:
    dtypes: list[Any] = []
    for argument in arguments:
        if argument.ndim is None:
            dtypes.append(np.dtype(argument.dtype))
        else:
            dtypes += [None] + [np.int64] * (argument.ndim + 1)
    return dtypes


class Call(NamedTuple):
    """The arguments of one kernel, described and as passed."""

    arguments: tuple[SourceArgument, ...]
    values: list[Any]
    shapes: dict[str, Shape]  # of the arrays
    keep: list[Any]
    at: Callable[[str, int], int] = lambda name, axis: 0  # noqa: ARG005 - where the chunk begins inside an array


class Padded(NamedTuple):
    """A padded copy of what a parameter sees."""

    name: str
    buffer: Any  # a cl.Buffer, dense
    shape: Shape
    events: list[Any]
    keep: list[Any]


NOTHING: Mapping[str, Padded] = MappingProxyType({})


def _at(task: Task, step: Launch, name: str, axis: int) -> int:
    """Return where the chunk of a kernel begins inside what array `name` was given."""
    kernel = task.kernel
    if task.space is None or kernel is None:  # everything, and every array whole
        return 0
    shapes = dict(zip([param.name for param in task.accesses], task.shapes, strict=True))
    mapper = next(param.access.mapper for param in task.accesses if param.name == name)
    box = step.chunk.box
    return int(box.lo[axis] - seen(mapper, box, task.extents, shapes[name]).lo[axis])


class Launcher:
    """Runs kernels of one device. For one thread: a kernel's arguments are state."""

    def __init__(self, programs: Programs, device: OpenCLTraits, place: Callable[[Allocation], LaunchPlace]) -> None:
        self._programs = programs
        self._device = device
        self._place = place
        self._bodies = OpenClBodies()
        self._names: dict[np.dtype[Any], str] = {}  # of the dtypes met and supported: NumPy takes long to name one

    def launch(self, queue: Any, task: Task, step: Launch, waits: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Enqueue a kernel instruction; return its events and what must live until they are over."""
        box = step.chunk.box
        if box.volume == 0:
            return [], []
        body = step.body
        assert task is not None
        padded = [self._padded(queue, b, waits) for b in step.bindings if b.pad is not None]
        events = [event for copy in padded for event in copy.events]
        if body.made:
            return self._launch_body(queue, task, step, padded, [*waits, *events])
        call = self.arguments(task.params, task.scalars, step.bindings, {copy.name: copy for copy in padded})
        call = call._replace(at=partial(_at, task, step))
        if body.elsewhere is not None and not self._device.cpu:
            body = body.elsewhere
        groups = (body.global_size, body.local_size)
        events += self.run(
            queue, body.source, body.entry, call, box.shape, box.lo, [*waits, *events], groups, contract=body.contract
        )
        return events, [*call.keep, *padded]

    def _launch_body(
        self, queue: Any, task: Task, step: Launch, padded: Sequence[Padded], waits: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Enqueue the OpenCL C of a Python body, compared with NumPy first where that is due."""
        copies = {copy.name: copy for copy in padded}
        names = [binding.name for binding in step.bindings]
        shapes = self.arguments(names, {}, step.bindings, copies).shapes
        prepared = self._bodies.prepare(task, step, shapes)
        if self._bodies.due(prepared):
            self._compare(queue, task, step, prepared, copies, waits)
        events, keep = self._run_body(queue, task, step, prepared, copies, waits)
        return [*(event for copy in padded for event in copy.events), *events], [*keep, *padded]

    def _run_body(
        self,
        queue: Any,
        task: Task,
        step: Launch,
        prepared: Prepared,
        copies: Mapping[str, Padded],
        waits: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        call = self.arguments(prepared.params, prepared.scalars, step.bindings, copies)
        call = call._replace(at=partial(_at, task, step))
        shape = call.shapes[prepared.fitted.text.space]
        lo = step.chunk.box.lo
        return self.run(queue, prepared.source, None, call, shape, lo, waits, prepared.groups), call.keep

    def _compare(
        self,
        queue: Any,
        task: Task,
        step: Launch,
        prepared: Prepared,
        copies: Mapping[str, Padded],
        waits: Sequence[Any],
    ) -> None:
        """Run a body's text and its NumPy body on copies of what it sees, and compare the results."""
        import pyopencl as cl

        modes = {param.name: param.access.mode for param in task.accesses}
        seen: dict[str, np.ndarray[Any, Any]] = {}
        private: dict[str, Padded] = {}
        for binding in step.bindings:
            dense = copies.get(binding.name) or self._dense(queue, binding, waits)
            host = seen[binding.name] = np.zeros(dense.shape, dtype_of(binding))
            if modes[binding.name] != "write":
                cl.enqueue_copy(queue, host, dense.buffer, wait_for=[*waits, *dense.events])
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            buffer = cl.Buffer(self._programs.context, flags, hostbuf=host)
            private[binding.name] = Padded(binding.name, buffer, dense.shape, [], [])
        events, keep = self._run_body(queue, task, step, prepared, private, waits)
        got = {binding.name: np.empty_like(seen[binding.name]) for binding in step.bindings if binding.writes}
        for name, array in got.items():
            cl.enqueue_copy(queue, array, private[name].buffer, wait_for=events)
        del keep
        self._bodies.judge(task, step, prepared, seen, got)

    def _dense(self, queue: Any, binding: Binding, waits: Sequence[Any]) -> Padded:
        """Enqueue a copy of what a parameter sees, without gaps."""
        import pyopencl as cl

        names = (SOURCE, TARGET)
        source = binding._replace(name=SOURCE, writes=False)
        shape = self.arguments((SOURCE,), {}, (source,)).shapes[SOURCE]
        size = max(1, prod(shape) * dtype_of(binding).itemsize)
        copy = Padded(TARGET, cl.Buffer(self._programs.context, cl.mem_flags.READ_WRITE, size), shape, [], [])
        call = self.arguments(names, {}, (source, binding._replace(name=TARGET, writes=True)), {TARGET: copy})
        point = f"({', '.join(f'i{axis}' for axis in range(len(shape)))})" if shape else ""
        copy.events.extend(
            self.run(queue, f"{TARGET}{point} = {SOURCE}{point};", None, call, shape, (0,) * len(shape), waits)
        )
        copy.keep.extend(call.keep)
        return copy

    def _padded(self, queue: Any, binding: Binding, waits: Sequence[Any]) -> Padded:
        """Enqueue a copy of what a parameter sees, completed beyond the array's border."""
        import pyopencl as cl

        pad, dtype = binding.pad, dtype_of(binding)
        pieces = binding.pieces or ((binding.allocation, binding.box, None),)
        shape: Shape = pad.wanted.shape
        buffer = cl.Buffer(self._programs.context, cl.mem_flags.READ_WRITE, pad.wanted.volume * dtype.itemsize)
        copy = Padded(binding.name, buffer, shape, [], [])
        target = binding._replace(name=TARGET, writes=True)
        for there, box, part in pieces:
            numbers = pad_scalars(pad, dtype, part)
            seen = binding._replace(name=SOURCE, allocation=there, box=box, pad=None, writes=False)
            call = self.arguments((SOURCE, TARGET, *numbers), numbers, (seen, target), {TARGET: copy})
            text = pad_source(pad.borders, apart=part is not None)
            copy.events.extend(self.run(queue, text, None, call, shape, pad.wanted.lo, [*waits, *copy.events]))
            copy.keep.extend(call.keep)
        return copy

    def run(
        self,
        queue: Any,
        source: str,
        entry: str | None,
        call: Call,
        shape: Shape,
        lo: Shape,
        waits: Sequence[Any],
        groups: tuple[Any, Any] = (None, None),
        *,
        contract: bool = False,
    ) -> list[Any]:
        """Enqueue a source over an index space; return the events."""
        import pyopencl as cl

        events: list[Any] = []
        planned = [
            (
                launch,
                self._programs.get(
                    source, entry, call.arguments, len(shape), checked=launch.checked, contract=contract
                ),
            )
            for launch in self._launches(source, shape, *groups)
        ]  # built before anything runs: a source that does not compile has written nothing
        for launch, built in planned:
            extents = [call.shapes[name][axis] for name, axis in built.written.extents]
            places = [call.at(name, axis) for name, axis in built.written.places]
            built.kernel.set_args(*call.values, *shape, *extents, *(lo if built.written.origin else ()), *places)
            offset = launch.offset if any(launch.offset) else None
            events.append(
                cl.enqueue_nd_range_kernel(
                    queue, built.kernel, launch.size, launch.group, offset, None if events else list(waits)
                )
            )
        return events

    def _launches(self, source: str, shape: Shape, global_size: Any, local_size: Any) -> Sequence[WorkRange]:
        """Return how an index space is launched, as the variant says or as suits the device."""
        long = is_long(source)
        if global_size is None and local_size is None and not long:
            return launches(shape, exact=self._device.cpu, largest=self._device.largest_group)
        size = folded(shape) if global_size is None else tuple(global_size(shape))
        group = local_size(shape) if callable(local_size) else local_size
        if group is None:
            group = dividing_group(size, self._device.largest_group)
            return [WorkRange((), size, group, checked=False)]
        group = (*group, *(1 for _ in size[len(group) :]))
        return [WorkRange((), rounded(size, group), group, checked=not long)]

    def arguments(
        self,
        params: Sequence[str],
        scalars: Mapping[str, Any],
        bindings: Sequence[Binding],
        padded: Mapping[str, Padded] = NOTHING,
    ) -> Call:
        """Return the arguments of a kernel in parameter order; of some arrays it sees padded copies."""
        bound = {binding.name: binding for binding in bindings}
        single: bool | None = None
        call = Call((), [], {}, [])
        described = []
        for name in params:
            if name in bound:
                described.append(self._array(bound[name], call, padded.get(name)))
            elif name in scalars:
                if single is None:
                    single = singles([self._name(b) for b in bindings if b.allocation], fp64=self._device.fp64)
                dtype, value = scalar(name, scalars[name], single=single)
                described.append(SourceArgument(name, dtype))
                call.values.append(value)
            elif name not in INJECTED:
                raise VariantRefused(f"parameter {name!r} has no value for the OpenCL variant")
        return call._replace(arguments=tuple(described))

    def _array(self, binding: Binding, call: Call, padded: Padded | None = None) -> SourceArgument:
        """Append an array's arguments to `call` and describe it."""
        name, allocation, box, cut = binding[:4]
        dtype = self._name(binding)
        if padded is not None:
            layout = PaddedLayout(0, dense_strides(padded.shape), padded.shape)
            call.values.extend([padded.buffer, 0, *layout.strides])
        elif allocation is None:  # nothing to see: any type will do
            ndim = box.ndim if cut is None else len(cut.axes)
            layout = PaddedLayout(0, (0,) * ndim, (0,) * ndim)
            call.values.extend([None, 0, *layout.strides])
        else:
            place = self._place(allocation)
            layout = binding_layout(allocation.box, box, cut, place.strides)
            call.values.extend([place.buffer, place.start + layout.start, *layout.strides])
            call.keep.append(place.keep)
        call.shapes[name] = layout.shape
        unit = bool(layout.strides) and layout.strides[-1] == 1
        return SourceArgument(name, dtype, len(layout.strides), binding.writes, unit)

    def _name(self, binding: Binding) -> str:
        """Return the name of an array's dtype; raise VariantRefused if kernels cannot compute with it."""
        dtype = binding.dtype if binding.allocation is None else binding.allocation.dtype
        if dtype is None:  # of an array that has no element
            return "float32"
        name = self._names.get(dtype)
        if name is None:
            if not self._device.supports(dtype):
                raise VariantRefused(
                    f"array {binding.name!r} is {dtype}, which {self._device.name} cannot compute with"
                )
            name = self._names[dtype] = dtype.name
        return name
