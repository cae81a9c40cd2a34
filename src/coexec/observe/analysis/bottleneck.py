"""Where the time of a run went, along the path that was taken, and what would make it shorter.

Before: path.py, svg.py.  After: report.py.  Knows steps; no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..pictures.svg import count_text
from .path import LAUNCH, PROGRAM, SCHEDULING, PathStretch

REMEDIES = {
    "kernel": "faster devices, or dividing it over more of them, would make the run shorter",
    "copy": "a faster link, or less to copy, would make the run shorter",
    LAUNCH: "fewer and larger kernels would make the run shorter",
    SCHEDULING: "fewer and larger tasks would make the run shorter",
    PROGRAM: "what the program does between its calls would have to become shorter",
}
MENTIONED = 0.1
"""Parts of the path below this share are not named in the sentence."""


@dataclass(frozen=True, slots=True)
class PathPart:
    """All steps of a path that are alike."""

    kind: str
    name: str  # kernel, or what copies go over
    count: int
    seconds: float
    share: float  # of the path
    devices: tuple[str, ...]
    others: float  # copies that shared a link, on average over time

    @property
    def text(self) -> str:
        """What they are, in words."""
        if self.kind == "kernel":
            return f"kernel {self.name}"
        if self.kind == "copy":
            return f"copies {self.name}"
        if self.kind == "fence":
            return "handing results to the program"
        return self.name if self.name and self.kind not in (LAUNCH, SCHEDULING, PROGRAM) else self.kind


def parts(steps: Iterable[PathStretch]) -> list[PathPart]:
    """Return what a path consists of, the longest first."""
    groups: dict[tuple[str, str], list[PathStretch]] = {}
    for step in steps:
        groups.setdefault((step.kind, _name(step)), []).append(step)
    whole = sum(step.seconds for group in groups.values() for step in group)
    found = [_part(*key, group, whole) for key, group in groups.items()]
    return sorted(found, key=lambda part: (-part.seconds, part.kind, part.name))


def _name(step: PathStretch) -> str:
    """Return what a step is counted under: copies by what they go over, or else by their way."""
    if step.kind != "copy":
        return step.name
    way, _, made_of = step.name.partition(" over ")
    return f"over {made_of}" if made_of else way


def _part(kind: str, name: str, steps: Sequence[PathStretch], whole: float) -> PathPart:
    seconds = sum(step.seconds for step in steps)
    devices = tuple(dict.fromkeys(step.device for step in steps if step.device))
    others = sum(step.others * step.seconds for step in steps) / seconds if seconds else 0.0
    return PathPart(kind, name, len(steps), seconds, seconds / whole if whole else 0.0, devices, others)


def sentence(found: Sequence[PathPart]) -> str:
    """Return where the bottleneck is, in one or two sentences; empty if nothing took any time."""
    if not found:
        return ""
    first = f"{found[0].share:.0%} of the critical path is {_described(found[0])}"
    rest = [f"{part.share:.0%} {_described(part)}" for part in found[1:3] if part.share >= MENTIONED]
    remedy = REMEDIES.get(found[0].kind)
    said = "; ".join([first, *rest]) + "."
    return f"{said} {remedy[0].upper()}{remedy[1:]}." if remedy else said


def _described(part: PathPart) -> str:
    if part.kind == "copy" and part.others >= 0.5:
        return f"{part.text}, shared with {count_text(round(part.others), 'other')} on average"
    return part.text


def as_data(steps: Sequence[PathStretch], listed: int) -> dict[str, Any]:
    """Return path, parts and sentence as JSON-ready data, with so many steps from the beginning and as many from the end."""
    found = parts(steps)
    shown = steps if len(steps) <= 2 * listed else [*steps[:listed], *steps[-listed:]]
    return {
        "sentence": sentence(found),
        "seconds": sum(step.seconds for step in steps),
        "parts": [asdict(part) | {"text": part.text} for part in found],
        "steps": {"count": len(steps), "shown": [step._asdict() | {"seconds": step.seconds} for step in shown]},
    }
