"""Pictures of sweeps: speed-up over the number of devices beside the ideal, and time over any other value.

Before: svg.py.  After: cli/simulate.py.  Knows points as plain data; hand-written SVG, as in gantt.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log2
from typing import Any, NamedTuple

from .svg import PALETTE, document, esc, fit, joules_text, seconds_text, text_width, ticks

WIDTH, HEIGHT = 760.0, 430.0
"""Of one panel, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 66.0, 42.0, 74.0, 60.0
LINE, SECOND = PALETTE[0], PALETTE[1]

Point = Mapping[str, Any]
Sweep = Mapping[str, Any]


class Panel(NamedTuple):
    """Where a panel's axes lie."""

    y: float  # its upper edge

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, upper, right and lower edge of the plot."""
        return LEFT, self.y + TOP, WIDTH - RIGHT, self.y + HEIGHT - BOTTOM

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a place given as shares of both axes."""
        left, top, right, bottom = self.box
        return left + x * (right - left), bottom - y * (bottom - top)


def scaling_svg(sweeps: Sequence[Sweep], title: str = "") -> str:
    """Return a picture with one panel for each sweep, one below the other. Points that failed are left out."""
    body: list[str] = []
    for number, sweep in enumerate(sweeps):
        frame = Panel(number * HEIGHT)
        points = [point for point in sweep["points"] if point["seconds"] is not None]
        body += _title(frame, title if number == 0 else "", sweep)
        if not points:
            body.append(_text(*frame.at(0.5, 0.5), "nothing came to its end", more='text-anchor="middle"'))
        elif counts_devices(sweep["what"]):
            body += _strong_scaling(frame, points)
        else:
            body += _bars(frame, points)
    return document(WIDTH, HEIGHT * max(1, len(sweeps)), body, title or "sweep")


def counts_devices(what: str) -> bool:
    """Tell whether a sweep is over how many devices there are."""
    return what in ("devices", "nodes") or what.endswith(" count")


def _text(x: float, y: float, text: str, size: float = 12, css: str = "ink", more: str = "") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {more}>{esc(text)}</text>'


def _title(frame: Panel, title: str, sweep: Sweep) -> Iterator[str]:
    usual = "Strong scaling" if counts_devices(sweep["what"]) else f"Time by {sweep['what']}"
    name = sweep.get("name") or usual
    yield _text(24, frame.y + 32, fit(title or name, WIDTH - 48, 17), 17, more='font-weight="600"')
    if title:
        yield _text(24, frame.y + 52, name, 12.5, "dim")


# Devices ------------------------------------------------------------------------------------------------------------------


def _strong_scaling(frame: Panel, points: Sequence[Point]) -> Iterator[str]:
    """Draw speed-up over the number of devices, both axes in powers of two, with the ideal line."""
    first = points[0]["devices"]
    counts = [point["devices"] for point in points]
    lowest = min([min(counts) / first, *(point["speed_up"] for point in points)])
    highest = max([max(counts) / first, *(point["speed_up"] for point in points), lowest * 2])
    x_axis, y_axis = (
        SweepAxis.around(min(counts), max(counts), 0.06, 0.06),
        SweepAxis.around(lowest, highest, 0.16, 0.05),
    )
    yield from _grid(frame, x_axis, y_axis, counts)
    ideal = [frame.at(x_axis.share(n), y_axis.share(n / first)) for n in (min(counts), max(counts))]
    (x1, y1), (x2, y2) = ideal
    yield f'<line class="edge" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke-dasharray="6 5"/>'
    line = [frame.at(x_axis.share(p["devices"]), y_axis.share(p["speed_up"])) for p in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
    yield f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2.5" stroke-linejoin="round"/>'
    for (x, y), point in zip(line, points, strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{LINE}"><title>{esc(_told(point))}</title></circle>'
    yield from _labels(line, points)
    yield from _legend(frame)


def _labels(line: Sequence[tuple[float, float]], points: Sequence[Point]) -> Iterator[str]:
    """Write time and efficiency below each point, as far as there is room."""
    free = 0.0
    for (x, y), point in zip(line, points, strict=True):
        time, share = seconds_text(point["seconds"]), f"{point['efficiency']:.0%}"
        half = max(text_width(time, 11), text_width(share, 11)) / 2
        centre = min(max(x, LEFT + half + 4), WIDTH - half - 6)
        if centre - half >= free:
            yield _text(centre, y + 20, time, 11, "ink over", more='text-anchor="middle"')
            yield _text(centre, y + 34, share, 11, "dim over", more='text-anchor="middle"')
            free = centre + half + 6


def _legend(frame: Panel) -> Iterator[str]:
    left, top, _, _ = frame.box
    x, y = left + 16, top + 16
    yield f'<line x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}" stroke="{LINE}" stroke-width="2.5"/>'
    yield _text(x + 34, y + 4, "simulated, with time and efficiency", 11.5, "ink over")
    yield f'<line class="edge" x1="{x}" y1="{y + 20}" x2="{x + 26}" y2="{y + 20}" stroke-dasharray="6 5"/>'
    yield _text(x + 34, y + 24, "ideal", 11.5, "ink over")


def _told(point: Point) -> str:
    energy = f", {joules_text(point['joules'])}" if point["joules"] is not None else ""
    return f"{point['value']}: {seconds_text(point['seconds'])}{energy}; {point['longest'] or ''}"


class SweepAxis(NamedTuple):
    """Numbers from `low` to `high`, in powers of two."""

    low: float
    high: float

    @classmethod
    def around(cls, low: float, high: float, before: float, after: float) -> SweepAxis:
        """Return an axis with room before and after, as shares of its length."""
        octaves = max(0.5, log2(high / low))
        return cls(low / 2.0 ** (before * octaves), high * 2.0 ** (after * octaves))

    def share(self, value: float) -> float:
        """Return how far along the axis a number lies."""
        return log2(value / self.low) / log2(self.high / self.low)

    def powers(self) -> list[float]:
        """Return the powers of two on it."""
        at, found = 2.0**-10, []
        while at <= self.high * 1.001:
            if at >= self.low * 0.999:
                found.append(at)
            at *= 2
        return found


def _grid(frame: Panel, x_axis: SweepAxis, y_axis: SweepAxis, counts: Sequence[int]) -> Iterator[str]:
    left, top, right, bottom = frame.box
    free = 0.0
    for count in sorted(set(counts)):
        x, _ = frame.at(x_axis.share(count), 0)
        half = text_width(str(count), 11.5) / 2
        yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
        if x - half >= free:
            yield _text(x, bottom + 18, str(count), 11.5, "dim", 'text-anchor="middle"')
            free = x + half + 6
    for power in y_axis.powers():
        _, y = frame.at(0, y_axis.share(power))
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield _text(left - 8, y + 4, f"{power:g}", 11.5, "dim", 'text-anchor="end"')
    yield _text((left + right) / 2, bottom + 42, "devices", 12, "dim", 'text-anchor="middle"')
    yield _text(
        20, (top + bottom) / 2, "speed-up", 12, "dim", f'text-anchor="middle" {_upright(20, (top + bottom) / 2)}'
    )


def _upright(x: float, y: float) -> str:
    return f'transform="rotate(-90 {x:.1f} {y:.1f})"'


# Anything else ------------------------------------------------------------------------------------------------------------


def _bars(frame: Panel, points: Sequence[Point]) -> Iterator[str]:
    """Draw the time of each value as a bar, with its energy below."""
    left, _, right, bottom = frame.box
    highest = max(point["seconds"] for point in points) or 1.0
    scale = ticks(highest, 6)
    for at, label in zip(scale.at, scale.labels, strict=True):
        _, y = frame.at(0, at / highest * 0.94)
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield _text(left - 8, y + 4, label, 11.5, "dim", 'text-anchor="end"')
    _, middle = frame.at(0, 0.5)
    yield _text(20, middle, scale.unit, 12, "dim", f'text-anchor="middle" {_upright(20, middle)}')
    each = (right - left) / len(points)
    wide = min(72.0, 0.62 * each)
    for number, point in enumerate(points):
        centre = left + (number + 0.5) * each
        _, y = frame.at(0, point["seconds"] / highest * 0.94)
        size = f'width="{wide:.1f}" height="{max(1.0, bottom - y):.1f}"'
        yield f'<rect x="{centre - wide / 2:.1f}" y="{y:.1f}" {size} rx="3" fill="{LINE}"><title>{esc(_told(point))}</title></rect>'
        middle_text = 'text-anchor="middle"'
        yield _text(centre, y - 7, fit(seconds_text(point["seconds"]), each, 11), 11, more=middle_text)
        yield _text(centre, bottom + 18, fit(str(point["value"]), each, 11.5), 11.5, more=middle_text)
        if point["joules"] is not None:
            yield _text(centre, bottom + 34, fit(joules_text(point["joules"]), each, 11), 11, "dim", middle_text)
