"""The nodes and edges of a run's three graphs, ready to be shown.

Before: trace.py.  After: graphs.py.  Knows what is written in a node, not where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...errors import unknown_name
from ..trace import Row, Trace
from .svg import bytes_text, count_text, seconds_text

LEVELS = ("task", "command", "instruction")


class Node(NamedTuple):
    """One node of a graph, as it is shown."""

    id: int
    name: str  # T3, C7, I12
    label: str
    detail: str
    devices: tuple[str, ...]
    title: str


class Arrow(NamedTuple):
    """One edge; a solid one carries data, a dashed one only orders."""

    source: int
    target: int
    solid: bool


class Graph(NamedTuple):
    """A graph of one level."""

    nodes: list[Node]
    arrows: list[Arrow]


def graph(trace: Trace, level: str) -> Graph:
    """Return the graph of one level: task, command or instruction."""
    if level not in _MAKERS:
        raise unknown_name("graph level", level, LEVELS)
    return _MAKERS[level](trace)


def _tasks(trace: Trace) -> Graph:
    where: dict[int, tuple[str, ...]] = {}
    for command in trace.commands:
        chunks = (str(chunk["device"]) for chunk in command["chunks"])
        where[command["task"]] = tuple(dict.fromkeys((*where.get(command["task"], ()), *chunks)))
    nodes = []
    for task in trace.tasks:
        devices = where.get(task["id"], ())
        title = "\n".join(filter(None, (f"T{task['id']} {task['name']}", task.get("call"), task.get("why"))))
        nodes.append(Node(task["id"], f"T{task['id']}", task["name"], _place(task.get("call")), devices, title))
    return Graph(nodes, _arrows(trace.tasks))


def _place(call: object) -> str:
    """Return "app.py:12" of a longer path."""
    return str(call or "").replace("\\", "/").rpartition("/")[2]


def _commands(trace: Trace) -> Graph:
    nodes = []
    for command in trace.commands:
        task = trace.task_by_id.get(command["task"], {})
        label = str(task.get("name") or f"T{command['task']}")
        chunks = [f"{c['device']} {_box(c)}" for c in command["chunks"]]
        detail = chunks[0] if len(chunks) == 1 else count_text(len(chunks), "chunk")
        devices = tuple(dict.fromkeys(str(c["device"]) for c in command["chunks"]))
        title = "\n".join((f"C{command['id']} {label} (T{command['task']})", *chunks))
        nodes.append(Node(command["id"], f"C{command['id']}", label, detail, devices, title))
    return Graph(nodes, _arrows(trace.commands))


def _box(chunk: Row) -> str:
    """Return a chunk's box as "[0:500, 0:20]"."""
    return "[" + ", ".join(f"{lo}:{hi}" for lo, hi in zip(chunk.get("lo", ()), chunk.get("hi", ()), strict=False)) + "]"


def _instructions(trace: Trace) -> Graph:
    nodes = []
    for row in trace.instructions:
        ran = trace.ran_by_id.get(row["id"])
        device = str((ran or row)["device"] or "")
        seconds = seconds_text(ran["stop"] - ran["start"]) if ran else "not run"
        name = row.get("name") or ""
        label = f"{row['kind']} {name}" if name and name != row["kind"] else row["kind"]
        detail = " · ".join(filter(None, (device, seconds)))
        lines = [f"I{row['id']} {label}", detail]
        if row["kind"] == "copy":
            lines.append(
                f"{trace.link(row)}, {bytes_text(row.get('bytes') or 0)}, {row.get('reason') or ''}".rstrip(", ")
            )
        if row.get("task") is not None:
            lines.append(f"T{row['task']}")
        nodes.append(Node(row["id"], f"I{row['id']}", label, detail, (device,) if device else (), "\n".join(lines)))
    return Graph(nodes, _arrows(trace.instructions))


def _arrows(rows: Iterable[Row]) -> list[Arrow]:
    """Return the edges between known rows; one that is both needed and ordered is needed."""
    rows = list(rows)
    known = {row["id"] for row in rows}
    arrows: dict[tuple[int, int], bool] = {}
    for row in rows:
        # Tasks and commands have one kind of edge, and it carries data.
        for id in row.get("needs", ()) if "needs" in row else row.get("after", ()):
            arrows[id, row["id"]] = True
        for id in row.get("after", ()):
            arrows.setdefault((id, row["id"]), False)
    return [Arrow(a, b, solid) for (a, b), solid in arrows.items() if a in known]


_MAKERS: dict[str, Callable[[Trace], Graph]] = {"task": _tasks, "command": _commands, "instruction": _instructions}
