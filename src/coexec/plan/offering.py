"""From a task and its candidates to offers: what each device would take for how many rows, copies included.

Before: predict/, plan/candidate.py, plan/offer.py.  After: plan/divider.py.  Knows no lowering: it is told where data is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm
from typing import NamedTuple

from ..geometry import Box
from ..graph.command import Chunk
from ..graph.task import Task
from ..machine.platform import HOST, USER, Device, Link, Platform
from ..predict.features import Rows, part_of, work_of_part
from ..predict.work import Work
from ..program.array import Array
from ..program.mapper import Mapper
from .candidate import Candidate, Share
from .curve import Curve, sizes
from .lags import Lags
from .offer import Offer
from .split import in_cache

HANDING_OVER = 50e-6  # seconds that a part costs after its kernel: it is reported, and somebody woken
SAMPLES = 8  # sizes at which a model is asked

Missing = Callable[[Array, int, Box], Sequence[Box]]
"""The parts of a view's box that are not valid in a memory; boxes in the array's coordinates."""


class Bytes(NamedTuple):
    """What a share moves: whatever its size, and per row."""

    fixed: float = 0.0
    per_row: float = 0.0
    there: tuple[int, int] = (0, 0)  # rows that move nothing


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
        return lcm(device, self.task.kernel.granule) if self.task.kernel is not None else device

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
        if share.blocked and share.work is not None:
            chunk = in_cache(chunk, self.axis, share.work.size, cache, self.granule())
        return chunk

    def work(self, lo: int, hi: int) -> Work:
        """Return what rows [lo, hi) ask of a device."""
        weight = 1.0 if self.rows.even else (self.rows.work(hi) - self.rows.work(lo)) / max(1, hi - lo)
        return work_of_part(self.task, self.part(lo, hi), weight)


class Offering:
    """Makes offers, and keeps the curves that repeated tasks need."""

    def __init__(self, platform: Platform, missing: Missing) -> None:
        self._platform = platform
        self._missing = missing
        self.lags = Lags()
        self.idle: Callable[[], bool] = _always  # whether nothing is under way: then lags show, else they are hidden
        self._curves: dict[tuple[object, ...], tuple[int, Curve | None]] = {}

    def offers(self, site: Site, group: Sequence[Candidate], waits: Sequence[float]) -> list[Offer]:
        """Return one offer per candidate, in their order; those nobody has measured are taken to be average."""
        rows = site.rows.rows
        curves = [self._curve(site, candidate) for candidate in group]
        known = [curve for curve in curves if curve is not None]
        guess = max(known, key=lambda curve: curve.seconds(rows)) if known else Curve.line(1e-6, HANDING_OVER)
        offers = [
            self._offer(site, candidate, curve or guess, wait)
            for candidate, curve, wait in zip(group, curves, waits, strict=True)
        ]
        if sum([offer.room for offer in offers]) < rows:  # then shares are divided further, one part after the other
            offers = [offer._replace(most=None) for offer in offers]
        return offers

    def known(self, site: Site, candidate: Candidate) -> bool:
        """Tell whether anything is known of this candidate."""
        return self._curve(site, candidate) is not None

    def _curve(self, site: Site, candidate: Candidate) -> Curve | None:
        model, task = candidate.model, site.task
        key = (id(model), task.key, site.axis, site.box, () if task.key is not None else task.id)
        known = self._curves.get(key)
        if known is None or known[0] != model.version:
            if len(self._curves) > 256:
                self._curves.clear()
            known = self._curves[key] = (model.version, self._sampled(site, candidate))
        return known[1]

    def _sampled(self, site: Site, candidate: Candidate) -> Curve | None:
        """Return the predicted seconds by rows, or None if nothing is known."""
        rows, points = site.rows.rows, []
        for size in sizes(rows, SAMPLES):
            estimate = candidate.model.estimate(site.work(0, size), together=True)
            if estimate is None:
                return None
            points.append((site.rows.work(size), estimate.seconds + HANDING_OVER))
        if points[-1][0] < 2:
            points.append((points[-1][0] + 1, points[-1][1]))
        return Curve.through(points)

    def _offer(self, site: Site, candidate: Candidate, curve: Curve, wait: float) -> Offer:
        device, memory = candidate.device, candidate.memory
        moved, kept = self._inputs(site, memory), self._outputs(site, memory)
        link_in, link_out = self._link_to(memory), self._platform.link(memory, HOST)
        capacity = self._platform.memories[memory].capacity if memory != HOST else None
        speed_in = 1.0 / link_in.bandwidth if link_in is not None else 0.0
        speed_out = 1.0 / link_out.bandwidth if link_out is not None and memory != HOST else 0.0
        copies = moved.fixed > 0 or moved.per_row > 0
        return Offer(
            device.name,
            curve,
            granule=site.granule(max(1, device.granule)),
            most=None if capacity is None else self._room(site, capacity),
            wait=wait + (self.lags.of(device.name) if self.idle() else 0.0),
            fixed_in=moved.fixed * speed_in + (link_in.latency if link_in is not None and copies else 0.0),
            in_per_row=moved.per_row * speed_in,
            there=moved.there,
            out_per_row=kept.per_row * speed_out,
            fixed_out=kept.fixed * speed_out + (link_out.latency if speed_out and link_out and kept.per_row else 0.0),
            link=link_in.bus if link_in is not None else "",
            watts=device.watts or 0.0,
            idle_watts=device.idle_watts or 0.0,
            group=f"{device.speed} {device.kind}" if memory == HOST else device.name,
        )

    def _link_to(self, memory: int) -> Link | None:
        """Return the link over which inputs come: from the host, or to it from the only other memory there is."""
        if memory != HOST:
            return self._platform.link(HOST, memory)
        others = [link for link in self._platform.links_into(HOST) if link.source != USER]
        return min(others, key=lambda link: link.bandwidth, default=None)

    def _inputs(self, site: Site, memory: int) -> Bytes:
        """Return what rows of the task lack in `memory`."""
        fixed, per_row, there, largest = 0.0, 0.0, (0, 0), 0.0
        for param, array in zip(site.task.accesses, site.task.arrays, strict=True):
            if not param.access.reads or (memory == HOST and not self._platform.links):
                continue
            holes = self._missing(array, memory, array._box)
            if not holes:
                continue
            size = _bytes(site, param.access.mapper, array)
            absent = min(1.0, sum(hole.volume for hole in holes) / max(1, array.size))
            if size.per_row * site.rows.rows < 0.01 * size.fixed:
                fixed += (size.fixed + size.per_row * site.rows.rows) * absent
                continue
            fixed += size.fixed * absent
            per_row += size.per_row
            if absent < 1.0 and size.per_row > largest and array._cut is None:
                largest, there = size.per_row, _present(site, array, holes)
        return Bytes(fixed, per_row, there)

    def _outputs(self, site: Site, memory: int) -> Bytes:
        """Return what the task's results move back to the host; results that live on a device stay there."""
        per_row = fixed = 0.0
        if memory == HOST:
            return Bytes()
        for param, array in zip(site.task.accesses, site.task.arrays, strict=True):
            if not param.access.writes or param.access.mode == "reduce":
                continue
            holes = self._missing(array, memory, array._box)
            resident = sum(hole.volume for hole in holes) < array.size and param.access.mode == "update"
            if not resident and not self._stays(array, memory):
                size = _bytes(site, param.access.mapper, array)
                per_row, fixed = per_row + size.per_row, fixed + size.fixed
        return Bytes(fixed, per_row)

    def _stays(self, array: Array, memory: int) -> bool:
        """Tell whether the array has lived in `memory` since the last division: its results were not fetched."""
        cuts = array._storage.cuts
        return cuts is not None and memory in cuts.memories and bool(self._missing(array, HOST, array._box))

    def _room(self, site: Site, capacity: int) -> int:
        """Return how many rows fit into `capacity`."""
        total = Bytes()
        for param, array in zip(site.task.accesses, site.task.arrays, strict=True):
            size = _bytes(site, param.access.mapper, array) if param.access.mode != "reduce" else Bytes(array.nbytes)
            total = Bytes(total.fixed + size.fixed, total.per_row + size.per_row)
        return max(0, min(site.rows.rows, int((capacity - total.fixed) / total.per_row) if total.per_row else 1 << 62))


def _bytes(site: Site, mapper: Mapper, array: Array) -> Bytes:
    """Return the bytes of `array` that a part needs: so many whatever its size, so many per row."""
    rows, space = site.rows.rows, site.task.space
    most = _volume(mapper, site.part(0, rows), space, array.shape) * array.dtype.itemsize
    if rows < 2:
        return Bytes(0.0, float(most))
    half = _volume(mapper, site.part(0, rows // 2), space, array.shape) * array.dtype.itemsize
    per_row = (most - half) / (rows - rows // 2)
    return Bytes(max(0.0, most - per_row * rows), per_row)


def _volume(mapper: Mapper, part: Box, space: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return sum([box.volume for box in mapper.boxes(part, space, shape)])


def _present(site: Site, array: Array, holes: Sequence[Box]) -> tuple[int, int]:
    """Return the longest run of rows without a hole."""
    axis, rows = site.axis, site.rows.rows
    if axis >= array.ndim:
        return (0, 0)
    start = array._box.lo[axis] + site.box.lo[axis]
    edges = sorted((max(0, hole.lo[axis] - start), min(rows, hole.hi[axis] - start)) for hole in holes)
    best, position = (0, 0), 0
    for lo, hi in [*edges, (rows, rows)]:
        if lo - position > best[1] - best[0]:
            best = (position, lo)
        position = max(position, hi)
    return best


def _always() -> bool:
    return True
