"""A task is assigned once: what changes while it runs is its handle's, and only the stage that knows something writes it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.graph.task import Handle, Task
from coexec.plan.lessons import Lesson
from tests.clusters import cluster

KNOWN = {"straight_known.py"}  # in the place of the layers, for calls whose shape is known
CALL, GRAPH, DEAL = {"graph/call.py"} | KNOWN, {"graph/task_graph.py"}, {"cluster/table.py"}
RUN = {"execute/executor.py", "execute/inline_calls.py"}
WRITERS: dict[str, set[str]] = {
    **dict.fromkeys(("accesses", "scalars", "body", "call", "line", "extents", "domain", "key", "once", "same"), CALL),
    "options": CALL | DEAL,
    "arrays": CALL,
    "context": CALL | {"execute/executor.py"},
    **dict.fromkeys(("id", "after", "marks"), GRAPH),
    "shape": {"schedule/link.py"} | KNOWN,
    **dict.fromkeys(("deal", "round", "stamp"), DEAL),
    "grain": {"plan/fixed_blocks.py"} | CALL,
    "why": {"schedule/plan.py", "execute/hand_over.py"},
    "starved": {"schedule/plan.py"} | KNOWN,
    "space": CALL | {"plan/decisions.py", "plan/fixed_blocks.py", "lower/capacity.py"},
    "shapes": CALL | {"plan/decisions.py", "plan/reproducible.py", "lower/capacity.py"},
    **dict.fromkeys(("open", "finished", "failure", "waiters"), RUN),
    "told": {"graph/failure.py", "cluster/table.py"},
    "submitted": {"driver.py", "pump.py", "observe/recorder.py"} | KNOWN,
    "scheduling": {"pump.py", "execute/hand_over.py"} | KNOWN,
    "studied": {"observe/keeping_up.py"},
}
"""Who writes what, beside the methods of a task itself: `map_parts` and `let_go`."""
CHANGES = {
    "options": "the deal leaves this rank's devices of those that a call names",
    "scalars": "arrays among them are let go",
    "why": "a trace says that a call was replayed",
}
"""What may be assigned twice, and why."""
DECIDED = frozenset(Lesson._fields)
"""What a planner returns, and the layer that plans keeps: nobody writes it to a task."""


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def blur(x: Any, y: Any) -> None:
    y[...] = (x[:-2] + x[1:-1] + x[2:]) / 3


@cx.kernel(split=0, x=cx.update)
def grow(x: Any, by: Any = 1.0) -> None:
    x += by


@cx.kernel(split=0, x=cx.read, total=cx.reduce("sum"))
def add_up(x: Any, total: Any) -> None:
    total += x.sum()


class Watch:
    """Sees every assignment to a task."""

    def __init__(self) -> None:
        self.writers: dict[str, set[str]] = {}
        self.changed: set[str] = set()

    def assign(self, task: Task, name: str, value: Any, writer: str) -> None:
        """Note who assigns what, and assign it; what a planner decides is no task's."""
        assert name not in DECIDED, f"{writer} writes {name!r} to {task!r}: it belongs into what the planner returns"
        self.writers.setdefault(name, set()).add(writer)
        default = getattr(type(task), name, None)
        before = task.__dict__.get(name, default)
        kept = [one is default or one == default for one in (before, value)]
        if hasattr(Task, name) and not hasattr(Handle, name) and not any(kept) and before is not value:
            self.changed.add(name)
        object.__setattr__(task, name, value)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Watch all tasks."""
    found = Watch()

    def assign(task: Task, name: str, value: Any) -> None:
        found.assign(task, name, value, sys._getframe(1).f_code.co_filename.rpartition("coexec/")[2])

    monkeypatch.setattr(Task, "__setattr__", assign, raising=False)
    return found


def program(rows: int = 50_000) -> None:
    """Call kernels and operators, divided and not, often enough to be replayed; read, wait, fail."""
    x, y, total = cx.zeros(rows), cx.zeros(rows), cx.zeros(())
    for _ in range(12):
        blur(x, y)
        grow(y, total)
        add_up(y, total)
        x, y = y, x
    z = x * 2 + 1
    assert np.asarray(z).shape == (rows,)
    cx.wait()
    assert np.isfinite(float(total))


OPTIONS: list[dict[str, Any]] = [
    {"devices": "cpu:0,cpu:1"},
    {"devices": "cpu:0,cpu:1", "policy": "even", "inline": False},
    {"devices": "cpu:0,cpu:1", "policy": "dynamic"},
    {"devices": "cpu:0,cpu:1", "replay": False},
    {"devices": "cpu:0,cpu:1", "reproducible": True},
    {"devices": "null:2", "memory": "null:0=600kB,null:1=600kB", "policy": "even"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(map(str, options.values())))
def test_a_task_is_assigned_once(watch: Watch, options: dict[str, Any], tmp_path: Any) -> None:
    with cx.Runtime(**options, trace=str(tmp_path / "t.json") if "replay" not in options else ""):
        program()
    check(watch)


def test_a_task_of_several_ranks_is_assigned_once(watch: Watch) -> None:
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        program(4000)
        grow.using(devices="n0/gpu:0,n1/gpu:0")(cx.zeros(4000))
    check(watch)


def check(watch: Watch) -> None:
    """Look at what was seen."""
    assert watch.changed <= CHANGES.keys()
    others = {
        name: found
        for name, writers in watch.writers.items()
        if (found := writers - WRITERS.get(name, set()) - {"graph/task.py", "cluster/everywhere.py"})
    }
    assert others == {}
    assert {"arrays", "after", "why", "finished"} <= watch.writers.keys()


def test_an_attribute_that_is_assigned_twice_is_seen(watch: Watch) -> None:
    task = Task(0, "t", None, None)
    task.id = 3
    task.line = 4
    assert watch.changed == set()
    task.line = 5
    assert watch.changed == {"line"}


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_what_a_planner_decides_cannot_be_written_to_a_task_unseen(watch: Watch, name: str) -> None:
    task = Task(0, "t", None, None)
    assert not hasattr(task, name)
    with pytest.raises(AssertionError, match=f"writes {name!r}"):
        setattr(task, name, True)
    assert watch.writers.get(name) is None
