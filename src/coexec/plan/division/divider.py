"""Divide one task over unlike devices so that all finish together: offers, the optimum, the cuts that are kept.

Before: plan/division/make_offers.py, plan/division/bisection.py, plan/division/whole_rows.py.  After: plan/planner.py.  Knows no instruction and no thread.

1. The division of an earlier call like this one is taken, if nothing was learnt since that would change it.
2. Otherwise, for each axis along which the call may be cut, every device makes an offer: how long so many rows take it, copies
   and waiting included.
3. Bisection finds the time at which all devices can finish together, and so the real-valued cuts.
4. Cuts are rounded to whole rows that the devices accept. If one device alone is as quick, it gets the whole call.
5. The cuts of before stay unless the new ones promise 3 % (KEEP). The same holds for the axis.
6. A share whose copies take long, or whose arrays are larger than the cache, is cut again into pieces of its device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import lcm

from ...errors import ConfigError
from ...geometry import Box
from ...graph.command import Chunk
from ...graph.task import Task
from ...machine.platform import HOST, Platform
from ..candidate import Candidate, Residency, Share
from .bisection import divide, ordered
from .divided import Cuts, Divided, Known, alike, fitted, holds
from .energy import least_energy, under_cap
from .make_offers import Offering, Site
from .offers import Division, Offer, joules
from .pieces import pieces, seconds_in_pieces
from .whole_rows import adapt, good_enough

KEEP = 0.03  # cuts are kept while new ones promise less than this
UNSETTLED = 2  # measurements of its parts that a division gets before it is judged: first runs are cold
MEMO = 256  # divisions remembered
EVERY_AXIS = 8  # looks at a known division, one of which tries all axes
WORTH_OVERLAPPING = 0.05  # of a share's time that overlapping its copies must save
BUSY = 0.1  # waits for busy devices count from this part of the task's own time
BANDS_FROM = 4  # devices; below, cutting two axes moves no less than cutting one
SKEW_LOOKS = 3  # times that parts of unlike rows are predicted where they came to lie
LEAST_PART = 16  # of the rows that are looked at where a part begins at the very end


class Divider:
    """Divides tasks, remembers divisions, and keeps cuts until moving them pays."""

    def __init__(
        self,
        platform: Platform,
        residency: Residency,
        cache: int = 1 << 62,
        *,
        objective: str = "time",
        cap: float | None = None,
    ) -> None:
        self._platform = platform
        self._residency = residency
        powered = any(device.watts for device in platform.devices)
        if (objective == "energy" or cap) and not powered:
            raise ConfigError("planning for energy needs what devices draw: give watts=, e.g. watts='cpu:0=15/3'")
        self._least = objective == "energy" and powered  # joules, instead of seconds
        self._cap = cap if powered else None  # joules that one task may need
        self.for_energy = self._least or self._cap is not None  # then a division that leaves all to one device stays
        self._cache = cache  # bytes of arrays that one piece of a blocked part may touch
        self.offering = Offering(platform, residency)
        self._memo: dict[tuple[object, ...], Known] = {}
        self._last: dict[tuple[object, ...], Cuts] = {}  # of calls with arrays that have no cuts yet
        self._looking = False  # the divisions of this moment will not be made

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Let divisions be looked at that nobody will make: no array is cut by them."""
        self._looking = True
        try:
            yield
        finally:
            self._looking = False

    def divide(
        self, task: Task, box: Box, axes: Sequence[int], group: Sequence[Candidate], waits: Sequence[float]
    ) -> Divided:
        """Return the best division along one of `axes`; all of it may end on one device."""
        if (recalled := self.recall(task, box, group, waits)) is not None:
            return recalled
        versions = tuple([candidate.model.version for candidate in group])
        key = self._memo_key(task, box, group)
        known = self._memo.get(key) if key is not None else None
        looks = 0 if known is None else known.looks + 1
        if known is not None and looks % EVERY_AXIS:
            axes = [known.divided.site.axis]
        best: Divided | None = None
        for axis in self._preferred(task, axes):
            found = self._along(task, box, axis, group, waits)
            if best is None or self._cost(found) < self._cost(best) * (1.0 - KEEP):
                best = found
            if found.unsettled:
                break  # it is not judged yet, and so not compared
        assert best is not None
        crossed = self._crossed(task, box, axes, group, waits)
        if crossed is not None and crossed.seconds < best.seconds * (1.0 - KEEP):
            best = crossed
        else:
            best = best._replace(made=self._made_cuts(best, group))
            self._remember(task, best.made)
        if key is not None and max(waits) <= BUSY * best.seconds:  # others hold for this moment only
            if len(self._memo) > MEMO:
                self._memo.clear()
            self._memo[key] = Known(versions, best, looks)
            if (grown := self._alike_key(task, box, group)) is not None:
                self._memo[grown] = self._memo[key]
        return best

    def recall(self, task: Task, box: Box, group: Sequence[Candidate], waits: Sequence[float]) -> Divided | None:
        """Return the division of an earlier call like this one, if it need not be looked at anew."""
        key = self._memo_key(task, box, group)
        known = self._memo.get(key) if key is not None else None
        grown = key is not None and known is None
        if grown:
            key = self._alike_key(task, box, group)
            known = self._memo.get(key) if key is not None else None
        if key is None or known is None or max(waits) > BUSY * known.divided.seconds:
            return None
        if not holds(known, tuple([candidate.model.version for candidate in group])):
            return None
        self._memo[key] = known._replace(uses=known.uses + 1)
        divided = known.divided
        if grown:
            shares = fitted(task, divided.chunks, divided.shares)
            divided = divided._replace(shares=shares, site=divided.site._replace(task=task))
        self._cut(task, divided.made)
        return divided

    def _cost(self, divided: Divided) -> float:
        return joules(divided.offers, divided.division.times) if self._least else divided.seconds

    def _how(self, division: Division, *, measured: bool) -> str:
        if self.for_energy:
            return "the least energy" if self._cap is None else f"the fastest within {self._cap:g} J"
        return "kept cuts" if division.sticky else "all finish together" if measured else "a first guess"

    def _memo_key(self, task: Task, box: Box, group: Sequence[Candidate]) -> tuple[object, ...] | None:
        """Return what a division depends on beside the models: shapes, devices, and where the data is."""
        if task.key is None or (task.kernel is not None and task.kernel.looked_at):
            return None
        return self._depends(task, task.key, box, group)

    def _alike_key(self, task: Task, box: Box, group: Sequence[Candidate]) -> tuple[object, ...] | None:
        """Return the same for all calls that differ in the size of what every part reads whole; None if nothing is."""
        common = alike(task)
        return None if common is None else self._depends(task, common, box, group)

    def _depends(self, task: Task, shapes: object, box: Box, group: Sequence[Candidate]) -> tuple[object, ...]:
        pattern = self._residency.pattern
        held = tuple([(pattern(array), array._storage.cuts) for array in task.arrays])
        return (
            task.kernel,
            shapes,
            box,
            tuple([(c.name, c.variant.name, c.blocked) for c in group]),
            held,
            self.offering.idle(),
        )

    def _along(self, task: Task, box: Box, axis: int, group: Sequence[Candidate], waits: Sequence[float]) -> Divided:
        site = Site.of(task, box, axis)
        rows = site.rows.rows
        offers = self.offering.offers(site, group, waits)
        if self.for_energy:
            found = least_energy(offers, rows) if self._cap is None else under_cap(offers, rows, self._cap)
            return self._made(site, group, offers, found, measured=True)
        offers = ordered(offers, rows)
        kept = self._kept(task, site, group)
        division = good_enough(offers, rows, kept, keep=KEEP)
        division = division or adapt(offers, rows, divide(offers, rows), sticky=kept, keep=KEEP)
        for _ in range(SKEW_LOOKS if rows > 1 and site.skewed else 0):
            offers = ordered(self.offering.offers(site, group, waits, _likely(site, group, division)), rows)
            division = adapt(offers, rows, divide(offers, rows), sticky=kept, keep=KEEP)
        parts = zip(group, division.shares, strict=True)  # who is given nothing is not measured by this, ever
        measured = all(self.offering.known(site, candidate) for candidate, rows in parts if rows)
        unsettled = kept is not None and self._unsettled(site, group, kept)
        if unsettled and not division.sticky:
            division = adapt(offers, rows, division, sticky=kept, keep=float("inf"))
        return self._made(site, group, offers, division, measured=measured)._replace(unsettled=unsettled)

    def _crossed(
        self, task: Task, box: Box, axes: Sequence[int], group: Sequence[Candidate], waits: Sequence[float]
    ) -> Divided | None:
        """Return the best division along two axes: bands of devices along the first, devices along the second.

        A part of a matrix product then needs some rows of one operand and some columns of the other, instead of all of
        one: with many devices that moves less. Without copies there is nothing to save.
        """
        copying = any(candidate.memory != HOST for candidate in group)
        if len(axes) < 2 or len(group) < BANDS_FROM or self.for_energy or not copying:
            return None
        from .grid_division import bands  # few programs need it

        site = Site.of(task, box, axes[0])
        offers = self.offering.offers(site, group, waits)
        members = {c.name: (c, wait) for c, wait in zip(group, waits, strict=True)}
        best: Divided | None = None
        for count in range(2, len(group) // 2 + 1):
            made = bands(offers, count)
            grains = [lcm(*[offer.granule for offer in band.offers]) for band in made]
            outer = [Offer(f"band {i}", made[i].curve, granule=grains[i]) for i in range(count)]
            cuts = adapt(outer, site.rows.rows, divide(outer, site.rows.rows)).cuts
            parts = []
            for band, low, high in zip(made, cuts, cuts[1:], strict=False):
                chosen = [members[offer.device] for offer in band.offers]
                part = site.part(*site.cut_at((low, high), [c.device for c, _ in chosen]))
                if not part.empty:
                    parts.append(self._along(task, part, axes[1], [c for c, _ in chosen], [w for _, w in chosen]))
            joined = _joined(site, parts)
            if best is None or joined.seconds < best.seconds:
                best = joined
        return best

    def _made(
        self, site: Site, group: Sequence[Candidate], offers: Sequence[Offer], division: Division, *, measured: bool
    ) -> Divided:
        cuts = site.cut_at(division.cuts, [c.device for c in group])
        chunks: list[Chunk] = []
        shares: list[Share] = []
        used = sum(high > low for low, high in pairwise(cuts))
        for candidate, offer, low, high in zip(group, offers, cuts, cuts[1:], strict=False):
            for first, last in pairwise(_overlapping(offer, low, high)):
                work = site.work(first, last)
                estimate = candidate.model.estimate(work, together=used > 1)
                seconds = None if estimate is None else estimate.seconds
                share = Share(candidate.variant, candidate.model, work, seconds, used > 1, candidate.blocked)
                chunks.append(site.chunk(candidate.name, first, last, len(chunks), share, self._cache))
                shares.append(share)
        why = _reason(site, cuts, group, division, self._how(division, measured=measured), measured=measured)
        chunks, shares = _by_turn(offers, chunks, shares)
        return Divided(
            tuple(chunks), tuple(shares), division.seconds, why, site, tuple(offers), division, measured=measured
        )

    def _preferred(self, task: Task, axes: Sequence[int]) -> list[int]:
        """Return the axes, first the one along which the task's arrays were cut last."""
        before = {array._storage.cuts.axis for array in task.arrays if array._storage.cuts is not None}
        before |= (
            {cuts.axis for (kernel, *_), cuts in self._last.items() if kernel is task.kernel} if not before else set()
        )
        return sorted(axes, key=lambda axis: axis not in before)

    # Cuts that are kept -----------------------------------------------------------------------------------------------

    def _kept(self, task: Task, site: Site, group: Sequence[Candidate]) -> tuple[int, ...] | None:
        """Return the cuts of the last division of one of the task's arrays, if it was of this kind."""
        devices, rows = tuple([c.name for c in group]), site.rows.rows
        for array in reversed(task.arrays):
            cuts: Cuts | None = array._storage.cuts
            if cuts is not None and cuts.axis == site.axis and cuts.rows == rows and cuts.devices == devices:
                if site.rows.even:
                    return cuts.cuts
                return tuple([round(site.rows.work(cut)) for cut in cuts.cuts])
        same = self._last.get((task.kernel, site.axis, rows, devices))
        return same.cuts if same is not None and site.rows.even else None

    def _unsettled(self, site: Site, group: Sequence[Candidate], cuts: Sequence[int]) -> bool:
        """Tell whether some part of a division was not measured often enough to judge it."""
        counts = [
            candidate.model.measured(site.work(low, high))
            for candidate, low, high in zip(group, cuts, cuts[1:], strict=False)
            if high > low
        ]
        return len(counts) > 1 and 0 < min(counts) < UNSETTLED

    def _made_cuts(self, divided: Divided, group: Sequence[Candidate]) -> Cuts:
        site = divided.site
        cuts = tuple(site.cut_at(divided.division.cuts, [c.device for c in group]))
        devices = tuple([c.name for c in group])
        used = frozenset(c.memory for c, low, high in zip(group, cuts, cuts[1:], strict=False) if high > low)
        return Cuts(site.axis, site.rows.rows, devices, cuts, used)

    def _remember(self, task: Task, made: Cuts | None) -> None:
        if made is None or self._looking:
            return
        if len(self._last) > MEMO:
            self._last.clear()
        self._last[task.kernel, made.axis, made.rows, made.devices] = made
        self._cut(task, made)

    def _cut(self, task: Task, made: Cuts | None) -> None:
        """Note where the arrays that a task writes are cut: who uses them next should cut them alike."""
        if made is None or self._looking:
            return
        for param, array in zip(task.accesses, task.arrays, strict=True):
            if param.access.writes and param.access.mode != "reduce" and array._storage.cuts != made:
                array._storage.cuts = made


def _reason(
    site: Site, cuts: Sequence[int], group: Sequence[Candidate], division: Division, how: str, *, measured: bool
) -> str:
    rows = site.rows
    parts = [  # of the work, which is not of the rows where these weigh unlike
        f"{c.name} {(rows.work(high) - rows.work(low)) / (rows.rows or 1):.1%}"
        for c, (low, high) in zip(group, pairwise(cuts), strict=False)
        if high > low
    ]
    known = f"; {division.seconds * 1e3:.3g} ms" if measured else ""  # a time that rests on guesses is none
    return f"divided along axis {site.axis}, {how}: {', '.join(parts)}{known}"


def _by_turn(offers: Sequence[Offer], chunks: list[Chunk], shares: list[Share]) -> tuple[list[Chunk], list[Share]]:
    """Return chunks and shares in the order in which devices use a shared link: their copies are emitted in it."""
    turn = {offer.device: offer.priority for offer in offers}
    if not any(turn.values()):
        return chunks, shares
    order = sorted(range(len(chunks)), key=lambda i: turn[chunks[i].device])
    return [chunks[i] for i in order], [shares[i] for i in order]


def _overlapping(offer: Offer, low: int, high: int) -> list[int]:
    """Return where a device's share is cut again, so that the copies of one piece overlap the compute of another."""
    rows, count = high - low, 1
    copying = (offer.in_per_row + offer.out_per_row) * rows
    if rows > 1 and copying > 2.0 * WORTH_OVERLAPPING * offer.compute.seconds(rows):
        count = pieces(offer, rows)
        if seconds_in_pieces(offer, rows, count) > (1.0 - WORTH_OVERLAPPING) * seconds_in_pieces(offer, rows, 1):
            count = 1
    inner = [low + rows * i // count // offer.granule * offer.granule for i in range(1, count)]
    return [low, *inner, high] if rows > 0 else []


def _likely(site: Site, group: Sequence[Candidate], division: Division) -> list[tuple[int, int]]:
    """Return the rows of the parts of a division; the last ones leave some rows to look at."""
    rows = site.rows.rows
    last = rows - max(1, rows // LEAST_PART)
    return [(min(last, low), high) for low, high in pairwise(site.cut_at(division.cuts, [c.device for c in group]))]


def _joined(site: Site, parts: Sequence[Divided]) -> Divided:
    """Return divisions of bands as one division of the whole."""
    chunks = [chunk for part in parts for chunk in part.chunks]
    shares = [share._replace(together=len(chunks) > 1) for part in parts for share in part.shares]
    offers = [offer for part in parts for offer in part.offers]
    left_out = {device: why for part in parts for device, why in part.division.left_out.items()}
    single = {device: float("inf") for device in (offer.device for offer in offers)}
    seconds = max(part.seconds for part in parts)
    times = tuple(t for part in parts for t in part.division.times)
    return Divided(
        tuple(chunk._replace(slot=slot) for slot, chunk in enumerate(chunks)),
        tuple(shares),
        seconds,
        f"divided along two axes, in {len(parts)} bands of devices; {seconds * 1e3:.3g} ms",
        site,
        tuple(offers),
        Division((), seconds, times, left_out, single),
        measured=all(part.measured for part in parts),
    )
