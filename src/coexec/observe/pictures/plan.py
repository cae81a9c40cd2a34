"""A plan as a picture: one bar per device along a time axis, with its copies, and the limit as a line.

Before: svg.py, bars.py, plan/plan.py.  After: cli/plan.py.  Knows plans as data; no device and no kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...plan.plan import Part, Plan
from .bars import Bar, BarGroup, bar_svg
from .svg import PALETTE, document, esc, fit, seconds_text, text_width, ticks

WIDTH, LEFT, RIGHT = 860.0, 120.0, 28.0
TOP, ROW, HEIGHT, FOOT = 58.0, 40.0, 24.0, 62.0
COPY, COMPUTE = PALETTE[5], PALETTE[0]
LIMIT = "#EE6677"


def plan_svg(plan: Plan, unable: Mapping[str, str] | None = None) -> str:
    """Return the plan as a self-contained SVG picture; `unable` names further devices and why they do nothing."""
    left_out = {**plan.left_out, **(unable or {})}
    names = [*plan.shares, *left_out]
    span = max([plan.seconds or 0.0, plan.limit_seconds or 0.0, *(part.finish_s or 0.0 for part in plan.parts)]) * 1.04
    scale = (WIDTH - LEFT - RIGHT) / span if span else 0.0
    height = TOP + ROW * len(names) + FOOT
    bottom = TOP + ROW * len(names)
    body = [_heading(plan)]
    body += _axis(span, scale, bottom)
    for number, name in enumerate(names):
        y = TOP + ROW * number
        body.append(f'<text class="{"dim" if name in left_out else "ink"}" x="16" y="{y + 16.5:.1f}" font-size="13">')
        body[-1] += f"{esc(fit(name, LEFT - 24, 13))}</text>"
        if name in left_out:
            body.append(_idle(left_out[name], y))
        else:
            body += [piece for part in plan.parts if part.device == name for piece in _part(part, y, scale)]
    if plan.limit_seconds is not None and scale:
        body.append(_limit(plan.limit_seconds, LEFT + plan.limit_seconds * scale, bottom))
    body.append(_legend(height))
    return document(WIDTH, height, body, f"The plan of {plan.name}")


def _heading(plan: Plan) -> str:
    space = " x ".join(map(str, plan.space)) or "1"
    took = (
        "predicted: unknown" if plan.seconds is None else f"predicted: {seconds_text(plan.seconds)} ±{plan.spread:.0%}"
    )
    if plan.joules is not None:
        took += f", {plan.joules:.4g} J"
    return (
        f'<text class="ink" x="16" y="26" font-size="15" font-weight="600">{esc(plan.name)} over {esc(space)}</text>'
        f'<text class="dim" x="16" y="45" font-size="12">{esc(took)}</text>'
    )


def _axis(span: float, scale: float, bottom: float) -> Iterator[str]:
    if not scale:
        return
    marks = ticks(span, 8)
    for at, label in zip(marks.at, marks.labels, strict=True):
        x = LEFT + at * scale
        yield f'<path class="grid" d="M{x:.1f} {TOP - 4:.1f}V{bottom:.1f}"/>'
        yield f'<text class="dim" x="{x:.1f}" y="{bottom + 16:.1f}" font-size="11" text-anchor="middle">{esc(label)}</text>'
    yield (
        f'<text class="dim" x="{WIDTH - 6:.1f}" y="{bottom + 16:.1f}" font-size="11" text-anchor="end">{marks.unit}</text>'
    )


def _part(part: Part, y: float, scale: float) -> Iterator[str]:
    """Yield a device's bars: its inputs, its compute, its results."""
    if part.finish_s is None or part.compute_s is None:
        text = f"{part.share:.1%}: unknown time"
        yield f'<text class="dim" x="{LEFT:.1f}" y="{y + 16.5:.1f}" font-size="12">{esc(text)}</text>'
        return
    done = part.finish_s - part.output_s
    begun = max(0.0, done - part.compute_s)
    about = f"{part.device}: {part.share:.1%} as {part.variant}, {seconds_text(part.compute_s)} ±{part.spread:.0%}"
    for start, stop, fill, label, title in (
        (max(0.0, begun - part.input_s), begun, COPY, "", f"copy in: {seconds_text(part.input_s)}"),
        (begun, done, COMPUTE, f"{part.share:.1%}", f"{about} by {part.source}"),
        (done, part.finish_s, COPY, "", f"copy out: {seconds_text(part.output_s)}"),
    ):
        if stop > start:
            bar = Bar(LEFT + start * scale, LEFT + stop * scale, fill, "", label, title)
            yield bar_svg(BarGroup(bar), y, HEIGHT)


def _idle(why: str, y: float) -> str:
    """Return the row of a device that does nothing."""
    width = WIDTH - LEFT - RIGHT
    return (
        f'<g><title>{esc(why)}</title><rect class="lane" x="{LEFT:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{HEIGHT:g}" rx="2"/><text class="dim" x="{LEFT + 8:.1f}" y="{y + 16.5:.1f}" font-size="11.5">'
        f"{esc(fit(why, width - 16, 11.5))}</text></g>"
    )


def _limit(seconds: float, x: float, bottom: float) -> str:
    text = f"limit {seconds_text(seconds)}"
    anchor = "end" if x + text_width(text, 11) > WIDTH - RIGHT else "start"
    return (
        f"<g><title>all devices at full speed, nothing to copy</title>"
        f'<path d="M{x:.1f} {TOP - 8:.1f}V{bottom:.1f}" stroke="{LIMIT}" stroke-width="2" stroke-dasharray="5 3"/>'
        f'<text x="{x + (4 if anchor == "start" else -4):.1f}" y="{TOP - 8:.1f}" font-size="11" fill="{LIMIT}" '
        f'text-anchor="{anchor}">{esc(text)}</text></g>'
    )


def _legend(height: float) -> str:
    x, parts = LEFT, []
    for colour, label in ((COPY, "copies"), (COMPUTE, "compute"), (LIMIT, "limit")):
        parts.append(f'<rect x="{x:.1f}" y="{height - 24:.1f}" width="11" height="11" rx="2" fill="{colour}"/>')
        parts.append(f'<text class="dim" x="{x + 16:.1f}" y="{height - 14:.1f}" font-size="11">{label}</text>')
        x += 28 + text_width(label, 11)
    return "".join(parts)
