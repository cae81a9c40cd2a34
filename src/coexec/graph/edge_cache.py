"""What a call comes after, found as it was found before: by the forms of the trackers of its arrays.

Before: graph/tracker.py, graph/shape.py.  After: graph/task_graph.py.  The same idea as lower/recipe.py, for tasks.

A tracker looks at which ids are equal and at nothing else. So the ids are replaced by symbols, one for each number of the
form, the call is noted as always, and what it found is remembered as positions among the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .forms import FoldedForm, Form, Numbering
from .positions import Edges, Positions
from .shape import FormCache
from .tracker import Tracker

SYMBOLS = -(1 << 48)  # and below: no task has such an id, and no mark
MOST = 1 << 11  # forms that are remembered


class KnownEdges(NamedTuple):
    """What a call finds, and what becomes of the trackers of its arrays."""

    found: Edges
    afters: tuple[tuple[FoldedForm, Positions], ...]


class EdgeCache:
    """Links calls as they were linked before."""

    def __init__(self) -> None:
        self._forms: dict[Form, FoldedForm] = {}

    def recall(self, known: FormCache, trackers: Sequence[Tracker], id: int) -> set[int] | None:
        """Return what a call finds, and note it; None if it was not linked before on trackers of these forms."""
        forms: list[FoldedForm] = []
        slots: list[Any] = []
        for tracker in trackers:
            forms.append(tracker.folded or self._folded(tracker))
            slots += tracker.ids_folded
        link: KnownEdges | None = known.forms.get(tuple(forms))
        if link is None:
            return None
        known.tries = 0
        slots.append(id)
        edges = link.found
        found = set(edges.get(slots))
        for i in edges.readers:
            more = slots[i]
            if type(more) is int:
                found.add(more)
            else:
                found.update(more)
        for tracker, (form, places) in zip(trackers, link.afters):  # noqa: B905 - as long as each other, and this is hot
            tracker.folded = form
            tracker.ids_folded = list(places.get(slots)) if places.plain else places.fill(slots)
        return found

    def _folded(self, tracker: Tracker) -> FoldedForm:
        if tracker.folded is None:
            tracker.folded, tracker.ids_folded = self._look(tracker)
        return tracker.folded

    def _look(self, tracker: Tracker) -> tuple[FoldedForm, Any]:
        numbers = Numbering()
        form = tracker.form(numbers)
        folded = self._forms.get(form)
        if folded is None:
            if len(self._forms) >= MOST:
                self._forms.clear()
            folded = self._forms[form] = FoldedForm(form, len(numbers.ids), frozenset(numbers.several_at))
        return folded, numbers.ids

    def learn(
        self, known: FormCache, trackers: Sequence[Tracker], id: int, note: Callable[[set[int]], None]
    ) -> set[int]:
        """Let `note` look at the trackers and change them; remember what it found; return that."""
        forms = tuple([self._folded(tracker) for tracker in trackers])
        slots: list[Any] = []
        readers: set[int] = set()
        for tracker, form in zip(trackers, forms, strict=True):
            readers.update([len(slots) + n for n in form.readers])
            at = len(slots)
            slots += tracker.ids_folded
            tracker.ids_folded = [SYMBOLS - at - n for n in range(form.size)]
            tracker.unfold()
        slots.append(id)

        def position(found: int) -> int:
            return SYMBOLS - found if found <= SYMBOLS else len(slots) - 1

        found: set[int] = set()
        note(found)
        afters = []
        for tracker in trackers:
            form, ids = self._look(tracker)
            places = Positions([[position(i) for i in ([one] if type(one) is int else one)] for one in ids])
            afters.append((form, places))
        edges = Edges.of([position(i) for i in found], readers)
        known.learn(forms, KnownEdges(edges, tuple(afters)))
        result = edges.fill(slots)
        for tracker, (form, places) in zip(trackers, afters, strict=True):
            tracker.folded, tracker.ids_folded = form, places.fill(slots)
        return result
