"""Pieces that fit into a cache: chosen when measured to be faster, cut evenly, joined in runs, never lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.geometry import Box, cut
from coexec.graph.command import Chunk
from coexec.machine.platform import Device
from coexec.ops.conv2d import ConvolutionWindow, conv2d_kernel
from coexec.ops.matmul import product_kernel
from coexec.plan.candidate import Candidate
from coexec.plan.division.pieces import GAIN, LOOKS, WORTH_A_LOOK, Blocking
from coexec.plan.split import blocks, deal, in_cache, in_runs, tiles
from coexec.predict.model import KernelModel
from coexec.predict.work import Work
from coexec.program.variant import Variant
from tests.inside import planner_of

CACHE = 1000
LARGE = Work((10.0 * CACHE,))
SMALL = Work((2.0 * CACHE,))
PYTHON = Variant("python", "python")


class Known:
    """A model that knows one time."""

    def __init__(self, seconds: float | None, measured: int = LOOKS) -> None:
        self._seconds, self._measured = seconds, measured

    def seconds(self, work: Work) -> float | None:
        return self._seconds

    def measured(self, work: Work) -> int:
        return self._measured


def candidate(model: Any, name: str = "cpu:0", *, blocked: bool = False) -> Candidate:
    return Candidate(Device(name, "cpu", 0), PYTHON, model, blocked=blocked)


def chosen(plain: Any, twin: Any, work: Work = LARGE) -> bool:
    """Return whether pieces are chosen."""
    (answer,) = Blocking(CACHE).choose([candidate(plain)], [candidate(twin, blocked=True)], work)
    return answer.blocked


def test_the_faster_way_is_chosen_and_pieces_must_be_faster_by_some() -> None:
    assert chosen(Known(1.0), Known(0.5))
    assert not chosen(Known(1.0), Known(2.0))
    assert not chosen(Known(1.0), Known(GAIN + 0.01))


def test_a_way_that_is_being_tried_is_said_to_be_until_it_is_measured_or_was_tried_in_vain() -> None:
    def trying(plain: Any, twin: Any, work: Work = LARGE, calls: int = 1) -> bool:
        blocking, candidates = Blocking(CACHE), ([candidate(plain)], [candidate(twin, blocked=True)])
        for _ in range(calls):
            blocking.choose(*candidates, work)
        return blocking.trying

    assert trying(Known(None), Known(None)) and trying(Known(1.0), Known(None)) and trying(Known(1.0, 0), Known(1.0))
    assert not trying(Known(1.0), Known(0.5)) and not trying(Known(1.0), Known(None), SMALL)
    assert not trying(Known(None), Known(None), calls=5 * LOOKS)
    assert not trying(Known(1.0), Known(None), calls=5 * LOOKS)


def test_what_fits_into_the_cache_stays_whole() -> None:
    assert not chosen(Known(1.0), Known(0.5), SMALL)


def test_each_way_is_looked_at_twice_before_one_is_preferred() -> None:
    blocking = Blocking(CACHE)
    plain, twin = candidate(Known(1.0, 0)), candidate(Known(None, 0), blocked=True)
    answers = [blocking.choose([plain], [twin], LARGE)[0].blocked for _ in range(2 * LOOKS)]
    assert answers == [False] * LOOKS + [True] * LOOKS


def test_pieces_that_are_never_measured_are_given_up() -> None:
    blocking = Blocking(CACHE)
    plain, twin = candidate(Known(1.0)), candidate(Known(None, 0), blocked=True)
    answers = [blocking.choose([plain], [twin], LARGE)[0].blocked for _ in range(20)]
    assert answers == [True] * (2 * LOOKS) + [False] * (20 - 2 * LOOKS)


def test_what_is_quick_is_not_worth_a_look() -> None:
    assert not chosen(Known(0.9 * WORTH_A_LOOK), Known(None, 0))
    assert chosen(Known(1.1 * WORTH_A_LOOK), Known(None, 0))


def test_each_device_is_chosen_for_by_itself() -> None:
    plain = [candidate(Known(1.0)), candidate(Known(1.0), "cpu:1"), candidate(Known(1.0), "gpu:0")]
    twins = [candidate(Known(0.5), blocked=True), candidate(Known(2.0), "cpu:1", blocked=True)]
    assert [c.blocked for c in Blocking(CACHE).choose(plain, twins, LARGE)] == [True, False, False]
    assert Blocking(CACHE).choose(plain, [], LARGE) == plain


def test_a_real_model_of_pieces_is_kept_apart_from_that_of_the_whole() -> None:
    with cx.Runtime("cpu:0") as runtime:
        kernel = cx.kernel(split=0, x=cx.update)(lambda x: None)
        whole, pieces, _ = planner_of(runtime)._candidates.of(kernel, None)
        assert isinstance(whole[0].model, KernelModel)
        assert whole[0].model is not pieces[0].model
        assert [c.blocked for c in (*whole, *pieces)] == [False, True]


@pytest.mark.parametrize(
    "declared",
    [
        {"x": cx.update},
        {"split": 0, "x": cx.read(cx.halo(1, border="wrap")), "y": cx.write},
        {"split": 0, "over": "x", "x": cx.read, "y": cx.reduce("sum")},
        {"split": 0, "over": "x", "x": cx.read, "y": cx.update(cx.all)},
    ],
    ids=["no split", "padded", "reduction", "wide output"],
)
def test_some_kernels_are_never_cut_into_pieces(declared) -> None:
    with cx.Runtime("cpu:0") as runtime:
        body = (lambda x, y: None) if "y" in declared else (lambda x: None)
        assert not planner_of(runtime)._candidates.of(cx.kernel(**declared)(body), None).blocked


# Cuts -------------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 100), st.integers(0, 50), st.floats(0, 1e6), st.integers(1, 10**4))
def test_pieces_tile_a_chunk_and_fit(rows, first, nbytes, cache) -> None:
    chunk = Chunk("cpu:0", Box((first, 0), (first + rows, 3)), 4)
    cut_up = in_cache(chunk, 0, nbytes, cache)
    assert cut_up[:3] == chunk[:3]
    if not cut_up.pieces:
        assert nbytes < cache or rows == 1
        return
    assert tiles(chunk.box, cut_up.pieces)
    largest = max(piece.volume for piece in cut_up.pieces) / chunk.box.volume
    assert len(cut_up.pieces) == rows or nbytes * largest <= cache * (1 + len(cut_up.pieces) / rows)


@given(st.integers(1, 40), st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.sets(st.sampled_from("abc")))
def test_runs_keep_every_block_its_device_and_its_slot(count, owners, loops) -> None:
    parts = cut(Box((0,), (80,)), 0, count)
    chunks = [Chunk(owners[i % len(owners)], part, i) for i, part in enumerate(parts)]
    joined = in_runs(chunks, loops)
    seen = []
    for chunk in joined:
        pieces = chunk.pieces or (chunk.box,)
        assert len(pieces) == 1 or chunk.device in loops
        assert tiles(chunk.box, pieces)
        seen += [Chunk(chunk.device, piece, chunk.slot + n) for n, piece in enumerate(pieces)]
    assert seen == chunks
    assert all(a.device != b.device or a.device not in loops for a, b in pairwise(joined))


def test_blocks_are_dealt_by_their_middles() -> None:
    parts = blocks(Box((0,), (1 << 20,)), 0)
    dealt = deal(parts, 0, ["a", "b"], (0, 1 << 18, 1 << 20))
    assert [chunk.device for chunk in dealt] == ["a"] * 8 + ["b"] * 24


def test_tiles_are_told_from_gaps_overlaps_and_strangers() -> None:
    whole = Box((0, 0), (4, 4))
    left, right = Box((0, 0), (4, 2)), Box((0, 2), (4, 4))
    assert tiles(whole, [left, right]) and tiles(whole, [whole])
    for parts in ([left], [left, left], [left, whole], [left, Box((0, 2), (4, 5))], [Box((0,), (16,))], []):
        assert not tiles(whole, parts)
    assert tiles(Box((), ()), [Box((), ())])
    assert tiles(Box((0,), (0,)), [Box((0,), (0,))])


def test_a_call_with_one_array_twice_stays_whole() -> None:
    class Always(Blocking):
        def choose(self, candidates: Any, blocked: Any, work: Work) -> list[Candidate]:
            return list(blocked)

    smooth = cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.update)(_smooth)
    data = np.arange(100.0)
    with cx.Runtime("cpu:0") as runtime:
        planner_of(runtime)._blocking = Always(64)
        u, out = cx.array(data), cx.array(data)
        assert "pieces" in smooth.plan(u, out).why
        assert "pieces" not in smooth.plan(u, u).why
        smooth(u, u)
        _smooth(expected := data.copy(), expected)
        np.testing.assert_array_equal(np.asarray(u), expected)


def _smooth(u: Any, out: Any) -> None:
    out[1:-1] = u[2:][: len(out) - 2] + u[:-2][: len(out) - 2]


def test_what_was_tried_with_little_work_says_nothing_about_much() -> None:
    blocking = Blocking(CACHE)
    plain, twin = candidate(Known(1.0)), candidate(Known(0.5, 0), blocked=True)
    more = Work((64.0 * LARGE.size, *LARGE.features[1:]))
    tried = []
    for work in (LARGE, more):
        for _ in range(2 * LOOKS):
            blocking.choose([plain], [twin], work)
            tried.append(blocking.trying)
    assert tried == 2 * ([True] * LOOKS + [False] * LOOKS)


def test_products_and_convolutions_keep_to_caches_by_themselves() -> None:
    with cx.Runtime("cpu:0") as runtime:
        for kernel in (
            product_kernel("float32", 2),
            conv2d_kernel("float32", ConvolutionWindow((1, 1), (1, 1), (1, 1), (3, 3), (8, 8))),
        ):
            assert planner_of(runtime)._candidates.of(kernel, None).blocked == []
