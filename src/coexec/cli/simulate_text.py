"""What `coexec simulate` prints for people: the run as tables, sweeps with bars, changes as before and after.

Before: answers.py, trace.py.  After: simulate.py.  Computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..observe.pictures.scaling import counts_devices
from ..observe.pictures.svg import joules_text, seconds_text
from . import answers
from .cases import AS_IT_IS
from .output import console, table
from .trace import copies, devices

if TYPE_CHECKING:
    from rich.table import Table

Data = dict[str, Any]
BAR = 24
"""Characters of the longest bar."""


def show(answer: Data, *, brief: bool) -> None:
    """Print the answers; of a run that did not come to its end only the headline."""
    screen = console()
    report = answer["summary"]
    for line in answers.headline(report):
        screen.print(line, soft_wrap=True)
    if answer["until"] and not brief:
        screen.print(f"until the program reads a result, at {answer['until']}", soft_wrap=True)
    if not brief:
        for part in tables(answer):
            screen.print(part)
        for line in closing(answer):
            screen.print(line, soft_wrap=True)


def tables(answer: Data) -> Iterator[Table]:
    """Yield the tables: of the run itself if nothing else was asked for, else of what was."""
    report = answer["summary"]
    if not answer["sweeps"] and not answer["what_if"]:
        yield devices(report)
        if report["copies"]["count"]:
            yield copies(report)
        yield from answers.tables(report)
    for sweep in answer["sweeps"]:
        yield _sweep(sweep)
    if answer["what_if"]:
        yield _what_if(answer)


def _sweep(sweep: Data) -> Table:
    counted = counts_devices(sweep["what"])
    best = max((point["speed_up"] or 0.0 for point in sweep["points"]), default=0.0)
    rows = [
        (
            point["value"],
            _or_dash(seconds_text, point["seconds"]),
            _or_dash("{:.2f}".format, point["speed_up"]),
            *([_or_dash("{:.0%}".format, point["efficiency"])] if counted else []),
            _or_dash(joules_text, point["joules"]),
            _bar(point["speed_up"], best),
            point["longest"] or "did not come to its end",
        )
        for point in sweep["points"]
    ]
    columns = [sweep["what"], "time", "speed-up", *(["efficiency"] if counted else []), "energy", "", "longest part"]
    return table("Strong scaling" if counted else "Sweep", columns, rows, numbers="rrrrrlw" if counted else "rrrrlw")


def _bar(value: float | None, best: float) -> str:
    return "█" * max(1, round(BAR * value / best)) if value and best else ""


def _what_if(answer: Data) -> Table:
    before = (
        AS_IT_IS,
        seconds_text(answer["seconds"]),
        "",
        _or_dash(joules_text, answer["joules"]),
        "",
        answer["longest"],
    )
    rows = [before] + [
        (
            change["change"],
            _or_dash(seconds_text, change["seconds"]),
            _or_dash("x{:.2f}".format, change["speed_up"]),
            _or_dash(joules_text, change["joules"]),
            _or_dash("x{:.2f}".format, change["energy_ratio"]),
            change["longest"] or "did not come to its end",
        )
        for change in answer["what_if"]
    ]
    columns = ["what if", "time", "speed-up", "energy", "", "longest part"]
    return table("What if", columns, rows, numbers="lrrrrw")


def _or_dash(text: Any, value: float | None) -> str:
    return "-" if value is None else str(text(value))


def longest(report: Data) -> str:
    """Return the longest part of the path, in a few words."""
    parts = report["bottleneck"]["parts"]
    return f"{parts[0]['text']} {parts[0]['share']:.0%}" if parts else ""


def closing(answer: Data) -> Iterator[str]:
    """Yield where the bottleneck is, what to ask next, and where to look."""
    case = f"With {answer['case']}, " if answer["case"] != AS_IT_IS else ""
    yield case + answer["bottleneck"]
    if not answer["what_if"] and (hint := _hint(answer["summary"])):
        yield hint
    trace = answer["trace"]
    others = (
        f" (the script opened {len(answer['traces'])} runtimes; this is the first)" if len(answer["traces"]) > 1 else ""
    )
    for path in answer["written"]:
        yield f"wrote {path}"
    yield f"trace in {trace}{others}; look at it with: coexec trace {trace}"


def _hint(report: Data) -> str:
    """Return the question that the bottleneck suggests."""
    parts = report["bottleneck"]["parts"]
    first = parts[0] if parts else {}
    if first.get("kind") == "copy" and first["name"].startswith("over "):
        wire = first["name"].removeprefix("over ").partition("+")[0]
        return f'What would a faster one bring? --what-if "link {wire} bandwidth x2"'
    if first.get("kind") == "kernel" and first["devices"]:
        stem = first["devices"][0].rpartition("/")[2].partition(":")[0]
        return f'What would one more bring? --what-if "device {stem} count +1"'
    return ""
