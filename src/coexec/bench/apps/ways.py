"""The three ways to run an application again and again on the same arrays, each with its own.

Before: app.py, team.py.  After: harness.py.  A way says how long one run took; it compares nothing.
"""

from __future__ import annotations

import inspect
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

import coexec as cx

from ...backend.launch import aligned_empty
from ...compile.forms import Forms, Way
from ...compile.serving import CompiledBody
from ..measure import current
from ..split.single import SPINNING
from .app import App, Array, Results
from .team import ThreadTeam, by_numpy


class AppWay(Protocol):
    """One way to run an application."""

    results: Results  # of the last run

    def seconds(self) -> float:
        """Restore the inputs, run once, and return how long the run took."""

    def close(self) -> None:
        """Give back threads and memory."""


def own_arrays(app: App) -> tuple[Array, ...]:
    """Return copies of an application's arrays."""
    made = tuple(aligned_empty(array.shape, array.dtype) for array in app.inputs)
    for copy, array in zip(made, app.inputs, strict=True):
        np.copyto(copy, array)
    return made


def _restore(app: App, arrays: tuple[Any, ...]) -> None:
    for number in app.rewritten:
        arrays[number][...] = app.inputs[number]


class InNumPy:
    """Plain NumPy with every thread of its libraries, on the calling thread."""

    def __init__(self, app: App, threads: int) -> None:
        from threadpoolctl import ThreadpoolController

        self._app, self._arrays = app, own_arrays(app)
        self._libraries, self._threads = ThreadpoolController(), threads
        self.results: Results = ()

    def seconds(self) -> float:
        _restore(self._app, self._arrays)
        with self._libraries.limit(limits=self._threads, user_api="blas"):
            start = perf_counter()
            self.results = self._app.numpy(*self._arrays)
            took = perf_counter() - start
        sleep(SPINNING)
        return took

    def close(self) -> None:
        self._arrays = self.results = ()


class ByForms:
    """Computes kernels by their compiled forms, the same as coexec's, as a library's functions: there is no runtime around them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Forms, inspect.Signature]] = {}
        self._way = Way()

    def __call__(self, kernel: Any, *arguments: Any, tuned: object = None, **named: Any) -> None:
        """Compute what a kernel's body does; what was tuned by hand for NumPy is not asked for."""
        del tuned
        found = self._known.get(id(kernel))
        if found is None:
            forms = CompiledBody(kernel).forms(kernel.function)
            assert forms is not None
            found = self._known.setdefault(id(kernel), (kernel, forms, inspect.signature(kernel.function)))
        _, forms, signature = found
        given = signature.bind(*arguments, **named).arguments.values() if named else arguments
        forms.run(tuple(given), (), self._way)


class ByHand:
    """Hand-written threads on the given cores: what most would write, or with compiled forms of the same kernels."""

    def __init__(self, app: App, cores: tuple[int, ...], *, compiled: bool = False) -> None:
        self._app, self._arrays = app, own_arrays(app)
        self._team = ThreadTeam(cores, ByForms() if compiled else by_numpy)
        self.results: Results = ()

    def seconds(self) -> float:
        _restore(self._app, self._arrays)
        start = perf_counter()
        self.results = self._app.hand(self._team, *self._arrays)
        return perf_counter() - start

    def close(self) -> None:
        self._team.close()
        self._arrays = self.results = ()


class AppThroughCoexec:
    """Through coexec."""

    def __init__(self, app: App, devices: str, trace: str | None = None, compile_bodies: str | None = None) -> None:
        self._app = app
        self.runtime = cx.Runtime(devices=devices, trace=trace, diagnostics="off", compile_bodies=compile_bodies)
        with current(self.runtime):
            self._arrays = tuple(cx.array(array) for array in app.inputs)
            self.runtime.wait()
        self.results: Results = ()

    def seconds(self) -> float:
        with current(self.runtime):
            self._restore()
            self.runtime.wait()
            start = perf_counter()
            self.results = self._app.coexec(*self._arrays)
            self.runtime.wait()
            return perf_counter() - start

    def _restore(self) -> None:
        if any(device.kind == "cpu" for device in self.runtime.platform.devices):
            _restore(self._app, self._arrays)
        else:  # only a core can assign an array of the program; the inputs begin on the host in any case
            changed = set(self._app.rewritten)
            pairs = enumerate(zip(self._arrays, self._app.inputs, strict=True))
            self._arrays = tuple(cx.array(given) if number in changed else array for number, (array, given) in pairs)

    def close(self) -> None:
        self._arrays = self.results = ()
        self.runtime.close()
