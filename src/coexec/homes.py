"""Arrays are made, come home and leave again: what is between a program's arrays and the stages that know them.

Before: pump.py, program/small.py.  After: driver.py.  Decides nothing about a task.

An array may come home (program/storage.py says what that is) when all of it is on the host, and nothing that touches it
there is under way. It leaves home when a task is recorded that touches it. A new small array has a number and its first
contents, and no stage hears of it until it leaves home for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .backend.launch import set_data
from .config import Config
from .lower.state import USERS, ArrayState
from .machine.platform import HOST, USER
from .program.array import Array
from .program.at_home import KINDS, MOST
from .program.small import SmallCalls
from .program.storage import HandleEnd, Storage
from .program.value import numbers_known
from .program.view import extract
from .pump import EventPump
from .schedule.events import Crowded, Made

HOSTS = 1 << HOST
GONE = 64  # arrays without handles whose memory may wait to be freed


class Homes:
    """The arrays of one rank of a program."""

    def __init__(self, pump: EventPump, config: Config, wait: Callable[[str], None]) -> None:
        """Begin. `wait` waits for everything so far, because of what its argument names."""
        self._pump = pump
        self._wait = wait
        self._lock, self._send, self._scheduler, self._executor = pump.lock, pump.send, pump.scheduler, pump.executor
        self.small = self._small_calls(config)
        self.used = self.small is not None  # whether arrays may be at home
        self.snapshot = self._snapshot if self.small is None else self.small.snapshot

    def _small_calls(self, config: Config) -> SmallCalls | None:
        """Return what makes calls on small arrays at once; None where each must become a task.

        Among ranks it must: what is pending differs from rank to rank, and all of them must number calls alike.
        """
        pump, parts = self._pump, self._pump.parts
        told = config.debug or config.reproducible or bool(config.plan) or parts.diagnostics.strict
        cores = any(device.abilities.on_numpy for device in parts.platform.devices)
        if parts.inline is None or told or not cores or self._scheduler.limits_host:
            return None
        record = pump.recorder.small if pump.recorder.tracing else None
        return SmallCalls(pump.owner, self._lock, self._scheduler.arrays, pump.signals, self.come, record)

    def stop_small_calls(self) -> None:
        """Make no more small calls: this runtime is over, or belongs to another process."""
        if self.small is not None:
            self.small.on = False

    # Arrays that are made -----------------------------------------------------------------------------------------------

    def adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> None:
        """Take a new array, with its first contents if `data` is not None."""
        storage.small = self.small
        if self.small is not None and not borrowed and storage.box.volume <= MOST and storage.dtype.kind in KINDS:
            home = None if data is None else np.array(data, order="C")
            with self._lock:
                self._pump.check_open()
                arrays = self._scheduler.arrays
                arrays.last = storage.id = arrays.last + 1
                storage.home = home
            return
        target = self._adopt(storage, data, borrowed=borrowed)
        if target is not None:
            np.copyto(target, data)

    def adopt_at_home(self, storage: Storage, data: np.ndarray[Any, Any]) -> None:
        """Take a new array that is at home in `data`, which nobody else has."""
        storage.small = self.small
        with self._lock:
            self._pump.check_open()
            arrays = self._scheduler.arrays
            arrays.last = storage.id = arrays.last + 1
            storage.home, self.used = data, True

    def _snapshot(self, array: Array) -> np.ndarray[Any, Any] | None:
        """Return a copy of an array as it is now, read-only; None if it is not at home."""
        if type(array) is not Array or not self.used:
            return None
        with self._lock:
            home = array._storage.home
            if home is None:
                return None
            self._pump.check_open()
            copy = np.array(extract(home, (0,) * home.ndim, array._box, array._cut), order="C")
        copy.flags.writeable = False
        return copy

    def adopt_shared(self, storage: Storage, data: Any) -> None:
        """Take a new array whose contents another rank has: nothing is computed, so nobody writes them."""
        self._adopt(storage, data, borrowed=False)
        set_data(storage.state.complete[HOST].allocation, data)

    def _adopt(self, storage: Storage, data: Any, *, borrowed: bool) -> Any:
        """Let the stages know a new array; return the host memory that its first contents are to be copied to, or None."""
        memory = None if data is None else USER if borrowed else HOST
        with self._lock:
            self._pump.check_open()
            if len(self._pump.dropped) > GONE:  # small calls free nothing
                self._pump.collect()
            late = memory == HOST and self._make_room(storage)
        if late:
            self._wait("memory")
        with self._lock:
            self._made(storage, memory)
            if memory is None:
                return None
            if not borrowed:
                return self._memory(storage)
            allocation = storage.state.complete[memory].allocation
            self._pump.recorder.given(allocation)
            allocation.data = allocation.frozen = data
            return None

    def _memory(self, storage: Storage) -> Any:
        """Return fresh host memory for the first contents of an array that the stages know. Locked."""
        allocation = storage.state.complete[HOST].allocation
        self._pump.recorder.given(allocation)
        self._executor.allocate(allocation)
        return allocation.data

    def _make_room(self, storage: Storage) -> bool:
        """Make room for an array's first contents; tell whether everything so far must be over before they fit."""
        if not self._scheduler.limits_host:
            return False
        self._pump.collect()
        self._send(Crowded(storage))
        return self._scheduler.is_crowded(storage)

    def _made(self, storage: Storage, memory: int | None) -> None:
        """Let the stages know an array, whose contents are in `memory` if that is not None. Locked."""
        self._send(Made(storage, memory))
        storage.end = HandleEnd(storage.session, storage.id)

    # Coming and leaving -------------------------------------------------------------------------------------------------

    def come(self, storage: Storage) -> np.ndarray[Any, Any] | None:
        """Return the host memory of an array if it may be read and changed now; read-only if it is somebody else's. Locked.

        While something has failed and is remembered, arrays stay away: some may be poisoned.
        """
        engine = self._executor.engine
        if storage.dtype.kind not in KINDS or engine.failed or self._executor.broken is not None:
            return None
        state: ArrayState | None = storage.state
        if state is None:
            return None if storage.initial is None else np.full(storage.shape, storage.initial, storage.dtype)
        valid = state.valid.uniform
        memory = HOST if valid == HOSTS else USER if valid == USERS else None
        backing = None if memory is None else state.complete.get(memory)
        if backing is None or self._scheduler.holding:
            return None
        if not engine.idle and backing.touched_by(engine.open):
            return None
        home: np.ndarray[Any, Any] | None = backing.allocation.data
        if home is not None and storage.lent:
            numbers_known(storage, home)
        return home

    def leave(self, arrays: Iterable[Any]) -> None:
        """Let the stages know arrays as they are now: a task touches them. Locked."""
        for array in arrays:
            storage = array._storage
            home = storage.home
            if storage.state is None:
                self._made(storage, None if home is None else HOST)
                if home is not None:
                    np.copyto(self._memory(storage), home)
            storage.home = None
