"""How long each layer of a model takes on each device here, alone: the model is run, and waited for after every layer.

Before: models/running.py, models/extract.py.  After: models/here.py.  The clock is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..ops.conv2d import conv2d
from ..program import array as arrays
from ..program.array import Array
from ..program.call import placed as placed_calls
from ..program.placement import Placement
from .extract import layer_numbers
from .operators.calls import OpCall
from .running import RunNode, as_called
from .values import LayerGraph

PASSES = 4
"""A model runs so often on each device, if the budget allows it; the quickest of each layer counts."""
CALLS = 12
"""Calls that are timed to learn what a call costs that computes next to nothing; the quickest counts."""

Clock = Callable[[], float]
Run = Callable[[RunNode], Any]


class LayerTimes(NamedTuple):
    """Seconds of each layer on each device alone, with what follows the layer and with what its calls cost."""

    devices: tuple[str, ...]
    seconds: tuple[tuple[float, ...], ...]  # device, layer
    calls: tuple[int, ...]  # operations of each layer
    call: float  # seconds of a call that computes next to nothing, from the call until its result is read

    def total(self, device: int) -> float:
        """Return the seconds of all layers on one device."""
        return sum(self.seconds[device])

    def work(self, device: int, layer: int) -> float:
        """Return the seconds of a layer's computing, without what its calls cost: at least a tenth of what was measured."""
        measured = self.seconds[device][layer]
        return max(measured - self.call * self.calls[layer], 0.1 * measured)


class LayerClock:
    """Runs operations on one device, and notes when each layer is over."""

    def __init__(self, layers: Sequence[int], device: str, clock: Clock) -> None:
        self._layers, self._where, self._clock = layers, Placement(device), clock
        self.seconds = [0.0] * (layers[-1] + 1)
        self._now, self._begun = 0, 0.0
        self._last: list[Array] = []

    def __call__(self, position: int, call: OpCall) -> list[Array]:
        """Run an operation."""
        if not position:
            self._begun = self._clock()
        if self._layers[position] != self._now:
            self.end()
            self._now = self._layers[position]
        with placed_calls(self._where):
            self._last = as_called(position, call)
        return self._last

    def end(self) -> None:
        """Wait for the present layer, and note its time."""
        for result in self._last:
            wait_for(result)
        self._last = []
        now = self._clock()
        self.seconds[self._now] += now - self._begun
        self._begun = now


def wait_for(array: Array) -> None:
    """Wait until an array is computed: by reading one element of it."""
    np.asarray(array[(slice(0, 1),) * array.ndim])


def time_layers(graph: LayerGraph, run: Run, devices: Sequence[str], clock: Clock, until: float) -> LayerTimes:
    """Return the seconds of each layer on each device; `run` runs the model in a way that it is given.

    Each device does the model twice at least, because the first time is for loading and compiling; more while the clock
    is before `until`.
    """
    layers = layer_numbers(graph)
    found = []
    for device in devices:
        best = [inf] * (layers[-1] + 1)
        for number in range(PASSES + 1):
            timed = LayerClock(layers, device, clock)
            run(timed)
            timed.end()
            if number:
                best = list(map(min, best, timed.seconds))
            if number and clock() > until:
                break
        found.append(tuple(best))
    calls = tuple(layers.count(layer) for layer in range(layers[-1] + 1))
    return LayerTimes(tuple(devices), tuple(found), calls, max(call_seconds(device, clock) for device in devices))


def call_seconds(device: str, clock: Clock) -> float:
    """Return the seconds of a call that computes next to nothing on a device."""
    x, w = (arrays.array(np.ones(shape, np.float32)) for shape in ((1, 1, 2, 2), (1, 1, 1, 1)))
    best = inf
    for _ in range(CALLS):
        begun = clock()
        wait_for(conv2d.using(devices=device)(x, w))
        best = min(best, clock() - begun)
    return best
