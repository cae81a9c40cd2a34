"""What a rank's program has asked for so far: a rolling hash that messages carry, and the last calls in words.

Before: graph/task.py.  After: cluster/table.py, which counts calls; whoever explains why ranks do not agree.

Every rank must make the same calls in the same order, on the same arrays, with the same numbers. The hash says whether two
ranks have; the words say where they parted. Nothing that may differ between ranks enters it: no address, no hash of Python's
own, no path.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple
from zlib import crc32

from ..graph.task import Task

KEPT = 64
"""Calls that are remembered in words: ranks are at most two horizons apart, but part at a call that was made just now."""
SHOWN = 160
"""Characters of a call that are shown."""
REMEDY = "; give all ranks the same contents, or take one rank's: cx.array(x, root=0)"


class LoggedCall(NamedTuple):
    """One call in the log."""

    number: int
    stamp: int
    words: str
    """What it was, without anything that may differ between ranks that agree."""
    where: str
    """The program's line."""


class Calls:
    """The calls of one rank."""

    def __init__(self) -> None:
        self.number = 0  # how many there were
        self.stamp = 0
        self._last: deque[LoggedCall] = deque(maxlen=KEPT)

    def add(self, task: Task) -> int:
        """Note a call; return the hash of everything up to it."""
        self.note(_words(task), f"{task.call}:{task.line}" if task.call else "?")
        return self.stamp

    def note(self, words: str, where: str) -> None:
        """Note what the program did, such as making an array, at one of its lines."""
        self.number += 1
        self.stamp = stamp = crc32(words.encode(), self.stamp)
        self._last.append(LoggedCall(self.number, stamp, words, where))

    @property
    def last(self) -> LoggedCall | None:
        """The last call."""
        return self._last[-1] if self._last else None

    def told(self, room: int) -> str:
        """Return the last calls as lines, the newest first, in at most `room` characters: for another rank to compare."""
        lines: list[str] = []
        for call in reversed(self._last):
            line = f"{call.number} {call.stamp:x} {call.words[:SHOWN]} at {call.where}"
            room -= len(line) + 1
            if room < 0:
                break
            lines.append(line)
        return "\n".join(lines)

    def parted(self, told: str, here: str, there: str) -> str:
        """Say at which call this rank and another parted, whose `told` that is; empty if that cannot be said."""
        theirs: dict[int, tuple[str, str]] = {}
        for line in told.splitlines():
            round, _, rest = line.partition(" ")
            stamp, _, words = rest.partition(" ")
            if round.isdigit():
                theirs[int(round)] = (stamp, words)
        differ = [call for call in self._last if call.number in theirs and theirs[call.number][0] != f"{call.stamp:x}"]
        if not differ:
            ours, other = self.last, max(theirs, default=0)
            if ours is None or other == ours.number or not theirs:
                return ""
            ahead = f"{there} has made call {other}: {theirs[other][1]}" if other > ours.number else ""
            behind = f"{there} is at call {other}: {theirs[other][1]}" if other < ours.number else ""
            return f"{here} is at call {ours.number}: {ours.words[:SHOWN]} at {ours.where}; {ahead or behind}"
        first = differ[0]
        sure = any(call.number == first.number - 1 for call in self._last) or first.number == 1
        which = f"call {first.number}" if sure else f"a call before {first.number}"
        theirs_first = theirs[first.number][1]
        contents = first.words.startswith("array(") and theirs_first.startswith("array(")
        return (
            f"they part at {which}: {here} calls {first.words[:SHOWN]} at {first.where}; {there} calls {theirs_first}"
            f"{REMEDY if contents else ''}"
        )


def _words(task: Task) -> str:
    arrays = " ".join([f"A{a._storage.id}{_box(a)}:{a._storage.dtype.str}" for a in task.arrays])
    scalars = " ".join([f"{name}={_value(value)}" for name, value in task.scalars.items()])
    devices = task.options.devices if task.options is not None else None
    return f"{task.name}({arrays}{' ' if scalars else ''}{scalars}){f' on {devices}' if devices else ''}"


def _box(array: Any) -> str:
    box, cut = array._box, array._cut
    steps = "" if cut is None else f"/{cut!r}"
    return f"{list(zip(box.lo, box.hi, strict=True))}{steps}"


def _value(value: Any) -> str:
    """Return a value as every rank writes it; of what is no number or text, only what it is."""
    if isinstance(value, int | float | complex | str | bytes | bool) or value is None:
        return repr(value)
    return str(value) if hasattr(value, "dtype") and not getattr(value, "shape", ()) else type(value).__name__
