"""Templates: instructions with holes for numbers, filled in by saying where a step begins."""

from __future__ import annotations

from typing import Any

import pytest

from coexec.graph.instruction import Alloc, Allocation, Copy, Fence, Fill, Free, Kernel
from coexec.graph.task import Task
from coexec.lower.replay import Replay
from coexec.lower.snapshot import Counters
from coexec.lower.template import BACK, Numbers, Unrepeatable, back, deliver
from tests.lower.loops import Loop, Step


def at(n: int) -> Counters:
    """Return where step `n` begins, if each makes 10 instructions, 2 allocations, 1 array and 3 tasks."""
    return Counters(100 + 10 * n, 20 + 2 * n, 5 + n, 30 + 3 * n, 0)


def test_references_say_how_many_steps_back_and_where() -> None:
    assert back(111, 110, 10) == (0, 0)
    assert back(120, 110, 10) == (0, 9)
    assert back(110, 110, 10) == (1, 9)
    assert back(101, 110, 10) == (1, 0)
    assert back(100, 110, 10) == (2, 9)


def test_references_go_back_a_few_steps_only() -> None:
    assert back(110 - 10 * BACK + 1, 110, 10) == (BACK, 0)
    with pytest.raises(Unrepeatable):
        back(110 - 10 * BACK, 110, 10)


def test_numbers_of_the_latest_steps_are_known() -> None:
    numbers = Numbers([at(n) for n in range(BACK, -1, -1)], [[] for _ in range(BACK + 1)], at(1).since(at(0)))
    for n in range(BACK + 1, 12):
        numbers.begin(at(n))
        assert numbers.instructions[0] == at(n).instructions + 1
        assert numbers.arrays[1] == at(n - 1).arrays + 1
        assert numbers.tasks[BACK] == at(n - BACK).tasks + 1
        assert numbers.in_a_row and numbers.allocations[0] == []
    numbers.begin(at(13))
    assert not numbers.in_a_row


def playing(body: list[Step], turns: int = 10) -> Loop:
    """Return a loop that is being replayed, between two steps."""
    loop = Loop(2, peers=True, replay=True)
    for _ in range(turns):
        loop.turn(body)
    assert loop.g.replay.playing
    return loop


def lines(replay: Replay) -> tuple[Any, ...]:
    assert replay._playing is not None
    return replay._playing.lines


def test_a_line_is_met_by_its_own_event_only() -> None:
    loop = playing([("smooth", 0, 1, 2)])
    replay = loop.g.replay
    line = lines(replay)[0]
    arrays, starts = [array._storage.id for array in loop.arrays[:2]], replay._playing.numbers.arrays  # type: ignore[union-attr]
    if line.arrays != tuple(arrays):
        arrays.reverse()
    assert line.meets(line.what, arrays, line.views, starts)
    assert not line.meets(line.what, arrays[::-1], line.views, starts)
    assert not line.meets(line.what, arrays[:1], line.views, starts)
    assert not line.meets(line.what, arrays, line.views[::-1] + line.views, starts)
    assert not line.meets(("other",), arrays, line.views, starts)


def test_filled_instructions_are_new_ones_with_the_task_of_now() -> None:
    loop = playing([("half", 0, 2, 2), ("total", 2, 0, 2), ("read", 1, 0, 0)])
    before = len(loop.g.emitted)
    loop.turn([("half", 0, 2, 2), ("total", 2, 0, 2), ("read", 1, 0, 0)])
    new, old = loop.g.emitted[before:], loop.g.emitted[:before]
    assert loop.g.replay.playing and new
    assert [i.id for i in new] == sorted(i.id for i in new)
    assert {i.id for i in new}.isdisjoint(i.id for i in old)
    assert {type(i) for i in new} >= {Alloc, Free, Kernel, Fence}
    known = {id(i.allocation) for i in old if isinstance(i, Alloc)}
    made = [i.allocation for i in new if isinstance(i, Alloc)]
    assert made and all(id(allocation) not in known for allocation in made)
    assert all(allocation.data is None for allocation in made)
    tasks = {i.task for i in new if isinstance(i, Kernel | Fence)}
    assert all(isinstance(task, Task) for task in tasks)
    assert tasks.isdisjoint({i.task for i in old})
    assert all(set(i.needs) | set(i.after) <= {j.id for j in loop.g.emitted} for i in new)


def test_copies_and_fills_keep_their_boxes_and_values() -> None:
    body: list[Step] = [("new", 0, 2, 2), ("smooth", 2, 1, 2), ("gather", 1, 3, 2)]
    loop = playing(body, turns=12)
    before = len(loop.g.emitted)
    loop.turn(body)
    loop.turn(body)
    new = loop.g.emitted[before:]
    fills = [i for i in new if isinstance(i, Fill)]
    assert fills and all(i.value == 1.0 for i in fills)
    assert all(isinstance(i.allocation, Allocation) for i in fills)
    assert [i for i in new if isinstance(i, Copy)]
    loop.g.verify()


def test_values_go_to_who_reads_now() -> None:
    fence: Any = object.__new__(Fence)
    fence.deliver = None
    seen: list[Any] = []
    deliver([fence], seen.append)
    fence.deliver(7)
    assert seen == [7]
