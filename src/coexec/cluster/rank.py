"""Beside one rank: run its program, let its lines come out whole and with its number, and end when it ends.

Before: nothing: launchers run this file by its path, so it imports no coexec and starts at once.  After: launching.py.

    python rank.py PROGRAM ARGUMENTS...

Rank 0 prints as it is. Lines of others begin with "rank 1: ". Signals reach the program; if this process is killed, so is
the program. The exit code is the program's, 128 + n if signal n ended it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

RANKS = ("CX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Where launchers say which rank it is; the first one counts."""
TRACE = "COEXEC_TRACE"
MOMENT = 0.1
"""Seconds that rank 0's unfinished lines wait for their end, lest another rank's line comes between."""
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def rank_of(environ: Mapping[str, str]) -> int:
    """Return the rank that the launcher says; 0 without one."""
    return int(next((environ[name] for name in RANKS if environ.get(name, "").isdigit()), 0))


def environment(environ: Mapping[str, str], rank: int) -> dict[str, str]:
    """Return the program's variables: each rank has a trace file of its own."""
    found = dict(environ)
    if rank and found.get(TRACE):
        stem, dot, ending = found[TRACE].rpartition(".")
        found[TRACE] = f"{stem}.rank{rank}.{ending}" if dot and "/" not in ending else f"{found[TRACE]}.rank{rank}"
    return found


def pump(source: IO[bytes], target: int, prefix: bytes) -> None:
    """Write lines as they come, each at once and whole; without a prefix, what is no line after a moment, too."""
    held = b""
    while True:
        if held and not prefix and not select.select([source], [], [], MOMENT)[0]:
            _write(target, held)  # a question, or a bar that grows
            held = b""
        data = os.read(source.fileno(), 1 << 16)
        lines, newline, held = (held + data).rpartition(b"\n")
        if newline:
            _write(target, b"".join(prefix + line + b"\n" for line in lines.split(b"\n")))
        if not data:
            break
    if held:
        _write(target, prefix + held + (b"\n" if prefix else b""))


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def main(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run a program as this rank, and return its exit code."""
    rank = rank_of(environ)
    prefix = f"rank {rank}: ".encode() if rank else b""
    program = subprocess.Popen(  # noqa: S603 - the user's own program
        command,
        env=environment(environ, rank),
        stdin=None if not rank else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,  # a launcher may talk to it through one
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no thread runs yet
    )
    at_a_terminal = os.isatty(0)  # whose Ctrl-C reaches the program by itself
    for number in (signal.SIGINT, signal.SIGTERM):
        alone = number == signal.SIGINT and at_a_terminal
        signal.signal(number, signal.SIG_IGN if alone else lambda number, _: program.send_signal(number))
    assert program.stdout is not None and program.stderr is not None
    pumps = [
        threading.Thread(target=pump, args=(source, target, prefix))
        for source, target in ((program.stdout, 1), (program.stderr, 2))
    ]
    for thread in pumps:
        thread.start()
    code = program.wait()
    for thread in pumps:
        thread.join()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
