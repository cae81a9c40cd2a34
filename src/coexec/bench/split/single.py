"""Each device by itself, without coexec: NumPy or torch with one thread on one core, and NumPy with all; and all devices at once.

Before: cases.py.  After: harness.py.  All devices at once, each computing the whole problem for itself, tell how fast they are
beside each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np

from ...backend.launch import aligned_empty
from ...machine.cores import pin_thread
from .cases import FLOAT, Problem, Values

SPINNING = 0.15
"""Seconds: OpenBLAS's threads wait for more work in a busy loop, measured at 0.1 s, on a core that is not theirs then."""


class Bare(Protocol):
    """A problem on one device. `begin` and `run` are called by the device's own thread."""

    def begin(self) -> None:
        """Prepare what belongs to the thread."""

    def run(self) -> None:
        """Compute once, from inputs on the host to a result on the host."""

    def result(self) -> Values:
        """Return what was computed."""

    def close(self) -> None:
        """Give memory back."""


class NumPyCalls:
    """Calls of NumPy into memory that is there beforehand."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._out = aligned_empty(problem.out, FLOAT)

    def begin(self) -> None:
        pass

    def run(self) -> None:
        self._problem.in_numpy(*self._problem.inputs, self._out)

    def result(self) -> Values:
        return self._out

    def close(self) -> None:
        pass


class InTorch:
    """Calls of torch on the same memory, with one thread."""

    def __init__(self, problem: Problem) -> None:
        import torch

        self._problem = problem
        self._inputs = [torch.from_numpy(array) for array in problem.inputs]
        self._out: Any = torch.empty(problem.out, dtype=torch.float32)

    def begin(self) -> None:
        import torch

        torch.set_num_threads(1)

    def run(self) -> None:
        self._out = self._problem.in_torch(*self._inputs, self._out)

    def result(self) -> Values:
        found: Values = self._out.numpy()
        return found

    def close(self) -> None:
        self._inputs.clear()
        self._out = None


class DeviceThread:
    """A device's thread, kept on the device's core, with the problem that it computes."""

    def __init__(self, device: str, core: int, bare: Bare) -> None:
        self.device = device
        self.bare = bare
        self._pool = ThreadPoolExecutor(1, f"bench {device}", pin_thread, (core,))
        try:
            self.start(bare.begin).result()
        except BaseException:
            self.close()
            raise

    def start(self, function: Any, *args: Any) -> Future[Any]:
        """Let the thread call a function."""
        return self._pool.submit(function, *args)

    def seconds(self) -> float:
        """Compute once and return how long that took, without the way to the thread and back."""
        return float(self.start(self._timed).result())

    def _timed(self) -> float:
        start = perf_counter()
        self.bare.run()
        return perf_counter() - start

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()
        self.bare.close()


class AllThreads:
    """NumPy as it is without any of this: every thread of its libraries, no core named."""

    def __init__(self, problem: Problem, threads: int) -> None:
        from threadpoolctl import ThreadpoolController

        self._bare = NumPyCalls(problem)
        self._libraries = ThreadpoolController()
        self._threads = threads

    def seconds(self) -> float:
        """Compute once and return how long that took."""
        with self._libraries.limit(limits=self._threads, user_api="blas"):
            start = perf_counter()
            self._bare.run()
            took = perf_counter() - start
        sleep(SPINNING)
        return took

    def result(self) -> Values:
        """Return what was computed."""
        return self._bare.result()


def rewrite(problem: Problem) -> None:
    """Write the inputs again, with the values that they have: all ways begin with inputs that the host has just written."""
    for array in problem.inputs:
        np.multiply(array, np.float32(1.0), out=array)


@contextmanager
def torch_threads_kept() -> Iterator[None]:
    """Give torch the number of threads back that it had."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


LEAST = 0.02  # seconds: shorter problems are repeated, so that a late start does not count
PATIENCE = 600.0  # seconds: a device that failed must not let the others wait for ever


def together(workers: Sequence[DeviceThread], alone: Mapping[str, float]) -> dict[str, float]:
    """Return each device's seconds for the problem while all others compute it too.

    All begin at once; each goes on until the slowest is through, so that none runs beside idle ones. What a device
    began before and finished after that moment does not count, unless it is all there is.
    """
    barrier = threading.Barrier(len(workers), timeout=PATIENCE)
    left = {worker.device for worker in workers}

    def compute(worker: DeviceThread) -> float:
        least = max(1, round(LEAST / max(alone[worker.device], 1e-6)))
        try:
            barrier.wait()
            ends = [perf_counter()]
            while True:
                worker.bare.run()
                ends.append(perf_counter())
                last = not left  # the others were through before this one ended
                if len(ends) > least:
                    left.discard(worker.device)
                if not left:
                    break
        finally:
            left.discard(worker.device)
        counted = ends[:-1] if last and len(ends) > 2 else ends
        return (counted[-1] - counted[0]) / (len(counted) - 1)

    started = {worker.device: worker.start(compute, worker) for worker in workers}
    return {device: float(future.result()) for device, future in started.items()}
