from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.geometry import Box, whole
from coexec.ops import attention
from coexec.ops.attention import NUMERICS, attention_kernel
from coexec.program.chunk import ChunkInfo
from coexec.testing import check_kernel
from tests.backend.opencl_parts import needs_opencl
from tests.ops.devices_for_ops import LAYOUTS, MEMORIES, MIXES, laid_out, mixed_runtime
from tests.ops.sparse_parts import FLOATS, numbers


@pytest.fixture(scope="module", params=MEMORIES)
def runtime(request):
    with mixed_runtime(request.param) as runtime:
        yield runtime


def row_by_row(q, k, v, window, scale=None):
    """Return the attention of each row to its neighbours, in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    out, reach = np.empty(v.shape), window // 2
    scale = 1 / np.sqrt(max(1, q.shape[-1])) if scale is None else scale
    for row in range(q.shape[-2]):
        near = slice(max(0, row - reach), row + reach + 1)
        scores = np.einsum("...d,...nd->...n", q[..., row, :], k[..., near, :]) * scale
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out[..., row, :] = np.einsum("...n,...nd->...d", weights, v[..., near, :])
    return out


def assert_attention(got, q, k, v, window, scale=None):
    expected = row_by_row(q, k, v, window, scale)
    assert got.shape == expected.shape and got.dtype == v.dtype
    size = np.abs(v).max() * (1 + np.abs(q).max() * np.abs(k).max() * (q.shape[-1] ** 0.5)) if v.size else 1.0
    assert (np.abs(got - expected) <= NUMERICS.ulp * np.spacing(v.dtype.type(size))).all()


@needs_opencl
@settings(max_examples=15)
@given(st.data())
def test_attention_of_any_shape_is_that_of_each_row(runtime, data):
    dtype = data.draw(st.sampled_from(FLOATS))
    heads = data.draw(st.sampled_from([(), (1,), (3,)]))
    rows, (width, other) = data.draw(st.integers(1, 150)), data.draw(st.sampled_from([(1, 1), (8, 8), (13, 5)]))
    window = data.draw(st.sampled_from([1, 2, 3, 16, 65, 1000]))
    arrays = [numbers((*heads, rows, w), dtype, s) for s, w in enumerate((width, width, other))]
    layouts = [data.draw(st.sampled_from(LAYOUTS)) for _ in arrays]
    devices, policy = data.draw(st.sampled_from(MIXES)), data.draw(st.sampled_from(["", "even"]))
    call = cx.window_attention.using(devices=devices, policy=policy)
    q, k, v = (laid_out(a, layout) for a, layout in zip(arrays, layouts, strict=True))
    assert_attention(np.asarray(call(q, k, v, window)), arrays[0], arrays[1], arrays[2], window)


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
def test_what_a_row_does_not_see_does_not_matter(runtime, devices):
    q, k, v = (numbers((2, 200, 8), seed=s) for s in range(3))
    v[:, 100] = np.inf
    k[:, 150] = np.nan
    with np.errstate(all="ignore"):
        got = np.asarray(cx.window_attention.using(devices=devices)(q, k, v, 9))
    assert not np.isfinite(got[:, 96:105]).any() and np.isnan(got[:, 146:155]).all()
    rest = np.r_[0:96, 105:146, 155:200]
    assert np.isfinite(got[:, rest]).all()
    assert np.allclose(got[:, rest], row_by_row(q, np.nan_to_num(k), np.nan_to_num(v), 9)[:, rest], atol=1e-5)


@needs_opencl
@pytest.mark.parametrize("dtype", FLOATS)
def test_parts_and_variants_agree(dtype):
    q, k, v = (np.abs(numbers((2, 90, 12), dtype, s)) for s in range(3))
    made = attention_kernel(np.dtype(dtype).name, 7, (12, 12))
    assert [variant.kind for variant in made.variants] == ["python", "torch", "opencl"]
    check_kernel(made, q, k, v, np.empty_like(v), 7, 0.25, ulp=NUMERICS.ulp)


def test_a_scale_and_a_place_for_the_result_may_be_given():
    q, k, v = (numbers((30, 4), seed=s) for s in range(3))
    out = cx.zeros((30, 4), np.float64)
    assert cx.window_attention(q, k, v, 6, scale=2.0, out=out) is out
    assert np.allclose(np.asarray(out), row_by_row(q, k, v, 6, 2.0), atol=1e-5)


def test_operands_that_do_not_fit_are_refused():
    x = np.ones((5, 3))
    for call, error, message in [
        (lambda: cx.window_attention(x, x, x, 0), ArgumentError, "window=0"),
        (lambda: cx.window_attention(x, x, x, 2.5), ArgumentError, "window=2.5"),
        (lambda: cx.window_attention(x, x[:4], x, 2), ShapeError, "q and k alike"),
        (lambda: cx.window_attention(x[0], x[0], x[0], 2), ShapeError, "\\(row, element\\)"),
        (lambda: cx.window_attention(x.astype(int), x.astype(int), x.astype(int), 2), ArgumentError, "float32"),
    ]:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0, 5, 3), (5, 0)])
def test_arrays_without_elements_stay_so(shape):
    x = np.empty(shape, np.float32)
    assert np.asarray(cx.window_attention(x, x, x, 3)).shape == shape


@pytest.mark.parametrize("reach", [1, 5, 40, 90])
@pytest.mark.parametrize(("lo", "hi"), [(0, 200), (0, 60), (60, 130), (130, 200), (7, 8)])
def test_rows_one_by_one_and_in_blocks_see_the_same_neighbours(reach: int, lo: int, hi: int) -> None:
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, 200, 8)) for _ in range(3))
    near = slice(max(0, lo - reach), min(200, hi + reach))
    chunk = ChunkInfo(Box((0, lo), (2, hi)), whole((2, 200)), {})
    outs = [np.empty((2, hi - lo, 8)) for _ in range(2)]
    for out, body in zip(outs, (attention.attend_by_rows, attention.attend_by_blocks), strict=True):
        body(q[:, lo:hi], k[:, near], v[:, near], out, reach, 0.3, chunk)
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-12, atol=1e-14)
