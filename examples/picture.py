"""Pictures for the examples, with nothing but NumPy and the standard library: a heat map as PNG, a plot as SVG.

The examples import it; it is no example itself.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coexec.observe.svg import PALETTE, document, esc

VIRIDIS = "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725"  # from little to much
INFERNO = "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4"  # as above, like something hot
BALANCE = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"  # below and above the middle
"""Colour maps: equal steps in value look like equal steps in colour, also to the colour-blind."""


def heat_map(path, values, colours=VIRIDIS, low=None, high=None, scale=1):
    """Write a 2-d array as a PNG, row 0 on top, each value `scale` pixels wide and high; `low` to `high` is the range."""
    values = np.asarray(values, float)
    low, high = (np.nanmin(values) if low is None else low, np.nanmax(values) if high is None else high)
    level = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0) * 255
    pixels = _table(colours)[np.nan_to_num(level).astype(np.uint8)]
    pixels[np.isnan(values)] = 255  # white where there is nothing
    png(path, pixels.repeat(scale, axis=0).repeat(scale, axis=1))


def png(path, pixels):
    """Write an array of bytes (rows, columns, red-green-blue) as a PNG."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    rows[1:, 1:] -= rows[:-1, 1:].copy()  # PNG's filter 2: what changed from the row above is better compressed
    rows[1:, 0] = 2
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    chunks = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts)
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def _table(colours):
    """Return 256 colours between the given ones."""
    given = np.array([list(bytes.fromhex(colour)) for colour in colours.split()], float)
    at = np.linspace(0, len(given) - 1, 256)
    return np.stack([np.interp(at, range(len(given)), part) for part in given.T], axis=1).round().astype(np.uint8)


class Series(NamedTuple):
    """What one colour of a plot shows."""

    name: str  # in the legend; empty: not there
    x: object
    y: object
    points: bool = False  # dots instead of a line
    size: float = 1.6  # a dot's radius or a line's width, in pixels
    colour: str = ""  # empty: the next one of the palette


LEFT, TOP, RIGHT, BOTTOM = 70, 44, 20, 52  # around the frame, in pixels


def plot(path, title, series, x="", y="", log="", width=720, height=440, equal=False):
    """Write lines and points as an SVG with axes named `x` and `y`; `log` names the logarithmic ones ("y", "xy").

    `equal`: a unit is as long on one axis as on the other.
    """
    shown = [s._replace(x=np.asarray(s.x, float).ravel(), y=np.asarray(s.y, float).ravel()) for s in series]
    across, up = (_Axis([getattr(s, name) for s in shown], name in log) for name in "xy")
    if equal:
        height = TOP + BOTTOM + (width - LEFT - RIGHT) * (up.high - up.low) / (across.high - across.low)
    across.place(LEFT, width - RIGHT)
    up.place(height - BOTTOM, TOP)
    body = [f'<text class="ink" x="{LEFT}" y="26" font-size="15" font-weight="600">{esc(title)}</text>']
    body += _frame(across, up, x, y, width, height)
    for number, s in enumerate(shown):
        colour = s.colour or PALETTE[number % len(PALETTE)]
        places = [f"{a:.1f},{b:.1f}" for a, b in zip(across.pixels(s.x), up.pixels(s.y), strict=True)]
        if s.points:  # a path of empty strokes with round ends: far shorter than a circle each
            dots = "".join(f"M{place}h0" for place in places)
            body.append(f'<path d="{dots}" stroke="{colour}" stroke-width="{2 * s.size}" stroke-linecap="round"/>')
        else:
            body.append(
                f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="{s.size}"/>'
            )
    body += _legend(shown, width)
    Path(path).write_text(document(width, round(height), body, title), encoding="utf-8")


class _Axis:
    """Where values lie between two pixels, and the round ones among them."""

    def __init__(self, arrays, log):
        values = np.concatenate(arrays)
        values = values[np.isfinite(values) & ((values > 0) | (not log))]
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        self.log = log
        if log:
            self.low, self.high = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            self.high = max(self.high, self.low + 1)
        else:
            rim = 0.03 * (high - low) or 0.5
            self.low, self.high = low - rim, high + rim

    def place(self, first, last):
        self.first, self.last = first, last

    def pixels(self, values):
        if self.log:
            values = np.log10(np.maximum(values, 10.0**self.low))
        return self.first + (values - self.low) / (self.high - self.low) * (self.last - self.first)

    def ticks(self):
        """Return (value, label) of about six round values."""
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / 7))
            return [(10.0**n, f"1e{n}" if abs(n) > 3 else f"{10.0**n:g}") for n in range(self.low, self.high + 1, step)]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(n * step, f"{n * step:.6g}") for n in range(first, last + 1)]


def _frame(across, up, x, y, width, height):
    """Yield the grid, its numbers and the names of the axes."""
    bottom, right = height - BOTTOM, width - RIGHT
    for value, label in across.ticks():
        at = float(across.pixels(value))
        yield f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{bottom:.1f}"/>'
        yield f'<text class="dim" x="{at:.1f}" y="{bottom + 18:.1f}" font-size="12" text-anchor="middle">{label}</text>'
    for value, label in up.ticks():
        at = float(up.pixels(value))
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
        yield f'<text class="dim" x="{LEFT - 8}" y="{at + 4:.1f}" font-size="12" text-anchor="end">{label}</text>'
    middle, centre = (TOP + bottom) / 2, (LEFT + right) / 2
    turned = f'transform="rotate(-90 16 {middle:.1f})"'
    yield f'<text class="ink" x="{centre}" y="{bottom + 40:.1f}" font-size="13" text-anchor="middle">{esc(x)}</text>'
    yield f'<text class="ink" x="16" y="{middle:.1f}" font-size="13" text-anchor="middle" {turned}>{esc(y)}</text>'


def _legend(series, width):
    """Yield the names, from right to left above the frame."""
    at = width - RIGHT
    for number, s in reversed(list(enumerate(series))):
        if s.name:
            colour = s.colour or PALETTE[number % len(PALETTE)]
            yield f'<text class="ink" x="{at}" y="26" font-size="13" text-anchor="end">{esc(s.name)}</text>'
            at -= 7.2 * len(s.name) + 12
            yield f'<circle cx="{at}" cy="21.5" r="5" fill="{colour}"/>'
            at -= 16
