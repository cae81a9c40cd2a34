"""The same stream through other libraries, where they are installed: a pool of threads, Dask, SPDL. NumPy on two threads each.

Before: the libraries, if they are there.  After: real.py.  Knows a function and items; no device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from ..measure import Data

WORKERS = 2
PATIENCE = 120.0  # seconds for one result, after which a peer hangs

Function = Callable[[Any], Any]
Stream = Callable[[Function, Sequence[Any]], list[Any]]


def threads(function: Function, items: Sequence[Any]) -> list[Any]:
    """Return results of a pool of threads."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(function, items))


def dask(function: Function, items: Sequence[Any]) -> list[Any]:
    """Return results of Dask's threaded scheduler."""
    import dask

    calls = [dask.delayed(function, pure=False)(item) for item in items]
    return list(dask.compute(*calls, scheduler="threads", num_workers=WORKERS))


def spdl(function: Function, items: Sequence[Any]) -> list[Any]:
    """Return results of an SPDL pipeline of one stage, in the order of completion."""
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(list(items)).pipe(function, concurrency=WORKERS).add_sink(WORKERS)
    pipeline = builder.build(num_threads=WORKERS)
    with pipeline.auto_stop():
        return list(pipeline.get_iterator(timeout=PATIENCE))


PEERS: dict[str, tuple[str, Stream]] = {
    "concurrent_futures": ("concurrent.futures", threads),
    "dask": ("dask", dask),
    "spdl": ("spdl", spdl),
}
"""By name: the module that must be there, and how it streams."""


def compared(function: Function, items: Sequence[Any], rounds: int) -> Data:
    """Return items per second of each peer that is installed: the best of a few rounds."""
    found: Data = {}
    for name, (module, stream) in PEERS.items():
        if find_spec(module.partition(".")[0]) is None:
            continue
        took = float("inf")
        for _ in range(rounds):
            begin = perf_counter()
            results = stream(function, items)
            took = min(took, perf_counter() - begin)
            assert len(results) == len(items), f"{name} lost items"
        found[name] = len(items) / took
    return found
