"""Calls that were lowered before, on arrays in the same state: their instructions are made from a recipe.

Before: lower/lowering.py, lower/recipe.py.  After: schedule/lower.py.  Pure: its caller holds the lock.

A recipe is found by what is called, who computes what, and the forms of the arrays' states. It leaves the states as
analysis would have left them, so nothing has to catch up when the program does something else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..graph.command import Chunk, Command
from ..graph.forms import Ids, Numbering
from ..graph.instruction import Allocation, Fence, Instruction
from ..graph.shape import FormCache, answers
from ..graph.task import Task
from ..machine.platform import HOST
from ..plan.candidate import Share
from ..program.array import Array
from .lowering import Lowering
from .recipe import Bound, Making, NoRecipe, Recipe
from .state import ArrayState, StateForm
from .touch import Draft

MOST_FORMS = 1 << 11  # forms of states that are remembered
MOST_PLANS = 64  # ways to divide calls of one shape


class Recipes:
    """Lowers calls and host reads, from recipes where they are known."""

    def __init__(self, lowering: Lowering, *, on: bool = True) -> None:
        self._lowering = lowering
        self.on = on
        self.recalled = 0  # calls and reads whose instructions came from recipes
        self._forms: dict[Hashable, StateForm] = {}
        self._reads: dict[Hashable, FormCache] = {}

    def recall(self, command: Command, shares: Sequence[Share]) -> list[Instruction] | None:
        """Return the instructions of a command if they need no analysis. Nothing before it may be held back."""
        task = command.task
        shape = task.shape
        if shape is None or not shape.repeatable:
            return self._lowering.warm(command, shares)  # one kernel needs no recipe
        states: list[ArrayState] = []
        folded = False
        for array in task.arrays:
            state: ArrayState = array._storage.state
            states.append(state)
            folded = folded or state.form is not None
        if not task.once:
            states = list(dict.fromkeys(states))
        if not folded:
            kernel = self._lowering.warm(command, shares)  # one kernel needs no recipe
            if kernel is not None:
                return kernel
        chunks = command.chunks
        at = id(chunks), id(shares)
        last = None if shape.asks_user else shape.last.get(at)
        if last is None:
            known = shape.recipes.get(_parts(command, shares))
            if known is None:
                return None
            if len(shape.last) >= MOST_PLANS:
                shape.last.clear()
            last = shape.last[at] = known, chunks, shares  # which are kept, so that nothing else has their identities
        return self._found(last[0], task, states, shares)

    def found(self, task: Task, chunks: Sequence[Chunk], shares: Sequence[Share]) -> list[Instruction] | None:
        """Return the same as `recall`, of a task that had these chunks and shares before; None where it is not the usual case."""
        shape = task.shape
        if shape is None or shape.asks_user or not task.once:
            return None
        last = shape.last.get((id(chunks), id(shares)))
        if last is None:
            return None
        states: list[ArrayState] = []
        forms: list[StateForm] = []
        slots: list[Any] = []
        for array in task.arrays:
            state: ArrayState = array._storage.state
            form = state.form
            if form is None or state.valid.pattern is not form.valid:
                return None
            states.append(state)
            forms.append(form)
            slots += state.ids
        known: FormCache = last[0]
        recipe: Recipe | None = known.forms.get(tuple(forms))
        if recipe is None or recipe.made or recipe.frees:
            return None
        known.tries = 0
        self.recalled += 1
        return self._refill(recipe, task, states, shares, slots)

    def _refill(
        self, recipe: Recipe, task: Task, states: list[ArrayState], shares: Sequence[Share], slots: list[Any]
    ) -> list[Instruction]:
        """Return the instructions of a recipe that allocates and frees nothing, and change the states as it says."""
        emitter = self._lowering.emitter
        first = emitter.last + 1
        slots.append(emitter.epoch)
        slots += range(first, first + recipe.size)
        bound = self._bound(recipe, task, states, shares)
        made = recipe.instructions(emitter, slots, task, bound.steps)
        recipe.change(slots, states, bound.backings, ())
        if bound.touched != emitter.marks.count:  # else it was filled in since the last mark
            bound.touched = emitter.marks.count
            emitter.marks.touched.update(bound.backings)
        return made

    def lower(
        self, command: Command, shares: Sequence[Share], draft: Draft | None = None, *, late: bool = False
    ) -> list[Instruction]:
        """Analyse a command, and make a recipe if it has come before. `late`: calls after it have come already."""
        task, lowering = command.task, self._lowering
        if task.shape is None or late or not task.shape.repeatable:
            return lowering.lower(command, shares, draft)
        known = self._remember(task.shape.recipes, _parts(command, shares))
        if known.wait():
            return lowering.lower(command, shares, draft)
        if lowering.coherence.budget.limited:
            draft = draft or lowering.draft(command)
            if not lowering.capacity.roomy_for(draft):
                return lowering.lower(command, shares, draft)  # who must go depends on what every array did last
        if draft is not None and draft.partials:
            draft = None  # private arrays are numbered while the recipe is made
        states: list[ArrayState] = list(dict.fromkeys([array._storage.state for array in task.arrays]))
        for state in states:
            self._form(state)
        return self._make(known, states, command.chunks, lambda: lowering.lower(command, shares, draft))

    def fence(
        self, task: Task, array: Array, deliver: Callable[[Any], None], *, late: bool = False
    ) -> list[Instruction]:
        """Return the instructions of a host read."""
        state: ArrayState = array._storage.state

        def analyse() -> list[Instruction]:
            return self._lowering.fence(task, array, deliver)

        limited = self._lowering.coherence.budget.limited and state.find(HOST, array._box) is None
        if not self.on or late or limited or state.form is None:
            return analyse()
        known = self._remember(self._reads, (array._box, array._cut, task.deal))
        instructions = self._found(known, task, [state], ())
        if instructions is None:
            return analyse() if known.wait() else self._make(known, [state], (), analyse)
        for instruction in instructions:
            step = instruction.step
            if type(step) is Fence:
                instruction.step = Fence(step.binding, deliver)
        return instructions

    def _remember(self, table: dict[Hashable, Any], what: Hashable) -> FormCache:
        """Return what is known of a call or a read; nothing, at first."""
        known: FormCache | None = table.get(what)
        if known is None:
            if len(self._forms) > MOST_FORMS or len(self._reads) > MOST_FORMS:
                self._forms.clear()  # recipes that go by them are of no use any more, and go with their calls
                self._reads.clear()
            if len(table) >= MOST_PLANS:
                table.clear()
            known = table[what] = FormCache()
        return known

    def _found(
        self, known: FormCache, task: Task, states: list[ArrayState], shares: Sequence[Share]
    ) -> list[Instruction] | None:
        """Return the instructions of a recipe for these states, if there is one."""
        if not known.forms:
            return None
        forms: list[StateForm] = []
        slots: list[Any] = []
        for state in states:
            form = state.form
            forms.append(form if form is not None and state.valid.pattern is form.valid else self._form(state))
            slots += state.ids
        recipe: Recipe | None = known.forms.get(tuple(forms))
        if recipe is None:
            return None
        known.tries = 0
        if recipe.made and not self._may_allocate(recipe):
            return None
        self.recalled += 1
        if not recipe.made and not recipe.frees:
            return self._refill(recipe, task, states, shares, slots)
        emitter = self._lowering.emitter
        slots.append(emitter.epoch)
        first = emitter.last + 1
        slots += range(first, first + recipe.size)
        return self._fill(recipe, task, states, shares, slots)

    def _may_allocate(self, recipe: Recipe) -> bool:
        """Tell whether what a recipe allocates is as large as analysis would make it, and fits as it did then."""
        coherence = self._lowering.coherence
        if recipe.foresight != coherence.foresight:
            return False
        if coherence.budget.limited:
            accounts = coherence.budget.accounts
            for memory, nbytes in recipe.needs.items():
                if (account := accounts[memory]) is not None and account.lacks(nbytes):
                    return False
        return True

    def _form(self, state: ArrayState) -> StateForm:
        """Return the form of a state, which is folded then."""
        form = state.form
        if form is None or state.valid.pattern is not form.valid:
            state.unfold()
            form, ids = self._look(state)
            state.fold(form, ids)
        return form

    def _look(self, state: ArrayState) -> tuple[StateForm, Ids]:
        """Return the form of an unfolded state, and its ids."""
        numbers = Numbering()
        backings = state.all_backings()
        trackers = tuple([backing._tracker.form(numbers) for backing in backings])
        valid = self._lowering.coherence.pattern(state.valid)
        places = tuple([(backing.allocation.memory, backing.box) for backing in backings])
        first = None if state.initial is None else state.initial.tobytes()
        key = (valid, state.dtype, first, places, trackers)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = StateForm(valid, trackers, len(numbers.ids), frozenset(numbers.several_at))
        return form, numbers.ids

    def _bound(self, recipe: Recipe, task: Task, states: list[ArrayState], shares: Any) -> Bound:
        """Return a recipe that allocates nothing for these arrays."""
        same = task.same
        known = recipe.uses.get(same.ids) if same is not None and task.once else None
        if known is not None and (known.shares is shares or known.shares == shares):
            for state, layout in zip(states, known.layouts):  # noqa: B905 - as long as each other, and this is hot
                if state.layout != layout:
                    break
            else:
                return known  # they are where they were
        return recipe.bound(states, shares, ())

    def _fill(
        self, recipe: Recipe, task: Task, states: list[ArrayState], shares: Any, slots: list[Any]
    ) -> list[Instruction]:
        """Return the instructions of a recipe that allocates or frees memory, and change the states as it says."""
        lowering = self._lowering
        emitter, coherence = lowering.emitter, lowering.coherence
        new: list[Allocation] = []
        for memory, owner, box, dtype in recipe.made:
            array = states[owner].id if owner >= 0 else owner - lowering.last_private
            new.append(coherence.numbered(memory, array, box, dtype))
        bound = recipe.bound(states, shares, new)
        made = recipe.instructions(emitter, slots, task, bound.steps)
        lowering.last_private += recipe.privates
        coherence.freed += recipe.frees
        if coherence.budget.limited:
            coherence.account(made)
            before = set(bound.backings)
            recipe.change(slots, states, bound.backings, new)
            coherence.evictor.moved(before, states)
        else:
            recipe.change(slots, states, bound.backings, new)
        touched = emitter.marks.touched
        touched.update(bound.backings)
        for state in states if new else ():
            touched.update(state.all_backings())
        return made

    def _make(
        self,
        known: FormCache,
        states: list[ArrayState],
        chunks: Sequence[Any],
        analyse: Callable[[], list[Instruction]],
    ) -> list[Instruction]:
        """Return what analysis finds, and keep it as a recipe if it is one."""
        lowering = self._lowering
        emitter = lowering.emitter
        making = Making(states, emitter.epoch)
        counters = (emitter.last + 1, lowering.coherence.last_allocation + 1, lowering.last_private + 1)
        instructions: list[Instruction] | None = None
        try:
            with emitter.aside(making.epoch):
                instructions = analyse()
        finally:
            emitted = emitter.out if instructions is None else instructions
            edges = [(i.needs, i.after) for i in emitted]
            for instruction in emitted:
                needs = instruction.needs = making.real(instruction.needs)
                instruction.after = tuple([id for id in making.real(instruction.after) if id not in needs])
                emitter.lead(instruction)
            after = [self._look(state) for state in states]
            making.finish(after)
        try:
            if lowering.capacity.counts(instructions):
                raise NoRecipe
            recipe = making.recipe(instructions, edges, after, counters, chunks)
        except NoRecipe:
            return instructions
        recipe.foresight = lowering.coherence.foresight
        known.learn(making.forms, recipe)
        return instructions


def _parts(command: Command, shares: Sequence[Share]) -> Hashable:
    """Return all that instructions depend on beside the call's shape and the states of the arrays."""
    task = command.task
    return (
        command.chunks,
        tuple([share[0] for share in shares]),
        task.space is None,
        answers(task, command.chunks),
    )
