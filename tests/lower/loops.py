"""Programs that repeat a step, with replay and without: the same instructions, but for their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import coexec as cx
from coexec.graph.instruction import Allocation, Epoch, Horizon, Instruction, Launch
from coexec.testing import GraphBuilder

SIZE = 24


@cx.kernel(split=0, x=cx.read, y=cx.update)
def add(x: Any, y: Any) -> None:
    y += x


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smooth(x: Any, y: Any) -> None:
    y[...] = 0.5 * x[1:-1] + 0.25 * (x[:-2] + x[2:])


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="wrap", shape="axes")), y=cx.write)
def ring(x: Any, y: Any) -> None:
    y[...] = 0.5 * (x[:-2] + x[2:])


@cx.kernel(split=0, x=cx.read(cx.all), y=cx.update)
def gather(x: Any, y: Any) -> None:
    y += x.mean()


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"))
def total(x: Any, total: Any) -> None:
    total += x.sum()


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def half(x: Any) -> Any:
    return x / 2


@cx.kernel(split=0, x=cx.read(lambda c: slice(max(0, c.lo[0] - Reach.by), c.hi[0])), y=cx.update)
def behind(x: Any, y: Any) -> None:
    y += x[-y.size :]


class Reach:
    """How far back `behind` looks: a value that a range mapper takes from outside."""

    by = 1


@cx.host_task(x=cx.read)
def look(x: Any) -> None:
    x.sum()


Step = tuple[str, int, int, int]
"""What is called, on which two arrays, and where."""
CALLS = ("add", "smooth", "ring", "pieces", "gather", "total", "half", "behind", "look", "odd", "read", "new")


def steps() -> st.SearchStrategy[Step]:
    """Return a call of the body of a loop."""
    return st.tuples(st.sampled_from(CALLS), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))


class Loop:
    """Four arrays, some of which may be new ones in each turn, and a scalar."""

    def __init__(
        self, devices: int, *, peers: bool, replay: bool, lookahead: str = "none", capacity: int | None = None
    ) -> None:
        self.g = GraphBuilder(devices, peers=peers, replay=replay, lookahead=lookahead, capacity=capacity)
        values = np.arange(SIZE, dtype=float)
        self.arrays: list[Any] = [self.g.array(SIZE, data=values + i) for i in range(4)]
        self.scalar = self.g.array((), 0.0)
        every = ",".join(self.g.devices)
        self.places = [self.g.devices[0], self.g.devices[-1], every, every]

    def turn(self, body: list[Step]) -> None:
        """Run the body of the loop once, and swap two arrays, as a stencil program does."""
        with self.g:
            for step in body:
                self.do(*step)
        self.arrays[0], self.arrays[1] = self.arrays[1], self.arrays[0]

    def do(self, what: str, first: int, second: int, place: int) -> None:
        """Do one thing."""
        x, y, on = self.arrays[first], self.arrays[second], self.places[place]
        if what in ("half", "new"):
            made = half.using(devices=on)(x) if what == "half" else self.g.array(SIZE, 1.0)
            old, self.arrays[second] = y, made
            if all(old is not array for array in self.arrays):
                self.g.drop(old)
        elif what == "total":
            total.using(devices=on)(x, self.scalar)
        elif what == "look":
            look(x)
        elif what == "read":
            self.g.read(self.scalar if first else x)
        elif x is not y:
            kernel = {
                "add": add,
                "smooth": smooth,
                "ring": ring,
                "pieces": smooth,
                "gather": gather,
                "behind": behind,
                "odd": add,
            }[what]
            odd = what == "odd"
            again = 3 if what == "pieces" else 1
            kernel.using(devices=on, oversubscribe=again)(x[1::2] if odd else x, y[1::2] if odd else y)


def normalised(emitted: list[Instruction]) -> list[tuple[Any, ...]]:
    """Return instructions with the numbers that they would have if none were left out, and only edges that matter.

    What a horizon or an epoch stands for is over: it is all the same which of it is named. Of what an instruction comes
    after, everything counts, whether it is named or follows from others: a recipe may name more than analysis does.
    """
    before: dict[int, int] = {}  # per instruction: all that it comes after, as bits
    ids = {instruction.id: number for number, instruction in enumerate(emitted)}
    tasks: dict[int, int] = {}
    places: dict[int, int] = {}

    def place(value: Any) -> Any:
        allocation = getattr(value, "allocation", value)
        if not isinstance(allocation, Allocation):
            return None
        return places.setdefault(id(allocation), len(places)), allocation.memory, allocation.box

    found = []
    over = last = -1
    for i in emitted:
        if isinstance(i.step, Horizon | Epoch):
            over, last = (last, i.id) if isinstance(i.step, Horizon) else (i.id, i.id)
        task = None if i.task is None else tasks.setdefault(i.task.id, len(tasks))
        fields = ("allocation", "binding", "partials", "source", "target")
        seen: list[Any] = [place(getattr(i.step, name)) for name in fields if hasattr(i.step, name)]
        seen.append([getattr(i.step, name, None) for name in ("boxes", "value", "reason", "operator")])
        if isinstance(i.step, Launch):
            seen = [(place(b), b.name, b.box, b.cut, b.writes, b.pad, b.boxes) for b in i.step.bindings] + [
                i.step.chunk
            ]
        needs = tuple(sorted({ids[edge] for edge in i.needs if edge > over}))
        before[i.id] = 0
        for edge in (*i.needs, *i.after):
            if edge > over:
                before[i.id] |= before[edge] | 1 << ids[edge]
        since = before[i.id] >> ids[over] + 1 if over >= 0 else before[i.id]
        found.append((i.kind, i.device, task, i.task and i.task.name, seen, needs, since, i.step.priority))
    return found


def both(
    devices: int,
    *,
    peers: bool,
    program: Callable[[Loop], None],
    lookahead: str = "none",
    capacity: int | None = None,
) -> tuple[Loop, Loop]:
    """Run a program without replay and with it, on devices whose memories have so many bytes."""
    plain, replayed = [
        Loop(devices, peers=peers, replay=replay, lookahead=lookahead, capacity=capacity) for replay in (False, True)
    ]
    loops = plain, replayed
    for loop in loops:
        program(loop)
    return loops
