"""Several ranks of one program in one process: a runtime whose calls go to one runtime per rank, in lockstep.

Before: runtime.py, cluster/.  After: coexec/__init__.py.  For simulations: the ranks of a real cluster have a process each,
and nothing in front of them. What a rank does is the same.

Ranks wait for each other, so a call is recorded by all of them before one of them waits for anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from . import process
from .backend.launch import set_data
from .cluster.everywhere import Everywhere
from .config import Config
from .errors import ConfigError, RuntimeClosed
from .execute.fusing import Fusing
from .execute.signals import WHY, Signals
from .graph.call import describe, foreign, make_returned
from .graph.task import Task, mark_reported
from .machine.platform import HOST, Platform
from .plan.plan import Plan
from .program import session
from .program.array import Array, Storage
from .program.assign import element
from .program.call import DEFAULT, Options
from .program.fuse import Operation
from .program.kernel import Kernel
from .program.value import Lending
from .runtime import Runtime
from .stages import simulated_ranks

if TYPE_CHECKING:
    from .backend.machine import Machine
    from .backend.simulated import Scenario


class Member(Runtime):
    """One rank, beside others in the same process."""

    alone = False

    def adopt_shared(self, storage: Storage, data: Any) -> None:
        """Register a new array whose contents another rank has: nothing is computed, so nobody writes them."""
        with self._lock:
            self._check_open()
            late = self._upkeep.crowded(storage)
        if late:
            self._pass_epoch("memory")
        with self._lock:
            self._upkeep.adopt(storage, data, borrowed=False)
            set_data(storage.state.complete[HOST].allocation, data)

    def preview(self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], options: Options) -> Plan | None:
        """Return how this rank would divide and place its part of a call; None if it has none."""
        self.learned.take_time()
        if kernel.returns.names:
            arrays += make_returned(kernel, arrays, scalars, self)
        with self._lock:
            self._catch_up()
            task = describe(kernel, arrays, scalars, options, self)
            assert self._seat is not None
            self._seat.preview(task, self._planner.check)
            return None if task.deal is None or task.deal.box is None else self._planner.preview(task)


class Ranked(Runtime):
    """Runs a program on all ranks of a simulated cluster."""

    def _open(
        self,
        config: Config,
        memory: Mapping[str, str] | str | None,
        platform: Platform | str | os.PathLike[str] | None,
        scenario: Scenario | str | os.PathLike[str] | None,
        machine: Machine | None,
    ) -> None:
        """Open one process per node of a `platform` that is simulated."""
        del machine
        if config.plan:
            raise ConfigError("plan= names devices of one machine; with ranks=, every rank plans its part itself")
        self.platform, machines = simulated_ranks(config, memory, platform, scenario)
        self.machine = machines[0]._replace(seat=None)
        self.members = [Member(machine=m, **_options(config, rank)) for rank, m in enumerate(machines)]
        for member in self.members:
            member.before_wait = self._let_send
        first = self.members[0]
        self._fusing = Fusing(self._lock, self._enter_chain, first._planner.runs, on=first._fusing.on, timed=False)
        self._fusing.in_rows = config.reproducible
        self._signals = Signals(self._lock, self.cancel_pending)
        self._signals.install()
        self._last_array = 0
        self.lending = Lending(self, lambda source, own: self.submit(element, (source, own), {}, DEFAULT))
        self._live: WeakValueDictionary[int, Storage] = WeakValueDictionary()  # by number, as the program made them

    # Arrays -----------------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array with every rank: all of them ran what makes it."""
        with self._lock:
            self._check_open()
            self._flush_chain(data)
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
        last = max(member._upkeep.last_array for member in self.members)
        for member in self.members:
            member._upkeep.last_array = last

    def _keep(self, storage: Storage) -> None:
        """Remember an array as long as the program does: ranks may hold it longer, each for reasons of its own."""
        self._last_array += 1
        storage.id = self._last_array
        self._live[storage.id] = storage

    def _flush_chain(self, data: Any) -> None:
        """Let a chain go first if memory is about to be made: room for it may depend on what came before."""
        if data is not None and self._fusing.held is not None:
            self._fusing.flush()

    def dropped(self, storage_id: int) -> None:
        """Do nothing: with the array its shadows are gone, and their ranks are told."""

    def _of(self, rank: int, array: Array) -> Array:
        """Return an array as a rank knows it."""
        return Array(array._storage.state[rank], array._box, array._cut)

    def _mine(self, kernel: Kernel, arrays: Sequence[Array], scalars: Mapping[str, Any]) -> None:
        for array in [*arrays, *(value for value in scalars.values() if type(value) is Array)]:
            if array._storage.session is not self:
                raise foreign(kernel, array)

    def _bound(self, rank: int, arrays: Sequence[Array], scalars: dict[str, Any]) -> tuple[list[Array], dict[str, Any]]:
        given = {name: self._of(rank, v) if type(v) is Array else v for name, v in scalars.items()}
        return [self._of(rank, array) for array in arrays], given

    # Calls ------------------------------------------------------------------------------------------------------------

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call on every rank."""
        given, values = kernel.bind(args, kwargs)
        with self._lock:
            self._check_open()
            self._fusing.flush()
            arrays, scalars = self.lending.settled(kernel, given, values)
            self._mine(kernel, arrays, scalars)
            recorded = self._all(
                lambda rank, member: member.record(kernel, *self._bound(rank, arrays, scalars), options)
            )
            for member, (task, _) in zip(self.members, recorded, strict=True):
                member.keep_pace(task)
            self.lending.let_go()
        if self._signals.pending is not None:
            self._signals.check()
        returned = recorded[0][1]
        if not returned:
            return Everywhere([task for task, _ in recorded], self)
        made = tuple([self._returned([made[i] for _, made in recorded]) for i in range(len(returned))])
        return made[0] if kernel.returns.single else made

    def _returned(self, shadows: Sequence[Array]) -> Array:
        first = shadows[0]._storage
        storage = Storage(self, first.shape, first.dtype)
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
            if member._lookahead.holding:
                with member._lock:
                    if task.deal is None:
                        member._lookahead.flush()
                    else:
                        member._lookahead.release_until(task.round)

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back: what uses its result may come, and be one kernel with it."""
        return not self.closed and self._fusing.hold(operation)

    def _enter_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, where: tuple[str, int]) -> None:
        """Record a chain of elementwise operations on every rank. Locked."""
        arrays, scalars = kernel.bind(args, {})

        def record(rank: int, member: Runtime) -> None:
            with member._lock:
                member.record_chain(kernel, *self._bound(rank, arrays, scalars), context.copy(), where)

        self._all(record)

    def begin_step(self) -> Any:
        """Begin a step that the program names."""
        with self._lock:
            self._fusing.flush()
            return [member.begin_step() for member in self.members]

    def end_step(self, begun: Any, *, left: bool) -> tuple[bool, str]:
        """End a named step; tell whether every rank replayed it, and else why not."""
        with self._lock:
            if not left:
                self._fusing.flush()
            ends = [m.end_step(token, left=left) for m, token in zip(self.members, begun, strict=True)]
        return all(replayed for replayed, _ in ends), next((why for replayed, why in ends if not replayed), "")

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how all ranks would divide and place a call, and how long that is predicted to take. Nothing runs."""
        arrays, scalars = self.lending.settled(kernel, *kernel.bind(args, kwargs), read=True)
        self._mine(kernel, arrays, scalars)
        with self._lock:
            self._check_open()
            self._fusing.flush()
            found = self._all(lambda rank, m: m.preview(kernel, *self._bound(rank, arrays, scalars), options))
        plans: list[Plan] = [plan for plan in found if plan is not None]
        seconds, joules = [p.seconds for p in plans], [p.joules for p in plans]
        return replace(
            plans[0],
            parts=tuple([part for plan in plans for part in plan.parts]),
            seconds=None if None in seconds else max(filter(None, seconds), default=0.0),
            joules=None if None in joules else sum(filter(None, joules)),
            spread=max(plan.spread for plan in plans),
            single={},
            limit_s=None,
            left_out={device: why for plan in plans for device, why in plan.left_out.items()},
            why=f"{len(plans)} of {len(self.members)} ranks; in each: {plans[0].why}",
        )

    # Waits ------------------------------------------------------------------------------------------------------------

    def read(self, array: Array) -> Any:
        """Wait for `array` on every rank, as a program does that runs on each of them; return its elements."""
        if self.closed:
            return self.members[0].read(self._of(0, array))
        session.check_outside()
        with self._lock:
            self._check_open()
            self._fusing.flush()
            begun = [member.begin_read(self._of(rank, array)) for rank, member in enumerate(self.members)]
            return self._all(lambda rank, member: member.finish_read(*begun[rank]))[0]

    def wait(self) -> None:
        """Wait for everything on every rank; raise all failures that the program has not seen yet, as a group."""
        with self._lock:
            self._check_open()
            self._fusing.flush()
            begun = [member.begin_epoch("wait") for member in self.members]
            for member, epoch in zip(self.members, begun, strict=True):
                member.finish_epoch(*epoch)
        unseen = self.unseen()
        for failure in unseen:
            mark_reported(failure)
        if unseen:
            raise ExceptionGroup(f"{len(unseen)} task{'s' * (len(unseen) > 1)} failed", unseen)

    def flush(self) -> None:
        """Lower and issue everything so far, on every rank."""
        with self._lock:
            self._check_open()
            self._fusing.flush()
            for member in self.members:
                member.flush()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task on every rank; return False on time-out."""
        assert isinstance(task, Everywhere)
        with self._lock:
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

    def unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet, one of each call though several ranks met it."""
        return list({id(failure.told): failure for member in self.members for failure in member.unseen()}.values())

    # Beginning and end ------------------------------------------------------------------------------------------------

    @property
    def instructions(self) -> int:
        """How many instructions were made so far, by all ranks."""
        return sum(member.instructions for member in self.members)

    def close(self) -> None:
        """Wait for everything and close every rank. What was computed can be read from the first one. Idempotent."""
        if self.closed:
            return
        try:
            with self._lock:
                self._fusing.flush()
                self._gather()
                for member in self.members:
                    member.flush()
            for member in self.members:
                member._settle()
        except (KeyboardInterrupt, SystemExit):
            self.cancel_pending(WHY)
            raise
        finally:
            with self._signals.deferred():
                self.closed = True
                self._fusing.stop()
                for member in self.members:
                    member.close()
                self._one_trace()
                self._signals.restore()
                session.remove(self)
                process.closed(self)

    def _one_trace(self) -> None:
        """Make one trace of those of all ranks."""
        if self.config.trace:
            from .observe.merging import merge

            files = [Path(member.config.trace) for member in self.members]
            merge(files, self.config.trace, self.platform)
            for file in files:
                file.unlink()

    def _gather(self) -> None:
        """Bring every array to the first rank, so that it can be read afterwards; not where nothing is computed."""
        if not self.config.execute:
            return
        held = [storage for _, storage in sorted(self._live.items()) if storage.state and not storage.box.empty]
        for storage in held:
            for member, shadow in zip(self.members, storage.state, strict=True):
                member.begin_read(Array(shadow, shadow.box, None), readers=(0,))

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        for member in self.members:
            member._executor.check_broken()

    def __repr__(self) -> str:
        return f"<cx.Runtime of {len(self.members)} ranks on {self.platform.name}{', closed' if self.closed else ''}>"


def _options(config: Config, rank: int) -> dict[str, Any]:
    """Return the options of one rank; each writes a trace of its own, until they are made one."""
    file = Path(config.trace) if config.trace else None
    trace = None if file is None else str(file.with_name(f"{file.stem}.rank{rank}{file.suffix}"))
    kept = ("sync", "diagnostics", "debug", "placement", "data_threshold", "lanes", "horizon", "policy", "objective")
    more = ("energy_cap", "watts", "reproducible", "fuse", "lookahead", "replay", "inline")
    return {"trace": trace, "store": "off", **{name: getattr(config, name) for name in (*kept, *more)}}
