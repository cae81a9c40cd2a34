"""Items whose functions do what they did before are followed along a tape: results stay those of calling the function item by item."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coexec as cx
from coexec.errors import ItemFailed
from coexec.stream import bundles
from coexec.stream.bundles import KnownItems
from tests.stream.functions import checked, doubled

SIDE = 24
ROOMY = 300  # rows of 256 floats are more than 256 KiB: their operators become chains
Function = Callable[..., Any]


@cx.kernel(returns=cx.like("x"), split=0, x=cx.read)
def tripled(x: Any) -> Any:
    return 3 * x


@cx.kernel(split=0, x=cx.read(cx.halo(1, border="edge")), y=cx.write)
def smoothed(x: Any, y: Any) -> None:
    y[...] = (x[:-2, 1:-1] + x[2:, 1:-1]) / 2


@cx.kernel(split=0, x=cx.read, y=cx.write)
def numbered(x: Any, y: Any, chunk: Any) -> None:
    y[...] = x + np.arange(chunk.lo[0], chunk.hi[0], dtype=np.float32)[:, None]


OFFSET = 1.0


@cx.kernel(split=0, x=cx.read, y=cx.write)
def shifted(x: Any, y: Any) -> None:
    y[...] = x + OFFSET


@pytest.fixture(autouse=True)
def _whatever_items_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items are followed however slow the machine is at the moment."""
    monkeypatch.setattr(bundles, "SHORT", inf)


def made(kernel: Any, x: Any) -> Any:
    y = cx.empty(x.shape, x.dtype)
    kernel(x, y)
    return y


def pictures(count: int = 24, rows: int = SIDE, columns: int = SIDE) -> list[Any]:
    random = np.random.default_rng(3)
    return [random.random((rows, columns)).astype(np.float32) + n for n in range(count)]


def matrix(columns: int = SIDE) -> Any:
    return np.random.default_rng(5).standard_normal((columns, 4)).astype(np.float32)


def opened(devices: str = "cpu:0,cpu:1", **options: Any) -> cx.Runtime:
    return cx.Runtime(devices=devices, store="off", diagnostics="off", **options)


def known_of(pipe: cx.Pipeline) -> list[KnownItems]:
    assert pipe._tapes is not None
    return list(pipe._tapes._known.values())


def alike(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            alike(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            alike(found[key], value)
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    else:
        assert found == expected


def zeroed(x: Any) -> Any:
    y = cx.zeros(x.shape, x.dtype)
    y[1:3] += x[1:3]
    return y


def zeroed_plain(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:3] += x[1:3]
    return y


def with_table(x: Any) -> Any:
    return x * cx.array(np.arange(x.shape[1], dtype=np.float32))


FOLLOWED: dict[str, tuple[Function, Function]] = {
    "operators": (lambda x: np.tanh(np.sqrt(np.abs(x * 2 - 1))), lambda x: np.tanh(np.sqrt(np.abs(x * 2 - 1)))),
    "kernel": (lambda x: made(doubled, x) + 1, lambda x: 2 * x + 1),
    "functional form": (lambda x: tripled(x) - x, lambda x: 3 * x - x),
    "border": (
        lambda x: made(smoothed, x),
        lambda x: (np.pad(x, ((1, 1), (0, 0)), "edge")[:-2] + np.pad(x, ((1, 1), (0, 0)), "edge")[2:]) / 2,
    ),
    "chunk": (lambda x: made(numbered, x), lambda x: x + np.arange(len(x), dtype=np.float32)[:, None]),
    "views": (lambda x: (x[2:5].T * 2, x[::2]), lambda x: (x[2:5].T * 2, x[::2])),
    "zeros, written in part": (zeroed, zeroed_plain),
    "an array made of NumPy's": (with_table, lambda x: x * np.arange(x.shape[1], dtype=np.float32)),
    "several results": (
        lambda x: {"a": x + 1, "b": [x * x, "text", 3]},
        lambda x: {"a": x + 1, "b": [x * x, "text", 3]},
    ),
    "the item itself": (lambda x: (x, x * 2), lambda x: (x, x * 2)),
    "one result twice": (lambda x: (y := x + 1, y), lambda x: (x + 1, x + 1)),
    "in place on its own": (lambda x: np.add(y := x + 1, 2, out=y), lambda x: x + 3),
    "another type": (lambda x: x.astype(np.float64) / 3, lambda x: x.astype(np.float64) / 3),
    "a number of the item's": (lambda x: x * float(x.shape[0]), lambda x: x * float(x.shape[0])),
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("rows", [SIDE, ROOMY])
def test_what_is_followed_gives_what_the_function_gives(name: str, rows: int) -> None:
    function, plain = FOLLOWED[name]
    columns = SIDE if rows == SIDE else 256
    with opened():
        pipe = cx.Pipeline(function)
        found = [*pipe.map(pictures(24, rows, columns)), *pipe.stream(iter(pictures(9, rows, columns)))]
        (known,) = known_of(pipe)
        assert not known.why, known.why
        assert known.seconds > 0.0
    expected = [plain(x) for x in (*pictures(24, rows, columns), *pictures(9, rows, columns))]
    alike(found, expected)


def test_constants_and_sparse_matrices_from_outside_are_read_as_they_are() -> None:
    graph = sp.random_array((SIDE, SIDE), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(1))
    w = matrix()
    with opened():
        a = cx.csr(graph)
        pipe = cx.Pipeline(lambda x, w: a @ cx.relu(a @ (x @ w)), w=w)
        found = pipe.map(pictures())
        (known,) = known_of(pipe)
        assert not known.why
    alike(found, [graph @ np.maximum(graph @ (x @ w), 0) for x in pictures()])


def test_items_are_trees_with_numbers_that_differ() -> None:
    items = [{"x": x, "scale": n / 3, "name": f"item {n}"} for n, x in enumerate(pictures())]
    with opened():
        pipe = cx.Pipeline(lambda item: (item["name"], item["x"] * item["scale"] + 1))
        found = pipe.map(items)
        (known,) = known_of(pipe)
        assert not known.why
        assert known.seconds > 0.0
    alike(found, [(item["name"], item["x"] * np.float32(item["scale"]) + 1) for item in items])


@pytest.mark.parametrize("what", ["branch", "whole numbers", "other calls", "outside values", "errors", "made more"])
def test_a_function_that_does_something_else_now_and_then_is_right_all_the_same(what: str) -> None:
    numbers = itertools.count()

    def function(x: Any) -> Any:
        global OFFSET
        n = next(numbers)
        if what == "branch":
            return x + 1 if n % 5 else np.sqrt(x) * 2
        if what == "whole numbers":
            return x * n
        if what == "other calls":
            y = x * 2
            return np.exp(-y) if n % 7 == 3 else np.tanh(y)
        if what == "outside values":
            OFFSET = float(n // 6)
            return made(shifted, x)
        if what == "errors":
            with np.errstate(invalid="ignore" if n % 4 else "warn"):
                return x * 2
        y = cx.zeros(x.shape, x.dtype) if n % 6 == 5 else cx.empty(x.shape, x.dtype)
        doubled(x, y)
        return y

    with opened():
        pipe = cx.Pipeline(function)
        pipe.plan(pictures(1)[0])
        numbers = itertools.count()
        found = pipe.map(pictures(40))
    for n, (result, x) in enumerate(zip(found, pictures(40), strict=True)):
        expected = {
            "branch": x + 1 if n % 5 else np.sqrt(x) * 2,
            "whole numbers": x * n,
            "other calls": np.exp(-2 * x) if n % 7 == 3 else np.tanh(2 * x),
            "outside values": x + np.float32(n // 6),
            "errors": x * 2,
            "made more": x * 2,
        }[what]
        alike(result, expected)


def test_whoever_holds_on_to_an_array_of_an_item_has_its_values() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        y = x + 1
        if len(kept) < 40:
            kept.append((y, y[1:]))
        return y * 2

    with opened():
        pipe = cx.Pipeline(function)
        pipe.plan(pictures(1)[0])
        kept.clear()
        found = pipe.map(pictures(20))
        alike(found, [(x + 1) * 2 for x in pictures(20)])
        for (y, part), x in zip(kept, pictures(20), strict=True):
            alike([np.asarray(y), np.asarray(part)], [x + 1, x[1:] + 1])


def test_an_array_that_is_read_in_the_middle_now_and_then_has_its_values() -> None:
    seen: list[float] = []

    def function(x: Any) -> Any:
        y = x + 1
        if len(seen) % 4 == 3:
            seen.append(float(y[0, 0]))
        else:
            seen.append(0.0)
        return y * 2

    with opened():
        pipe = cx.Pipeline(function)
        pipe.plan(pictures(1)[0])
        seen.clear()
        found = pipe.map(pictures(16))
    alike(found, [(x + 1) * 2 for x in pictures(16)])
    assert seen[3::4] == [float(x[0, 0] + 1) for x in pictures(16)[3::4]]


def test_a_kernel_that_fails_on_one_item_of_several_fails_for_that_item_alone() -> None:
    given = pictures(30)
    for n in (11, 12, 20):
        given[n][0, 0] = 13
    with opened():
        pipe = cx.Pipeline(lambda x: made(checked, x))
        pipe.plan(given[0])
        pipe.map(given[:8])
        found = pipe.map(given, on_error="return")
        assert [f.index for f in pipe.failures] == [11, 12, 20]
        assert all(f.stage == "stage 0" for f in pipe.failures)
        with pytest.raises(ItemFailed, match=r"item 11.*thirteen"):
            pipe.map(given)
        cx.wait()  # nothing of it is left to be told
    for n, (result, x) in enumerate(zip(found, given, strict=True)):
        assert isinstance(result, ItemFailed) if n in (11, 12, 20) else np.allclose(result, x + 1)


def test_a_function_that_raises_fails_for_its_item_alone() -> None:
    numbers = itertools.count()

    def function(x: Any) -> Any:
        y = x * 2
        if next(numbers) == 17:
            raise LookupError("seventeen")
        return y + 1

    with opened():
        pipe = cx.Pipeline(function)
        pipe.plan(pictures(1)[0])
        numbers = itertools.count()
        found = pipe.map(pictures(), on_error="skip")
        assert [(f.index, type(f.error)) for f in pipe.failures] == [(17, LookupError)]
    alike(found, [2 * x + 1 for n, x in enumerate(pictures()) if n != 17])


def test_a_source_may_use_its_buffer_again() -> None:
    buffer = np.empty((SIDE, SIDE), np.float32)

    def source() -> Iterator[Any]:
        for x in pictures(60):
            buffer[...] = x
            yield buffer

    with opened():
        pipe = cx.Pipeline(lambda x: np.sqrt(x) + 1)
        found = list(pipe.stream(source()))
    alike(found, [np.sqrt(x) + 1 for x in pictures(60)])


def test_results_that_a_consumer_keeps_do_not_change() -> None:
    with opened():
        pipe = cx.Pipeline(lambda x: (x, x[2:], np.abs(x)))
        found = pipe.map(pictures(60))
        for _ in range(3):
            pipe.map([x + 100 for x in pictures(60)])
    alike(found, [(x, x[2:], np.abs(x)) for x in pictures(60)])
    assert not any(array.flags.writeable for result in found for array in result)


def test_a_function_that_writes_its_item_changes_no_array_of_the_program() -> None:
    given = pictures(12)

    def function(x: Any) -> Any:
        x += 1
        return x * 2

    with opened():
        found = cx.Pipeline(function).map(given)
    alike(found, [(x + 1) * 2 for x in pictures(12)])
    alike(given, pictures(12))


def calls_per_item(function: Function, items: list[Any], **constants: Any) -> float:
    """Return how many functions, also C's, the program's thread calls for an item of a stream."""
    count = 0

    def counted(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        del frame, arg
        count += event in ("call", "c_call")

    with opened("cpu:0"):  # where there is one plan
        pipe = cx.Pipeline(function, **constants)
        pipe.plan(items[0])
        pipe.map(items)
        pipe.map(items)
        for known in known_of(pipe):
            known.seconds = 1e-5  # several at a time, however slow the machine is at the moment
        sys.setprofile(counted)
        try:
            pipe.map(items)
        finally:
            sys.setprofile(None)
    return count / len(items)


@pytest.mark.parametrize("way", ["image", "kernel", "graph"])
def test_an_item_of_a_known_kind_costs_few_calls(way: str) -> None:
    w = matrix()
    graph = sp.random_array((SIDE, SIDE), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(1))
    with opened():
        a = cx.csr(graph)
    del a
    functions: dict[str, tuple[Function, int]] = {
        "image": (lambda x, w: np.tanh(np.sqrt(np.abs(x * 2 - 1)) @ w), 350),  # 292; call by call it took 3,557
        "kernel": (lambda x, w: made(doubled, x) @ w, 330),
        "graph": (lambda x, w: cx.relu(cx.matmul(x, w)) + 1, 500),
    }
    function, most = functions[way]
    assert calls_per_item(function, pictures(192), w=w) <= most


@pytest.mark.parametrize(("objective", "most"), [("latency", 1), ("throughput", 16)])
def test_who_wants_results_soon_gets_items_one_by_one(objective: str, most: int) -> None:
    sizes = []
    with opened():
        pipe = cx.Pipeline(lambda x: np.sqrt(x) + 1)
        pipe.plan(pictures(1)[0], objective=objective)
        pipe.map(pictures(32))
        (known,) = known_of(pipe)
        known.seconds = 1e-6
        with pipe.stream(iter(pictures(64))) as stream:
            for _ in stream:
                sizes += [len(run.bundle.errors) for run in stream._window.runs if run.bundle is not None]
    assert max(sizes) == most
