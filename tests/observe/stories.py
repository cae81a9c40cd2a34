"""Traces made by hand: a `Story` places instructions on lanes and knows every time exactly."""

from __future__ import annotations

import random
from typing import Any

from coexec.observe.trace import Row, Trace

DEVICES: tuple[tuple[str, list[int]], ...] = (("cpu:0", [0]), ("cpu:1", [1]), ("opencl:0", []))


class Story:
    """Builds the rows of a trace; each instruction starts when its lane is free and its dependencies are over."""

    def __init__(self, devices: tuple[tuple[str, list[int]], ...] = DEVICES) -> None:
        named = [{"name": n, "kind": n.split(":")[0], "memory": "host", "cores": c} for n, c in devices]
        self.rows: list[Row] = [
            {"row": "header", "version": 1, "coexec": "0.1.0", "started": "2026-01-01T00:00:00", "devices": named}
        ]
        self.stop: dict[int, float] = {}
        self.free: dict[tuple[str, int], float] = {}
        self.tasks = self.ids = 0

    def task(self, name: str, submitted: float = 0.0, after: tuple[int, ...] = (), **more: Any) -> int:
        self.tasks += 1
        row = {"row": "task", "id": self.tasks, "name": name, "call": f"app.py:{self.tasks}", "after": list(after)}
        self.rows.append({**row, "submitted": submitted, "scheduling": 1e-6, "why": "", **more})
        return self.tasks

    def command(self, task: int, devices: tuple[str, ...], after: tuple[int, ...] = ()) -> int:
        chunks = [{"device": d, "lo": [100 * i], "hi": [100 * i + 100]} for i, d in enumerate(devices)]
        self.rows.append({"row": "command", "id": task, "task": task, "after": list(after), "chunks": chunks})
        return task

    def run(
        self,
        kind: str,
        name: str,
        device: str,
        seconds: float,
        *,
        lane: int = 0,
        task: int | None = None,
        needs: tuple[int, ...] = (),
        after: tuple[int, ...] = (),
        late: float = 0.0,
        state: str = "done",
        waited: float = 0.0,
        predicted: float | None = None,
        link: tuple[str, str] | None = None,
        reason: str = "coherence",
        nbytes: int = 0,
    ) -> int:
        """Lower and run an instruction `late` seconds after it could start."""
        self.ids += 1
        common = {"id": self.ids, "kind": kind, "name": name, "task": task, "device": device}
        given = {"needs": list(needs), "after": list(after), "bytes": nbytes}
        if link:
            given |= {"from": link[0], "to": link[1], "reason": reason}
        self.rows.append({"row": "instruction", **common, **given})
        submitted = next((r["submitted"] for r in self.rows if r["row"] == "task" and r["id"] == task), 0.0)
        ready = max([submitted, *(self.stop[i] for i in (*needs, *after))])
        start = max(ready, self.free.get((device, lane), 0.0)) + late
        self.stop[self.ids] = self.free[device, lane] = start + seconds
        times = {"lane": lane, "ready": ready, "start": start, "stop": start + seconds, "waited": waited}
        ran = {**times, "predicted": predicted, "bytes": nbytes, "state": state}
        self.rows.append({"row": "ran", **common, **ran})
        return self.ids

    def wait(self, start: float, stop: float, what: str) -> None:
        self.rows.append({"row": "wait", "start": start, "stop": stop, "what": what})

    def trace(self) -> Trace:
        return Trace([*self.rows, {"row": "end", "t": max(self.stop.values(), default=0.0)}])


def heat(steps: int, seed: int = 1, unit: float = 1e-3) -> Trace:
    """Return a run of a stencil and a reduction over two cores and an accelerator with its own memory."""
    chance, story = random.Random(seed), Story()
    size, clock = 8_000_000, 0.0
    previous: dict[str, int] = {}
    last_task: tuple[int, ...] = ()
    shares = {"cpu:0": 1.0, "cpu:1": 1.05, "opencl:0": 0.8}

    def copy(link: tuple[str, str], lane: int, seconds: float, nbytes: int, needs: tuple[int, ...]) -> int:
        return story.run("copy", "u", "opencl:0", seconds, lane=lane, task=task, needs=needs, link=link, nbytes=nbytes)

    for step in range(steps):
        name = "heat" if step % 4 < 3 else "residual_norm"
        clock += 0.02 * unit
        task = story.task(name, clock, last_task, scheduling=12e-6 * chance.uniform(0.5, 2))
        story.command(task, tuple(shares), last_task)
        ran: dict[str, int] = {}
        for device, pace in shares.items():
            needs = tuple(previous.values())
            if device == "opencl:0":
                size_to, seconds = (size // 8, 0.22 * unit) if step else (size, 1.4 * unit)
                needs = (copy(("host", device), 1, seconds, size_to, needs),)
            seconds = unit * pace * chance.uniform(0.85, 1.15) * (1.0 if name == "heat" else 0.45)
            ran[device] = story.run(
                "kernel", name, device, seconds, task=task, needs=needs, predicted=unit * pace,
                waited=0.02 * unit, late=0.01 * unit,
            )  # fmt: skip
        ran["opencl:0"] = copy(("opencl:0", "host"), 2, 0.2 * unit, size // 8, (ran["opencl:0"],))
        if name == "residual_norm":
            total = story.run("reduce", name, "cpu:0", 0.1 * unit, task=task, needs=tuple(ran.values()))
            story.wait(clock, story.stop[total], "float(norm)")
            clock = story.stop[total] + 0.4 * unit
            ran["cpu:0"] = total
        previous, last_task = ran, (task,)
    return story.trace()
