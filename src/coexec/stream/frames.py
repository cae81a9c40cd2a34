"""Run the calls of a tape on one item: memory for its arrays, and its bodies one after the other, on the thread of a device.

Before: stream/tape.py, backend/launch.py.  After: stream/bundles.py.  Knows no stream; what it runs is what the executor would run.

Operators that follow each other are one chain here, as they are in a runtime (schedule/fuse.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..backend.launch import aligned_empty, run_kernel, set_data
from ..compile.serving import Bodies
from ..geometry import whole
from ..graph.call import describe, without_arrays
from ..graph.command import Chunk
from ..graph.instruction import Allocation, Binding, Launch, bound
from ..graph.mapped import mapped
from ..graph.task import Task
from ..machine.platform import HOST
from ..plan.candidate import Share
from ..program.array import Array
from ..program.call import DEFAULT
from ..program.fuse import Chain
from ..program.kernel import Kernel
from ..program.variant import COMPILED, Variant
from ..program.view import extract
from .tape import Number, Tape, TapedCall, TapedView, slot_of

LOOKS = 4  # runs of each variant before the quicker one is chosen
Scalars = tuple[tuple[str, Any], ...]


class WholeChain(Chain):
    """A chain of which it is known which results are wanted."""

    def __init__(self, wanted: frozenset[int]) -> None:
        super().__init__()
        self._wanted_ids = wanted

    def _wanted(self) -> set[int]:
        last = len(self.operations) - 1
        wanted = self._wanted_ids
        return {n for n, operation in enumerate(self.operations) if n == last or operation.output._storage.id in wanted}


class BodyCall(NamedTuple):
    """A kernel, and how it sees the arrays of a tape."""

    kernel: Kernel
    views: tuple[TapedView, ...]  # those that it returns included
    scalars: Scalars


def calls_of(tape: Tape, ids: Mapping[int, int], takes: Any) -> Iterator[BodyCall]:
    """Yield the calls of a tape, with chains of operators as one; `takes(operation)` tells what may be part of a chain."""
    calls = [entry for entry in tape.entries if isinstance(entry, TapedCall)]
    used = [{view.id for view in call.arrays} for call in calls]
    begin = 0
    while begin < len(calls):
        end = begin
        chain = Chain()
        while end < len(calls):
            operation = calls[end].operation
            if operation is None or not chain.accepts(operation) or not takes(operation):
                break
            chain.add(operation)
            end += 1
        if end - begin < 2:
            call = calls[begin]
            returned = [TapedView(-1 - slot, whole(tape.slots[slot].shape), None) for slot in call.returned]
            yield BodyCall(call.kernel, (*call.arrays, *returned), call.scalars)
            begin += 1
            continue
        later = set().union(*used[end:], {-1 - slot for slot in tape.results})
        yield _chained(calls[begin:end], frozenset([id for id, taped in ids.items() if taped in later]), ids)
        begin = end


def _chained(calls: Sequence[TapedCall], wanted: frozenset[int], ids: Mapping[int, int]) -> BodyCall:
    """Return calls of operators as one; `wanted` are the arrays that others read, as the runtime numbers them."""
    chain = WholeChain(wanted)
    scalars: list[Any] = []
    for call in calls:
        operation = call.operation
        assert operation is not None
        chain.add(operation)
        of_call = dict(call.scalars)
        numbered = enumerate(zip(operation.inputs, operation.operands, strict=True))
        scalars += [of_call[f"x{n}"] for n, (value, o) in numbered if not isinstance(value, Array) or o.scalar]
    kernel, args = chain.call()
    arrays = [value for value in args if isinstance(value, Array)]
    names = [name for _, name in kernel.scalar_params]
    views = tuple([TapedView(ids.get(a._storage.id, a._storage.id), a._box, a._cut) for a in arrays])
    return BodyCall(kernel, views, tuple(zip(names, scalars, strict=True)))


class VariantTrial:
    """Which variant of a kernel runs: each is tried, then the quickest is taken."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._known: dict[Variant, list[float]] = {}

    def variants(self) -> list[Variant]:
        """Return those that run on the host's arrays."""
        return [v for v in self._kernel.variants if v.kind in ("python", "cpu", COMPILED) and not v.off]

    def next(self) -> tuple[Variant, bool]:
        """Return the variant that is next, and whether its time matters."""
        variants = self.variants()
        if len(variants) == 1:
            return variants[0], False
        for variant in variants:
            if len(self._known.get(variant, ())) < LOOKS:
                return variant, True
        return min(variants, key=lambda v: min(self._known[v])), False

    def took(self, variant: Variant, seconds: float) -> None:
        """Take the time of a run."""
        self._known.setdefault(variant, []).append(seconds)


class BodyRun(NamedTuple):
    """A body call on allocations."""

    task: Task
    chunk: Chunk
    bindings: tuple[Binding, ...]
    steps: dict[Variant, Launch]
    choice: VariantTrial
    numbers: Scalars  # those that are floats of the item


class Frame:
    """Memory for one item of a tape, and its bodies on it. One thread at a time uses it."""

    def __init__(self, tape: Tape, runs: Sequence[BodyRun], places: dict[int, Allocation]) -> None:
        self._tape, self._runs, self._places = tape, runs, places
        made = [slot for slot in range(tape.leaves, len(tape.slots)) if tape.slots[slot].given < 0]
        self._fresh = [(places[-1 - slot], tape.slots[slot]) for slot in made if slot in tape.results]
        self._filled = [
            (places[-1 - slot], tape.slots[slot].initial) for slot in made if tape.slots[slot].initial is not None
        ]
        self._leaves = [places[-1 - slot] for slot in range(tape.leaves)]
        self._given = [places[-1 - slot] for slot in range(len(tape.slots)) if tape.slots[slot].given >= 0]
        for slot in made:
            if slot not in tape.results:
                set_data(places[-1 - slot], aligned_empty(tape.slots[slot].shape, tape.slots[slot].dtype))

    def twin(self) -> Frame:
        """Return a frame with memory of its own."""
        places = {id: Allocation(0, HOST, id, old.box, old.dtype) for id, old in self._places.items()}
        twins = []
        for run in self._runs:
            bindings = tuple([bound(binding, lambda a: places[a.array]) for binding in run.bindings])
            twins.append(run._replace(task=copy(run.task), bindings=bindings, steps={}))
        return Frame(self._tape, twins, places)

    def outside(self, arrays: Sequence[Any]) -> None:
        """Let bodies see these arrays from outside."""
        for id, data in zip(self._tape.outside, arrays, strict=True):
            place = self._places[id]
            place.data = place.frozen = data

    def compute(
        self, leaves: Sequence[Any], given: Sequence[Any], numbers: Sequence[float], bodies: Bodies | None
    ) -> None:
        """Compute an item from its arrays, those with contents that the function made, and its floats."""
        for place, data in zip(self._leaves, leaves):  # noqa: B905 - equally long, and this is hot
            set_data(place, data)
        for place, data in zip(self._given, given):  # noqa: B905
            set_data(place, data)
        for place, array in self._fresh:
            set_data(place, aligned_empty(array.shape, array.dtype))
        for place, initial in self._filled:
            place.data[...] = initial
        for task, chunk, bindings, steps, choice, floats in self._runs:
            if floats:
                task.scalars = {**task.scalars, **{name: numbers[number.at] for name, number in floats}}
            variant, matters = choice.next()
            step = steps.get(variant)
            if step is None:
                step = steps[variant] = Launch("", chunk, Share(variant, None, None, None), bindings)
            if not matters:
                run_kernel(task, step, False, bodies)
                continue
            begin = perf_counter()
            if run_kernel(task, step, False, bodies):
                choice.took(variant, perf_counter() - begin)

    def result(self, view: TapedView) -> Any:
        """Return what the function returned, as an array of its own: it is read-only."""
        place = self._places[view.id]
        data = place.data
        if view.box != place.box or view.cut is not None or slot_of(view.id) < self._tape.leaves:
            data = np.array(extract(data, place.box.lo, view.box, view.cut), order="C")
        data.flags.writeable = False
        return data

    def let_go(self) -> None:
        """Hold on to nothing of an item."""
        for place in (*self._leaves, *self._given, *[place for place, _ in self._fresh]):
            place.data = place.frozen = None
        for id in self._tape.outside:
            self._places[id].data = self._places[id].frozen = None


def framed(tape: Tape, arrays: Sequence[Array], ids: Mapping[int, int], owner: Any, takes: Any) -> Frame:
    """Return the frame of a tape, which was written while `arrays` were made: they have the numbers `ids` on it."""
    places = {-1 - slot: Allocation(0, HOST, -1 - slot, a._storage.box, a.dtype) for slot, a in enumerate(arrays)}
    places |= {id: Allocation(0, HOST, id, a._storage.box, a.dtype) for id, a in tape.outside.items()}
    storages = {-1 - slot: a._storage for slot, a in enumerate(arrays)} | {
        id: a._storage for id, a in tape.outside.items()
    }
    choices: dict[Kernel, VariantTrial] = {}
    runs = []
    for kernel, views, scalars in calls_of(tape, ids, takes):
        seen = [Array(storages[view.id], view.box, view.cut) for view in views]
        known = {name: 0.0 if isinstance(value, Number) else value for name, value in scalars}
        described = describe(kernel, seen, known, DEFAULT, owner)
        task = without_arrays(described)
        task.space, task.shapes, task.body = described.space, described.shapes, described.body
        chunk = Chunk("", task.domain)
        bindings = _bindings(task, seen, views, chunk, places)
        numbers = tuple([(name, value) for name, value in scalars if isinstance(value, Number)])
        runs.append(BodyRun(task, chunk, bindings, {}, choices.setdefault(kernel, VariantTrial(kernel)), numbers))
    return Frame(tape, runs, places)


def _bindings(
    task: Task, arrays: Sequence[Array], views: Sequence[TapedView], chunk: Chunk, places: Mapping[int, Allocation]
) -> tuple[Binding, ...]:
    """Return how the parameters of a call on all of its index space are found."""
    parts = mapped(task, chunk.box) if task.space is not None else (None,) * len(arrays)
    found = []
    for (name, _, access), array, view, part in zip(task.accesses, arrays, views, parts, strict=True):
        place = places[view.id]
        box, boxes, pad, empty = array._box, None, None, not array.size
        if part is not None:
            box, boxes = part.of(array)
            pad, empty = part.pad, part.empty
        found.append(
            Binding(
                name,
                None if empty else place,
                box,
                array._cut,
                access.writes,
                pad,
                array.dtype,
                None if empty else boxes,
            )
        )
    return tuple(found)


__all__ = ["Frame", "framed"]
