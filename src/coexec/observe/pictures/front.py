"""A front of pipelines as a picture: items per second against joules per item, the chosen one marked, others beside it.

Before: svg.py, plan/plan.py.  After: cli/plan_pipeline.py.  Knows plans as data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...plan.plan import Plan
from .svg import PALETTE, document, esc, joules_text, text_width

WIDTH, HEIGHT = 760.0, 430.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 40.0, 64.0, 58.0
MARGIN = 1.08  # of the largest value: no point lies on the edge


def front_svg(name: str, front: Sequence[Plan], chosen: Plan, others: Mapping[str, tuple[float, float]]) -> str:
    """Return a picture of a front. `others` are plans to compare with: name -> seconds and joules per item."""
    points = [(1.0 / plan.seconds, plan.joules or 0.0) for plan in front if plan.seconds]
    beside = {label: (1.0 / seconds, joules) for label, (seconds, joules) in others.items() if seconds > 0.0}
    most = max(x for x, _ in [*points, *beside.values()]) * MARGIN
    highest = (max(y for _, y in [*points, *beside.values()]) or 1.0) * MARGIN
    body = [
        f'<text class="ink" x="16" y="26" font-size="15" font-weight="600">{esc(name)}: {len(front)} pipelines</text>',
        '<text class="dim" x="16" y="45" font-size="12">each is quicker or more frugal than every other</text>',
        *_axes(most, highest),
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(_at(point, most, highest) for point in points))
    body.append(f'<polyline points="{line}" fill="none" stroke="{PALETTE[0]}" stroke-width="1.5"/>')
    for plan, point in zip(front, points, strict=False):
        x, y = _at(point, most, highest)
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{7 if plan is chosen else 4}" fill="{PALETTE[0]}"/>')
        if plan is chosen:
            body.append(_label(x, y - 12, f"{plan.objective}: {point[0]:.4g} items/s"))
    for label, point in beside.items():
        x, y = _at(point, most, highest)
        body.append(f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{PALETTE[1]}"/>')
        body.append(_label(x, y + 18, label))
    return document(WIDTH, HEIGHT, body, f"The front of {name}")


def _at(point: tuple[float, float], most: float, highest: float) -> tuple[float, float]:
    x, y = point
    return LEFT + x / most * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / highest * (HEIGHT - TOP - BOTTOM)


def _label(x: float, y: float, text: str) -> str:
    room = min(x, WIDTH - RIGHT - text_width(text, 11) / 2)
    return f'<text class="ink" x="{room:.1f}" y="{y:.1f}" font-size="11" text-anchor="middle">{esc(text)}</text>'


def _axes(most: float, highest: float) -> Iterator[str]:
    left, bottom = LEFT, HEIGHT - BOTTOM
    yield f'<path class="line" d="M{left} {TOP} V{bottom} H{WIDTH - RIGHT}" fill="none" stroke="#999999"/>'
    for share in (0.25, 0.5, 0.75, 1.0):
        x, y = _at((most * share, highest * share), most, highest)
        yield f'<text class="dim" x="{x:.1f}" y="{bottom + 18}" font-size="11" text-anchor="middle">{most * share:.4g}</text>'
        yield f'<text class="dim" x="{left - 8}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{esc(joules_text(highest * share))}</text>'
    yield f'<text class="dim" x="{(left + WIDTH - RIGHT) / 2}" y="{HEIGHT - 16}" font-size="12" text-anchor="middle">items per second</text>'
    yield f'<text class="dim" x="{left}" y="{TOP - 8}" font-size="12" text-anchor="middle">per item</text>'
