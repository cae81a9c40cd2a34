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

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..graph.forms import Ids
from ..graph.instruction import Alloc, Allocation, Binding, Fence, Free, Instruction, Kernel
from ..graph.positions import NONE, SEVERAL, Edges, Places
from .state import ArrayState, Backing, StateForm

SYMBOLS = -(1 << 48)  # and below: no instruction has such an id, and no mark
PLACES = ("allocation", "source", "target")
"""Fields of instructions that are allocations."""
BINDINGS = ("binding", "partials", "target")
"""Fields of instructions that are bindings."""
BOUND = 4  # sets of arrays for which a recipe remembers its instructions
_new: Any = tuple.__new__


class NoRecipe(Exception):
    """What was lowered depends on more than the forms of the states."""


class Made(NamedTuple):
    """An allocation that a call makes."""

    memory: int
    owner: int  # the position of its array among the call's; below zero: of a private array
    box: Any
    dtype: Any


class Proto:
    """One instruction of a recipe."""

    __slots__ = ("after", "bindings", "chunk", "fields", "kind", "needs", "parameters", "places")

    def __init__(self, instruction: Instruction, needs: Edges, after: Edges, places: dict[int, int]) -> None:
        self.kind = type(instruction)
        self.fields = fields = {**vars(instruction), "task": None}  # nothing of the first call is kept alive
        self.needs, self.after = needs, after

        def at(allocation: Allocation) -> int:
            position = places.get(id(allocation))
            if position is None:
                raise NoRecipe
            return position

        self.places = tuple([(n, at(a)) for n in PLACES if isinstance(a := fields.get(n), Allocation)])
        bound = [(n, fields.get(n)) for n in BINDINGS]
        self.bindings = tuple([(n, at(b.allocation)) for n, b in bound if isinstance(b, Binding) and b.allocation])
        self.parameters: tuple[int, ...] = ()  # -1: not in memory
        self.chunk = -1  # which of the command's chunks a kernel computes
        if isinstance(instruction, Kernel):
            self.parameters = tuple([-1 if b.allocation is None else at(b.allocation) for b in instruction.bindings])

    def bound(self, allocations: Sequence[Allocation], shares: Sequence[Any]) -> dict[str, Any]:
        """Return the fields of the instruction for these allocations and shares; edges, id and task are still open."""
        own = self.fields.copy()
        for name, position in self.places:
            own[name] = allocations[position]
        for name, position in self.bindings:
            own[name] = own[name]._replace(allocation=allocations[position])
        if self.parameters:
            own["bindings"] = tuple(
                [
                    binding if p < 0 else _new(Binding, (binding[0], allocations[p], *binding[2:]))
                    for binding, p in zip(own["bindings"], self.parameters, strict=True)
                ]
            )
        if self.chunk >= 0:
            own["body"], own["model"], own["work"], own["predicted"], own["together"] = shares[self.chunk][:5]
        return own


class After(NamedTuple):
    """What becomes of one array's state."""

    form: StateForm
    ids: Places
    layout: tuple[tuple[int, tuple[int, ...]], ...] | None  # per memory its allocations, by position; None: as before


class Bound(NamedTuple):
    """A recipe for certain arrays."""

    layouts: tuple[int, ...]  # of the arrays, then
    shares: Any
    fields: list[dict[str, Any]]  # of each instruction
    backings: list[Backing]


class Recipe:
    """What a call becomes on arrays whose states have certain forms."""

    __slots__ = ("_bound", "afters", "foresight", "frees", "made", "needs", "privates", "protos")

    def __init__(
        self,
        protos: tuple[Proto, ...],
        afters: tuple[After, ...],
        made: tuple[Made, ...],
        privates: int,
    ) -> None:
        self.protos = protos
        self.afters = afters
        self.foresight = 0  # what was known then of how large allocations become
        self.made = made
        self.needs: dict[int, int] = {}  # per memory: bytes that it allocates
        for memory, _, box, dtype in made:
            self.needs[memory] = self.needs.get(memory, 0) + box.volume * dtype.itemsize
        self.privates = privates  # private arrays that it makes
        self.frees = sum(proto.kind is Free for proto in protos)
        self._bound: dict[tuple[int, ...], Bound] = {}

    def instructions(self, slots: list[Any], first: int, task: Any, fields: list[dict[str, Any]]) -> list[Instruction]:
        """Return the instructions, of which `first` is the number of the first."""
        made = []
        new = object.__new__
        id = first
        for proto, known in zip(self.protos, fields):  # noqa: B905 - as long as each other, and this is hot
            own = known.copy()
            own["id"] = id
            own["task"] = task
            one = proto.needs.one
            own["needs"] = needs = (slots[one],) if one >= 0 else proto.needs.fill(slots) if one != NONE else ()
            one = proto.after.one
            if one >= 0:
                after: tuple[int, ...] = (slots[one],)
            elif one < SEVERAL:
                readers = slots[SEVERAL - 1 - one]
                after = (readers,) if type(readers) is int else tuple(readers)
            else:
                after = proto.after.fill(slots) if one != NONE else ()
            for i in after:
                if i in needs:
                    after = tuple([i for i in after if i not in needs])
                    break
            own["after"] = after
            instruction: Instruction = new(proto.kind)
            instruction.__dict__ = own
            made.append(instruction)
            id += 1
        return made

    def bound(self, states: Sequence[ArrayState], shares: Any, new: list[Allocation]) -> Bound:
        """Return the recipe for these arrays, shares and new allocations."""
        whose = tuple([state.id for state in states])
        layouts = tuple([state.layout for state in states])
        known = None if new else self._bound.get(whose)
        if known is None or known.layouts != layouts or known.shares is not shares:
            backings = [backing for state in states for backing in state.all_backings()]
            places = [backing.allocation for backing in backings] + new
            known = Bound(layouts, shares, [proto.bound(places, shares) for proto in self.protos], backings)
            if not new:
                if len(self._bound) >= BOUND:
                    self._bound.clear()
                self._bound[whose] = known
        return known

    def change(self, slots: list[Any], states: Sequence[ArrayState], old: list[Backing], new: list[Allocation]) -> None:
        """Let the states be as they are after the call."""
        for state, after in zip(states, self.afters):  # noqa: B905 - as above
            form = after.form
            if after.layout is not None:
                state.arrange(
                    [
                        (m, [old[i] if i < len(old) else Backing(new[i - len(old)], 0) for i in at])
                        for m, at in after.layout
                    ]
                )
            if state.valid.pattern is not form.valid:
                state.valid.become(form.valid)
            state.form = form
            state.ids = after.ids.fill(slots)


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
            return [one for i in id for one in self.real((i,))]
        known: int | list[int] = self._slots[SYMBOLS - id] if id <= SYMBOLS else id
        return known

    def edges(self, ids: Sequence[int], first: int) -> Edges:
        """Return edges as positions in the slots."""
        return Edges.of([self.position(id, first) for id in ids], self._readers)

    def recipe(
        self,
        instructions: Sequence[Instruction],
        edges: Sequence[tuple[Edges, Edges]],
        after: Sequence[tuple[StateForm, Ids]],
        counters: tuple[int, int, int],
        chunks: Sequence[Any],
    ) -> Recipe:
        """Return the recipe, or raise NoRecipe. `counters` are the first instruction, allocation and private array."""
        first, allocation, private = counters
        if [i.id for i in instructions] != list(range(first, first + len(instructions))):
            raise NoRecipe
        allocs = [i.allocation for i in instructions if isinstance(i, Alloc)]
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
            made.append(Made(a.memory, owner, a.box, a.dtype))
        protos = tuple([Proto(i, *e, places) for i, e in zip(instructions, edges, strict=True)])
        for proto, instruction in zip(protos, instructions, strict=True):
            if isinstance(instruction, Kernel):
                proto.chunk = next((n for n, c in enumerate(chunks) if c is instruction.chunk), -1)
                if proto.chunk < 0:
                    raise NoRecipe
            elif isinstance(instruction, Fence):
                proto.fields["deliver"] = None  # what was read then goes to nobody again
        afters = tuple(
            [
                self._after(state, form, ids, places, first)
                for state, (form, ids) in zip(self._states, after, strict=True)
            ]
        )
        return Recipe(protos, afters, tuple(made), privates)

    def _after(self, state: ArrayState, form: StateForm, ids: Ids, places: dict[int, int], first: int) -> After:
        positions = [[self.position(i, first) for i in ([id] if type(id) is int else id)] for id in ids]  # type: ignore[union-attr]
        layout = None
        if state.all_backings() != self._before[state]:
            layout = tuple(
                [(m, tuple([places[id(b.allocation)] for b in those])) for m, those in state.backings.items() if those]
            )
        return After(form, Places(positions), layout)
