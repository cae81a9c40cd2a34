"""Lookahead beside replay, limited memories and diagnostics: each keeps what it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from coexec.errors import DoesNotFit
from coexec.observe.diagnostics import Diagnostics
from coexec.testing.graphs import GraphBuilder
from coexec.testing.invented import invented_platform
from coexec.testing.model_memory import at_random, run_all
from coexec.testing.verify import check_capacities, check_edges
from tests.lower.loops import Loop, Step, steps
from tests.lower.patterns import growing
from tests.lower.programs import Twin
from tests.lower.test_finite_memory import limited_programs


@pytest.mark.parametrize("mode", ["auto", "infinite"])
def test_a_loop_is_replayed_once_nothing_of_it_is_held(mode: str) -> None:
    """What is held is no part of a step that repeats itself; after that replay sees whole steps."""
    body: list[Step] = [("smooth", 0, 1, 2), ("total", 1, 0, 2), ("read", 1, 0, 0)]
    loop = Loop(2, peers=True, replay=True, lookahead=mode)
    for _ in range(20):
        loop.turn(body)
    assert loop.g.recipes.recalled >= 5
    loop.g.verify()


def test_a_loop_with_new_arrays_is_replayed_since_their_size_is_known() -> None:
    body: list[Step] = [("half", 0, 2, 2), ("add", 2, 3, 2)]
    loop = Loop(2, peers=True, replay=True, lookahead="auto")
    for _ in range(30):
        loop.turn(body)
    assert loop.g.recipes.recalled >= 16
    loop.g.verify()


@settings(max_examples=100)
@given(st.lists(steps(), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2**16))
@example([("half", 0, 0, 0), ("pieces", 1, 0, 1)], 2, 0)  # what catches up allocates pieces as lookahead did
def test_replay_and_lookahead_together_compute_the_same(body: list[Step], devices: int, seed: int) -> None:
    delivered = []
    for mode in ("none", "auto", "infinite"):
        loop = Loop(devices, peers=False, replay=mode != "none", lookahead=mode)
        for turn in range(8):
            loop.turn(body)
            if turn == 4:
                loop.g.horizon()
        tasks = [loop.g.read(array) for array in (*loop.arrays, loop.scalar)]
        loop.g.verify()
        assert run_all(loop.g.emitted, at_random(seed)) == {}
        delivered.append([loop.g.delivered[task.id] for task in tasks])
    for other in delivered[1:]:
        for expected, found in zip(delivered[0], other, strict=True):
            np.testing.assert_array_equal(expected, found)


@settings(max_examples=150)
@given(limited_programs(), st.sampled_from(("auto", "infinite")), st.integers(0, 2**16))
def test_limited_memories_are_never_exceeded(program: dict[str, Any], mode: str, seed: int) -> None:
    """A command that does not fit when its turn comes is refused: its task fails, all others are right."""
    twin = Twin(program, mode)
    refused: list[str] = []
    twin.g.raises = False
    for step in program["steps"]:
        try:
            twin.step(step)
        except DoesNotFit:
            refused.append(step[0])
    twin.finish()
    g = twin.g
    capacities = {id: m.capacity for id, m in enumerate(g.platform.memories) if m.capacity is not None}
    check_edges(g.emitted)
    check_capacities(g.emitted_graph, g.given, capacities)
    if not refused and not g.refused:
        g.verify()
        assert run_all(twin.g.emitted, at_random(seed)) == {}
        twin.check()


@pytest.mark.parametrize(("mode", "warnings"), [("none", 1), ("auto", 0), ("infinite", 0)])
def test_an_array_that_grows_in_every_step_is_said_once_unless_lookahead_spares_it(mode: str, warnings: int) -> None:
    """B43."""
    platform = invented_platform(1)
    watch = Diagnostics("warn", platform, lambda text: None, timed=False)
    g = GraphBuilder(platform=platform, watch=watch, lookahead=mode)
    growing(g, 20)
    g.flush()
    assert len(g.instructions.of("alloc")) == (20 if mode == "none" else 1)
    assert len(watch.pending) == warnings
