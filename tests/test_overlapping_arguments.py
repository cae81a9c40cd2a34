"""Calls whose arguments share elements give what NumPy gives, under every policy, on every mix of devices."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.opencl.probe import probe
from coexec.errors import PlanError
from tests.clusters import cluster
from tests.devices import MIXED, TWO
from tests.ops.forced import divided

OPENCL = bool(probe().devices)
DEVICES = ["cpu:0", TWO, *([MIXED, "opencl:0"] if OPENCL else [])]
POLICIES = ("static", "even", "dynamic", "auto")
VIEWS = [
    (np.s_[:], np.s_[:]),
    (np.s_[:-1], np.s_[1:]),
    (np.s_[1:], np.s_[:-1]),
    (np.s_[::-1], np.s_[:]),
    (np.s_[::2], np.s_[1::2]),
    (np.s_[: 2**12 : 2], np.s_[: 2**11]),
    (np.s_[: 2**11], np.s_[2**11 : 2**12]),
]  # what is read, what is updated

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
needs_opencl = pytest.mark.skipif(not OPENCL, reason="no OpenCL device")


def twice(a):
    a *= 2
    a *= a[::-1]


def shifted(a):
    a[1:] += a[:-1]
    a[:-3] -= a[3:]
    np.multiply(a[2:], a[:-2], out=a[1:-1])


def by_one(a):
    a /= a[7, ...]
    a -= a[-1, ...]


def masked(a):
    np.add(a[1:], 1.0, out=a[:-1], where=a[1:] > 0.5)
    np.copyto(a[3:], a[:-3], where=a[3:] > 0.7)


def both(a):
    np.divmod(a[1:], 0.25, out=(a[:-1], a[1:]))


def mapped(a):
    return cx.map(np.sqrt, a[::-1], out=a) if not isinstance(a, np.ndarray) else np.sqrt(a[::-1], out=a)


def clipped(a):
    np.clip(a[1:], 0.2, a[:-1], out=a[:-1])


@pytest.fixture(params=DEVICES, scope="module")
def runtime(request):
    with cx.Runtime(request.param) as runtime:
        yield runtime


@pytest.mark.parametrize("make", [cx.array, cx.asarray])
@pytest.mark.parametrize("program", [twice, shifted, by_one, masked, both, mapped, clipped], ids=lambda p: p.__name__)
def test_ufuncs_read_everything_before_they_write(runtime, program, make) -> None:
    expected = np.random.default_rng(1).random(30_000) + 0.1
    ours = make(expected.copy())
    program(ours)
    program(expected)
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-14)


@pytest.mark.parametrize("index", ["T", np.s_[:, :1], np.s_[0], np.s_[::-1, ::-1], np.s_[:, 3:4]], ids=str)
@pytest.mark.parametrize("operation", [np.subtract, np.divide])
def test_a_matrix_is_changed_by_a_view_of_itself(runtime, index, operation) -> None:
    def run(u):
        operation(u, u.T if index == "T" else u[index], out=u)

    expected = np.random.default_rng(2).random((150, 150)) + 1.0
    ours = cx.array(expected)
    run(ours)
    run(expected)
    np.testing.assert_allclose(np.asarray(ours), expected, rtol=1e-14)


def test_integers_in_small_parts_are_exact_everywhere() -> None:
    for devices in DEVICES:
        with divided(devices):
            expected: Any = np.arange(1, 60)
            ours: Any = cx.array(expected)
            for a in (ours, expected):
                np.add(a, a[::-1], out=a)
                a[1:] -= a[:-1]
                a[::2] *= a[1::2].sum()
                a[:30] += a[::2]
            np.testing.assert_array_equal(np.asarray(ours), expected)


def test_results_of_reductions_and_products_may_overlap_what_they_are_made_of(runtime) -> None:
    for function in (
        lambda a: np.sum(a, axis=0, out=a[1]),
        lambda a: np.argmax(a, axis=0, out=a[1]),
        lambda a: np.max(a, axis=1, out=a[:, 3]),
        lambda a: np.matmul(a, a.T, out=a),
        lambda a: np.dot(a, a, out=a),
        lambda a: np.concatenate([a[5:], a[:5]], out=a),
    ):
        expected = np.random.default_rng(3).integers(0, 9, (40, 40))
        ours = cx.array(expected)
        function(ours)
        function(expected)
        np.testing.assert_array_equal(np.asarray(ours), expected)


# Kernels of the user ------------------------------------------------------------------------------------------------------


@cx.kernel(split=0, x=cx.read, y=cx.update)
def after(x, y):
    """Read after the first write: which of the two is seen is NumPy's affair."""
    y += 1
    y *= x
    y %= 1009


after.opencl("y(i) = fmod((y(i) + 1) * x(i), 1009.0);")


@pytest.mark.parametrize("make", [cx.array, cx.asarray])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_body_sees_through_one_parameter_what_it_writes_through_another(runtime, policy, make) -> None:
    devices = ",".join(device.name for device in runtime.platform.devices if not device.wide)
    for read, written in VIEWS:
        expected = np.random.default_rng(4).integers(0, 1000, 2**12).astype(float)
        ours = make(expected.copy())
        for a, call in ((ours, after.using(devices=devices, policy=policy)), (expected, after.function)):
            call(a[read], a[written])
            call(a[read], a[written])
        np.testing.assert_array_equal(np.asarray(ours), expected)


@cx.kernel(split=1, x=cx.read(cx.axis(0)), out=cx.write)
def column_sums(x, out):
    out[...] = x.sum(axis=0, keepdims=True)


@pytest.mark.parametrize("oversubscribe", [1, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_cut_that_is_made_later_is_unchecked(policy, oversubscribe) -> None:
    """The first parts of this call have nothing in common; those that are handed out later do."""
    data = np.random.default_rng(0).integers(0, 9, (110, 1500))
    call = column_sums.using(devices=TWO, policy=policy, oversubscribe=oversubscribe)
    with cx.Runtime(TWO):
        for _ in range(5):
            ours, expected = cx.array(data), data.copy()
            call(ours[:, 400:1000], ours[:, 100:1300:2])
            column_sums.function(expected[:, 400:1000], expected[:, 100:1300:2])
            np.testing.assert_array_equal(np.asarray(ours), expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("devices", [TWO, *([MIXED] if OPENCL else [])])
def test_two_outputs_may_be_woven_into_one_array(devices, policy) -> None:
    @cx.kernel(split=0, x=cx.read, p=cx.write, q=cx.write)
    def weave(x, p, q):
        p[...], q[...] = x, -x

    weave.opencl("p(i) = x(i); q(i) = -x(i);")
    with cx.Runtime(devices):
        a, x = cx.zeros(2000), np.arange(1000.0)
        named = ",".join(name.partition("@")[0] for name in devices.split(","))
        weave.using(devices=named, policy=policy)(cx.array(x), a[::2], a[1::2][::-1])
        expected = np.empty(2000)
        expected[::2], expected[1::2] = x, -x[::-1]
        np.testing.assert_array_equal(np.asarray(a), expected)


@needs_opencl
def test_only_numpy_computes_what_overlaps_and_the_plan_says_so() -> None:
    def loop(x, y):
        for i in range(y.shape[0]):
            y[i] = (y[i] + 1) * x[i] % 1009

    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def mine(x, y):
        after.function(x, y)

    mine.opencl("y(i) = fmod((y(i) + 1) * x(i), 1009.0);")
    mine.variant(loop, name="loop")
    with cx.Runtime("cpu:0,opencl:0"):
        a = cx.array(np.arange(4096.0))
        for pair in ((a, a), (a[1:], a[:-1])):
            assert {(p.device, p.variant) for p in mine.plan(*pair).parts} == {("cpu:0", "python")}
            assert {p.device for p in mine.using(devices="opencl:0").plan(*pair).parts} == {"host"}
        apart = mine.using(devices="opencl:0").plan(a[::2], a[1::2])
        assert {p.device for p in apart.parts} == {"opencl:0"}


@needs_opencl
def test_a_body_that_does_nothing_is_not_taken_for_an_answer() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def only_opencl(x, y):
        """Nothing in Python."""

    only_opencl.opencl("y(i) += x(i);")
    with cx.Runtime("opencl:0"):
        a = cx.array(np.ones(10))
        only_opencl(a[:5], a[5:])
        with pytest.raises(PlanError, match=r"overlap, and its Python body.*does nothing"):
            only_opencl(a[1:], a[:-1])
        assert np.asarray(a).tolist() == [1.0] * 5 + [2.0] * 5


def test_debug_mode_shows_a_body_its_own_writes_too() -> None:
    @cx.kernel(
        over=4, x=cx.read(lambda c: [slice(0, 2), slice(6, 8)]), y=cx.update(lambda c: [slice(0, 4), slice(7, 8)])
    )
    def woven(x, y):
        y[:4] += 1
        y[7:8] = x[:1]

    with cx.Runtime("cpu:0", debug=True):
        a = cx.array(np.arange(8.0))
        woven(a, a)
        assert np.asarray(a).tolist() == [1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 1.0]


@pytest.mark.parametrize("nodes", [1, 3])
def test_ranks_agree(nodes) -> None:
    with cx.Runtime(platform=cluster(nodes, 2), ranks=nodes, execute=True):
        for read, written in VIEWS:
            expected: Any = np.random.default_rng(5).integers(0, 1000, 2**12).astype(float)
            ours: Any = cx.array(expected)
            for a, call in ((ours, after), (expected, after.function)):
                call(a[read], a[written])
                a[1:] += a[:-1]
                np.remainder(a, 1009, out=a)
            np.testing.assert_array_equal(np.asarray(ours), expected)


def test_a_ufunc_that_copies_what_overlaps_can_be_divided() -> None:
    with divided(TWO), warnings.catch_warnings():
        warnings.simplefilter("error", cx.CoexecWarning)
        a: Any = cx.array(np.arange(2000.0))
        a -= a[::-1]
        assert float(np.asarray(a)[0]) == -1999.0


def test_loops_that_are_replayed_notice_that_arguments_begin_to_overlap() -> None:
    for devices in (name for name in DEVICES if "cpu" in name):
        x, y = np.full(5000, 0.5), np.full(5000, 0.25)
        with cx.Runtime(devices):
            a, b = cx.array(x), cx.array(y)
            for step in range(24):
                read = {18: np.s_[:], 20: np.s_[::-1]}.get(step)
                for first, second, call in ((a, b, after), (x, y, after.function)):
                    call(second if read is None else first[read], first)
            np.testing.assert_array_equal(np.asarray(a), x)
