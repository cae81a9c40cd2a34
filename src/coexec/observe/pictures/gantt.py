"""One picture of a run: who did what when, and why the others were idle.

Before: trace.py, report.py, idle.py, svg.py.  After: cli/.  Hand-written SVG: needs no plotting library.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ...files import write_text
from ..analysis.idle import COPY, DEPENDENCY, END, LAUNCHING, NOTHING, SCHEDULING, SHARED, Idle, idle, task_label
from ..analysis.intervals import length, merge
from ..analysis.scheduling import scheduling, virtual
from ..report import trace_overlap
from ..trace import COMPUTE, KERNELS, Row, Trace
from .bars import Bar, bar_svg, blocks
from .svg import bytes_text, colours, count_text, document, esc, fit, seconds_text, text_width, ticks

IDLE_COLOURS = {
    NOTHING: "#b8c0ca", SCHEDULING: "#d1242f", LAUNCHING: "#e8905f", DEPENDENCY: "#d4a72c", COPY: "#6e8fb3",
    SHARED: "#9d8fc0", END: "",
}  # fmt: skip
"""Muted, and never next to the kernels' bars: they colour the thin ribbon below a device."""

RIGHT, RIBBON = 28.0, 5.0
MOMENT = 0.005
"""The share of a run below which the host's bookkeeping is left out."""


class _Frame:
    """Where time lies on the picture, and how far down it has been drawn."""

    def __init__(self, trace: Trace, width: float) -> None:
        self.start, stop = trace.window
        self.span = max(stop - self.start, 1e-9)
        names = max((text_width(name, 13) for name in trace.devices), default=0.0)
        self.left = min(0.25 * width, max(90.0, names + 82))  # room for a device's name and its lanes' numbers
        self.width, self.plot = width, width - self.left - RIGHT
        self.y = 0.0
        self.bands: list[str] = []  # behind everything
        self.parts: list[str] = []

    def x(self, t: float) -> float:
        return self.left + self.plot * min(1.0, max(0.0, (t - self.start) / self.span))

    def text(self, x: float, y: float, text: str, size: float = 11, css: str = "ink", more: str = "") -> None:
        self.parts.append(f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {more}>{esc(text)}</text>')


def gantt_svg(trace: Trace, path: str | os.PathLike[str] | None = None, width: int = 1100) -> str:
    """Return the picture of a run as self-contained SVG, and write it to `path` if one is given."""
    frame = _Frame(trace, max(480.0, float(width)))
    used = [name for name in trace.devices if _shown(trace, name)]
    colour = colours(_name(row) for row in trace.work if row["kind"] in KERNELS)
    lanes = _lanes(trace)
    title = _header(frame, trace, used)
    causes = idle(trace)
    _legend(frame, trace, colour, used, {s.cause for device in used for s in causes[device]})
    top = frame.y
    head = frame.parts
    frame.parts = []
    _program(frame, trace)
    for device in used:
        rows_of = _shared({lane: lanes[name, lane] for name, lane in sorted(lanes) if name == device})
        bars = [(label, _bars(frame, trace, rows, colour)) for label, rows in rows_of]
        _device(frame, device, bars, _ribbon(frame, causes[device]), _utilisation(trace, device))
    frame.parts = [*head, *frame.bands, *_axis(frame, top), *frame.parts]
    frame.y += 30
    picture = document(frame.width, frame.y, [_PATTERNS, *frame.parts], title)
    if path is not None:
        write_text(path, picture, "the picture")
    return picture


def _pattern(name: str, angle: int) -> str:
    return (
        f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate({angle})">'
        '<rect class="hatch" width="5" height="5"/><line class="stripe" x1="0" y1="0" x2="0" y2="5"/></pattern>'
    )


_PATTERNS = f"<defs>{_pattern('to', 45)}{_pattern('from', -45)}</defs>"


def _name(row: Row) -> str:
    return str(row.get("name") or row["kind"])


def _utilisation(trace: Trace, device: str) -> float:
    busy = length(merge((r["start"], r["stop"]) for r in trace.work if r["device"] == device and r["kind"] in COMPUTE))
    return busy / max(trace.window[1] - trace.window[0], 1e-12)


def _header(frame: _Frame, trace: Trace, used: Sequence[str]) -> str:
    """Draw the title and the figures; return the title."""
    kinds = Counter(row["kind"] for row in trace.work)
    moved = sum(trace.nbytes(row) for row in trace.work if row["kind"] == "copy")
    parallelism = sum(_utilisation(trace, device) for device in used)
    four = trace_overlap(trace)
    title = f"{count_text(len(trace.tasks), 'task')} in {seconds_text(frame.span)}"
    if virtual(trace):
        title += " of virtual time" + (f" on {name}" if (name := trace.simulation.get("platform")) else "")
    frame.text(20, 34, title, 19, more='font-weight="600"')
    figures = [
        f"parallelism {parallelism:.2f} on {count_text(len(used), 'device')}",
        f"{count_text(sum(kinds[kind] for kind in KERNELS), 'kernel')}, {four.cc:.0%} of their time behind earlier ones",
    ]
    if kinds["copy"]:
        copies = count_text(kinds["copy"], "copy") + (f" of {bytes_text(moved)}" if moved else "")
        figures.append(f"{copies}, {four.tc:.0%} of their time behind kernels")
    else:
        figures.append("no copies")
    idle_devices = [name for name in trace.devices if name not in (*used, "host")]
    if idle_devices:
        more = f" and {len(idle_devices) - 6} more" if len(idle_devices) > 6 else ""
        figures.append("not used: " + ", ".join(idle_devices[:6]) + more)
    if not trace.complete:
        figures.append("trace cut off")
    frame.y = 54
    line = ""
    for figure in figures:
        joined = f"{line}  ·  {figure}" if line else figure
        if line and text_width(joined, 12) > frame.width - 40:
            frame.text(20, frame.y, line, 12, "dim", 'xml:space="preserve"')
            frame.y += 17
            joined = figure
        line = joined
    frame.text(20, frame.y, line, 12, "dim", 'xml:space="preserve"')
    frame.y += 12
    return title


def _legend(frame: _Frame, trace: Trace, colour: dict[str, str], used: Sequence[str], causes: set[str]) -> None:
    """Draw what each colour means: kernels by their total time, then the rest."""
    total: Counter[str] = Counter()
    for row in trace.work:
        if row["kind"] in KERNELS and row["device"] in used:
            total[_name(row)] += row["stop"] - row["start"]
    shown = [name for name, _ in total.most_common(24)]
    entries = [(f'fill="{colour[name]}"', fit(name, 180, 11)) for name in shown]
    if len(total) > len(shown):
        entries.append(('class="misc" fill-opacity="0"', f"and {len(total) - len(shown):,} more"))
    kinds = {row["kind"] for row in trace.work if row["device"] in used}
    if "copy" in kinds:
        entries += [('fill="url(#to)"', "copy to a device"), ('fill="url(#from)"', "copy back")]
    if kinds - KERNELS - {"copy"}:
        entries.append(('class="misc"', ", ".join(sorted(kinds - KERNELS - {"copy"}))))
    if trace.waits:
        entries.append(('class="wait"', "program waits"))
    _swatches(frame, entries, 10)
    idle_entries = [(f'fill="{c}"', cause) for cause, c in IDLE_COLOURS.items() if c and cause in causes]
    if idle_entries:
        _swatches(frame, [('fill-opacity="0"', "idle because:"), *idle_entries], 5)
    frame.y += 8


def _swatches(frame: _Frame, entries: Sequence[tuple[str, str]], height: float) -> None:
    frame.y += 18
    x = 20.0
    for paint, label in entries:
        bare = "fill-opacity" in paint
        wide = (0 if bare else 18) + text_width(label, 11) + 16
        if x + wide > frame.width - 12 and x > 20:
            x, frame.y = 20.0, frame.y + 18
        if not bare:
            frame.parts.append(
                f'<rect {paint} x="{x:.1f}" y="{frame.y - 4 - height / 2:.1f}" width="13" height="{height}" rx="2"/>'
            )
        frame.text(x + (0 if bare else 18), frame.y, label, 11, "dim")
        x += wide


def _axis(frame: _Frame, top: float) -> Iterator[str]:
    """Yield grid lines behind the rows and the times below them."""
    axis = ticks(frame.span, max(3, int(frame.plot / 90)))
    bottom = frame.y
    for i, (at, label) in enumerate(zip(axis.at, axis.labels, strict=True)):
        x = frame.x(frame.start + at)
        yield f'<line class="grid" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom + 4:.1f}"/>'
        text = f"{label} {axis.unit}" if i in (0, len(axis.at) - 1) else label
        yield f'<text class="dim" x="{x:.1f}" y="{bottom + 18:.1f}" font-size="11" text-anchor="middle">{text}</text>'


def _program(frame: _Frame, trace: Trace) -> None:
    """Draw the user thread: ticks where tasks were submitted, shaded where it waited."""
    if not trace.waits and not trace.tasks:
        return
    y, height = frame.y + 6, 18.0
    frame.text(20, y + 13, "program", 12, more='font-weight="600"')
    frame.parts.append(
        f'<rect class="lane" x="{frame.left:.1f}" y="{y}" width="{frame.plot:.1f}" height="{height}" rx="3"/>'
    )
    waits = []
    for wait in sorted(trace.waits, key=lambda w: (w["start"], w["stop"])):
        what = wait.get("what") or "wait"
        title = f"program waits {seconds_text(wait['stop'] - wait['start'])} in {what}"
        waits.append(Bar(frame.x(wait["start"]), frame.x(wait["stop"]), "", "wait", what, title))
    for block in blocks(waits):
        frame.parts.append(bar_svg(block, y, height))
    pixels = Counter(round(frame.x(task["submitted"])) for task in trace.tasks)
    path = "".join(f"M{x} {y:g}v{5 if count == 1 else 8}" for x, count in sorted(pixels.items()))
    title = f"{count_text(len(trace.tasks), 'task')} submitted"
    frame.parts.append(f'<path class="edge" d="{path}"><title>{title}</title></path>')
    frame.y = y + height + 8
    _scheduler(frame, trace)


def _scheduler(frame: _Frame, trace: Trace) -> None:
    """Draw when tasks were being scheduled, in another colour where every device stood idle meanwhile."""
    found = scheduling(trace)
    if not found.busy:
        return
    y, height = frame.y, 10.0
    frame.text(20, y + 9, "scheduling", 10, "dim")
    bars = []
    for what, parts, fill in (
        ("hidden behind execution", found.hidden, IDLE_COLOURS[NOTHING]),
        ("every device idle", found.starved, IDLE_COLOURS[SCHEDULING]),
    ):
        for start, stop in parts:
            title = f"scheduling for {seconds_text(stop - start)}: {what}"
            bars.append(Bar(frame.x(start), frame.x(stop), fill, "", "", title))
    for block in blocks(sorted(bars)):
        frame.parts.append(bar_svg(block, y, height))
    frame.y = y + height + 6


def _shown(trace: Trace, device: str) -> bool:
    """Tell whether a device has a place in the picture: the host does only if it worked for more than a moment."""
    worked = [(r["start"], r["stop"]) for r in trace.work if r["device"] == device and r["kind"] in (*KERNELS, "copy")]
    if device != "host":
        return bool(worked) or any(row["device"] == device for row in trace.work)
    return length(merge(worked)) > MOMENT * (trace.window[1] - trace.window[0])


def _shared(lanes: dict[int, list[Row]]) -> list[tuple[str, list[Row]]]:
    """Return labelled rows: lanes that never work at the same time, as on a CPU core, share one; copies stay apart."""
    rows: list[tuple[list[int], list[Row]]] = []
    for lane, mine in lanes.items():
        for numbers, taken in rows:
            if any(row["kind"] == "copy" for row in (*taken, *mine)):
                continue
            both = list(heapq.merge(taken, mine, key=lambda row: row["start"]))
            if all(a["stop"] <= b["start"] + 1e-9 for a, b in pairwise(both)):
                numbers.append(lane)
                taken[:] = both
                break
        else:
            rows.append(([lane], list(mine)))
    return [(f"lane {n[0]}" if len(n) == 1 else count_text(len(n), "lane"), taken) for n, taken in rows]


def _lanes(trace: Trace) -> dict[tuple[str, int], list[Row]]:
    lanes: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in trace.work:
        if row["device"]:
            lanes[row["device"], row.get("lane") or 0].append(row)
    return lanes


def _bars(frame: _Frame, trace: Trace, rows: Iterable[Row], colour: dict[str, str]) -> list[Bar]:
    bars = []
    for row in rows:
        css, fill, label = "", "", _name(row)
        if row["kind"] in KERNELS:
            fill = colour[label]
        elif row["kind"] == "copy":
            target = trace.link(row).rpartition(" -> ")[2]
            fill = "url(#from)" if target in ("host", "user") else "url(#to)"
            label = ""
        else:
            css, label = "misc", ""
        failed = row.get("state") == "failed"
        bars.append(Bar(frame.x(row["start"]), frame.x(row["stop"]), fill, css, label, _title(trace, row), failed))
    return bars


def _title(trace: Trace, row: Row) -> str:
    """Return the tooltip of one instruction."""
    seconds = row["stop"] - row["start"]
    lines = [f"I{row['id']} {row['kind']} {row.get('name') or ''}".rstrip() + f": {seconds_text(seconds)}"]
    if row.get("task") is not None:
        lines.append(task_label(trace, row) + f" on {row['device']}, lane {row.get('lane') or 0}")
    if row["kind"] == "copy":
        lines.append(f"{trace.link(row)}, {bytes_text(trace.nbytes(row))}")
    if row.get("predicted"):
        lines.append(f"predicted {seconds_text(row['predicted'])}")
    if row.get("waited"):
        lines.append(f"{seconds_text(row['waited'])} of it waiting for the interpreter lock")
    if row.get("state", "done") != "done":
        lines.append(str(row["state"]))
    return "\n".join(lines)


def _ribbon(frame: _Frame, stretches: Iterable[Idle]) -> list[Bar]:
    """Return the idle time of a device as bars coloured by cause."""
    bars = []
    for start, stop, cause, detail in stretches:
        if fill := IDLE_COLOURS[cause]:
            title = f"idle {seconds_text(stop - start)}: {cause}" + (f" ({detail})" if detail else "")
            bars.append(Bar(frame.x(start), frame.x(stop), fill, "", "", title))
    return bars


def _device(
    frame: _Frame, name: str, lanes: Sequence[tuple[str, list[Bar]]], ribbon: Sequence[Bar], utilisation: float
) -> None:
    """Draw one device: its rows, and below them why it was idle."""
    tall = 30.0 if len(lanes) == 1 else 22.0 if len(lanes) <= 6 else 14.0 if len(lanes) <= 16 else 9.0
    gap = 3.0 if len(lanes) <= 16 else 1.0
    top = frame.y + 4
    height = len(lanes) * (tall + gap) + RIBBON + 11
    frame.bands.append(
        f'<rect class="band" x="8" y="{top:.1f}" width="{frame.width - 16:.1f}" height="{height:.1f}" rx="6"/>'
    )
    y = top + 6
    frame.text(20, y + 13, fit(name, frame.left - 28 - (44 if len(lanes) > 1 else 0), 12), 12, more='font-weight="600"')
    place = y + 28 if height > 44 else y + 25
    frame.text(20, place, f"{utilisation:.0%} busy", 10, "dim")
    for label, bars in lanes:
        if tall >= 14 and len(lanes) > 1:
            frame.text(frame.left - 8, y + tall / 2 + 3.5, label, 10, "dim", 'text-anchor="end"')
        frame.parts.append(
            f'<rect class="lane" x="{frame.left:.1f}" y="{y:.1f}" width="{frame.plot:.1f}" height="{tall:g}" rx="3"/>'
        )
        frame.parts += [bar_svg(block, y, tall) for block in blocks(bars)]
        y += tall + gap
    frame.parts += [bar_svg(block, y, RIBBON, round=0) for block in blocks(ribbon)]
    frame.y = top + height
