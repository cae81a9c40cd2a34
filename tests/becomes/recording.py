"""Record many programs, in several processes, into one file of JSON lines in a fixed order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BLOCK = 8
"""Programs that a process is given at a time."""
LONG = 8.0
"""Seconds after which a program is told of."""
MOST_LOST = 10
"""Programs that may end their process, before something is wrong with all of them."""


class Recording:
    """Hands out names of programs, and collects records."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._given = 0
        self._lock = threading.Lock()
        self.lines: dict[str, str] = {}
        self.long: list[str] = []
        self.lost: list[str] = []  # programs that ended their process

    def run(self, jobs: int, say: Callable[[str], None]) -> None:
        """Record everything with so many processes."""
        begun = told = time.monotonic()
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
                if time.monotonic() - told > 20:
                    told = time.monotonic()
                    say(f"{len(self.lines)} of {len(self._names)}, {len(self.lines) / (told - begun):.1f}/s")
        seconds = time.monotonic() - begun
        say(f"{len(self.lines)} records in {seconds:.0f} s, {len(self.lines) / seconds:.1f}/s; lost: {self.lost}")

        say("\n".join(self.long))

    def write(self, file: Path) -> None:
        """Write the records, in the order of the names."""
        file.write_text("".join(f"{self.lines[name]}\n" for name in self._names if name in self.lines))

    def _next(self) -> list[str]:
        with self._lock:
            names = self._names[self._given : self._given + BLOCK]
            self._given += len(names)
        return names

    def _serve(self) -> None:
        process = _start()
        while names := self._next():
            while names:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{names[0]}\n")
                process.stdin.flush()
                begun = time.monotonic()
                line = process.stdout.readline().rstrip("\n")
                if time.monotonic() - begun > LONG:
                    self.long.append(f"{names[0]} took {time.monotonic() - begun:.0f} s")
                if line:
                    self.lines[names[0]] = line
                else:
                    self.lost.append(names[0])
                    if len(self.lost) > MOST_LOST:
                        return
                    process.kill()
                    process.wait()
                    process = _start()
                del names[0]
        process.communicate()


def _start(*options: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("COEXEC_")}
    environment = known | {"COEXEC_STORE": "off", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.becomes.worker", *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def told(name: str) -> str:
    """Return all that became of one program."""
    return _start("--told").communicate(f"{name}\n")[0]


def load(file: Path) -> dict[str, dict[str, object]]:
    """Return the records of a file by the names of their programs."""
    records = map(json.loads, file.read_text().splitlines())
    return {record["program"]: record for record in records}
