"""From a task and its candidates to offers: what each device would take for how many rows, copies included.

Before: predict/, plan/candidate.py, plan/division/offers.py.  After: plan/division/divider.py.  Knows no lowering: it is told where
data is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from math import lcm
from typing import NamedTuple

from ...geometry import Box
from ...graph.command import Chunk
from ...graph.task import Task
from ...machine.platform import HOST, USER, Device, Link, Platform
from ...predict.features import Rows, part_of, work_of_part
from ...predict.work import Work
from ...program.access import Access
from ...program.array import Array
from ...program.mapper import Mapper
from ..candidate import Candidate, Residency, Share
from ..fixed_blocks import in_blocks
from ..lessons import StartDelays
from ..policies import Loads, Where
from ..split import in_cache
from .offers import Curve, Offer, sizes

Pieces = Sequence[tuple[Box, int]]
"""Disjoint parts of an array, and the memories (as bits) that hold each; none where there is nothing to copy."""
ALL = -1  # bits: where nothing need be copied, every memory has what it needs


class Places:
    """The rows of a task along one axis of an array, and who has them. One pass serves every memory."""

    def __init__(self, pieces: Pieces, axis: int, start: int, rows: int) -> None:
        self._held: dict[int, int] = {}  # memory -> elements
        self._total = 0  # elements that are somewhere
        self._common = ALL  # the memories that have all of them
        self._somewhere = 0
        for box, mask in pieces:
            if mask:
                volume = box.volume
                self._total += volume
                self._common &= mask
                self._somewhere |= mask
                for memory in memories(mask):
                    self._held[memory] = self._held.get(memory, 0) + volume
        self._pieces, self._axis, self._start, self._rows = pieces, axis, start, rows
        self._runs: dict[int, tuple[int, int]] | None = None
        self._empty = (0, 0)  # the longest run of rows that need not be copied at all
        self._edges: list[int] = []
        self._main: list[int] = []  # who has the widest piece between two edges

    def absent(self, memory: int) -> int:
        """Return how many elements a memory lacks."""
        return self._total - self._held.get(memory, 0)

    def present(self, memory: int) -> tuple[int, int]:
        """Return the longest run of rows of which a memory lacks nothing."""
        if self._runs is None:
            self._runs = self._find_runs()
        return self._runs.get(memory, self._empty)

    def sources(self, memory: int) -> list[int]:
        """Return who has what a memory lacks: who has the rows next to its own, or else all of it; as bits.

        Empty if the rows are spread, and the memory has none of them.
        """
        lo, hi = self.present(memory)
        if lo < hi:
            found = []
            at = bisect_left(self._edges, lo)
            if at and at < len(self._edges) and self._edges[at] == lo:
                found.append(self._main[at - 1])
            at = bisect_left(self._edges, hi)
            if at < len(self._main) and self._edges[at] == hi:
                found.append(self._main[at])
            found = [mask for mask in found if mask and not mask >> memory & 1]
            if found:
                return found
        return [self._common] if self._common > 0 else []

    def anybody(self, memory: int) -> int:
        """Return who has the first piece that a memory lacks, as bits."""
        return next((mask for _, mask in self._pieces if mask and not mask >> memory & 1), 0)

    def _find_runs(self) -> dict[int, tuple[int, int]]:
        had = self._by_rows()
        runs: dict[int, tuple[int, int]] = {}
        since: dict[int, int] = {}
        before, nobody = 0, 0
        for i, mask in enumerate([*had, 0]):
            edge = self._edges[i]
            now = mask & self._somewhere
            for memory in memories(now ^ before):
                if now >> memory & 1:
                    since[memory] = edge
                    continue
                known, begin = runs.get(memory, (0, 0)), since[memory]
                if edge - begin > known[1] - known[0]:
                    runs[memory] = (begin, edge)
            before = now
            if mask != ALL:
                if edge - nobody > self._empty[1] - self._empty[0]:
                    self._empty = (nobody, edge)
                nobody = self._edges[min(i + 1, len(self._edges) - 1)]
        return dict.fromkeys(self._held, (0, 0)) | runs

    def _by_rows(self) -> list[int]:
        """Cut the rows where pieces begin or end, and return who has all of each part."""
        widest: dict[tuple[int, int], tuple[int, int]] = {}
        every: dict[tuple[int, int], int] = {}
        axis, start, rows = self._axis, self._start, self._rows
        for box, mask in self._pieces if rows else ():
            span = (max(0, box[0][axis] - start), min(rows, box[1][axis] - start))
            if mask and span[0] < span[1]:
                every[span] = every.get(span, ALL) & mask
                widest[span] = max(widest.get(span, (0, 0)), (box.volume // (box[1][axis] - box[0][axis]), mask))
        self._edges = sorted({0, rows, *[edge for span in every for edge in span]})
        at = {edge: i for i, edge in enumerate(self._edges)}
        had = [ALL] * (len(self._edges) - 1)
        width = [(0, 0)] * len(had)
        for (lo, hi), mask in every.items():
            for i in range(at[lo], at[hi]):
                had[i] &= mask
                width[i] = max(width[i], widest[lo, hi])
        self._main = [mask for _, mask in width]
        return had


def memories(mask: int) -> Iterator[int]:
    """Yield the memories of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


HANDING_OVER = 50e-6  # seconds that a part costs after its kernel: it is reported, and somebody woken
SAMPLES = 8  # sizes at which a model is asked
ABOUT = (0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)  # of the rows that a device is likely to get: its share is among them
ANYWHERE = (0, 0)  # no rows are likelier than others
SKEWED = 0.05  # relative difference between halves from which rows are unlike: borders of stencils make less

COMMON = 1 << 20  # bytes for which ways are compared
"""The parts of a view's box, in the array's coordinates, and which memories hold them."""


class Bytes(NamedTuple):
    """What a share moves: whatever its size, and per row."""

    fixed: float = 0.0
    per_row: float = 0.0
    there: tuple[int, int] = (0, 0)  # rows that move nothing


class Argument(NamedTuple):
    """An array of a task: what a part of the task needs of it, and where it is."""

    array: Array
    access: Access
    size: Bytes
    places: Places


class InputWay(NamedTuple):
    """How inputs come to a memory."""

    link: Link | None = None
    bus: str = ""  # what others wait for at the same time


class Site(NamedTuple):
    """A task to be cut along one axis."""

    task: Task
    box: Box
    axis: int
    rows: Rows

    @classmethod
    def of(cls, task: Task, box: Box, axis: int) -> Site:
        """Look at `axis` of the part of the index space that is visited."""
        return cls(task, box, axis, Rows(task, box, axis))

    def granule(self, device: int = 1) -> int:
        """Return of how many rows a part is a multiple: what the kernel and a device's granule both ask."""
        return lcm(device, self.task.granule)

    def cut_at(self, cuts: Sequence[float], devices: Sequence[Device]) -> list[int]:
        """Return the rows before which a division cuts, by work; the ends of parts are multiples of granules."""
        rows = self.rows.rows
        # Work that is spread unevenly is divided by work: only here does it become rows, and so granules.
        step = self.granule() if self.rows.even else self.granule(lcm(*[max(1, d.granule) for d in devices]))
        exact = [round(self.rows.position(cut)) for cut in cuts]
        return exact if step == 1 else [at if at >= rows else min(rows, round(at / step) * step) for at in exact]

    def part(self, lo: int, hi: int) -> Box:
        """Return rows [lo, hi) of the task."""
        return part_of(self.box, self.axis, lo, hi)

    def chunk(self, device: str, lo: int, hi: int, slot: int, share: Share, cache: int) -> Chunk:
        """Return rows [lo, hi) as a chunk, in pieces if its share says so."""
        chunk = Chunk(device, self.part(lo, hi), slot)
        if self.task.grain is not None:
            return in_blocks(self.task, chunk)
        if share.blocked and share.work is not None:
            chunk = in_cache(chunk, self.axis, share.work.size, cache, self.granule())
        return chunk

    def work(self, lo: int, hi: int) -> Work:
        """Return what rows [lo, hi) ask of a device."""
        return work_of_part(self.task, self.part(lo, hi))

    @property
    def skewed(self) -> bool:
        """Whether the first half of the rows asks for something else than the second: where a part lies matters.

        Not where a weight is declared: then rows are counted by their work already, and shares are fractions of it.
        """
        half = self.rows.rows // 2
        if half < 1 or not self.rows.even:
            return False
        first, last = self.work(0, half), self.work(self.rows.rows - half, self.rows.rows)
        return any(abs(a - b) > SKEWED * max(a, b) for a, b in zip(first.features, last.features, strict=True))


class Offering:
    """Makes offers, and keeps the curves that repeated tasks need."""

    def __init__(self, platform: Platform, residency: Residency) -> None:
        self._platform = platform
        self.residency = residency
        self.start_delays = StartDelays()
        self.idle: Callable[[], bool] = (
            _always  # whether nothing is under way: then start delays show, else they are hidden
        )
        self._curves: dict[tuple[object, ...], tuple[int, Curve | None]] = {}

    def offers(
        self, site: Site, group: Sequence[Candidate], waits: Sequence[float], likely: Sequence[tuple[int, int]] = ()
    ) -> list[Offer]:
        """Return one offer per candidate, in their order; those nobody has measured are taken to be average.

        `likely` are the rows that they are likely to get, where it matters which rows they are.
        """
        rows = site.rows.rows
        curves = [self._curve(site, c, span) for c, span in zip(group, likely or (ANYWHERE,) * len(group), strict=True)]
        known = [curve for curve in curves if curve is not None]
        guess = max(known, key=lambda curve: curve.seconds(rows)) if known else Curve.line(1e-6, HANDING_OVER)
        task = site.task
        arguments = [self._argument(site, p.access, array) for p, array in zip(task.accesses, task.arrays, strict=True)]
        ends: dict[int, Offer] = {}  # by memory: what copies take
        idle = self.idle()
        offers = []
        for candidate, curve, wait in zip(group, curves, waits, strict=True):
            device, memory = candidate.device, candidate.memory
            end = ends.get(memory)
            if end is None:
                end = ends[memory] = self._copies(site, arguments, memory, curve or guess)
            offers.append(
                end._replace(
                    device=device.name,
                    compute=curve or guess,
                    granule=site.granule(max(1, device.granule)),
                    wait=wait + (self.start_delays.of(device.name) if idle else 0.0),
                    watts=device.watts or 0.0,
                    idle_watts=device.idle_watts or 0.0,
                    group=f"{device.speed} {device.kind}" if memory == HOST else device.name,
                    aside=copies_aside(device),
                )
            )
        if sum([offer.room for offer in offers]) < rows:  # then shares are divided further, one part after the other
            offers = [offer._replace(most=None) for offer in offers]
        return offers

    def _argument(self, site: Site, access: Access, array: Array) -> Argument:
        size = _bytes(site, access.mapper, array) if access.mode != "reduce" else Bytes(array.nbytes)
        axis, start, rows = 0, 0, 0  # where the view's axes are not those of the array, rows are not told apart
        if array._cut is None and site.axis < array.ndim:
            axis, start, rows = site.axis, array._box.lo[site.axis] + site.box.lo[site.axis], site.rows.rows
        return Argument(array, access, size, Places(self.residency.places(array), axis, start, rows))

    def known(self, site: Site, candidate: Candidate) -> bool:
        """Tell whether anything is known of this candidate."""
        return self._curve(site, candidate) is not None

    def _curve(self, site: Site, candidate: Candidate, span: tuple[int, int] = ANYWHERE) -> Curve | None:
        model, task = candidate.model, site.task
        key = (id(model), task.key, site.axis, site.box, span, () if task.key is not None else task.id)
        known = self._curves.get(key)
        if known is None or known[0] != model.version:
            if len(self._curves) > 256:
                self._curves.clear()
            known = self._curves[key] = (model.version, self._sampled(site, candidate, *span))
        return known[1]

    def _sampled(self, site: Site, candidate: Candidate, start: int, end: int) -> Curve | None:
        """Return the predicted seconds by rows from `start` on, more closely about `end`; None if nothing is known."""
        rows, points = site.rows.rows, []
        closely = {round((end - start) * factor) for factor in ABOUT} if end > start else set()
        for size in sorted({*sizes(rows - start, SAMPLES), *[n for n in closely if 0 < n <= rows - start]}):
            estimate = candidate.model.estimate(site.work(start, start + size), together=True)
            if estimate is None:
                return None
            work = site.rows.work(start + size) - site.rows.work(start)
            points.append((work, estimate.seconds + HANDING_OVER))
        whole = candidate.model.estimate(site.work(0, rows), together=True) if start or end else None
        if whole is not None and rows > points[-1][0]:  # of all rows, wherever a part begins
            points.append((float(rows), whole.seconds + HANDING_OVER))
        if points[-1][0] < 2:
            points.append((points[-1][0] + 1, points[-1][1]))
        return Curve.through(points)

    def _copies(self, site: Site, arguments: Sequence[Argument], memory: int, curve: Curve) -> Offer:
        """Return what copies to and from a memory take, as an offer without a device."""
        moved, way = self._inputs(site, arguments, memory)
        kept = self._outputs(arguments, memory)
        link_in, link_out = way.link, self._platform.link(memory, HOST)
        capacity = self._platform.memories[memory].capacity if memory != HOST else None
        speed_in = 1.0 / link_in.bandwidth if link_in is not None else 0.0
        speed_out = 1.0 / link_out.bandwidth if link_out is not None and memory != HOST else 0.0
        copies = moved.fixed > 0 or moved.per_row > 0
        return Offer(
            "",
            curve,
            most=None if capacity is None else _room(site, arguments, capacity),
            fixed_in=moved.fixed * speed_in + (link_in.latency if link_in is not None and copies else 0.0),
            in_per_row=moved.per_row * speed_in,
            there=moved.there,
            out_per_row=kept.per_row * speed_out,
            fixed_out=kept.fixed * speed_out + (link_out.latency if speed_out and link_out and kept.per_row else 0.0),
            link=way.bus,
        )

    def _inputs(self, site: Site, arguments: Sequence[Argument], memory: int) -> tuple[Bytes, InputWay]:
        """Return what rows of the task lack in `memory`, and how it comes there."""
        fixed, per_row, there, largest = 0.0, 0.0, (0, 0), 0.0
        main: tuple[tuple[float, float], Places] | None = None  # of which most must be copied
        for array, access, size, places in arguments:
            if not access.reads or (memory == HOST and not self._platform.links):
                continue
            lacking = places.absent(memory)
            if not lacking:
                continue
            if main is None or (size.per_row, size.fixed) > main[0]:
                main = ((size.per_row, size.fixed), places)
            absent = min(1.0, lacking / max(1, array.size))
            if size.per_row * site.rows.rows < 0.01 * size.fixed:
                fixed += (size.fixed + size.per_row * site.rows.rows) * absent
                continue
            fixed += size.fixed * absent
            per_row += size.per_row
            if absent < 1.0 and size.per_row > largest and array._cut is None:
                largest, there = size.per_row, places.present(memory)
        return Bytes(fixed, per_row, there), self._way(memory, main[1] if main is not None else None)

    def _way(self, memory: int, places: Places | None) -> InputWay:
        """Return the way over which inputs come: from the host if it has them, else from whoever is nearest.

        Rows that are spread over memories come from as many sides, and wait for nobody on the way.
        """
        if memory == HOST:
            others = [link for link in self._platform.links_into(HOST) if link.source != USER]
            slow = min(others, key=lambda link: link.bandwidth, default=None)
            return InputWay(slow, slow.bus if slow is not None else "")
        home = self._platform.link(HOST, memory)
        sources = places.sources(memory) if places is not None else []
        spread = places is not None and not sources
        if places is not None and spread:
            sources = [places.anybody(memory)]
        found = [home if mask >> HOST & 1 else self._nearest(mask, memory) for mask in sources]
        links = [link if link is not None else home for link in found]
        link = max(links, key=_for_common_size, default=home)
        return InputWay(link, link.bus if link is not None and not spread else "")

    def _nearest(self, mask: int, memory: int) -> Link | None:
        """Return the quickest direct way from one of the memories of a mask."""
        links = [self._platform.link(source, memory) for source in memories(mask)]
        return min([link for link in links if link is not None], key=_for_common_size, default=None)

    def _outputs(self, arguments: Sequence[Argument], memory: int) -> Bytes:
        """Return what the task's results move back to the host; results that live on a device stay there."""
        per_row = fixed = 0.0
        if memory == HOST:
            return Bytes()
        for array, access, size, places in arguments:
            if not access.writes or access.mode == "reduce":
                continue
            resident = places.absent(memory) < array.size and access.mode == "update"
            if not resident and not _stays(array, places, memory):
                per_row, fixed = per_row + size.per_row, fixed + size.fixed
        return Bytes(fixed, per_row)


def spread(task: Task, residency: Residency) -> int:
    """Return the bytes of a task's inputs that lie in several memories, none of which holds all of them."""
    inputs = [a for p, a in zip(task.accesses, task.arrays, strict=True) if p.access.mode != "write"]
    return sum([array.nbytes for array in inputs if residency.spread(array)])


def quick(
    loads: Loads,
    task: Task,
    candidates: Sequence[Candidate],
    work: Work,
    where: Where,
    limit: float,
    residency: Residency,
) -> Candidate | None:
    """Return who is predicted to do all of a task first, if that takes at most `limit` seconds, copies included."""
    short = [(s, i) for i, c in enumerate(candidates) if (s := c.model.seconds(work)) is not None and s <= limit]
    if not short:
        return None
    if all(c.memory == candidates[0].memory for c in candidates):
        return candidates[min(short)[1]]
    held, gathered = where(), spread(task, residency)
    found = [
        (s + loads.transfer(memory := candidates[i].memory, held) + _gather(loads.platform, memory, gathered), i)
        for s, i in short
    ]
    soonest = min(found)
    return candidates[soonest[1]] if soonest[0] <= limit else None


def _gather(platform: Platform, memory: int, nbytes: int) -> float:
    """Return the seconds to bring together in one memory what is spread over several."""
    if not nbytes:
        return 0.0
    link = platform.link(HOST, memory) if memory != HOST else None
    link = link or next((link for link in platform.links_into(HOST) if link.source != USER), None)
    return link.seconds(nbytes) if link is not None else 0.0


def copies_aside(device: Device) -> bool:
    """Tell whether copies to a device's memory go on while it computes: the driver of a processor does both on its cores."""
    return not (device.cores and device.abilities.driven)


def _for_common_size(link: Link | None) -> float:
    return link.seconds(COMMON) if link is not None else 0.0


def _stays(array: Array, places: Places, memory: int) -> bool:
    """Tell whether the array has lived in `memory` since the last division: its results were not fetched."""
    cuts = array._storage.cuts
    return cuts is not None and memory in cuts.memories and places.absent(HOST) > 0


def _room(site: Site, arguments: Sequence[Argument], capacity: int) -> int:
    """Return how many rows fit into `capacity`."""
    fixed, per_row = sum([a.size.fixed for a in arguments]), sum([a.size.per_row for a in arguments])
    return max(0, min(site.rows.rows, int((capacity - fixed) / per_row) if per_row else 1 << 62))


def _bytes(site: Site, mapper: Mapper, array: Array) -> Bytes:
    """Return the bytes of `array` that a part needs: so many whatever its size, so many per row."""
    rows, space = site.rows.rows, site.task.extents
    most = _volume(mapper, site.part(0, rows), space, array.shape) * array.dtype.itemsize
    if rows < 2:
        return Bytes(0.0, float(most))
    half = _volume(mapper, site.part(0, rows // 2), space, array.shape) * array.dtype.itemsize
    per_row = (most - half) / (rows - rows // 2)
    return Bytes(max(0.0, most - per_row * rows), per_row)


def _volume(mapper: Mapper, part: Box, space: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return sum([box.volume for box in mapper.boxes(part, space, shape)])


def _always() -> bool:
    return True
