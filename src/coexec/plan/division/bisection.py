"""Divide the rows of one task over devices by bisection on the finish time: the optimum before rounding.

Before: plan/division/offers.py.  After: plan/division/whole_rows.py.  Knows numbers only: no task, array or kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, permutations, product
from math import inf, prod

from .offers import MANY, Curve, Division, Offer, Times, check, finish_times, link_order, shared, singles

__all__ = ["Division", "Offer", "Times", "divide", "finish_times", "ordered"]

COMBINATIONS = 64  # of devices to leave out that are all tried; above it they are dropped one by one
ROUNDS = 8  # of guessing where pieces begin, if devices use a link in another order than they stand in
SETTLED = 1e-3  # of the time or the rows: rounds that change less are the last
PASSES = 3  # over many devices, in which each may be left out
CLOSE = 1e-11  # of the rows: a finish time that covers them this closely is the one sought


class Reach:
    """How far one offer gets within a given time."""

    __slots__ = ("copies", "moving", "offer", "staying")

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.staying: Curve = offer.compute.plus(offer.out_per_row)  # compute and output of rows that are there
        self.moving: Curve = self.staying.plus(offer.in_per_row)  # and of rows that must be copied
        self.copies = bool(offer.fixed_in or offer.in_per_row)

    def rows(self, low: float, seconds: float, bus: float) -> float:
        """Return the most rows from `low` on that are done within `seconds` if the link is free from `bus` on.

        Exact, because what a device takes rises with its rows: outside and inside of what is there already, each with
        its own slope, and never less than waiting for the device and then computing.
        """
        offer = self.offer
        room = inf if offer.most is None else offer.most
        left = seconds - offer.fixed_out
        if offer.wait:
            room = min(room, self.staying.rows_within(left - offer.wait))
        if self.copies:
            left -= bus + offer.fixed_in
        lo, hi = offer.there
        if hi <= lo or low >= hi or not offer.in_per_row:
            rows = self.moving.rows_within(left)
        else:
            rows = self._past(low, left, bus)
        return min(room, rows)

    def _past(self, low: float, left: float, bus: float) -> float:
        """Return the rows from `low`, before the end of what is there, that take no more than `left`."""
        offer = self.offer
        lo, hi = offer.there
        ahead = max(0.0, lo - low)
        if ahead and (rows := self.moving.rows_within(left)) <= ahead:
            return rows
        # With nothing at all to copy there is no turn on the link to wait for.
        inside = left + bus if not ahead and not offer.fixed_in else left - offer.in_per_row * ahead
        if (rows := self.staying.rows_within(inside)) <= hi - low:
            return max(ahead, rows)
        return max(hi - low, self.moving.rows_within(left + offer.in_per_row * (hi - max(low, lo))))


class DeviceWalk:
    """The devices side by side along the axis, each taking as much as it can."""

    __slots__ = ("_lows", "_order", "_queued", "_reach", "guessed", "offers", "rows")

    def __init__(self, offers: Sequence[Offer], rows: int) -> None:
        self.offers = offers
        self.rows = rows
        self._reach = [Reach(offer) for offer in offers]
        self._queued = shared(offers)
        self._lows = [rows * i / len(offers) for i in range(len(offers))]
        # Where a piece begins matters only if something is there already, and is known if it comes later on its link.
        placed = any(offer.there[1] > offer.there[0] and offer.in_per_row for offer in offers)
        in_line = all(i < j for i, j in pairwise(self._queued) if offers[i].link == offers[j].link)
        self.guessed = placed and not in_line
        self._order = range(len(offers)) if in_line else link_order(offers)

    def shares(self, seconds: float, used: frozenset[int]) -> list[float]:
        """Return the rows that each device of `used` gets done within `seconds`, each as many as it can.

        Devices that queue for a link are charged for their fixed copies even if they then do nothing: without that
        more time could mean fewer rows. Leaving them out is tried by another `used`.
        """
        if self._queued:
            return self._queueing(seconds, used)
        low = 0.0
        shares = []
        for i, reach in enumerate(self._reach):
            rows = reach.rows(low, seconds, 0.0) if i in used else 0.0
            shares.append(rows)
            low += rows
        return shares

    def _queueing(self, seconds: float, used: frozenset[int]) -> list[float]:
        shares = [0.0] * len(self.offers)
        free: dict[str, float] = {}
        low = 0.0
        for i in self._order:
            if i in used:
                offer = self.offers[i]
                bus = free.get(offer.link, 0.0) if offer.link else 0.0
                if self.guessed:
                    low = self._lows[i]
                shares[i] = rows = self._reach[i].rows(low, seconds, bus)
                if offer.link and self._reach[i].copies:
                    free[offer.link] = bus + (offer.input_seconds(low, low + rows) if rows else offer.fixed_in)
                low += rows
        return shares

    def guess(self, cuts: Sequence[float]) -> None:
        """Take pieces to begin about where they do in `cuts`: halfway from the last guess, so that guesses settle."""
        self._lows = [(low + cut) / 2 for low, cut in zip(self._lows, cuts, strict=False)]

    def near(self, cuts: Sequence[float]) -> bool:
        """Say whether pieces begin about where they were guessed to."""
        return all(abs(low - cut) <= SETTLED * self.rows for low, cut in zip(self._lows, cuts, strict=False))

    def least_time(self, used: frozenset[int], high: float) -> float:
        """Return the least time in which `used` get all rows done; `high` is enough."""
        return least(lambda seconds: sum(self.shares(seconds, used)), self.rows, high)

    def enough(self, used: frozenset[int], seconds: float) -> bool:
        """Say whether `used` get all rows done within `seconds`."""
        return sum(self.shares(seconds, used)) >= self.rows * (1 - CLOSE)

    def cuts(self, seconds: float, used: frozenset[int]) -> list[float]:
        """Return the cuts within `seconds`; the last device with a piece ends at the last row."""
        cuts = [0.0, *(min(cut, self.rows) for cut in accumulate(self.shares(seconds, used)))]
        last = cuts[-1]
        return [cut if cut < last else self.rows for cut in cuts] if last else cuts


def least(rows_within: Callable[[float], float], rows: float, high: float) -> float:
    """Return the least seconds with `rows_within(seconds) >= rows`, which holds at `high`; rows rise with seconds.

    Bisection with straight-line guesses: the function consists of straight pieces, so a guess within one is exact.
    """
    low, short, over = 0.0, -rows, rows_within(high) - rows
    halve = over == inf
    while high - low > 1e-11 * high and over > CLOSE * rows:
        width = high - low
        guess = low - short * width / (over - short) if not halve else low + width / 2
        if not low < guess < high:
            guess = low + width / 2
        gap = rows_within(guess) - rows
        if abs(gap) <= CLOSE * rows:
            return guess
        if gap > 0:
            high, over = guess, gap
        else:
            low, short = guess, gap
        halve = over == inf or (not halve and high - low > width / 2)  # the line was a poor guess
    return high


def divide(offers: Sequence[Offer], rows: int) -> Division:
    """Return the cuts that let all devices finish together, as real numbers.

    Each device takes its largest piece within a time T, and T is lowered while the pieces still cover all rows. That
    is optimal without shared links whatever the curves: a device that starts later on the axis never ends earlier.
    On a shared link devices that only hold up the others are left out; the result is then optimal for straight
    lines without memory limits or waits (there each device should take all it can or nothing) and good otherwise.
    """
    check(offers, rows)
    alone = singles(offers, rows)
    if not rows:
        return Division((0,) * (len(offers) + 1), 0.0, tuple(finish_times(offers, [0] * (len(offers) + 1))), {}, alone)
    walk = DeviceWalk(offers, rows)
    used, cuts = best_cuts(walk)
    if walk.guessed:
        used, cuts = settled(walk, used, cuts)
    times = tuple(finish_times(offers, cuts))
    seconds = max(t.finish for t in times)
    left_out = {
        offer.device: why_not(offer, seconds, i in used) for i, offer in enumerate(offers) if cuts[i] >= cuts[i + 1]
    }
    return Division(tuple(cuts), seconds, times, left_out, alone)


def best_cuts(walk: DeviceWalk) -> tuple[frozenset[int], list[float]]:
    """Return who takes part and the cuts."""
    used = frozenset(i for i, offer in enumerate(walk.offers) if offer.room > 0)
    seconds = walk.least_time(used, enough_time(walk.offers, walk.rows))
    if queued := [i for i in shared(walk.offers) if i in used]:
        used, seconds = without_some(walk, used, queued, seconds)
    return used, walk.cuts(seconds, used)


def settled(walk: DeviceWalk, used: frozenset[int], cuts: list[float]) -> tuple[frozenset[int], list[float]]:
    """Return the best of several rounds in which pieces begin about where those of the round before did."""

    def seconds(cuts: Sequence[float]) -> float:
        return max(t.finish for t in finish_times(walk.offers, cuts))

    found = (seconds(cuts), used, cuts)
    for _ in range(3):
        for _ in range(ROUNDS):
            walk.guess(cuts)
            cuts = walk.cuts(walk.least_time(used, enough_time(walk.offers, walk.rows)), used)
            found = min(found, (seconds(cuts), used, cuts), key=lambda some: some[0])
            if walk.near(cuts):
                break
        before = used
        used, cuts = best_cuts(walk)  # who should take part may look different now
        found = min(found, (seconds(cuts), used, cuts), key=lambda some: some[0])
        if used == before:
            break
    return found[1:]


def enough_time(offers: Sequence[Offer], rows: int) -> float:
    """Return seconds within which any of the offers could do all it has room for, each waiting for all others."""
    total = max(offer.wait for offer in offers)
    for offer in offers:
        share = min(rows, offer.room)
        total += offer.fixed_in + offer.in_per_row * share + offer.compute.seconds(share)
        total += offer.fixed_out + offer.out_per_row * share
    return total or 1e-9  # all free: any time is enough


def without_some(
    walk: DeviceWalk, used: frozenset[int], queued: Sequence[int], seconds: float
) -> tuple[frozenset[int], float]:
    """Return who of the devices on shared links should take part, and the time that takes."""
    found, best = used, seconds
    groups = alike(walk.offers, queued)
    if prod(len(group) + 1 for group in groups) <= COMBINATIONS:
        for kept in combinations(groups):
            some = used.difference(queued).union(kept)
            if some and some != used and walk.enough(some, best * (1 - 1e-9)):
                found, best = some, walk.least_time(some, best)
        return found, best
    dropped = True
    passes = PASSES if len(walk.offers) > MANY else len(walk.offers)
    while dropped and passes:
        dropped, passes = False, passes - 1
        for group in groups:
            last = [i for i in group if i in found][-1:]
            fewer = found.difference(last)
            if last and fewer and walk.enough(fewer, best * (1 - 1e-9)):
                found, best, dropped = fewer, walk.least_time(fewer, best), True
    return found, best


def alike(offers: Sequence[Offer], chosen: Sequence[int]) -> list[list[int]]:
    """Return the chosen offers by group; one without a group stands for itself."""
    groups: dict[object, list[int]] = {}
    for i in chosen:
        groups.setdefault(offers[i].group or i, []).append(i)
    return list(groups.values())


def combinations(groups: Sequence[list[int]]) -> Iterator[list[int]]:
    """Yield each way to use the first few of every group: which of the identical ones does not matter."""
    for counts in product(*(range(len(group), -1, -1) for group in groups)):
        yield [i for group, count in zip(groups, counts, strict=True) for i in group[:count]]


def why_not(offer: Offer, seconds: float, used: bool = True) -> str:
    """Return why a device does nothing in a task of so many seconds."""
    if offer.room < 1:
        return "not even one row fits into its memory"
    if not used:
        return f"its copies would hold up the others on link {offer.link}"
    start = max(offer.fixed_in, offer.wait) + offer.compute.seconds(1) + offer.fixed_out
    if start >= seconds:
        return f"one row would take it {start * 1e3:.3g} ms, the others are done after {seconds * 1e3:.3g} ms"
    if offer.least > 1:
        return f"its share would be below the least useful one of {offer.least} rows"
    return "the others are done before it could begin"


def ordered(offers: Sequence[Offer], rows: int) -> list[Offer]:
    """Return the offers with the priorities on shared links that end soonest.

    Up to three groups of devices are tried in every order; more go the fastest first.
    """
    queued = shared(offers)
    groups = alike(offers, queued)
    if len(groups) < 2:
        return list(offers)
    enough = enough_time(offers, rows)
    groups.sort(key=lambda group: -Reach(offers[group[0]]).rows(0.0, enough, 0.0))
    orders = permutations(groups) if len(groups) <= 3 else [tuple(groups)]
    tried = [prioritised(offers, order) for order in orders]
    return min(tried, key=lambda some: divide(some, rows).seconds) if len(tried) > 1 else tried[0]


def prioritised(offers: Sequence[Offer], order: Sequence[Sequence[int]]) -> list[Offer]:
    """Return the offers with the groups' members using their links in this order."""
    turn = {i: place for place, i in enumerate(i for group in order for i in group)}
    return [offer._replace(priority=turn[i]) if i in turn else offer for i, offer in enumerate(offers)]
