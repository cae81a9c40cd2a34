"""What a platform file may say: its tables, their fields, and what a value of each must be.

Before: machine/parts.py, machine/sizes.py.  After: machine/files/reading.py.  Knows single values, not how they fit together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from ...errors import ConfigError, unknown_name
from ..parts import DTYPES
from ..sizes import parse_bytes

MOST = 1 << 12
"""Devices of one kind, or nodes: more are taken for a mistake."""
MOST_DEVICES = 1 << 16
"""Devices of all nodes together."""
LEAST, GREATEST = 1e-6, 1e30
"""Rates, per second: what lies outside is taken for a mistake, and would make times that cannot be compared."""
LONGEST = 1e9
"""Seconds or watts."""
NAME = re.compile(r"[A-Za-z_][\w-]*(?::[\w-]+)?", re.ASCII)
STEM = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)

Read = Callable[[Any], Any]
"""Turns a value of the file into ours, or raises Wrong with what it must be."""


class Wrong(ValueError):
    """A value is not what its field needs."""


def text(value: Any) -> str:
    """Read a text that can be printed."""
    if not isinstance(value, str) or not value.isprintable():
        raise Wrong("must be a text on one line")
    return value


def name(value: Any) -> str:
    """Read a name: letters, digits, _ and -, and after a colon what tells it from its like."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Wrong('must be a name such as "gpu" or "gpu:0"')
    return value


def kind(value: Any) -> str:
    """Read a name without a colon."""
    if not isinstance(value, str) or not STEM.fullmatch(value):
        raise Wrong('must be a word such as "cpu", "gpu", "fpga" or "npu"')
    return value


def names(value: Any) -> tuple[str, ...]:
    """Read a name or a list of names."""
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(entry, str) and NAME.fullmatch(entry) for entry in listed):
        raise Wrong('must be a name such as "gpu:0", or a list of names')
    if len(set(listed)) < len(listed):
        raise Wrong("names something twice")
    return tuple(listed)


def maybe_names(value: Any) -> tuple[str, ...]:
    """Read a name, or a list of names that may be empty."""
    return () if value == [] else names(value)


def texts(value: Any) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry.isprintable() for entry in value):
        raise Wrong('must be a list of texts, e.g. ["conv2d", "matmul"]')
    return tuple(value)


def flag(value: Any) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise Wrong("must be true or false")
    return value


def whole(value: Any) -> int:
    """Read a number of things, at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise Wrong(f"must be a whole number from 1 to {MOST}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong("must be a number")
    try:
        found = float(value)
    except OverflowError:
        raise Wrong("must be a number below 1e308") from None
    if not isfinite(found):
        raise Wrong("must be a finite number")
    return found


def positive(value: Any) -> float:
    """Read a number above 0."""
    if (found := _number(value)) <= 0.0:
        raise Wrong("must be a number above 0")
    if not LEAST <= found <= GREATEST:
        raise Wrong(f"must be a number from {LEAST:g} to {GREATEST:g}")
    return found


def not_negative(value: Any) -> float:
    """Read a number that may be 0."""
    if (found := _number(value)) < 0.0:
        raise Wrong("must be a number, and not negative")
    if found > LONGEST:
        raise Wrong(f"must be a number of at most {LONGEST:g}")
    return found


def size(value: Any) -> int:
    """Read bytes, as a number or as a text such as "40 GiB"."""
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except ConfigError as error:
            raise Wrong(f"must be bytes: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 62:
        raise Wrong('must be bytes, as a whole number above 0 or as a text such as "40 GiB"')
    return value


def rates(value: Any) -> tuple[tuple[str, float], ...]:
    """Read operations per second: one number for single precision, or a table of numbers by type."""
    if not isinstance(value, dict):
        return (("float32", positive(value)),)
    for dtype in value:
        if dtype not in DTYPES:
            raise Wrong(str(unknown_name("type", dtype, DTYPES)))
    try:
        return tuple((dtype, positive(value[dtype])) for dtype in DTYPES if dtype in value)
    except Wrong as error:
        raise Wrong(f"each rate {error}") from None


def part(value: Any) -> float:
    """Read a part of a whole."""
    if (found := positive(value)) > 1.0:
        raise Wrong("must be a part of the peak, at most 1")
    return found


ACHIEVED: dict[str, Read] = {"flops": positive, "of_peak": part, "watts": not_negative, "basis": text}
"""Fields of one operation's table."""


def achieved(value: Any) -> tuple[dict[str, Any], ...]:
    """Read what is reached in operations: a table for each, [device.achieved.matmul]."""
    if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
        raise Wrong("must be a table for each operation, [device.achieved.matmul]")
    found = []
    for op, entry in value.items():
        for field in entry:
            if field not in ACHIEVED:
                raise Wrong(f"{op}: {unknown_name('field', field, list(ACHIEVED))}")
        if ("flops" in entry) == ("of_peak" in entry):
            raise Wrong(f"{op}: needs either `flops` or `of_peak`")
        try:
            found.append({"op": op, **{field: ACHIEVED[field](given) for field, given in entry.items()}})
        except Wrong as error:
            raise Wrong(f"{op}: a figure {error}") from None
    return tuple(found)


DESIGN: dict[str, Read] = {"ops": texts, "achieved": achieved, "load": not_negative, "basis": text}
"""Fields of one design's table."""


def designs(value: Any) -> tuple[dict[str, Any], ...]:
    """Read what a device can be configured as: a table for each design, [device.design.spmm]."""
    if not isinstance(value, dict) or not all(isinstance(entry, dict) for entry in value.values()):
        raise Wrong("must be a table for each design, [device.design.spmm]")
    found = []
    for name, entry in value.items():
        for field in entry:
            if field not in DESIGN:
                raise Wrong(f"{name}: {unknown_name('field', field, list(DESIGN))}")
        try:
            read = {field: DESIGN[field](given) for field, given in entry.items()}
        except Wrong as error:
            raise Wrong(f"{name}: {error}") from None
        if not read.get("ops") and not read.get("achieved"):
            raise Wrong(f"{name}: needs `ops`, or a table for an operation, [device.design.{name}.achieved.matmul]")
        found.append({"name": name, **read})
    return tuple(found)


def cores(value: Any) -> int | tuple[int, ...]:
    """Read how many cores, or which."""
    if not isinstance(value, list):
        return whole(value)
    if not all(isinstance(core, int) and not isinstance(core, bool) and 0 <= core < 1 << 31 for core in value):
        raise Wrong("must be a whole number of cores, or a list of the cores' numbers")
    if len(set(value)) < len(value):
        raise Wrong("names a core twice")
    return tuple(value)


TABLES: dict[str, dict[str, Read]] = {
    "": {"name": text, "about": text, "nodes": whole},
    "memory": {
        "name": name,
        "count": whole,
        "capacity": size,
        "bandwidth": positive,
        "paged": flag,
        "strict": flag,
        "largest": size,
    },
    "device": {
        "name": name,
        "kind": kind,
        "count": whole,
        "memory": name,
        "reads": maybe_names,
        "model": text,
        "speed": text,
        "software": text,
        "flops": rates,
        "bandwidth": positive,
        "launch": not_negative,
        "granule": whole,
        "concurrent": whole,
        "copies": whole,
        "watts": not_negative,
        "idle_watts": not_negative,
        "clock": positive,
        "ops": texts,
        "designs": texts,
        "load": not_negative,
        "achieved": achieved,
        "design": designs,
        "cores": cores,
        "wide": flag,
        "lanes": whole,
        "waits_across_lanes": flag,
        "eager": flag,
    },
    "switch": {"name": name, "count": whole, "peers": flag},
    "nic": {"name": name, "count": whole},
    "bus": {"name": name, "bandwidth": positive},
    "link": {
        "from": names,
        "to": names,
        "bandwidth": positive,
        "latency": not_negative,
        "shared": names,
        "one_way": flag,
        "pairwise": flag,
        "name": text,
    },
    "network": {"bandwidth": positive, "latency": not_negative, "total": positive},
}
"""Table -> field -> how its value is read. "" are the fields before the first table."""

REQUIRED = {
    "memory": ("name",),
    "device": ("name", "kind", "memory"),
    "switch": ("name",),
    "nic": ("name",),
    "bus": ("name", "bandwidth"),
    "link": ("from", "to", "bandwidth", "latency"),
    "network": ("bandwidth", "latency"),
}
"""Fields that a table cannot do without."""
REPEATED = ("memory", "device", "switch", "nic", "bus", "link")
"""Tables of which there may be many: [[device]]."""
