"""Places the nodes of a directed acyclic graph in layers, with few crossings.

Before: nothing.  After: graphs.py.  Knows sizes and edges, not what they mean.

Layers by longest path; long edges are routed through invisible nodes; order within a layer by barycentre, the best of
several sweeps; horizontal places as near as possible (least squares) to the neighbours' without changing the order.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Node = Hashable
Edge = tuple[int, int]
Point = tuple[float, float]

_ROUTED = 4000  # more invisible nodes than this would take too long: the edges then go straight
_BEND = 12.0  # width of an invisible node


class GraphLayout(NamedTuple):
    """Where everything goes. Points are centres, in pixels."""

    nodes: dict[int, Point]
    edges: dict[Edge, list[Point]]  # through which points each edge runs, both ends included
    width: float
    height: float


def layered(
    widths: Mapping[int, float], edges: Sequence[Edge], *, row: float = 40.0, gap: float = 18.0, space: float = 46.0
) -> GraphLayout:
    """Return a layout from top to bottom of nodes of the given widths and of the height `row`.

    `edges` are (from, to) pairs of known nodes, from earlier to later in the order of `widths`; others are ignored.
    """
    layer = _layers(list(widths), edges)
    edges = [(a, b) for a, b in dict.fromkeys(edges) if a in layer and b in layer and layer[a] < layer[b]]
    chains = _chains(edges, layer)
    rows: list[list[Node]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    place: dict[Node, int] = {}
    for node in [*layer, *(bend for chain in chains.values() for bend in chain[1:-1])]:
        at = node[2] if isinstance(node, tuple) else layer[node]  # type: ignore[index]
        place[node] = at
        rows[at].append(node)
    links = [(a, b) for chain in chains.values() for a, b in pairwise(chain)]
    links = [(a, b) for a, b in links if place[b] == place[a] + 1]  # unrouted long edges do not pull
    rows = _ordered(rows, links)
    size = {node: widths[node] if isinstance(node, int) else _BEND for node in place}
    x = _horizontal(rows, links, size, gap)
    left = min((x[n] - size[n] / 2 for n in x), default=0.0)
    middle = {node: (x[node] - left, place[node] * (row + space) + row / 2) for node in place}
    paths = {edge: [middle[node] for node in chain] for edge, chain in chains.items()}
    width = max((middle[n][0] + size[n] / 2 for n in x), default=0.0)
    return GraphLayout({n: middle[n] for n in layer}, paths, width, max(0.0, len(rows) * (row + space) - space))


def _layers(nodes: Sequence[int], edges: Sequence[Edge]) -> dict[int, int]:
    """Return the length of the longest path to each node."""
    order = {node: i for i, node in enumerate(nodes)}
    before: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        if a in order and b in order and order[a] < order[b]:
            before[b].append(a)
    layer: dict[int, int] = {}
    for node in nodes:
        layer[node] = max((layer[a] + 1 for a in before[node]), default=0)
    return layer


def _chains(edges: Sequence[Edge], layer: Mapping[int, int]) -> dict[Edge, list[Node]]:
    """Return each edge as a chain with one invisible node (from, to, layer) per layer it crosses."""
    if sum(layer[b] - layer[a] - 1 for a, b in edges) > _ROUTED:
        return {(a, b): [a, b] for a, b in edges}
    return {(a, b): [a, *((a, b, at) for at in range(layer[a] + 1, layer[b])), b] for a, b in edges}


def _ordered(rows: list[list[Node]], links: Sequence[tuple[Node, Node]]) -> list[list[Node]]:
    """Return the rows reordered by barycentre sweeps: the order with the fewest crossings that was seen."""
    up: dict[Node, list[Node]] = defaultdict(list)
    down: dict[Node, list[Node]] = defaultdict(list)
    for a, b in links:
        down[a].append(b)
        up[b].append(a)
    best, fewest = rows, _crossings(rows, down)
    for sweep in range(8):
        if not fewest:
            break
        rows = _sweep(rows, up if sweep % 2 == 0 else down, reverse=sweep % 2 == 1)
        count = _crossings(rows, down)
        if count < fewest:
            best, fewest = rows, count
    return best


def _sweep(rows: list[list[Node]], neighbours: Mapping[Node, list[Node]], reverse: bool) -> list[list[Node]]:
    rows = [list(row) for row in rows]
    position = {node: float(i) for row in rows for i, node in enumerate(row)}
    for row in reversed(rows) if reverse else rows:
        centre = {
            n: sum(position[m] for m in near) / len(near) if (near := neighbours.get(n)) else position[n] for n in row
        }
        row.sort(key=lambda node: centre[node])
        position.update((node, float(i)) for i, node in enumerate(row))
    return rows


def _crossings(rows: list[list[Node]], down: Mapping[Node, list[Node]]) -> int:
    """Return how many pairs of edges between neighbouring layers cross."""
    total = 0
    for upper, lower in pairwise(rows):
        position = {node: i for i, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(position[m] for m in down.get(node, ()))
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _horizontal(
    rows: list[list[Node]], links: Sequence[tuple[Node, Node]], size: Mapping[Node, float], gap: float
) -> dict[Node, float]:
    """Return the centre of each node: its row's order kept, near its neighbours."""
    near: dict[Node, list[Node]] = defaultdict(list)
    for a, b in links:
        near[a].append(b)
        near[b].append(a)
    x: dict[Node, float] = {}
    for row in rows:
        at = 0.0
        for node in row:
            x[node] = at + size[node] / 2
            at += size[node] + gap
        for node in row:  # every row begins centred
            x[node] -= (at - gap) / 2
    for sweep in range(10):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wish = [sum(x[m] for m in near[n]) / len(near[n]) if near.get(n) else x[n] for n in row]
            weight = [4.0 if isinstance(n, tuple) else 1.0 for n in row]  # straight long edges first
            x.update(zip(row, _spread(wish, weight, [size[n] for n in row], gap), strict=True))
    return x


def _spread(wish: Sequence[float], weight: Sequence[float], size: Sequence[float], gap: float) -> list[float]:
    """Return centres in the given order, at least `gap` apart, that miss the wishes by the least weighted squares."""
    offset = [0.0]
    for i in range(1, len(wish)):
        offset.append(offset[-1] + (size[i - 1] + size[i]) / 2 + gap)
    pools: list[tuple[float, float, int]] = []  # (mean, weight, members): pool adjacent violators
    for i in range(len(wish)):
        mean, mass, members = wish[i] - offset[i], weight[i], 1
        while pools and pools[-1][0] > mean:
            other, more, count = pools.pop()
            mean, mass, members = (mean * mass + other * more) / (mass + more), mass + more, members + count
        pools.append((mean, mass, members))
    return [mean + off for mean, off in zip((m for m, _, n in pools for _ in range(n)), offset, strict=True)]
