"""A stream's results are those of calling the function item by item, whatever the devices, the order and the window."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ProgramError, UnknownName
from coexec.program import session
from tests.stream.functions import (
    items,
    reads_inside,
    reads_inside_plain,
    running_sum,
    three_calls,
    three_calls_plain,
    weights,
)

MIXES = [
    {"devices": "cpu:0,cpu:1"},
    {"devices": "cpu:0,opencl:0@1"},
    {"devices": "cpu:0,torch:cpu"},
    {"platform": "dype-pcie4", "execute": True},
]


def names(mix: dict[str, Any]) -> str:
    return str(mix.get("devices") or mix["platform"])


def opened(**options: Any) -> cx.Runtime:
    return cx.Runtime(store="off", diagnostics="off", **options)


@pytest.mark.parametrize("mix", MIXES, ids=names)
def test_results_are_those_of_the_function_item_by_item(mix: dict[str, Any]) -> None:
    w, given_items = weights(), items(12)
    order = "completion" if mix.get("platform") else "input"
    with opened(**mix):
        found = cx.Pipeline(three_calls, w=w).map(given_items, order=order)
    expected = [three_calls_plain(item, w) for item in given_items]
    assert len(found) == 12
    if order == "completion":
        found.sort(key=lambda result: float(result["z"].sum()))
        expected.sort(key=lambda result: float(result["z"].sum()))
    for result, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(result["z"], plain["z"], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(result["t"], plain["t"], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mix", MIXES, ids=names)
def test_a_function_that_waits_and_branches_suspends_its_item_only(mix: dict[str, Any]) -> None:
    w, given_items = weights(), items(9)
    with opened(**mix):
        found = cx.Pipeline(reads_inside, w=w).map(given_items)
    for (z, first), item in zip(found, given_items, strict=True):
        plain, plain_first = reads_inside_plain(item, w)
        assert first == plain_first
        np.testing.assert_allclose(z, plain, rtol=1e-4, atol=1e-3)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("coexec-item")]


@settings(max_examples=8, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 5),
    st.sampled_from(["input", "completion"]),
    st.one_of(st.none(), st.integers(1, 9000)),
)
def test_any_window_gives_every_item_once(count: int, ahead: int, order: str, most: int | None) -> None:
    with opened(platform="dype-pcie4", execute=True):
        found = cx.Pipeline(reads_inside, w=weights()).map(items(count), order=order, ahead=(ahead, most))
    assert sorted(first for _, first in found) == sorted(2.0 * (n + 1) for n in range(count))
    if order == "input":
        assert [first for _, first in found] == [2.0 * (n + 1) for n in range(count)]


def test_while_one_item_waits_others_begin() -> None:
    begun: list[float] = []

    def fn(item: Any) -> Any:
        begun.append(1)
        value = float((item + 1)[0, 0])
        begun.append(-1)
        return item * value

    with opened(platform="dype-pcie4", execute=True):
        pipe = cx.Pipeline(fn)
        pipe.plan(items(1)[0])
        begun.clear()
        pipe.map(items(6), ahead=3)
    assert max(np.cumsum(begun)) > 1


def test_a_function_with_a_state_computes_items_in_order() -> None:
    given_items = items(8)
    for mix in ({"platform": "dype-pcie4", "execute": True}, {"devices": "cpu:0,cpu:1"}):
        with opened(**mix):
            pipe = cx.Pipeline(running_sum, total=np.zeros((16, 16), np.float32))
            plans = pipe.plan(given_items[0])
            assert all(stage.policy != "in turn" for plan in plans for stage in plan.stages)
            found = pipe.map(given_items)
            assert "writes a constant" in pipe.explain()
            assert "functions.py" in pipe.explain()
        for result, expected in zip(found, np.cumsum(given_items, axis=0), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_a_function_that_writes_an_array_from_outside_is_refused_with_its_line() -> None:
    with opened(devices="cpu:0"):
        outside = cx.zeros((16, 16), np.float32)

        def fn(item: Any) -> Any:
            outside[...] = item
            return outside + 1

        with pytest.raises(ProgramError, match=r"test_results.py:\d+: .*from outside"):
            cx.Pipeline(fn).plan(items(1)[0])
        np.testing.assert_array_equal(outside, np.zeros((16, 16)))


def test_weights_are_copied_once_per_memory(tmp_path: Any) -> None:
    trace = tmp_path / "run.jsonl"
    w = weights(384)

    def fn(item: Any, w: Any) -> Any:
        return cx.matmul(cx.matmul(item, w), w)

    rows = [np.full((300, 384), number, np.float32) for number in range(12)]
    with opened(platform="dype-pcie4", execute=True, trace=trace):
        pipe = cx.Pipeline(fn, w=w)
        pipe.plan(rows[0], devices="gpu:0,gpu:1")
        found = pipe.map(rows)
    for result, item in zip(found, rows, strict=True):
        np.testing.assert_allclose(result, item @ w @ w, rtol=1e-3, atol=1e-2)
    copies = [row for row in cx.Trace.load(trace).ran if row["kind"] == "copy"]
    weighty = [row["device"] for row in copies if row["bytes"] == w.nbytes]
    assert sorted(weighty) in (["gpu:0"], ["gpu:0", "gpu:1"], ["gpu:1"])
    assert len([row for row in copies if row["bytes"] == rows[0].nbytes]) >= 12


def test_items_are_taken_as_they_are_when_they_come() -> None:
    buffer = np.zeros((8, 8), np.float32)

    def source() -> Any:
        for number in range(10):
            buffer[...] = number
            yield buffer

    with opened(devices="cpu:0,cpu:1"):
        found = cx.Pipeline(lambda item: item * 2).map(source())
    assert [float(result[0, 0]) for result in found] == [2.0 * n for n in range(10)]


def test_items_may_be_tuples_dicts_and_sparse_matrices() -> None:
    import scipy.sparse as sp

    graph = sp.random_array((40, 40), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(0))

    def fn(item: Any, w: Any) -> Any:
        a, features = item["graph"], item["x"][0]
        return [a @ (features @ w), a]

    x, w = np.ones((40, 8), np.float32), np.ones((8, 4), np.float32)
    with opened(devices="cpu:0,cpu:1"):
        found = cx.Pipeline(fn, w=w).map([{"graph": graph, "x": (x * n,)} for n in range(4)])
    for number, (product, same) in enumerate(found):
        np.testing.assert_allclose(product, graph @ (x * number @ w), rtol=1e-5)
        assert (same != graph).nnz == 0


def test_wrong_arguments_are_refused_with_their_names() -> None:
    five: Any = 5
    with opened(devices="cpu:0"):
        pipe = cx.Pipeline(three_calls, w=weights())
        mistakes: list[dict[str, Any]] = [
            {"order": "any"}, {"on_error": "ignore"}, {"ahead": 0}, {"ahead": (1, 2, 3)}, {"batch": 4}, {"batch": (0, 1.0)},
            {"drop": "newest"}, {"max_failures": 3}, {"max_failures": -1, "on_error": "skip"}, {"after": -2},
        ]  # fmt: skip
        for wrong in mistakes:
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                pipe.stream(items(1), **wrong)
        with pytest.raises(UnknownName, match="speed"):
            pipe.stream(items(1), objective="speed")
        with pytest.raises(ArgumentError, match="int"):
            pipe.stream(five)
        with pytest.raises(ArgumentError, match="function"):
            cx.Pipeline(five)
        with pytest.raises(ArgumentError, match=r"no kernel.*does it use its item"):
            cx.Pipeline(lambda item: 3).plan(items(1)[0])
        with pytest.raises(ArgumentError, match=r"no kernel.*no NumPy array"):
            cx.Pipeline(lambda item: np.sqrt(item) + 1).plan([1.0, 2.0])
        graph = pytest.importorskip("scipy.sparse").eye_array(5, format="csr")
        with pytest.raises(ArgumentError, match=r"no kernel.*cx\.csr"):
            cx.Pipeline(lambda item: graph @ item).plan(np.ones((5, 2)))
        with pytest.raises(ArgumentError, match="power"):
            pipe.plan(items(1)[0], power=-1.0)
        with pytest.raises(ProgramError, match="no stream"):
            pipe.stats()


def test_planning_for_another_machine_computes_values_only_for_functions_that_look_at_them() -> None:
    computed: list[bool] = []

    def looks(x: Any, look: bool) -> Any:
        here: Any = session.current()
        computed.append(here.runtime.config.execute)
        y = x * 2.0
        return y + float(y[0]) if look else y + 1.0

    with opened(devices="cpu:0"):
        for look in (False, True):
            assert cx.Pipeline(looks, look=look).plan(np.ones(64, np.float32), platform="workstation")
            assert computed[-1] is look
            assert computed[0] is False, "values are computed only if they are looked at"


def test_the_results_of_one_stream_are_the_items_of_another() -> None:
    items = [np.full((3, 4), n, np.float32) for n in range(9)]
    with opened(devices="cpu:0,cpu:1"):
        doubled, more = cx.Pipeline(lambda x: x * 2), cx.Pipeline(lambda x: x + 1)
        for result, item in zip(more.stream(doubled.stream(iter(items))), items, strict=True):
            np.testing.assert_array_equal(result, item * 2 + 1)
        assert doubled.stats()["items"] == more.stats()["items"] == len(items)
