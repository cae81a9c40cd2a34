"""MPI carries packets and parts between processes: whatever MPI mpi4py finds, on a communicator of our own.

Before: cluster/carrier.py.  After: cluster/opening.py.  The only module that imports mpi4py, and only when it is asked to.

Everything happens on one thread at a time, most of it on the endpoint's, which initialises MPI itself if nobody has: so less
than THREAD_MULTIPLE will do. A blocked call of MPI would spin, so there is none: requests are tested, and the endpoint pauses between looks.
"""

from __future__ import annotations

import atexit
import warnings
from contextlib import suppress
from typing import Any

from ..errors import ClusterError, PerformanceWarning
from .actions import MovePart
from .carrier import Events

ROOM = 1 << 14
"""Bytes of a packet: rows of most stencils fit into it. Copying them takes a few us; asking the receiver first took 20."""
PACKETS, PARTS = 0, 1  # tags
MOST_PACKETS = 64
"""Packets that are taken before parts are looked at, so that neither starves."""


def load() -> Any:
    """Import mpi4py's MPI without initialising it. Raise ClusterError, naming the extra, if that cannot be done."""
    try:
        import mpi4py

        if mpi4py.rc.initialize is not False:  # nobody has imported MPI yet, or it is initialised
            mpi4py.rc.initialize = False
            mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ClusterError(
            f"MPI cannot be loaded ({reason}); pip install 'coexec[mpi]' brings mpi4py and an MPI, no system package"
        ) from error
    return MPI


class MpiCarrier:
    """All ranks of MPI's world."""

    room = ROOM
    polls = True
    ends_together = True

    def __init__(self, expected: int | None = None) -> None:
        self.rank, self.size = 0, 1
        self.shared = False  # until MPI says what it allows
        self._expected = expected  # ranks, as the launcher says
        self._mpi: Any = None
        self._comm: Any = None
        self._events: Events | None = None
        self._incoming = bytearray(ROOM)
        self._listening: Any = None
        self._requests: list[Any] = []
        self._about: list[MovePart | bytes] = []  # what each request is: a part, or a packet that leaves

    def start(self, events: Events) -> None:
        """Initialise MPI if nobody has, and meet the other ranks."""
        self._mpi = mpi = load()
        self._events = events
        if mpi.Is_finalized():
            raise ClusterError(
                "MPI was finalised in this process and cannot be used again; open one transport, and keep it"
            )
        if not mpi.Is_initialized():
            mpi.Init_thread(mpi.THREAD_MULTIPLE)
            atexit.register(_finalize, mpi)
        elif mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
            raise ClusterError(
                "MPI was initialised for one thread, and coexec uses one of its own; "
                "import coexec.cluster first, or initialise MPI with THREAD_SERIALIZED or more"
            )
        self.rank, self.size = mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()
        if self._expected is not None and self.size != self._expected:
            raise ClusterError(
                f"the launcher says {self._expected} ranks, and MPI ({_name(mpi)}) sees {self.size}: they do not belong to "
                "each other; use `coexec run -n`, mpiexec of the same environment, or srun --mpi=pmi2"
            )
        self.shared = mpi.Query_thread() >= mpi.THREAD_SERIALIZED
        if not self.shared and not self.rank:
            warnings.warn(
                f"this MPI ({_name(mpi)}) may be called on one thread only, so every message waits for that thread, "
                "20 to 400 us each where ranks share cores; MPICH of coexec[mpi] allows more",
                PerformanceWarning,
                stacklevel=2,
            )
        self._comm = mpi.COMM_WORLD.Dup()
        self._comm.Set_errhandler(mpi.ERRORS_RETURN)
        self._listen()

    def put(self, to: int, packet: bytes) -> None:
        """Write a packet."""
        self._ask(self._comm.Isend([packet, self._mpi.BYTE], to, PACKETS), packet)

    def move(self, move: MovePart) -> None:
        """Begin to move a part."""
        call = self._comm.Isend if move.side == "send" else self._comm.Irecv
        self._ask(call([move.buffer, self._mpi.BYTE], move.peer, PARTS), move)

    def _ask(self, request: Any, about: MovePart | bytes) -> None:
        if isinstance(about, bytes) and request.Test():
            return  # it has left, as small ones do
        self._requests.append(request)
        self._about.append(about)

    def _listen(self) -> None:
        self._listening = self._comm.Irecv([self._incoming, self._mpi.BYTE], self._mpi.ANY_SOURCE, PACKETS)

    def poll(self) -> bool:
        """Look what has happened, and say it."""
        happened = self._take_packets()
        if self._requests:
            done = self._mpi.Request.Testsome(self._requests)
            if done:
                happened = True
                self._settle(done)
        return happened

    def _take_packets(self) -> bool:
        assert self._events is not None
        status = self._mpi.Status()
        for number in range(MOST_PACKETS):
            if not self._listening.Test(status):
                return number > 0
            packet = bytes(memoryview(self._incoming)[: status.Get_count(self._mpi.BYTE)])
            self._listen()
            self._events.arrived(status.Get_source(), packet)
        return True

    def _settle(self, done: list[int]) -> None:
        assert self._events is not None
        for index in done:
            about = self._about[index]
            if isinstance(about, MovePart):
                self._events.moved(about)
        over = set(done)
        self._requests = [request for i, request in enumerate(self._requests) if i not in over]
        self._about = [about for i, about in enumerate(self._about) if i not in over]

    def lose(self, rank: int) -> None:
        """Packets leave without the other side."""

    def flushed(self) -> bool:
        """Tell whether every packet has left."""
        return not any(isinstance(about, bytes) for about in self._about)

    def stop(self, *, clean: bool) -> None:
        """Let go of the communicator. After a failure nothing that waits for others is called any more."""
        _last_end_was_clean[0] = clean
        if not clean:
            _left_behind.append(self)
            return
        self._listening.Cancel()
        self._listening.Wait()
        self._comm.Free()

    def forget(self) -> bool:
        """Take back what a failure left behind, without another rank; False if parts may still be under way."""
        self._listening.Cancel()
        self._listening.Wait()
        return not self._requests or bool(self._mpi.Request.Testall(self._requests))


_last_end_was_clean = [True]  # of this process's transports: all ranks said goodbye there, so all come to the end
_left_behind: list[MpiCarrier] = []  # transports that ended in a failure


def _name(mpi: Any) -> str:
    return str(mpi.Get_library_version()).strip().splitlines()[0].strip()


def _finalize(mpi: Any) -> None:
    """Finalise MPI at the end of the process, if all ranks come there; else it would wait for ever.

    mpiexec kills the other processes when one ends without it. So a transport that failed does not count if another one
    was closed by all ranks afterwards.
    """
    if mpi.Is_finalized() or not _last_end_was_clean[0]:
        return
    with suppress(mpi.Exception):
        if all(carrier.forget() for carrier in _left_behind):
            mpi.Finalize()
