"""Plan steps: watch what a program does again and again, choose a plan for all of it, and keep what was measured to be best.

Before: watch.py, choose.py, account.py, guide.py.  After: telling.py.  Pure: times come with what has finished.

1. A step is recognised: the program has done the same twice, or has said so, or it is a window of its last calls.
2. Sets of devices are looked at, each with one plan, from numbers alone, as long as what they may save is worth the look.
3. The plan with the least transition + expected repetitions x period is adopted. As many repetitions are expected as there
   have been, so that a way that costs much is gone once staying has cost as much.
4. What runs decides: the plan in force is measured, and left if another is known to be better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from ...graph.command import Chunk
from ...graph.task import Task
from ..candidate import Candidates
from ..decisions import LOOK_AGAIN
from ..plan import Plan
from ..repeats import LONGEST, Repeats
from .account import WORTH, Measured, PlanAccount
from .bounds import LOOKED_UP, Target, lower_limit
from .choose import BETTER, DEAR, Considered
from .estimate import TURNS
from .guide import Guide, PlanningSpent, Profiles
from .looking import MOST_FIRST, SHARE, Looking
from .profile import CallProfile, StepProfile
from .samples import Samples, was_seen
from .slices import VISIT, Slice, done
from .tree import followed, step_plan
from .trials import DOUBT, SEEN, Measuring, Trials
from .watch import ProgramWatch, by_device

SURE = 0.9  # of what the present plan takes: where models are not exact, or calls only stand for others, less must be promised
WIDE = 2e-3  # seconds that a look at them as they are planned may take
WINDOW = 6  # calls of a program that does not repeat itself, which stand for what it will do
LASTING = 32  # calls after which a repetition counts, however often one was broken off
AFTERWARDS = 1  # turns after calls were sampled, and they have run
NEWS = "some of its calls were made before a variant came on or off"
EARLY = 16  # calls of a phase of the program during which they are looked at


class StepPlanner(Looking):
    """Plans the steps of one program."""

    def __init__(
        self,
        machine: Target,
        candidates: Candidates,
        planner: Profiles,
        *,
        exact: bool,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Plan for a machine; `exact` tells that models are: the machine is simulated. Without a `clock` looks are counted."""
        super().__init__(machine, candidates, clock, exact=exact)
        self._planner = planner
        self._watch = ProgramWatch(self._profiled)
        self._period = 0  # of the step that is planned; 0: of a window
        self._turns = 0  # of it that are over; or windows
        self._shift = 0  # calls of a turn that came before the step as it is planned: its turns end where it was found
        self._due = 4  # calls, until a window is looked at
        self._since = 0  # calls, with which the window began
        self._phase = 0  # calls, after which the program did something else than for a long time before
        self._run = 0  # calls for which the program has repeated itself
        self._broken = 0  # calls for which it did so before it did something else: less is nothing to count on
        self._step: StepProfile | None = None
        self._left: list[Considered] = []  # plans of the step that were in force
        self.adopted = False
        self._last: Callable[[], Plan] | None = None  # makes the plan of a step that is over
        self._guide = Guide(machine, self._watch.profile)
        self._measuring = Measuring(real=clock is not None, middle=not exact)
        self._trials = Trials()
        self._remembered = Measured()
        self._samples = Samples()
        self._followed: Plan | None = None  # the plan that calls follow
        self._again = SEEN  # turns, after which the step is looked at once more
        self._took: float | None = None  # seconds of a turn, when it was
        self._mark: object = candidates.mark
        self._until = 0  # calls, up to which the program said that it does the same
        self._failed = False  # to plan the step that the program repeats: it is not tried again
        self._counting = False  # the turns of a step that is not planned yet, for something came on just now
        self._news = 0  # calls, after which a device was lost, or a variant came on or off
        self.unplanned = ""  # why what the program repeats is not planned as a step

    def _profiled(self, task: Task) -> CallProfile | None:
        """Return the profile of a call, of which plans depend on nothing else."""
        found = self._planner.profile(task)
        if found is not None:
            found.by_peaks = self._machine.by_peaks
        return found

    @property
    def considered(self) -> list[Considered]:
        """The plans of the step, and what became of each."""
        return [*(self._search.found.values() if self._search is not None else ()), *self._left]

    # What the program does --------------------------------------------------------------------------------------------

    def called(self, task: Task, chunks: Sequence[Chunk], births: int, repeats: Repeats, *, here: bool = False) -> None:
        """Take a call that was planned, before it is lowered; it runs `here` if its caller does it at once.

        Never fails a call that can be computed: a step that cannot be planned is left as it is, and `unplanned` tells why.
        """
        self._measuring.called(task)
        if not self._watch.called(task, chunks, births):
            self._forget()
            return
        if here:
            return
        try:
            self._went_on(task, len(chunks), repeats)
        except Exception as error:  # noqa: BLE001 - features and mappers of the user's are asked about parts that may never run
            self._give_up(error)
            self._period, self._failed = repeats.period, True
            self._due = self._watch.calls + LONGEST

    def _went_on(self, task: Task, parts: int, repeats: Repeats) -> None:
        """Look whether a call of so many parts ends a turn of what the program repeats, or a window of what it does."""
        if self._candidates.mark is not self._mark:  # a device is lost, or a variant is on or off
            self._mark, self._news = self._candidates.mark, self._watch.calls - 1
            self._watch.forget()
            self._guide.forget()
            self._groups = self._trials.back = None
            self._off.clear()
            self._remembered.forget()
            self._samples.forget()
            self._forget()
        self._watch.profile(task)
        period, run = repeats.period, repeats.run
        if self._watch.calls <= self._until and not self._affords(period or WINDOW):
            return  # it was planned for as often as it comes
        if not period or run < max(period, self._broken):
            if self._period:
                self._turns = self._watch.calls // WINDOW
                self._broken = max(self._broken, min(self._run, LASTING))
                self._forget()
                if self._run >= LASTING:
                    self._phase, self._due = self._watch.calls - 1, self._watch.calls + 3
            self._window(task, parts)
            return
        self._run = run
        if period != self._period:
            self._forget()
            self._period, self._turns = period, 0
        turns = (run - self._shift) // period
        if turns == self._turns or self._failed:
            looking = self._looking or self._way is not None
            if looking and self._clock is not None and not task.starved and not self._failed:
                self._meanwhile()
            return
        self._turns = turns  # whichever call is its last: that one may have run in its caller
        self._measuring.ends_turn(task, parts)
        self._turn(repeats, self._turns + 1)

    def read(self, array: int, nbytes: int) -> None:
        """Take a read that the program waits for."""
        self._watch.read(array, nbytes)

    def finished(self, task: Task, start: float, stop: float) -> None:
        """Take the end of a part of a task, none of which follows in its place."""
        self._computed(start, stop)
        self._measuring.finished(task, stop)

    def _elapsed(self) -> float:
        """Return for how many seconds the program has computed; what it does in between is no time that a plan could spend."""
        return max(super()._elapsed() - self._measuring.idled, 0.0)  # idle time may go on beyond the last call

    def spent(self) -> PlanningSpent:
        """Return what planning has taken, and how many plans it looked at."""
        step = self._step
        limit = lower_limit(step, self._machine) / len(step.calls) if step is not None else None
        looked_at = sum(entry.account is not None for entry in self.considered)
        return PlanningSpent(self.planning, looked_at, limit, self._watch.calls)

    def figures(self) -> dict[str, Any]:
        """Return what planning has taken, for a trace, in seconds: all of it, what came after first looks, the longest at once, and trials.

        Planning holds the lock of the runtime, so that whoever waits for it meanwhile waits no longer than is told here.
        """
        return {
            "seconds": self.planning,
            "later_s": self._later,
            "longest_s": self.longest,
            "trials_s": self._trials.lost,
            "computed_s": self._elapsed(),
            "candidates": sum(entry.account is not None for entry in self.considered),
        }

    # Turns ------------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Begin anew: the program does something else. Until that is planned, the plan in force is followed as far as it goes."""
        if self._trials.back is not None and self._step is not None:
            back, self._trials.back = self._trials.back, None
            self._adopt(back, self._step)
        if self._samples.since is not None and self._step is not None and self.present is not None:
            self._samples.since = None
            self._go_back(self.present, self._step)
        if self._step is not None and self._step.exact and self._search is not None and self.present is not None:
            self._last = partial(step_plan, self._step, self.present, self.considered, self._machine)
        self._period = self._shift = 0
        self._step = self._search = self._looks = self._way = None
        self._looking = self._counting = False
        self._failed, self.unplanned, self._left = False, "", []
        self.present = None
        self._measuring.forget()
        self.adopted = False

    def _give_up(self, error: Exception) -> None:
        """Leave a step as it is, because features or mappers of the user's failed for parts that may never run."""
        self._forget()
        self.unplanned = f"{type(error).__name__}: {error}"

    def _turn(self, repeats: Repeats, turns: int) -> None:
        """A turn is over: look at plans, and change if that is worth it."""
        moment = self._moment()
        if self._step is None:
            if self._watch.calls - self._news < repeats.period:
                # While bodies are compiled, one comes after the other, and a look now is lost with the next.
                self._measuring.begin(settled=True)
                self._counting, self.unplanned = True, NEWS
                return
            if not self._may_begin() or (self._broken and self._watch.is_settled(repeats.period, self._guide.devices)):
                return  # steps come and go: each of them would take a first look
            step = self._watch.repeated(repeats)
            if step is None:
                self.unplanned = self._watch.why
                return
            self._begin(step)
            self._shift, self._turns = repeats.run % repeats.period, repeats.run // repeats.period
        assert self._step is not None
        told = (self._until - self._watch.calls) / len(self._step.calls)
        self._repetitions = told if told >= 1.0 else float(turns)
        if self._broken:  # what comes and goes has come before
            self._repetitions = max(self._repetitions, float(self._watch.times(self._step)))
        self._go_on(moment)

    def _window(self, task: Task, parts: int) -> None:
        """Look at the last calls of a program that does not repeat itself: at first, and when they are of other kinds by now."""
        calls, moment = self._watch.calls, None
        if calls // WINDOW != self._turns:
            self._turns = calls // WINDOW
            self._measuring.ends_turn(task, parts)
        if calls >= self._due:
            phase = calls - self._phase
            self._due = calls + max(2, phase)
            moment = self._moment()
            count = min(phase, self._wide())
            step = self._step
            if step is None or not self._watch.alike(step) or count >= 2 * len(step.calls):
                early = phase <= EARLY and not self._guide.devices and self._may_begin()
                if early or self._later + count * TURNS * VISIT <= SHARE * self._elapsed():
                    step = self._watch.window(count)
                    if step is None:
                        return
                    self._begin(step)
                    self._since = calls - count
        if self._step is not None and not (calls - self._since) % len(self._step.calls):
            self._repetitions = max(1.0, (calls - self._phase) / len(self._step.calls))  # whatever kinds they were of
            self._go_on(moment or self._moment())

    def _wide(self) -> int:
        """Return how many calls a window has: fewer, the more memories they use, for a look at them is to take a moment."""
        crews = self._watch.crews(WINDOW, self._machine.memories)
        return max(2, min(WINDOW, round(WIDE / (TURNS * VISIT * crews)))) if crews else 2

    def _affords(self, calls: int) -> bool:
        """Tell whether a later look at so many calls fits into the time that such looks may take."""
        crews = self._watch.crews(calls, self._machine.memories)
        return self._later + calls * crews * TURNS * VISIT <= SHARE * self._elapsed()

    def _begin(self, step: StepProfile) -> None:
        """Begin to plan a step, which is planned call by call until now."""
        measured = self._measuring if self._step is None or step.exact else None
        self.unplanned = ""
        self._step, self._again, self._took = step, self._turns + SEEN, None
        self._remembered.begin(self._watch.does(step))
        self._search, self._left, self._way, self._new = None, [], None, True
        self.present = present = self._as_it_is(step)
        self._looks = self._looks_at(step, present)
        counting, self._counting = self._counting and self._clock is not None, False
        if measured is not None and step.exact and not counting:
            measured.begin(self._at_once(present.devices, len(step.calls)), settled=not self._exact)

    def _unknown(self) -> None:
        """Leave a step alone: nothing is known of who runs it now."""
        self._forget()
        if self._clock is not None:
            self._news = self._watch.calls
        self.unplanned = "nothing is known of the speed of a device that runs a call"  # it is measured meanwhile

    def _go_on(self, moment: Slice) -> None:
        """Look at plans for a moment, take what was measured, and change if that is worth it."""
        try:
            self._look(moment)
            if self._step is not None:
                self._decide(moment, self._step)
        finally:
            self._over(moment)

    def _decide(self, moment: Slice, step: StepProfile) -> None:
        """Take what was measured, and change if that is worth it."""
        present = self.present
        assert present is not None
        present = self._as_it_went(present, step)
        self._measured(present, step)
        if self._search is None or self._is_sampling(present, step):
            return  # nothing is known of other plans yet
        if self._trials.back is None:
            wait = step.exact and self._clock is not None and not self._is_better_anyway(present)
            if wait and self._sample(present, step):
                return  # what devices take alone is measured before one of them is chosen for what it promises
            self._choose(moment)
        if step.exact and not self._exact:
            self._try(moment, step)
        if step.exact and not self._looking and (self._exact or present.measured is not None):
            free = not self.adopted and not self._guide.devices and not self._broken
            if free and self._exact and self._repetitions >= LOOK_AGAIN[0]:
                self._adopt(present, step)  # else each call is planned anew now and then, by itself, and otherwise
            self._watch.settle(len(step.calls), self._guide.devices)

    def _measured(self, present: PlanAccount, step: StepProfile) -> None:
        """Take what turns under the present plan took."""
        seconds = self._measuring.seconds
        if seconds is None or (not step.exact and self._exact):
            return
        if not step.exact:
            seconds *= len(step.calls) / WINDOW
        estimated = present.estimated
        present.measured = max(
            seconds, estimated.own if estimated is not None else 0.0
        )  # ends come closer while nothing is submitted
        if estimated is not None and estimated.period > 0.0:
            off = present.measured / estimated.period
            self._off[present.kind] = (
                off if self._clock is None else min(max(off, 1.0 / DOUBT), DOUBT)
            )  # first turns pay for more
        if step.exact:
            self._remembered.note(present)

    def _as_it_is(self, step: StepProfile) -> PlanAccount:
        """Return the account of how the last turn was planned, call by call; nobody has estimated it."""
        plan = [by_device(seen.chunks) for seen in self._watch.last(len(step.calls))]
        devices = tuple(dict.fromkeys(part.device for parts in plan for part in parts))
        account = PlanAccount(devices, plan, None)
        account.off = self._off.get(account.kind, 1.0)
        return account

    def _as_it_went(self, present: PlanAccount, step: StepProfile) -> PlanAccount:
        """Return the account of what is in force: calls that are planned one by one go elsewhere as more is known of them."""
        search = self._search
        if self.adopted or self._clock is None or not step.exact or search is None or self._samples.since is search:
            return present
        if not self._watch.ended(step):
            return present
        now = self._as_it_is(step)
        present.plan = now.plan if now.kind == present.kind else present.plan
        if now.kind == present.kind:
            return present
        known = search.found.get(now.devices)
        if len(now.devices) == 1 and known is not None and known.account is not None:
            now = known.account
        now.measured = None
        present.left, present.left_at = "its calls were planned otherwise", self._turns
        self._left.append(Considered(present.devices, 0.0, present, present.left))
        self.present = now
        self._measuring.begin(self._at_once(now.devices, len(step.calls)), settled=True)
        return now

    def _choose(self, moment: Slice) -> None:
        """Adopt the plan with the least cost, if it is worth a change."""
        present, step, repetitions = self.present, self._step, self._repetitions
        assert present is not None and step is not None
        others = self._others(present)
        if not others:
            return
        tempting = min(others, key=lambda account: account.period)
        gain = repetitions * (present.period - tempting.period)
        looked_at = (
            self._clock is None or len(tempting.devices) > 1
        )  # else bounds tell the way, as of every device alone
        if looked_at and gain > 0.0 and tempting.since is not present and self._is_worth_it(tempting, gain):
            self._way = self._estimating(tempting, step)
            self._look(moment)
            if self._way is not None:
                return  # it is chosen when the way is known
        staying = present.costs(repetitions, present=True)
        exact = self._exact and step.exact and not self._broken
        unsure = (
            0.0  # where one estimate is compared with another, what either says of coexec's own cost may be a tenth off
        )
        if exact and self.adopted and present.measured is None and present.estimated is not None:
            unsure = (1.0 - SURE) * repetitions * present.estimated.own
        worth = [
            account
            for account in others
            if account.costs(repetitions, present=False) + repetitions * self._late(account, present) + unsure
            < (WORTH if exact or account.measured is not None else SURE) * staying
        ]
        if not worth:
            return
        if self._watch.calls >= self._until:  # what has lasted tends to last: a way is gone once, not in stages
            repetitions *= 2.0
        if not self._exact:
            if present.measured is None:
                return  # nobody knows yet what would be given up
            alone = min([account.period for account in others if len(account.devices) == 1], default=inf)
            worth = [account for account in worth if self._may_rely(account, present.measured, alone)]
        if not worth:
            return
        costs = {a: a.costs(repetitions, present=False) + repetitions * self._late(a, present) for a in worth}
        best = min(worth, key=lambda account: costs[account])
        if self._exact and self._watch.calls >= self._until:
            # Of plans that come to about the same, the one that is better in the long run.
            near = [account for account in worth if SURE * costs[account] <= costs[best]]
            best = min(near, key=lambda account: account.period + self._late(account, present))
        if not self._exact and best.measured is None and step.exact:
            self._trials.back, self._trials.weighed = present, True  # it stays if it is as good as it promises
        self._adopt(best, step)

    def _late(self, account: PlanAccount, present: PlanAccount) -> float:
        """Return the seconds of a turn by which a plan will take longer than estimated, as the present one or others were seen to."""
        if not present.one_by_one or not self._exact:
            return account.late(present)
        known = [entry.account for entry in self.considered if entry.account is not None]
        seen = [other for other in known if other.measured is not None and not other.one_by_one]
        return min([account.late(other) for other in seen], default=0.0)

    def _is_better_anyway(self, present: PlanAccount) -> bool:
        """Tell whether some device alone would be the better plan even if it took twice what it promises: then it need not be sampled first."""
        others = [account for account in self._others(present) if len(account.devices) == 1]
        return present.measured is not None and any(DOUBT * account.period < present.measured for account in others)

    def _may_rely(self, account: PlanAccount, period: float, alone: float = inf) -> bool:
        """Tell whether a plan may be adopted in place of one that takes a `period`, because of what it promises.

        `alone` is what the best device alone promises, of those that are not in force: a mix must promise clearly less.

        What devices take alone is known from their kernels. What it takes to exchange results with memories of others is seen only when
        it is done: such a plan is adopted unmeasured once what it promises outweighs what trying it may lose.
        """
        memories = self._machine.memories
        if account.measured is not None or len({memories.get(device) for device in account.devices}) < 2:
            return True
        if account.period >= SURE * alone:
            return False
        return self._repetitions * (period - account.period) >= self._trials.loses(account, period)

    def _at_once(self, devices: Sequence[str], calls: int) -> int:
        """Return how many turns of so many calls may end at once: as one of these devices runs kernels at once."""
        found = max([d.concurrent for d in self._machine.platform.devices if d.name in devices], default=1)
        return found if self._exact else -(-found // calls)

    def _try(self, moment: Slice, step: StepProfile) -> None:
        """Try a plan of which nobody knows how long it takes, or see whether the one that is being tried stays."""
        trials, present = self._trials, self.present
        assert present is not None
        if (back := trials.back) is not None:
            if trials.over(present, self._measuring.first) is False:
                self._adopt(back, step)
            return
        if self._is_due(present) and self._affords(len(step.calls)):
            self._again, self._took = 2 * self._turns, present.measured
            self._looks, self._looking = self._looks_again(step, self._remembered.drop), True
        other = trials.due(present, self._others(present), self._turns, self._elapsed())
        if other is None or self._looking or not self._is_near(moment, other, present):
            return
        if other.plan == present.plan:
            other.measured, other.left_at, other.times = present.measured, self._turns, other.times + 1
            return
        trials.back, other.measured = present, None
        self._adopt(other, step)

    def _is_due(self, present: PlanAccount) -> bool:
        """Tell whether the step is to be looked at once more: after a while, and when it takes longer or less long than it did."""
        if present.measured is None:
            return False
        if self._took is None:
            self._took = present.measured
        return self._turns >= self._again or not BETTER <= present.measured / self._took <= 1.0 / BETTER

    def _is_near(self, moment: Slice, other: PlanAccount, present: PlanAccount) -> bool:
        """Tell whether a plan can still be tried, with the way to it as it is now: data has moved, and links may have degraded."""
        search = self._search
        if other.since is present or other.estimated is None or search is None or present.measured is None:
            return True
        moment.visits += len(other.plan) / LOOKED_UP
        way = done(search.way(other.devices))
        if way is not None:
            other.estimated, other.since = other.estimated._replace(transition=way), present
        return self._trials.loses(other, present.measured) <= self._trials.left(self._elapsed())

    def _others(self, present: PlanAccount) -> list[PlanAccount]:
        """Return the plans that are known beside the present one, but for those that were left just now."""
        found = [c.account for c in self.considered if c.account is not None and c.account is not present]
        found = [account for account in found if len(account.devices) > 1 or account.devices != present.devices]
        if self._exact:
            return found
        for account in found:
            self._remembered.recall(account, self._turns)
        return [account for account in found if not account.rests(self._turns)]

    def _is_worth_it(self, account: PlanAccount, gain: float) -> bool:
        """Tell whether to look at the way from the present plan to one that would `gain` so many seconds."""
        cost = TURNS * len(account.plan) * VISIT
        early = self.planning <= MOST_FIRST and cost * DEAR <= gain
        return early or self._later + cost <= SHARE * self._elapsed()

    def _adopt(self, account: PlanAccount, step: StepProfile) -> None:
        before = self.present
        if before is not None and before is not account:
            before.left_at, before.times = self._turns, before.times + 1
            before.left = (
                f"another plan promised {account.period * 1e3:.3g} ms, and it took {before.period * 1e3:.3g} ms"
            )
            if step.exact and all(c.account is not before for c in self.considered):
                self._left.append(Considered(before.devices, 0.0, before, before.left))
        self.present, self.adopted, self._took = account, True, None
        account.left = ""
        self._guide.follow(account)
        self._follow(account, step)

    def _follow(self, account: PlanAccount, step: StepProfile) -> None:
        """Let the calls that follow be planned as an account says."""
        self._followed = followed(step, account)
        new = self._clock is not None and len(account.devices) == 1 and not was_seen(step, account.devices[0])
        self._measuring.begin(self._at_once(account.devices, len(step.calls)), new=new)
        self._planner.adopt(self._followed, self._guide.of)
        self._mark = self._candidates.mark

    def _go_back(self, present: PlanAccount, step: StepProfile) -> None:
        """Let calls be planned as they were before some were sampled."""
        self._measuring.begin(self._at_once(present.devices, len(step.calls)))
        self._planner.adopt(self._followed, self._guide.of)
        self._mark = self._candidates.mark

    def _sample(self, present: PlanAccount, step: StepProfile) -> bool:
        """Let single calls of the next turn run on devices alone, if nobody knows what they take there and it can be afforded.

        A look that is going on is left: all plans are looked at again with what the samples took.
        """
        search = self._search
        if search is None:
            return False
        alone = [found.account for found in search.found.values() if found.account and len(found.devices) == 1]
        sampling = self._samples.due(step, present, alone)
        if sampling is None or sampling.seconds > self._trials.left(self._elapsed()):
            return False
        self._samples.begin(sampling, search, self._turns)
        self._looks, self._looking, self._way = None, False, None
        self._trials.lost += sampling.seconds
        before = self._followed
        self._follow(PlanAccount(present.devices, sampling.plan, None, present.shares), step)
        self._followed = before
        return True

    def _is_sampling(self, present: PlanAccount, step: StepProfile) -> bool:
        """Tell whether calls are being sampled, or plans not yet looked at with what they took."""
        samples = self._samples
        if samples.since is not self._search or samples.since is None:
            return False
        if self._turns == samples.turn + 1:  # they have been called
            self._go_back(present, step)
        elif self._turns == samples.turn + 1 + AFTERWARDS:
            self._looks, self._looking = self._looks_again(step, self._remembered.drop), True
        return samples.turn < self._turns <= samples.turn + 1 + AFTERWARDS

    def plan(self) -> Plan | None:
        """Return the plan in force as data, or that of the step before; None if there is none for a step."""
        if self._step is None or self.present is None:
            return self._last() if self._last is not None else None
        return step_plan(self._step, self.present, self.considered, self._machine)
