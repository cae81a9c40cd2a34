"""A model as one call, for a device that computes all of it: its operations are bodies, run one after another on kept memory.

Before: program/tape.py, models/running.py.  After: models/model.py, models/deploying.py.  Knows no plan.

A call costs some 100 microseconds of Python, and a layer of a small network less than that. Where one device does everything
there is nothing to divide, to place or to move between calls, so the calls are written down once and become the body of one kernel.
Its bodies are those of the calls; the torch variant takes torch's own bodies where operations have one. Decision 200.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from ..machine.cores import available_cores
from ..program import array as arrays, session
from ..program.access import read, write
from ..program.array import Array
from ..program.at_home import KINDS, owned
from ..program.body import signature
from ..program.call import DEFAULT, placed_now
from ..program.kernel import Kernel, kernel
from ..program.mapper import all as map_all
from ..program.tape import CallTape, TapeStep
from .at_once import AtOnce, turns_of
from .joining import joined
from .operators.calls import NUMERICS, OpCall
from .operators.linear import LINEAR, linear
from .running import GraphConstants, as_called, run_graph
from .torch_steps import Step, torch_steps
from .torch_threads import compute_with, release_threads, torch_threads
from .values import LayerGraph

TORCH = "torch:cpu"  # begins the name of what computes models at once, too
NAMES = ("cpu:", TORCH)
"""Beginnings of the names of devices whose memory is the host's, and which run a model as one call."""
MOST_BYTES = 1 << 30
"""Bytes of values that a model may have between its operations to be one call: 1 GiB. They stay as long as the model does."""


IMAGES = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})
"""Operations on images, in whose results torch likes an image's channels beside each other."""
BY_ELEMENTS = frozenset(
    {"Relu", "Clip", "Add", "Mul", "Sub", "Sigmoid", "HardSwish", "HardSigmoid", "LeakyRelu", "Concat"}
)
"""Operations whose results lie best as their operands do."""


class RecordedModel:
    """The operations of a model as steps on memory of their own."""

    def __init__(self, graph: LayerGraph, *, images: bool = False) -> None:
        """Record a graph; with `images`, the channels of images lie beside each other."""
        self.tape = tape = CallTape()

        def run(position: int, call: OpCall) -> list[Array]:
            kind = call.node.kind
            if images:
                tape.channels_last = kind in IMAGES or (kind in BY_ELEMENTS and tape.lie_channels_last(call.arrays()))
            return linear(call) if kind == LINEAR else as_called(position, call)

        with session.within(tape):
            given = {name: arrays.fresh(graph.types[name].shape, graph.types[name].dtype) for name in graph.inputs}
            for array in given.values():
                tape.keep(array)
            constants = GraphConstants(graph)
            results = run_graph(graph, given, constants, run)
        self.steps: Sequence[TapeStep] = tape.steps
        self.inputs = [tape.memory(array) for array in given.values()]
        self.results = [tape.memory(array) for array in results]
        self._held = (given, constants, results)  # memory of what is dropped would be used again


class RecordedBody:
    """A body: the steps of a model, on NumPy arrays. One thread at a time runs them."""

    def __init__(self, name: str, flops: float, recorded: RecordedModel) -> None:
        count = len(recorded.inputs) + len(recorded.results)
        self.__signature__ = signature([f"a{i}" for i in range(count)])
        self.__name__ = name
        self.work = (
            name,
            flops,
            len(recorded.steps),
            tuple([mine.shape for mine in recorded.inputs]),
        )  # tells models apart
        self._recorded, self._inputs, self._results = recorded, recorded.inputs, recorded.results
        self._lock = threading.Lock()

    @cached_property
    def _steps(self) -> Sequence[Step]:
        return [(step.function, step.arguments) for step in self._recorded.steps]

    def _here(self) -> Sequence[Step]:
        """Return the steps for the thread that asks."""
        return self._steps

    def __call__(self, *values: Any) -> None:
        """Compute the results of a model."""
        given = [np.asarray(value) for value in values]  # of a tensor in the host's memory, the same memory
        count = len(self._inputs)
        with self._lock:
            for mine, value in zip(self._inputs, given[:count], strict=True):
                np.copyto(mine, value)
            for function, arguments in self._here():
                function(*arguments)
            for value, mine in zip(given[count:], self._results, strict=True):
                np.copyto(value, mine)


class TorchBody(RecordedBody):
    """The same by torch. Weights are laid out by the device's own thread, for as many threads as it computes with.

    oneDNN's layouts differ with the number of threads: weights that were laid out for another number are laid out anew in each
    call. And a thread that computes with several has them from then on: if the program's thread had some, too, there would be
    more than cores, and those of OpenMP would sleep between steps instead of waiting for the next one.
    """

    def __init__(self, name: str, flops: float, recorded: RecordedModel) -> None:
        super().__init__(name, flops, recorded)
        self._made: tuple[int, Sequence[Step]] = (0, ())
        self.leaves = False  # the thread that computes next computes no more: its helpers go

    def __call__(self, *values: Any) -> None:
        """Compute the results of a model."""
        import torch

        with torch.inference_mode():  # nothing is kept for gradients, and nobody counts what is written
            super().__call__(*values)
        if self.leaves:
            self.leaves = False
            release_threads()

    def ready(self, threads: int) -> bool:
        """Tell whether weights are laid out for so many threads."""
        return self._made[0] == threads

    def _here(self) -> Sequence[Step]:
        threads = torch_threads()
        if self._made[0] != threads:
            recorded = self._recorded
            self._made = threads, torch_steps(recorded.steps, recorded.tape, recorded.results)
        return self._made[1]


class WholeModel:
    """A model's kernel, made when it is first called; whether that is possible is found out then."""

    def __init__(self, graph: LayerGraph, name: str, flops: float) -> None:
        self._graph, self._name, self._flops = joined(graph), name, flops
        self._making = threading.Lock()
        self._kernel: Kernel | None = None
        self._refused = False
        self._torch: TorchBody | None = None
        self._types = [graph.types[name] for name in graph.outputs]
        self._plain = all(np.dtype(one.dtype).kind in KINDS for one in self._types)  # results may be arrays at home
        self._fails = False  # where it runs at once: it is a task from then on

    def call(self, given: Sequence[Any], device: str, kind: str) -> list[Array] | None:
        """Return the results for inputs, computed by one device; None if the model has to be called operation by operation."""
        made = self.kernel(kind)
        if made is None:
            return None
        runtime: Any = session.current()
        turns = turns_of(runtime, threads_here) if kind == "torch" and not self._fails else None
        if turns is not None and not turns.threads:
            turns = None
        found = None if turns is None else self._at_once(turns, given)
        if found is None:
            found = self._queued(made, given, device)
        if turns is not None:
            turns.returned(perf_counter(), runtime.recorded, len(found))
        return found

    def _queued(self, made: Kernel, given: Sequence[Any], device: str) -> list[Array]:
        """Call the kernel: its device computes it."""
        taken = [value if isinstance(value, Array) else arrays.array(value) for value in given]
        results = [arrays.empty(*one) for one in self._types]
        using = made.using(devices=device) if device else made
        with np.errstate(all="ignore"):  # as in models/running.py
            using(*taken, *results)
        return results

    def _at_once(self, turns: AtOnce, given: Sequence[Any]) -> list[Array] | None:
        """Return the results, computed by the calling thread, if the program will ask for them at once; else None."""
        runtime: Any = session.current()
        body = self._torch
        session.check_outside()
        assert body is not None
        if not turns.expected(runtime.asked, runtime.recorded):
            if turns.here:
                turns.here = False
                release_threads()
            return None
        if not self._plain or not runtime.quiet():
            return None
        for value in given:
            if type(value) is not np.ndarray:
                return None
        if not turns.here or not body.ready(turns.threads):
            turns.here = body.leaves = True  # the device's thread computes once more
            return None
        results = [np.empty(*one) for one in self._types]
        try:
            with np.errstate(all="ignore"):
                compute_with(turns.threads, body, given, results)
        except Exception:  # noqa: BLE001 - the call becomes a task, which says what is wrong
            self._fails = True
            return None
        return [owned(value, runtime) for value in results]

    def kernel(self, kind: str) -> Kernel | None:
        """Return the kernel, with a variant for a kind of device; None if there can be none."""
        with self._making:
            if self._refused:
                return None
            if self._kernel is None:
                self._kernel = self._made()
            if self._kernel is not None and kind == "torch" and self._torch is None:
                self._add_torch(self._kernel)
            return self._kernel

    def _made(self) -> Kernel | None:
        types = self._graph.types
        sizes = [types[name].elements * np.dtype(types[name].dtype).itemsize for name in types]
        outputs = self._graph.outputs
        if sum(sizes) > MOST_BYTES or not self._graph.inputs or len(set(outputs)) < len(outputs):
            self._refused = True
            return None
        try:
            recorded = RecordedModel(self._graph)
        except Exception:  # noqa: BLE001 - made operation by operation, the same calls say what is wrong
            self._refused = True
            return None
        count = len(recorded.inputs)
        accesses: dict[str, Any] = {f"a{i}": read(map_all) for i in range(count)}
        accesses |= {f"a{i}": write(map_all) for i in range(count, count + len(recorded.results))}
        body = RecordedBody(self._name, self._flops, recorded)
        return kernel(name=self._name, flops=self._flops, **accesses)(body)

    def _add_torch(self, made: Kernel) -> None:
        """Add the variant for torch on this machine's memory."""
        body = TorchBody(self._name, self._flops, RecordedModel(self._graph, images=True))
        made.variant(body, kind="torch", name="torch", numerics=NUMERICS)
        self._torch = body


def threads_here(runtime: Any) -> int:
    """Return with how many threads a program may do what torch's device does: on all cores, where nobody looks on; else 0."""
    config = runtime.config
    if not config.inline or config.sync or runtime.traced:
        return 0
    (device,) = [one for one in runtime.platform.devices if one.name.startswith(TORCH)]
    return len(device.cores) if device.cores == available_cores() else 0


def whole_device(runtime: Any, wanted: str = "") -> tuple[str, str]:
    """Return name and kind of the device that computes whole models: that of a plan, or the only one of a runtime; else "".

    Its memory has to be the host's; and whoever asks for every call to be checked, kept to a plan or analysed gets every call.
    """
    config = getattr(runtime, "config", None)
    if config is None or config.platform or config.ranks != 1 or runtime.joined:
        return "", ""
    if config.debug or config.memory or config.plan or config.reproducible or not config.replay:
        return "", ""
    if placed_now.get() is not DEFAULT:
        return "", ""
    devices = [device for device in runtime.platform.devices if wanted in ("", device.name)]
    if len(devices) != 1 or devices[0].wide or not devices[0].name.startswith(NAMES):
        return "", ""
    return devices[0].name, devices[0].kind


__all__ = ["WholeModel", "whole_device"]
