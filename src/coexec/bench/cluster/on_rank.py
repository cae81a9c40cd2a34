"""What each rank of the benchmark runs: every application in turns with its hand-written version, and bare messages.

Before: apps.py, cluster/.  After: harness.py, which starts it under mpiexec.  Rank 0 writes what was found to a file.

    mpiexec -n 2 python -m coexec.bench.cluster.on_rank full|quick|tiny FILE PARTS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import coexec as cx

from ...backend.base import Ran
from ...cluster.here import team_here
from ...graph.instruction import Instruction, Launch
from ...joined import RankDriver
from ..measure import Data, one_library_thread
from . import apps
from .apps import APPS, EMPTY, FULL, QUICK, TINY, RankApp


class RankEffort(NamedTuple):
    """How much is measured."""

    sizes: Mapping[str, tuple[int, int]]
    rounds: int  # of each application in both ways, beside one that does not count
    turns: tuple[int, int]  # of short messages, and of large ones
    large: int = 64 << 20  # bytes


EFFORTS = {
    "full": RankEffort(FULL, 7, (200, 7)),
    "quick": RankEffort(QUICK, 3, (50, 3)),
    "tiny": RankEffort(TINY, 1, (2, 1), 1 << 16),  # for tests: exact counts, times that say nothing
}
IDLE = 1.0  # seconds that a rank waits for a message


class Bench:
    """One rank: a runtime that stays open, and a communicator for what is written by hand."""

    def __init__(self, runtime: cx.Runtime, comm: Any) -> None:
        way = runtime._way
        assert isinstance(way, RankDriver)
        self.network, self.comm, self.team = way.network, comm, way.team
        self.endpoint = self.team.endpoint
        self.taken = Taken(way.executor.on_finished)
        way.executor.on_finished = self.taken

    def seconds(self, act: Callable[[], Any]) -> tuple[float, Any]:
        """Return how long it takes until all ranks have done it, and what it returned."""
        self.comm.Barrier()
        start = time.perf_counter()
        found = act()
        self.comm.Barrier()
        return time.perf_counter() - start, found

    def counts(self) -> Any:
        """Return messages, bytes, messages and bytes of reductions so far, of all ranks together."""
        own = self.network
        mine = np.array([own.messages, own.bytes, own.partials, own.partial_bytes])
        total = np.zeros_like(mine)
        self.comm.Allreduce(mine, total)
        return total

    def case(self, app: RankApp, rounds: int) -> Data:
        """Run an application in both ways, in turns; check that they agree."""
        coexec, hand = [], []
        sent = self.counts()
        for turn in range(rounds + 1):
            arrays = [cx.array(given) for given in app.inputs]
            cx.wait()  # contents were compared
            before = self.counts()
            took, result = self.seconds(partial(_run, app, arrays))
            sent = self.counts() - before
            own = [given.copy() for given in app.inputs]
            plain, mine = self.seconds(partial(app.hand, self.comm, *own))
            if turn:  # the first one is for plans and caches
                coexec.append(took)
                hand.append(plain)
            self._check(app, result, mine)
        return {
            "app": app.name,
            "ranks": self.comm.size,
            "coexec_s": median(coexec),
            "handwritten_s": median(hand),
            "vs_handwritten": median(hand) / median(coexec),
            "messages": int(sent[0] - sent[2]),
            "bytes": int(sent[1] - sent[3]),
            "bytes_minimum": app.bytes_minimum,
            "reduction_messages": int(sent[2]),
            "reduction_bytes": int(sent[3]),
            "steps": app.steps,
        }

    def _check(self, app: RankApp, found: Any, mine: Any) -> None:
        everything = np.asarray(found)
        part = everything[apps.rows_of(len(everything), self.comm.rank, self.comm.size)]
        scale = float(np.max(np.abs(part), initial=0.0)) or 1.0
        if not np.allclose(part, mine, rtol=0, atol=app.tolerance * scale):
            raise AssertionError(f"{app.name}: rank {self.comm.rank} has other values than the hand-written version")

    def step_us(self, name: str, rounds: int) -> float:
        """Return what coexec adds to a step, in microseconds, where kernels take next to nothing."""
        size, steps = EMPTY[name]
        found = self.case(APPS[name](size * self.comm.size, steps, self.comm.size), rounds)
        return float((found["coexec_s"] - found["handwritten_s"]) / steps * 1e6)

    # Bare messages ----------------------------------------------------------------------------------------------------

    def ping(self, nbytes: int, turns: int) -> tuple[float, float]:
        """Return the seconds of one message between the first two ranks: over the transport, and by mpi4py alone."""
        data, into = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
        rank = self.comm.rank
        times: tuple[list[float], list[float]] = ([], [])
        key = 1 << 40  # no runtime has come so far

        def ours() -> None:
            if rank > 1:
                return
            arrives = self.endpoint.receive(1 - rank, key, into)
            with self.team.waits("a message", "bench"):
                if rank == 0:
                    self.endpoint.send(1, key, data).wait()
                    arrives.wait()
                else:
                    arrives.wait()
                    self.endpoint.send(0, key, data).wait()

        def bare() -> None:
            if rank == 0:
                self.comm.Send(data, 1, 5)
                self.comm.Recv(into, 1, 6)
            elif rank == 1:
                self.comm.Recv(into, 0, 5)
                self.comm.Send(data, 0, 6)

        for _ in range(turns):
            for found, way in zip(times, (ours, bare), strict=True):
                found.append(self.seconds(way)[0] / 2)
        return median(times[0]), median(times[1])

    def blocked_core(self) -> float:
        """Return which share of a core a rank uses while it waits for a message."""
        self.comm.Barrier()
        start, used = time.perf_counter(), time.process_time()
        if self.comm.rank == 1:
            time.sleep(IDLE)
            self.endpoint.send(0, 1 << 41, np.zeros(8)).wait()
        elif self.comm.rank == 0:
            with self.team.waits("a message", "bench"):
                self.endpoint.receive(1, 1 << 41, np.zeros(8)).wait()
        share = (time.process_time() - used) / (time.perf_counter() - start)
        self.comm.Barrier()
        return share


class Taken:
    """Stands in front of a rank's own account of what is over, and keeps the seconds of every kernel."""

    def __init__(self, then: Callable[[Ran], object]) -> None:
        self._then = then
        self.begin()

    def begin(self) -> None:
        """Begin with nothing."""
        self.seconds: dict[str, list[float]] = {}  # by kernel and shape, in the order in which they ended

    def __call__(self, ran: Ran) -> None:
        if type(ran.instruction.step) is Launch:
            self.seconds.setdefault(kernel_name(ran.instruction), []).append(ran.stop - ran.start)
        self._then(ran)


def kernel_name(launch: Instruction) -> str:
    """Return what is alike of kernels that should take alike: their call's name, and the shape of their part."""
    assert isinstance(launch.step, Launch)
    return f"{launch.task.name if launch.task else ''} {launch.step.chunk.box.shape}"


def _run(app: RankApp, arrays: Any) -> Any:
    result = app.coexec(*arrays)
    cx.wait()
    return result


def measure(effort: RankEffort, parts: Sequence[str]) -> Data:
    """Run these parts on this rank; the figures of rank 0 are those of all. Bare messages are part of all of them."""
    from mpi4py import MPI

    apps.NOBODY = MPI.PROC_NULL
    team = team_here()
    assert team is not None, "harness.py starts several ranks"
    rounds, large = effort.rounds, effort.large
    found = []
    with cx.Runtime("cpu:0", store="off", policy="even", diagnostics="off") as runtime:
        bench = Bench(runtime, MPI.COMM_WORLD.Dup())
        for name, (size, steps) in effort.sizes.items():
            if name not in parts:
                continue
            bench.taken.begin()
            case = bench.case(APPS[name](size, steps, team.size), rounds)
            case["kernels"] = bench.comm.allgather(bench.taken.seconds)
            found.append({**case, "step_us": bench.step_us(name, rounds)})
        short, long = bench.ping(8, effort.turns[0]), bench.ping(large, effort.turns[1])
        blocked = bench.blocked_core()
    return {
        "cases": found,
        "latency_us": {"coexec": short[0] * 1e6, "mpi4py": short[1] * 1e6},
        "bandwidth": {
            "bytes": large,
            "coexec_GB_per_s": large / long[0] / 1e9,
            "mpi4py_GB_per_s": large / long[1] / 1e9,
            "vs_mpi4py": long[1] / long[0],
        },
        "blocked_core": blocked,
    }


def main(how: str, file: str, parts: str) -> None:
    """Measure, and let rank 0 write what was found."""
    with one_library_thread():
        found = measure(EFFORTS[how], parts.split(","))
    if cx.rank() == 0:
        Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
