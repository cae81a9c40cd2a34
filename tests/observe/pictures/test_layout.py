"""The layered layout keeps its promises on any graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from coexec.observe.pictures.layout import _spread, layered

shapes = st.lists(st.sets(st.integers(0, 24), max_size=4), max_size=25)


def graph_of(shape: list[set[int]]) -> tuple[dict[int, float], list[tuple[int, int]]]:
    widths = {i: 60.0 + 10 * (i % 5) for i in range(len(shape))}
    return widths, [(a, b) for b, edges in enumerate(shape) for a in sorted(edges) if a < b]


@settings(deadline=None)
@given(shapes)
def test_edges_point_down_and_boxes_never_overlap(shape: list[set[int]]) -> None:
    widths, edges = graph_of(shape)
    plan = layered(widths, edges, row=40, gap=18)
    for a, b in edges:
        assert plan.nodes[a][1] < plan.nodes[b][1]
        assert plan.edges[a, b][0] == plan.nodes[a] and plan.edges[a, b][-1] == plan.nodes[b]
        assert all(p[1] < q[1] for p, q in pairwise(plan.edges[a, b]))
    rows: dict[float, list[int]] = {}
    for node, (_, y) in plan.nodes.items():
        rows.setdefault(y, []).append(node)
    for row in rows.values():
        row.sort(key=lambda n: plan.nodes[n][0])
        for a, b in pairwise(row):
            assert plan.nodes[b][0] - plan.nodes[a][0] >= (widths[a] + widths[b]) / 2 + 18 - 1e-6
    for node, (x, y) in plan.nodes.items():
        assert widths[node] / 2 - 1e-6 <= x <= plan.width - widths[node] / 2 + 1e-6 and 0 <= y <= plan.height


def test_a_chain_is_straight_and_a_layer_is_the_longest_path() -> None:
    plan = layered({0: 50.0, 1: 50.0, 2: 50.0}, [(0, 1), (1, 2), (0, 2)], row=40, space=40)
    assert [plan.nodes[n][1] for n in range(3)] == [20, 100, 180]
    assert len(plan.edges[0, 2]) == 3, "the long edge is led around the node between"


def test_crossed_edges_are_uncrossed() -> None:
    plan = layered(dict.fromkeys(range(4), 50.0), [(0, 3), (1, 2)])
    assert plan.nodes[3][0] < plan.nodes[2][0]


def test_unknown_backward_and_repeated_edges_do_no_harm() -> None:
    plan = layered({0: 50.0, 1: 50.0}, [(0, 1), (0, 1), (1, 0), (7, 1)])
    assert list(plan.edges) == [(0, 1)]
    assert layered({}, []).nodes == {}


def test_places_wanted_by_several_are_shared_around_the_middle() -> None:
    assert _spread([10.0, 10.0], [1.0, 1.0], [4.0, 4.0], 2.0) == pytest.approx([7.0, 13.0])
    assert _spread([0.0, 100.0], [1.0, 1.0], [4.0, 4.0], 2.0) == [0.0, 100.0]
