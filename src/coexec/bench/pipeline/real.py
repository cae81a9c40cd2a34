"""Streams on real devices: against every static assignment to two devices, each device alone, and other libraries.

Before: coexec's public names, stream/.  After: harness.py.  Wall time, the best of a few rounds taken in turn. The other libraries, where
they are installed, are a pool of threads, Dask and SPDL, with NumPy on two threads each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import combinations, groupby, product
from math import ceil
from operator import itemgetter
from os import getloadavg
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ...errors import CoexecError
from ...plan.pipeline import PipelinePoint, PipelineStage, judged
from ...stream.planning import PreparedFront
from ..measure import Data, Others, Progress

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


NAMES = ("gcn", "window attention", "image")
MIXES = ("cpu:0,cpu:1", "cpu:0,opencl:0@1", "cpu:0,torch:cpu@1")
ROUNDS = 3
MORE_ROUNDS = 8  # of what was planned, the best static assignment and the best device, once these are known
LASTS = 0.1  # seconds of a stream, at least: its beginning and its end are little of that
MOST_TIMES = 64  # that items come again for that
WARM = 2  # items of each way that are not counted
FIRST = 8  # items of the first round: enough to see who is far behind
FAR_BEHIND = 1.5  # times the quickest way of a round, from which on a way is not tried again
MOST_WAYS = 64  # assignments of calls to two devices that are all tried; beyond, those with one cut


class RealWorkload(NamedTuple):
    """A function of one item, its constants, items, and the same in NumPy."""

    name: str
    function: Callable[..., Any]
    constants: dict[str, Any]
    items: list[Any]
    plain: Callable[..., Any]


def workloads(quick: bool) -> Iterator[RealWorkload]:
    """Yield a graph network, attention within a window, and an image pipeline, small enough for two cores."""
    import scipy.sparse as sp

    random = np.random.default_rng(0)
    count, side = (8, 1) if quick else (24, 2)
    nodes = 2_000 * side
    graph = sp.random_array((nodes, nodes), density=8 / nodes, format="csr", dtype=np.float32, rng=random)
    features = random.standard_normal((nodes, 64)).astype(np.float32)
    w1, w2 = (random.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32, 8)))
    a = cx.csr(graph)
    yield RealWorkload(
        NAMES[0],
        lambda x, w1, w2: a @ (cx.relu(a @ (x @ w1)) @ w2),
        {"w1": w1, "w2": w2},
        [features * (n + 1) for n in range(count)],
        lambda x: graph @ (np.maximum(graph @ (x @ w1), 0) @ w2),
    )
    rows = 512 * side
    q = random.standard_normal((rows, 64)).astype(np.float32)
    mix = random.standard_normal((64, 64)).astype(np.float32)
    yield RealWorkload(
        NAMES[1],
        lambda x, mix: cx.matmul(cx.window_attention(x, x, x, 64), mix),
        {"mix": mix},
        [q * (1 + n / 10) for n in range(count)],
        lambda x: _attention(x, 64) @ mix,
    )
    picture = random.random((256 * side, 256)).astype(np.float32)
    weights = random.standard_normal((256, 10)).astype(np.float32)
    yield RealWorkload(
        NAMES[2],
        lambda x, weights: np.tanh(np.sqrt(np.abs(x * 2 - 1)) @ weights),
        {"weights": weights},
        [picture + n for n in range(count)],
        lambda x: np.tanh(np.sqrt(np.abs(x * 2 - 1)) @ weights),
    )


def _attention(x: Any, window: int) -> Any:
    """Return attention within a window, all rows at once, as one would write it in NumPy."""
    half, rows = window // 2, len(x)
    padded = np.pad(x, ((half, half), (0, 0)))
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis=0)  # rows, width, neighbours
    scores = np.matmul(x[:, None, :], near)[:, 0, :] / np.float32(np.sqrt(x.shape[1]))
    at = np.arange(rows)[:, None] + np.arange(-half, half + 1)
    scores[(at < 0) | (at >= rows)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.matmul(near, weights[:, :, None])[:, :, 0]


def named(quick: bool, only: Sequence[str] = ()) -> list[str]:
    """Return the names of all cases that contain these words."""
    cases = [f"real {name} on {mix}" for mix in (MIXES[:1] if quick else MIXES) for name in NAMES]
    return [case for case in cases if all(word in case for word in only)]


def run(quick: bool, progress: Progress, only: Sequence[str] = ()) -> Data:
    """Return items per second of each case, and how that compares."""
    found, wanted = [], named(quick, only)
    others = Others()
    for mix in MIXES:
        if not any(case.endswith(f" on {mix}") for case in wanted):
            continue
        try:
            with cx.Runtime(devices=mix, store="off", diagnostics="off"):
                for workload in workloads(quick):
                    if f"real {workload.name} on {mix}" in wanted:
                        progress(f"{workload.name} on {mix}")
                        found.append({"mix": mix, **compare(workload, quick)})
        except CoexecError as error:
            found.append({"mix": mix, "error": str(error)})
    known = [case for case in found if "items_per_s" in case]
    if not known:
        return {"cases": found}
    return {
        "cases": found,
        "load": getloadavg()[0],  # processes that wanted a core in the last minute; ours are two of them
        "others_cores": others.cores(),
        "mean_of_best_single": float(np.mean([case["of_best_single"] for case in known])),
        "least_of_best_static": min(case["of_best_static"] for case in known),
        "median_prediction_error": median([case["prediction_error"] for case in known]),
    }


def compare(workload: RealWorkload, quick: bool) -> Data:
    """Return the figures of one workload on the devices of the current runtime."""
    pipe = cx.Pipeline(workload.function, **workload.constants)
    pipe.plan(workload.items[0])
    prepared = pipe.planned
    chosen = prepared.front.choose("throughput")
    again = 1 if quick else min(MOST_TIMES, ceil(LASTS / (len(workload.items) * chosen.period)))
    items = workload.items * again
    fixed = statics(prepared)
    same = next((name for name, point in fixed.items() if point.shape == chosen.shape), "planned")
    ways: dict[str, PipelinePoint] = {same: chosen, **{name: p for name, p in fixed.items() if name != same}}
    took, spent = (
        {name: float("inf") for name in ways} for _ in range(2)
    )  # seconds per item of the clock, and of all cores

    def tried(names: Sequence[str], items: Sequence[Any]) -> None:
        for name in names:
            begin, busy = perf_counter(), process_time()
            results = pipe.map(items, plan=pipe.as_plan(ways[name]))
            took[name] = min(took[name], (perf_counter() - begin) / len(items))
            spent[name] = min(spent[name], (process_time() - busy) / len(items))
            np.testing.assert_allclose(results[0], workload.plain(workload.items[0]), rtol=1e-2, atol=1e-2)

    for point in ways.values():  # chains of operations are compiled when they are first computed together
        pipe.map(workload.items[:WARM], plan=pipe.as_plan(point))
    tried(list(ways), workload.items[:FIRST])
    far = FAR_BEHIND * min(took.values())
    left = [name for name in ways if took[name] <= far or name == same or name.startswith(("alone", "in turn"))]
    took |= dict.fromkeys(left, float("inf"))  # longer streams anew: beginning and end are much of short ones
    for _ in range(1 if quick else ROUNDS):
        tried(left, workload.items)
    others = compared(workload.plain, items, 1 if quick else ROUNDS)
    best_single = min((name for name in took if name.startswith("alone")), key=lambda name: took[name])
    best_static = min(fixed, key=lambda name: took[name])
    ways_took = {name: 1.0 / seconds for name, seconds in took.items()}
    finals = list(dict.fromkeys((same, best_static, best_single)))
    took |= dict.fromkeys(finals, float("inf"))  # the best of many is one that was lucky, too: these run anew, in turn
    for _ in range(ROUNDS if quick else MORE_ROUNDS):
        tried(finals, items)
    took["planned"], spent["planned"] = took[same], spent[same]
    single, static = took[best_single], took[best_static]
    return {
        "workload": workload.name,
        "items_per_s": 1.0 / took["planned"],
        "of_best_static": static / took["planned"],
        "of_best_single": single / took["planned"],
        "predicted_items_per_s": 1.0 / chosen.period,
        "prediction_error": abs(chosen.period / took["planned"] - 1.0),
        "peers": others,
        "cpu_s_per_item": {"planned": spent["planned"], "best_single": spent[best_single]},
        "same_as": same,
        "ways": ways_took,
    }


def statics(prepared: PreparedFront) -> dict[str, PipelinePoint]:
    """Return every static assignment of calls to devices: each device alone, each call on either of two, and items in turn."""
    names = tuple([kernel.name for kernel in prepared.work.kernels])
    classes = [c.name for c in prepared.system.classes]
    tried: dict[str, list[PipelineStage]] = {
        f"alone on {c}": [PipelineStage(names, ((c, 1),), "alone", 0)] for c in classes
    }
    for c in prepared.system.classes:
        if c.count > 1:
            tried[f"in turn on {c.count} {c.name}"] = [PipelineStage(names, ((c.name, c.count),), "in turn", 0)]
    for first, second in _pairs(prepared):
        for chosen in assignments(len(names), alike=first == second):
            stages = placed(names, chosen, (first, second))
            text = " | ".join(f"{stage.group[0][0]}: {', '.join(stage.kernels)}" for stage in stages)
            tried[text if first != second else f"{text} (two of a kind)"] = stages
    found = {}
    for name, stages in tried.items():
        try:
            found[name] = judged(prepared.work, prepared.system, stages)
        except CoexecError:
            continue
    return found


def _pairs(prepared: PreparedFront) -> Iterator[tuple[str, str]]:
    """Yield two devices by their classes: of one class, if it has two, and of each two classes."""
    classes = prepared.system.classes
    yield from ((c.name, c.name) for c in classes if c.count > 1)
    yield from ((a.name, b.name) for a, b in combinations(classes, 2))


def assignments(calls: int, *, alike: bool) -> Iterator[tuple[int, ...]]:
    """Yield each way to give calls to two devices that uses both; beyond MOST_WAYS, those with one cut.

    Of two that are alike, the first gets the first call.
    """
    if 2**calls > MOST_WAYS:
        ways = [(0,) * at + (1,) * (calls - at) for at in range(1, calls)]
        yield from ways if alike else [*ways, *[tuple(1 - d for d in way) for way in ways]]
        return
    for way in product((0, 1), repeat=calls):
        if len(set(way)) == 2 and not (alike and way[0]):
            yield way


def placed(names: Sequence[str], chosen: Sequence[int], classes: tuple[str, str]) -> list[PipelineStage]:
    """Return calls that are given to two devices as stages: neighbours on one device are one stage."""
    stages: list[PipelineStage] = []
    for device, entries in groupby(zip(chosen, names, strict=True), key=itemgetter(0)):
        stages.append(PipelineStage(tuple([name for _, name in entries]), ((classes[device], 1),), "alone", device))
    return stages
