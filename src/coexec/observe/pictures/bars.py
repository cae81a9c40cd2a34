"""Bars along a lane, and how many small ones become one.

Before: svg.py.  After: gantt.py.  Knows pixels, not what ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .svg import esc, fit, ink_on

SMALL = 0.5
"""Bars narrower than this many pixels are drawn together."""
WIDEST = 3.0
"""What is drawn together is at most so many pixels wide, so that colours still follow the run."""


class Bar(NamedTuple):
    """A stretch of a lane, in pixels."""

    x0: float
    x1: float
    fill: str  # a colour or a pattern; "" leaves it to the class
    css: str  # a class of svg.STYLE, or ""
    label: str  # written inside where it fits
    title: str  # the tooltip
    failed: bool = False


class BarGroup(NamedTuple):
    """A bar, or several too small to be drawn apart."""

    bar: Bar
    members: int = 1
    cover: float = 1.0  # share of its width that is really covered


def blocks(bars: Sequence[Bar]) -> Iterator[BarGroup]:
    """Yield bars (given by start), with neighbours that are too small to be seen drawn as one."""
    group: list[Bar] = []
    for bar in bars:
        small = bar.x1 - bar.x0 < SMALL
        if group and (not small or bar.x0 - group[-1].x1 >= SMALL or bar.x1 - group[0].x0 > WIDEST):
            yield _block(group)
            group = []
        if small:
            group.append(bar)
        else:
            yield BarGroup(bar)
    if group:
        yield _block(group)


def _block(group: list[Bar]) -> BarGroup:
    """Return one block for small neighbours, in the colour that fills most of it."""
    if len(group) == 1:
        return BarGroup(group[0])
    share: Counter[tuple[str, str]] = Counter()
    for bar in group:
        share[bar.fill, bar.css] += bar.x1 - bar.x0  # type: ignore[assignment]
    (fill, css), _ = share.most_common(1)[0]
    x0, x1 = group[0].x0, max(bar.x1 for bar in group)
    names = Counter(bar.label or bar.title.partition("\n")[0].partition(":")[0] for bar in group).most_common(4)
    title = f"{len(group):,} together: " + ", ".join(f"{name} {count:,}" for name, count in names)
    cover = sum(share.values()) / max(x1 - x0, SMALL)
    bar = Bar(x0, x1, fill, css, "", title, any(bar.failed for bar in group))
    return BarGroup(bar, len(group), min(1.0, cover))


def bar_svg(block: BarGroup, y: float, height: float, round: float = 2) -> str:
    """Return the block as SVG: a rectangle with a tooltip, and its label where it fits."""
    bar, width = block.bar, max(block.bar.x1 - block.bar.x0, SMALL)
    paint = f' fill="{bar.fill}"' if bar.fill else ""
    paint += f' class="{bar.css}"' if bar.css else ""
    if block.members > 1:
        paint += f' fill-opacity="{max(0.3, block.cover):.2f}"'
    # A hairline between neighbours: without it equal kernels in a row look like one.
    shown = width - 0.6 if width > 3 else width
    corner = f' rx="{round:g}"' if round and width > 5 else ""
    place = f'x="{bar.x0:.2f}" y="{y:.1f}" width="{shown:.2f}" height="{height:g}"'
    parts = [f"<g><title>{esc(bar.title)}</title><rect{paint} {place}{corner}/>"]
    if bar.failed:
        parts.append(
            f'<path class="bad" d="M{bar.x0:.2f} {y:.1f}h{shown:.2f}v{height:g}h-{shown:.2f}zl{shown:.2f} {height:g}"/>'
        )
    if bar.label and height >= 14 and (text := fit(bar.label, width - 8, 10.5)):
        ink = f'fill="{ink_on(bar.fill)}"' if bar.fill.startswith("#") else 'class="ink"'
        at = f'x="{bar.x0 + 5:.1f}" y="{y + height / 2 + 3.8:.1f}"'
        parts.append(f'<text {ink} {at} font-size="10.5" pointer-events="none">{esc(text)}</text>')
    return "".join(parts) + "</g>"
