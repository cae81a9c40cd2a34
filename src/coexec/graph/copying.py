"""Copy who touched an array last, so that a copy can go on without the original noticing.

Before: graph/tracker.py.  After: lower/state.py, schedule/copying.py.  Pure.
"""

from __future__ import annotations

from .forms import Numbering
from .tracker import Tracker


def copy_tracker(tracker: Tracker) -> Tracker:
    """Return a tracker of its own that remembers the same."""
    twin = Tracker(tracker.extent, 0)
    if tracker.folded is not None:
        twin.become(tracker.folded.form, tracker.ids_folded)
    else:
        numbers = Numbering()
        twin.become(tracker.form(numbers), numbers.ids)
    return twin
