"""What ranks on one machine have of it: cores, memory and accelerators, divided among them without being told.

Before: machine/cores.py.  After: cluster/opening.py, opening.py.  A launcher that bound its processes is left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..machine.cores import available_cores


class LocalRank(NamedTuple):
    """The place of a rank among those of its machine."""

    position: int = 0
    ranks: int = 1


class Seen(NamedTuple):
    """What a rank tells of its machine."""

    place: str  # the same for all ranks of one machine
    cores: tuple[int, ...]


def as_words(place: str) -> bytes:
    """Return what this process tells of its machine, which is called `place`."""
    return json.dumps([place, available_cores()]).encode()


def read_words(words: bytes) -> Seen:
    """Return what a rank told."""
    place, cores = json.loads(words)
    return Seen(str(place), tuple([int(core) for core in cores]))


def local_of(rank: int, told: Sequence[Seen]) -> LocalRank:
    """Return the place of a rank among those of its machine."""
    near = [other for other, seen in enumerate(told) if seen.place == told[rank].place]
    return LocalRank(near.index(rank), len(near))


def cores_of(rank: int, told: Sequence[Seen]) -> tuple[int, ...]:
    """Return the cores that a rank uses: its part of those that all ranks of its machine may use.

    Ranks that a launcher gave different cores keep theirs. More ranks than cores share them, one after the other.
    """
    mine = told[rank]
    index, count = local_of(rank, told)
    if count == 1 or any(seen.cores != mine.cores for seen in told if seen.place == mine.place):
        return mine.cores
    number = len(mine.cores)
    if count > number:
        return (mine.cores[index % number],)
    return mine.cores[index * number // count : (index + 1) * number // count]


def accelerators_of(local: LocalRank, names: Sequence[str]) -> list[str]:
    """Return the accelerators that a rank uses of those of its machine, in turn; where there are fewer than ranks, one each."""
    mine = [name for number, name in enumerate(names) if number % local.ranks == local.position]
    return mine or [names[local.position % len(names)]] if names else []


def keep_to(cores: Sequence[int]) -> None:
    """Let all threads of this process, and the threads of its libraries, use these cores only."""
    if not hasattr(os, "sched_setaffinity") or tuple(cores) == available_cores():
        return
    for thread in [os.getpid(), *[int(entry.name) for entry in Path("/proc/self/task").iterdir()]]:
        with suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cores)
    from threadpoolctl import ThreadpoolController

    for library in ThreadpoolController().lib_controllers:
        if (library.get_num_threads() or 1) > len(cores):
            library.set_num_threads(len(cores))
