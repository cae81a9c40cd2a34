from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.backend.opencl.storage import OpenCLSharedMemory
from coexec.errors import BackendError
from coexec.geometry import Box, whole
from coexec.graph.instruction import Binding, SeenPiece
from coexec.program.padding import Pad
from coexec.program.view import Cut, extract
from tests.backend.opencl_parts import HOST, USER, Rig, Source, aligned, needs_opencl

pytestmark = needs_opencl
MODES = ["own", "shared"]


@pytest.fixture(scope="module", params=MODES)
def rig(request):
    with Rig(request.param) as rig:
        yield rig


def random(shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 100, 4096, 10_007])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_short_form_gives_numpys_bits_for_any_size(rig, n, dtype):
    x, y = random(n, dtype), random(n, dtype)[::-1].copy()
    target = rig.put(y)
    rig.run(rig.kernel("y(i) = a * x(i) + y(i) / 3.0", whole((n,)), {"x": rig.put(x), "y": target}, a=1.1))
    assert np.array_equal(rig.get(target), 1.1 * x + y / 3.0)


@pytest.mark.parametrize("shape", [(), (5,), (70, 80), (3, 5, 90), (2, 3, 4, 5), (2, 3, 2, 3, 70)])
def test_every_point_of_any_index_space_is_visited_once(rig, shape):
    target = rig.put(np.zeros(shape, np.int32))
    axes = ", ".join(f"i{axis}" for axis in range(len(shape)))
    element = f"y({axes})" if shape else "y"
    position = " + ".join(["1", *(f"i{a} * {10 ** (len(shape) - a)}" for a in range(len(shape)))])
    rig.run(rig.kernel(f"{element} += {position}", whole(shape), {"y": target}))
    index = np.indices(shape) if shape else np.zeros((0,))
    expected = 1 + sum((index[a] * 10 ** (len(shape) - a) for a in range(len(shape))), np.zeros(shape, int))
    assert np.array_equal(rig.get(target), expected)


def test_indices_count_from_the_chunks_corner_and_lo_tells_where_that_is(rig):
    target = rig.put(np.zeros((4, 6), np.int64), (3, 2))
    rig.run(rig.kernel("y(i, j) = 100 * (lo0 + i) + lo1 + j + 0 * y_n1", Box((3, 2), (7, 8)), {"y": target}))
    assert np.array_equal(rig.get(target), 100 * np.arange(3, 7)[:, None] + np.arange(2, 8))


def test_a_halo_is_read_through_the_same_macro(rig):
    u = random((40, 50))
    out = np.zeros((38, 48), np.float32)
    target = rig.put(out, (1, 1))
    source = "out(i, j) = u(i + 1, j + 1) + k * (u(i, j + 1) + u(i + 2, j + 1) - 4 * u(i + 1, j + 1))"
    rig.run(rig.kernel(source, Box((1, 1), (39, 49)), {"u": rig.put(u), "out": target}, k=0.25))
    middle = u[1:-1, 1:-1]
    expected = middle + np.float32(0.25) * (u[:-2, 1:-1] + u[2:, 1:-1] - 4 * middle)
    assert np.array_equal(rig.get(target), expected)


def test_extents_of_arrays_make_a_matmul_short(rig):
    a, b = random((30, 20)).round(1), random((20, 70)).round(1)
    target = rig.put(np.zeros((30, 70), np.float32))
    source = "float sum = 0; for (long p = 0; p < a_n1; p++) sum += a(i, p) * b(p, j); c(i, j) = sum;"
    rig.run(rig.kernel(source, whole((30, 70)), {"a": rig.put(a), "b": rig.put(b), "c": target}))
    np.testing.assert_allclose(rig.get(target), a @ b, rtol=1e-4, atol=1e-5)


def test_the_long_form_gets_data_start_and_strides(rig):
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((2, 3), np.float32)
    target = rig.put(y)
    source = """
    float twice(float v) { return 2 * v; }
    __kernel void other(int unused) {}
    __kernel void scale(const __global float *x_data, const long x_start, const long x_stride0, const long x_stride1,
                        __global float *y_data, const long y_start, const long y_stride0, const long y_stride1,
                        const float a, const long n0, const long n1)
    {
        y(id0, id1) = a * twice(x_data[x_start + id0 * x_stride0 + id1 * x_stride1]) + n0;
    }
    """
    part = Binding("x", rig.put(x), Box((1, 1), (3, 4)), None, writes=False)
    rig.run(rig.kernel(Source(source, "scale"), whole((2, 3)), {"x": part, "y": target}, a=np.float32(0.5)))
    assert np.array_equal(rig.get(target), x[1:, 1:] + 2)


def test_sizes_that_the_variant_names_are_used(rig):
    target = rig.put(np.zeros(10, np.int32))
    source = (
        "kernel void f(__global int *y_data, const long y_start, const long y_stride0, const long n0)"
        "{ if (get_global_id(0) < n0) y(id0) = get_global_size(0) * 100 + get_local_size(0); }"
    )
    rig.run(rig.kernel(Source(source, local_size=(4,)), whole((10,)), {"y": target}))
    assert (rig.get(target) == 1204).all()
    rig.run(rig.kernel(Source(source, global_size=lambda shape: (shape[0] // 2,)), whole((10,)), {"y": target}))
    assert list(rig.get(target)) == [501] * 5 + [1204] * 5
    rig.run(rig.kernel(Source("y(i) = get_local_size(0)", local_size=(8,)), whole((10,)), {"y": target}))
    assert (rig.get(target) == 8).all()


def test_a_zero_dimensional_array_is_a_scalar_that_stays_on_the_device(rig):
    total, x = rig.put(np.array(0.5)), rig.put(np.arange(4.0))
    one = Binding("s", rig.put(np.arange(6.0)), Box((3,), (4,)), Cut((1,), ()), writes=False)
    rig.run(rig.kernel("t = t + 1", whole(()), {"t": total}))
    rig.run(rig.kernel("x(i) = x(i) * t + s", whole((4,)), {"x": x, "t": total, "s": one}))
    assert np.array_equal(rig.get(x), np.arange(4) * 1.5 + 3)


CUTS = [
    (Box((1, 2), (8, 9)), Cut((2, 3), (0, 1))),
    (Box((1, 2), (8, 9)), Cut((-1, 1), (1, 0))),
    (Box((0, 0), (9, 10)), Cut((-2, -3), (0, 1))),
    (Box((4, 0), (5, 10)), Cut((1, -1), (1,))),
    (Box((2, 3), (7, 4)), Cut((1, 1), (-1, 0))),
]


@pytest.mark.parametrize(("box", "cut"), CUTS)
def test_views_are_read_and_written_through_their_cut(rig, box, cut):
    data = np.arange(90, dtype=np.int64).reshape(9, 10)
    allocation = rig.put(data)
    view = extract(data, (0, 0), box, cut)
    axes = ", ".join(["i", "j"][: view.ndim])
    binding = Binding("v", allocation, box, cut, writes=True)
    rig.run(rig.kernel(f"v({axes}) = -v({axes}) - 1", whole(view.shape), {"v": binding}))
    view[...] = -view - 1
    assert np.array_equal(rig.get(allocation), data)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_every_integer_type_has_its_width_and_sign(rig, dtype):
    x = np.array([0, 1, 2, 200, -1, -128]).astype(dtype)
    y = rig.put(np.zeros(6, np.int64))
    rig.run(rig.kernel("y(i) = x(i)", whole((6,)), {"x": rig.put(x), "y": y}))
    assert np.array_equal(rig.get(y), x.astype(np.int64))


def test_scalars_arrive_as_what_they_are(rig):
    y = rig.put(np.zeros(5, np.float64))
    source = "y(0) = a; y(1) = b; y(2) = c; y(3) = d; y(4) = e;"
    values = {"a": 0.1, "b": 2**40, "c": True, "d": np.float32(0.1), "e": np.int8(-3)}
    rig.run(rig.kernel(source, whole((1,)), {"y": y}, **values))
    assert np.array_equal(rig.get(y), [0.1, 2.0**40, 1.0, float(np.float32(0.1)), -3.0])


def test_an_empty_array_has_its_extent_and_no_memory(rig):
    y = rig.put(np.zeros(3, np.float32))
    nothing = Binding("x", None, Box((5,), (5,)), None, writes=False)
    rig.run(
        rig.kernel(
            "y(i) = 1 + x_n0; for (long p = 0; p < x_n0; p++) y(i) += x(p);", whole((3,)), {"x": nothing, "y": y}
        )
    )
    assert np.array_equal(rig.get(y), [1, 1, 1])


@pytest.mark.parametrize(
    ("source", "arrays", "message"),
    [
        ("y(i) = nonsense;", {}, "does not compile(.|\n)*nonsense"),
        ("y(i) = missing_parameter_q", {"q": None}, "is complex128, which .* cannot compute with"),
        ("kernel void f(int x) {}", {}, "takes 1 arguments, coexec passes 4: void f\\(__global float"),
    ],
)
def test_what_cannot_run_is_reported_and_the_lane_goes_on(rig, source, arrays, message):
    y = rig.put(np.zeros(3, np.float32))
    more = {name: rig.put(np.zeros(2, np.complex128)) for name in arrays}
    for _ in range(2):  # the second time the failure is known
        with pytest.raises(BackendError, match=message):
            rig.run(rig.kernel(source, whole((3,)), {"y": y, **more}))
    rig.run(rig.kernel("y(i) = 1", whole((3,)), {"y": y}))
    assert rig.get(y).all()


def test_an_array_with_a_padded_border_is_seen_as_a_copy(rig):
    x, y = rig.put(np.arange(3, dtype=np.float32)), rig.put(np.zeros(3, np.float32))
    pad = Pad(Box((-1,), (4,)), x.box, (3,), ("wrap",))
    padded = Binding("x", x, x.box, None, writes=False, pad=pad)
    rig.run(rig.kernel("y(i) = 10 * x(i) + x(i + 2)", whole((3,)), {"y": y, "x": padded}))
    assert rig.get(y).tolist() == [21, 2, 10]


def test_an_array_of_which_only_both_ends_are_there_is_seen_as_a_copy(rig):
    first, last, y = (
        rig.put(np.arange(4, dtype=np.float32)),
        rig.put(np.full(1, 9, np.float32)),
        rig.put(np.zeros(3, np.float32)),
    )
    pad = Pad(Box((-1,), (4,)), Box((0,), (10,)), (10,), ("wrap",))
    pieces = (SeenPiece(first, first.box, Box((0,), (4,))), SeenPiece(last, last.box, Box((9,), (10,))))
    padded = Binding("x", first, pad.hull, None, writes=False, pad=pad, boxes=(first.box, last.box), pieces=pieces)
    rig.run(rig.kernel("y(i) = 10 * x(i) + x(i + 2)", whole((3,)), {"y": y, "x": padded}))
    assert rig.get(y).tolist() == [91, 2, 13]


def test_a_parameter_without_a_value_is_named(rig):
    kernel = rig.kernel("y(i) = 1", whole((3,)), {"y": rig.put(np.zeros(3))})
    kernel.task.params = ("y", "z")
    with pytest.raises(BackendError, match="parameter 'z' has no value"):
        rig.run(kernel)


def test_kernels_on_other_memories_are_refused():
    with Rig() as rig, pytest.raises(BackendError, match="is not in the memory of opencl:0"):
        rig.run(rig.kernel("y(i) = 1", whole((3,)), {"y": rig.host(np.zeros(3))}))
    with Rig("shared") as rig, pytest.raises(BackendError, match="is not in the host's memory"):
        allocation = rig.host(np.zeros(3))
        allocation.data = "elsewhere"
        rig.run(rig.kernel("y(i) = 1", whole((3,)), {"y": allocation}))


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 40), st.integers(1, 3), st.sampled_from([1, -1]), st.sampled_from([np.uint8, np.float32, np.float64])
)
def test_shared_memory_needs_neither_density_nor_alignment_to_be_read(skip, step, sign, dtype):
    data = np.arange(200, dtype=dtype)[skip :: sign * step]
    expected = data.astype(np.float64)
    with Rig("shared") as rig:
        source = rig.host(data, memory=USER)
        target = rig.put(np.zeros(len(data)))
        rig.run(rig.kernel("y(i) = x(i)", whole(data.shape), {"x": source, "y": target}))
        assert np.array_equal(target.data, expected)


def test_a_field_of_records_is_read_though_no_stride_reaches_it():
    records = np.zeros(5, "u1,f8")
    records["f1"] = np.arange(5)
    with Rig("shared") as rig:
        target = rig.put(np.zeros(5))
        rig.run(rig.kernel("y(i) = x(i)", whole((5,)), {"x": rig.host(records["f1"], memory=USER), "y": target}))
        assert np.array_equal(target.data, np.arange(5))


def test_shared_memory_is_written_in_place_and_forgotten_when_dropped():
    with Rig("shared") as rig:
        storage = rig.backend._storage
        assert isinstance(storage, OpenCLSharedMemory)
        wrapped = storage._wrapped
        y = rig.host(aligned(np.zeros(100, np.float32)))
        for _ in range(3):
            rig.run(rig.kernel("y(i) += 1", whole((100,)), {"y": y}))
        assert (y.data == 3).all() and len(wrapped) == 1 and y.memory == HOST
        y.data = None
        rig.reports.clear()
        gc.collect()
        z = rig.put(np.zeros(4, np.float32))
        rig.run(rig.kernel("y(i) += 1", whole((4,)), {"y": z}))
        assert len(wrapped) == 1
        rig.backend.release(z)
        assert not wrapped


def test_a_variant_may_ask_for_fused_multiplication_and_addition(rig):
    a, c = np.float32(1 + 2**-12), np.float32(-(1 + 2**-11))
    for contract, expected in ((False, 0.0), (True, 2.0**-24)):
        y = rig.put(np.full(64, c))
        rig.run(rig.kernel(Source("y(i) = a * a + y(i)", contract=contract), whole((64,)), {"y": y}, a=a))
        assert (rig.get(y) == expected).all()


def test_a_device_that_is_no_cpu_runs_what_is_meant_for_elsewhere():
    with Rig() as rig:
        launcher, y = rig.backend._launcher, rig.put(np.zeros(5, np.float32))
        both = Source("y(i) += 1", elsewhere=Source("y(i) += 10"))
        rig.run(rig.kernel(both, whole((5,)), {"y": y}))
        launcher._device = launcher._device._replace(cpu=False)
        rig.run(rig.kernel(both, whole((5,)), {"y": y}))
        assert (rig.get(y) == 11).all()
