"""Hand-written threads: one per core, kept there, that run a share each and meet at barriers.

Before: dag/hand.py's crew.  After: the applications' hand-written ways.  Knows no coexec.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from ..dag.hand import ThreadCrew

Computes = Callable[..., object]  # (kernel, *arguments, tuned=...): computes what a kernel's body does


def by_numpy(kernel: Any, *arguments: Any, tuned: Callable[..., object] | None = None, **named: Any) -> None:
    """Let NumPy compute a kernel's body, or what was tuned by hand instead."""
    (tuned or kernel.function)(*arguments, **named)


class ThreadTeam:
    """Threads on the given cores, and what they compute kernels by."""

    def __init__(self, cores: tuple[int, ...], compute: Computes = by_numpy) -> None:
        self.size = len(cores)
        self.compute = compute
        self._share: Callable[[int], object] = lambda _: None
        self._rank = threading.local()
        self._tokens = [[SimpleQueue[bool]() for _ in cores] for _ in cores]  # [from][to]
        self._crew = ThreadCrew()
        for rank, core in enumerate(cores):
            self._crew.add(partial(self._work, rank), core)

    def _work(self, rank: int) -> None:
        self._rank.value = rank
        try:
            self._share(rank)
        except BaseException:
            self._tell(rank, False)  # nobody may wait for this one any more
            raise

    def run(self, share: Callable[[int], object]) -> None:
        """Let every thread call share(its number), and wait for all."""
        self._share = share
        self._crew.run()

    def barrier(self) -> None:
        """Wait inside a share until all threads are here."""
        rank = self._rank.value
        self._tell(rank, True)
        for other in range(self.size):
            if other != rank and not self._tokens[other][rank].get():
                raise RuntimeError("another thread of the team failed")

    def _tell(self, rank: int, well: bool) -> None:
        for other in range(self.size):
            if other != rank:
                self._tokens[rank][other].put(well)

    def part(self, extent: int, rank: int) -> slice:
        """Return the share of a thread when `extent` rows are divided equally."""
        return slice(extent * rank // self.size, extent * (rank + 1) // self.size)

    def close(self) -> None:
        """End the threads."""
        self._crew.close()
