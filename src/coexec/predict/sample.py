"""A sample: what was measured of one kind of call, as it is kept and exchanged.

Before: nothing.  After: predict/model.py, predict/store.py.  Knows no kernel, device, clock or file.
"""

from __future__ import annotations

from typing import NamedTuple

SECONDS = 7
"""Measurements kept per sample: a median of seven ignores three outliers."""


class Sample(NamedTuple):
    """The last measurements of calls with equal features."""

    kind: str  # the arrays' types: only calls of one kind are comparable
    key: str  # the exact shapes, as text
    features: tuple[float, ...]
    seconds: tuple[float, ...]  # newest first
    together: bool  # measured while the other devices were running


def merged(new: Sample, old: Sample | None) -> Sample:
    """Return `new` with the older measurements behind it.

    A measurement that both hold counts once, so it does no harm to save a whole window again and again.
    """
    if old is None or old.features != new.features:  # other features: those measurements were of something else
        return new._replace(seconds=new.seconds[:SECONDS])
    rest = list(old.seconds)
    for value in new.seconds:
        if value in rest:
            rest.remove(value)
    return new._replace(seconds=(*new.seconds, *rest)[:SECONDS])
