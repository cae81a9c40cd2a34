"""The tracker against a model that remembers every access element by element."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, strategies as st

from coexec.geometry import Box, Grid, whole
from coexec.graph.tracker import Tracker
from coexec.program.view import Cut, extract, grid_of, index

SHAPES = [(12,), (5, 6)]


class Part(NamedTuple):
    """What one access touches."""

    box: Box
    grid: Grid | None
    elements: frozenset[int]


def part(shape: tuple[int, ...], cuts: tuple[tuple[int, int, int], ...]) -> Part:
    """Cut a view out of an array of `shape`; per axis: first position, how many, step."""
    key = tuple(slice(lo % n, min(n, lo % n + count), step) for (lo, count, step), n in zip(cuts, shape, strict=False))
    box, cut = index(whole(shape), None, shape, key)
    numbers = np.arange(whole(shape).volume).reshape(shape)
    seen = extract(numbers, (0,) * len(shape), box, cut or Cut((1,) * len(shape), tuple(range(len(shape)))))
    return Part(box, grid_of(box, cut), frozenset(int(i) for i in np.ravel(seen)))


class Event(NamedTuple):
    """An access, or a horizon (mode "horizon")."""

    mode: str
    cuts: tuple[tuple[int, int, int], ...]
    whole: bool
    at_once: bool


cut_of_axis = st.tuples(st.integers(0, 11), st.integers(1, 12), st.sampled_from([1, 1, 1, 2, 3]))
events = st.builds(
    Event,
    st.sampled_from(["read", "write", "update", "read", "write", "update", "horizon"]),
    st.tuples(cut_of_axis, cut_of_axis),
    st.booleans(),
    st.booleans(),
)


class Model:
    """Feeds a tracker and remembers everything."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.tracker = Tracker(whole(shape), 0)
        self.next = 0
        self.accesses: list[tuple[int, frozenset[int], bool]] = []
        self.before: dict[int, set[int]] = {0: set()}  # all ancestors of each id
        self.last_writer = dict.fromkeys(range(whole(shape).volume), 0)
        self.horizon = 0

    def step(self, event: Event, failed: frozenset[int] = frozenset()) -> tuple[int, Part, set[int], set[int]] | None:
        """Apply one event; return id, part, needs and after of an access."""
        self.next += 1
        if event.mode == "horizon":
            self.before[self.next] = set(self.before)
            if self.horizon:
                self.tracker.collapse(self.horizon, failed)
            self.horizon = self.next
            return None
        cuts = ((0, 12, 1), (0, 12, 1)) if event.whole else event.cuts
        touched = part(self.shape, cuts)
        if not touched.elements:
            return None
        needs, after = self._ask(event, touched)
        found = needs | after
        self.before[self.next] = found.union(*(self.before[id] for id in found))
        return self.next, touched, needs, after

    def _ask(self, event: Event, touched: Part) -> tuple[set[int], set[int]]:
        needs: set[int] = set()
        after: set[int] = set()
        tracker, (box, grid, _) = self.tracker, touched
        reads, writes = event.mode != "write", event.mode != "read"
        if event.at_once:
            if writes:
                tracker.write_by(box, grid, self.next, needs if reads else None, after)
            else:
                tracker.read_by(box, grid, self.next, needs)
        else:
            if reads:
                tracker.before_read(box, grid, needs)
            if writes:
                tracker.before_write(box, grid, after)
                tracker.did_write(box, grid, self.next)
            else:
                tracker.did_read(box, grid, self.next, needs)
        return needs, after

    def conflicts(self, elements: frozenset[int], *, writes: bool) -> set[int]:
        """Return the earlier accesses that one of these elements orders."""
        return {id for id, theirs, wrote in self.accesses if (writes or wrote) and elements & theirs}

    def note(self, id: int, elements: frozenset[int], *, writes: bool) -> None:
        self.accesses.append((id, elements, writes))
        if writes:
            self.last_writer.update(dict.fromkeys(elements, id))


def walk(shape: tuple[int, ...], story: list[Event], check: Any) -> None:
    model = Model(shape)
    for event in story:
        answer = model.step(event)
        if answer is not None:
            id, touched, needs, after = answer
            check(model, event, touched, needs, after)
            model.note(id, touched.elements, writes=event.mode != "read")


@given(st.sampled_from(SHAPES), st.lists(events, max_size=25))
def test_every_conflict_is_ordered(shape: tuple[int, ...], story: list[Event]) -> None:
    def check(model: Model, event: Event, touched: Part, needs: set[int], after: set[int]) -> None:
        wanted = model.conflicts(touched.elements, writes=event.mode != "read")
        assert wanted <= model.before[model.next]

    walk(shape, story, check)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=25))
def test_nothing_waits_directly_for_an_access_it_does_not_conflict_with(
    shape: tuple[int, ...], story: list[Event]
) -> None:
    def check(model: Model, event: Event, touched: Part, needs: set[int], after: set[int]) -> None:
        known = {id for id, _, _ in model.accesses}
        assert needs & known <= {id for id, theirs, wrote in model.accesses if wrote and theirs & touched.elements}
        assert (needs | after) & known <= model.conflicts(touched.elements, writes=event.mode != "read")

    walk(shape, story, check)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=25))
def test_a_read_needs_every_last_writer_that_no_horizon_stands_for(shape: tuple[int, ...], story: list[Event]) -> None:
    def check(model: Model, event: Event, touched: Part, needs: set[int], after: set[int]) -> None:
        if event.mode != "write":
            for element in touched.elements:
                writer = model.last_writer[element]
                assert writer in needs or any(writer in model.before[id] | {0} for id in needs)

    walk(shape, story, check)


@given(st.sampled_from(SHAPES), st.lists(events.filter(lambda e: e.mode != "horizon"), max_size=25))
def test_a_read_needs_exactly_the_last_writers(shape: tuple[int, ...], story: list[Event]) -> None:
    def check(model: Model, event: Event, touched: Part, needs: set[int], after: set[int]) -> None:
        if event.mode != "write":
            assert needs == {model.last_writer[element] for element in touched.elements}

    walk(shape, story, check)


@given(st.sampled_from(SHAPES), st.lists(events, max_size=25))
def test_a_failed_writer_is_named_until_its_elements_are_overwritten(
    shape: tuple[int, ...], story: list[Event]
) -> None:
    """Horizons replace what is over, but never a failure: what it would have written stays poisoned."""
    model = Model(shape)
    failed: set[int] = set()
    for event in story:
        answer = model.step(event, frozenset(failed))
        if answer is None:
            continue
        id, touched, needs, _ = answer
        if event.mode != "write":
            poisoned = {model.last_writer[element] for element in touched.elements} & failed
            assert poisoned == needs & failed  # and what was overwritten in steps is healed
        if event.mode != "read" and id % 3 == 0:
            failed.add(id)
        model.note(id, touched.elements, writes=event.mode != "read")


@given(st.sampled_from(SHAPES), st.lists(events, min_size=1, max_size=25))
def test_after_two_horizons_nothing_older_is_remembered(shape: tuple[int, ...], story: list[Event]) -> None:
    model = Model(shape)
    for event in story:
        model.step(event)
    horizon = Event("horizon", ((0, 1, 1), (0, 1, 1)), whole=True, at_once=True)
    model.step(horizon)
    first = model.next
    model.step(horizon)
    assert model.tracker.ids() <= {first, 0} and len(model.tracker) <= 1


def test_whole_arrays_cost_one_entry_and_one_per_reader() -> None:
    tracker = Tracker(whole((10,)), 0)
    for id in range(1, 50):
        tracker.write_by(whole((10,)), None, id, set(), set())
    assert len(tracker) == 1
    for id in range(50, 55):
        tracker.read_by(whole((10,)), None, id, set())
    assert len(tracker) == 6
    tracker.write_by(whole((10,)), None, 60, set(), set())
    assert tracker.ids() == {60}


def test_aligned_parts_do_not_pile_up() -> None:
    tracker = Tracker(whole((64,)), 0)
    parts = [Box((lo,), (lo + 8,)) for lo in range(0, 64, 8)]
    for id in range(1, 400):
        box = parts[id % len(parts)]
        tracker.read_by(box, None, id, set())
        tracker.write_by(box, None, id, set(), set())
    assert len(tracker) <= 2 * len(parts)


def test_halo_readers_do_not_pile_up() -> None:
    """The written box is taken out of every older entry."""
    tracker = Tracker(whole((64,)), 0)
    sizes = []
    for id in range(1, 200):
        lo = id % 8 * 8
        tracker.read_by(Box((max(0, lo - 1),), (min(64, lo + 9),)), None, id, set())
        tracker.write_by(Box((lo,), (lo + 8,)), None, id, set(), set())
        sizes.append(len(tracker))
    assert max(sizes) < 64
