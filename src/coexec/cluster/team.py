"""This process among the ranks of its program, from the first runtime to the end of the process.

Before: cluster/endpoint.py, calls.py, watching.py.  After: cluster/opening.py, joined.py.

A team has one transport, which all runtimes of the program use one after the other. Ranks that are threads of one process,
as tests have them, are teams as well: each thread has its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..errors import ClusterError, ProgramError, RanksDiverge, RanksHang
from ..origin import program_line
from .calls import Calls
from .collectives import allgather
from .endpoint import Endpoint
from .host_data import Difference, HostData, as_note
from .sharing import LocalRank
from .watching import Judge, Standing, Waiting, Watch, read_words

STATUS, ASKED, DATA = 1, 2, 3
"""What notes are about: a rank that waits, rank 0's question how all stand, and the contents of an array."""


class Team:
    """One rank, and what it knows of the others."""

    def __init__(self, endpoint: Endpoint, when_broken: Callable[[BaseException], None] | None = None) -> None:
        """Begin to listen to the others; `when_broken` is told when ranks cannot go on together."""
        self.endpoint = endpoint
        self.rank, self.size = endpoint.rank, endpoint.size
        self.local = LocalRank()  # its place among the ranks of its machine
        self.calls = Calls()
        self.runtimes = 0  # so far
        self.waiting: Waiting | None = None  # what the program waits for
        self.asleep: Callable[[], bool] = _no  # tells whether nothing of this rank is under way but messages
        self.seen = False  # the program knows that ranks cannot go on
        self.program_thread = 0  # which makes all calls
        self.last_words: Callable[[], None] = _nothing  # completes what a process leaves behind that is ended
        self._data = HostData()
        self._when_broken = when_broken
        self._judge = Judge(self.size)
        self._watch = Watch(lambda: self.waiting is not None, self._standing, self._tell_standing)
        endpoint.listen(self._heard, self.calls, self._broke)
        endpoint.pauses.free = lambda: self.waiting is not None and self.asleep()

    @property
    def broken(self) -> BaseException | None:
        """Why ranks cannot go on together."""
        return self.endpoint.broken

    def name(self, rank: int) -> str:
        """Return how errors call a rank."""
        host = self.endpoint.hosts[rank]
        return f"rank {rank} on {host}" if host else f"rank {rank}"

    def open_runtime(self) -> int:
        """Return the number of a new runtime: the same on every rank, since all open theirs in the same order."""
        self.runtimes += 1
        return self.runtimes

    def check_thread(self) -> None:
        """Raise unless this is the thread that runs the program: two would make calls in no certain order."""
        here = threading.get_ident()
        if not self.program_thread:
            self.program_thread = here
        elif self.program_thread != here:
            raise ProgramError(
                f"a second thread ({threading.current_thread().name}) calls coexec; with several ranks one thread makes "
                "all calls, since every rank must make them in the same order"
            )

    def check(self) -> None:
        """Raise if ranks cannot go on together; the error names the program's line that cannot."""
        broken = self.broken
        if broken is not None:
            self.seen = True
            if not isinstance(broken, ClusterError):
                raise broken.with_traceback(None)
            file, line = program_line(sys._getframe())
            raise type(broken)(f"{broken}; called at {file}:{line}", broken.rank, broken.host) from None

    @contextmanager
    def waits(self, what: str, where: str) -> Iterator[None]:
        """Note that the program waits, as long as the block lasts: for `what`, at a line of the program."""
        before = self.waiting
        self.waiting = before or Waiting(what, where)
        self._watch.look_out()
        try:
            yield
        except ClusterError:
            self.seen = True
            raise
        finally:
            self.waiting = before

    def allgather(self, words: bytes) -> list[bytes]:
        """Return what every rank gave, by rank. Waits for all ranks, which must have made the same calls so far."""
        self.check()
        return allgather(self.endpoint, words, self.calls.stamp)

    # First contents of arrays, which must be the same on every rank ----------------------------------------------------

    def compare(self, number: int, checksum: int, where: str) -> None:
        """Compare the contents that array `number` of the present runtime was given, on a line, with another rank's."""
        self.endpoint.tell((self.rank + 1) % self.size, DATA, as_note(self.runtimes, number, checksum))
        self._differ(self._data.given(self.runtimes, number, checksum, where))

    def _differ(self, found: Difference | None) -> None:
        if found is not None:
            self.endpoint.give_up(
                RanksDiverge(
                    f"the array that is made at {found.where} was given other contents on {self.name(self.rank)} than on "
                    f"{self.name(found.rank)}; give all ranks the same, or take one rank's: cx.array(x, root=0)",
                    self.rank,
                )
            )

    # What others tell, on the transport's thread ------------------------------------------------------------------------

    def _heard(self, source: int, topic: int, words: str) -> None:
        if topic == STATUS:
            self._hear_standing(source, words)
        elif topic == ASKED and words.isdigit():
            self._watch.asked = int(words)
        elif topic == DATA:
            self._differ(self._data.heard(source, words))

    def _broke(self, error: BaseException) -> None:
        self._watch.close()
        if self._when_broken is not None:
            self._when_broken(error)

    # Whether all ranks wait for each other ------------------------------------------------------------------------------

    def _standing(self) -> Standing | None:
        """Return how this rank stands if its program waits and nothing of it is under way but messages; else None."""
        waiting = self.waiting
        if waiting is None or not self.asleep():
            return None
        counted = self.endpoint.counted()
        if counted.flowing or self.waiting is not waiting:
            return None
        return Standing(counted.sent, counted.taken, counted.over, waiting, self.calls.told(400))

    def _tell_standing(self, words: str) -> None:
        self.endpoint.tell(0, STATUS, words)

    def _hear_standing(self, rank: int, words: str) -> None:
        """Judge how a rank stands. On rank 0."""
        found, judge = read_words(words), self._judge
        if found is None or self.rank:
            return
        if judge.heard(rank, *found):
            for other in range(self.size):
                self.endpoint.tell(other, ASKED, str(judge.asked))
        elif judge.hung:
            self._watch.close()
            self.endpoint.give_up(self._hang(judge.standings))

    def _hang(self, standings: Mapping[int, Standing]) -> ClusterError:
        """Return the error that says who waits for what, and where two ranks parted if that can be said."""
        words = [f"{self.name(rank)} waits {standing.waiting}" for rank, standing in sorted(standings.items())]
        text = f"all ranks wait for each other, and nothing is on its way: {'; '.join(words)}"
        parted = [self.calls.parted(s.told, self.name(0), self.name(r)) for r, s in sorted(standings.items()) if r]
        first = next(filter(None, parted), "")
        return (
            RanksDiverge(f"{text}; {first}") if "part at" in first else RanksHang(f"{text}; {first}" if first else text)
        )

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()


def _no() -> bool:
    return False


def _nothing() -> None:
    """Do nothing: there is nothing to complete."""
