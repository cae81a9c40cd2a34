"""Steps that read everything so far and write the next row: edges, and what is remembered, stay few."""

from __future__ import annotations

import random

from coexec.geometry import Box
from coexec.graph.tracker import Tracker

ROWS = 60


def rows(first: int, last: int) -> Box:
    return Box((first, 0), (last, 8))


def step(tracker: Tracker, row: int, id: int) -> tuple[set[int], set[int]]:
    """Read all rows before `row` and write it in one task; return what it needs and what it comes after."""
    needs: set[int] = set()
    after: set[int] = set()
    tracker.before_read(rows(0, row), None, needs)
    tracker.before_write(rows(row, row + 1), None, after)
    tracker.did_read(rows(0, row), None, id, needs | after)
    tracker.did_write(rows(row, row + 1), None, id)
    return needs, after


def test_each_step_waits_for_the_one_before_it_alone():
    tracker = Tracker(rows(0, ROWS + 1), 0)
    last = 0
    for _ in range(3):
        for row in range(1, ROWS + 1):
            needs, after = step(tracker, row, last + 1)
            if row > 13:
                assert needs == {last}
            assert last in needs or row == 1
            assert len(needs) <= 4  # few are not worth a look
            assert len(after) == 1
            last += 1


def test_readers_that_a_later_reader_waited_for_are_forgotten():
    tracker = Tracker(rows(0, ROWS + 1), 0)
    sizes = []
    for row in range(1, ROWS + 1):
        step(tracker, row, row)
        sizes.append(len(tracker) - row)  # beside the rows' writers
    assert max(sizes) <= 3


def test_a_reader_that_was_not_waited_for_is_remembered():
    tracker = Tracker(rows(0, 4), 0)
    tracker.did_read(rows(0, 2), None, 1)
    tracker.did_read(rows(0, 3), None, 2, {0})
    after: set[int] = set()
    tracker.before_write(rows(1, 2), None, after)
    assert after == {1, 2}


def test_many_boxes_are_ordered_as_few_are():
    rng = random.Random(3)
    tracker = Tracker(Box((0, 0), (40, 40)), 0)
    writer = {(x, y): 0 for x in range(40) for y in range(40)}
    readers: dict[tuple[int, int], set[int]] = {}
    before: dict[int, set[int]] = {0: set()}
    for id in range(1, 400):
        lo = (rng.randrange(40), rng.randrange(40))
        box = Box(lo, (min(40, lo[0] + rng.randint(1, 12)), min(40, lo[1] + rng.randint(1, 12))))
        points = [(x, y) for x in range(box.lo[0], box.hi[0]) for y in range(box.lo[1], box.hi[1])]
        found: set[int] = set()
        reads = rng.random() < 0.5
        if reads:
            tracker.before_read(box, None, found)
            tracker.did_read(box, None, id, found)
        else:
            tracker.before_write(box, None, found)
            tracker.did_write(box, None, id)
        before[id] = found.union(*(before[other] for other in found))
        for point in points:
            assert writer[point] in before[id]
            if reads:
                readers.setdefault(point, set()).add(id)
            else:
                assert readers.pop(point, set()) <= before[id]
                writer[point] = id
