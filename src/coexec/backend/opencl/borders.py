"""Padded copies on a device: OpenCL C that completes a box beyond an array's border, as `program/padding.py` does.

Before: program/padding.py.  After: program.py.  Pure text and numbers: knows no buffer, queue or compiler.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...geometry import Box
from ...program.padding import CUT, Border, Pad

SOURCE, TARGET = "u", "padded"
"""What the arrays are called in the source."""


@cache
def pad_source(borders: tuple[Border, ...], *, apart: bool = False) -> str:
    """Return the statement for one point of a padded box; numbers may differ from call to call, so they are scalars.

    `apart` tells that the source is one of several, each of which has some of the points.
    """
    axes = range(len(borders))
    lines = [f"long p{axis} = i{axis} + first{axis};" for axis in axes]
    here = f"{TARGET}({', '.join(f'i{axis}' for axis in axes)})"
    lines += [  # one axis after the other: the last one's number shows in corners
        f"if (p{axis} < 0 || p{axis} >= size{axis}) {{ {here} = number{axis}; return; }}"
        for axis in reversed(axes)
        if not isinstance(borders[axis], str)
    ]
    lines += [_moved(axis, str(borders[axis])) for axis in axes if borders[axis] not in CUT]
    if apart:
        lines += [f"if (p{axis} < held{axis} || p{axis} >= ended{axis}) return;" for axis in axes]
    there = ", ".join(f"p{axis} - held{axis}" for axis in axes)
    return "\n".join([*filter(None, lines), f"{here} = {SOURCE}({there});"])


def _moved(axis: int, border: str) -> str:
    p, size = f"p{axis}", f"size{axis}"
    if border == "wrap":
        return f"{p} = ({p} % {size} + {size}) % {size};"
    if border == "edge":
        return f"{p} = min(max({p}, 0L), {size} - 1L);"
    if border == "reflect":
        period = f"max(1L, 2L * ({size} - 1L))"
        return f"{p} = ({p} % {period} + {period}) % {period}; if ({p} >= {size}) {p} = {period} - {p};"
    return ""


def pad_scalars(pad: Pad, dtype: np.dtype[Any], part: Box | None = None) -> dict[str, Any]:
    """Return the numbers that the statement names; `part` is what the source holds if it is one of several."""
    found: dict[str, Any] = {}
    for axis, border in enumerate(pad.borders):
        found[f"first{axis}"] = pad.wanted.lo[axis]
        found[f"held{axis}"] = (part or pad.hull).lo[axis]
        if part is not None:
            found[f"ended{axis}"] = part.hi[axis]
        found[f"size{axis}"] = pad.shape[axis]
        if not isinstance(border, str):
            number = np.full((), border, dtype)[()]
            found[f"number{axis}"] = np.float32(number) if dtype == np.float16 else number
    return found
