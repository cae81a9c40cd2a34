"""Several ranks of one program in one process: every call goes to one driver per rank, in lockstep.

Before: driver.py, cluster/.  After: runtime.py.  For simulations: the ranks of a real cluster have a process each, and
nothing in front of them. What a rank does is the same.

Ranks wait for each other, so a call is recorded by all of them before one of them waits for anything.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from .cluster.everywhere import Chained, Everywhere
from .cluster.following import plans_of
from .cluster.speeds import Balance
from .config import Config
from .driver import Driver
from .errors import RuntimeClosed
from .execute.signals import Signals
from .graph.call import foreign
from .graph.task import Task
from .machine.platform import HOST, Platform
from .observe.rank_speeds import Paces
from .opening import simulated_ranks
from .origin import program_line
from .plan.plan import Plan, plan_of_ranks
from .predict.learned import Learned
from .program import session
from .program.array import Array
from .program.assign import element
from .program.call import DEFAULT, Options
from .program.fuse import Line, Operation
from .program.kernel import Kernel
from .program.storage import Storage
from .program.value import Lending
from .schedule.events import Operated, Settle
from .schedule.fuse import FuseLayer

if TYPE_CHECKING:
    from .backend.simulated import Scenario


class Ranks:
    """Runs a program on all ranks of a simulated cluster."""

    def __init__(
        self,
        owner: Any,
        config: Config,
        memory: Mapping[str, str] | str | None,
        platform: Platform | str | os.PathLike[str] | None,
        scenario: Scenario | str | os.PathLike[str] | None,
    ) -> None:
        """Open one driver per node of a `platform` that is simulated; `owner` is whose arrays they serve."""
        self.owner, self.config, self.closed = owner, config, False
        self.lock = threading.RLock()
        self.platform, machines = simulated_ranks(config, memory, platform, scenario)
        self.machine = machines[0]._replace(seat=None)
        self.members = [Driver(None, _options(config, rank), m, alone=False) for rank, m in enumerate(machines)]
        for member in self.members:
            member.before_wait = self._let_send
        first = self.members[0].scheduler
        self._fuse = FuseLayer(
            self, self._describe_chain, first.plan.planner.runs, on=first.fuse.enabled, in_rows=config.reproducible
        )
        self.signals = Signals(self.lock, self.cancel_pending)
        self.signals.install()
        paces, seat = [Paces(member.pump.observe) for member in self.members], machines[0].seat
        assert seat is not None  # which shares a table with those of other ranks
        on = config.policy != "even"
        self.balance = Balance(seat.shares, seat.share, paces, on=on, predict=seat.predict)
        self._measured: list[Task] = []  # by rank; are waited for before speeds are compared
        self._last_array = 0
        self.lending = Lending(owner, lambda source, own: self.submit(element, (source, own), {}, DEFAULT), alone=False)
        self._live: WeakValueDictionary[int, Storage] = WeakValueDictionary()  # by number, as the program made them
        self.follow(plans_of(config.plan, len(machines)))

    # Arrays -----------------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array with every rank: all of them ran what makes it."""
        with self.lock:
            self.check_open()
            if data is not None and self._fuse.held is not None:
                self._fuse.end_chain()  # room for memory that is made now may depend on what came before
            shared = data is not None and not borrowed and not self.config.execute
            storage.state = []
            try:
                for member in self.members:
                    shadow = Storage(member, storage.shape, storage.dtype, storage.initial)
                    if shared and storage.state:
                        member.adopt_shared(shadow, storage.state[0].state.complete[HOST].allocation.data)
                    else:
                        member.adopt(shadow, data, borrowed=borrowed)
                    storage.state.append(shadow)
            except BaseException:
                self._number_alike()
                raise
            self._keep(storage)

    def _number_alike(self) -> None:
        """Let the next array have the same number on all ranks, though one of them has refused the last."""
        last = max(member.scheduler.arrays.last for member in self.members)
        for member in self.members:
            member.scheduler.arrays.last = last

    def _keep(self, storage: Storage) -> None:
        """Remember an array as long as the program does: ranks may hold it longer, each for reasons of its own."""
        self._last_array += 1
        storage.id = self._last_array
        self._live[storage.id] = storage

    def dropped(self, storage_id: int) -> None:
        """Do nothing: with the array its shadows are gone, and their ranks are told."""

    def _of(self, rank: int, array: Array) -> Array:
        """Return an array as a rank knows it."""
        return Array(array._storage.state[rank], array._box, array._cut)

    def _mine(self, kernel: Kernel, arrays: Sequence[Array], scalars: Mapping[str, Any]) -> None:
        for array in [*arrays, *(value for value in scalars.values() if type(value) is Array)]:
            if array._storage.session is not self.owner:
                raise foreign(kernel, array)

    def _bound(self, rank: int, arrays: Sequence[Array], scalars: dict[str, Any]) -> tuple[list[Array], dict[str, Any]]:
        given = {name: self._of(rank, v) if type(v) is Array else v for name, v in scalars.items()}
        return [self._of(rank, array) for array in arrays], given

    # Calls ------------------------------------------------------------------------------------------------------------

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call on every rank."""
        given, values = kernel.bind(args, kwargs)
        with self.lock:
            self.check_open()
            self._fuse.end_chain()
            if self.balance.due():
                self._compare_speeds()
            arrays, scalars = self.lending.settled(kernel, given, values)
            self._mine(kernel, arrays, scalars)
            recorded = self._all(
                lambda rank, member: member.record(kernel, *self._bound(rank, arrays, scalars), options)
            )
            if self.balance.watched:
                self._measured = [task for task, _ in recorded]
            for member, (task, _) in zip(self.members, recorded, strict=True):
                member.keep_pace(task)
            self.lending.let_go()
        if self.signals.pending is not None:
            self.signals.check()
        returned = recorded[0][1]
        if not returned:
            return Everywhere([task for task, _ in recorded], self.owner)
        made = tuple([self._returned([made[i] for _, made in recorded]) for i in range(len(returned))])
        return made[0] if kernel.returns.single else made

    def _returned(self, shadows: Sequence[Array]) -> Array:
        first = shadows[0]._storage
        storage = Storage(self.owner, first.shape, first.dtype)
        storage.state = [array._storage for array in shadows]
        self._keep(storage)
        return Array(storage, storage.box, None)

    def _all(self, act: Any) -> list[Any]:
        """Let every rank do the same; if one of them refuses, all do, and for the same reason."""
        found: list[Any] = []
        errors: list[Exception] = []
        for rank, member in enumerate(self.members):
            try:
                found.append(act(rank, member))
            except Exception as error:  # noqa: BLE001 - raised below, once every rank has come as far
                errors.append(error)
        if errors:
            raise errors[0]
        return found

    def _let_send(self, task: Task) -> None:
        """Have every rank lower what it holds back of what came before `task`, which one of them waits for."""
        for member in self.members:
            member.let_send(task)

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back: what uses its result may come, and be one kernel with it."""
        errors = np.geterr()
        if self.closed or not self._fuse.takes(operation, errors):
            return False
        with self.lock:
            if self.balance.due():
                self._fuse.end_chain()
                self._compare_speeds()
            self._fuse.operated(Operated(operation, copy_context(), errors, program_line(sys._getframe(1))))
        return True

    def _compare_speeds(self) -> None:
        """Share the calls from here on by what ranks have measured so far. Locked; nothing is held back in front."""
        for member in self.members:
            member.flush()
        measured, self._measured = self._measured, []
        for member, task in zip(self.members, measured, strict=False):
            member.wait_because(task, "measurements")
        for member in self.members:
            member.pump.drain()
        if changed := self.balance.heard([measures.told() for measures in self.balance.measures]):
            self.members[0].recorder.note(changed)

    # The ranks' schedulers stand behind the layer that fuses ----------------------------------------------------------

    @property
    def holding(self) -> bool:
        """Whether something is held back by some rank."""
        return any(member.scheduler.holding for member in self.members)

    def _describe_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, line: Line) -> Chained:
        return Chained(kernel, *kernel.bind(args, {}), context, line)

    def on(self, chain: Chained) -> None:
        """Record a chain of elementwise operations on every rank. Locked."""
        kernel, arrays, scalars, context, line = chain
        self._all(lambda rank, m: m.record_chain(kernel, *self._bound(rank, arrays, scalars), context.copy(), line))

    def settle(self, event: Settle) -> None:
        """Let every rank lower what it holds back."""
        del event
        self.flush()

    def begin_step(self, times: int = 0) -> Any:
        """Begin a step that the program names."""
        with self.lock:
            self._fuse.end_chain()
            return [member.begin_step(times) for member in self.members]

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a named step; tell whether every rank replayed it, and else why not."""
        with self.lock:
            if not left:
                self._fuse.end_chain()
            ends = [m.end_step(token, left=left) for m, token in zip(self.members, begun, strict=True)]
        return all(replayed for replayed, _ in ends), next((why for replayed, why in ends if not replayed), "")

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how all ranks would divide and place a call, and how long that is predicted to take. Nothing runs."""
        arrays, scalars = self.lending.settled(kernel, *kernel.bind(args, kwargs), read=True)
        self._mine(kernel, arrays, scalars)
        with self.lock:
            self.check_open()
            self._fuse.end_chain()
            found = self._all(lambda rank, m: m.preview(kernel, *self._bound(rank, arrays, scalars), options))
        plans: list[Plan] = [plan for plan in found if plan is not None]
        return plan_of_ranks(plans, len(self.members))

    def step_plan(self) -> Plan | None:
        """Return None: every rank plans its part call by call."""
        return None

    def follow(self, plans: Sequence[Plan]) -> None:
        """Follow plans that were made on as many ranks, every rank its part."""
        with self.lock:
            self._fuse.end_chain()
            self._all(lambda _, member: member.follow(plans))

    # Waits ------------------------------------------------------------------------------------------------------------

    def read(self, array: Array) -> Any:
        """Wait for `array` on every rank, as a program does that runs on each of them; return its elements."""
        if self.closed:
            return self.members[0].read(self._of(0, array))
        session.check_outside()
        with self.lock:
            self.check_open()
            self._fuse.end_chain()
            if self.balance.due():
                self._compare_speeds()
            begun = [member.begin_read(self._of(rank, array)) for rank, member in enumerate(self.members)]
            return self._all(lambda rank, member: member.finish_read(*begun[rank]))[0]

    def wait(self) -> None:
        """Wait for everything on every rank."""
        with self.lock:
            self.check_open()
            self._fuse.end_chain()
            begun = [member.begin_epoch("wait") for member in self.members]
            for member, epoch in zip(self.members, begun, strict=True):
                member.finish_epoch(epoch)
            self._compare_speeds()

    def flush(self) -> None:
        """Lower and issue everything so far, on every rank."""
        with self.lock:
            self.check_open()
            self._fuse.end_chain()
            for member in self.members:
                member.flush()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task on every rank; return False on time-out."""
        assert isinstance(task, Everywhere)
        with self.lock:
            over = all(m.wait_for(part, timeout) for m, part in zip(self.members, task.parts, strict=True))
        return over and task.over

    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun on some rank."""
        assert isinstance(task, Everywhere)
        parts = zip(self.members, task.parts, strict=True)
        stopped = [m.cancel(part) for m, part in parts if part.deal is not None and part.deal.box is not None]
        return all(stopped)

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun, on every rank."""
        for member in self.members:
            member.cancel_pending(reason)

    def stop_small_calls(self) -> None:
        """Do nothing: among ranks every call becomes a task, since what is pending differs from rank to rank."""

    def unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet, one of each call though several ranks met it."""
        return list({id(failure.told): failure for member in self.members for failure in member.unseen()}.values())

    # Beginning and end ------------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> int:
        """How many instructions were made so far, by all ranks."""
        return sum(member.instructions for member in self.members)

    @property
    def learned(self) -> Learned:
        """What was measured of kernels: nothing is kept of a simulation."""
        return self.members[0].learned

    def finish(self) -> None:
        """Wait for everything, and bring what was computed to the first rank, from which it can be read."""
        with self.lock:
            self._fuse.end_chain()
            self._gather()
            for member in self.members:
                member.flush()
        for member in self.members:
            member.finish()

    def wait_idle(self) -> None:
        """Wait until nothing is under way."""
        for member in self.members:
            member.wait_idle()

    def close(self) -> None:
        """Close every rank. Nothing may be under way."""
        self.closed = True
        self._fuse.enabled = False
        for member in self.members:
            member.close()
        if self.config.trace:
            from .observe.merging import merge_away

            merge_away([member.config.trace for member in self.members], self.config.trace, self.platform)
        self.signals.restore()

    def speak(self) -> None:
        """Say what is odd about the program."""
        for member in self.members:
            member.speak()

    def _gather(self) -> None:
        """Bring every array to the first rank, so that it can be read afterwards; not where nothing is computed."""
        if not self.config.execute:
            return
        held = [storage for _, storage in sorted(self._live.items()) if storage.state and not storage.box.empty]
        for storage in held:
            for member, shadow in zip(self.members, storage.state, strict=True):
                member.begin_read(Array(shadow, shadow.box, None), readers=(0,))

    def check_open(self) -> None:
        """Raise if nothing can be asked for any more."""
        if self.closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        for member in self.members:
            member.executor.check_broken()

    @property
    def about(self) -> str:
        """What it runs on."""
        return f"of {len(self.members)} ranks on {self.platform.name}"


def _options(config: Config, rank: int) -> Config:
    """Return the options of one rank; each writes a trace of its own, until they are made one."""
    file = Path(config.trace) if config.trace else None
    trace = "" if file is None else str(file.with_name(f"{file.stem}.rank{rank}{file.suffix}"))
    return replace(config, trace=trace, store="off", plan="")
