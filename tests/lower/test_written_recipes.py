"""A recipe that is used often is written out as a function: it makes the same instructions, and leads to the same front."""

from __future__ import annotations

import copy
import random
from typing import Any

from coexec.graph.instruction import Join, Step
from coexec.graph.positions import OFTEN
from coexec.lower.emit import Emitter
from coexec.lower.recipe import MOST_PLACES, Recipe, edges_at


def _random(draw: random.Random) -> tuple[Recipe, list[Any], list[Step]]:
    """Return a recipe, slots for it up to its own instructions, and steps."""
    own, size = draw.randint(1, 8), draw.randint(1, 7)
    readers = {at for at in range(own) if draw.random() < 0.4}
    before = []
    for number in range(size):
        places = list(range(own + number))
        every = draw.sample(places, draw.randint(0, len(places)))
        needs = [at for at in every if at not in readers and draw.random() < 0.5]
        before.append(edges_at(needs, [at for at in every if at not in needs], readers))
    slots = [
        [draw.randrange(90), draw.randrange(90)] if at in readers and draw.random() < 0.7 else draw.randrange(90)
        for at in range(own)
    ]
    steps: list[Step] = [Join() for _ in range(size)]
    return Recipe(steps, [-1] * size, before, (), (), 0, own), slots, steps


def _made(recipe: Recipe, slots: list[Any], steps: list[Step]) -> tuple[Any, ...]:
    emitter = Emitter()
    emitter.last = 100
    emitter.led = list(range(100))
    given = [*copy.deepcopy(slots), *range(101, 101 + recipe.size)]
    made = recipe.instructions(emitter, given, None, steps)
    edges = [(i.id, i.step, tuple(i.needs), tuple(i.after)) for i in made]
    return edges, emitter.last, emitter.work_out_front()


def test_a_recipe_that_is_written_out_makes_the_same_instructions() -> None:
    draw = random.Random(7)
    for number in range(300):
        recipe, slots, steps = _random(draw)
        first = _made(recipe, slots, steps)
        for _ in range(OFTEN):
            _made(recipe, slots, steps)
        assert callable(recipe._written)
        assert _made(recipe, slots, steps) == first, number


def test_recipes_without_instructions_and_those_with_very_many_edges_are_not_written_out() -> None:
    many = [edges_at([], range(MOST_PLACES + 1), range(MOST_PLACES + 1))]
    slots: list[Any] = [[number, number + 1] for number in range(MOST_PLACES + 1)]
    for recipe, given, steps in [
        (Recipe([], [], [], (), (), 0, 2), [1, 2], []),
        (Recipe([Join()], [-1], many, (), (), 0, len(slots)), slots, [Join()]),
    ]:
        for _ in range(OFTEN + 2):
            _made(recipe, given, list(steps))
        assert recipe._written is None


def test_thousands_of_lists_of_readers_can_be_written_out() -> None:
    places = range(MOST_PLACES)
    recipe = Recipe([Join()], [-1], [edges_at([], places, places)], (), (), 0, MOST_PLACES)
    slots: list[Any] = [[number, number + 1] for number in places]
    first = _made(recipe, slots, [Join()])
    for _ in range(OFTEN):
        again = _made(recipe, slots, [Join()])
    assert callable(recipe._written)
    assert again[0][0][3] == first[0][0][3]
