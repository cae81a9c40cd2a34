"""Predict, divide, place: from a task to a command, a list of (device, box) chunks with a variant each.

Before: graph/, predict/, machine/.  After: lower/.  Knows no memory's contents but which arrays are valid where.

The first of these that applies decides about a call:

1. A host task is one chunk on the host.
2. A call whose placement names devices for its parts is cut as the placement says.
3. A call that only the host can run is computed there.
4. A call that a saved plan, or the plan of its step, says something of is cut as the plan says.
5. A short call for which the calling thread is ready is run by that thread (plan/planned.py).
6. A call that may be cut, and takes long enough, is divided (plan/division/divider.py), unless it was measured to be faster
   undivided.
7. Any other call goes whole to the device that the placement policy chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from ..errors import PlanError
from ..geometry import Box
from ..graph.command import Chunk, Command
from ..graph.overlaps import sees_itself
from ..graph.task import Task
from ..predict.features import work_of, work_of_part
from ..predict.work import Work
from ..program.array import Array
from ..program.call import DEFAULT
from ..program.kernel import Kernel
from ..program.variant import Variant
from .candidate import Candidate, Candidates, Residency, Share, narrow_ones, never_within, one_per_device
from .conflicts import Conflicts, Tell, however_cut, nobody
from .division.divided import Divided
from .division.divider import Divider
from .division.make_offers import quick
from .division.pieces import Blocking, in_pieces
from .host_only import KEPT_OUT, Who, on_host, who
from .lessons import GUESS, NOTHING, Lesson, of_division, of_whole, outcome_key
from .plan import Plan
from .planned import Planned, in_caller
from .policies import WIDE_GAIN, Asked, Loads, PlacementPolicy
from .prescribed import FollowedPlans, Members, Said, following, in_one_piece_each, is_cut, looping
from .preview import LookedAt, alone_seconds, preview, who_is_first
from .split import blocks_of, cut_again, deal as deal_by, deal_evenly, evenly, granules, in_runs, with_shares
from .steps.guide import Guided
from .steps.profile import CallProfile, profile_of


def inputs_of(task: Task, residency: Residency) -> list[tuple[int, int]]:
    """Return the bytes that a task reads, and the memories that hold them."""
    return [
        (array.nbytes, residency.held_by(array))
        for param, array in zip(task.accesses, task.arrays, strict=True)
        if param.access.mode != "write"
    ]


def near_ones(task: Task, candidates: list[Candidate], residency: Residency) -> list[Candidate]:
    """Leave an assignment to a device whose memory holds the array already: it is not worth a copy there and back."""
    held = residency.held_by(task.arrays[-1])
    return [c for c in candidates if held >> c.memory & 1] or candidates


def wide_is_faster(candidates: Sequence[Candidate], work: Work, seconds: float) -> bool:
    """Tell whether all cores as one device (library threads) were measured to be faster than a division."""
    wide = [s for c in candidates if c.wide and c.model.measured(work) and (s := c.model.seconds(work)) is not None]
    return bool(wide) and min(wide) < seconds * WIDE_GAIN


WORTH_DIVIDING = 300e-6  # seconds on one device; below, a second device costs more than it brings
LAUNCHES = 20  # the same bar for devices that say how long a launch takes
UNKNOWN_BYTES = 1_600_000  # the same bar for a kernel nobody measured
UNKNOWN_FLOPS = 1e7  # and for one that says how many operations it needs
ONLY = "the only device that can run it"
IN_FORCE = "of the devices of the plan in force, the only one that can run it"
NAMED = "of the devices that the call names, the only one that can run it"
_new: Callable[..., Any] = tuple.__new__

HOST = Share(Variant("host", "cpu"), None, None, None)
Remark = Callable[[Task, Sequence[str]], None]
"""Takes a task and the devices that would help if its arguments did not overlap."""


class Planner:
    """Plans one task after another. Deterministic for the same history and loads."""

    def __init__(
        self,
        candidates: Candidates,
        placement: PlacementPolicy,
        loads: Loads,
        residency: Residency,
        divider: Divider,
        *,
        policy: str = "static",
        objective: str = "time",
        plans: Sequence[Plan] = (),
        cache: int = 1 << 62,
        note: Callable[[str], None] | None = None,
        tell: Tell = nobody,
        remark: Remark | None = None,
    ) -> None:
        self._candidates = candidates
        self.divider = divider
        self._policy = policy
        self._objective = objective
        self._placement = placement
        self._residency = residency
        self.loads = loads
        self._note = note  # where remarks are recorded; reasons are worked out only if there is such a place
        self._blocking = Blocking(cache)
        divider.offering.start_delays, divider.offering.idle = loads.start_delays, lambda: loads.idle
        self.to_the_letter = FollowedPlans(plans)
        self._step_plan = FollowedPlans()  # as far as it can be followed
        self._guide: Callable[[Task], Guided | None] | None = None  # for calls of which it says nothing
        self._conflicts = Conflicts(tell)
        self._members = Members(candidates)
        self._remark = remark
        self.last: Divided | None = None  # the last division that was looked at, whether or not it was made
        self.whole = ""  # why that division was not made

    def preview(self, task: Task) -> Plan:
        """Return what would be planned for `task`, as data. Changes nothing that later plans depend on."""
        kernel, options = task.kernel, task.options
        assert kernel is not None and options is not None
        self.last, self.whole = None, ""
        with self.loads.untouched(), self.divider.untouched():
            planned = self.plan(task)
        found = Who([], [], only_cpu=True) if kernel.host else who(self._candidates, task)
        candidates = [] if planned.command.chunks[0].device == "host" else found.able
        unfit = self._candidates.unfit(task) | dict.fromkeys(found.kept_out, KEPT_OUT)
        alone = alone_seconds(candidates, work_of(task), self.loads, lambda: inputs_of(task, self._residency))
        seen = LookedAt(self.last, self.whole, candidates, unfit, alone, work_of(task), self.loads.designs.of(task))
        return preview(task, planned, seen, objective=self._objective, policy=options.policy or self._policy)

    @property
    def only_places(self) -> bool:
        """Whether no plan is followed, so that all there is to plan of a call that cannot be cut is who computes it."""
        return not (self.to_the_letter.plans or self._step_plan.plans or self._guide) and self._placement.pairs

    def follow(self, plans: Sequence[Plan]) -> None:
        """Plan as these plans say, to the letter, from now on: nothing that was decided before holds."""
        for plan in plans:
            self.to_the_letter.add(plan)
        self._candidates.forget()

    def adopt(self, plan: Plan | None, guide: Callable[[Task], Guided | None]) -> None:
        """Plan the calls of a step as its plan says from now on, and others as a guide says, in place of those before."""
        self._step_plan, self._guide = FollowedPlans(() if plan is None else [plan]), guide
        self._candidates.forget()

    def profile(self, task: Task) -> CallProfile | None:
        """Return what plans of steps need to know of a call; None if such a call is planned by itself alone."""
        if self.divider.for_energy or not self._placement.pairs or self.to_the_letter.names(task):
            return None
        return profile_of(task, self._policy, lambda: who(self._candidates, task))

    def check(self, task: Task) -> None:
        """Raise what planning `task` would raise: no device that can run it, or features that are none."""
        kernel, options = task.kernel, task.options
        assert kernel is not None and options is not None
        found = None if kernel.host else who(self._candidates, task)
        if found is not None and is_cut(options):
            self._members.said(task, task.mine, found)
        elif found is not None and found.able:
            work_of(task)

    def runs(self, kernel: Kernel, arrays: Sequence[Array]) -> bool:
        """Tell whether some device can run `kernel`, which has a Python body, on arrays of these types."""
        return self._candidates.runs(kernel, arrays)

    def plan(self, task: Task, *, idle: bool = False) -> Planned:
        """Return the command, and what each of its chunks runs and is predicted to take.

        `idle` tells that nothing is pending, and that the caller is ready to run a short kernel itself.
        """
        kernel, box = task.kernel, task.domain if task.deal is None else task.mine
        assert kernel is not None
        if task.deal is not None and box != task.domain:  # from here on it is mapped part by part
            task.map_parts()
        if kernel.host:
            return Planned(Command(task.id, task, (Chunk("host", box),), task.after, "host task"), (HOST,))
        found = who(self._candidates, task)
        if found.kept_out and self._remark is not None:
            self._remark(task, found.kept_out)
        said = self._members.said(task, box, found) if task.options is not DEFAULT and is_cut(task.options) else None
        if isinstance(said, Said):
            planned = self._shared(task, *said)
            again = task.options is not None and task.options.oversubscribe > 1
            return self._cut_again(planned) if again else planned
        planned = self._among(task, box, found, idle=idle)
        if not found.kept_out and said is None:
            return planned
        why = planned.command.why or "earliest predicted finish"
        why += f"; left out: {', '.join(found.kept_out)} (arguments overlap)" if found.kept_out else ""
        why += f"; not cut as placed: {said}" if said is not None else ""
        return planned._replace(command=planned.command._replace(why=why))

    def _among(self, task: Task, box: Box, found: Who, *, idle: bool) -> Planned:
        kernel, options = task.kernel, task.options
        assert kernel is not None and options is not None
        candidates, blocked, only_cpu, nobody_else, _ = found
        if nobody_else:
            chunks = on_host(task, box)
            shares = [HOST._replace(work=work_of_part(task, chunk.box)) for chunk in chunks]
            return self._command(task, chunks, tuple(shares), nobody_else)
        work = work_of(task)
        told = self.to_the_letter.plans or self._step_plan.plans
        if told and (followed := self._as_planned(task, candidates, work, idle=idle)) is not None:
            return followed
        only = ONLY if options.devices is None else NAMED
        near = near_ones(task, candidates, self._residency) if kernel.internal and not only_cpu else candidates
        if len(near) < len(candidates):
            candidates, only = near, "it holds the array already"
        elif self._guide is not None and (guided := self._guide(task)) is not None and task.deal is None:
            candidates, only = guided.left(candidates), IN_FORCE
            blocked = [c for c in blocked if c.name in guided.devices]
        trying = False
        if idle and self._placement.pairs and (here := in_caller(task, box, candidates[0], work)) is not None:
            return here
        if blocked and self._placement.pairs and however_cut(task):  # or a piece sees what another wrote
            candidates = self._blocking.choose(candidates, blocked, work)
            trying = self._blocking.trying
        planned = self._divide(task, box, candidates, work, named=options.devices is not None) if kernel.split else None
        planned = planned or self.placed(task, box, candidates, work, only)
        planned = self._cut_again(planned) if options.oversubscribe > 1 else planned
        return planned._replace(lesson=planned.lesson._replace(trial=True)) if trying else planned

    def _cut_again(self, planned: Planned) -> Planned:
        """Return the plan with each device's part in several pieces, as the call asks; not if they would conflict."""
        (_, task, chunks, _, why), shares = planned.command, planned.shares
        count = task.options.oversubscribe if task.options is not None else 1
        if planned.handout or task.mine.empty:
            return planned  # pieces on demand are small already
        pieces = cut_again(task, chunks, count, granules(task, self.loads.platform))
        made, given = with_shares(task, shares, pieces, self._blocking.cache)
        if not self._conflicts.independent(task, made):
            return planned
        self.loads.in_pieces([chunk.device for chunk in chunks], [chunk.device for chunk in made])
        left = planned.lesson.without_times()  # how long it takes teaches nothing about other divisions
        return self._command(task, made, given, f"{why}; each part in {count} pieces", left)

    def placed(
        self, task: Task, box: Box, some: Sequence[Candidate], work: Work, only: str = ONLY, lesson: Lesson = NOTHING
    ) -> Planned:
        """Return the task as one chunk, on the device that the placement chooses; `only` is why there is but one."""
        ready = self.loads.ready(task.after)
        if len(some) == 1:
            chosen, why = some[0], only
        else:
            candidates = some if self._placement.pairs else one_per_device(some, work)
            asked = _new(Asked, (work, ready, self.loads.designs.op(task)))
            chosen, why = self._placement.choose(candidates, asked, lambda: inputs_of(task, self._residency))
            if self._note is not None and not why:
                why = who_is_first(candidates, work, self.loads)
        seconds = chosen.model.seconds(work)
        self.loads.add(chosen.name, seconds, ready, task.id)
        if chosen.blocked:
            shares = chosen.shares(work, seconds)
            if (chunk := in_pieces(task, box, chosen, shares[0], self._blocking.cache)) is not None:
                why = f"{why or 'earliest predicted finish'}; in cache-sized pieces"
                return self._command(task, (chunk,), shares, why, lesson)
        # Made for every task: the tuples behind the two named tuples, without their constructors.
        command = _new(Command, (task.id, task, chosen.chunks(box), task.after, why))
        planned: Planned = _new(Planned, (command, chosen.shares(work, seconds), False, "", None, False, False, lesson))
        return planned

    def _as_planned(self, task: Task, candidates: Sequence[Candidate], work: Work, *, idle: bool) -> Planned | None:
        """Return what a plan says of a call, if there is one; a plan says nothing of arguments that overlap."""
        if sees_itself(task):
            return None
        plan = self.to_the_letter.of(task)
        if plan is not None or task.deal is not None:
            return None if plan is None else self._followed(task, plan, candidates)
        plan = self._step_plan.of(task)
        if plan is None and self._guide is not None and (guided := self._guide(task)) is not None:
            plan = guided.plan
        if plan is not None and len(plan.parts) == 1 and not (task.kernel is not None and task.kernel.reduces):
            part = plan.parts[0]
            chosen = one_per_device([c for c in candidates if c.name == part.device], work)
            here = in_caller(task, task.mine, chosen[0], work) if idle and chosen else None
            return here or (self.placed(task, task.mine, chosen[:1], work, plan.why) if chosen else None)
        with suppress(PlanError):  # a device or a variant may be gone since
            return None if plan is None else self._followed(task, plan, one_per_device(candidates, work), loosely=True)
        return None

    def _followed(
        self, task: Task, plan: Plan, candidates: Sequence[Candidate], *, loosely: bool = False
    ) -> Planned | None:
        """Return the command that a plan says: the same shares and places again, and the same variants unless `loosely`.

        None if it cannot be divided so, because this call has one array twice.
        """
        chunks, group = following(task, plan, candidates, loosely=loosely)
        if not self._conflicts.independent(task, in_one_piece_each(chunks)):
            return None
        return self._shared(task, chunks, group, "as the plan says")

    def _divide(self, task: Task, box: Box, candidates: list[Candidate], work: Work, *, named: bool) -> Planned | None:
        """Return the divided task, or None if it stays whole."""
        kernel, options = task.kernel, task.options
        assert kernel is not None and options is not None
        axes = [axis for axis in task.axes if box.hi[axis] - box.lo[axis] > 1]
        group = narrow_ones(candidates, work)
        if kernel.reduces:
            return self._reduce(task, box, axes, group, work)
        policy = options.policy or self._policy
        if not axes or not options.split or len(group) < 2:
            return None
        if policy == "even":
            if not self._worth(task, candidates, work, named=named):
                return None
            chunks = evenly(task, axes, group)
            if len(chunks) < 2 or not self._conflicts.independent(task, chunks):
                return None
            shared = self._shared(task, chunks, group, f"divided evenly over {len(chunks)} devices")
            return shared._replace(
                steady=not kernel.internal and (named or never_within(WORTH_DIVIDING, candidates, work))
            )
        waits = self.loads.waits(task.after, [c.name for c in group], self.loads.designs.op(task))
        divided = self.divider.recall(task, box, group, waits)
        if divided is None and not self._worth(task, candidates, work, named=named):
            return None
        divided = self.last = divided or self.divider.divide(task, box, axes, group, waits)
        if len(divided.chunks) < 2 and not self.divider.for_energy:
            return None
        if not self._conflicts.independent(task, divided.chunks):
            self.whole = "one part would touch what another writes"
            return None
        alone = 0.0 if self.divider.for_energy else min([c.model.seconds(work) or inf for c in group])
        if (
            policy == "static"
            and alone
            and self.loads.outcomes.better(task, alone, divided.seconds, seen=self.loads.idle)
        ):
            trial = not self.loads.outcomes.judged(outcome_key(task))
            lesson = of_whole(task, self.loads, trial=trial)
            self.whole = "undivided is being tried" if trial else "undivided was measured to be faster"
            single = divided.division.single
            best = min(group, key=lambda c: single.get(c.name, inf))
            why = f"{self.whole}, and {best.name} is the fastest alone"
            return self.placed(task, box, [best], work, why, lesson)
        if not self.divider.for_energy and wide_is_faster(candidates, work, divided.seconds):
            self.whole = "all cores as one device were measured to be faster than the division"
            return None
        if policy in ("dynamic", "auto") and divided.division.cuts and however_cut(task):  # anywhere along one axis
            why = f"{policy}, beginning with: {divided.why}"
            planned = self._command(task, divided.chunks, divided.shares, why)
            return planned._replace(handout=policy, site=divided.site._replace(task=task))
        lesson = GUESS if not divided.measured else of_division(task, divided, self.loads)
        ready = self.loads.ready(task.after)
        for chunk, share in zip(divided.chunks, divided.shares, strict=True):
            self.loads.add(chunk.device, share.seconds, ready, task.id)
        return self._command(task, divided.chunks, divided.shares, divided.why, lesson)

    def _reduce(self, task: Task, box: Box, axes: list[int], group: list[Candidate], work: Work) -> Planned:
        """Deal the fixed blocks of a reduction to the devices, as many to each as let all finish together."""
        deal, kernel = task.deal, task.kernel
        assert kernel is not None
        parts = list(deal.blocks) if deal is not None else blocks_of(task, box, axes[0] if axes else 0)
        if not self._conflicts.independent(task, [Chunk("", part) for part in parts]):
            parts = [box]
        best = self._quick(task, group, work)
        known = best is not None or any(c.model.seconds(work) is not None for c in group)
        small = best is not None if known else work.size < UNKNOWN_BYTES
        if not axes or len(parts) < 2 or small or not (task.options is None or task.options.split):
            chunks = deal_by(parts, axes[0] if axes else 0, [(best or group[0]).name], (0, box.volume))
        elif task.options is not None and (task.options.policy or self._policy) == "even":
            chunks = deal_evenly(parts, [c.name for c in group])
        else:
            waits = self.loads.waits(task.after, [c.name for c in group], self.loads.designs.op(task))
            divided = self.last = self.divider.divide(task, box, axes[:1], group, waits)
            cuts = [box.lo[axes[0]] + cut for cut in divided.division.cuts]
            chunks = deal_by(parts, axes[0], [c.name for c in group], cuts)
        if deal is not None and deal.first:
            chunks = tuple([chunk._replace(slot=chunk.slot + deal.first) for chunk in chunks])
        return self._shared(task, in_runs(chunks, looping(group)), group, "fixed blocks")

    def _worth(self, task: Task, candidates: Sequence[Candidate], work: Work, *, named: bool) -> bool:
        if named:
            return len({c.name for c in candidates}) > 1
        narrow = [c for c in candidates if not c.device.wide]
        if any(c.model.seconds(work) is not None for c in narrow):
            return self._quick(task, narrow, work) is None
        at = candidates[0].model.flops_at
        return work.size > UNKNOWN_BYTES or (at is not None and work.features[at] > UNKNOWN_FLOPS)

    def _quick(self, task: Task, candidates: Sequence[Candidate], work: Work) -> Candidate | None:
        """Return who does all of the task so soon, copies included, that dividing it is not worth it; None if nobody."""
        limit = min(WORTH_DIVIDING, LAUNCHES * max(c.device.launch or inf for c in candidates))
        return quick(
            self.loads, task, candidates, work, lambda: inputs_of(task, self._residency), limit, self._residency
        )

    def _shared(self, task: Task, chunks: tuple[Chunk, ...], group: Sequence[Candidate], why: str) -> Planned:
        by_name = {c.name: c for c in group}
        ready = self.loads.ready(task.after)
        together = len({chunk.device for chunk in chunks}) > 1
        shares = []
        for chunk in chunks:
            candidate = by_name[chunk.device]
            work = work_of_part(task, chunk.box)
            seconds = candidate.model.seconds(work, together=together)
            shares.append(candidate.share(work, seconds, together=together))
            self.loads.add(chunk.device, seconds, ready, task.id)
        return self._command(task, chunks, tuple(shares), why)

    def _command(
        self, task: Task, chunks: tuple[Chunk, ...], shares: tuple[Share, ...], why: str, lesson: Lesson = NOTHING
    ) -> Planned:
        task.map_parts()  # from here on chunk by chunk, even where each array arrives whole
        return Planned(Command(task.id, task, chunks, task.after, why), shares, lesson=lesson)
