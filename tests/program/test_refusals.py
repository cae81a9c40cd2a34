"""What NumPy's arrays let one do: it works here too, or is refused with advice that works. The advice is executed."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ShapeError, UnsupportedError
from tests.devices import TWO
from tests.holding import closed_gate, pass_gate

DATA = np.arange(6.0)[::-1]


@cx.kernel(y=cx.update)
def late(y, gate):
    pass_gate(gate)
    y += 10


@pytest.fixture
def u():
    with cx.Runtime(TWO):
        yield cx.array(DATA)


# Attributes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", (2, 3)),
        ("size", 3),
        ("dtype", np.int64),
        ("strides", (16,)),
        ("flat", 0),
        ("real", 0),
        ("imag", 0),
        ("data", memoryview(b"")),
        ("flags", None),
        ("T", np.zeros(6)),
    ],
)
def test_no_attribute_of_a_handle_can_be_set(u, name, value) -> None:
    for array in (u, u[1:], u[0, ...], u[0]):
        with pytest.raises(AttributeError, match=rf"coexec array's {name} cannot be set.*; use \S+"):
            setattr(array, name, value)
    assert u.shape == (6,) and np.asarray(u).tolist() == DATA.tolist()


@pytest.mark.parametrize("name", ["ndim", "nbytes", "itemsize", "runtime", "base", "shpae", "_mine"])
def test_other_attributes_are_not_made_by_setting_them(u, name) -> None:
    for array in (u, u[0]):
        with pytest.raises(AttributeError):
            setattr(array, name, 1)


def test_a_handle_that_a_task_waits_with_stays_as_it_is(u) -> None:
    with closed_gate("shape"):
        late(u, "shape")
        with pytest.raises(AttributeError, match=r"b = a.reshape\(shape\)"):
            u.shape = (6, 1)
        other = u.reshape((6, 1))
    assert other.shape == (6, 1) and np.asarray(u).tolist() == (DATA + 10).tolist()


# Advice ---------------------------------------------------------------------------------------------------------------


def said(raised: pytest.ExceptionInfo[Any], pattern: str) -> str:
    """Return the part of an error's text that is code."""
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    return found[1]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sort", "", sorted(DATA)),
        ("put", "[0, 1], -1", [-1, -1, 3, 2, 1, 0]),
        ("partition", "2", np.partition(DATA, 2)),
    ],
)
def test_methods_that_change_an_array_name_a_way_that_works(u, name, arguments, expected) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(u, name)
    advice = said(raised, r"(host = .*host)$").replace("...)", f"{arguments})", 1)
    exec(advice, {"np": np, "array": u})
    assert np.asarray(u).tolist() == list(expected)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("put", "[0, 1], -1", [-1, -1, 3, 2, 1, 0]),
        ("place", "host > 3, [7, 8]", [7, 8, 3, 2, 1, 0]),
        ("putmask", "host > 3, -host", [-5, -4, 3, 2, 1, 0]),
        ("put_along_axis", "np.array([1]), 9, 0", [5, 9, 3, 2, 1, 0]),
        ("add.at", "[0, 0, 1], 10", [25, 14, 3, 2, 1, 0]),
    ],
)
def test_functions_that_change_an_array_name_a_way_that_works(u, name, arguments, expected) -> None:
    with pytest.raises(UnsupportedError) as raised:
        eval(f"np.{name}(host, {arguments})", {"np": np, "host": u})
    advice = said(raised, r"(host = .* = host)\.").replace("(host, ...)", f"(host, {arguments})")
    exec(advice, {"np": np, "array": u})
    assert np.asarray(u).tolist() == expected


def test_reading_and_changing_by_value_name_ways_that_work(u) -> None:
    mask = DATA > 2
    with pytest.raises(UnsupportedError) as raised:
        u[mask] += 1
    read = said(raised, r"To read, use (np\.asarray\(array\)\[index\])")
    assert eval(read, {"np": np, "array": u, "index": mask}).tolist() == [5, 4, 3]
    exec(said(raised, r"(np\.add\(.*where=mask\))"), {"np": np, "array": u, "mask": mask})
    assert np.asarray(u).tolist() == [6, 5, 4, 2, 1, 0]
    exec(said(raised, r"to write, (array\[mask\] = value)"), {"array": u, "mask": mask, "value": 7})
    assert np.asarray(u).tolist() == [7, 7, 7, 2, 1, 0]
    with pytest.raises(UnsupportedError, match="list of int64 selects by value"):
        u[[0, 1]] = 7


def test_what_a_tuple_must_not_hold_is_named(u) -> None:
    @cx.kernel(y=cx.update)
    def scaled(y, by):
        y *= by[0]

    with pytest.raises(ArgumentError, match=r"'by' is a tuple that holds a Value.*parameter of its own"):
        scaled(u, (u[0], 1))
    with pytest.raises(ArgumentError, match="'by' is a tuple that holds a list"):
        scaled(u, (2, [1]))


# Masks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", [np.array, cx.array], ids=["NumPy's", "ours"])
@pytest.mark.parametrize("dtype", [float, np.int32, bool, np.complex64])
def test_masks_assign_as_in_numpy(u, mine, dtype) -> None:
    data = (np.arange(12).reshape(4, 3) * 3 % 7).astype(dtype)
    rows, cells = np.array([True, False, True, False]), data.real > 2
    some = int(cells.sum())
    cases: list[tuple[Any, Any]] = [
        (rows, 2),
        (rows, 2.5 if dtype is not bool else True),
        (rows, [1, 0, 1]),
        (rows, np.arange(6).reshape(2, 3)),
        (rows, np.arange(2)[:, None]),
        (cells, 3),
        (cells, np.arange(some)),
        (cells, [1]),
        (np.zeros((4, 3), bool), 5),
        (cells, np.float32(1.5)),
    ]
    for mask, value in cases:
        ours, theirs = cx.array(data), data.copy()
        for view in (slice(None), slice(None, None, -1)):
            ours[view][mine(mask)] = mine(value) if isinstance(value, np.ndarray) else value
            theirs[view][mask] = value
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=f"{mask} {value}")


def test_a_masked_assignment_is_ordered_and_never_waits(u) -> None:
    with closed_gate("mask"):
        late(u, "mask")
        u[u > 12] = u[5]
        u[[True, False] * 3] = -1
    assert np.asarray(u).tolist() == [-1, 10, -1, 12, -1, 10]


def test_masks_that_do_not_fit_are_refused(u) -> None:
    with pytest.raises(IndexError, match=r"mask has shape \(2,\), the array \(6,\)"):
        u[np.array([True, False])] = 1
    with pytest.raises(ShapeError, match="masked elements"):
        u[u > 2] = np.ones((2, 2))
    with pytest.raises(TypeError, match="complex"):
        u[u > 2] = 1j
    u[u > 2] = np.arange(2.0)  # there are three
    with pytest.raises(ValueError, match="assign 2 input values to the 3 output values"):
        np.asarray(u)


# Random numbers -------------------------------------------------------------------------------------------------------


def test_generators_are_refused_with_what_to_use(u) -> None:
    rng: Any = np.random.default_rng(1)

    @cx.kernel(y=cx.update)
    def passed(y, rng):
        y += rng.random(y.shape)

    @cx.kernel(y=cx.update)
    def captured(y):
        y += rng.random(y.shape)

    for source in (rng, np.random.RandomState(1), np.random.PCG64(1), cx.random.Generator(1)):
        with pytest.raises(ArgumentError, match=r"chunk\.rng\(seed\).*cx\.random"):
            passed(u, source)
    with pytest.raises(ArgumentError, match=r"chunk\.rng\(seed\).*cx\.random"):
        captured(u)

    @cx.kernel(split=0, y=cx.update)
    def advised(y, chunk):
        y += chunk.rng(7).random()

    advised(u)
    advised(cx.random.random(6))
    cx.wait()


def test_a_divided_body_that_draws_its_own_numbers_is_warned_about(u) -> None:
    rand, default_rng = np.random.rand, np.random.default_rng

    def attribute(y):
        y += np.random.normal(size=y.shape)  # noqa: NPY002 - what is warned about

    def bound(y):
        y += rand(*y.shape)

    def seeded(y):
        y += default_rng(1).random(y.shape)

    def inside(y):
        y[...] = [np.random.random() for _ in y]  # noqa: NPY002 - what is warned about

    for body in (attribute, bound, seeded, inside):
        with pytest.warns(cx.CoexecWarning, match=rf"kernel '{body.__name__}' draws from .*chunk\.rng\(seed\)"):
            cx.kernel(split=0, y=cx.update)(body)
        cx.kernel(y=cx.update)(body)  # undivided: nothing to say
    with pytest.warns(cx.CoexecWarning, match=r"cx\.map\(<lambda>\) draws from np\.random\.random"):
        cx.map(lambda x: x + np.random.random(x.shape), u)  # noqa: NPY002 - what is warned about


# Conversions ----------------------------------------------------------------------------------------------------------


def test_a_numpy_array_takes_the_elements(u) -> None:
    host = np.zeros(6)
    host[...] = u
    host[:3] = u[3:]
    np.copyto(host[3:], u[:3])
    assert host.tolist() == [2, 1, 0, 5, 4, 3]
    with pytest.raises(UnsupportedError, match="out=ndarray"):
        host += u


def test_nothing_equals_none_and_no_number_text(u) -> None:
    for other in (None, "5", b"5"):
        assert np.asarray(u == other).tolist() == [False] * 6 and np.asarray(u != other).tolist() == [True] * 6
        assert not u[0] == other and u[0] != other  # noqa: SIM201 - both are asked
    assert np.asarray(cx.array(["a", "b"]) == "a").tolist() == [True, False]
    assert np.asarray(u == None).tolist() == [False] * 6  # noqa: E711 - what NumPy does with it
    assert np.asarray(u != None).tolist() == [True] * 6  # noqa: E711
    assert (u == None).dtype == bool  # noqa: E711
    assert np.asarray(u == 5).tolist() == (DATA == 5).tolist()


def test_membership_is_one_question(u) -> None:
    assert 3.0 in u and 7 not in u and u[2] in u and None not in u


def test_copies_share_nothing(u) -> None:
    nested = {"a": [u, u[1:3]], "v": u[0]}
    shallow, deep = copy.copy(u), copy.deepcopy(nested)
    u[...] = 0
    assert np.asarray(shallow).tolist() == DATA.tolist()
    assert np.asarray(deep["a"][0]).tolist() == DATA.tolist() and np.asarray(deep["a"][1]).tolist() == [4, 3]
    assert float(deep["v"]) == 5
    twice = copy.deepcopy([u, u])
    assert twice[0] is twice[1]


def test_pickling_keeps_the_elements(u) -> None:
    saved = pickle.dumps({"u": u, "part": u[::2], "v": u[1], "sum": u.sum()})
    u[...] = 0
    found = pickle.loads(saved)
    assert type(found["u"]) is cx.Array and np.asarray(found["u"]).tolist() == DATA.tolist()
    assert np.asarray(found["part"]).tolist() == DATA[::2].tolist()
    assert found["v"] == 4 and isinstance(found["v"], np.float64) and found["sum"] == 15


def test_formats_are_for_numbers(u) -> None:
    assert f"{u.mean():.2f} {cx.full((), 2.0):5.1f}" == "2.50   2.0"
    assert f"{u}" == repr(u)
    with pytest.raises(TypeError, match=r"formats a number.*shape \(6,\)"):
        f"{u:.3f}"
