"""The division as a mixed-integer program for HiGHS: the least time under an energy cap, and the tests' oracle.

Before: plan/division/offers.py.  After: plan/division/energy.py.  Knows numbers only; too slow for every call (7 ms and up).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf

from ...errors import PlanError
from .bisection import divide, enough_time, why_not
from .offers import Division, Offer, Times, check, finish_times, link_order, singles

Terms = dict[int, float]  # variable -> coefficient


class LinearProgram:
    """Variables with bounds, and rows of constraints: what HiGHS takes."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def variable(self, lower: float = 0.0, upper: float = inf, *, whole: bool = False) -> int:
        """Add a variable and return its number."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.whole.append(int(whole))
        return len(self.lower) - 1

    def at_least(self, terms: Terms, bound: float = 0.0) -> None:
        """Require the sum of `terms` to be at least `bound`."""
        self.rows.append((terms, bound, inf))

    def equal(self, terms: Terms, value: float = 0.0) -> None:
        """Require the sum of `terms` to be `value`."""
        self.rows.append((terms, value, value))

    def minimise(self, goal: int) -> list[float] | None:
        """Return the variables' values with the least value of `goal`, or None if there are none."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp

        matrix = np.zeros((len(self.rows), len(self.lower)))
        for r, (terms, _, _) in enumerate(self.rows):
            for column, value in terms.items():
                matrix[r, column] += value
        cost = np.zeros(len(self.lower))
        cost[goal] = 1.0
        limits = LinearConstraint(matrix, [low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        found = milp(
            cost,
            integrality=self.whole,
            bounds=Bounds(self.lower, self.upper),
            constraints=limits,
            options={"mip_rel_gap": 1e-9, "presolve": False},  # which loses optima now and then
        )
        return None if found.x is None else [float(value) for value in found.x]


def scaled(terms: Terms, factor: float) -> Terms:
    """Return every coefficient times `factor`."""
    return {variable: value * factor for variable, value in terms.items()}


def total(*parts: Terms) -> Terms:
    """Return the sum of linear expressions."""
    found: Terms = {}
    for part in parts:
        for variable, value in part.items():
            found[variable] = found.get(variable, 0.0) + value
    return found


def divide_under_cap(offers: Sequence[Offer], rows: int, cap: float = inf, *, everyone: bool = False) -> Division:
    """Return the real-valued division with the least time that needs at most `cap` joules.

    The variables are fractions of the rows and of a time that is surely enough: with raw counts HiGHS takes their
    coefficients for zero and reports a wrong optimum. Convex curves are bounded by their segments; of any other curve
    one segment is chosen by a binary. `everyone` must take part: then it is a linear program if the curves are convex.
    """
    check(offers, rows)
    if any(offer.watts < offer.idle_watts for offer in offers):
        raise PlanError("a device that works needs at least the power of an idle one; check watts and idle_watts")
    if not rows:
        return divide(offers, rows)
    unit = enough_time(offers, rows)
    program = LinearProgram()
    end = program.variable()
    parts = [PartVariables(program, offer, rows, unit, everyone=everyone) for offer in offers]
    program.equal({part.share: 1.0 for part in parts}, 1.0)
    already_there(program, parts, rows)
    for part, queue in zip(parts, queues(offers, parts), strict=True):
        rest = scaled(total(part.computing, part.output), -1.0)
        program.at_least(total({end: 1.0}, *(scaled(ahead.input, -1.0) for ahead in queue), rest))
        program.at_least(total({end: 1.0, part.used: -part.offer.wait / unit}, rest))
    if cap < inf:
        program.at_least(scaled(power(parts, end), -1.0), -cap / unit)
    values = program.minimise(end)
    if values is None:
        raise PlanError(f"no division of {rows} rows over {len(offers)} devices needs at most {cap:g} J; raise the cap")
    return as_division(offers, rows, [values[part.share] for part in parts])


class PartVariables:
    """One device's variables and its times as linear expressions of them, in units of time."""

    def __init__(self, program: LinearProgram, offer: Offer, rows: int, unit: float, *, everyone: bool) -> None:
        self.offer = offer
        self.share = program.variable(0.0, min(1.0, offer.room / rows))
        self.used = program.variable(float(everyone), 1.0, whole=True)
        program.at_least({self.used: 1.0, self.share: -1.0})
        if offer.least > 1:
            program.at_least({self.share: 1.0, self.used: -offer.least / rows})
        per_share = rows / unit
        self.input = {self.used: offer.fixed_in / unit, self.share: offer.in_per_row * per_share}
        self.output = {self.used: offer.fixed_out / unit, self.share: offer.out_per_row * per_share}
        self.computing = self._curve(program, rows, unit)

    def _curve(self, program: LinearProgram, rows: int, unit: float) -> Terms:
        curve = self.offer.compute
        seconds = program.variable()
        segments = [
            (low, max(high, rows) if i == len(curve.xs) - 2 else high, slope, curve.ys[i] - slope * low)
            for i, ((low, high), slope) in enumerate(zip(pairwise(curve.xs), curve.slopes(), strict=True))
        ]
        if curve.convex:
            for _, _, slope, start in segments:
                line = {self.share: -slope * rows / unit, self.used: -start / unit}
                program.at_least(total({seconds: 1.0}, line))
            return {seconds: 1.0}
        pieces: list[Terms] = []
        chosen: Terms = {}
        shares: Terms = {}
        for low, high, slope, start in segments:
            share, here = program.variable(), program.variable(0.0, 1.0, whole=True)
            program.at_least({share: 1.0, here: -low / rows})
            program.at_least({share: -1.0, here: high / rows})
            pieces.append({share: -slope * rows / unit, here: -start / unit})
            chosen[here] = shares[share] = 1.0
        program.equal(total(chosen, {self.used: -1.0}))
        program.equal(total(shares, {self.share: -1.0}))
        program.equal(total({seconds: 1.0}, *pieces))
        return {seconds: 1.0}


def already_there(program: LinearProgram, parts: Sequence[PartVariables], rows: int) -> None:
    """Take the rows whose inputs a device has already off its copies: how far its piece and they overlap."""
    before: Terms = {}
    for part in parts:
        lo, hi = (min(cut, rows) / rows for cut in part.offer.there)
        after = total(before, {part.share: 1.0})
        if hi > lo and part.offer.in_per_row:
            overlap, meets = program.variable(0.0, 1.0), program.variable(0.0, 1.0, whole=True)
            program.at_least({overlap: -1.0, meets: hi - lo})
            program.at_least({overlap: -1.0, part.share: 1.0})
            program.at_least(total(after, {overlap: -1.0, meets: -1.0}), lo - 1.0)
            program.at_least(total(scaled(before, -1.0), {overlap: -1.0, meets: -1.0}), -hi - 1.0)
            part.input[overlap] = -part.input[part.share]
        before = after


def queues(offers: Sequence[Offer], parts: Sequence[PartVariables]) -> list[list[PartVariables]]:
    """Return for each device whose inputs must have been copied before it can compute: its own and those ahead."""
    waiting: list[list[PartVariables]] = [[part] for part in parts]
    ahead: dict[str, list[PartVariables]] = {}
    for i in link_order(offers):
        if offers[i].link and (offers[i].fixed_in or offers[i].in_per_row):
            ahead.setdefault(offers[i].link, []).append(parts[i])
            waiting[i] = list(ahead[offers[i].link])
    return waiting


def power(parts: Sequence[PartVariables], end: int) -> Terms:
    """Return the energy over the unit of time."""
    busy = [
        scaled(total(part.input, part.computing, part.output), part.offer.watts - part.offer.idle_watts)
        for part in parts
    ]
    return total({end: sum(part.offer.idle_watts for part in parts)}, *busy)


def as_division(offers: Sequence[Offer], rows: int, fractions: Sequence[float]) -> Division:
    """Return the division by these fractions, cleared of what the solver's tolerance left."""
    shares = [0.0 if fraction < 1e-9 else fraction for fraction in fractions]
    scale = rows / sum(shares)
    cuts = [0.0, *(cut * scale for cut in accumulate(shares))]
    times: tuple[Times, ...] = tuple(finish_times(offers, cuts))
    seconds = max(t.finish for t in times)
    left_out = {offer.device: why_not(offer, seconds) for offer, share in zip(offers, shares, strict=True) if not share}
    return Division(tuple(cuts), seconds, times, left_out, singles(offers, rows))
