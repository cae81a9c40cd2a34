"""`coexec run`: a script in a process of its own, with options from its environment, traced.

Before: trace.py.  After: app.py.  The script is not touched: what it prints, reads and returns stays its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import PREFIX, parse
from ..errors import ConfigError, TraceError, unknown_name
from ..observe.svg import bytes_text, count_text, seconds_text
from .output import USAGE, emit, fail, say, spoken_warnings

FORWARDED = (signal.SIGINT, signal.SIGTERM)
TAKEN_BY_OTHERS = 0.1  # s; NumPy's threads block no signal and may take one between two waits of ours, so look again


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for."""

    script: Path
    arguments: tuple[str, ...] = ()
    trace: Path = Path("run.json")
    devices: str | None = None
    placement: str | None = None
    sync: bool = False
    json: bool = False


def execute(request: Request) -> None:
    """Run the script, print a summary of its trace on stderr, and leave with the script's exit code."""
    check(request)
    before = _stamp(request.trace)
    command = [sys.executable, str(request.script), *request.arguments]
    code = run_child(command, environment(request, os.environ), quiet_stdout=request.json)
    recorded = _stamp(request.trace) != before
    report = _report(request.trace) if recorded else None
    if request.json:
        emit({"script": str(request.script), "exit_code": code, "trace": str(request.trace), "summary": report})
    elif not recorded:
        say("coexec: the script used no coexec array, so there is no trace")
    elif report is not None:
        for line in sentences(request.trace, report):
            say(f"coexec: {line}")
    raise SystemExit(code)


def check(request: Request) -> None:
    """Say what is wrong with the call before anything runs."""
    from ..backend.machine import BACKENDS, parse_devices
    from ..observe.trace import replaceable

    if not request.script.is_file():
        what = "is a folder" if request.script.is_dir() else "does not exist"
        fail(f"the script {request.script} {what}; name a Python file: coexec run app.py", USAGE)
    parse(environment(request, os.environ))
    for named in parse_devices(request.devices) if request.devices is not None else ():
        if named.kind not in (kinds := [*BACKENDS, *_installed("coexec.backends")]):
            raise unknown_name("device kind", named.kind, kinds)
    if request.placement is not None:
        from ..plan.place import PLACEMENTS

        if request.placement not in (names := [*PLACEMENTS, *_installed("coexec.placements")]):
            raise unknown_name("placement", request.placement, names)
    trace = request.trace
    if trace.is_dir() or not trace.parent.is_dir():
        raise ConfigError(f"cannot write the trace {trace}: name a file in a folder that exists")
    if trace.is_file() and not replaceable(trace):
        raise ConfigError(f"--trace {trace} is a file that is no trace; name another file, or delete it first")


def _installed(group: str) -> list[str]:
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group=group)]


def environment(request: Request, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the script."""
    given = {
        "TRACE": str(request.trace.resolve()),  # the script may change its folder
        "DEVICES": request.devices,
        "PLACEMENT": request.placement,
        "SYNC": "1" if request.sync else None,
    }
    return {**environ, **{PREFIX + name: value for name, value in given.items() if value is not None}}


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written anew."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def run_child(command: Sequence[str], environ: Mapping[str, str], *, quiet_stdout: bool = False) -> int:
    """Run a command and return its exit code, 128 + n if signal n ended it. SIGINT and SIGTERM reach it once."""
    watched = (*FORWARDED, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, 2, 1)] if quiet_stdout else []
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


def _report(path: Path) -> dict[str, Any] | None:
    """Return the report of a trace; say what is wrong with one that cannot be read."""
    from ..observe.report import summary
    from ..observe.trace import Trace

    try:
        with spoken_warnings():
            return summary(Trace.load(path))
    except TraceError as error:  # the script was killed at its beginning; its exit code counts
        say(f"coexec: {error}")
        return None


def sentences(path: Path, report: dict[str, Any]) -> list[str]:
    """Return the short summary of a run, a line each."""
    busy = [
        f"{name} {device['utilisation']:.0%} busy" for name, device in report["devices"].items() if device["kernels"]
    ]
    moved = report["copies"]
    facts = [
        f"{count_text(report['counts']['tasks'], 'task')} in {seconds_text(report['makespan'])}",
        f"parallelism {report['parallelism']:.2f}" + (f" ({', '.join(busy)})" if busy else ""),
        f"{count_text(moved['count'], 'copy')} of {bytes_text(moved['bytes'])}" if moved["count"] else "nothing copied",
    ]
    ended = [f"{count} {state}" for state in ("failed", "cancelled") if (count := report["counts"][state])]
    lines = ["; ".join([*facts, *ended])]
    lines.append(f"trace in {path}; look at it with: coexec trace {path} --gantt {path.with_suffix('.svg')}")
    return lines
