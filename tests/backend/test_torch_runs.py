"""Whole programs on torch, alone and beside NumPy, in the host's memory and in its own."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import CoexecWarning
from coexec.machine.cores import available_cores

pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

BESIDE = f"cpu:0,torch:cpu@{available_cores()[-1]}"
memories = pytest.mark.parametrize("memory", [{}, {"torch:cpu": "own"}], ids=["shared", "own"])
torch_only = pytest.mark.parametrize("devices", ["torch:cpu", BESIDE], ids=["alone", "beside"])


def off(kernel):
    return [variant.off for variant in kernel.variants if variant.kind == "torch"]


@memories
@torch_only
def test_bodies_that_differ_on_torch_are_redone_on_numpy(devices, memory):
    @cx.kernel(x=cx.read, y=cx.write)
    def deviation(x, y):
        y[...] = x.std()

    @cx.kernel(x=cx.read, y=cx.write)
    def half(x, y):
        y[...] = x / 2

    data, integers = np.random.default_rng(0).random(1000), np.arange(1000)
    with cx.Runtime(devices=devices, memory=memory):
        x, n, y, z = cx.array(data), cx.array(integers), cx.zeros(3), cx.zeros(1000)
        with pytest.warns(CoexecWarning, match=r"std\(\) of a tensor divides by n - 1"):
            deviation.using(devices="torch:cpu")(x, y).result()
        x[...] = 0  # what was redone must have seen the values from before
        with pytest.warns(CoexecWarning, match="div of torch.int64 gives torch.float32"):
            half.using(devices="torch:cpu")(n, z).result()
        assert np.array_equal(np.asarray(y), np.full(3, data.std())) and np.array_equal(np.asarray(z), integers / 2)
        assert all(off(deviation)) and all(off(half))


@memories
@torch_only
def test_a_program_gives_numpys_results(devices, memory):
    @cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update)
    def heat(u, out, k):
        out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])

    @cx.kernel(split=0, u=cx.read(cx.halo((1, 0), border="wrap")), out=cx.write)
    def shift(u, out):
        out[...] = np.maximum(u[2:], u[:-2])

    @cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"), top=cx.reduce("max"))
    def measure(x, total, top, xp):
        total += xp.sum(x, axis=0)
        top[...] = xp.maximum(top, xp.max(x))

    @cx.kernel(x=cx.read, returns=cx.like("x"))
    def square(x):
        return x * x

    @cx.kernel(split=0, x=cx.read, s=cx.read(cx.all), y=cx.update)
    def add(x, s, y, k):
        y += k * x / (1 + abs(s))

    kernels = (heat, shift, measure, square, add)

    def program(u, device):
        heat_, shift_, measure_, square_, add_ = (kernel.using(devices=device) for kernel in kernels)
        a, b, total, top = cx.array(u), cx.zeros_like(u), cx.zeros(u.shape[1]), cx.full((), -1.0)
        for _ in range(4):
            heat_(a, b, 0.1)
            shift_(b, a)
            add_(a[::-1], total, b, top)
            a[1::2, ::-1] = b[1::2]
        measure_(square_(a), total, top)
        add_(a, total, b, np.float64(2))
        return [np.asarray(array) for array in (a, b, total, top)]

    u = np.random.default_rng(1).random((40, 30))
    with cx.Runtime(devices="cpu:0"):
        wanted = program(u, "cpu:0")
    with cx.Runtime(devices=devices, memory=memory):
        found = program(u, "torch:cpu")
    for one, other in zip(wanted, found, strict=True):
        assert np.allclose(one, other, rtol=1e-12, equal_nan=True)
    assert [off(kernel) for kernel in kernels] == [[""]] * len(kernels)


@memories
def test_a_call_may_be_divided_between_numpy_and_torch(memory):
    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def wave(x, y):
        y += np.sin(x) * np.exp(-x)

    data = np.random.default_rng(2).random(400_000)
    with cx.Runtime(devices=BESIDE, memory=memory):
        x, y = cx.array(data), cx.zeros(400_000)
        for _ in range(12):
            wave(x, y)
        assert np.allclose(np.asarray(y), 12 * np.sin(data) * np.exp(-data), rtol=1e-12)


@memories
def test_types_that_torch_does_not_compute_with_stay_on_numpy(memory):
    @cx.kernel(x=cx.update)
    def increment(x):
        x += 1

    with cx.Runtime(devices=BESIDE, memory=memory):
        for dtype in (np.uint16, np.uint64, np.float32, np.complex128):
            x = cx.zeros(5, dtype)
            increment(x)
            assert np.array_equal(np.asarray(x), np.ones(5, dtype)) and np.asarray(x).dtype == dtype
        with pytest.raises(cx.CoexecError, match="uint16"):
            increment.using(devices="torch:cpu")(cx.zeros(5, np.uint16))


@memories
def test_random_numbers_of_a_chunk_are_the_same_on_torch(memory):
    @cx.kernel(split=0, y=cx.write)
    def draw(y, chunk):
        y[...] = chunk.rng(7).random(dtype=np.float32) + chunk.lo[0] * 0

    with cx.Runtime(devices=BESIDE, memory=memory):
        found = []
        for device in ("cpu:0", "torch:cpu"):
            y = cx.zeros(100, np.float32)
            draw.using(devices=device)(y)
            found.append(np.asarray(y))
        assert np.array_equal(found[0], found[1]) and off(draw) == [""]


def _added(a):
    a += 1


def _times_itself(a):
    a *= a


def _shifted(a):
    a[1:] += a[:-1]


def _reversed(a):
    a *= a[::-1]


def _less_the_first(a):
    a -= a[:1]


def _out(a):
    np.sqrt(a, out=a)


def _columns(a):
    a += a[:, :1]


def _transposed(a):
    a += a.T


@memories
@pytest.mark.parametrize(
    "operation", [_added, _times_itself, _shifted, _reversed, _less_the_first, _out, _columns, _transposed]
)
def test_operations_in_place_are_no_mistake_in_debug_mode(operation, memory):
    """An input that shares elements with an output changes with it; and no output is poisoned that is an input, too."""
    shape = (8, 8) if operation in (_columns, _transposed) else (64,)
    data = 1 + np.arange(64.0).reshape(shape)
    with cx.Runtime(devices="torch:cpu", memory=memory, debug=True):
        a = cx.array(data)
        for _ in range(3):
            operation(a)
        for _ in range(3):
            operation(data)
        np.testing.assert_allclose(np.asarray(a), data, rtol=1e-14)
