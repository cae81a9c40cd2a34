"""A kernel against itself: whole, in random uneven pieces, and through each of its variants.

Before: lower/, backend/.  After: the tests of whoever writes a kernel.  Uses no scheduler: chunks run one after another.

    def test_my_kernel_may_be_divided():
        cx.testing.check_kernel(heat, u, out, 0.1)
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ..backend.base import Ran
from ..backend.launch import run
from ..backend.machine import Machine, open_machine
from ..errors import BackendError, CoexecWarning
from ..geometry import Box, covers, overlaps
from ..graph.command import Chunk, Command
from ..graph.instruction import Alloc, Free, Instruction
from ..graph.task import Task
from ..graph.task_graph import touched
from ..lower.lowering import Lowering
from ..machine.abilities import abilities_of
from ..machine.platform import HOST
from ..plan.candidate import Share
from ..program.array import Array
from ..program.call import DEFAULT
from ..program.kernel import ArrayParam, Kernel
from ..program.storage import Storage
from ..program.variant import Variant

PATIENCE = 120.0  # seconds that one instruction may take on a device
COUNTS = (2, 3, 7)


def check_kernel(
    kernel: Kernel, *args: Any, splits: Sequence[int] = COUNTS, seed: int = 0, ulp: float | None = None, **kwargs: Any
) -> None:
    """Raise AssertionError, naming the array and the chunk, unless `kernel` computes the same whole and in pieces.

    Takes the arguments of a call; arrays may be NumPy's or coexec's, and are not changed. `splits` are the numbers of
    random uneven chunks to try along each declared axis. Every variant runs on each device here that it is for.
    Results may differ by what the variant's numerics allow, or by `ulp` units in the last place; a reduction of inexact
    numbers also by the rounding of another order.
    """
    case = Case(kernel, *_separate(kernel, args, kwargs))
    machine = open_machine(_devices(kernel))
    try:
        for backend in machine.backends:
            if not abilities_of(backend.kind).on_numpy:
                backend.start(_report)
        _compare(case, machine, splits, np.random.default_rng(seed), ulp)
    finally:
        for backend in machine.backends:
            backend.stop()


class Case(NamedTuple):
    """A kernel with the arguments of one call, arrays apart."""

    kernel: Kernel
    arrays: list[np.ndarray[Any, Any]]
    scalars: dict[str, Any]


def _separate(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[np.ndarray[Any, Any]], dict[str, Any]]:
    """Return the arrays, as NumPy's own, and the scalars of a call."""
    bound = kernel.signature.bind(*args, **kwargs, **dict.fromkeys({"chunk", "xp"} & set(kernel.params)))
    bound.apply_defaults()
    given = bound.arguments
    passed = [(given[p.name], p.access.mode) for p in kernel.array_params if p.position >= 0]
    seen = {id(value) for value, mode in passed if mode != "write" or not isinstance(value, Array)}
    plain = {  # an array passed twice stays one array; what is only written need not hold anything yet
        id(value): np.asarray(value) if id(value) in seen else np.empty(value.shape, value.dtype) for value, _ in passed
    }
    arrays = [plain[id(given[p.name])] for p in kernel.array_params if p.position >= 0]
    scalars = {name: given[name] for _, name in kernel.scalar_params}
    return arrays, {k: np.asarray(v)[()] if isinstance(v, Array) else v for k, v in scalars.items()}


def _devices(kernel: Kernel) -> str:
    """Return the devices that the kernel's variants are for, as far as they are here."""
    if not any(variant.kind == "opencl" for variant in kernel.variants):
        return "cpu:0"
    from ..backend.opencl.probe import probe

    return ",".join(["cpu:0", *(f"opencl:{device.index}" for device in probe().devices)])


def _compare(case: Case, machine: Machine, splits: Sequence[int], rng: np.random.Generator, ulp: float | None) -> None:
    reference = Trial(case, machine)
    box = reference.box
    body = case.kernel.variants[0]
    expected = reference.run((Chunk("cpu:0", box),), body)
    divisions = list(_divisions(case.kernel, box, splits, rng))
    for device in machine.platform.devices:
        for variant in case.kernel.variants:
            if variant.kind not in ("python" if device.abilities.on_numpy else device.kind, device.kind) or variant.off:
                continue
            for parts in ([box], *divisions) if variant is not body else divisions:
                chunks = tuple(Chunk(device.name, part, slot) for slot, part in enumerate(parts))
                trial = Trial(case, machine)
                if not trial.suits(chunks):
                    continue
                if not trial.independent(chunks):
                    _warn_indivisible(case.kernel)
                    continue
                order = [chunks[i] for i in rng.permutation(len(chunks))]
                got = trial.run(tuple(order), variant)
                trial.judge(expected, got, chunks, variant, variant.numerics.ulp if ulp is None else ulp)


def _divisions(kernel: Kernel, box: Box, splits: Sequence[int], rng: np.random.Generator) -> Iterator[list[Box]]:
    """Yield random uneven divisions of `box` along each declared axis, and one into single rows if there are few."""
    for axis in kernel.split:
        lo, hi = box.lo[axis], box.hi[axis]
        for count in dict.fromkeys(min(count, hi - lo) for count in (*splits, *([hi - lo] if hi - lo <= 8 else []))):
            if count > 1:
                cuts = sorted(rng.choice(np.arange(lo + 1, hi), count - 1, replace=False).tolist())
                yield [_rows(box, axis, a, b) for a, b in zip([lo, *cuts], [*cuts, hi], strict=True)]


def _rows(box: Box, axis: int, lo: int, hi: int) -> Box:
    return Box((*box.lo[:axis], lo, *box.lo[axis + 1 :]), (*box.hi[:axis], hi, *box.hi[axis + 1 :]))


def _warn_indivisible(kernel: Kernel) -> None:
    warnings.warn(
        f"kernel {kernel.name!r}: one chunk would touch what another writes, so coexec never divides this call, and "
        "its divisions were not checked",
        CoexecWarning,
        stacklevel=5,
    )


class Trial:
    """One execution of a kernel, on fresh copies of its arrays, instruction by instruction."""

    def __init__(self, case: Case, machine: Machine) -> None:
        kernel = self._kernel = case.kernel
        self._machine = machine
        self._lowering = Lowering(machine.platform)
        made = {id(data): self._array(data.shape, data.dtype, data) for data in case.arrays}
        self._arrays = [made[id(data)] for data in case.arrays]
        named = {p.name: a for p, a in zip(kernel.array_params, self._arrays, strict=False)} | case.scalars
        self._arrays += [self._array(shape, dtype) for shape, dtype in kernel.returns.describe(named)]
        task = self._task = Task(1, kernel.name, kernel, None)
        task.accesses, task.arrays, task.scalars = kernel.array_params, self._arrays, case.scalars
        task.options = DEFAULT
        task.extents, self.box, _ = kernel.space(self._arrays, case.scalars)
        task.space = self.box
        task.shapes = [array.shape for array in self._arrays]
        task.body = kernel.body()

    def _array(self, shape: tuple[int, ...], dtype: np.dtype[Any], data: Any = None) -> Array:
        storage = Storage(self, shape, dtype)
        storage.id = len(self._lowering.states()) + 1
        backing = self._lowering.register(storage, None if data is None else HOST)
        if backing is not None:
            self._machine.memories[HOST].allocate(backing.allocation)
            np.copyto(backing.allocation.data, data)
        return Array(storage, storage.box, None)

    def dropped(self, storage_id: int) -> None:
        """Take no note: everything goes with the trial."""

    def independent(self, chunks: Sequence[Chunk]) -> bool:
        """Tell whether no chunk touches what another one writes."""
        parts = [[(p, a, touched(self._task, p.access, a, c.box)) for p, a in self._params()] for c in chunks]
        return not any(
            a._storage is b._storage and (p.access.writes or q.access.writes) and overlaps(mine, theirs)
            for first, second in combinations(parts, 2)
            for p, a, mine in first
            for q, b, theirs in second
            if "reduce" not in (p.access.mode, q.access.mode)
        )

    def suits(self, chunks: Sequence[Chunk]) -> bool:
        """Tell whether the chunks' device holds the types."""
        backend = self._machine.lanes[chunks[0].device]
        if abilities_of(backend.kind).on_numpy:
            return True
        return all(backend.supports(a.dtype) for a in self._arrays)

    def _params(self) -> list[tuple[ArrayParam, Array]]:
        return list(zip(self._kernel.array_params, self._arrays, strict=True))

    def run(self, chunks: tuple[Chunk, ...], variant: Variant) -> dict[str, np.ndarray[Any, Any]]:
        """Run the chunks in the order given and return what the kernel wrote, by parameter."""
        command = Command(1, self._task, chunks, (), "check_kernel")
        self._execute(
            self._lowering.lower(command, [Share(variant, None, None, None) for _ in chunks]), len(chunks) > 1, variant
        )
        results: dict[str, np.ndarray[Any, Any]] = {}
        for param, array in self._params():
            if param.access.writes:
                got: list[np.ndarray[Any, Any]] = []
                self._execute(self._lowering.fence(Task(2, "read", None, None), array, got.append), divided=False)
                results[param.name] = got[0]
        return results

    def _execute(self, instructions: Sequence[Instruction], divided: bool, variant: Variant | None = None) -> None:
        for instruction in instructions:
            try:
                self._step(instruction)
            except Exception as error:
                chunk = getattr(instruction.step, "chunk", None)
                if chunk is None or variant is None:
                    raise
                where = f"on chunk {chunk.box} ({chunk.device}, variant {variant.name}, with {self._given(chunk)})"
                if not divided:  # the user's own error, with what it was about
                    error.add_note(f"kernel {self._kernel.name!r} raised it {where}, which is the whole")
                    raise
                raise AssertionError(
                    f"kernel {self._kernel.name!r} raises {type(error).__name__} {where}, but not on the whole: {error}"
                ) from error

    def _given(self, chunk: Chunk) -> str:
        """Return the box of each array that the body is given for a chunk."""
        return ", ".join(
            f"{p.name}{p.access.mapper.box(chunk.box, self._task.extents, a.shape)} of {a.shape}"
            for p, a in self._params()
        )

    def _step(self, instruction: Instruction) -> None:
        memories = self._machine.memories
        step = instruction.step
        if isinstance(step, Alloc):
            memories[step.allocation.memory].allocate(step.allocation)
        elif isinstance(step, Free):
            memories[step.allocation.memory].release(step.allocation)
        elif abilities_of((backend := self._machine.lanes[step.device]).kind).on_numpy:
            run(instruction.task, step, debug=True)
        else:
            _finish(backend, instruction)

    def judge(
        self,
        expected: dict[str, np.ndarray[Any, Any]],
        got: dict[str, np.ndarray[Any, Any]],
        chunks: Sequence[Chunk],
        variant: Variant,
        ulp: float,
    ) -> None:
        """Raise unless both are the same, naming the first element that is not and its chunk."""
        for param, array in self._params():
            if not param.access.writes:
                continue
            want, have = expected[param.name], got[param.name]
            reduced = param.access.mode == "reduce"
            wrong = np.argwhere(~_alike(want, have, ulp, self.box.volume if reduced else 0))
            if len(wrong):
                at = tuple(int(i) for i in wrong[0])
                raise AssertionError(
                    f"kernel {self._kernel.name!r}, variant {variant.name} on {chunks[0].device}: {param.name!r} "
                    f"differs in {len(wrong)} of {want.size} elements from the whole, first at {at}: {have[at]!r} "
                    f"instead of {want[at]!r}, {self._blame(param, array, at, chunks)}"
                )

    def _blame(self, param: ArrayParam, array: Array, at: tuple[int, ...], chunks: Sequence[Chunk]) -> str:
        element = Box(at, tuple(i + 1 for i in at))
        if param.access.mode != "reduce":
            for number, chunk in enumerate(chunks):
                if covers(param.access.mapper.box(chunk.box, self._task.extents, array.shape), element):
                    return f"in chunk {number + 1} of {len(chunks)}, {chunk.box}"
        return f"a reduction over {len(chunks)} chunks"


def _alike(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], ulp: float, summed: int) -> np.ndarray[Any, Any]:
    """Return where two arrays are equal, or close enough if their elements are inexact."""
    if a.dtype.kind not in "fc":
        return np.asarray(a == b)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if summed:  # another order of the same sum: errors grow like the root of its length, beside its largest result
            ulp = ulp + 8 + 4 * summed**0.5
        if not ulp:
            return np.asarray(same)
        size = np.maximum(np.abs(a), np.abs(b))
        size = np.full_like(size, size.max(initial=0)) if summed else size
        return np.asarray(same | (np.abs(a - b) <= ulp * np.spacing(size)))


_reports: dict[int, tuple[threading.Event, list[BaseException | None]]] = {}


def _report(ran: Ran) -> None:
    event, errors = _reports[id(ran.instruction)]
    errors.append(ran.error)
    event.set()


def _finish(backend: Any, instruction: Instruction) -> None:
    """Run one instruction on a device, and wait for it."""
    event, errors = _reports[id(instruction)] = (threading.Event(), [])
    try:
        ran = backend.issue(instruction, 0)
        if ran is not None:
            _report(ran)
        if not event.wait(PATIENCE):
            raise BackendError(f"{instruction!r} is not over on {instruction.device} after {PATIENCE:.0f} s")
    finally:
        del _reports[id(instruction)]
    if errors[0] is not None:
        raise errors[0]
