"""Let Python look for garbage less often while a large machine is simulated.

Before: nothing.  After: whoever owns the process: cli/, bench/.  Knows nothing of simulations.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OFTEN = 100_000  # objects made and kept between two looks; Python's own figure is 700
"""A simulation of hundreds of devices has tens of thousands of instructions under way. They are freed by themselves, so that
looking through all of them again and again finds nothing, and takes a fifth of the time."""


@contextmanager
def rarely_collecting(objects: int = OFTEN) -> Iterator[None]:
    """Look for cyclic garbage after so many new objects, and leave out what is there already; as before at the end."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(objects, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
