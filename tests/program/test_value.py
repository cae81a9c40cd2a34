"""Values: `a[i]` is the element as it is at that point of the program, and never changes, as a number in NumPy."""

from __future__ import annotations

import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, UnsupportedError
from tests.clusters import cluster
from tests.devices import TWO
from tests.holding import closed_gate, pass_gate
from tests.small_loops import opened

DATA = np.arange(6.0)


@cx.kernel(y=cx.update)
def late(y, gate):
    pass_gate(gate)
    y += 10


@cx.kernel(y=cx.update)
def times(y, by):
    y *= by


@cx.kernel(x=cx.read, y=cx.update)
def add_to(x, y):
    y += x


@cx.kernel(y=cx.update)
def fail(y):
    raise ValueError("drawn")


@pytest.fixture
def a():
    with cx.Runtime(TWO):
        yield cx.array(DATA)


def test_a_full_integer_index_is_a_value_and_anything_else_a_view(a) -> None:
    m = cx.array(np.arange(6.0).reshape(2, 3))
    for value in (a[0], a[-1], a[np.int64(2)], m[1, 2], m[1][2], m.T[2, 1], cx.zeros(())[()], a[a.astype(int)[3]]):
        assert issubclass(type(value), cx.Array) and type(value) is cx.Value and value.shape == ()
    for view in (
        a[0, ...],
        a[..., 0],
        a[0:1],
        a[None, 0],
        m[1],
        m[1, 2, ...],
        cx.zeros(())[...],
        np.squeeze(m[:1, :1]),
    ):
        assert type(view) is cx.Array
    view = m[1, 2, ...]
    view[...] = 9
    assert float(m[1, 2]) == 9


def test_two_elements_are_swapped(a) -> None:
    a[0], a[1] = a[1], a[0]
    a[2], a[3], a[4] = a[4], a[2], a[3]
    assert np.asarray(a).tolist() == [1, 0, 4, 2, 3, 5]


def test_an_augmented_assignment_names_another_value(a) -> None:
    s = t = a[0]
    for i in range(1, 6):
        s += a[i]
    s -= 1
    s *= 2
    assert float(s) == 28 and float(t) == 0
    assert np.asarray(a).tolist() == DATA.tolist()
    a[3] += 4
    a[3] **= 2
    assert float(a[3]) == 49


def test_a_value_is_that_of_its_point_of_the_program(a) -> None:
    old = a[0]
    a[0] = 9
    newer = a[0]
    a[...] = -1
    times(a, 3)
    assert (float(old), float(newer), float(a[0])) == (0, 9, -3)


def test_results_without_axes_are_values_too(a) -> None:
    for make in (
        a.max,
        lambda: cx.sum(a),
        lambda: np.dot(a, a),
        lambda: a @ a,
        lambda: a[1] * 2,
        lambda: np.add.reduce(a),
    ):
        first = second = make()
        assert isinstance(first, cx.Value)
        before = float(first)
        second += 1
        assert (float(first), float(second)) == (before, before + 1)
    given: Any = cx.zeros(())
    assert np.sum(a, out=given) is given and np.add(given, 1, out=given) is given
    assert cx.sum(a, out=given) is given
    assert float(given) == 15


def test_making_and_keeping_values_never_waits(a) -> None:
    with closed_gate("values"):
        late(a, "values")
        old = a[0]
        a[0] = 1
        doubled = old * 2
        kept = [a[0], *a]
        a[...] = 0
        times(a, kept[0])
        late_sum = sum(kept)
        assert repr(old) == "cx.Value(dtype=float64)"
    assert (float(old), float(doubled)) == (10, 20)
    assert [float(v) for v in kept] == [1, 1, 11, 12, 13, 14, 15]
    assert float(late_sum) == 67


def test_a_call_may_change_the_array_that_its_value_is_from(a) -> None:
    times(a, a[2])
    assert np.asarray(a).tolist() == (DATA * 2).tolist()
    add_to(a[2], a)  # a value where an array is read
    a -= a[5]
    assert np.asarray(a).tolist() == (DATA * 2 - 10).tolist()
    a[1:4] = a[2]
    assert np.asarray(a).tolist() == [-10, -6, -6, -6, -2, 0]


def test_a_value_is_no_output(a) -> None:
    for call in (lambda: times(a[0], 2), lambda: add_to(a, a[0])):
        with pytest.raises(ArgumentError, match=r"'y' is declared update.*never changes.*pass its view a\[i, \.\.\.\]"):
            call()
    for wrong in (
        lambda: np.add(a[0], 1, out=a[0]),
        lambda: np.sum(a, out=a[0]),
        lambda: cx.matmul(a, a, out=a[0]),
        lambda: np.copyto(a[0], 1),
        lambda: a[0].fill(1),
        lambda: a[0].__setitem__(..., 1),
    ):
        with pytest.raises(TypeError, match=r"never changes.*a\[i, \.\.\.\]"):
            wrong()
    times(a[3, ...], 5)
    np.add(a, 1, out=a)
    np.sum(a, out=a[0, ...])
    assert np.asarray(a).tolist() == [33, 2, 3, 16, 5, 6]


def test_elements_are_shuffled_and_rows_are_refused(a) -> None:
    expected = DATA.tolist()
    np.random.default_rng(3).shuffle(expected)
    with pytest.warns(UserWarning, match="shuffle"):
        np.random.default_rng(3).shuffle(a)
    assert np.asarray(a).tolist() == expected
    random.Random(3).shuffle(a)
    assert sorted(np.asarray(a).tolist()) == DATA.tolist()
    m: Any = cx.array(np.arange(12.0).reshape(4, 3))
    rng = np.random.default_rng(3)
    with (
        pytest.warns(UserWarning, match="shuffle"),
        pytest.raises(UnsupportedError, match=r"shuffle.*array\[\.\.\.\] = np.asarray\(array\)\[rng.permutation"),
    ):
        rng.shuffle(m)
    before = np.asarray(m)
    np.testing.assert_array_equal(before, np.arange(12.0).reshape(4, 3))
    m[...] = np.asarray(m)[rng.permutation(len(m))]
    assert sorted(np.asarray(m)[:, 0].tolist()) == [0, 3, 6, 9]
    m[0] = m[1]  # in Python, as ever
    m[:2] = m[2:]


def test_numbers_types_follow_numpys_rules(a) -> None:
    for dtype in (np.float32, np.int8, np.uint64, bool, np.complex64):
        data = np.arange(3).astype(dtype)
        x = cx.array(data)
        for other in (2, 2.5, True, np.float64(1.5), np.int16(3), data, 1j):
            value = x[1] + other
            expected = data[1] + other
            assert value.dtype == expected.dtype, (dtype, other)
            np.testing.assert_array_equal(np.asarray(value), expected)
            np.testing.assert_array_equal(np.asarray(other + x[1]), other + data[1])
    with pytest.raises(OverflowError):
        cx.zeros(2, np.int8)[0] + 1000
    assert (a.astype(np.float32)[1] * 2.0).dtype == np.float32


def test_a_value_serves_wherever_a_number_does(a) -> None:
    i = cx.array(np.arange(6))[2]
    assert f"{a[1]:.3f} {a[2]}" == "1.000 2.0"
    assert str(a[3]) == "3.0" and float(f"{cx.full((), 0.5):.1f}") == 0.5
    assert [10, 20, 30][i] == 30
    assert list(range(i)) == [0, 1]
    assert round(a[1] / 3, 2) == 0.33 and round(a[4]) == 4
    assert {a[1]: "one"}[1.0] == "one" and len({a[1], a[1], 1.0, a[2]}) == 2
    assert a[1] in (0, 1.0) and a[1] == 1 and bool(a[1] != 2) and (a[1] == None) is False  # noqa: E711 - what NumPy says
    assert complex(a[1]) == 1 and int(a[5]) == 5 and a[5].item() == 5.0 and isinstance(a[5].item(), float)
    assert [float(v) for v in sorted(a, reverse=True)] == DATA.tolist()[::-1] and max(a) == 5
    assert np.asarray(a[2]).shape == () and not np.asarray(a[2]).flags.writeable and np.array(a[2]).flags.writeable
    assert a[2].tolist() == 2.0 and a[2].T.astype(int).dtype == np.int64
    assert cx.zeros(i).shape == (2,) and cx.zeros((i, i)).shape == (2, 2)
    assert type(a[2].astype(int)) is cx.Value
    with pytest.raises(TypeError):
        range(a[2])
    with pytest.raises(TypeError, match="0-d"):
        len(a[2])


def test_a_value_becomes_an_array_of_its_own(a) -> None:
    for make in (np.atleast_1d, lambda v: v[None], lambda v: cx.asarray(v)[None], lambda v: np.reshape(v, (1,))):
        made = make(a[4])
        made[...] = 7
        assert made.shape == (1,) and float(a[4]) == 4
    assert np.asarray(np.stack([a[1], a[2]])).tolist() == [1, 2]


def test_what_is_computed_of_a_value_that_was_read_is_a_value_that_knows_its_number(a) -> None:
    v = a[2]
    assert float(v) == 2 and repr(v) == "cx.Value(2.0, dtype=float64)"
    a[2] = 5
    storage = weakref.ref(a._storage)
    assert isinstance(v + 1, cx.Value) and repr(v + 1) == "cx.Value(3.0, dtype=float64)" and float(v + a[2]) == 7
    times(a, v)
    add_to(v, a)
    assert np.asarray(a).tolist() == [2, 4, 12, 8, 10, 12]
    del a
    assert storage() is not None  # the fixture has it


def test_a_value_does_not_keep_its_array(a) -> None:
    gone, kept = [], []
    for i in range(20):
        big = a + i
        kept.append(big[3])
        gone.append(weakref.ref(big._storage))
        del big
        a[0] = i
    assert sum(storage() is not None for storage in gone) < 5
    assert [float(v) for v in kept] == [3 + i for i in range(20)]


def test_reading_elements_in_a_loop_leaves_nothing_behind(a) -> None:
    for i in range(100):
        assert float(a[i % 6]) == i % 6
    assert len(a._storage.lent) == 0 and len(a.runtime.lending.lenders) <= 1
    a[0] = 1
    assert not a.runtime.lending.lenders


def test_values_of_operations_that_are_held_back(a) -> None:
    x = cx.ones(100_000)
    y = x * 3  # held back, to be one kernel with what follows
    v = y[7]
    z = x * v + a[1] * x
    y[...] = 0
    a[1] = 100
    del y
    assert float(v) == 3 and np.unique(np.asarray(z)).tolist() == [4]
    w = (x * 5)[3]  # nobody holds the array
    cx.wait()
    assert float(w) == 5


def test_values_of_borrowed_memory_are_those_of_the_index(a) -> None:
    mine = np.arange(4.0)
    borrowed = cx.asarray(mine)
    v = borrowed[1]
    cx.wait()
    mine[1] = 100
    assert float(v) == 1


def test_a_value_is_poisoned_with_its_element_alone(a) -> None:
    healthy, doomed = a[0], a[1]
    fail(a[1:3])
    poisoned, beside = a[1], a[3]
    a[...] = 0
    assert float(healthy) == 0 and float(doomed) == 1 and float(beside) == 3
    for _ in range(2):
        with pytest.raises(ValueError, match="drawn"):
            float(poisoned)
    assert float(a[1]) == 0


def test_values_can_be_read_after_their_runtime() -> None:
    with cx.Runtime(TWO):
        a = cx.array(DATA)
        first = a[2]
        a[2] = 7
        second = a[2]
    assert (float(first), float(second), float(a[2])) == (2, 7, 7)
    with pytest.raises(cx.errors.RuntimeClosed):
        cx.sum(a[3])


def test_threads_may_change_what_another_ones_value_looks_at(a) -> None:
    def change() -> None:
        for i in range(50):
            a[...] = i

    values = list(a)
    other = threading.Thread(target=change)
    other.start()
    found = [(v * 1, float(v), v * 1) for v in values]
    other.join()
    assert [(float(x), y, float(z)) for x, y, z in found] == [(i, i, i) for i in range(6)]


@pytest.mark.parametrize("memory", ["own", "shared"])
def test_values_of_elements_on_a_device(memory) -> None:
    scale = cx.kernel(name="scale", split=0, x=cx.update)(lambda x: np.multiply(x, 3, out=x))
    scale.opencl("x(i) *= 3;")
    with cx.Runtime("cpu:0,opencl:0@1", memory={"opencl:0": memory}):
        x = cx.array(DATA)
        seen = []
        for _ in range(8):
            seen.append(x[2])
            scale.using(devices="opencl:0")(x)
        assert [float(v) for v in seen] == [2.0 * 3**k for k in range(8)]


def test_values_on_ranks() -> None:
    with cx.Runtime(platform=cluster(2), ranks=2, execute=True):
        x = cx.array(DATA)
        old, total = x[4], cx.sum(x)
        times(x, x[2])
        x[0], x[1] = x[1], x[0]
        assert (float(old), float(total)) == (4, 15)
        assert np.asarray(x).tolist() == [2, 0, 4, 6, 8, 10]


def test_a_step_that_keeps_a_value_is_replayed() -> None:
    step = cx.record("kept")
    with opened(TWO, store="off"):
        x, y = cx.zeros(64), cx.zeros(64)
        for _ in range(12):
            with step:
                v = x[3]
                times(x, 2.0)
                add_to(x, y)
                times(y, v)
        assert step.replayed >= 6, step.why


STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(0, 3)), max_size=25)


@settings(max_examples=60)
@given(STEPS)
def test_programs_with_values_agree_with_numpy(steps) -> None:
    ours, theirs = cx.array(np.arange(4)), np.arange(4)
    mine, others = [ours[0]], [theirs[0]]

    def both(do) -> None:
        do(ours, mine)
        do(theirs, others)

    def step(kind, i, j):
        def do(x, kept) -> None:
            if kind == 0:
                kept.append(x[i])
            elif kind == 1:
                x[i], x[j] = x[j], x[i]
            elif kind == 2:
                x[i] = kept[j % len(kept)]
            elif kind == 3:
                kept[j % len(kept)] += x[i]
            elif kind == 4:
                x *= kept[j % len(kept)]
                x %= 101
            elif kind == 5:
                x[i] += j
            elif kind == 6:
                kept.append(kept[0] - x.sum())
            else:
                del kept[1:]

        return do

    for kind, i, j in steps:
        both(step(kind, i, j))
    assert [int(v) for v in mine] == [int(v) for v in others]
    np.testing.assert_array_equal(np.asarray(ours), theirs)
