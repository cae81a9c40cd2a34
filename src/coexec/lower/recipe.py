"""A recipe: what a call is lowered to, with numbers left open. Made once from what analysis found, then filled in.

Before: lower/state.py, graph/instruction.py.  After: lower/recipes.py.  Pure: no thread, no clock, no device.

Lowering never looks at the number of an instruction, only at which are equal. So the same call on arrays whose states have
the same forms leads to the same instructions with other numbers. How a recipe is made:

1. The ids in the states of the arrays are replaced by symbols, one for each number of the form.
2. The call is lowered as always. Its edges now name symbols, or instructions of the call itself.
3. The states have new forms. Each id in them is a symbol of before, or an instruction of the call.
4. Symbols become real ids again, in the states and in the instructions.

How it is filled in: `slots` is the list of all ids of the states, then the epoch, then the ids of the new instructions. Edges
and the ids of the new states are positions in that list.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from ..graph.forms import Ids
from ..graph.instruction import Alloc, Allocation, Fence, Free, Instruction, Launch, Step
from ..graph.positions import MOST_WRITTEN, OFTEN, Get, Positions, getter, several, written
from .emit import MOST_EDGES, Emitter
from .state import ArrayState, Backing, StateForm

SYMBOLS = -(1 << 48)  # and below: no instruction has such an id, and no mark
MOST_PLACES = 1 << 12  # edges of a recipe that is written out
BOUND = 16  # sets of arrays for which a recipe remembers its instructions


class NoRecipe(Exception):
    """What was lowered depends on more than the forms of the states."""


class NewAllocation(NamedTuple):
    """An allocation that a call makes."""

    memory: int
    owner: int  # the position of its array among the call's; below zero: of a private array
    box: Any
    dtype: Any


class After(NamedTuple):
    """What becomes of one array's state."""

    form: StateForm
    ids: Positions
    layout: tuple[tuple[int, tuple[int, ...]], ...] | None  # per memory its allocations, by position; None: as before


class Before(NamedTuple):
    """What comes before an instruction, as positions in the slots; -1 stands for none of that kind."""

    need: int  # the only id that it needs
    needs: Get  # all of them, if there is not just one
    reader: int  # the only place that it comes after, where there may be a list of readers
    other: int  # the only other id that it comes after
    others: Get  # all of them, if there is not just one
    readers: tuple[int, ...]  # the places where there may be lists
    need_ids: tuple[int, ...]  # the places of `needs`
    ids: tuple[int, ...]  # and of `others`


class Bound:
    """A recipe for certain arrays."""

    __slots__ = ("backings", "layouts", "shares", "steps", "touched")

    def __init__(self, layouts: list[int], shares: Any, steps: list[Step], backings: list[Backing]) -> None:
        self.layouts = layouts  # of the arrays, then
        self.shares = shares
        self.steps = steps  # of each instruction
        self.backings = backings
        self.touched = -1  # after which horizon or epoch it was last filled in


class Recipe:
    """What a call becomes on arrays whose states have certain forms."""

    __slots__ = (
        "_all", "_before", "_behind", "_changes", "_chunks", "_fills", "_front", "_own", "_steps", "_written", "afters", "foresight", "frees",
        "made", "needs", "privates", "size", "uses"
    )  # fmt: skip

    def __init__(
        self,
        steps: Sequence[Step],
        chunks: Sequence[int],
        before: Sequence[Before],
        afters: tuple[After, ...],
        made: tuple[NewAllocation, ...],
        privates: int,
        own: int,
    ) -> None:
        """Make a recipe; `own` is the position of its first instruction in the slots."""
        self.size = len(steps)
        self._steps = steps  # the number of an allocation is its position among those of the arrays and the new ones
        self._chunks = chunks  # which of the command's chunks each step computes; below zero: none
        self._before = [(each[0], each[1], each[2], (each[3], each[4], each[5])) for each in before]
        self._all, self._own, self._fills = before, own, 0
        self._written: Any = None  # a function that makes the instructions of this recipe alone
        front, behind = _front(before, self.size, own)
        self._front, self._behind = getter(front), getter(behind)
        self.afters = afters
        self._changes = [(after.form, after.ids, after.layout) for after in afters]
        self.foresight = 0  # what was known then of how large allocations become
        self.made = made
        self.needs: dict[int, int] = {}  # per memory: bytes that it allocates
        for memory, _, box, dtype in made:
            self.needs[memory] = self.needs.get(memory, 0) + box.volume * dtype.itemsize
        self.privates = privates  # private arrays that it makes
        self.frees = sum(isinstance(step, Free) for step in steps)
        self.uses: dict[tuple[int, ...], Bound] = {}  # by the numbers of the arrays

    def instructions(self, emitter: Emitter, slots: list[Any], task: Any, steps: list[Step]) -> list[Instruction]:
        """Return the instructions, numbered: the last of the slots are their numbers.

        At the front are those that none of the recipe comes after from now on, and none that these come after.
        """
        edges = emitter.edges
        if self._written is not None:
            made: list[Instruction] = self._written(slots, task, steps, edges, emitter.led)
            emitter.last += self.size
            if len(edges) > MOST_EDGES:
                emitter.work_out_front()
            return made
        self._fills += 1
        if (
            self._fills == OFTEN and 0 < self.size <= MOST_WRITTEN and self._places() <= MOST_PLACES
        ):  # none: others compute
            self._written = written(self.text(), {"Instruction": Instruction})
        made = []
        before = zip(slots[-self.size :], self._before, steps)  # noqa: B905 - as long as each other, and this is hot
        for id, (need, get_needs, reader, rest), step in before:
            needs = (slots[need],) if need >= 0 else get_needs(slots)
            if reader >= 0:
                known = slots[reader]
                after = (known,) if type(known) is int else tuple(known)
                edges.append(after)
            else:
                other, get_others, readers = rest
                after = (slots[other],) if other >= 0 else get_others(slots)
                for at in readers:
                    known = slots[at]
                    more = (known,) if type(known) is int else tuple(known)
                    edges.append(more)
                    after += more
            made.append(Instruction(id, step, task, needs, after))
        emitter.last += self.size
        edges.append(self._behind(slots))
        emitter.led += self._front(slots)
        if len(edges) > MOST_EDGES:
            emitter.work_out_front()
        return made

    def _places(self) -> int:
        """Return how many edges there are, lists of readers counted once."""
        return sum([len(each.need_ids) + len(each.ids) + len(each.readers) for each in self._all])

    def text(self) -> str:
        """Return the text of a function that makes the instructions of this recipe alone, without loops."""
        lines = ["def fill(slots, task, steps, edges, led):", f"    {_named('s', self.size)} = steps"]
        entries, lists = [], []
        for number, each in enumerate(self._all):
            needs = _tuple(each.need_ids)
            after = _tuple(each.ids)
            if each.readers:
                for at in each.readers:
                    lines.append(f"    r{number}_{at} = {several(at)}")
                    lists.append(f"r{number}_{at}")
                joined = [f"r{number}_{at}" for at in each.readers]
                also = "".join([f"*{name}, " for name in joined])
                after = joined[0] if len(joined) == 1 and not each.ids else f"({after[1:-1]}{also})"
            entries.append(f"Instruction(slots[{self._own + number}], s{number}, task, {needs}, {after})")
        front, behind = _front(self._all, self.size, self._own)
        lines.append(f"    edges += ({', '.join([*lists, _tuple(behind)])},)")
        lines.append(f"    led += {_tuple(front)}")
        lines.append(f"    return [{', '.join(entries)}]")
        return "\n".join(lines)

    def bound(self, states: Sequence[ArrayState], shares: Any, new: Sequence[Allocation]) -> Bound:
        """Return the recipe for these arrays, shares and new allocations."""
        whose = tuple([state.id for state in states])
        layouts = [state.layout for state in states]
        known = None if new else self.uses.get(whose)
        if known is None or known.layouts != layouts or (known.shares is not shares and known.shares != shares):
            backings = [backing for state in states for backing in state.all_backings()]
            places = [*[backing.allocation for backing in backings], *new]

            def where(place: Allocation) -> Allocation:
                return places[place.id]

            steps = [
                step.by(where, shares[chunk]) if isinstance(step, Launch) else step.on(where)
                for step, chunk in zip(self._steps, self._chunks, strict=True)
            ]
            known = Bound(layouts, shares, steps, backings)
            if not new:
                if len(self.uses) >= BOUND:
                    self.uses.clear()
                self.uses[whose] = known
        return known

    def change(
        self, slots: list[Any], states: Sequence[ArrayState], old: list[Backing], new: Sequence[Allocation]
    ) -> None:
        """Let the states be as they are after the call."""
        for state, (form, ids, layout) in zip(states, self._changes):  # noqa: B905 - as above
            if layout is not None:
                state.arrange(
                    [(m, [old[i] if i < len(old) else Backing(new[i - len(old)], 0) for i in at]) for m, at in layout]
                )
            if state.valid.pattern is not form.valid:
                state.valid.become(form.valid)
            state.form = form
            state.ids = list(ids.get(slots)) if ids.plain else ids.fill(slots)


def _named(letter: str, count: int) -> str:
    """Return so many names, to be assigned to."""
    return "".join([f"{letter}{number}, " for number in range(count)])


def _tuple(positions: Sequence[int]) -> str:
    """Return the expression of what is in these slots."""
    return f"({''.join([f'slots[{i}], ' for i in positions])})"


def _front(before: Sequence[Before], size: int, own: int) -> tuple[list[int], list[int]]:
    """Return the slots of a recipe's instructions that none of it comes after, and of all that it comes after.

    Lists of readers that it comes after are apart. `own` is the slot of its first instruction.
    """
    ids: set[int] = set()
    for edges in before:
        ids.update(edges.need_ids, edges.ids)
    front = [own + n for n in range(size) if own + n not in ids]
    return front, sorted(i for i in ids if i < own)


def edges_at(needs: Sequence[int], after: Sequence[int], lists: Container[int]) -> Before:
    """Return the edges of an instruction; there may be `lists` of readers in some places that it comes after."""
    ids, readers = [i for i in after if i not in lists], tuple([i for i in after if i in lists])
    return Before(
        needs[0] if len(needs) == 1 else -1,
        getter(needs),
        readers[0] if len(after) == 1 and readers else -1,
        ids[0] if len(ids) == 1 else -1,
        getter(ids),
        readers,
        tuple(needs),
        tuple(ids),
    )


class Making:
    """A recipe in the making: holds what symbols stand for while a call is lowered."""

    def __init__(self, states: Sequence[ArrayState], epoch: int) -> None:
        self._states = states
        self.forms = tuple([state.form for state in states])
        self._slots: list[Any] = [id for state in states for id in state.ids]
        self._slots.append(epoch)
        self.epoch = SYMBOLS - len(self._slots) + 1  # the symbol of the epoch
        self._readers: set[int] = set()  # positions where there may be lists of readers
        self._before = {state: state.all_backings() for state in states}
        self._backings = [backing for backings in self._before.values() for backing in backings]
        at = 0
        for state, form in zip(states, self.forms, strict=True):
            assert form is not None
            state.ids = [SYMBOLS - at - n for n in range(form.size)]
            state.unfold()
            self._readers.update([at + n for n in form.readers])
            at += form.size

    def position(self, id: int, first: int) -> int:
        """Return where in the slots an id is found: a symbol, or an instruction of the call, whose first one is given."""
        if id <= SYMBOLS:
            return SYMBOLS - id
        if id < first:
            raise NoRecipe  # somebody else's
        return len(self._slots) + id - first

    def real(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return real ids for those of edges, each once."""
        found: dict[int, None] = {}
        for id in ids:
            known: Any = self._slots[SYMBOLS - id] if id <= SYMBOLS else id
            if type(known) is int:
                found[known] = None
            else:
                found.update(dict.fromkeys(known))
        return tuple(found)

    def finish(self, after: Sequence[tuple[StateForm, Ids]]) -> None:
        """Give real ids back to the states, whose forms are known now."""
        for state, (form, ids) in zip(self._states, after, strict=True):
            state.fold(form, [self._known(id) for id in ids])

    def _known(self, id: Any) -> int | list[int]:
        if type(id) is not int:
            return list(self.real(id))
        known: int | list[int] = self._slots[SYMBOLS - id] if id <= SYMBOLS else id
        return known

    def recipe(
        self,
        instructions: Sequence[Instruction],
        edges: Sequence[tuple[Sequence[int], Sequence[int]]],
        after: Sequence[tuple[StateForm, Ids]],
        counters: tuple[int, int, int],
        chunks: Sequence[Any],
    ) -> Recipe:
        """Return the recipe, or raise NoRecipe. `counters` are the first instruction, allocation and private array."""
        first, allocation, private = counters
        if [i.id for i in instructions] != list(range(first, first + len(instructions))):
            raise NoRecipe
        allocs = [i.step.allocation for i in instructions if isinstance(i.step, Alloc)]
        if [a.id for a in allocs] != list(range(allocation, allocation + len(allocs))):
            raise NoRecipe
        places = {id(b.allocation): n for n, b in enumerate(self._backings)}
        places.update({id(a): len(places) + n for n, a in enumerate(allocs)})
        owners = {state.id: n for n, state in enumerate(self._states)}
        made, privates = [], 0
        for a in allocs:
            if a.array < 0:
                owner = a.array + private - 1  # -1 is the first private array
                privates = max(privates, -owner)
            elif a.array in owners:
                owner = owners[a.array]
            else:
                raise NoRecipe
            made.append(NewAllocation(a.memory, owner, a.box, a.dtype))
        steps, numbers = self._open(instructions, places, chunks)
        afters = tuple(
            [
                self._after(state, form, ids, places, first)
                for state, (form, ids) in zip(self._states, after, strict=True)
            ]
        )
        before = [self._edges(*both, first) for both in edges]
        return Recipe(steps, numbers, before, afters, tuple(made), privates, len(self._slots))

    def _edges(self, needs: Sequence[int], after: Sequence[int], first: int) -> Before:
        """Return the edges of an instruction as positions."""
        need = [self.position(id, first) for id in needs]
        if not self._readers.isdisjoint(need):
            raise NoRecipe
        return edges_at(need, [self.position(id, first) for id in after], self._readers)

    def _open(
        self, instructions: Sequence[Instruction], places: dict[int, int], chunks: Sequence[Any]
    ) -> tuple[list[Step], list[int]]:
        """Return the steps with the allocations left open, and which chunk each computes, or -1."""

        def where(allocation: Allocation) -> Allocation:
            position = places.get(id(allocation))
            if position is None:
                raise NoRecipe
            return Allocation(position, allocation.memory, allocation.array, allocation.box, allocation.dtype)

        steps, numbers = [], []
        for instruction in instructions:
            step, number = instruction.step.on(where), -1
            if isinstance(step, Launch):
                number = next((n for n, chunk in enumerate(chunks) if chunk is step.chunk), -1)
                if number < 0:
                    raise NoRecipe
            elif isinstance(step, Fence):
                step = Fence(step.binding, _to_nobody)  # what was read then goes to nobody again
            steps.append(step)
            numbers.append(number)
        return steps, numbers

    def _after(self, state: ArrayState, form: StateForm, ids: Ids, places: dict[int, int], first: int) -> After:
        positions = [[self.position(i, first) for i in ([id] if type(id) is int else id)] for id in ids]  # type: ignore[union-attr]
        layout = None
        if state.all_backings() != self._before[state]:
            layout = tuple(
                [(m, tuple([places[id(b.allocation)] for b in those])) for m, those in state.backings.items() if those]
            )
        return After(form, Positions(positions), layout)


def _to_nobody(elements: Any) -> None:
    del elements
