"""Beside one rank: run its program, let its lines come out whole and with its number, and end when it ends.

Before: nothing: launchers run this file by its path, so it imports no coexec and starts at once.  After: launching.py, opening.py.

    python rank.py PROGRAM ARGUMENTS...

Rank 0 prints as it is. Lines of others begin with "rank 1: ". Signals reach the program once; if this process is killed, so
is the program. The exit code is the program's, 128 + n if signal n ended it.

Ranks of one run note in a folder how they ended. If one failed, a program that is stopped is killed at once, and one that
does not end by itself, as it was told to, some seconds later: launchers wait for all of them, some for ever. A program that
has met no other rank is told nothing, and is ended sooner. mpiexec, on the contrary, kills all ranks when a process ends that had begun with MPI: so this one ends after the others have.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

RANKS = ("CX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Where launchers say which rank it is; the first one counts."""
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
"""Where launchers say how many ranks there are, of those that kill all ranks when one is lost."""
TRACE = "COEXEC_TRACE"
MOMENT = 0.1
"""Seconds that rank 0's unfinished lines wait for their end, lest another rank's line comes between."""
ENDS = "CX_ENDS"
"""The folder in which ranks of one run note how they ended."""
PATIENCE = "COEXEC_PATIENCE"
USUAL = 4.0
"""Seconds of COEXEC_PATIENCE unless it is said: config.py has the same."""
LOOK = 0.2
"""Seconds between two looks at how other ranks ended."""
MORE = 2.0
"""Seconds beyond COEXEC_PATIENCE, 4 unless said, that a program has to end by itself after another rank failed."""
UNMET = 0.5
"""Part of COEXEC_PATIENCE that a program has which has met no rank: it waits for one that will not come."""
LAST = 1.0
"""Seconds between asking a program to end and ending it."""
SOON = 0.05
"""Seconds between two looks whether all others have ended."""
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


class End(NamedTuple):
    """How a rank ended."""

    when: float  # of a clock that processes of one machine share
    rank: int
    code: int


def note_end(folder: Path, end: End) -> None:
    """Let others know how a rank ended, whole or not at all."""
    part = folder / f".{end.rank}"
    try:
        part.write_text(f"{end.when} {end.rank} {end.code}")
        part.replace(folder / f"{end.rank}")
    except OSError:
        return  # the launcher has ended, and its folder with it


def failures(folder: Path) -> list[End]:
    """Return the ranks that ended with another exit code than 0, the first one first."""
    found = []
    for file in folder.glob("[0-9]*"):
        try:
            when, rank, code = file.read_text().split()
        except OSError:
            continue
        if int(code):
            found.append(End(float(when), int(rank), int(code)))
    return sorted(found)


def note_met(environ: Mapping[str, str]) -> None:
    """Let the process beside this one know that its program has met the other ranks, so it hears of their ends itself."""
    if environ.get(ENDS):
        with suppress(OSError):  # the launcher has ended, and its folder with it
            _met(Path(environ[ENDS]), rank_of(environ)).touch()


def _met(folder: Path, rank: int) -> Path:
    return folder / f"met{rank}"


class Patience(NamedTuple):
    """How many seconds a program has to end after another rank failed."""

    met: float  # if it has met the others, and ends by itself
    unmet: float


def patience(environ: Mapping[str, str]) -> Patience:
    """Return how many seconds a program has to end after another rank failed."""
    try:
        found = float(environ.get(PATIENCE, "") or USUAL)
    except ValueError:
        found = USUAL  # the program says what is wrong with it
    return Patience(found + MORE, found * UNMET) if found > 0 else Patience(float("inf"), float("inf"))


def stopped(pid: int) -> bool:
    """Tell whether a process was stopped by a signal; a debugger's stop is another state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


def _ended(program: subprocess.Popen[bytes]) -> int:
    """Return a program's exit code as soon as it ends; raise TimeoutExpired after a while."""
    if not hasattr(os, "pidfd_open"):
        return program.wait(LOOK)
    end = os.pidfd_open(program.pid)  # can be read then; Python itself looks now and then
    try:
        select.select([end], [], [], LOOK)
    finally:
        os.close(end)
    return program.wait(0)


def watch(program: subprocess.Popen[bytes], folder: Path | None, rank: int, seconds: Patience) -> int:
    """Wait for a rank's program and return its exit code; end it if another failed and it does not end by itself."""
    since = asked = 0.0
    while folder is not None:
        try:
            return _ended(program)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if not since and failures(folder):
            since = now
        if since and (stopped(program.pid) or (asked and now > asked + LAST)):
            program.kill()
        elif since and not asked and now > since + (seconds.met if _met(folder, rank).exists() else seconds.unmet):
            program.terminate()
            asked = now
    return program.wait()


def wait_for_others(folder: Path, ranks: int, seconds: float) -> None:
    """Wait until all ranks have ended; after one failed, so many seconds and what it takes to end them, at most."""
    until = float("inf")
    while len(list(folder.glob("[0-9]*"))) < ranks and folder.is_dir() and time.monotonic() < until:
        if until == float("inf") and failures(folder):
            until = time.monotonic() + seconds + 2 * LAST
        time.sleep(SOON)


def size_of(environ: Mapping[str, str]) -> int:
    """Return how many ranks there are, if their launcher kills all of them when one is lost; else 1."""
    if environ.get(RANKS[0]):
        return 1  # coexec's own starter does not
    return int(next((environ[name] for name in SIZES if environ.get(name, "").isdigit()), 1))


def main(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run a program as this rank, and return its exit code."""
    rank = rank_of(environ)
    prefix = f"rank {rank}: ".encode() if rank else b""
    at_a_terminal = os.isatty(0)  # whose Ctrl-C reaches the program by itself
    program = subprocess.Popen(  # noqa: S603 - the user's own program
        command,
        env=environment(environ, rank),
        stdin=None if not rank else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,  # a launcher may talk to it through one
        process_group=None if at_a_terminal else 0,  # launchers signal whole groups: it would be told twice
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no thread runs yet
    )
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
    folder = Path(environ[ENDS]) if environ.get(ENDS) else None
    found = watch(program, folder, rank, patience(environ))
    when, code = time.monotonic(), found if found >= 0 else 128 - found
    for thread in pumps:
        thread.join()
    if folder is not None:
        note_end(folder, End(when, rank, code))
        wait_for_others(folder, size_of(environ), patience(environ).met)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
