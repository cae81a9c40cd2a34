"""Shardings: what is cut, held in copies, moved; and every legal one computes what the whole layer computes."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.models.loops import CONV, FC, LSTM, Loops, WorkLayer
from coexec.models.sharding import (
    CIN,
    COUT,
    INPUT,
    OUTPUT,
    ROWS,
    WEIGHTS,
    WHOLE,
    Rotation,
    Sharding,
    copies,
    part,
    placed,
    rotations,
    shardings,
    tensor_dims,
    volumes,
)
from tests.models.sharded import ShardedConv, conv2d


def conv(cout=8, cin=8, rows=8, columns=8, taps=3, stride=1, groups=1, batch=1) -> WorkLayer:
    loops = Loops(batch, cout, cin // groups, rows, columns, taps, taps)
    return WorkLayer("conv", CONV, loops, stride=(stride, stride), groups=groups)


def cut(**factors: int) -> Sharding:
    names = ("batch", "cout", "cin", "rows", "columns", "kh", "kw")
    return Sharding(tuple(factors.get(name, 1) for name in names))  # type: ignore[arg-type]


def run(layer: WorkLayer, sharding: Sharding, pad: int, shape: tuple[int, int]) -> ShardedConv:
    random = np.random.default_rng(0)
    loops = layer.loops
    x = random.standard_normal((loops.batch, layer.channels, *shape))
    w = random.standard_normal((loops.cout, loops.cin, loops.kh, loops.kw))
    sharded = ShardedConv(layer, sharding, x, w, pad)
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    np.testing.assert_allclose(sharded.run(), conv2d(padded, w, layer.stride, layer.groups), rtol=1e-9, atol=1e-9)
    return sharded


def input_shape(layer: WorkLayer, pad: int) -> tuple[int, int]:
    sizes = [(n - 1) * s + k - 2 * pad for n, s, k in zip(layer.loops[3:5], layer.stride, layer.loops[5:], strict=True)]
    return max(sizes[0], 1), max(sizes[1], 1)


@settings(max_examples=150, deadline=None)
@given(
    st.data(), st.integers(1, 7), st.integers(1, 6), st.integers(1, 7), st.integers(1, 7), st.integers(1, 3),
    st.integers(1, 2), st.integers(1, 3), st.sampled_from([1, 2, 3, 4, 6, 8]),
)  # fmt: skip
def test_every_sharding_computes_what_the_whole_layer_computes(
    data, cout, cin, rows, columns, taps, stride, batch, parts
) -> None:
    groups = data.draw(st.sampled_from([g for g in range(1, 7) if cout % g == 0 and cin % g == 0]))
    layer = conv(cout, cin, rows, columns, taps, stride, groups, batch)
    pad = data.draw(st.integers(0, taps // 2)) if min(rows, columns) > 1 else 0
    sharding = data.draw(st.sampled_from(shardings(layer, parts)))
    run(layer, sharding, pad, input_shape(layer, pad))


@pytest.mark.parametrize("sharding", shardings(conv(4, 4, 4, 4, 3), 4), ids=str)
def test_each_sharding_of_a_small_layer_over_four_is_right(sharding: Sharding) -> None:
    run(conv(4, 4, 4, 4, 3), sharding, 1, (4, 4))


def test_more_parts_than_rows_leave_some_without_work() -> None:
    layer = conv(rows=3)
    run(layer, cut(rows=4), 1, (3, 8))
    assert all(s.factors[ROWS] <= 3 for s in shardings(layer, 4))


CUTS = {  # what is cut, what is held in copies, whether sums are added up
    "cout": ({WEIGHTS, OUTPUT}, {INPUT}, False),
    "rows": ({INPUT, OUTPUT}, {WEIGHTS}, False),
    "columns": ({INPUT, OUTPUT}, {WEIGHTS}, False),
    "cin": ({INPUT, WEIGHTS}, {OUTPUT}, True),
    "kh": ({WEIGHTS}, {INPUT, OUTPUT}, True),
    "kw": ({WEIGHTS}, {INPUT, OUTPUT}, True),
    "batch": ({INPUT, OUTPUT}, {WEIGHTS}, False),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_changes_exactly_the_tensors_that_have_the_dimension(name: str) -> None:
    layer, sharding = conv(batch=2), cut(**{name: 2})
    changed, same, summed = CUTS[name]
    for tensor in (INPUT, WEIGHTS, OUTPUT):
        assert (copies(layer, sharding.factors, tensor) == 1) == (tensor in changed)
        assert (copies(layer, sharding.factors, tensor) == 2) == (tensor in same)
    found, whole = volumes(layer, sharding), volumes(layer, WHOLE)
    assert (found.reduced > 0) == summed
    assert (found.weights < whole.weights) == (WEIGHTS in changed)
    assert (found.input < whole.input) == (INPUT in changed)
    assert (found.output < whole.output) == (OUTPUT in changed)


def test_one_accelerator_moves_nothing_and_has_nothing_to_rotate() -> None:
    layer = conv()
    assert shardings(layer, 1) == [WHOLE]
    found = volumes(layer, WHOLE)
    assert (found.phases, found.ring, found.reduced, found.halo) == (1, 0, 0, 0)


def test_sums_are_added_up_within_the_group_that_has_the_same_part_of_the_output() -> None:
    layer = conv(cout=8, cin=8)
    sharding = cut(cout=2, cin=4)
    found = volumes(layer, sharding)
    output = 8 * 8 * 8
    assert found.reduced == 2 * 3 / 4 * output / 2
    assert max(run(layer, sharding, 1, (8, 8)).sent.sums) == found.reduced


def test_a_cut_of_rows_moves_the_rows_around_each_inner_boundary() -> None:
    layer = conv(rows=12)
    sharded = run(layer, cut(rows=4), 1, (12, 8))
    row = 8 * 8  # columns x channels
    assert sharded.sent.halo == [row, 2 * row, 2 * row, row]
    assert volumes(layer, cut(rows=4)).halo == 2 * row == max(sharded.sent.halo)
    assert sum(sharded.sent.halo) == 3 * 2 * row  # per inner boundary: as many rows as the kernel is larger than a step


def test_a_step_as_large_as_the_kernel_needs_no_neighbours() -> None:
    layer = WorkLayer("c", CONV, Loops(1, 4, 4, 4, 4, 2, 2), stride=(2, 2))
    assert volumes(layer, cut(rows=2)).halo == 0
    assert sum(run(layer, cut(rows=2), 0, (8, 8)).sent.halo) == 0


@pytest.mark.parametrize(
    ("sharding", "stored"),
    [
        (Sharding(cut(rows=4).factors, Rotation(WEIGHTS, COUT)), "weights"),
        (Sharding(cut(rows=4).factors, Rotation(WEIGHTS, CIN)), "weights"),
        (Sharding(cut(cout=4).factors, Rotation(INPUT, CIN)), "input"),
    ],
    ids=str,
)
def test_a_tensor_that_rotates_is_stored_once_and_passes_everybody(sharding: Sharding, stored: str) -> None:
    layer = conv(cout=8, cin=8, rows=8)
    found, without = volumes(layer, sharding), volumes(layer, Sharding(sharding.factors))
    assert getattr(found, stored) * 4 == getattr(without, stored)
    assert found.phases == 4 and found.ring == getattr(found, stored)
    assert prod(found.nest) * 4 == prod(without.nest)
    sharded = run(layer, sharding, 1, (8, 8))
    assert sharded.sent.ring == [3 * found.ring] * 4


def test_the_input_may_rotate_by_rows_with_the_rows_next_to_each_part() -> None:
    layer = conv(rows=12)
    sharding = Sharding(cut(cout=4).factors, Rotation(INPUT, ROWS))
    found = volumes(layer, sharding)
    assert found.ring == (3 + 2) * 8 * 8
    assert max(run(layer, sharding, 1, (12, 8)).sent.ring) <= 3 * found.ring


def test_only_copies_rotate_and_only_along_whole_dimensions() -> None:
    layer = conv()
    assert set(rotations(layer, cut(rows=4).factors)) == {Rotation(WEIGHTS, COUT), Rotation(WEIGHTS, CIN)}
    assert {str(r) for r in rotations(layer, cut(cout=4).factors)} == {
        "input by cin",
        "input by rows",
        "input by columns",
    }
    assert set(rotations(layer, cut(cin=4).factors)) == set()
    assert set(rotations(conv(groups=8), cut(rows=4).factors)) == set()


def test_groups_are_cut_whole_and_take_their_input_along() -> None:
    layer = conv(cout=12, cin=6, groups=6)
    assert {s.factors[COUT] for s in shardings(layer, 4)} == {1, 2, 4}
    assert tensor_dims(layer, INPUT)[1] == COUT
    found = volumes(layer, cut(cout=4))
    assert (found.nest[COUT], found.input) == (4, 2 * 8 * 8)


def test_keys_rotate_within_each_head_and_a_recurrent_layer_exchanges_its_state_each_step() -> None:
    scores = WorkLayer("scores", FC, Loops(1, 2 * 12, 4, 12, 1), groups=2, inputs=(12, 1), parameters=0)
    ring = Sharding(cut(rows=4).factors, Rotation(WEIGHTS, COUT))
    assert ring in shardings(scores, 4)
    found = volumes(scores, ring)
    assert (found.ring, found.weights, found.nest[COUT]) == (2 * 3 * 4, 0, 2 * 3)
    lstm = WorkLayer("lstm", LSTM, Loops(1, 64, 24, 1, 1), steps=10)
    assert {s.rotation for s in shardings(lstm, 4)} == {None}
    assert (volumes(lstm, cut(cout=4)).steps, volumes(lstm, cut(cout=4)).halo) == (10, 3 * 16)


@given(st.integers(0, 50), st.integers(1, 9))
def test_parts_follow_each_other_and_differ_by_one_at_most(size: int, parts: int) -> None:
    spans = [part(size, parts, i) for i in range(parts)]
    assert spans[0][0] == 0 and spans[-1][1] == size
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    assert max(b - a for a, b in spans) - min(b - a for a, b in spans) <= 1


def test_a_rotating_input_lies_cut_among_its_holders() -> None:
    layer = conv()
    lies = placed(layer, Sharding(cut(cout=2, rows=2).factors, Rotation(INPUT, CIN)), INPUT)
    assert lies.factors == (1, 2, 2, 1)
    assert lies.at == ((0, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (0, 1, 1, 0))
    assert lies.copies == 1 and placed(layer, cut(cout=2, rows=2), INPUT).copies == 2
