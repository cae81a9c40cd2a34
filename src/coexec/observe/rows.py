"""The rows of a trace: what each kind of row must hold, and how rows are written.

Before: plan/plan.py, which says what fields of files may hold.  After: trace.py, cut.py.  Knows rows as plain dicts; reads and writes no file.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import TraceError
from ..plan.plan import FieldKind, or_null

Row = dict[str, Any]

VERSION = 1
MOST = 1 << 62
"""No id, size or count is larger."""
LATEST = 1e12
"""Seconds: no time is farther from the start of a run."""
SHOWN = 60
"""Characters of a wrong value that an error shows."""
STREAM_FIGURES = (
    "items", "seconds", "planning_s", "items_per_s", "predicted_period", "joules_per_item", "energy_from", "stages",
)  # fmt: skip
"""What is told of a stream of items."""
TIMES = ("submitted", "ready", "start", "stop", "t")


# What is in a row -------------------------------------------------------------------------------------------------------


Spec = FieldKind | dict[str, "Spec"] | list["Spec"]
"""A field: a value of some kind, an object with such fields, or a list of such entries."""


def _whole(value: object) -> bool:
    return type(value) is int and -MOST < value < MOST


def _number(value: object) -> bool:
    return type(value) in (int, float) and -LATEST < value < LATEST  # type: ignore[operator]  # a NaN is refused, too


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_TEXT = FieldKind(lambda value: isinstance(value, str), "a text")
_WHOLE = FieldKind(_whole, "a whole number")
_BYTES = FieldKind(lambda value: _whole(value) and value >= 0, "a number of bytes")
_TIME = FieldKind(_number, "a time in seconds")
_SECONDS = FieldKind(lambda value: _number(value) and value >= 0, "a duration in seconds")
_RATE = FieldKind(lambda value: type(value) in (int, float) and 0 <= value < math.inf, "a number from 0")
_WHOLES = FieldKind(_all(_whole), "a list of whole numbers")
_TEXTS = FieldKind(_all(lambda value: isinstance(value, str)), "a list of texts")
_JOULES = FieldKind(
    lambda value: isinstance(value, dict) and all(map(_RATE.fits, value.values())), "joules by device, each from 0"
)
_OBJECT = FieldKind(lambda value: isinstance(value, dict), "an object")

_NAMED: dict[str, Spec] = {
    "id": _WHOLE,
    "kind": _TEXT,
    "name": or_null(_TEXT),
    "task": or_null(_WHOLE),
    "device": or_null(_TEXT),
    "bytes": or_null(_BYTES),
    "from": or_null(_TEXT),
    "to": or_null(_TEXT),
    "memory": or_null(_TEXT),
    "array": or_null(_WHOLE),
    "scratch": or_null(_BYTES),
}
_FIELDS: dict[str, dict[str, Spec]] = {
    "header": {
        "coexec": _TEXT,
        "devices": [
            {
                "name": _TEXT,
                "cores": or_null(_WHOLES),
                "concurrent": or_null(_WHOLE),
                "launch_s": or_null(_SECONDS),
            }
        ],
        "memories": [{"name": _TEXT, "capacity": or_null(_BYTES)}],
        "options": _OBJECT,
    },
    "task": {
        "id": _WHOLE,
        "name": _TEXT,
        "call": or_null(_TEXT),
        "after": _WHOLES,
        "submitted": _TIME,
        "scheduling": or_null(_SECONDS),
        "why": or_null(_TEXT),
    },
    "command": {
        "id": _WHOLE,
        "task": _WHOLE,
        "after": _WHOLES,
        "chunks": [{"device": or_null(_TEXT), "lo": _WHOLES, "hi": _WHOLES}],
    },
    "instruction": {**_NAMED, "needs": _WHOLES, "after": _WHOLES, "reason": or_null(_TEXT)},
    "ran": {
        **_NAMED,
        "lane": or_null(_WHOLE),
        "ready": or_null(_TIME),
        "start": or_null(_TIME),  # null: cancelled before it began
        "stop": or_null(_TIME),
        "waited": or_null(_SECONDS),
        "predicted": or_null(_SECONDS),
        "source": or_null(_TEXT),
        "state": _TEXT,
    },
    "given": {"t": _TIME, "array": or_null(_WHOLE), "memory": _TEXT, "bytes": _BYTES},
    "link": {"from": _TEXT, "to": _TEXT, "name": or_null(_TEXT), "shared": _TEXTS},
    "small": {"name": _TEXT, "start": _TIME, "stop": _TIME, "calls": _WHOLE},
    "wait": {"start": _TIME, "stop": _TIME, "what": or_null(_TEXT), "task": or_null(_WHOLE)},
    "note": {"t": _TIME, "text": _TEXT},
    "stream": {
        "t": _TIME,
        "name": _TEXT,
        "items": _WHOLE,
        "seconds": _SECONDS,
        "planning_s": _SECONDS,
        "items_per_s": _RATE,
        "predicted_period": _SECONDS,
        "joules_per_item": or_null(_RATE),
        "energy_from": _TEXT,
        "stages": [
            {
                "stage": _TEXT,
                "devices": _TEXTS,
                "kernels": _TEXTS,
                "mode": _TEXT,
                "busy": _RATE,
                "starved": _RATE,
                "blocked": _RATE,
                "seconds_per_item": or_null(_SECONDS),
                "predicted_compute": _SECONDS,
                "predicted_copies": _SECONDS,
                "joules_per_item": or_null(_RATE),
            }
        ],
    },
    "simulation": {
        "platform": or_null(_TEXT),
        "about": or_null(_TEXT),
        "nodes": _WHOLE,
        "seconds": or_null(_SECONDS),
        "joules": _JOULES,
        "no_watts": _TEXTS,
    },
    "planning": {
        "t": _TIME,
        "seconds": _SECONDS,
        "later_s": _SECONDS,
        "longest_s": _SECONDS,
        "trials_s": _SECONDS,
        "computed_s": _SECONDS,
        "candidates": _WHOLE,
    },
    "end": {"t": or_null(_TIME)},
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "header": ("version",),
    "task": ("id", "name", "submitted"),
    "command": ("id", "task", "chunks"),
    "instruction": ("id", "kind", "device"),
    "ran": ("id", "kind", "device", "start", "stop"),
    "given": ("t", "memory", "bytes"),
    "link": ("from", "to"),
    "small": ("name", "start", "stop", "calls"),
    "wait": ("start", "stop"),
    "note": ("t", "text"),
    "stream": ("t", "name", *STREAM_FIGURES),
    "planning": ("t", "seconds", "later_s", "longest_s", "trials_s", "computed_s", "candidates"),
}


def check_row(where: str, row: object, *, first: bool) -> None:
    """Raise TraceError unless `row` has the fields of its kind, each of its type. `where` is the file and the line."""
    if not isinstance(row, dict) or not isinstance(row.get("row"), str):
        raise TraceError(f"{where} is not a trace row; give the file named by Runtime(trace=...)")
    kind = row["row"]
    if first and kind not in ("header", "end"):
        raise TraceError(f"{where} is a {kind!r} row where the header should be; record the run again")
    for field in _REQUIRED.get(kind, ()):
        if field not in row:
            raise TraceError(f"{where}: the {kind!r} row has no {field!r}; record the run again")
    if kind == "header" and row["version"] != VERSION:
        raise TraceError(
            f"{where}: the trace has version {_shown(row['version'])}, this coexec reads version {VERSION}; "
            f"read it with coexec {row.get('coexec', 'of the version that wrote it')}, or record the run again"
        )
    _check_fields(where, row, _FIELDS.get(kind, {}), "")
    start, stop = row.get("start"), row.get("stop")
    if kind in ("ran", "small", "wait") and start is not None and stop is not None and stop < start:
        raise TraceError(f"{where}: 'stop' is {stop!r}, before 'start', {start!r}; record the run again")


def _check_fields(where: str, row: Row, specs: dict[str, Spec], path: str) -> None:
    for field, spec in specs.items():
        if field in row:
            value = row[field]
            if isinstance(spec, FieldKind):
                if not spec.fits(value):
                    raise _wrong(where, f"{path}{field}", value, spec.says)
            else:
                _check_nested(where, value, spec, f"{path}{field}")


def _check_nested(where: str, value: object, spec: Spec, path: str) -> None:
    if isinstance(spec, list):
        if not isinstance(value, list):
            raise _wrong(where, path, value, "a list")
        for number, entry in enumerate(value):
            _check_nested(where, entry, spec[0], f"{path}[{number}]")
    elif isinstance(spec, dict):
        if not isinstance(value, dict):
            raise _wrong(where, path, value, "an object")
        first = next(iter(spec))
        if first not in value:  # the field by which it is known
            raise TraceError(f"{where}: {path!r} has no {first!r}; record the run again")
        _check_fields(where, value, spec, f"{path}.")


def _wrong(where: str, field: str, value: object, says: str) -> TraceError:
    return TraceError(f"{where}: {field!r} is {_shown(value)}, not {says}; record the run again")


def _shown(value: object) -> str:
    text = json.dumps(value) if type(value) is not int or abs(value) < MOST else "a very large number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


# How rows are written ---------------------------------------------------------------------------------------------------


def _plain_value(value: object) -> object:
    """Return what JSON can hold instead of `value`: the number of a NumPy scalar, a list, or the text."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return _plain(value.item())
    return list(value) if isinstance(value, (set, frozenset, deque)) else str(value)


def _plain(value: Any) -> Any:
    """Return `value` with null for every number that JSON cannot hold, and with strings as keys."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False, default=_plain_value)


def rows_text(rows: Sequence[Row]) -> str:
    """Return rows as JSON, one per line. The first key of each is "row"."""
    try:
        # One call for all is a third faster than one per row. A quote inside a string is escaped, so the separator
        # below is found between rows only, unless a nested object begins with "row".
        text = _encoder.encode(rows)[1:-1].replace('},{"row":', '},\n{"row":')
        if text.count("\n") == len(rows) - 1:
            return text
    except (ValueError, TypeError):
        pass  # a NaN, or a key that is not a string
    return ",\n".join(_encoder.encode(_plain(row)) for row in rows)
