"""Chains of elementwise operations as one kernel that works block by block, in cache, without the dead temporaries.

Before: program/kernel.py.  After: program/ufunc.py, schedule/fuse.py.  Knows no device.

`np.exp(x) * y + 1` makes two arrays that nobody will ever look at. Computed one after the other, each passes through main
memory twice; as one kernel they are buffers of some thousand elements. An intermediate that the program still holds is
computed in full like any other result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .access import Access, read, write
from .array import Array
from .body import signature
from .cost import DeclaredCost, mix_of
from .kernel import Kernel
from .mapper import Mapper
from .overlap import same_place
from .storage import Storage

BLOCK = 1 << 17
"""Elements of a block: its buffers stay in the caches, and each call is long enough for other threads to run beside it.

Measured on two cores with five operations on floats: 1 << 14 is as fast on one, but three times slower on both, because
calls of a few microseconds spend more time handing the interpreter lock over.
"""
LONGEST = 24
"""Operations in a chain: compilers and readers of traces have limits."""


Line = tuple[str, int]
"""A file and a line of the program."""


class Operand(NamedTuple):
    """What a kernel must know of an operand: its type, and per axis whether it has just one element there."""

    dtype: Any  # a dtype, or a Python number's type
    ones: tuple[bool, ...] = ()  # none: it has no axes

    @property
    def scalar(self) -> bool:
        """Whether it has no axes."""
        return not self.ones


class Operation(NamedTuple):
    """One elementwise call with a new array as its result."""

    function: Any
    options: tuple[tuple[str, Any], ...]
    inputs: tuple[Any, ...]  # arrays of our own, or scalars by value
    operands: tuple[Operand, ...]
    output: Array
    kernel: Kernel  # what computes this call alone
    broadcast: Mapper

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of `kernel`."""
        return (*self.inputs, self.output)


class FusedStep(NamedTuple):
    """One operation inside a fused body; values are named ("x", i) input, ("s", i) scalar, ("v", i) result of step i."""

    function: Any
    options: tuple[tuple[str, Any], ...]
    values: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    dtype: np.dtype[Any]
    live: bool  # an output; else a buffer


class Chain:
    """Operations of one shape, each held back until it is known which results are still wanted."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.lines: list[Line] = []  # where the program asked for each
        self._made: dict[Storage, int] = {}  # who computes it

    def accepts(self, operation: Operation) -> bool:
        """Tell whether an operation can join: same shape, and it sees results of the chain whole or not at all."""
        if not self.operations:
            return True
        if len(self.operations) >= LONGEST or operation.output.shape != self.operations[0].output.shape:
            return False
        for value in operation.inputs:
            maker = self._maker(value)
            if maker is not None and not same_place(value, self.operations[maker].output):
                return False
        return True

    def add(self, operation: Operation, line: Line = ("", 0)) -> None:
        """Append an operation."""
        self._made[operation.output._storage] = len(self.operations)
        self.operations.append(operation)
        self.lines.append(line)

    def calls(self) -> list[tuple[Kernel, tuple[Any, ...], Line]]:
        """Return the calls that compute everything which is still wanted, with their lines.

        What does not use each other's results is apart: a read waits for, and a failure spoils, only what it must.
        """
        group: list[int] = []
        for number, operation in enumerate(self.operations):
            makers = {group[m] for v in operation.inputs if (m := self._maker(v)) is not None}
            mine = min(makers, default=number)
            group = [mine if g in makers else g for g in group] + [mine]
        parts: dict[int, Chain] = {0: self}
        if any(group):
            operations, lines = self.operations, self.lines
            self.operations, self.lines, self._made = [], [], {}
            for number, operation, line in zip(group, operations, lines, strict=True):
                parts.setdefault(number, Chain()).add(operation, line)
        return [(*part.call(), part.lines[0]) for part in parts.values()]

    def _maker(self, value: Any) -> int | None:
        """Return which operation computes `value`, if one does."""
        return self._made.get(value._storage) if isinstance(value, Array) else None

    def call(self) -> tuple[Kernel, tuple[Any, ...]]:
        """Return the kernel that computes everything which is still wanted, and its arguments."""
        if len(self.operations) == 1:
            return self.operations[0].kernel, self.operations[0].arguments
        wanted = self._wanted()
        arrays: list[Array] = []
        scalars: list[Any] = []
        steps, outputs, patterns = [], [], []
        for number, operation in enumerate(self.operations):
            values = []
            for value, operand in zip(operation.inputs, operation.operands, strict=True):
                if isinstance(value, Array) and value._storage in self._made:
                    values.append(("v", self._made[value._storage]))
                elif isinstance(value, Array) and not operand.scalar:
                    found = next((i for i, known in enumerate(arrays) if same_place(known, value)), len(arrays))
                    if found == len(arrays):
                        arrays.append(value)
                        patterns.append(operand)
                    values.append(("x", found))
                else:
                    values.append(("s", len(scalars)))
                    scalars.append(value)
            dtype = operation.output.dtype
            steps.append(
                FusedStep(
                    operation.function, operation.options, tuple(values), operation.operands, dtype, number in wanted
                )
            )
            if number in wanted:
                outputs.append(operation.output)
        ndim = len(self.operations[0].output.shape)
        kernel = fused_kernel(tuple(steps), tuple(patterns), len(scalars), ndim, self.operations[0].broadcast)
        return kernel, (*arrays, *scalars, *outputs)

    def _wanted(self) -> set[int]:
        """Return the operations whose results somebody outside still holds; the last is always computed.

        A storage is referred to by this chain's own handles and its dictionary; whatever goes beyond is the program's.
        Where the count is not understood, the result counts as wanted: that is slower, never wrong.
        """
        own: dict[int, int] = {}
        for operation in self.operations:
            for value in (*operation.inputs, operation.output):
                if isinstance(value, Array):
                    own[id(value._storage)] = own.get(id(value._storage), 0) + 1
        wanted = {len(self.operations) - 1}
        for storage in self._made:
            others = sys.getrefcount(storage) - own[id(storage)] - 3  # the dictionary, the loop, the argument
            if others > 0:
                wanted.add(self._made[storage])
        return wanted


class Fused:
    """A body: the steps of a chain, on one block of rows after the other."""

    def __init__(self, steps: tuple[FusedStep, ...], arrays: int, scalars: int) -> None:
        self._steps = steps
        self._arrays, self._inputs = arrays, arrays + scalars
        outputs = sum(step.live for step in steps)
        names = (
            [f"x{i}" for i in range(arrays)] + [f"s{i}" for i in range(scalars)] + [f"out{i}" for i in range(outputs)]
        )
        self.__signature__ = signature(names)
        self.__name__ = "+".join(step.function.__name__ for step in steps)
        self._slots = _slots(steps)
        self._xp: Any = np

    def on(self, xp: Any) -> Fused:
        """Return the body with its functions taken from another namespace, for arrays that are not NumPy's."""
        other = copy(self)
        functions = [getattr(xp, step.function.__name__) for step in self._steps]
        functions = [getattr(function, "strict", function) for function in functions]
        other._steps = tuple(s._replace(function=f) for s, f in zip(self._steps, functions, strict=True))
        other._xp = xp
        return other

    def formula(self, xp: Any) -> Callable[..., None]:
        """Return the chain as a function that computes everything at once, for whoever traces it."""

        def formula(**given: Any) -> None:
            values = tuple(given.values())
            inputs, scalars, outputs = (
                values[: self._arrays],
                values[self._arrays : self._inputs],
                values[self._inputs :],
            )
            results, shape = iter(outputs), outputs[0].shape
            made = [next(results) if step.live else xp.empty(shape, step.dtype) for step in self._steps]
            self._run(list(inputs), scalars, made)

        return formula

    def __call__(self, *values: Any) -> None:
        """Compute the chain on one chunk."""
        inputs, scalars, outputs = values[: self._arrays], values[self._arrays : self._inputs], values[self._inputs :]
        shape = tuple(outputs[0].shape)
        buffers: dict[tuple[int, np.dtype[Any]], Any] = {}
        home = (0, self._steps[-1].dtype)  # the last result's own place serves as a buffer until it is written
        for block in blocks_of(shape):
            targets = [out[block] for out in outputs]
            size = tuple(targets[0].shape)
            if not buffers:  # the first block is as large as any
                for slot, step in zip(self._slots, self._steps, strict=True):
                    if not step.live and (slot, step.dtype) not in (*buffers, home):
                        buffers[slot, step.dtype] = self._xp.empty(size, step.dtype)
            parts = {key: buffer[tuple([slice(n) for n in size])] for key, buffer in buffers.items()}
            parts[home] = targets[-1]
            results = iter(targets)
            made = [
                next(results) if step.live else parts[slot, step.dtype]
                for slot, step in zip(self._slots, self._steps, strict=True)
            ]
            self._run([_seen(x, block, len(shape)) for x in inputs], scalars, made)

    def _run(self, blocks: list[Any], scalars: tuple[Any, ...], made: list[Any]) -> None:
        """Compute the chain on one block, each step into its place in `made`."""
        for number, step in enumerate(self._steps):
            values = [blocks[i] if kind == "x" else scalars[i] if kind == "s" else made[i] for kind, i in step.values]
            try:
                step.function(*values, out=made[number], **dict(step.options))
            except Exception as error:
                error.add_note(f"in operation {number + 1} of a chain, {step.function.__name__}")
                raise


def blocks_of(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield the blocks of an array of `shape`, in order, each of at most `BLOCK` elements."""
    axis = next(a for a in range(len(shape)) if prod(shape[a + 1 :]) <= BLOCK)
    rows = max(1, BLOCK // max(1, prod(shape[axis + 1 :])))
    for outer in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], rows):
            yield (*[slice(i, i + 1) for i in outer], slice(begin, begin + rows))


def _seen(x: Any, block: tuple[slice, ...], ndim: int) -> Any:
    """Return what a block sees of an input, which may have fewer axes, or some of length one."""
    return x[tuple([slice(None) if n == 1 else s for n, s in zip(x.shape, block[ndim - x.ndim :], strict=False)])]


def _slots(steps: tuple[FusedStep, ...]) -> list[int]:
    """Return which buffer each step writes: one that is free again, its last reader being this step or an earlier one."""
    last = {i: number for number, step in enumerate(steps) for kind, i in step.values if kind == "v"}
    slots: list[int] = []
    for number, step in enumerate(steps):
        busy = {slots[i] for i in range(number) if not steps[i].live and last.get(i, i) > number}
        slots.append(-1 if step.live else next(s for s in range(len(steps)) if s not in busy))
    return slots


@lru_cache(maxsize=512)
def fused_kernel(
    steps: tuple[FusedStep, ...], patterns: tuple[Operand, ...], scalars: int, ndim: int, broadcast: Mapper
) -> Kernel:
    """Return the kernel of a chain: one for all chains of the same operations, types and patterns."""
    body = Fused(steps, len(patterns), scalars)
    whole = (False,) * ndim
    accesses: dict[str, Access] = {
        f"x{i}": read if operand.ones == whole else read(broadcast) for i, operand in enumerate(patterns)
    }
    accesses |= {f"out{i}": write for i in range(sum(step.live for step in steps))}
    cost = DeclaredCost(per_point=float(len(steps)), mix=mix_of(step.function.__name__ for step in steps))
    kernel = Kernel(body, accesses, split=0, over="out0", name=body.__name__, cost=cost)
    given = {f"x{i}": operand for i, operand in enumerate(patterns)}
    numbers = [o for step in steps for (kind, _), o in zip(step.values, step.operands, strict=True) if kind == "s"]
    given |= {f"s{i}": operand for i, operand in enumerate(numbers)}
    made = [step.dtype for step in steps if step.live]
    kernel.operands = given | {f"out{i}": Operand(dtype, whole) for i, dtype in enumerate(made)}
    return kernel


def private(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return handles of our own for arrays, so that only the program's handles keep a result wanted."""
    return tuple([Array(v._storage, v._box, v._cut) if type(v) is Array else v for v in values])
