"""A division in whole rows that is improved step by step: leftovers first, then granules from the slowest device.

Before: plan/division/offers.py.  After: plan/division/whole_rows.py.  Knows numbers only: no task, array or kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, lcm

from .offers import MANY, Offer, link_order, shared

LOOKED_AT = 3  # of the devices that could take leftovers: those that would be done first
SAME = 1 - 1e-12  # finish times this close count as equal
ROUNDS = 32  # of improvement among many devices
LIKELY = 4  # devices on either side, and of those that are done first, that rows may move to among many


class LocalSearch:
    """Shares of the offers, and when each would be done."""

    def __init__(self, offers: Sequence[Offer], rows: int, shares: list[int]) -> None:
        self.offers = offers
        self.rows = rows
        self.shares = shares
        self.queued = frozenset(shared(offers))
        self._order = list(link_order(offers))
        self._placed = any(o.there[1] > o.there[0] and o.in_per_row for o in offers)
        # Without links and data already there, a share changes nobody else's time.
        self._apart = not self.queued and not self._placed
        self.finish = self._all(shares)
        self._start = self._starts()

    @property
    def seconds(self) -> float:
        """When the last device is done; infinite while rows are left over or a rule is broken."""
        return max(self.finish) if sum(self.shares) == self.rows and self._legal(self.shares) else inf

    def _all(self, shares: Sequence[int]) -> list[float]:
        lows = []
        low = 0
        for share in shares:
            lows.append(low)
            low += share
        finish = [0.0] * len(shares)
        free: dict[str, float] = {}
        for i in self._order:
            if share := shares[i]:
                offer = self.offers[i]
                copied = offer.input_seconds(lows[i], lows[i] + share)
                if offer.link and copied:
                    copied += free.get(offer.link, 0.0)
                    free[offer.link] = copied
                finish[i] = done(offer, share, copied)
        return finish

    def _starts(self) -> list[float]:
        """Return when each device's turn on its link comes, if nothing is there already."""
        start = [0.0] * len(self.offers)
        free: dict[str, float] = {}
        for i in self._order if self.queued else ():
            offer = self.offers[i]
            start[i] = free.get(offer.link, 0.0)
            if self.shares[i]:
                free[offer.link] = start[i] + offer.fixed_in + offer.in_per_row * self.shares[i]
        return start

    def _after(self, changes: dict[int, int]) -> list[float]:
        """Return when each device is done if these shares change."""
        if not self._apart:
            shares = self.shares.copy()
            for i, share in changes.items():
                shares[i] = share
            if len(shares) > MANY and not self.queued and sum(shares) == sum(self.shares):
                return self._between(shares, min(changes), max(changes))
            return self._all(shares)
        finish = self.finish.copy()
        for i, share in changes.items():
            offer = self.offers[i]
            finish[i] = done(offer, share, offer.fixed_in + offer.in_per_row * share) if share else 0.0
        return finish

    def _between(self, shares: Sequence[int], first: int, last: int) -> list[float]:
        """Return when each device is done if only the shares from `first` to `last` differ, and not their sum."""
        finish = self.finish.copy()
        low = sum(shares[:first])
        for i in range(first, last + 1):
            share, offer = shares[i], self.offers[i]
            finish[i] = done(offer, share, offer.input_seconds(low, low + share)) if share else 0.0
            low += share
        return finish

    def _legal(self, shares: Sequence[int]) -> bool:
        """Say whether no more than one share is no multiple, and none too small or too large."""
        odd = 0
        for offer, share in zip(self.offers, shares, strict=True):
            if share:
                if share < offer.least or (offer.most is not None and share > offer.most):
                    return False
                odd += share % offer.granule != 0
        return odd <= 1

    def _set(self, changes: dict[int, int], finish: list[float]) -> None:
        for i, share in changes.items():
            self.shares[i] = share
        self.finish = finish
        self._start = self._starts()

    def spread(self) -> None:
        """Give the rows that nobody has yet to where they raise the finish time least."""
        while left := self.rows - sum(self.shares):
            steps = [(i, step) for i in range(len(self.offers)) if (step := self._step(i, left))]
            if not steps:  # the limits leave no room for rules: any free row will do
                steps = [
                    (i, int(min(left, offer.room - self.shares[i])))
                    for i, offer in enumerate(self.offers)
                    if offer.room > self.shares[i]
                ]
            if len(self.offers) > MANY:
                self._give(steps, left)
                continue
            tried = []
            for i, step in sorted(steps, key=lambda some: self._soonest(None, *some))[:LOOKED_AT]:
                changes = {i: self.shares[i] + step}
                finish = self._after(changes)
                tried.append((max(finish), finish[i], i, changes, finish))
            *_, changes, finish = min(tried, key=lambda t: t[:3])
            self._set(changes, finish)

    def _give(self, steps: Sequence[tuple[int, int]], left: int) -> None:
        """Give rows that are left over to many devices at once, to those first that will be done soonest."""
        changes = {}
        for i, step in sorted(steps, key=lambda some: self._soonest(None, *some)):
            if step <= left:
                changes[i] = self.shares[i] + step
                left -= step
        self._set(changes, self._after(changes))

    def _step(self, i: int, left: int) -> int:
        """Return how many of the rows left device `i` would take next; 0 if it can take none by the rules."""
        offer, share = self.offers[i], self.shares[i]
        granule = offer.granule
        room = min(left, offer.room - share)
        step = max(granule, left // (2 * len(self.offers)) // granule * granule)
        if share + step < offer.least:
            step = -(-(offer.least - share) // granule) * granule
        if share % granule:  # it has the odd rows already: it may have more of them
            return int(min(step, room)) if share + min(step, room) >= offer.least else 0
        if step > room:
            step = int(room) // granule * granule
        if step == 0 and room == left:
            step = left  # the odd rows at the end
        return step if share + step >= offer.least else 0

    def polish(self) -> None:
        """Move granules away from the device that is done last, or from who is ahead on its link, while that helps."""
        many = len(self.offers) > MANY
        for _ in range(ROUNDS if many else 8 * len(self.offers) + 16):
            slowest = self.finish.index(max(self.finish))
            ahead = self._ahead(slowest)
            if not self._relieve(slowest, [slowest]) and not self._relieve(slowest, ahead[-LIKELY:] if many else ahead):
                return

    def _relieve(self, slowest: int, sources: Sequence[int]) -> bool:
        """Make the best move away from `sources` that lets the slowest device finish sooner; say whether there is one.

        One of several that are last may be relieved although the others stay.
        """
        worst = self.finish[slowest] * SAME
        tied = sum(f >= worst for f in self.finish)
        best, changes, finish = (worst, 0), {}, self.finish
        for source in sources:
            for move in self._moves_from(source, worst):
                after = self._after(move)
                latest = max(after)
                key = (latest, 0) if latest < worst else (worst, sum(f >= worst for f in after) - tied)
                if key < best and latest * SAME <= worst:
                    best, changes, finish = key, move, after
        if changes:
            self._set(changes, finish)
        return bool(changes)

    def _ahead(self, device: int) -> list[int]:
        """Return who uses the device's link before it."""
        if device not in self.queued:
            return []
        ahead = self._order[: self._order.index(device)]
        return [i for i in ahead if self.offers[i].link == self.offers[device].link]

    def align(self, limit: float) -> None:
        """Give the one device whose share is no multiple of its granule one that is, if all is done by `limit`."""
        odd = [i for i, offer in enumerate(self.offers) if self.shares[i] % offer.granule]
        if len(odd) != 1:
            return
        moves = []
        rest = self.shares[odd[0]] % self.offers[odd[0]].granule
        for other in self._targets(odd[0]):
            offer = self.offers[other]
            for rows in (-rest, self.offers[odd[0]].granule - rest):
                move = {odd[0]: self.shares[odd[0]] + rows, other: self.shares[other] - rows}
                if other != odd[0] and move[other] >= 0 and move[other] % offer.granule == 0:
                    moves.append(move)
        moves = [move for move in moves if self._legal([move.get(i, share) for i, share in enumerate(self.shares)])]
        tried = [(max(finish), i, finish) for i, finish in enumerate(map(self._after, moves))]
        if tried and min(tried)[0] <= limit:
            _, i, finish = min(tried)
            self._set(moves[i], finish)

    def all_moves(self) -> Iterator[dict[int, int]]:
        """Yield the changes that move rows from one device to another within the rules."""
        for source in range(len(self.offers)):
            yield from self._moves_from(source)

    def change(self, changes: dict[int, int]) -> None:
        """Make these changes."""
        self._set(changes, self._after(changes))

    def _moves_from(self, source: int, end: float = inf) -> Iterator[dict[int, int]]:
        """Yield the moves away from one device whose targets may be done before `end`."""
        for target in self._targets(source):
            if target != source and self.shares[source]:
                for rows in self._amounts(source, target):
                    if self._soonest(source, target, rows) < end and self._allowed(source, target, rows):
                        yield {source: self.shares[source] - rows, target: self.shares[target] + rows}

    def _targets(self, source: int) -> Sequence[int]:
        """Return the devices that rows of `source` may move to: all of few, of many those near it or done early."""
        count = len(self.offers)
        if count <= MANY:
            return range(count)
        near = range(max(0, source - LIKELY), min(count, source + LIKELY + 1))
        early = sorted(range(count), key=self.finish.__getitem__)[:LIKELY]
        return sorted({*near, *early})

    def _soonest(self, source: int | None, target: int, rows: int) -> float:
        """Return a time before which `target` cannot be done with `rows` more, if any from `source`."""
        offer, share = self.offers[target], self.shares[target] + rows
        if self._placed:  # where pieces begin may change, and with it what is copied ahead of this one
            missing = max(0, share - max(0, offer.there[1] - offer.there[0]))
            return done(offer, share, offer.fixed_in + offer.in_per_row * missing)
        copied = offer.fixed_in + offer.in_per_row * share
        if target in self.queued and copied:
            start = self._start[target]
            if source is not None and self.offers[source].link == offer.link:
                start -= self.offers[source].fixed_in + self.offers[source].in_per_row * rows
            copied += max(0.0, start)
        return done(offer, share, copied)

    def _amounts(self, source: int, target: int) -> set[int]:
        """Return the numbers of rows worth moving."""
        have, has = self.shares[source], self.shares[target]
        one, other = self.offers[source].granule, self.offers[target].granule
        amounts = {one, other, lcm(one, other), have % one, -has % other, have}
        least = self.offers[target].least
        if has < least:
            amounts.add(-(-(least - has) // other) * other)
            amounts.add(least - has)
        if self.queued:
            amounts.update(have // part // one * one for part in (2, 4, 8, 16, 32))
        return {rows for rows in amounts if 0 < rows <= have}

    def _allowed(self, source: int, target: int, rows: int) -> bool:
        """Say whether moving `rows` keeps the limits, and breaks no more granules than before or one."""
        one, other = self.offers[source], self.offers[target]
        have, has = self.shares[source] - rows, self.shares[target] + rows
        if 0 < have < one.least or has < other.least or has > other.room:
            return False
        if have % one.granule == 0 and has % other.granule == 0:
            return True
        odd = [i for i, share in enumerate(self.shares) if share % self.offers[i].granule]
        before = len(odd)
        after = before - (source in odd) - (target in odd) + (have % one.granule > 0) + (has % other.granule > 0)
        return after <= max(1, before)


def done(offer: Offer, share: int, copied: float) -> float:
    """Return when a device is done with `share` rows whose inputs arrived at `copied`."""
    start = max(offer.wait, copied)
    return start + offer.compute.seconds(share) + offer.fixed_out + offer.out_per_row * share
