"""Build the graphs of several ranks side by side, and run them on model memory with messages between them.

Before: testing/graphs.py, cluster/.  After: tests.  Knows no transport: a message is there once it was sent.

    g = RankGraphs(3)
    a, b = g.array(9, data=range(9)), g.array(9)
    g.call("use", reads=(a, halo(1)), writes=b)
    assert g.run(at_random(1)) == {}
"""

from __future__ import annotations

from typing import Any

from ..cluster.dealing import Dealing
from ..cluster.roster import of_platform
from ..cluster.table import Table
from ..errors import InvariantError
from ..geometry import Box
from ..graph.command import Chunk
from ..graph.instruction import Allocation, Instruction
from ..graph.message import Receive, Send
from ..graph.task import Task
from ..plan.split import even
from ..program.array import Array
from ..program.call import DEFAULT
from ..program.kernel import Kernel
from ..program.view import extract
from .as_told import AsTold
from .graphs import GraphBuilder
from .model_memory import Choose, perform

Mail = dict[Any, Any]
"""What was sent and not taken yet, by key."""


class AsDealt(AsTold):
    """Divides what is dealt to a rank evenly over the devices that a call names."""

    def divided(self, task: Task) -> tuple[Chunk, ...]:
        """Return the chunks of a call."""
        deal, kernel, options = task.deal, task.kernel, task.options
        assert deal is not None and kernel is not None and options is not None and self.chunks is None, "as it is dealt"
        names = (options.devices or "").split(",")
        if deal.box is None:
            return ()
        if deal.box != task.domain:
            task.map_parts()
        if kernel.reduces:
            return tuple([Chunk(names[i % len(names)], b, deal.first + i) for i, b in enumerate(deal.blocks)])
        if len(names) > 1 and kernel.split:
            return even(deal.box, kernel.split, names, kernel.granule)
        return (Chunk(names[0], deal.box),)


class RankGraphs:
    """One builder per rank; every call goes to all of them."""

    def __init__(self, ranks: int, devices: int = 1, **options: Any) -> None:
        probe = GraphBuilder(devices).platform
        table = Table(Dealing(ranks, of_platform(probe)), range(ranks))
        self.exchange = table.dealing.exchange
        self.ranks = [GraphBuilder(devices, planner=AsDealt(), seat=seat, **options) for seat in table.seats]

    def array(self, shape: Any, value: Any = None, *, data: Any = None, borrowed: bool = False) -> list[Array]:
        """Return a new array, as each rank knows it."""
        return [g.array(shape, value, data=data, borrowed=borrowed) for g in self.ranks]

    def call(self, name: str, **uses: Any) -> list[Task]:
        """Record a call on every rank, divided as far as `split` allows; arrays as `array` returned them."""
        uses = {"on": "all", **uses}
        return [
            g.call(name, **{key: _of(rank, use) if key in TOUCHES else use for key, use in uses.items()})
            for rank, g in enumerate(self.ranks)
        ]

    def submit(self, kernel: Kernel, *arrays: list[Array]) -> list[Task]:
        """Record the call of a real kernel on every rank, divided over all of its devices."""
        options = DEFAULT._replace(devices=",".join(self.ranks[0].devices))
        return [g.submit(kernel, tuple([a[rank] for a in arrays]), {}, options) for rank, g in enumerate(self.ranks)]

    def read(self, array: list[Array]) -> list[Task]:
        """Record a host read on every rank."""
        return [g.read(a) for g, a in zip(self.ranks, array, strict=True)]

    def run(self, choose: Choose = lambda ready: ready[0]) -> dict[tuple[int, int], BaseException]:
        """Run everything on model memory, in an order that keeps all edges; return who failed, by rank and id."""
        waiting = {(rank, i.id): i for rank, g in enumerate(self.ranks) for i in g.emitted}
        by_id = {id(i): key for key, i in waiting.items()}
        edges = {
            (rank, id): {(rank, e) for e in (*i.needs, *i.after) if (rank, e) in waiting and e != id}
            for (rank, id), i in waiting.items()
        }
        failed: dict[tuple[int, int], BaseException] = {}
        mail: Mail = {}
        while waiting:
            ready = [i for key, i in waiting.items() if not edges[key] and _there(i, mail)]
            if not ready:
                raise InvariantError(f"nothing can run: {list(waiting.values())} wait for each other")
            instruction = choose(ready)
            key = by_id[id(instruction)]
            reasons = [failed[key[0], need] for need in instruction.needs if (key[0], need) in failed]
            error = _step(instruction, mail, reasons[0] if reasons else None)
            if error is not None:
                failed[key] = error
            del waiting[key]
            for open_edges in edges.values():
                open_edges.discard(key)
        return failed


TOUCHES = ("reads", "writes", "updates", "reduces")


def _of(rank: int, use: Any) -> Any:
    """Return a use of arrays as one rank knows them."""
    if isinstance(use, list):
        return use[rank]
    if isinstance(use, tuple):
        return tuple([_of(rank, part) for part in use])
    return use


def _there(instruction: Instruction, mail: Mail) -> bool:
    step = instruction.step
    return not isinstance(step, Receive) or step.key(instruction.task) in mail


def _step(instruction: Instruction, mail: Mail, reason: BaseException | None) -> BaseException | None:
    """Carry one instruction out; return what it failed with."""
    step = instruction.step
    if isinstance(step, Send):
        told = reason is not None or step.route.grid is not None
        part = None if told else _part(step.allocation, step.box).copy()
        mail[step.key(instruction.task)] = (part, reason)
        return reason
    if reason is not None:
        return reason
    if isinstance(step, Receive):
        part, failure = mail.pop(step.key(instruction.task))
        if part is not None:
            _part(step.allocation, step.box)[...] = part
        failed: BaseException | None = failure
        return failed
    try:
        perform(instruction)
    except Exception as error:  # noqa: BLE001 - whatever a body raises
        return error
    return None


def _part(allocation: Allocation, box: Box) -> Any:
    return extract(allocation.data, allocation.box.lo, box, None)
