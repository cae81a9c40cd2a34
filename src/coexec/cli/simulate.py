"""`coexec simulate`: a script on a platform that is not here: how long, how much energy, where is the bottleneck.

Before: script.py, cases.py, observe/.  After: app.py.  The script is not touched; every answer comes from its trace.

A script has written one trace for each of its runtimes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config import PREFIX, parse, parse_memory
from ..errors import ConfigError, TraceError
from ..files import write_text
from ..observe.pictures.svg import seconds_text
from . import simulate_text
from .cases import Cases, SimulationCase, Wanted, cases_of
from .environment import check_environment
from .grouping import platform_devices
from .output import USAGE, check_files, emit, fail, say, spoken_warnings
from .script import NOWHERE, STDERR, check_script, check_trace, run_child, stamp

Stamp = tuple[int, int] | None


def stamps(trace: Path) -> dict[Path, Stamp]:
    """Return what is there before a script runs."""
    return {path: stamp(path) for path in _numbered(trace)}


def collected(trace: Path, before: dict[Path, Stamp]) -> list[Path]:
    """Return the traces that were written since, in the order of the runtimes."""
    return [path for path in _numbered(trace) if stamp(path) not in (None, before.get(path))]


def _numbered(trace: Path) -> list[Path]:
    """Return the files that the runtimes of a script write, as far as they are there."""
    found = [trace]
    while (following := trace.with_name(f"{trace.stem}.{len(found) + 1}{trace.suffix}")).exists():
        found.append(following)
    return found


Data = dict[str, Any]
INTERRUPTED = (130, 143)
"""Exit codes of a script that SIGINT or SIGTERM ended: nothing more is simulated."""
NO_VALUES = "NoValues"
OPTIONS = (
    "--platform", "--devices", "--memory", "--scenario", "--execute", "--until-read", "--ranks", "--trace", "--gantt",
    "--sweep", "--plot", "--what-if", "--json",
)  # fmt: skip
"""Ours: what looks like one of them and goes to the script may be a mistake."""


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What the user asked for."""

    script: Path
    arguments: tuple[str, ...] = ()
    platform: str | None = None
    devices: str | None = None
    memory: str | None = None
    scenario: Path | None = None
    execute: bool = False
    until_read: bool = False
    ranks: int | None = None
    trace: Path = Path("simulated.json")
    gantt: Path | None = None
    sweeps: tuple[str, ...] = ()
    plot: Path | None = None
    what_ifs: tuple[str, ...] = ()
    json: bool = False


class SimulationOutcome(NamedTuple):
    """How a simulation ended."""

    code: int
    report: Data | None  # of the runtime that computed first; None if there is nothing to tell
    traces: list[str]  # one for each runtime of the script
    unread: str = ""  # the line that reads what nobody computed
    seconds: float = 0.0  # real time

    @property
    def answered(self) -> bool:
        """Whether the script came to its end, and in virtual time."""
        return self.code == 0 and self.report is not None and self.report["simulation"] is not None


def execute(request: SimulateRequest) -> None:
    """Simulate the script, print what came out, and leave with the script's exit code."""
    request, cases = check(request)
    outcomes: dict[int, SimulationOutcome] = {}
    with tempfile.TemporaryDirectory(prefix="coexec-") as folder:
        for number, case in enumerate(cases.all):
            outcome = outcomes[id(case)] = _simulate(request, case, case is cases.base, Path(folder))
            if len(cases.all) > 1:
                say(f"coexec: {number + 1} of {len(cases.all)}, {case.label}: {_progress(outcome)}")
            if outcome.code in INTERRUPTED or (case is cases.base and not outcome.answered):
                break
    base = outcomes[id(cases.base)]
    answer = answers(request, cases, outcomes)
    answer["written"] = _pictures(request, base, answer) if base.answered else []
    if request.json:
        emit(answer)
    _say_what_is_missing(request, base, answer)
    if not request.json and base.report is not None and base.report["simulation"] is not None:
        simulate_text.show(answer, brief=not base.answered)
    failed = [outcome.code for outcome in outcomes.values() if not outcome.answered]
    raise SystemExit(base.code or (failed[0] or 1 if failed else 0))


# Before -----------------------------------------------------------------------------------------------------------------


def check(request: SimulateRequest) -> tuple[SimulateRequest, Cases]:
    """Say what is wrong with the call before anything runs; return it with what the environment says, and the cases."""
    check_script(request.script, "simulate")
    config = parse(os.environ)
    request = replace(
        request,
        platform=request.platform or config.platform or None,
        devices=config.devices if request.devices is None else request.devices,
        memory=config.memory if request.memory is None else request.memory,
        scenario=request.scenario or (Path(config.scenario) if config.scenario else None),
    )
    if request.platform is None:
        fail(_no_platform(request.arguments), USAGE)
    scenario = str(request.scenario) if request.scenario is not None else ""
    environ = environment(request, os.environ, request.platform, request.devices or "", request.trace)
    check_environment({**environ, f"{PREFIX}SCENARIO": scenario})  # by the name that the user gave it
    memory = parse_memory(request.memory or "")
    wanted = Wanted(request.platform, request.devices or "", memory, scenario, request.sweeps, request.what_ifs)
    if request.until_read and request.execute:
        raise ConfigError("--until-read and --execute exclude each other: with values, the program goes on")
    if request.plot is not None and not request.sweeps:
        raise ConfigError("--plot draws a sweep; add one, such as --sweep devices=1,2,4")
    check_files(("--gantt", request.gantt, (".svg",)), ("--plot", request.plot, (".svg",)))
    cases = cases_of(wanted)
    ranks = config.ranks if request.ranks is None else request.ranks
    for case in cases.all:
        if ranks not in (0, 1, case.platform.nodes):
            raise ConfigError(
                f"--ranks {ranks}, but {case.platform.name} has {case.platform.nodes} nodes; give 0 for one process on each, "
                "or 1 for one that drives them all"
            )
    check_trace(request.trace)
    for option, near in misspelt(request.arguments):
        say(f"coexec: {option} is not an option of coexec, so it goes to the script; did you mean {near}?")
    return request, cases


def _no_platform(arguments: tuple[str, ...]) -> str:
    from ..machine.platform import Platform

    given = next((option for option, near in misspelt(arguments) if near == "--platform"), None)
    hint = f" ({given} is not an option of coexec, so it went to the script)" if given else ""
    return f"name the machine with --platform: a file.toml, or one of {', '.join(Platform.presets())}{hint}"


def misspelt(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the arguments of the script that look like an option of ours, each with that one."""
    from difflib import get_close_matches

    given = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    near = [(option, get_close_matches(option, OPTIONS, n=1, cutoff=0.8)) for option in given if option not in OPTIONS]
    return [(option, found[0]) for option, found in near if found]


# One simulation -----------------------------------------------------------------------------------------------------------


def _simulate(request: SimulateRequest, case: SimulationCase, first: bool, folder: Path) -> SimulationOutcome:
    """Run the script once. The base writes the trace that the user keeps, and prints what it prints."""
    trace = request.trace if first else folder / "simulated.json"
    source = case.source
    if not source:
        source = str(folder / "changed.toml")
        case.platform.save(source)
    before = stamps(trace)
    environ = environment(request, os.environ, source, case.devices, trace)
    command = [sys.executable, str(request.script), *request.arguments]
    begin = time.perf_counter()
    stdout = (STDERR if request.json else None) if first else NOWHERE
    errors = folder / "stderr" if request.until_read else None  # whose end is a traceback that is no news
    code = run_child(command, environ, stdout=stdout, stderr=errors)
    seconds = time.perf_counter() - begin
    outcome = _outcome(code, collected(trace, before), seconds)
    if errors is not None:
        said = errors.read_text(encoding="utf-8", errors="replace")
        if outcome.unread and NO_VALUES in (said.splitlines() or [""])[-1]:
            return outcome._replace(code=0)
        sys.stderr.write(said)
    return outcome


def environment(
    request: SimulateRequest, environ: Mapping[str, str], platform: str, devices: str, trace: Path
) -> dict[str, str]:
    """Return the environment of the script."""
    given = {
        "PLATFORM": platform,
        "DEVICES": devices,
        "MEMORY": request.memory or "",
        "SCENARIO": str(request.scenario.resolve()) if request.scenario is not None else "",
        "TRACE": str(trace.resolve()),  # the script may change its folder
    }
    if request.execute:
        given["EXECUTE"] = "1"
    if request.ranks is not None:
        given["RANKS"] = str(request.ranks)
    return {**environ, **{PREFIX + name: value for name, value in given.items()}}


def _outcome(code: int, written: list[Path], seconds: float) -> SimulationOutcome:
    from ..observe.report import summary
    from ..observe.trace import Trace

    traces = []
    try:
        with spoken_warnings():
            traces = [Trace.load(path) for path in written]
    except TraceError as error:  # the script was killed at its beginning; its exit code counts
        say(f"coexec: {error}")
    names = [str(path) for path in written]
    if not traces:
        return SimulationOutcome(code, None, names, seconds=seconds)
    chosen = next((trace for trace in traces if any(row["kind"] == "kernel" for row in trace.work)), traces[0])
    unread = [row for trace in traces for row in trace.ran if str(row.get("error", "")).startswith(NO_VALUES)]
    tasks = {task["id"]: task for trace in traces for task in trace.tasks}
    line = tasks.get(unread[0].get("task"), {}).get("call") or "the program" if unread else ""
    return SimulationOutcome(code, summary(chosen), names, line, seconds)


def _progress(outcome: SimulationOutcome) -> str:
    if not outcome.answered:
        return f"ended with exit code {outcome.code}"
    assert outcome.report is not None
    return f"{seconds_text(outcome.report['makespan'])} of virtual time, simulated in {seconds_text(outcome.seconds)}"


# Answers ------------------------------------------------------------------------------------------------------------------


def answers(request: SimulateRequest, cases: Cases, outcomes: Mapping[int, SimulationOutcome]) -> Data:
    """Return everything that is known as JSON-ready data."""
    base = outcomes[id(cases.base)]
    points = {id(case): _point(case, outcomes.get(id(case))) for case in cases.all}
    reference = points[id(cases.base)]
    return {
        "script": str(request.script),
        "arguments": list(request.arguments),
        "platform": cases.base.platform.name,
        "case": cases.base.label,
        "exit_code": base.code,
        "complete": all(id(case) in outcomes and outcomes[id(case)].answered for case in cases.all),
        **reference,
        "simulated_in": base.seconds,
        "until": base.unread or None,
        "trace": str(request.trace) if base.traces else None,
        "traces": base.traces,
        "streams": base.report["streams"] if base.report is not None else [],
        "summary": base.report,
        "sweeps": [
            {"what": sweep.what, "points": _points(sweep.values, [points[id(case)] for case in sweep.cases])}
            for sweep in cases.sweeps
        ],
        "what_if": [{"change": case.label, **_against(points[id(case)], reference)} for case in cases.what_ifs],
    }


def _point(case: SimulationCase, outcome: SimulationOutcome | None) -> Data:
    """Return the figures of one simulation; None where there are none."""
    report = outcome.report if outcome is not None and outcome.answered else None
    energy = (report["simulation"]["energy"] or {}) if report is not None else {}
    return {
        "devices": case.count or (len(platform_devices(report)) if report is not None else None),
        "seconds": report["makespan"] if report is not None else None,
        "efficiency": report["efficiency"] if report is not None else None,
        "joules": energy.get("total"),
        "bytes": report["copies"]["bytes"] if report is not None else None,
        "bottleneck": report["bottleneck"]["sentence"] if report is not None else None,
        "longest": simulate_text.longest(report) if report is not None else None,
    }


def _points(values: tuple[str, ...], found: list[Data]) -> list[Data]:
    """Return the points of a sweep with their speed-up over the first one, and per device where those are counted."""
    first = found[0]
    made = []
    for value, point in zip(values, found, strict=True):
        gain = _ratio(first["seconds"], point["seconds"])
        more = _ratio(point["devices"], first["devices"]) or 1.0
        share = gain / more if gain is not None else None
        made.append({"value": value, **point, "speed_up": gain, "busy": point["efficiency"], "efficiency": share})
    return made


def _against(point: Data, base: Data) -> Data:
    return {
        **point,
        "seconds_before": base["seconds"],
        "speed_up": _ratio(base["seconds"], point["seconds"]),
        "joules_before": base["joules"],
        "energy_ratio": _ratio(point["joules"], base["joules"]),
    }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# After --------------------------------------------------------------------------------------------------------------------


def _pictures(request: SimulateRequest, base: SimulationOutcome, answer: Data) -> list[str]:
    """Write the pictures that were asked for, each at once or not at all."""
    written = []
    if request.gantt is not None and base.report is not None:
        from ..observe.pictures.gantt import gantt_svg
        from ..observe.trace import Trace

        write_text(request.gantt, gantt_svg(Trace.load(base.report["path"])))
        written.append(str(request.gantt))
    if request.plot is not None and answer["complete"]:
        from ..observe.pictures.scaling import scaling_svg

        title = f"{request.script.name} on {answer['platform']}, simulated"
        write_text(request.plot, scaling_svg(answer["sweeps"], title))
        written.append(str(request.plot))
    return written


def _say_what_is_missing(request: SimulateRequest, base: SimulationOutcome, answer: Data) -> None:
    """Say on stderr what kept the simulation from its end."""
    if base.report is None:
        say("coexec: the script used no coexec array, so there is nothing to simulate")
        return
    until = seconds_text(base.report["makespan"])
    if base.report["simulation"] is None:
        say("coexec: the script opened real devices by itself (machine=...), so nothing was simulated")
    elif base.unread:
        if request.until_read:
            return
        went_on = "" if base.code else ", and the script went on without"
        say(
            f"coexec: {base.unread} reads values, but a simulation computes none{went_on}; add --execute to compute them on "
            f"this machine, or --until-read to take this for the end (simulated until there: {until})"
        )
    elif base.code in INTERRUPTED:
        say(f"coexec: interrupted after {until} of virtual time, so what follows is about a part of the run")
    elif base.code:
        say(
            f"coexec: the script ended with exit code {base.code} after {until} of virtual time; what follows is about that part"
        )
    elif not answer["complete"]:
        say("coexec: not everything was simulated; what is missing is shown as -")
