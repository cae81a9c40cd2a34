"""One trace of ranks that were processes: each wrote its own, by its own clock, and calls its devices as if it were alone.

Before: observe/merging.py.  After: cli/.  Knows rows as plain dicts.

Clocks are aligned by the messages themselves. One from a rank to another and one back bound how far their clocks are apart:
none arrives before it was sent. The quickest of each way say it best; what they leave open is the error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import TraceError
from .merging import Merging, message_key
from .trace import Row, Trace, TraceWriter

TIMES = ("t", "submitted", "ready", "start", "stop")
"""Fields of rows that are seconds since the beginning of a trace."""
PLACES = ("memory", "from", "to")
"""Fields of rows that name memories."""
SHARED = ("host", "network")
"""Lanes that belong to no device."""


class ClockOffset(NamedTuple):
    """How a rank's clock is read: seconds to add for rank 0's time, and how far that may be off."""

    offset: float
    error: float


def rank_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the traces of all ranks in a folder, in their order: run.json, run.rank1.json, ..."""
    place = Path(folder)
    numbered = {path: re.fullmatch(r"(.+)\.rank(\d+)(\.[^.]*)?", path.name) for path in place.iterdir()}
    found = {path: match for path, match in numbered.items() if match is not None}
    firsts = sorted({f"{match[1]}{match[3] or ''}" for match in found.values()})
    if len(firsts) != 1:
        what = (
            "no traces of ranks (run.json, run.rank1.json, ...)" if not firsts else f"several runs: {', '.join(firsts)}"
        )
        raise TraceError(f"{place} holds {what}; name a folder with the traces of one run, or one file")
    ranks = {int(match[2]): path for path, match in found.items()} | {0: place / firsts[0]}
    missing = [rank for rank in range(max(ranks) + 1) if rank not in ranks or not ranks[rank].is_file()]
    if missing:
        raise TraceError(f"{place} lacks the trace of rank {missing[0]}, but has one of rank {max(ranks)}")
    return [ranks[rank] for rank in sorted(ranks)]


def merge_ranks(paths: Sequence[str | os.PathLike[str]], target: str | os.PathLike[str]) -> list[ClockOffset]:
    """Write one trace of those of all ranks, which ran as processes; return how their clocks were aligned."""
    traces = [Trace.load(path) for path in paths]
    ranks = [list(trace.rows) for trace in traces]
    clocks = aligned(ranks)
    begin = min(clock.offset for clock in clocks)
    known = [
        [_renamed(row, rank, clock.offset - begin) for row in rows] for rank, (rows, clock) in _each(ranks, clocks)
    ]
    _begin_when_sent(known)
    writer = TraceWriter(target)
    writer.row(_header([rows[0] for rows in known], clocks, os.fspath(target)))
    merging = Merging(known, [f"n{rank}/host" for rank in range(len(known))])
    for rank, rows in enumerate(known):
        for row in rows:
            for made in merging.row(rank, row):
                writer.row(made)
    ends = [trace.duration + clock.offset - begin for trace, clock in zip(traces, clocks, strict=True)]
    writer.close(max(ends))
    return clocks


def _each(
    ranks: Sequence[Sequence[Row]], clocks: Sequence[ClockOffset]
) -> Iterator[tuple[int, tuple[Sequence[Row], ClockOffset]]]:
    return enumerate(zip(ranks, clocks, strict=True))


def _begin_when_sent(ranks: Sequence[Sequence[Row]]) -> None:
    """Let messages begin when they were sent: receives are posted long before. Times are those of one clock."""
    sent = {key: row["start"] for rows in ranks for key, row in _messages(rows, "send")}
    for rows in ranks:
        for key, row in _messages(rows, "receive"):
            if key in sent:
                row["start"] = min(row["stop"], max(row["start"], sent[key]))
                row["ready"] = min(row["start"], max(row["ready"], sent[key]))


# Clocks -----------------------------------------------------------------------------------------------------------------


def aligned(ranks: Sequence[Sequence[Row]]) -> list[ClockOffset]:
    """Return how each rank's clock is read, by the ways with the least error; a rank without messages is as it is."""
    quickest = _quickest(ranks)
    clocks: dict[int, ClockOffset] = {0: ClockOffset(0.0, 0.0)}
    while True:
        ways = [
            (clocks[near].error + (there + back) / 2, rank, clocks[near].offset + (back - there) / 2)
            for (near, rank), there in quickest.items()
            if near in clocks and rank not in clocks and (back := quickest.get((rank, near))) is not None
        ]
        if not ways:
            break
        error, rank, offset = min(ways)
        clocks[rank] = ClockOffset(offset, error)
    return [clocks.get(rank, ClockOffset(0.0, inf)) for rank in range(len(ranks))]


def _quickest(ranks: Sequence[Sequence[Row]]) -> dict[tuple[int, int], float]:
    """Return the seconds that the quickest message took, by sender and receiver.

    It begins by the sender's clock and ends by the receiver's, which may differ: the result may be negative.
    """
    sent = {key: row["start"] for rows in ranks for key, row in _messages(rows, "send")}
    found: dict[tuple[int, int], float] = {}
    for rows in ranks:
        for key, row in _messages(rows, "receive"):
            if key in sent:
                way = (key[0], key[1])
                found[way] = min(found.get(way, inf), row["stop"] - sent[key])
    return found


def _messages(rows: Sequence[Row], kind: str) -> Iterator[tuple[Any, Row]]:
    """Yield the rows of the messages that one side sent or received, each with the key that both sides know."""
    keys = {row["id"]: message_key(row) for row in rows if row["row"] == "instruction" and row["kind"] == kind}
    for row in rows:
        if row["row"] == "ran" and row["kind"] == kind and row["state"] == "done" and row["id"] in keys:
            yield keys[row["id"]], row


# Names ------------------------------------------------------------------------------------------------------------------


def _renamed(row: Row, rank: int, offset: float) -> Row:
    """Return a row as it is in the trace of all ranks: names with the rank's, times by rank 0's clock."""
    new = dict(row)
    for field in TIMES:
        if isinstance(new.get(field), int | float):
            new[field] = round(new[field] + offset, 9)
    for field in PLACES:
        if isinstance(new.get(field), str):
            new[field] = f"n{rank}/{new[field]}"
    if new.get("device") not in (None, *SHARED):
        new["device"] = f"n{rank}/{new['device']}"
    if isinstance(new.get("chunks"), list):
        new["chunks"] = [_renamed(chunk, rank, 0.0) if isinstance(chunk, dict) else chunk for chunk in new["chunks"]]
    if row.get("row") == "header":
        for part, fields in (("devices", ("name", "memory")), ("memories", ("name",)), ("links", ("from", "to"))):
            new[part] = [{**one, **{field: f"n{rank}/{one[field]}" for field in fields}} for one in row[part]]
    return new


def _header(rows: Sequence[Row], clocks: Sequence[ClockOffset], name: str) -> Row:
    together = {part: [one for row in rows for one in row[part]] for part in ("devices", "memories", "links")}
    offsets = [{"offset_s": clock.offset, "error_s": None if clock.error == inf else clock.error} for clock in clocks]
    options = {**rows[0]["options"], "ranks": len(rows), "trace": name}
    return {**rows[0], **together, "options": options, "clocks": offsets}
