"""The traces that a script has written: one for each of its runtimes.

Before: script.py.  After: simulate.py.  Knows files by their names and times.
"""

from __future__ import annotations

from pathlib import Path

from .script import stamp

Stamp = tuple[int, int] | None


def stamps(trace: Path) -> dict[Path, Stamp]:
    """Return what is there before a script runs."""
    return {path: stamp(path) for path in _numbered(trace)}


def collected(trace: Path, before: dict[Path, Stamp]) -> list[Path]:
    """Return the traces that were written since, in the order of the runtimes."""
    return [path for path in _numbered(trace) if stamp(path) not in (None, before.get(path))]


def _numbered(trace: Path) -> list[Path]:
    """Return the files that the runtimes of a script write, as far as they are there."""
    found = [trace]
    while (following := trace.with_name(f"{trace.stem}.{len(found) + 1}{trace.suffix}")).exists():
        found.append(following)
    return found
