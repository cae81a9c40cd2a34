"""One trace of the traces of several ranks: ids made distinct, and each message one copy from host to host.

Before: observe/trace.py, machine/platform.py.  After: ranked.py.  Knows rows as plain dicts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..machine.platform import HOST, Platform
from .trace import Row, Trace, TraceWriter

LANES = 64  # of each rank's host


def merge(paths: Sequence[str | os.PathLike[str]], target: str | os.PathLike[str], platform: Platform) -> None:
    """Write one trace to `target` of the traces of all ranks, in their order; `platform` is all of them together."""
    ranks = [Trace.load(path) for path in paths]
    writer = TraceWriter(target)
    for row in merged([trace.rows for trace in ranks], platform, os.fspath(target)):
        writer.row(row)
    writer.close(max(trace.duration for trace in ranks))


def merge_away(paths: Sequence[str | os.PathLike[str]], target: str | os.PathLike[str], platform: Platform) -> None:
    """Write one trace of the traces of all ranks, and remove those."""
    merge(paths, target, platform)
    for path in paths:
        Path(path).unlink()


def merged(ranks: Sequence[Iterable[Row]], platform: Platform, name: str = "") -> Iterator[Row]:
    """Yield the rows of one trace of those of all ranks."""
    everything = [list(rows) for rows in ranks]
    yield _header([rows[0] for rows in everything], platform, name)
    hosts = [platform.memories[_host(platform, rank)].name for rank in range(len(everything))]
    merging = Merging(everything, hosts, platform)
    for rank, rows in enumerate(everything):
        for row in rows:
            yield from merging.row(rank, row)


class Merging:
    """Renames the rows of ranks. Number n of rank r becomes n * ranks + r."""

    def __init__(self, ranks: Sequence[Sequence[Row]], hosts: Sequence[str], platform: Platform | None = None) -> None:
        """`hosts` are the names of the ranks' host memories; `platform`, if there is one, knows the links between them."""
        self._count = len(ranks)
        self._hosts, self._platform = hosts, platform
        self._links: set[tuple[Any, ...]] = set()
        self._sends = {
            message_key(row): (rank, row) for rank, rows in enumerate(ranks) for row in rows if _is(row, "send")
        }
        received = {
            message_key(row): (rank, row) for rank, rows in enumerate(ranks) for row in rows if _is(row, "receive")
        }
        self._instead = {
            (rank, row["id"]): self._name(received[key][0], received[key][1]["id"])
            for key, (rank, row) in self._sends.items()
            if key in received
        }

    def _name(self, rank: int, id: int) -> int:
        return id * self._count + rank

    def _instruction(self, rank: int, id: int) -> int:
        """Return the name of an instruction; the receive of a message stands for its send."""
        return self._instead.get((rank, id), self._name(rank, id))

    def row(self, rank: int, row: Row) -> Iterator[Row]:
        """Yield what a row of one rank becomes."""
        kind = row["row"]
        if kind == "link":
            yield from self._link(row)
        elif kind == "simulation":
            if not rank:
                yield {**row, "nodes": self._count}
        elif kind in ("instruction", "ran"):
            if row["kind"] == "receive":
                yield from self._message(rank, row)
            elif row["kind"] != "send":  # its receive stands for both
                yield self._renamed(rank, row)
        elif kind not in ("header", "end"):
            yield self._of_task(rank, row)

    def _of_task(self, rank: int, row: Row) -> Row:
        new = dict(row)
        for field in ("id", "task"):
            if new.get(field) is not None:
                new[field] = self._name(rank, new[field])
        if "after" in new:
            new["after"] = [self._name(rank, id) for id in new["after"]]
        return new

    def _renamed(self, rank: int, row: Row) -> Row:
        new = {**row, "id": self._instruction(rank, row["id"])}
        if row.get("task") is not None:
            new["task"] = self._name(rank, row["task"])
        for field in ("needs", "after"):
            if field in new:
                new[field] = [self._instruction(rank, id) for id in new[field]]
        if new.get("lane", -1) >= 0 and new["device"] == "host":
            new["lane"] += LANES * rank
        return new

    def _message(self, rank: int, row: Row) -> Iterator[Row]:
        """Yield a receive as a copy from the sender's host, which comes after whatever the send comes after."""
        new = self._renamed(rank, row) | {"kind": "copy", "name": "message", "device": "host"}
        if row["row"] == "ran":
            yield {**new, "lane": LANES * rank + LANES // 2 + row["lane"] % (LANES // 2)}
            return
        sender, send = self._sends.get(message_key(row), (row["from_rank"], {"needs": [], "after": []}))
        for field in ("needs", "after"):
            new[field] = [*new[field], *[self._instruction(sender, id) for id in send[field]]]
        names = self._hosts[sender], self._hosts[rank]
        yield from self._wire(sender, rank)
        yield new | {"from": names[0], "to": names[1], "reason": "message"}

    def _wire(self, sender: int, rank: int) -> Iterator[Row]:
        """Yield the link between the hosts of two ranks, if it is known."""
        if self._platform is None:
            return
        link = self._platform.link(_host(self._platform, sender), _host(self._platform, rank))
        if link is not None:
            wire = {"row": "link", "from": self._hosts[sender], "to": self._hosts[rank], "name": link.name}
            rates = {"shared": link.shared, "latency_s": link.latency, "bytes_per_s": link.bandwidth}
            yield from self._link({**wire, **rates})

    def _link(self, row: Row) -> Iterator[Row]:
        ends = (row["from"], row["to"])
        if ends not in self._links:
            self._links.add(ends)
            yield row


def _is(row: Row, kind: str) -> bool:
    return bool(row["row"] == "instruction" and row["kind"] == kind)


def message_key(row: Row) -> tuple[Any, ...]:
    """Return the key by which the sender and the receiver of a message both know it; it begins with their ranks."""
    return (row["from_rank"], row["to_rank"], *row["message"])


def _header(rows: Sequence[Row], platform: Platform, name: str) -> Row:
    """Return the header of the whole: devices are those that ranks use."""
    used = [device for row in rows for device in row["devices"]]
    options = {**rows[0]["options"], "ranks": len(rows), "trace": name}
    return {**rows[0], **platform.as_dict(), "devices": used, "options": options}


def _host(platform: Platform, rank: int) -> int:
    return HOST if platform.topology is None else platform.topology.memory(rank, HOST)
