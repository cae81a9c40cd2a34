"""All devices at once, each computing the whole problem for itself: how fast they are beside each other.

Before: single.py.  After: harness.py.  Without coexec: threads and a barrier.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from time import perf_counter

from .single import Worker

LEAST = 0.02  # seconds: shorter problems are repeated, so that a late start does not count
PATIENCE = 600.0  # seconds: a device that failed must not let the others wait for ever


def together(workers: Sequence[Worker], alone: Mapping[str, float]) -> dict[str, float]:
    """Return each device's seconds for the problem while all others compute it too.

    All begin at once; each goes on until the slowest is through, so that none runs beside idle ones. What a device
    began before and finished after that moment does not count, unless it is all there is.
    """
    barrier = threading.Barrier(len(workers), timeout=PATIENCE)
    left = {worker.device for worker in workers}

    def compute(worker: Worker) -> float:
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
