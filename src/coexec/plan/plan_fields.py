"""What each field of a saved plan may hold.

Before: errors.py.  After: plan/plan.py.  Knows plans as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

MOST = 1 << 62
"""No extent or index is larger."""
SHOWN = 60
"""Characters of a wrong value that an error shows."""


class Kind(NamedTuple):
    """What a field may hold."""

    fits: Callable[[Any], bool]
    says: str


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # a NaN is refused, too


def _or_null(kind: Kind) -> Kind:
    return Kind(lambda value: value is None or kind.fits(value), f"{kind.says} or null")


def _by_name(kind: Kind, says: str) -> Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(n, str) and kind.fits(v) for n, v in value.items())

    return Kind(fits, says)


_TEXT = Kind(lambda value: isinstance(value, str), "a text")
_NUMBER = Kind(_number, "a number from 0")
_POINT = Kind(
    lambda value: isinstance(value, list | tuple) and all(map(_whole, value)), "a list of whole numbers from 0"
)
PART = {
    "device": _TEXT,
    "variant": _TEXT,
    "lo": _POINT,
    "hi": _POINT,
    "share": _NUMBER,
    "input_s": _NUMBER,
    "compute_s": _or_null(_NUMBER),
    "output_s": _NUMBER,
    "finish_s": _or_null(_NUMBER),
    "spread": _NUMBER,
    "source": _TEXT,
}
PLAN = {
    "kind": _TEXT,
    "name": _TEXT,
    "shapes": _TEXT,
    "space": _POINT,
    "parts": Kind(
        lambda value: isinstance(value, list | tuple) and all(isinstance(part, Mapping) for part in value),
        "a list of parts",
    ),
    "seconds": _or_null(_NUMBER),
    "spread": _NUMBER,
    "joules": _or_null(_NUMBER),
    "objective": _TEXT,
    "policy": _TEXT,
    "axis": _or_null(Kind(_whole, "the number of an axis")),
    "single": _by_name(_or_null(_NUMBER), "seconds or null by device"),
    "left_out": _by_name(_TEXT, "a reason by device"),
    "why": _TEXT,
    "limit_s": _or_null(_NUMBER),
    "children": Kind(
        lambda value: isinstance(value, list | tuple) and all(isinstance(plan, Mapping) for plan in value),
        "a list of plans",
    ),
    "latency_s": _or_null(_NUMBER),
    "considered": _by_name(_NUMBER, "seconds by name"),
    "cuts": _by_name(_POINT, "sizes of parts by dimension"),
    "rotates": _TEXT,
    "measured_s": _or_null(_NUMBER),
    "ranks": Kind(lambda value: _whole(value) and value > 0, "a number of ranks"),
}


def wrong(data: Any) -> str:
    """Return in words the first field of a plan that is not of its kind, or nothing."""
    if not isinstance(data, Mapping):
        return f"it is {_shown(data)}"
    found = _wrong(data, PLAN, "")
    for number, part in enumerate(() if found else data.get("parts", ())):
        found = found or _wrong(part, PART, f"parts[{number}].")
    return found


def _wrong(data: Mapping[str, Any], kinds: Mapping[str, Kind], path: str) -> str:
    for name, value in data.items():
        kind = kinds.get(name)
        if kind is not None and not kind.fits(value):
            return f"{path + name!r} is {_shown(value)}, not {kind.says}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value) if type(value) is not int or abs(value) < MOST else "a very large number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
