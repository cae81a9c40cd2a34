"""`coexec trace`: what a run did with its time, as tables, JSON, pictures and a timeline.

Before: observe/.  After: app.py, run.py, demo.py.  Computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import unknown_name
from ..files import write_text
from ..observe.pictures.svg import bytes_text, count_text, joules_text, seconds_text
from . import answers, grouping
from .output import check_files, console, emit, say, spoken_warnings, table

if TYPE_CHECKING:
    from rich.table import Table

    from ..observe.trace import Trace

Data = dict[str, Any]
LONGEST = 40
"""Lanes, waits and notes beyond this many are counted, not listed."""


class Exports(NamedTuple):
    """Files to write."""

    graph: Path | None = None
    level: str = "task"
    perfetto: Path | None = None
    gantt: Path | None = None


def show(file: Path, exports: Exports, *, json: bool) -> None:
    """Print the report of a trace and write the files asked for."""
    from ..observe.report import summary
    from ..observe.trace import Trace

    check(exports)
    with spoken_warnings():
        trace = _of_ranks(file) if file.is_dir() else Trace.load(file)
    report = summary(trace)
    written = export(trace, exports)
    if json:
        emit({**report, "written": written})
        return
    screen = console()
    for line in headline(report):
        screen.print(line, soft_wrap=True)
    for part in tables(report):
        screen.print(part)
    if report["bottleneck"]["sentence"]:
        screen.print(report["bottleneck"]["sentence"], soft_wrap=True)
    for path in written:
        screen.print(f"wrote {path}", soft_wrap=True)


def _of_ranks(folder: Path) -> Trace:
    """Return one trace of those that ranks wrote to a folder; say how well their clocks agree."""
    from ..observe.rank_traces import merge_ranks, rank_files
    from ..observe.trace import Trace

    files = rank_files(folder)
    with TemporaryDirectory(prefix="coexec-") as place:
        together = Path(place, "ranks.json")
        clocks = merge_ranks(files, together)
        found = Trace.load(together)
    worst = max(clock.error for clock in clocks)
    told = "some sent no message, so their clocks are as they are" if worst == inf else f"within {seconds_text(worst)}"
    say(f"coexec: {len(files)} ranks; clocks are aligned by their messages, {told}")
    return found


def check(exports: Exports) -> None:
    """Raise before any work if a file cannot be written as asked."""
    from ..observe.pictures.nodes import LEVELS

    if exports.level not in LEVELS:
        raise unknown_name("level", exports.level, list(LEVELS))
    check_files(
        ("--graph", exports.graph, (".dot", ".svg", ".html")),
        ("--gantt", exports.gantt, (".svg",)),
        ("--perfetto", exports.perfetto, ()),
    )


def export(trace: Trace, exports: Exports) -> list[str]:
    """Write the files and return their names."""
    written = []
    if exports.graph is not None:
        write_text(exports.graph, _graph(trace, exports.graph.suffix, exports.level))
        written.append(str(exports.graph))
    if exports.perfetto is not None:
        from ..observe.pictures.perfetto import write_perfetto

        write_perfetto(trace, exports.perfetto)
        written.append(str(exports.perfetto))
    if exports.gantt is not None:
        from ..observe.pictures.gantt import gantt_svg

        write_text(exports.gantt, gantt_svg(trace))
        written.append(str(exports.gantt))
    return written


def _graph(trace: Trace, ending: str, level: str) -> str:
    from ..observe.pictures.graphs import graph_dot, graph_html, graph_svg

    if ending == ".html":
        return graph_html(trace)
    return graph_dot(trace, level) if ending == ".dot" else graph_svg(trace, level)


# Tables -----------------------------------------------------------------------------------------------------------------


def headline(report: Data) -> Iterator[str]:
    """Yield the figures that matter most, a line each."""
    yield from answers.headline(report)
    kernels = sum(report["counts"]["ran"].get(kind, 0) for kind in ("kernel", "host task", "reduce"))
    yield (
        f"{count_text(report['counts']['tasks'], 'task')}, {count_text(kernels, 'kernel')} "
        f"in {seconds_text(report['makespan'])}; parallelism {report['parallelism']:.2f}"
        + ("" if report["complete"] else "; the trace is cut off")
    )
    four = report["overlap"]
    yield (
        f"overlap: CT {four['ct']:.0%} (kernel time beside a transfer), TC {four['tc']:.0%} (transfer time beside a kernel), "
        f"CC {four['cc']:.0%} (kernel time beside another kernel), TOT {four['tot']:.0%} (all time beside something else)"
    )


def tables(report: Data) -> Iterator[Table]:
    """Yield every table of a report that has something to say."""
    yield _kernels(report)
    yield devices(report)
    yield _lanes(report)
    if report["copies"]["count"]:
        yield copies(report)
    if report["memories"]:
        yield _memories(report)
    yield _program(report)
    if report["critical_path"]["length"]:
        yield _critical(report)
    yield from answers.tables(report)
    for name in ("failures", "cancelled"):
        if report[name]["count"]:
            yield _ended(name, report[name])
    if report["notes"]["count"]:
        rows = [(seconds_text(note["t"]), note["text"]) for note in report["notes"]["first"][:LONGEST]]
        yield table(_more("Notes", report["notes"]["count"]), ["at", "note"], rows, numbers="rw")


def _more(title: str, count: int) -> str:
    return f"{title} (the first {LONGEST} of {count:,})" if count > LONGEST else title


def _kernels(report: Data) -> Table:
    rows = [
        (
            name,
            f"{kernel['count']:,}" + (f" +{kernel['failed']} failed" if kernel["failed"] else ""),
            seconds_text(kernel["total"]),
            _time(kernel["median"]),
            _time(kernel["max"]),
            seconds_text(kernel["waited"]),
            f"{kernel['error']:.0%}" if kernel["error"] is not None else "-",
            grouping.counts(kernel["devices"]),
        )
        for name, kernel in report["kernels"].items()
    ]
    columns = ["kernel", "ran", "total", "median", "longest", "GIL wait", "prediction off by", "where"]
    return table("Kernels", columns, rows, numbers="lrrrrrrw")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def devices(report: Data) -> Table:
    """Return how busy each device was, why it was idle, and what it drew."""
    told = grouping.devices(report)
    energy = any(device["joules"] is not None for device in told)
    rows = []
    for device in told:
        why = ", ".join(f"{cause} {seconds_text(s)}" for cause, s in device["causes"].items() if s > 0)
        drew = [joules_text(device["joules"]) if device["joules"] is not None else "-"] if energy else []
        busy, idle = seconds_text(device["busy"]), seconds_text(device["idle"])
        rows.append((device["name"], device["share"], busy, *drew, idle, why))
    columns = ["device", "busy", "", *(["energy"] if energy else []), "idle", "idle because"]
    return table("Devices", columns, rows, numbers="lrrrrw" if energy else "lrrrw")


def _lanes(report: Data) -> Table:
    rows = [
        (
            f"{lane['device']} lane {lane['lane']}",
            f"{lane['utilisation']:.0%}",
            seconds_text(lane["busy"]),
            ", ".join(f"{kind} {count:,}" for kind, count in lane["ran"].items()),
        )
        for lane in report["lanes"][:LONGEST]
    ]
    return table(_more("Lanes", len(report["lanes"])), ["lane", "busy", "", "ran"], rows, numbers="lrrw")


def copies(report: Data) -> Table:
    """Return what was copied, by link."""
    rows = [
        (
            link,
            copies["over"] or "-",
            f"{copies['count']:,}",
            bytes_text(copies["bytes"]),
            seconds_text(copies["seconds"]),
            f"{bytes_text(copies['bytes_per_second'])}/s",
            ", ".join(f"{reason} {count:,}" for reason, count in copies["reasons"].items()),
        )
        for link, copies in list(grouping.links(report).items())[:LONGEST]
    ]
    title = f"Bytes moved: {bytes_text(report['copies']['bytes'])}"
    columns = ["from -> to", "over", "copies", "bytes", "time", "rate", "because"]
    return table(title, columns, rows, numbers="llrrrrw")


def _memories(report: Data) -> Table:
    """Return how full each memory was at its fullest, beside what it holds."""
    rows = [
        (
            name,
            bytes_text(memory["peak"]),
            bytes_text(memory["capacity"]) if memory["capacity"] else "-",
            f"{memory['peak'] / memory['capacity']:.0%}" if memory["capacity"] else "-",
        )
        for name, memory in list(report["memories"].items())[:LONGEST]
    ]
    title = _more("Memories", len(report["memories"]))
    return table(title, ["memory", "most at once", "holds", "full"], rows, numbers="lrrr")


def _program(report: Data) -> Table:
    """Return what the program's own thread and the interpreter cost."""
    scheduling, waits = report["scheduling"], report["user_wait"]
    longest = ", ".join(f"{what} {seconds_text(s)}" for what, s in list(waits["what"].items())[:6])
    gil = ", ".join(f"{name} {seconds_text(s)}" for name, s in list(report["gil_wait"]["kernels"].items())[:6])
    rows = [
        (
            "scheduling",
            seconds_text(scheduling["total"]),
            f"{seconds_text(scheduling['per_task'])} per task; {seconds_text(scheduling['hidden'])} hidden behind execution",
        ),
        (
            "starvation",
            seconds_text(scheduling["starvation"]),
            f"{scheduling['starvation_share']:.1%} of the run: every device idle while tasks were being scheduled",
        ),
        ("waiting for results", seconds_text(waits["total"]), longest),
        ("kernels waiting for the GIL", seconds_text(report["gil_wait"]["total"]), gil),
    ]
    if report["virtual"]:  # the rest is real time, which a simulation takes for something else
        rows = rows[2:3]
    return table("The program's own thread", ["", "time", ""], rows, numbers="lrw")


def _critical(report: Data) -> Table:
    path = report["critical_path"]
    title = f"Critical path: {seconds_text(path['length'])}, {path['share']:.0%} of the run"
    rows = [(name, seconds_text(seconds)) for name, seconds in list(path["names"].items())[:LONGEST]]
    return table(title, ["step", "time on the path"], rows, numbers="lr")


def _ended(name: str, entries: Data) -> Table:
    rows = [(f"I{e['id']}", e["kind"], e["what"], e["device"]) for e in entries["first"][:LONGEST]]
    title = _more(name.capitalize(), entries["count"])
    return table(title, ["", "kind", "what", "device"], rows, numbers="llwl")
