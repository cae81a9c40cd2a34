"""Ranks on one machine watch each other's processes: who ends or stays stopped is known at once, without any message.

Before: nothing.  After: cluster/opening.py.  Needs no port and no answer from the other side, so a rank that computes for
long, or holds its interpreter, is not taken for lost.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LOOK = 1.0
"""Seconds between two looks whether processes are stopped."""
STOPPED = 4
"""Looks in a row that find a process stopped before it counts as lost."""


class Person(NamedTuple):
    """A process, as others on its machine find it."""

    place: str  # the machine since it was started, and its numbering of processes
    pid: int
    born: str  # ticks after the machine's start: a later process may have the same number


def myself() -> Person:
    """Return this process."""
    return Person(
        f"{_read('/proc/sys/kernel/random/boot_id')} {_link('/proc/self/ns/pid')}", os.getpid(), _born(os.getpid())
    )


def state(pid: int) -> str:
    """Return the letter that says what a process does, T for one that was stopped; empty if there is none."""
    return next(iter(_fields(pid)), "")


class Neighbours:
    """A thread that watches processes. `lost(rank, reason)` is called once for each that ends or stays stopped."""

    def __init__(self, people: Mapping[int, Person], lost: Callable[[int, str], None]) -> None:
        self._lost = lost
        self._files: dict[int, int] = {}  # by rank: a file that can be read once the process has ended
        self._pids = {rank: person.pid for rank, person in people.items()}
        self._stopped = dict.fromkeys(people, 0)
        gone = []
        for rank, person in people.items():
            try:
                self._files[rank] = os.pidfd_open(person.pid)
            except OSError:
                gone.append(rank)
            if _born(person.pid) != person.born:
                gone.append(rank)
        self._wake = os.eventfd(0)
        self._thread = threading.Thread(target=self._watch, args=(gone,), name="coexec-neighbours", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)
            self._thread.join()
            for file in (*self._files.values(), self._wake):
                os.close(file)
            self._wake = -1

    def _watch(self, gone: list[int]) -> None:
        for rank in dict.fromkeys(gone):
            self._tell(rank, "has ended")
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        ranks = {file: rank for rank, file in self._files.items() if rank not in gone}
        for file in ranks:
            poll.register(file, select.POLLIN)
        while True:
            for file, _ in poll.poll(LOOK * 1000):
                if file == self._wake:
                    return
                poll.unregister(file)
                self._tell(ranks.pop(file), "has ended")
            for rank in list(ranks.values()):
                self.look(rank)

    def look(self, rank: int) -> None:
        """See whether a process is stopped, for how many looks in a row."""
        self._stopped[rank] = self._stopped[rank] + 1 if state(self._pids[rank]) == "T" else 0
        if self._stopped[rank] == STOPPED:
            self._tell(rank, f"has been stopped for {STOPPED * LOOK:g} s")

    def _tell(self, rank: int, what: str) -> None:
        self._lost(rank, f"its process {self._pids[rank]} {what}")


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="ascii").strip()
    return ""


def _link(path: str) -> str:
    with suppress(OSError):
        return str(Path(path).readlink())
    return ""


def _fields(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _born(pid: int) -> str:
    found = _fields(pid)
    return found[19] if len(found) > 19 else ""
