"""What every picture shares: escaped text, units, colours, and a style for light and dark pages.

Before: nothing.  After: gantt.py, graphs.py.  Knows no trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import NamedTuple
from zlib import crc32

PALETTE = (
    "#4477AA", "#EE7733", "#228833", "#AA3377", "#66CCEE", "#CCBB44", "#009988", "#EE6677", "#8877CC", "#A0743C",
)  # fmt: skip
"""Distinguishable with every common form of colour blindness (after Paul Tol), and on white and black."""

FONT = "font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',Arial,sans-serif\""

STYLE = """
.bg{fill:#ffffff}.ink{fill:#1f2328}.dim{fill:#656d76}.grid{stroke:#d0d7de;stroke-width:1}.band{fill:#f6f8fa}
.lane{fill:#e9edf1}.rule{stroke:#d0d7de;stroke-width:1;fill:none}.misc{fill:#8c959f}.hatch{fill:#c3cfdd}
.stripe{stroke:#5b7089;stroke-width:3}.wait{fill:#9a6700;fill-opacity:.16;stroke:#9a6700;stroke-opacity:.55}
.node{fill:#ffffff;stroke:#8c959f;stroke-width:1}.edge{stroke:#57606a;fill:none;stroke-width:1.1}.tip{fill:#57606a}
.over{paint-order:stroke;stroke:#ffffff;stroke-width:5px;stroke-linejoin:round}.warn{fill:#9a6700}.bad{stroke:#d1242f;stroke-width:2;fill:none}
@media (prefers-color-scheme:dark){
.bg{fill:#0d1117}.ink{fill:#e6edf3}.dim{fill:#8d96a0}.grid{stroke:#262c34}.band{fill:#141a22}.lane{fill:#1f2730}
.rule{stroke:#30363d}.misc{fill:#6e7681}.hatch{fill:#3a4756}.stripe{stroke:#8fa6c0}
.over{stroke:#0d1117}.wait{fill:#d29922;fill-opacity:.2;stroke:#d29922;stroke-opacity:.6}
.node{fill:#161b22;stroke:#6e7681}.edge{stroke:#8d96a0}.tip{fill:#8d96a0}.warn{fill:#d29922}.bad{stroke:#f85149}
}"""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def esc(text: object) -> str:
    """Return text that may stand anywhere in XML."""
    return _UNPRINTABLE.sub("?", str(text)).translate(_ESCAPES)


def text_width(text: str, size: float) -> float:
    """Return about how wide a text is, in pixels; on the wide side."""
    return size * sum(0.34 if c in "iljt.,:;|'![]()I " else 0.92 if c in "mwMW@%" else 0.6 for c in text)


def fit(text: str, width: float, size: float) -> str:
    """Return the text, shortened with an ellipsis until it fits `width` pixels; empty if nothing useful fits."""
    if text_width(text, size) <= width:
        return text
    while len(text) > 1 and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…" if len(text) > 1 else ""


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= scale * 0.9995:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns" if seconds else "0 s"


def bytes_text(count: float) -> str:
    """Return a number of bytes with three digits and its (decimal) unit."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale * 0.9995:
            return f"{_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def joules_text(joules: float) -> str:
    """Return an energy with three digits and its unit."""
    for unit, scale in (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3)):
        if abs(joules) >= scale * 0.9995:
            return f"{_digits(joules / scale)} {unit}"
    return f"{_digits(joules / 1e-6)} µJ" if joules else "0 J"


def _digits(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def count_text(count: int, noun: str) -> str:
    """Return "1 copy", "2 copies", "1,000 kernels"."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


class Ticks(NamedTuple):
    """Round times along an axis."""

    at: Sequence[float]  # seconds
    labels: Sequence[str]
    unit: str


def ticks(span: float, about: int = 10) -> Ticks:
    """Return about `about` round times from 0 to `span` seconds, with labels in one unit."""
    if span <= 0:
        return Ticks([0.0], ["0"], "s")
    rough = span / max(1, about)
    power = 10.0 ** floor(log10(rough))
    step = power * next(m for m in (1, 2, 5, 10, 20) if m * power >= rough * (1 - 1e-9))
    unit, scale = next((u for u in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if span >= u[1]), ("ns", 1e-9))
    places = max(0, -floor(log10(step / scale) + 1e-9))
    at = [i * step for i in range(int(span / step + 1e-9) + 1)]
    return Ticks(at, [f"{t / scale:,.{places}f}" for t in at], unit)


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour per name: the same name gets the same one in every picture, unless two would meet."""
    chosen: dict[str, str] = {}
    free: set[int] = set()
    for number, name in enumerate(sorted(set(names))):
        free = free or set(range(len(PALETTE)))
        wish = crc32(name.encode("utf-8", "replace"))
        at = min(free, key=lambda i: (i - wish) % len(PALETTE))
        free.discard(at)
        chosen[name] = _shade(PALETTE[at], number // len(PALETTE))
    return chosen


def _shade(colour: str, round: int) -> str:
    """Return the colour, paler when the palette is used a second time, deeper the third."""
    towards, share = ((255, 0.0), (255, 0.45), (0, 0.35))[round % 3]
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{int(part + (towards - part) * share + 0.5):02X}" for part in parts)


def ink_on(colour: str) -> str:
    """Return black or white, whichever is better read on `colour`."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.6 else "#111111"


def document(width: float, height: float, body: Iterable[str], title: str) -> str:
    """Return a self-contained SVG picture with its own background."""
    size = f'width="{width:g}" height="{height:g}"'
    view = f'viewBox="0 0 {width:g} {height:g}" {size} {FONT} role="img" aria-label="{esc(title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view}>\n<style>{STYLE}</style>\n<rect class="bg" {size} rx="8"/>'
    return "\n".join([head, *body, "</svg>\n"])
