"""What a task costs: empty kernels through all three graphs, beside a bare thread pool in the same process.

Before: coexec's public names.  After: cli/ through bench.BENCHMARKS.

An empty task reads one array and updates another; records, errors and handles are live. Two lanes, one per core. Analysed,
every task goes through task graph, plan and lowering; replayed, calls that repeat themselves do not (the default). The
contestants take turns, so that a disturbance of the machine meets all of them; figures are medians, `best` has the best.
`cpu` is the processor time of the whole process per task, the least of all parts of 1,000 tasks; `calls` are Python calls on the
submitting thread, which repeat exactly. Both are of analysed tasks, but for the divided call (see `calls`). `small` are calls
on small arrays, which become no tasks, beside NumPy's (bench/small.py). `gaps` is how long kernels of 0.4 ms wait for those that they
depend on (bench/gaps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

import coexec as cx

from ..machine.cores import available_cores
from .gaps import gaps
from .measure import Data, Others, Progress, core, current, machine, middle, python_calls
from .schedule import known_calls
from .small import small_calls

PAIRS = 512  # of arrays, so that independent tasks meet none that is still in flight
BOXES = 16
BUSY_ELEMENTS = 100_000
PART = 1000  # tasks: about two horizons, so that each part has all that does not come with every task
PARTS = 30  # at least: the first after another contestant finds cold caches, and others may disturb the machine


@cx.kernel(x=cx.read, y=cx.update)
def nothing(x: Any, y: Any) -> None:
    """Compute nothing."""


@cx.kernel(x=cx.read, y=cx.update)
def six_calls(x: Any, y: Any) -> None:
    """Call NumPy six times, so that a kernel needs the interpreter lock six times."""
    np.multiply(x, y, out=y)
    np.add(x, y, out=y)
    np.subtract(y, x, out=y)
    np.sqrt(np.abs(y, out=y), out=y)
    np.minimum(y, 1.0, out=y)


def run(quick: bool, progress: Progress) -> Data:
    """Measure what an empty task costs, in microseconds, beside a bare thread pool in the same process."""
    return collect(1000, 3, 20_000, progress) if quick else collect(5000, 9, 200_000, progress)


def collect(tasks: int, repetitions: int, soak: int, progress: Progress) -> Data:
    """Measure so many tasks so many times, and the growth over `soak` tasks."""
    others = Others()
    times, cpu = _in_turns(tasks, repetitions, progress)
    peers = {name: times.pop(name) for name in list(times) if name in PEERS}
    found: Data = dict(middle(times))
    found["cpu"] = {key: min(cpu[name]) for key, name in CPU.items()}
    progress("Python calls")
    found["calls"] = calls()
    progress("small arrays")
    found["small"] = small_calls(max(5, repetitions))
    progress("kernels that wait for others")
    found["gaps"] = gaps(max(8, 2 * repetitions))
    progress("kernels beside a busy user")
    found["busy_user"] = busy_user(max(2, tasks // 80), repetitions)
    progress(f"{soak} tasks")
    found["growth"] = growth(soak)
    found["growth_tasks"] = soak
    pool = found["threadpool_us"]
    found["replayed_of_threadpool"] = {
        name: found[f"{name}_replayed_us"] / pool for name in ("independent", "chain")
    }  # at most a half
    found["peers"] = {f"{name}_us": rate for name, rate in middle(peers).items()}
    found["best"] = {name: min(rates) for name, rates in {**times, **peers}.items()}
    about = {"tasks": tasks, "repetitions": repetitions, "others_cores": others.cores()}
    return {**found, **about, "core": core(), "machine": machine()}


Times = dict[str, list[float]]
"""Microseconds per task, of each contestant and repetition."""


def _in_turns(tasks: int, repetitions: int, progress: Progress) -> tuple[Times, Times]:
    """Return how long a task took, and how much processor time of this process it was."""
    with (
        ThreadPoolExecutor(2) as pool,
        closing(Pairs()) as replayed,
        closing(Pairs(replay=False)) as pairs,
        closing(Pairs(replay=False, inline=False)) as queued,
        closing(Pairs(inline=False)) as again,
    ):
        contestants: dict[str, Contestant] = {
            "independent_us": pairs.independent,
            "chain_us": pairs.chain,
            "independent_replayed_us": replayed.independent,
            "chain_replayed_us": replayed.chain,
            "submit_us": pairs.submit,
            "latency_us": pairs.latency,
            "latency_replayed_us": replayed.latency,
            "boxes_us": pairs.boxes,
            "boxes_replayed_us": replayed.boxes,
            "independent_queued_us": queued.independent,
            "chain_queued_us": queued.chain,
            "chain_queued_replayed_us": again.chain,
            "threadpool_us": lambda tasks: thread_pool(pool, tasks),
            **{name: peer for name, peer in PEERS.items() if find_spec(name.partition("_")[0]) is not None},
        }
        times: Times = {name: [] for name in contestants}
        cpu: Times = {name: [] for name in contestants}
        for contestant in contestants.values():
            contestant(min(tasks, 1000))  # warm
        for repetition in range(repetitions):
            progress(f"repetition {repetition + 1} of {repetitions}")
            for name, contestant in contestants.items():
                parts = max(-(-PARTS // repetitions), tasks // PART) if name in CPU.values() else 1
                each = min(tasks, PART) if parts > 1 else tasks
                for _ in range(parts):
                    begun = process_time()
                    times[name].append(contestant(each) * 1e6)
                    cpu[name].append((process_time() - begun) / each * 1e6)
        return times, cpu


CPU = {"chain_us": "chain_us", "independent_us": "independent_us", "queued_chain_us": "chain_queued_us"}
"""Whose processor time is told, under which name. They all run as many tasks as they are asked to."""


def calls() -> Data:
    """Return how many Python functions the submitting thread calls for one task of a warm program.

    `chain` is an empty task on one core, analysed. `divided` is a stencil on two null devices, divided evenly, whose shape is known
    while the program does not repeat itself: it is linked and planned, and its instructions come from a recipe.
    """
    with closing(Pairs(replay=False)) as pairs:
        pairs.chain(200)
        chain = pairs.calls()
    return {"chain": chain, "divided": known_calls("wave_sim", 2)}


Contestant = Callable[[int], float]
"""Runs so many tasks; returns the seconds per task."""


def _devices() -> str:
    return ",".join(f"cpu:{number}" for number in range(min(2, len(available_cores()))))


class Pairs:
    """Pairs of small arrays of a runtime on two lanes, and tasks on them."""

    def __init__(self, **options: Any) -> None:
        self._runtime = cx.Runtime(_devices(), **options)
        with current(self._runtime):
            self._pairs = [(cx.zeros(64), cx.zeros(64)) for _ in range(PAIRS)]
            x, y = cx.zeros(BOXES * 64), cx.zeros(BOXES * 64)
        cuts = [slice(64 * i, 64 * (i + 1)) for i in range(BOXES)]
        self._views = [(x[cut], y[cut]) for cut in cuts]

    def _over(self, pairs: list[Any], tasks: int) -> tuple[float, float]:
        """Return the seconds per task until all are submitted, and until all are over."""
        with current(self._runtime):
            start = perf_counter()
            for number in range(tasks):
                nothing(*pairs[number % len(pairs)])
            submitted = perf_counter()
            self._runtime.wait()
            return (submitted - start) / tasks, (perf_counter() - start) / tasks

    def independent(self, tasks: int) -> float:
        """Run tasks that do not depend on each other."""
        return self._over(self._pairs, tasks)[1]

    def chain(self, tasks: int) -> float:
        """Run tasks that each depend on the one before."""
        return self._over(self._pairs[:1], tasks)[1]

    def submit(self, tasks: int) -> float:
        """Run independent tasks; count the time in the submitting thread until all are submitted."""
        return self._over(self._pairs, tasks)[0]

    def boxes(self, tasks: int) -> float:
        """Run tasks on 16 boxes of one pair of arrays."""
        return self._over(self._views, tasks)[1]

    def calls(self) -> int:
        """Return how many Python functions the submitting thread calls for one task."""
        x, y = self._pairs[0]
        with current(self._runtime):
            return python_calls(lambda: nothing(x, y))

    def latency(self, tasks: int) -> float:
        """Submit a task and wait for it, again and again."""
        x, y = self._pairs[0]
        tasks = max(1, tasks // 10)
        with current(self._runtime):
            start = perf_counter()
            for _ in range(tasks):
                nothing(x, y).result()
            return (perf_counter() - start) / tasks

    def close(self) -> None:
        """Let go of the arrays and end the runtime."""
        self._pairs.clear()
        self._views.clear()
        self._runtime.close()


def thread_pool(pool: ThreadPoolExecutor, tasks: int) -> float:
    """Submit all to a bare pool of two threads, then take the result of all; return the seconds per task."""
    x, y = np.zeros(64), np.zeros(64)
    start = perf_counter()
    futures = [pool.submit(nothing.function, x, y) for _ in range(tasks)]
    for future in futures:
        future.result()
    return (perf_counter() - start) / tasks


def dask_threads(tasks: int) -> float:
    """Run a graph of independent empty tasks on Dask's threads; return the seconds per task."""
    from dask.threaded import get

    x, y = np.zeros(64), np.zeros(64)
    tasks = max(1, tasks // 5)
    graph = {f"t{number}": (nothing.function, x, y) for number in range(tasks)}
    start = perf_counter()
    get(graph, list(graph), num_workers=2)
    return (perf_counter() - start) / tasks


PEERS: dict[str, Contestant] = {"dask_threads": dask_threads}
"""Other schedulers, measured where they are installed. The part before the underscore is the package."""


def busy_user(kernels: int, repetitions: int) -> float:
    """Return the time of NumPy kernels beside a user thread that runs Python, over the time beside one that waits."""
    idle, busy = [], []
    with cx.Runtime(_devices()):
        x = cx.array(np.random.default_rng(1).random(BUSY_ELEMENTS))
        y = cx.ones_like(x)
        for _ in range(3):
            _six_calls(x, y, kernels).result()
        for _ in range(repetitions):
            start = perf_counter()
            _six_calls(x, y, kernels).result()
            idle.append(perf_counter() - start)
            start = perf_counter()
            last = _six_calls(x, y, kernels)
            while not last.done():
                for _ in range(100):
                    pass
            busy.append(perf_counter() - start)
        del x, y
    return median(busy) / median(idle)


def _six_calls(x: Any, y: Any, count: int) -> Any:
    """Submit so many kernels; return the last one's handle."""
    for _ in range(count - 1):
        six_calls(x, y)
    return six_calls(x, y)


def growth(tasks: int) -> float:
    """Return the time per task in the last tenth of many over that in the first."""
    slices = 200
    each = max(1, tasks // slices)
    with closing(Pairs()) as pairs:
        pairs.independent(each * 5)
        seconds = [pairs.independent(each) for _ in range(slices)]
    tenth = slices // 10
    return median(seconds[-tenth:]) / median(seconds[:tenth])
