"""A script in a process of its own: checked before, watched while it runs, never touched.

Before: output.py.  After: run.py, simulate.py.  Knows commands and signals; not what the script does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import check_writable
from .output import USAGE, fail

FORWARDED = (signal.SIGINT, signal.SIGTERM)
TAKEN_BY_OTHERS = 0.1  # s; NumPy's threads block no signal and may take one between two waits of ours, so look again
STDERR, NOWHERE = "stderr", "nowhere"
"""Where the output of a script may go."""


def check_script(script: Path, command: str) -> None:
    """Leave unless there is such a script."""
    if not script.is_file():
        what = "is a folder" if script.is_dir() else "does not exist"
        fail(f"the script {script} {what}; name a Python file: coexec {command} app.py", USAGE)


def check_trace(trace: Path) -> None:
    """Raise unless a trace can be written there, without loss of anything else."""
    from ..observe.trace import check_replaceable

    check_replaceable(trace, f"--trace {trace}")
    check_writable(trace, "the trace")


def stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written anew."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def run_child(
    command: Sequence[str], environ: Mapping[str, str], *, stdout: str | None = None, stderr: Path | None = None
) -> int:
    """Run a command and return its exit code, 128 + n if signal n ended it. SIGINT and SIGTERM reach it once.

    What it prints goes where ours does; with `stdout`, to STDERR or NOWHERE, and with `stderr` to a file.
    """
    watched = (*FORWARDED, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout == STDERR else []
        if stdout == NOWHERE:
            actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        if stderr is not None:
            how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            actions.append((os.POSIX_SPAWN_OPEN, 2, str(stderr), how, 0o600))
        sys.stdout.flush()
        child = os.posix_spawn(command[0], list(command), dict(environ), file_actions=actions, setsigmask=before)
        with _forwarding(child):
            while True:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    code = os.waitstatus_to_exitcode(status)
                    return code if code >= 0 else 128 - code
                received = signal.sigtimedwait(watched, TAKEN_BY_OTHERS)
                if received is None or received.si_signo == signal.SIGCHLD:
                    continue
                if received.si_code <= 0:  # from a process, to us alone; a terminal's Ctrl-C reaches the script itself
                    os.kill(child, received.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _forwarding(child: int) -> Iterator[None]:
    """Pass on the signals that another thread takes."""

    def forward(number: int, _: object) -> None:
        if number != signal.SIGINT or not _at_a_terminal():  # whose Ctrl-C reaches the script by itself
            os.kill(child, number)

    found = [signal.signal(number, forward) for number in FORWARDED]
    try:
        yield
    finally:
        for number, handler in zip(FORWARDED, found, strict=True):
            signal.signal(number, handler)


def _at_a_terminal() -> bool:
    """Return whether Ctrl-C at a terminal reaches this process."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
