"""Pipelines on ranks: every rank gets the same results, in order, as one rank would; failures and ends, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ClusterError, ItemFailed, ProgramError, RanksDiverge
from coexec.stream.on_ranks import OwnItems, RankStream, dealt
from coexec.stream.travelling import packed, unpacked
from coexec.stream.trees import leaves
from coexec.testing import on_teams
from tests.clusters import cluster

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(split=0, image=cx.read(cx.halo(1, border="edge")), out=cx.write)
def smoothed(image: Any, out: Any) -> None:
    if np.isnan(image).any():
        raise ValueError("nobody took this picture")
    out[...] = (image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:]) / 4


def classify(image: Any, weights: Any) -> Any:
    soft = cx.empty(image.shape, image.dtype)
    smoothed(image, soft)
    scores = cx.matmul(soft, weights)
    return {"scores": scores, "most": float(cx.max(scores)), "kind": ("a", 1)}


WEIGHTS = np.random.default_rng(0).standard_normal((10, 3))
IMAGES = [np.random.default_rng(number).standard_normal((12, 10)) for number in range(11)]


def alike(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert type(a) is type(b)
            np.testing.assert_array_equal(a, b)


def on(ranks: int, program: Any) -> list[Any]:
    def run() -> Any:
        with cx.Runtime("cpu:0", store="off") as runtime:
            return program(runtime)

    return on_teams(ranks, run)


def alone(images: list[Any] = IMAGES) -> list[Any]:
    with cx.Runtime("cpu:0", store="off"):
        return cx.Pipeline(classify, weights=WEIGHTS).map(images)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_ranks_get_all_results_in_order(ranks: int) -> None:
    def program(runtime: cx.Runtime) -> Any:
        weights = cx.array(WEIGHTS)  # a constant that ranks hold together
        with cx.Pipeline(classify, weights=weights) as pipe:
            found = pipe.map(IMAGES)
            pairs = zip(pipe.stream(image for image in IMAGES), IMAGES, strict=False)
            again = [result for result, _ in pairs]  # the stream is left before its end
            at_once = pipe(cx.array(IMAGES[0]))  # arrays of all ranks
            total = float(cx.sum(at_once["scores"]))
            one = len(pipe.map(IMAGES[:1]))
            return found, again, total, one, pipe.map([]), pipe.stats()["items"]

    wanted = alone()
    for found, again, total, one, none, items in on(ranks, program):
        alike(found, wanted)
        alike(again, wanted)
        assert (one, none, items) == (1, [], 0)
        assert total == pytest.approx(wanted[0]["scores"].sum())


def test_ranks_agree_about_the_plan_and_each_follows_its_own() -> None:
    def program(runtime: cx.Runtime) -> Any:
        pipe = cx.Pipeline(classify, weights=WEIGHTS)
        plans = pipe.plan(IMAGES[0])
        results = pipe.map(IMAGES, plan=plans[0])
        assert pipe.stats()["items"] > 0 and "stage" in pipe.explain()
        return [plan.as_dict() for plan in plans], results

    (plans, first), (others, second) = on(2, program)
    assert plans == others and len(plans) == 1
    assert plans[0]["ranks"] == 2 and plans[0]["why"].startswith("each of 2 ranks takes items in turn")
    assert plans[0]["children"][0]["parts"][0]["device"] == "n0/cpu:0"
    alike(first, alone())
    alike(second, first)


@pytest.mark.parametrize("way", ["raise", "skip", "return"])
def test_failures_are_the_same_on_every_rank(way: str) -> None:
    broken = [np.full((12, 10), np.nan) if number in (4, 5) else image for number, image in enumerate(IMAGES)]

    def program(runtime: cx.Runtime) -> Any:
        pipe = cx.Pipeline(classify, weights=WEIGHTS)
        results: list[Any] = []
        raised: list[ItemFailed] = []
        try:
            results.extend(pipe.stream(broken, on_error=way))
        except ItemFailed as error:
            raised.append(error)
        return results, raised, [(failure.index, failure.stage) for failure in pipe.failures]

    wanted = alone()
    for results, raised, failures in on(3, program):
        assert [error.index for error in raised] == ([4] if way == "raise" else [])
        assert all(isinstance(error.__cause__, ValueError) for error in raised)
        assert [index for index, _ in failures] == ([4] if way == "raise" else [4, 5])
        errors = [number for number, result in enumerate(results) if isinstance(result, ItemFailed)]
        assert errors == ([4, 5] if way == "return" else [])
        good = [result for result in results if not isinstance(result, ItemFailed)]
        alike(good, [wanted[number] for number in range(len(IMAGES)) if number not in (4, 5)][: len(good)])
        assert len(good) == (4 if way == "raise" else 9)


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, [2, 4, 8, 16, 32, 32]), (5e-3, [2] * 6), (9e-3, [2] * 6)])
def test_ranks_tell_of_more_items_at_a_time_if_these_are_quick_for_all_of_them(
    seconds: float, rounds: list[int]
) -> None:
    def program(runtime: cx.Runtime) -> Any:
        stream = cast("RankStream", cx.Pipeline(classify, weights=WEIGHTS).stream(IMAGES[0] for _ in range(200)))
        ticks = itertools.count()
        stream._clock = lambda: next(ticks) * (seconds if cx.rank() else 0.0)  # of the slower rank
        sizes = []
        for _ in rounds:
            next(stream)
            sizes.append(1 + len(stream._out))
            stream._out.clear()
        stream.close()
        return sizes

    assert on(2, program) == [rounds] * 2


def test_what_the_iterable_raises_is_told_after_everything_before_it() -> None:
    def camera() -> Iterator[Any]:
        yield from IMAGES[:4]
        raise OSError("the camera is gone")

    def program(runtime: cx.Runtime) -> Any:
        found: list[Any] = []
        with pytest.raises(OSError, match="the camera is gone"):
            found.extend(cx.Pipeline(classify, weights=WEIGHTS).stream(camera()))
        return found

    for found in on(3, program):
        alike(found, alone(IMAGES[:4]))


def test_ranks_that_are_given_unlike_numbers_of_items_are_told() -> None:
    def program(runtime: cx.Runtime) -> Any:
        with pytest.raises(RanksDiverge, match=r"rank 0 has no item 4 and rank 1 has an item 5"):
            cx.Pipeline(classify, weights=WEIGHTS).map(IMAGES[: 4 if cx.rank() == 0 else 8])

    on(2, program)


def test_a_function_that_writes_a_constant_is_refused_on_every_rank() -> None:
    def counted(image: Any, seen: Any) -> Any:
        seen += 1.0
        return image + seen

    def program(runtime: cx.Runtime) -> Any:
        pipe = cx.Pipeline(counted, seen=np.zeros(()))
        with pytest.raises(ProgramError, match="writes a constant"):
            pipe.map(IMAGES, on_error="skip")
        with pytest.raises(ProgramError, match="writes a constant"):
            pipe.plan(IMAGES[0])

    on(2, program)


def test_what_depends_on_what_comes_first_is_refused() -> None:
    def program(runtime: cx.Runtime) -> Any:
        pipe = cx.Pipeline(classify, weights=WEIGHTS)
        with pytest.raises(ArgumentError, match="order='completion' goes by what comes first"):
            pipe.stream(IMAGES, order="completion")
        with pytest.raises(ArgumentError, match="an item has a coexec array"):
            pipe.map([cx.array(IMAGES[0])])
        return len(list(pipe.stream(IMAGES, after=6)))

    assert on(2, program) == [4, 4]


def test_a_result_that_cannot_travel_is_an_error_on_every_rank() -> None:
    def odd(image: Any) -> Any:
        return image + 1.0, {1, 2}

    def program(runtime: cx.Runtime) -> Any:
        with pytest.raises(ArgumentError, match="a set in the result of an item cannot travel"):
            cx.Pipeline(odd).map(IMAGES)

    on(2, program)


# Who computes what, and words ---------------------------------------------------------------------------------------------


@given(shares=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5), items=st.integers(0, 60))
def test_each_item_is_one_ranks_and_ranks_get_as_many_as_their_shares_say(shares: list[float], items: int) -> None:
    mine = [list(OwnItems(range(items), None, dealt(shares), rank)) for rank in range(len(shares))]
    assert sorted(item for own in mine for item in own) == list(range(items))
    for share, own in zip(shares, mine, strict=True):
        assert abs(len(own) - items * share / sum(shares)) <= len(shares)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)  # fmt: skip


@given(TREES)
def test_trees_travel_as_they_are(tree: Any) -> None:
    found = unpacked(packed(tree))
    assert found == tree and type(found) is type(tree)


@pytest.mark.parametrize(
    "data",
    [np.arange(12.0).reshape(3, 4)[:, ::2], np.zeros((0, 3), np.int8), np.array("text"), np.float32(1.5), np.array(2j),
     np.zeros(3, [("a", np.int16), ("b", np.float64, (2,))])],
    ids=lambda data: f"{data.dtype}{data.shape}",
)  # fmt: skip
def test_arrays_travel_with_type_and_shape(data: Any) -> None:
    found = unpacked(packed([data]))[0]
    assert type(found) is type(data) and found.dtype == data.dtype and found.shape == data.shape
    np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize(
    "words", [b"", b"\0" * 8, packed([1])[:-2], packed(np.zeros(3))[:-1], b"\x02" + b"\0" * 7 + b"[]"]
)
def test_bytes_that_are_no_result_are_an_error(words: bytes) -> None:
    with pytest.raises(ClusterError, match="no result of an item"):
        unpacked(words)


def test_ranks_of_a_simulation_are_told_that_they_have_no_pipelines() -> None:
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True), pytest.raises(ProgramError, match="ranks=1"):
        cx.Pipeline(np.tanh).map([np.ones((4, 4))])
