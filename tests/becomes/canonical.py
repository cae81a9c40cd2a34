"""What a run became, told without the numbers that it was given: from the rows of its trace to one record.

Nodes are what computes or is seen: kernels, host tasks, reductions, and reads of the host. Each is named by its task (by
order of submission, not counting horizons and the like), kind and device; several alike are told apart by their order.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

Row = dict[str, Any]
NODES = ("kernel", "host task", "reduce", "fence")
DIGEST = 16  # hexadecimal digits: 64 bits, so that no two of a million records are the same by chance


class Node(NamedTuple):
    """One instruction of the order that is compared."""

    task: int  # how many tasks came before its own
    kind: str
    device: str
    number: int  # among those of the same task, kind and device
    name: str

    def __str__(self) -> str:
        return f"{self.task} {self.name} {self.kind} {self.device} {self.number}"


class Become(NamedTuple):
    """What a run became."""

    nodes: list[Node]  # in their order
    before: list[list[int]]  # of each node, those that must be over first
    feeds: list[list[int]]  # of each node, those whose failure it shares
    parts: list[Any]  # of each task: its name, and which device computes which box
    counts: dict[str, list[int]]  # of each kind and place: how many, and how many bytes
    ended: dict[str, int]  # how many instructions of each kind were done, failed or cancelled


def digest(what: Any) -> str:
    """Return a short text that stands for a value."""
    text = json.dumps(what, separators=(",", ":"), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST // 2).hexdigest()


def become(rows: Iterable[Row]) -> Become:
    """Return what the rows of one trace tell."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row["row"]].append(row)
    instructions = {row["id"]: row for row in kinds["instruction"]}
    names = {row["id"]: row["name"] for row in kinds["task"]}
    nodes = _nodes(instructions.values(), names)
    order = {id: number for number, id in enumerate(nodes)}
    tasks = {instructions[id]["task"]: node.task for id, node in nodes.items()}
    return Become(
        list(nodes.values()),
        _closure(instructions, order, ("needs", "after")),
        _closure(instructions, order, ("needs",)),
        _parts(kinds["command"], tasks, names),
        _counts(instructions.values()),
        dict(sorted(Counter(f"{row['kind']} {row['state']}" for row in kinds["ran"]).items())),
    )


def _nodes(instructions: Iterable[Row], names: dict[int, str]) -> dict[int, Node]:
    """Return the nodes by id, in their order."""
    chosen = sorted((row for row in instructions if row["kind"] in NODES), key=lambda row: row["id"])
    tasks = {id: rank for rank, id in enumerate(sorted({row["task"] for row in chosen}))}
    alike: Counter[tuple[Any, ...]] = Counter()
    nodes = {}
    for row in chosen:
        key = (tasks[row["task"]], row["kind"], row["device"])
        nodes[row["id"]] = Node(*key, alike[key], names.get(row["task"], ""))
        alike[key] += 1
    return dict(sorted(nodes.items(), key=lambda item: item[1]))


def _closure(instructions: dict[int, Row], order: dict[int, int], fields: tuple[str, ...]) -> list[list[int]]:
    """Return, of each node, the nodes from which edges lead to it, over whatever is between."""
    reached: dict[int, int] = {}  # of each instruction a set of nodes, as bits
    for start in instructions:
        stack = [start]
        while stack:
            id = stack[-1]
            row = instructions[id]
            sources = [source for field in fields for source in row[field] if source in instructions]
            if waiting := [source for source in sources if source not in reached]:
                stack += waiting
                continue
            stack.pop()
            bits = 0
            for source in sources:
                bits |= reached[source] | (1 << order[source] if source in order else 0)
            reached[id] = bits
    return [[bit for bit in range(len(order)) if reached[id] >> bit & 1] for id in order]


def _parts(commands: list[Row], tasks: dict[int, int], names: dict[int, str]) -> list[Any]:
    """Return which device computes which box of each task."""
    found: dict[int, list[Any]] = defaultdict(list)
    for row in commands:
        if row["chunks"] and row["task"] in tasks:
            found[row["task"]] += [[chunk["device"], chunk["lo"], chunk["hi"]] for chunk in row["chunks"]]
    return [[tasks[task], names.get(task, ""), *sorted(chunks)] for task, chunks in sorted(found.items())]


def _counts(instructions: Iterable[Row]) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {}
    for row in instructions:
        kind = "message" if row.get("reason") == "message" else row["kind"]
        place = f"{row['from']}>{row['to']}" if "from" in row else row.get("memory") or row["device"]
        if kind in NODES:
            place = row["device"]
        entry = counts.setdefault(f"{kind} {place}", [0, 0])
        entry[0] += 1
        entry[1] += row.get("bytes") or 0
    return dict(sorted(counts.items()))


def record(name: str, outcome: str, seen: str, runs: list[Become]) -> Row:
    """Return the record of a program that opened some runtimes, one after the other."""
    return {
        "program": name,
        "outcome": outcome,
        "seen": seen,
        "counts": [run.counts for run in runs],
        "ended": [run.ended for run in runs],
        "parts": digest([run.parts for run in runs]),
        "order": digest([[run.nodes, run.before] for run in runs]),
        "feeds": digest([run.feeds for run in runs]),
    }
