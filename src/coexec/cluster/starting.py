"""Start the ranks of one machine without MPI: processes that meet in a file and talk over gloo, watched until all end.

Before: launching.py, launched.py.  After: cli/.  Starts processes and waits; what they do is their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from ..errors import ConfigError
from .launched import MEET, RANK, SIZE

GRACE = 6.0
"""Seconds that the others have to end by themselves after a rank has failed: they were told, and say what they waited for."""
LAST = 1.0
"""Seconds between asking a rank to end and ending it."""
LOOK = 0.05
"""Seconds between two looks."""


class Local:
    """Ranks of this machine. `say` is told what happened to them, a line each."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.code = 0  # of the first rank that failed

    def run(self, ranks: int, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run a command on so many ranks and return the exit code of the first that fails, or 0. Signals reach them all."""
        if ranks < 1:
            raise ConfigError(f"{ranks} ranks cannot do anything; 1 is the least")
        with tempfile.TemporaryDirectory(prefix="coexec-") as folder, self._forwarding():
            try:
                for rank in range(ranks):
                    own = {RANK: str(rank), SIZE: str(ranks), MEET: f"file:{Path(folder) / 'meet'}"}
                    self._running[rank] = subprocess.Popen(  # noqa: S603 - the user's own program
                        list(command), env={**environ, **own}
                    )
                self._watch()
            finally:
                for process in self._running.values():
                    process.kill()
                    process.wait()
        return self.code

    def _watch(self) -> None:
        deadlines = [(GRACE, signal.SIGTERM), (LAST, signal.SIGKILL)]
        until: float | None = None
        while self._running:
            self._reap()
            if self.code and until is None and deadlines:
                until = monotonic() + deadlines[0][0]
            if until is not None and deadlines and monotonic() > until:
                self._end(deadlines.pop(0)[1])
                until = monotonic() + deadlines[0][0] if deadlines else None
            self._nap()

    def _reap(self) -> None:
        for rank, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[rank]
            if code:
                self._say(f"rank {rank} ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}")
                self.code = self.code or (code if code > 0 else 128 - code)

    def _end(self, number: signal.Signals) -> None:
        self._say(f"{', '.join(f'rank {rank}' for rank in self._running)} did not end, and is sent {number.name}")
        for process in self._running.values():
            process.send_signal(number)

    def _nap(self) -> None:
        first = next(iter(self._running.values()), None)
        if first is not None:
            try:
                first.wait(LOOK)
            except subprocess.TimeoutExpired:
                return

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        """Pass on what this process is told; a terminal's Ctrl-C reaches the ranks by itself."""

        def forward(number: int, _: Any) -> None:
            if number != signal.SIGINT or not os.isatty(0):
                for process in self._running.values():
                    process.send_signal(number)

        watched = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, forward) for number in watched]
        try:
            yield
        finally:
            for number, handler in zip(watched, before, strict=True):
                signal.signal(number, handler)
