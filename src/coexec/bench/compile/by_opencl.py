"""The bodies of the compile benchmark on an OpenCL device, through the OpenCL C that coexec makes of them.

Before: the package itself, used as a user does.  After: bench/compile/harness.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

import coexec as cx

from ...errors import CoexecError

DEVICE = "opencl:0"
Arrays = dict[str, Any]
Run = Callable[[Callable[..., Any], Arrays, tuple[str, ...], Any], "OnOpenCl"]


class OnOpenCl:
    """A body as a kernel with its arguments on the device; `refused` says why the device does not compute it."""

    def __init__(self, body: Callable[..., Any], arguments: Arrays, writes: tuple[str, ...], numerics: Any) -> None:
        accesses: dict[str, Any] = {
            name: cx.read(cx.all) for name, value in arguments.items() if isinstance(value, np.ndarray)
        }
        accesses |= dict.fromkeys(writes, cx.update)
        self._kernel = cx.kernel(over=writes[0], numerics=numerics, **accesses)(body)
        self._call = self._kernel.using(devices=DEVICE)
        self._given = {n: cx.array(value) if n in accesses else value for n, value in arguments.items()}
        self._writes = writes
        self.seconds()
        variants = {variant.name: variant.off for variant in self._kernel.variants}
        self.refused = variants.get("generated", "it has no OpenCL C")
        self.results = {name: np.asarray(self._given[name]) for name in writes}  # of one run, from the first arguments

    def seconds(self) -> float:
        """Run it once, and return how long that took."""
        start = perf_counter()
        self._call(**self._given)
        cx.wait()
        return perf_counter() - start


@contextmanager
def opencl() -> Iterator[Run | None]:
    """Open the OpenCL device, if there is one, and give what runs bodies on it."""
    try:
        runtime = cx.Runtime(f"cpu:0,{DEVICE}", store="off", inline=False, compile_bodies="auto")
    except CoexecError:
        yield None
        return
    with runtime, warnings.catch_warnings():
        warnings.simplefilter("ignore", cx.CoexecWarning)  # a body that is refused is told in the figures
        yield OnOpenCl
