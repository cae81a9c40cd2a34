"""Whatever functions and sources do while items are followed along tapes, results are those of NumPy, item by item."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ItemFailed
from coexec.program import session
from coexec.program.call import DEFAULT, placed_now
from coexec.stream import bundles, trials
from tests.stream.functions import checked, doubled
from tests.stream.test_following import alike, known_of, made, opened, pictures, smoothed

GATE = threading.Event()
PATIENCE = 10.0  # seconds for a gate that never opens
SIDE = 6
BAD = 13.0


@pytest.fixture(autouse=True)
def _whatever_items_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items are followed however slow the machine is at the moment."""
    monkeypatch.setattr(bundles, "SHORT", inf)


def pass_gate() -> None:
    assert GATE.wait(PATIENCE)


@cx.kernel(split=0, x=cx.read, y=cx.write)
def gated(x: Any, y: Any) -> None:
    pass_gate()
    y[...] = x


def test_items_that_a_device_has_not_begun_are_computed_along_their_own_tape() -> None:
    def function(item: Any) -> Any:
        x, n = item
        return made(gated if n == 1 else doubled, x) * n + n

    def source() -> Iterator[Any]:
        GATE.clear()
        yield from ((x, 1) for x in pictures(10))
        yield from ((x, 2) for x in pictures(20))  # the fifth of them writes another tape
        GATE.set()  # nothing was computed so far

    with opened():
        pipe = cx.Pipeline(function)
        GATE.set()
        pipe.plan((pictures(1)[0], 1))
        pipe.map([(x, 1) for x in pictures(12)])
        (known,) = known_of(pipe)
        assert known._tapes == 1
        found = list(pipe.stream(source(), ahead=64))
        assert known._tapes == 2
    alike(found, [x + 1 for x in pictures(10)] + [x * 4 + 2 for x in pictures(20)])


@pytest.mark.parametrize("how", ["constant", "outside"])
@pytest.mark.parametrize("side", [24, 300])  # small arrays are changed at once, where nobody uses them
def test_an_item_sees_what_its_source_had_written_before_it(how: str, side: int) -> None:
    def source(g: cx.Array) -> Iterator[Any]:
        for n, x in enumerate(pictures(30, side, side)):
            if n % 3 != 1:
                g[...] = float(n)
            if n % 5 == 4:
                g += 1
            yield x

    with opened():
        g = cx.zeros((side, side), np.float32)
        pipes = {"constant": cx.Pipeline(lambda x, w: x * 2 + w, w=g), "outside": cx.Pipeline(lambda x: x * 2 + g)}
        pipe = pipes[how]
        found = list(pipe.stream(source(g)))
        (known,) = known_of(pipe)
        assert not known.why, known.why
    expected, value = [], np.float32(0)
    for n, x in enumerate(pictures(30, side, side)):
        value = np.float32(n if n % 3 != 1 else value) + np.float32(n % 5 == 4)
        expected.append(x * 2 + value)
    alike(found, expected)


def test_a_source_may_begin_with_another_stream_and_open_blocks_of_its_own() -> None:
    def source(first: cx.Pipeline) -> Iterator[Any]:
        yield from pictures(9)
        with np.errstate(invalid="ignore"), cx.placed("cpu:1"):
            for x in first.stream(iter(pictures(20))):
                y = cx.array(x) + 1
                yield np.asarray(y)
        yield from pictures(9)

    with opened() as runtime:
        first = cx.Pipeline(lambda x: x * 3)
        found = list(cx.Pipeline(lambda x: np.sqrt(x) + 1).stream(source(first)))
        assert session.current() is runtime
    plain = [*pictures(9), *[x * 3 + 1 for x in pictures(20)], *pictures(9)]
    alike(found, [np.sqrt(x) + 1 for x in plain])


def test_two_numbers_of_a_call_that_are_one_object_at_first() -> None:
    one = 0.5
    items = [(x, one, one if n < 20 else 0.5 + n / 10) for n, x in enumerate(pictures(40))]
    clip: Any = np._core.umath.clip  # type: ignore[attr-defined]
    with opened():
        found = cx.Pipeline(lambda item: clip(item[0] - 1, item[1], item[2]) * 1).map(items)
    alike(found, [np.clip(x - 1, np.float32(low), np.float32(high)) for x, low, high in items])


def test_a_function_whose_calls_another_thread_makes_is_not_followed() -> None:
    def function(x: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(made(smoothed, x) * 2))
        thread.start()
        thread.join()
        return found.pop() + x

    with opened():
        pipe = cx.Pipeline(function)
        found = pipe.map(pictures(16))
        (known,) = known_of(pipe)
        assert "another thread" in known.why
    alike(found, [_smooth(x) * 2 + x for x in pictures(16)])


WITHIN: ContextVar[Any] = ContextVar("within", default=None)


def test_arrays_may_be_in_force_around_calls() -> None:
    def source() -> Iterator[Any]:
        for n, x in enumerate(pictures(20)):
            WITHIN.set(np.arange(n + 2))
            yield x

    def function(x: Any) -> Any:
        y = x * 2
        if x.shape[0] > 0 and len(WITHIN.get()) % 7 == 6:
            WITHIN.set(np.zeros(3))
        return y + 1

    with opened():
        WITHIN.set(np.zeros(2))
        found = list(cx.Pipeline(function).stream(source()))
    alike(found, [x * 2 + 1 for x in pictures(20)])


# Any program ------------------------------------------------------------------------------------------------------------


def _smooth(x: Any) -> Any:
    padded = np.pad(x, ((1, 1), (0, 0)), "edge")
    return (padded[:-2] + padded[2:]) / 2


class OneStep(NamedTuple):
    """What a program does with its arrays: by name, with the numbers of two of them."""

    what: str
    a: int
    b: int


ONE: dict[str, Callable[[Any], Any]] = {
    "tanh": np.tanh,
    "abs": np.abs,
    "root": lambda x: np.sqrt(np.abs(x)),
    "turned": lambda x: x.T,
    "backwards": lambda x: x[::-1],
    "square": lambda x: x**2.0,
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "subtract": lambda x, y: x - y,
    "maximum": np.maximum,
    "product": lambda x, y: np.tanh(x) * np.tanh(y),
    "matmul": lambda x, y: np.tanh(x @ y),
}
WRITES = ("rows", "columns", "in place", "out", "kernel into itself")
NUMBERS = ("times s", "plus n", "power s", "plus s, twice")
OTHER = ("kernel", "zeros", "constant", "checked", "given")
STEPS = st.builds(
    OneStep, st.sampled_from([*ONE, *TWO, *WRITES, *NUMBERS, *OTHER]), st.integers(0, 7), st.integers(0, 7)
)


class Lib(NamedTuple):
    """How NumPy, or coexec, makes arrays and calls kernels."""

    empty: Callable[..., Any]
    zeros: Callable[..., Any]
    array: Callable[..., Any]
    smoothed: Callable[[Any, Any], Any]
    checked: Callable[[Any, Any], Any]


def _smooth_into(x: Any, y: Any) -> None:
    y[...] = _smooth(x)


def _check_into(x: Any, y: Any) -> None:
    if np.any(x == BAD):
        raise ValueError("thirteen")
    y[...] = x + 1


OURS = Lib(cx.empty, cx.zeros, cx.array, smoothed, checked)
NUMPYS = Lib(np.empty, np.zeros, np.array, _smooth_into, _check_into)


def step(lib: Lib, what: OneStep, arrays: list[Any], item: dict[str, Any], w: Any) -> None:
    """Do one step: append to `arrays`, or write one of those that the program has made."""
    name, a, b = what.what, arrays[what.a % len(arrays)], arrays[what.b % len(arrays)]
    own = arrays[1 + what.a % (len(arrays) - 1)] if len(arrays) > 1 else None
    if name in ONE:
        arrays.append(ONE[name](a))
    elif name in TWO:
        arrays.append(TWO[name](a, b))
    elif name == "times s":
        arrays.append(a * item["s"])
    elif name == "plus n":
        arrays.append(a + item["n"])
    elif name == "power s":
        arrays.append(np.abs(np.tanh(a)) ** item["s"])
    elif name == "plus s, twice":
        arrays.append((a + item["s"]) * 0.5 + item["s"])
    elif name == "constant":
        arrays.append(a + w)
    elif name == "given":
        arrays.append(a * lib.array(np.arange(SIDE, dtype=item["x"].dtype)))
    elif name in ("kernel", "zeros", "checked"):
        y = lib.zeros(a.shape, a.dtype) if name == "zeros" else lib.empty(a.shape, a.dtype)
        if name == "zeros":
            y[1:4] += a[1:4]
        else:
            (lib.smoothed if name == "kernel" else lib.checked)(a, y)
        arrays.append(y)
    elif own is not None and name == "rows":
        own[1:] = b[:-1]
    elif own is not None and name == "columns":
        own[:, ::2] = 2.0
    elif own is not None and name == "in place":
        own += b
    elif own is not None and name == "out":
        np.multiply(own, 0.5, out=own)
    elif own is not None:
        lib.smoothed(own, own)


def program(lib: Lib, steps: list[OneStep], others: list[OneStep]) -> Callable[..., Any]:
    """Return a function of an item, which takes other steps for some items."""

    def function(item: dict[str, Any], w: Any) -> Any:
        arrays = [item["x"]]
        if item["raises"]:
            raise LookupError("this one")
        for each in others if item["other"] else steps:
            step(lib, each, arrays, item, w)
        return arrays[-1] + 0, arrays[len(arrays) // 2][1:]

    return function


@st.composite
def items(draw: st.DrawFn) -> list[dict[str, Any]]:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    found: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):  # phases: what items are like changes
        kind = draw(st.sampled_from([np.float64, np.float64, np.float32]))
        n, s = draw(st.integers(0, 2)), draw(st.sampled_from([0.5, 1.0, 2.0, None]))
        other = draw(st.booleans())
        for _ in range(draw(st.integers(1, 14))):
            x = random.standard_normal((SIDE, SIDE)).astype(kind)
            if random.random() < 0.05:
                x[0, 0] = BAD
            scale = s if s is not None else float(random.integers(-2, 3)) or 0.25
            odd = bool(random.random() < 0.05)
            raises = bool(random.random() < 0.03)
            found.append({"x": x, "s": abs(scale), "n": n, "other": other != odd, "raises": raises})
    return found


def expected_of(function: Callable[..., Any], given_items: list[dict[str, Any]], w: Any) -> list[Any]:
    found: list[Any] = []
    for item in given_items:
        with np.errstate(all="ignore"):
            try:
                found.append(function({**item, "x": item["x"].copy()}, w))
            except (ValueError, LookupError):
                found.append(None)
    return found


def close(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if other is None:
            assert isinstance(one, ItemFailed), f"item {number} did not fail: {one}"
            continue
        assert not isinstance(one, ItemFailed), f"item {number}: {one}"
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype, f"item {number}"
            error = 1e-8 if b.dtype == np.float64 else 2e-2
            np.testing.assert_allclose(a, b, rtol=error, atol=error, err_msg=f"item {number}")


PROGRAMS = st.tuples(
    st.lists(STEPS, min_size=1, max_size=8),
    st.lists(STEPS, min_size=1, max_size=3),
    items(),
    st.sampled_from(["lent", "copied", "one buffer"]),
    st.one_of(st.none(), st.integers(1, 40)),
)


def test_any_program_gives_what_numpy_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SECONDS", 0.0)
    followed = 0
    w = np.linspace(-1, 1, SIDE * SIDE).reshape(SIDE, SIDE)

    @settings(max_examples=15, deadline=None)
    @given(PROGRAMS)
    def compare(asked: Any) -> None:
        nonlocal followed
        steps, others, given_items, way, ahead = asked
        expected = expected_of(program(NUMPYS, steps, others), given_items, w)
        pipe = cx.Pipeline(program(OURS, steps, others), w=w)
        pipe.plan({**given_items[0], "raises": False, "x": given_items[0]["x"] * 0 + 1})
        for _ in range(2):
            source: Any = given_items if way == "lent" else iter(given_items)
            if way == "one buffer":
                source = buffered(given_items)
            run = pipe.map if way == "lent" else lambda *a, **o: list(pipe.stream(*a, **o))
            close(run(source, on_error="return", ahead=ahead), expected)
        followed += sum([known.seconds > 0.0 for known in known_of(pipe)])
        pipe.close()
        cx.wait()

    with opened():
        compare()
    assert followed  # some of them were


def buffered(given_items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield items in one buffer for each type, which is used again and again."""
    buffers: dict[Any, Any] = {}
    for item in given_items:
        x = item["x"]
        buffer = buffers.setdefault(x.dtype, np.empty_like(x))
        buffer[...] = x
        yield {**item, "x": buffer}


@pytest.mark.parametrize("end", ["taken", "closed", "dropped"])
def test_a_block_of_a_source_leaves_nothing_in_force(end: str) -> None:
    """A generator begins a block in one turn and ends it in another, or when it is closed."""
    items = pictures(40)

    def source() -> Iterator[Any]:
        yield from items[:15]
        for x in items[15:38]:
            with cx.placed("cpu:1"):
                yield x
        with cx.placed("cpu:0"), cx.placed("cpu:1"):
            yield from items[38:]

    with opened():
        blocks = session._blocks.get()
        stream = cx.Pipeline(lambda x: np.sqrt(x) + 1).stream(source())
        found = [next(stream) for _ in range(40 if end == "taken" else 25)]
        if end == "taken":
            assert next(stream, None) is None
        elif end == "closed":
            stream.close()
        del stream
        assert placed_now.get() is DEFAULT
        assert session._blocks.get() == blocks
    alike(found, [np.sqrt(x) + 1 for x in items[: len(found)]])
