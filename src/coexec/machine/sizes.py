"""Sizes as people write them: 6GB, 512 MiB.

Before: errors.py.  After: machine/files/schema.py, backend/machine.py.  Knows no memory.
"""

from __future__ import annotations

import re

from ..errors import ConfigError

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
WRITTEN = ("TiB", "TB", "GiB", "GB", "MiB", "MB")


def parse_bytes(text: object) -> int:
    """Read "6GB" or "512 MiB" as bytes; whatever is no size is refused."""
    said = text if isinstance(text, str) else ""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*", said)
    if match is None or match[2].lower() not in UNITS or len(match[1]) > 30:
        raise ConfigError(f"{text!r} is not a size; write for example 6GB or 512MiB")
    return int(float(match[1]) * UNITS[match[2].lower()])


def bytes_as_written(nbytes: int) -> str | int:
    """Return bytes as the shortest text that `parse_bytes` reads as the same, or as a number."""
    texts = [
        f"{nbytes // UNITS[unit.lower()]} {unit}" for unit in WRITTEN if nbytes and not nbytes % UNITS[unit.lower()]
    ]
    return min(texts, key=len, default=nbytes)
