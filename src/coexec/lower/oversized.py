"""Divide a command further, so that what runs at once fits into the memories: rounds, lowered one after the other.

Before: graph/command.py, plan/.  After: lower/capacity.py, lower/lowering.py.  Knows boxes; is told how full chunks make
the memories.

Rows may need unlike amounts of memory, so it is not a number of equal parts that is looked for. Round by round, bisection
finds the longest run of rows that fits, and the row where both halves of it need the same: those are two rounds. So the
next round can be copied while one runs, and light rows are not cut as finely as the heaviest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..geometry import Box, bounding, cut
from ..graph.command import Chunk
from ..graph.task import Task
from ..plan.candidate import Share
from ..plan.conflicts import find_conflict, however_cut
from ..predict.features import work_of_part

MOST_ROUNDS = 10_000
"""Rounds of one command: more would take longer to lower than anybody waits, and more room than is missing."""
EVEN = 1.1  # times as much may the larger half of a run need

Fill = Callable[[Sequence[Chunk]], float]
"""Tells which share of the room in their memories chunks need, all at once; above 1 they do not fit."""
Listen = Callable[[], None]
"""Called again and again while something takes long; raises if the program is interrupted."""


class RoundPart(NamedTuple):
    """A chunk, or a part of one."""

    chunk: Chunk
    share: Share
    more: bool | None = None  # further parts of the same chunk follow, in other rounds; None: there is one round


Round = list[tuple[int, Chunk]]
"""Which chunk, and the part of it."""


class Refused(Exception):
    """A command cannot be divided so that it fits; `parts` are what does not."""

    def __init__(self, parts: Sequence[Chunk]) -> None:
        super().__init__()
        self.parts = parts


class TooLarge(Refused):
    """A part does not fit, and cannot be cut."""


class TooMany(Refused):
    """Parts that fit would be too many."""


class Together(Refused):
    """Parts of a chunk touch what others write, so they cannot be computed one after the other."""


def in_rounds(
    task: Task, chunks: Sequence[Chunk], shares: Sequence[Share], memories: Sequence[int], fill: Fill, listen: Listen
) -> list[list[RoundPart]]:
    """Return rounds whose parts fit together, or raise Refused. `memories` says where each chunk computes.

    Two rounds fit at once, if that is possible: then the inputs of the next are copied while this one runs.
    """
    by_memory = []
    for memory in dict.fromkeys(memories):
        mine = [number for number, m in enumerate(memories) if m == memory]
        rests = [Rest(chunks[number], split_axes(task), granule_of(task)) for number in mine]
        rounds = Cutting(rests, fill, listen).rounds()
        by_memory.append([[(mine[place], part) for place, part in entry] for entry in rounds])
    found = [
        [entry for rounds in by_memory if number < len(rounds) for entry in rounds[number]]
        for number in range(max(map(len, by_memory)))
    ]
    return _numbered(task, chunks, shares, found)


def split_axes(task: Task) -> Sequence[int]:
    """Return the axes along which a task may be cut."""
    if task.kernel is None or (task.options is not None and not task.options.split):
        return ()
    return [axis for axis in task.axes if axis < task.domain.ndim]


def granule_of(task: Task) -> int:
    """Return of how many rows the parts of a task are multiples."""
    return task.granule


def smallest_part(box: Box, axes: Sequence[int], granule: int) -> Box:
    """Return the first of the smallest parts that a box can be cut into."""
    return Box(box.lo, tuple(min(hi, box.lo[a] + granule) if a in axes else hi for a, hi in enumerate(box.hi)))


def longest(most: int, fits: Callable[[int], bool], guess: int = 1) -> int:
    """Return the largest number up to `most` that fits, or 0; if one fits, all smaller ones do. `guess` may be near."""
    low, high, step = 0, most + 1, max(1, min(guess, most))
    while low < step < high and fits(step):
        low, step = step, min(2 * step, most)
    high = step if low < step else high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


class Rest:
    """What of a chunk is in no round yet: runs of its pieces, and boxes that are cut into rows."""

    def __init__(self, chunk: Chunk, axes: Sequence[int], granule: int) -> None:
        self.chunk = chunk
        self._axes = axes
        self._granule = granule
        self._todo: deque[tuple[Box, ...] | Box] = deque([chunk.pieces or chunk.box])

    @property
    def count(self) -> int:
        """How many pieces or rows come next that are of one box or run; 0 if everything is in a round."""
        if not self._todo:
            return 0
        first = self._todo[0]
        if not isinstance(first, Box):
            return len(first)
        return -(-first.shape[self._axes[0]] // self._granule) if self._axes else 1

    def part(self, start: int, stop: int) -> Chunk:
        """Return the part with some of those."""
        first = self._todo[0]
        if isinstance(first, Box):
            box = self._span(first, self._axes[0], start, stop) if self._axes else first
            return self.chunk._replace(box=box, pieces=())
        run = first[start:stop]
        return self.chunk._replace(box=bounding(run), pieces=run if len(run) > 1 else ())

    def _span(self, box: Box, axis: int, start: int, stop: int) -> Box:
        """Return so many granules of a box along an axis."""
        low, high = box.lo[axis] + start * self._granule, min(box.hi[axis], box.lo[axis] + stop * self._granule)
        return Box((*box.lo[:axis], low, *box.lo[axis + 1 :]), (*box.hi[:axis], high, *box.hi[axis + 1 :]))

    def take(self, count: int) -> None:
        """Leave out the first of those: they are in a round."""
        every = self.count
        first = self._todo.popleft()
        if count < every:
            left = self._span(first, self._axes[0], count, every) if isinstance(first, Box) else first[count:]
            self._todo.appendleft(left)

    def narrow(self, fits: Callable[[Chunk], bool]) -> None:
        """Cut otherwise what comes next, of which not even one fits: a piece into rows, a box along further axes."""
        first = self._todo.popleft()
        if isinstance(first, Box):
            self._todo.extendleft(reversed(self._strips(first, fits)))
            return
        if len(first) > 1:
            self._todo.appendleft(first[1:])
        self._todo.appendleft(first[0])

    def _strips(self, box: Box, fits: Callable[[Chunk], bool]) -> list[Box]:
        """Cut a box into strips that are half as wide as fits, if it can be: then several rows of them fit at once."""
        strips, row = [box], self._span(box, self._axes[0], 0, 1) if self._axes else box
        for axis in self._axes[1:]:
            wide = -(-row.shape[axis] // self._granule)
            if wide == 1:
                continue
            start = row

            def fit(count: int, axis: int = axis, start: Box = start) -> bool:
                return fits(self.chunk._replace(box=self._span(start, axis, 0, count), pieces=()))

            most = longest(wide - 1, fit)
            parts = -(-wide // max(1, most // 2))
            if len(strips) * parts > MOST_ROUNDS:
                raise TooMany([self.chunk])
            strips = [part for strip in strips for part in cut(strip, axis, parts, self._granule)]
            if most:
                return strips
            row = self._span(row, axis, 0, 1)
        raise TooLarge([self.chunk._replace(box=row, pieces=())])


class Cutting:
    """Cuts the chunks that compute in one memory into rounds."""

    def __init__(self, rests: Sequence[Rest], fill: Fill, listen: Listen) -> None:
        self._rests = rests
        self._fill = fill
        self._listen = listen
        self._guess = 1
        self._rounds: list[Round] = []

    def rounds(self) -> list[Round]:
        """Return the rounds, or raise Refused."""
        while going := [number for number, rest in enumerate(self._rests) if rest.count]:
            self._listen()
            count = self._longest(going)
            if not count and len(going) > 1:  # even one row of each is too much at once: one after the other
                going = going[:1]
                count = self._longest(going)
            if count:
                self._add(going, count)
            else:
                self._rests[going[0]].narrow(lambda part: self._fill([part]) <= 1)
            if len(self._rounds) > MOST_ROUNDS:
                raise TooMany([rest.chunk for rest in self._rests])
        return self._rounds

    def _longest(self, going: Sequence[int]) -> int:
        """Return how many of the rows that come next fit, of the chunk that has most; of the others as large a share."""
        most = max(self._rests[number].count for number in going)
        found = longest(most, lambda count: self._need(going, 0, count, most) <= 1, self._guess)
        self._guess = max(1, found)
        return found

    def _parts(self, going: Sequence[int], start: int, stop: int, most: int) -> Round:
        found = []
        for number in going:
            rest = self._rests[number]
            first, last = (-(-count * rest.count // most) for count in (start, stop))
            if first < last:
                found.append((number, rest.part(first, last)))
        return found

    def _need(self, going: Sequence[int], start: int, stop: int, most: int) -> float:
        return self._fill([part for _, part in self._parts(going, start, stop, most)])

    def _add(self, going: Sequence[int], count: int) -> None:
        """Add what fits as two rounds, so that one can be prepared while the other runs; the last may be one."""
        most = max(self._rests[number].count for number in going)
        every = self._parts(going, 0, count, most)
        last = count == most and all(rest.count == 0 for n, rest in enumerate(self._rests) if n not in going)
        if count == 1 or (last and self._beside_the_last(every)):
            self._rounds.append(every)
        else:
            half = self._half(going, count, most)
            self._rounds += [self._parts(going, 0, half, most), self._parts(going, half, count, most)]
        for number in going:
            rest = self._rests[number]
            rest.take(-(-count * rest.count // most))

    def _beside_the_last(self, parts: Round) -> bool:
        """Tell whether parts fit beside the last round, if there is one."""
        before = self._rounds[-1] if self._rounds else []
        return self._fill([part for _, part in (*before, *parts)]) <= 1

    def _half(self, going: Sequence[int], count: int, most: int) -> int:
        """Return where to cut a run of rows, so that both parts need about as much."""
        low, high, middle = 0, count, -(-count // 2)
        while high - low > 1:
            first, second = self._need(going, 0, middle, most), self._need(going, middle, count, most)
            if max(first, second) <= EVEN * min(first, second):
                return middle
            low, high = (low, middle) if first > second else (middle, high)
            middle = (low + high) // 2
        return max(1, middle)


def _numbered(
    task: Task, chunks: Sequence[Chunk], shares: Sequence[Share], found: Sequence[Round]
) -> list[list[RoundPart]]:
    """Give parts their slots, in the order of the index space, and their part of what is known of the chunk."""
    parts: dict[int, list[tuple[int, Chunk]]] = {}
    for number, entry in enumerate(found):
        for which, part in entry:
            parts.setdefault(which, []).append((number, part))
    rounds: list[list[RoundPart]] = [[] for _ in found]
    slot = 0
    for which in sorted(parts, key=lambda which: chunks[which].slot):
        mine = parts[which]
        for place, (number, part) in enumerate(mine):
            share = shares[which] if len(mine) == 1 else _portion(task, chunks[which], part, shares[which])
            rounds[number].append(RoundPart(part._replace(slot=slot), share, place + 1 < len(mine)))
            slot += len(part.pieces) or 1
    every = [part.chunk.box for entry in rounds for part in entry]
    if len(every) > len(chunks) and not _independent(task, every):
        raise Together(chunks)
    return rounds


def _independent(task: Task, boxes: Sequence[Box]) -> bool:
    """Tell whether no part touches what another one writes."""
    return however_cut(task) or find_conflict(task, boxes) is None


def _portion(task: Task, chunk: Chunk, part: Chunk, share: Share) -> Share:
    if share.work is None:
        return share
    seconds = None if share.seconds is None else share.seconds * part.box.volume / max(1, chunk.box.volume)
    return share._replace(work=work_of_part(task, part.box), seconds=seconds)
