"""`coexec run`: a script in a process of its own, with options from its environment, traced.

Before: script.py, trace.py.  After: app.py.  The script is not touched: what it prints, reads and returns stays its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import PREFIX
from ..errors import ConfigError, TraceError
from ..observe.pictures.svg import bytes_text, count_text, seconds_text
from .environment import check_environment
from .output import emit, say, spoken_warnings
from .script import STDERR, check_script, check_trace, run_child, stamp


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """What the user asked for."""

    script: Path
    arguments: tuple[str, ...] = ()
    trace: Path = Path("run.json")
    devices: str | None = None
    placement: str | None = None
    sync: bool = False
    json: bool = False


def execute(request: ProgramRun) -> None:
    """Run the script, print a summary of its trace on stderr, and leave with the script's exit code."""
    check(request)
    before = stamp(request.trace)
    command = [sys.executable, str(request.script), *request.arguments]
    code = run_child(command, environment(request, os.environ), stdout=STDERR if request.json else None)
    recorded = stamp(request.trace) != before
    report = _report(request.trace) if recorded else None
    if request.json:
        emit({"script": str(request.script), "exit_code": code, "trace": str(request.trace), "summary": report})
    elif not recorded:
        say("coexec: the script used no coexec array, so there is no trace")
    elif report is not None:
        for line in sentences(request.trace, report):
            say(f"coexec: {line}")
    raise SystemExit(code)


def check(request: ProgramRun) -> None:
    """Say what is wrong with the call before anything runs."""
    check_script(request.script, "run")
    if request.devices is not None and not request.devices.strip(" ,"):
        raise ConfigError("--devices names no device; write for example cpu:0,opencl:0@1, or leave it away for all")
    check_environment(environment(request, os.environ))
    check_trace(request.trace)


def environment(request: ProgramRun, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the script."""
    given = {
        "TRACE": str(request.trace.resolve()),  # the script may change its folder
        "DEVICES": request.devices,
        "PLACEMENT": request.placement,
        "SYNC": "1" if request.sync else None,
    }
    return {**environ, **{PREFIX + name: value for name, value in given.items() if value is not None}}


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
