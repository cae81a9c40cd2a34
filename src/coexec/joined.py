"""One rank of a program that a launcher started on several: a driver whose scheduler deals, and which agrees with the others.

Before: driver.py, cluster/team.py.  After: runtime.py.  Every rank makes the same calls in the same order; what each of
them computes, sends and receives is in its graphs, as in a simulation. Here is what programs may only be told alike:
failures, and whether a task is over.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from . import process
from .backend.network import NetworkBackend, told as told_of
from .cluster.everywhere import Dealt
from .cluster.following import digest, plans_of
from .cluster.here import check_root
from .cluster.host_data import checksum, describe_type, read_type
from .cluster.keeping import agree
from .cluster.speeds import Balance, Paced, as_words, read_paced, read_words
from .cluster.team import Team
from .config import Config
from .driver import Driver
from .errors import CoexecError, TaskFailed
from .execute.signals import WHY
from .graph.call import describe_read
from .graph.instruction import IfComputed
from .graph.message import Message
from .graph.task import Task, mark_reported, seen
from .observe.rank_speeds import Paces
from .opening import open_rank, own_devices
from .origin import program_line
from .plan.plan import Plan, named_for, plan_of_ranks
from .program.array import Array, check_dtype
from .program.call import Options
from .program.fuse import Operation
from .program.kernel import Kernel
from .program.sizes import check_size
from .program.storage import Storage
from .schedule.events import CHAIN, HELD, Read, Settle

AT_ONCE = 1 << 16
"""Bytes of first contents that are compared with the next message: their checksum takes some 20 us. Others take it meanwhile."""
SHARED = 1 << 30
"""Bytes of arrays that every rank is given at the end of a `with` block, so that it can read them afterwards."""


class RankDriver(Driver):
    """Drives one rank of a program."""

    def __init__(self, owner: Any, config: Config, memory: Mapping[str, str] | str | None, team: Team) -> None:
        """Begin, together with the other ranks of `team`."""
        team.check_thread()
        self.team = team
        self._left = False  # the program has left its block by an exception
        self._failed: list[TaskFailed] = []  # failures that the program is to be told, the same on every rank
        self._live: WeakValueDictionary[int, Storage] = WeakValueDictionary()
        with team.waits("the other ranks to open their runtimes", _where()):
            machine = open_rank(config, memory, team)
        self.devices = own_devices(config, team.local).devices or None  # as a runtime of this rank alone names them
        network = machine.lanes["network"]
        assert isinstance(network, NetworkBackend)
        self.network = network
        super().__init__(owner, replace(config, trace=trace_of(config.trace, team.rank), plan=""), machine)
        seat = machine.seat
        assert seat is not None
        self.seat = seat
        if config.plan:
            super().follow(plans_of(config.plan, team.size))
        if config.policy == "even":
            seat.share((1.0 / team.size,) * team.size)
        self.balance = Balance(
            seat.shares, seat.share, [Paces(self.pump.observe)], on=config.policy != "even", predict=seat.predict
        )
        self._measured: Task | None = None  # is waited for before ranks tell each other their speeds
        self.before_wait = self.let_send
        self.unseen = self._unseen
        self.pump.check_team = team.check
        team.asleep = self._asleep
        team.last_words = self._last_words

    # Calls ------------------------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Register a new array, with its first contents if `data` is not None: the same on every rank."""
        self.team.check_thread()
        super().adopt(storage, data, borrowed=borrowed)
        self._live[storage.id] = storage
        if data is not None and not storage.box.empty:
            self._compare(storage, data)

    def _compare(self, storage: Storage, data: Any) -> None:
        """See to it that all ranks gave an array the same contents: with the calls if it is small, else beside them."""
        where, number = _where(), storage.id
        if data.nbytes <= AT_ONCE:
            found = checksum(data)
            self.team.calls.note(f"array(A{number} {storage.shape} {storage.dtype.str} contents {found:x})", where)
            return
        array = Array(storage, storage.box, None)
        with self.lock:
            task = describe_read(array, self.owner, located=True)
            task.name = "compare"
            self._send(Read(task, array, lambda found: self.team.compare(number, checksum(found), where)))

    def array_from(self, data: Any, dtype: Any, root: int) -> Array:
        """Return a new array with the contents that one rank gives; the others learn its shape, and get what they read."""
        self.team.check_thread()
        check_root(root, self.team.size)
        mine = self.team.rank == root
        given = np.asarray(data, dtype) if mine else None
        said = b"" if given is None else describe_type(given.shape, check_dtype(given.dtype))
        with self.team.waits(f"the shape of what rank {root} gives", _where()):
            shape, kind = read_type(self.team.allgather(said)[root])
        storage = Storage(self.owner, check_size(shape, kind), kind)
        super().adopt(storage, given, borrowed=False)
        self._live[storage.id] = storage
        self.team.calls.note(f"array(A{storage.id} {shape} {kind.str} of rank {root})", _where())
        with self.lock:
            self.machine.seat.given(storage.id, storage.box, root)
        return Array(storage, storage.box, None)

    def submit(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
        """Record one call."""
        self.team.check_thread()
        if self.balance.due():
            self._compare_speeds()
        found = super().submit(kernel, args, kwargs, options)
        return Dealt(found, self.owner) if isinstance(found, Task) else found

    def record(
        self, kernel: Kernel, arrays: list[Array], scalars: dict[str, Any], options: Options
    ) -> tuple[Task, tuple[Array, ...]]:
        """Record a call whose arguments are bound."""
        found = super().record(kernel, arrays, scalars, options)
        if self.balance.watched:
            self._measured = found[0]
        return found

    def fuse(self, operation: Operation) -> bool:
        """Hold an elementwise operation back: what uses its result may come, and be one kernel with it."""
        self.team.check_thread()
        if self.balance.due():
            self._compare_speeds()
        return super().fuse(operation)

    def _compare_speeds(self) -> None:
        """Tell all ranks how fast this one is, and share the calls from here on by what all of them tell."""
        with self.lock:
            self.pump.catch_up()
            self._send(Settle(HELD))  # others may wait for what is held back before they come here
        measured, self._measured = self._measured, None
        if measured is not None and not measured.finished:
            self.wait_because(measured, "measurements")
        self.pump.drain()
        with self.team.waits("the speeds of all ranks", _where()):
            told = self.team.allgather(as_words(self.balance.measures[0].told()))
        self._rebalance([read_words(rank, words) for rank, words in enumerate(told)])

    def _rebalance(self, told: Sequence[Paced]) -> None:
        with self.lock:
            changed = self.balance.heard(told)
        if changed:
            self.recorder.note(changed)

    def plan(self, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Plan:
        """Return how all ranks would divide and place a call. Nothing runs."""
        self.team.check_thread()
        arrays, scalars = self.lending.settled(kernel, *kernel.bind(args, kwargs), read=True)
        mine = self.preview(kernel, arrays, scalars, options)
        with self.team.waits("the plans of all ranks", _where()):
            told = self.team.allgather(b"" if mine is None else json.dumps(mine.as_dict()).encode())
        plans = [named_for(Plan.from_dict(json.loads(words)), rank) for rank, words in enumerate(told) if words]
        return plan_of_ranks(plans, self.team.size)

    def follow(self, plans: Sequence[Plan]) -> None:
        """Follow plans that were made on as many ranks, every rank its part; all ranks must follow the same."""
        self.team.check_thread()
        self.team.calls.note(f"follow({len(plans)} plans {digest(plans)})", _where())
        super().follow(plans)

    # Waits ------------------------------------------------------------------------------------------------------------

    def begin_read(
        self, array: Array, readers: Sequence[int] | None = None, box: IfComputed | None = None
    ) -> tuple[Task, list[Any]]:
        """Record a host read."""
        self.team.check_thread()
        if self.balance.due():
            self._compare_speeds()
        return super().begin_read(array, readers, box)

    def read_on(self, array: Array, root: int) -> Any:
        """Wait for `array` and return its elements on one rank; None on the others. What fails, fails on all."""
        self.team.check_thread()
        check_root(root, self.team.size)
        task, box = self.begin_read(array, readers=(root,))
        self.wait_because(task, "read")
        failure = task.failure
        mine = "" if failure is None else told_of(failure, task)
        words = next(filter(None, self._agree(mine, f"what rank {root} reads")), "")
        if words:
            raise seen(failure or self.network.failed_elsewhere(words))
        return box.pop() if self.team.rank == root else None

    def agree(self, kind: type[CoexecError], step: Callable[[], Any] | None) -> list[Any]:
        """Do a step, if this rank has one; return what every rank found, or raise on all of them what one raised."""
        self.team.check_thread()
        with self.team.waits("a step of another rank", _where()):
            return agree(self.team.allgather, kind, step)

    def told(self, words: bytes, what: str) -> list[bytes]:
        """Return what every rank tells, by rank: `words` here. Waits for all ranks, because of `what`."""
        self.team.check_thread()
        with self.team.waits(what, _where()):
            return self.team.allgather(words)

    def wait_because(self, task: Task, what: str, timeout: float | None = None, others: Sequence[Task] = ()) -> bool:
        """Wait for one task of this rank, or for one of `others`, because of `what`; return False on time-out."""
        with self.team.waits(f"{what} (T{task.id} {task.name})", f"{task.call}:{task.line}" if task.call else _where()):
            return super().wait_because(task, what, timeout, others)

    def wait(self, name: str = "wait") -> None:
        """Wait for everything so far, and agree about what failed."""
        self.team.check_thread()
        super().wait(name)
        if name == "wait":
            self._agree_on_failures()

    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task on every rank; return False on all of them if one is not over in time."""
        assert isinstance(task, Dealt)
        self.team.check_thread()
        part = task.here
        over = part.finished or super().wait_for(part, timeout)
        failure = part.failure
        mine = "" if failure is None else told_of(failure, part)
        answers = self._agree([over, mine], f"T{part.id} {part.name} on every rank")
        if not all(answer[0] for answer in answers):
            return False
        words = next((answer[1] for answer in answers if answer[1]), "")
        if words:
            task.failure = failure or self.network.failed_elsewhere(words)
        task.finished = True
        return True

    def cancel(self, task: Task) -> bool:
        """Cancel nothing: other ranks may have begun with it."""
        del task
        return False

    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun on this rank."""
        self._left = True
        if reason == WHY:
            self.team.endpoint.abort(reason)
        super().cancel_pending(reason)

    def _agree(self, mine: Any, what: str) -> list[Any]:
        """Return what every rank says, by rank."""
        with self.team.waits(what, _where()):
            return [json.loads(words) for words in self.team.allgather(json.dumps(mine).encode())]

    def _agree_on_failures(self) -> None:
        """Find the failures that the program of no rank has looked at yet: every rank raises all of them."""
        known = {failure.round: failure for failure in self.executor.unseen()}
        unseen = [[round, told_of(failure, _of_round(round))] for round, failure in known.items()]
        mine = [unseen, self.network.seen_elsewhere(), self.balance.measures[0].told()]
        answers = self._agree(mine, "what failed on every rank")
        seen = {round for _, rounds, _ in answers for round in rounds}
        words = {round: text for rounds, *_ in answers for round, text in rounds if round not in seen}
        self._failed = [known.get(round) or self.network.failed_elsewhere(words[round]) for round in sorted(words)]
        self._rebalance([read_paced(rank, answer[2]) for rank, answer in enumerate(answers)])

    def _unseen(self) -> list[Any]:
        """Return the failures that the program has not looked at yet."""
        found, self._failed = self._failed, []
        for failure in found:
            mark_reported(failure)
        return found or self.executor.unseen()

    def _asleep(self) -> bool:
        """Tell whether nothing of this rank is under way but messages."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            return not self._engine.ready and all(isinstance(i.step, Message) for i in self._engine.issued())
        finally:
            self.lock.release()

    def _last_words(self) -> None:
        """Complete the trace of a process that is ended."""
        with suppress(Exception):
            self.pump.drain()
            self.recorder.close()

    # The end ----------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait for everything; at the end of a block, every rank gets the arrays that the program still holds."""
        if not self._left and not process.ending() and self.team.broken is None and self.executor.broken is None:
            self._share()
        with self.team.waits("the end of everything that was begun", _where()):
            super().finish()

    def _share(self) -> None:
        """Send every rank what it lacks of live arrays, smaller ones first made: those that nobody holds are gone then."""
        gc.collect()  # what only cycles keep alive would be alive on some ranks
        with self.lock:
            self._send(Settle(CHAIN))
            self.pump.collect()
        room, tasks = SHARED, []
        for _, storage in sorted(self._live.items()):
            room -= storage.box.volume * storage.dtype.itemsize
            if storage.state is not None and not storage.box.empty and room >= 0:
                tasks.append(self.begin_read(Array(storage, storage.box, None))[0])
        for task in tasks:
            self.wait_because(task, "what other ranks hold")

    @property
    def about(self) -> str:
        """What it runs on."""
        return f"rank {self.team.rank} of {self.team.size} {super().about}"


def trace_of(trace: str, rank: int) -> str:
    """Return the file that a rank streams its trace to: rank 0's is the one that was named."""
    if not trace or not rank or f".rank{rank}." in trace:
        return trace
    file = Path(trace)
    return str(file.with_name(f"{file.stem}.rank{rank}{file.suffix}"))


def _where() -> str:
    file, line = program_line(sys._getframe(1))
    return f"{file}:{line}"


def _of_round(round: int) -> Task:
    task = Task(0, "", None, None)
    task.round = round
    return task
