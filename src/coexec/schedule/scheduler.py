"""The scheduler: events in, batches of instructions out. All layers in one list, in order.

Before: every layer of schedule/.  After: pump.py, testing/graphs.py, and whoever tries plans.  Pure: it has no thread, no
clock and no device, and whoever drives it holds a lock of its own. Timers and completions come in as events.

The way of a call:

1. schedule/fuse.py ends the chain of operators that is held back, if there is one.
2. schedule/deal.py, among ranks only, says which part of the call is this rank's.
3. schedule/link.py numbers it and finds what it comes after, box by box.
4. schedule/plan.py decides which devices compute which parts of it.
5. schedule/hold.py holds it back while one of its allocations may still grow.
6. schedule/lower.py makes its instructions, from a recipe where such a call has come before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ..graph.command import Command
from ..graph.instruction import Launch
from ..lower.lowering import Lowering
from ..lower.recipes import Recipes
from ..machine.platform import HOST
from ..plan.candidate import Share
from ..plan.decisions import Births, Decisions, Version
from ..plan.plan import Plan
from ..plan.planned import IN_CALLER
from ..plan.policies import Loads
from .deal import DealLayer
from .events import (
    HELD,
    Adopted,
    Batch,
    Called,
    Crowded,
    Dropped,
    Event,
    Failed,
    Finished,
    Made,
    Mark,
    Operated,
    Over,
    Queued,
    Read,
    Settle,
    StepTold,
)
from .fuse import Describe, FuseLayer
from .hold import HoldLayer
from .host_retry import HostRetry
from .layer import Layer, Moment
from .link import LinkLayer
from .lower import LowerLayer, ReplayCounts
from .plan import HandOut, PlanLayer, Planning

if TYPE_CHECKING:
    from ..backend.base import Ran
    from ..cluster.table import Seat
    from ..graph.instruction import Instruction
    from ..graph.task import Task
    from ..plan.steps.telling import ToldPlanner
    from ..program.fuse import Operation
    from ..program.storage import Storage

NOTHING: list[Batch] = []
"""What most completions lead to. Nobody changes it."""


class Settings(NamedTuple):
    """How a scheduler goes about its work."""

    lookahead: str = "auto"  # what is held back while allocations may grow: auto, none or infinite
    replay: bool = True  # calls that were lowered before are not analysed again
    fuse: bool = True  # chains of operators become one kernel
    in_rows: bool = False  # only chains that are cut between rows, so that bits do not depend on cuts
    inline: bool = False  # the caller may run a short kernel itself while nothing else is under way
    handout: HandOut = HandOut()  # of parts on demand
    ahead: float = inf  # seconds of work that devices have before further calls wait to be planned


class Scheduler:
    """Turns what a program does into instructions."""

    def __init__(
        self,
        lowering: Lowering,
        planner: Planning,
        loads: Loads,
        describe: Describe,
        settings: Settings,
        *,
        version: Version,
        seat: Seat | None = None,
        retry: HostRetry | None = None,
        steps: ToldPlanner | None = None,
    ) -> None:
        """Put the layers together. `version` tells when plans that were made do not hold any more."""
        self.moment = moment = Moment()
        self._retry = retry
        self._seat = seat
        self.version = version
        self.replays = settings.replay
        self.arrays = Births()
        self.lowering = lowering
        if seat is not None:
            lowering.join(seat.rank)
        decisions = Decisions(loads, version, self.arrays, on=settings.replay)
        self.lower = LowerLayer(lowering, Recipes(lowering, on=settings.replay), moment)
        self.hold = HoldLayer(self.lower, settings.lookahead)
        self.plan = PlanLayer(
            self.hold,
            planner,
            decisions,
            loads,
            moment,
            inline=settings.inline,
            handout=settings.handout,
            ahead=settings.ahead,
            steps=steps,
        )
        self.link = LinkLayer(self.plan, shapes=settings.replay)
        first: Layer = self.link if seat is None else DealLayer(self.link, seat, planner.check)
        self._behind = first
        self.fuse = FuseLayer(first, describe, planner.runs, on=settings.fuse, in_rows=settings.in_rows)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Called: self.fuse.on,
            Read: self.fuse.on,
            Mark: self._marked,
            Dropped: first.on,  # a chain that holds an array keeps it from being dropped
            Operated: self.fuse.operated,
            Settle: self.fuse.settle,
            Finished: self._finished,
            Failed: self._failed,
            Queued: self._queued,
            Made: self._made,
            Crowded: self._crowded,
            Over: self.lower.over,
            Adopted: self._adopted,
            StepTold: self._told,
        }

    def handle(self, event: Event, now: float = 0.0, *, idle: bool = False) -> list[Batch]:
        """Take an event; return what is to be handed over because of it.

        `idle` tells that nothing is under way. If this raises, `take` still has what came before the error.
        """
        moment = self.moment
        moment.now, moment.idle = now, idle
        self._handlers[type(event)](event)
        out, moment.out = moment.out, []
        return out

    def called(self, task: Task, now: float, *, idle: bool) -> list[Batch]:
        """Take a call, as the event `Called` does."""
        moment = self.moment
        moment.now, moment.idle = now, idle
        if self._seat is None and self.fuse.held is None:
            self.link.call(task)
        else:
            self.fuse.on(Called(task))
        out, moment.out = moment.out, []
        return out

    def take(self) -> list[Batch]:
        """Return the batches that nobody has been given yet."""
        moment = self.moment
        out, moment.out = moment.out, []
        return out

    # What is not passed from layer to layer ---------------------------------------------------------------------------

    def _marked(self, event: Mark) -> None:
        (self._behind if event.horizon else self.fuse).on(event)  # a horizon ends no chain: nobody waits for it

    def _adopted(self, event: Adopted) -> None:
        self.plan.planner.follow(event.plans)

    def _told(self, event: StepTold) -> None:
        self.plan.told(event.times)

    def _made(self, event: Made) -> None:
        storage = event.storage
        if not storage.id:  # a small one has its number already
            self.arrays.last += 1
            storage.id = self.arrays.last
        self.link.graph.register(storage)
        self.lowering.register(storage, event.memory)

    def _crowded(self, event: Crowded) -> None:
        """Make room for an array's first contents, whatever is held back."""
        self.plan.settle(Settle(HELD))
        self.lower.emit(self.lowering.make_room(event.storage))

    def _finished(self, event: Finished) -> None:
        self.plan.finished(event.ran)

    def finished(self, ran: Ran, *, idle: bool) -> list[Batch]:
        """Take the end of an instruction, as the event `Finished` does: there are more of them than of all other events."""
        plan = self.plan
        if type(ran.instruction.step) is not Launch and not plan.waiting:
            return NOTHING  # only kernels are accounted for, and nothing waits for devices
        moment = self.moment
        moment.now, moment.idle = 0.0, idle
        plan.finished(ran)
        if not moment.out:
            return NOTHING
        out, moment.out = moment.out, []
        return out

    def _failed(self, event: Failed) -> None:
        if self._retry is not None:
            self.lower.emit(self._retry.instructions(event.ran))

    def _queued(self, event: Queued) -> None:
        command, shares = event.planned[:2]
        self.plan.loads.add(command.chunks[0].device, shares[0].seconds)

    # Questions --------------------------------------------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether something is held back."""
        return self.fuse.holding

    @property
    def lost(self) -> Mapping[str, str]:
        """The devices that compute nothing any more, and why."""
        return self._retry.lost if self._retry is not None else {}

    @property
    def counts(self) -> ReplayCounts:
        """How many calls were replayed, and how many were not."""
        return self.lower.counts

    @property
    def since_mark(self) -> int:
        """How many tasks there were since the last horizon or epoch."""
        return self.link.graph.since_horizon

    def takes(self, operation: Operation, errors: Mapping[str, Any]) -> bool:
        """Tell whether an operation can be held back."""
        return self.fuse.takes(operation, errors)

    def preview(self, task: Task) -> Plan | None:
        """Return how a call would be divided and placed, as data; None if nothing of it is this rank's."""
        if self._seat is not None:
            self._seat.preview(task, self.plan.planner.check)
            if task.deal is None or task.deal.box is None:
                return None
        return self.plan.planner.preview(task)

    @property
    def limits_host(self) -> bool:
        """Whether the host's memory is limited."""
        return self.lowering.coherence.budget.accounts[HOST] is not None

    def is_crowded(self, storage: Storage) -> bool:
        """Tell whether everything so far must be over before an array's first contents fit into the host's memory."""
        account = self.lowering.coherence.budget.accounts[HOST]
        return account is not None and account.crowded(storage.box.volume * storage.dtype.itemsize)

    def live(self) -> int:
        """Return how many entries are remembered of tasks and instructions: bounded by the horizons."""
        return self.link.graph.live() + self.lowering.live()

    def ran_inline(self, task: Task, known: Launch) -> Instruction:
        """Return the instruction of a call that the caller has run as it ran `known` before. Nothing is held back."""
        self.link.graph.add(task)
        command = Command(task.id, task, (known.chunk,), task.after, IN_CALLER)
        share = Share(known.body, known.model, known.work, known.predicted, known.together)
        instructions = self.lowering.lower(command, [share])
        task.let_go()
        return instructions[-1]

    def gather(self, task: Task) -> list[Batch]:
        """Return what brings every array to the host, so that it outlives the devices. Nothing may be held back."""
        self.link.graph.mark(task)
        self.lower.gather(list(self.lowering.states()), task)
        return self.take()
