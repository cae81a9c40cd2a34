"""From what happened to the trace.

Before: backend/base.py's Ran.  After: driver.py, which gives it everything.  Owned by the runtime; task and
command rows come from submitting threads under the program's lock, `ran` from whoever drains.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..backend.base import Ran
from ..config import blamed
from ..errors import TaskCancelled
from ..graph.command import Command
from ..graph.configure import Configure
from ..graph.instruction import Allocation, Copy, Instruction, Launch, MemoryStep, Step
from ..graph.message import Message
from ..graph.task import Task
from ..machine.platform import Platform
from .trace import TraceWriter

KEPT = 4096  # completion times remembered, to tell when an instruction became ready


class Recorder:
    """Streams rows to a trace file, if one was asked for."""

    def __init__(
        self,
        path: str,
        platform: Platform,
        clock: Callable[[], float],
        options: Mapping[str, Any] | None = None,
        closing: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Begin. `closing` returns what a simulation knows at its end only, such as energy."""
        self._platform = platform
        self._options = options or {}
        self.clock = clock
        self._closing = closing
        self.planning: Callable[[], Mapping[str, Any]] | None = None  # tells at the end what planning steps has taken
        before, self._start = time.perf_counter(), clock()
        self._virtual = not before <= self._start <= time.perf_counter()  # the devices live in a time of their own
        with blamed("trace", path):
            self._writer = TraceWriter(path) if path else None
        self.tracing = self._writer is not None
        self._over: dict[int, float] = {}
        self._links: set[tuple[int, int]] = set()  # that were recorded
        if self._writer is not None:
            self._writer.row(self._header())

    def _header(self) -> dict[str, Any]:
        return {
            "row": "header",
            "version": 1,
            "coexec": __version__,
            "started": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "python": sys.version.split()[0],
            "numpy": np.__version__,
            "cores": os.cpu_count(),
            **({"virtual": True} if self._virtual else {}),
            **self._platform.as_dict(),
            "options": dict(self._options),
        }

    def _since(self, t: float) -> float:
        return round(t - self._start, 9)

    # Rows of the three graphs -------------------------------------------------------------------------------------

    def task(self, task: Task) -> None:
        """Record a task. In virtual time it comes when the clock says, however long the program really took."""
        if self._writer is not None:
            if self._virtual:
                task.submitted = self.clock()
            self._writer.row(
                {
                    "row": "task",
                    "id": task.id,
                    "name": task.name,
                    "call": f"{Path(task.call).name}:{task.line}" if task.call else "",
                    "after": task.after,
                    "submitted": self._since(task.submitted),
                    "scheduling": round(task.scheduling, 9),
                    "why": task.why,
                }
            )

    def command(self, command: Command, instructions: Iterable[Instruction]) -> None:
        """Record a command and its instructions."""
        if self._writer is not None:
            chunks = [{"device": c.device, "lo": c.box.lo, "hi": c.box.hi} for c in command.chunks]
            row = {"row": "command", "id": command.id, "task": command.task.id, "after": command.after}
            self._writer.row({**row, "chunks": chunks, **_messages(command.task)})
            self.instructions(instructions)

    def fence(self, task: Task, instructions: Iterable[Instruction]) -> None:
        """Record a host read, a horizon or an epoch: a command without chunks."""
        if self._writer is not None:
            row = {"row": "command", "id": task.id, "task": task.id, "after": task.after, "chunks": []}
            self._writer.row({**row, **_messages(task)})
            self.instructions(instructions)

    def instructions(self, instructions: Iterable[Instruction]) -> None:
        """Record instructions."""
        if self._writer is None:
            return
        for instruction in instructions:
            row = {"row": "instruction", **self._named(instruction), "needs": tuple(dict.fromkeys(instruction.needs))}
            row["after"] = tuple(dict.fromkeys(instruction.after))
            step = instruction.step
            row["bytes"] = step.nbytes
            if isinstance(step, Copy):
                memories = self._platform.memories
                self._link(step.source.memory, step.target.memory)
                row["from"] = memories[step.source.memory].name
                row["to"] = memories[step.target.memory].name
                row["reason"] = step.reason
            elif isinstance(step, Message):
                (number, route) = step.key(instruction.task)
                row |= {"from_rank": route.sender, "to_rank": route.receiver, "message": (number, *route[2:])}
            self._writer.row(row)

    def _link(self, source: int, target: int) -> None:
        """Record a way between two memories when it is first used."""
        if self._writer is None or (source, target) in self._links:
            return
        self._links.add((source, target))
        link = self._platform.link(source, target) if source != target else None
        if link is not None:
            names = [self._platform.memories[memory].name for memory in (source, target)]
            row = {"row": "link", "from": names[0], "to": names[1], "name": link.name, "shared": link.shared}
            self._writer.row({**row, "latency_s": link.latency, "bytes_per_s": link.bandwidth})

    def _named(self, instruction: Instruction) -> dict[str, Any]:
        task, step = instruction.task, instruction.step
        return {
            "id": instruction.id,
            "kind": step.kind,
            "name": task.name if task is not None and isinstance(step, Launch) else _title(step),
            "task": task.id if task is not None else None,
            "device": step.device or "host",
            **self._where(step),
        }

    def _where(self, step: Step) -> dict[str, Any]:
        """Return whose memory a step takes or gives back: an allocation's, or that of a kernel's temporaries."""
        if isinstance(step, MemoryStep):
            place = step.allocation
            return {"memory": self._platform.memories[place.memory].name, "array": place.array}
        if isinstance(step, Launch) and step.scratch is not None:
            memory, nbytes = step.scratch
            return {"memory": self._platform.memories[memory].name, "scratch": nbytes}
        return {}

    def given(self, allocation: Allocation) -> None:
        """Record an array that begins with its contents in a memory, which no instruction allocates."""
        if self._writer is not None:
            memory = self._platform.memories[allocation.memory].name
            row = {"row": "given", "t": self._since(self.clock()), "array": allocation.array, "memory": memory}
            self._writer.row({**row, "bytes": allocation.nbytes})

    # What happened ------------------------------------------------------------------------------------------------

    def ran(self, records: Sequence[Ran]) -> None:
        """Record what finished."""
        if self._writer is not None:
            for record in records:
                self._writer.row(self._ran_row(record))

    def _ran_row(self, record: Ran) -> dict[str, Any]:
        instruction, step = record.instruction, record.instruction.step
        over = self._over
        over[instruction.id] = record.stop
        if len(over) > KEPT:
            for id in list(over)[: KEPT // 2]:
                del over[id]
        known = [over[id] for id in (*instruction.needs, *instruction.after) if id in over]
        submitted = instruction.task.submitted if instruction.task is not None else self._start
        row = {"row": "ran", **self._named(instruction), "lane": record.lane}
        row["device"] = record.device or "host"
        start, stop, ready = record.start, record.stop, max([submitted, *known])
        if self._virtual and record.lane < 0:  # bookkeeping, which has no clock but ours
            start = stop = over[instruction.id] = ready
        row["ready"] = self._since(min(start, ready))
        row["start"], row["stop"] = self._since(start), self._since(stop)
        row["waited"] = round(record.waited, 9)
        row["predicted"] = step.predicted if isinstance(step, Launch) else None
        if self._virtual and instruction.source:
            row["source"] = instruction.source
        row["bytes"] = step.nbytes
        row["state"] = _state(record)
        if row["state"] == "failed":
            row["error"] = f"{type(record.error).__name__}: {record.error}"
        return row

    def small(self, name: str, start: float, stop: float, calls: int) -> None:
        """Record one of `calls` calls of a function on small arrays, by `clock`."""
        if self._writer is not None:
            row = {"row": "small", "name": name, "start": self._since(start), "stop": self._since(stop)}
            self._writer.row({**row, "calls": calls})

    def wait(self, start: float, stop: float, what: str, task: int) -> None:
        """Record that the program waited for a task, by `clock`."""
        if self._writer is not None and stop - start > 1e-6:
            row = {"row": "wait", "start": self._since(start), "stop": self._since(stop), "what": what}
            self._writer.row({**row, "task": task})

    def note(self, text: str) -> None:
        """Record a warning or a remark."""
        if self._writer is not None:
            self._writer.row({"row": "note", "t": self._since(self.clock()), "text": text})

    def stream(self, figures: Mapping[str, Any]) -> None:
        """Record what a stream of items came to, when it ends."""
        if self._writer is not None:
            self._writer.row({"row": "stream", "t": self._since(self.clock()), **figures})

    def close(self) -> None:
        """Complete the trace."""
        if self._writer is not None:
            if self.planning is not None and self.tracing:
                self._writer.row({"row": "planning", "t": self._since(self.clock()), **self.planning()})
            if self._closing is not None and self.tracing:
                self._writer.row({"row": "simulation", **self._closing()})
            self._writer.close(self._since(self.clock()))


def _title(step: Step) -> str:
    """Return what a step is called that is no kernel."""
    return f"configure {step.design}" if isinstance(step, Configure) else step.kind


def _messages(task: Task) -> dict[str, Any]:
    """Return what a task's command sends to other ranks, and what it waits for: per array, the ranks."""
    deal = task.deal
    if deal is None:
        return {}
    found: dict[str, Any] = {}
    names = [param.name for param in task.accesses]
    if deal.pushes:
        found["pushes"] = [{"array": names[p.argument], "targets": [r for r, _ in p.targets]} for p in deal.pushes]
    if deal.awaits:
        found["awaits"] = [{"array": names[a.argument], "sources": [r for r, _ in a.sources]} for a in deal.awaits]
    return found


def _state(record: Ran) -> str:
    if record.error is None:
        return "done"
    from ..errors import TaskFailed

    return "cancelled" if isinstance(record.error, TaskCancelled | TaskFailed) else "failed"
