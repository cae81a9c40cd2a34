"""How a process ends whose ranks cannot go on together: its program is told, and ended if it does not come to hear it.

Before: cluster/team.py.  After: cluster/opening.py.  Only for ranks that are processes: it may end the one it runs in.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from time import monotonic

from ..errors import RanksHang
from .team import Team

EXIT_CODE = 70
"""What a process ends with whose ranks could not go on together."""
LOOK = 0.1
"""Seconds between two looks whether the program knows."""


class TeamEnding:
    """What is done in a process when its team is broken."""

    def __init__(self, patience: float) -> None:
        """`patience` is how many seconds the program has to make a call, to wait or to end; 0 = for ever."""
        self._patience = patience
        self.team: Team | None = None  # known once it is opened
        self._main = threading.get_ident()

    def broke(self, error: BaseException) -> None:
        """Let the program have some time to hear of an error. On the transport's thread."""
        if isinstance(error, RanksHang):
            self.say(error)
        if self._patience > 0:
            threading.Thread(target=self._end, args=(error,), name="coexec-ending", daemon=True).start()

    def say(self, error: BaseException) -> None:
        """Write what this rank's program did last, and where it is."""
        team = self.team
        if team is None:
            return
        lines = [f"coexec: {team.name(team.rank)}: {error}", "its last calls, the newest first:"]
        lines += [f"  {line}" for line in team.calls.told(2000).splitlines()]
        frame = sys._current_frames().get(team.program_thread or self._main)
        if frame is not None:
            lines += ["where its program is:", *"".join(traceback.format_stack(frame)).rstrip().splitlines()]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def _end(self, error: BaseException) -> None:
        end = monotonic() + self._patience
        pause = threading.Event()
        while monotonic() < end:
            if self.team is not None and self.team.seen:
                return  # it is the program's own business now
            pause.wait(LOOK)
        if self.team is not None and not self.team.seen:
            if not isinstance(error, RanksHang):
                self.say(error)
            self.team.last_words()
            sys.stderr.write(f"coexec: rank {self.team.rank} ends, since its program does not hear of that\n")
            sys.stderr.flush()
            os._exit(EXIT_CODE)
