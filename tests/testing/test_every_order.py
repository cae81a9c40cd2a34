"""Every order of a small program: how many there are, and that one which computes something else is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coexec.errors import BackendError, InvariantError
from coexec.graph.instruction import Instruction
from coexec.testing import GraphBuilder
from coexec.testing.every_order import every_order, few_orders


def diamond() -> GraphBuilder:
    """Return two kernels on parts of one array between two on the whole, and a host read."""
    g = GraphBuilder(1, shared=True)
    a = g.array(4, data=np.arange(4.0))
    g.call("top", updates=a, body=lambda x: np.add(x, 1, out=x))
    g.call("left", updates=a[:2], body=lambda x: np.multiply(x, 2, out=x))
    g.call("right", updates=a[2:], body=lambda x: np.multiply(x, 3, out=x))
    g.call("bottom", updates=a, body=lambda x: np.add(x, x[0], out=x))
    g.read(a)
    return g


def without_edge(g: GraphBuilder, name: str, other: str) -> list[Instruction]:
    """Return the instructions, but those of task `name` do not wait for those of `other`."""
    unwanted = {i.id for i in g.instructions.of(task=other)}
    start = g.emitted[0].id
    for instruction in g.instructions.of(task=name):
        instruction.needs = tuple(id for id in instruction.needs if id not in unwanted)
        instruction.after = tuple(id for id in instruction.after if id not in unwanted) or (start,)
    return g.emitted


def test_every_set_of_finished_instructions_is_reached_and_the_values_are_right() -> None:
    g = diamond()
    ran: list[str] = []
    # Nothing, epoch, top, {left}, {right}, {left, right}, bottom, fence.
    assert every_order(g.emitted, lambda i: ran.append(i.kind)) == 8
    assert ran.count("kernel") == 1 + 4 + 1
    np.testing.assert_array_equal(g.delivered[g.tasks[-1].id], [4, 6, 11, 14])


def test_the_number_of_sets_is_known_without_running_anything() -> None:
    g = diamond()
    assert few_orders(g.emitted, 8) and not few_orders(g.emitted, 7)
    assert g.delivered == {}
    with pytest.raises(InvariantError, match="more than 7 sets"):
        every_order(g.emitted, limit=7)


@pytest.mark.parametrize(("name", "other"), [("bottom", "left"), ("right", "top")])
def test_a_missing_edge_shows_as_a_value_that_depends_on_the_order(name: str, other: str) -> None:
    with pytest.raises(InvariantError, match="depends on the order"):
        every_order(without_edge(diamond(), name, other))


def test_a_use_of_freed_memory_is_found() -> None:
    g = GraphBuilder(1)
    a = g.array(4)
    g.call("make", writes=a, body=lambda x: x.fill(1.0))
    g.call("use", updates=a)
    free: Any = g.drop(a)[0]
    free.needs, free.after = (), (g.kernels(g.tasks[0]).only().id,)
    with pytest.raises(BackendError, match="has no memory"):
        every_order(g.emitted)
