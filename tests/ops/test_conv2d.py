from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from coexec.ops import conv2d
from coexec.ops.conv2d import conv2d_kernel, gpu_variant
from coexec.ops.convolve import SumFinish, convolution_body
from coexec.ops.matmul import NUMERICS
from coexec.ops.op import TILES
from coexec.testing import check_kernel
from tests.backend.opencl_parts import needs_opencl
from tests.ops.devices_for_ops import LAYOUTS, MEMORIES, MIXES, laid_out, mixed_runtime

FLOATS = [np.float32, np.float64]
CASES = [  # images, filters, options
    ((2, 3, 8, 9), (4, 3, 3, 3), {"padding": 1}),
    ((1, 16, 20, 33), (24, 16, 3, 3), {"padding": "same"}),
    ((3, 6, 17, 19), (8, 3, 3, 5), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}),
    ((2, 6, 10, 30), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((2, 6, 10, 10), (12, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 6}),
    ((2, 8, 9, 20), (4, 4, 2, 3), {"groups": 2, "padding": (0, 1)}),
    ((1, 64, 14, 14), (40, 64, 1, 1), {}),
    ((1, 8, 5, 40), (7, 8, 5, 3), {"stride": (3, 2), "padding": (4, 3), "dilation": (2, 1)}),
    ((5, 4, 7, 7), (10, 2, 7, 7), {"padding": 3, "groups": 2}),
    ((1, 3, 30, 70), (200, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((1, 2, 3, 3), (3, 2, 1, 1), {"padding": 3}),
    ((1, 50, 4, 40), (7, 50, 3, 3), {"padding": "valid"}),
    ((0, 3, 5, 5), (4, 3, 3, 3), {}),
    ((2, 0, 5, 5), (4, 0, 3, 3), {}),
    ((2, 3, 5, 5), (0, 3, 3, 3), {}),
]


@pytest.fixture(scope="module", params=MEMORIES)
def runtime(request):
    with mixed_runtime(request.param) as runtime:
        yield runtime


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def tap_by_tap(x, w, bias=None, *, stride=1, padding=0, dilation=1, groups=1):
    """Return the convolution in double precision: one product per tap, on a padded copy."""
    (sh, sw), (dh, dw), (filters, channels, down, across) = pair(stride), pair(dilation), w.shape
    if padding == "same":
        around = [((n - 1) * d // 2, (n - 1) * d - (n - 1) * d // 2) for n, d in ((down, dh), (across, dw))]
    else:
        around = [(n, n) for n in pair(0 if padding == "valid" else padding)]
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *around))
    rows = (x.shape[2] - (down - 1) * dh - 1) // sh + 1
    columns = (x.shape[3] - (across - 1) * dw - 1) // sw + 1
    out = np.zeros((x.shape[0], filters, rows, columns))
    each = filters // groups
    for g in range(groups):
        for r in range(down):
            for s in range(across):
                seen = x[:, g * channels : (g + 1) * channels, r * dh :: sh, s * dw :: sw][:, :, :rows, :columns]
                weights = w[g * each : (g + 1) * each, :, r, s].astype(np.float64)
                out[:, g * each : (g + 1) * each] += np.tensordot(weights, seen, (1, 1)).transpose(1, 0, 2, 3)
    return out if bias is None else out + bias[:, None, None]


def assert_convolution(got, x, w, bias=None, **options):
    """Compare with the oracle, by the declared numerics."""
    expected = tap_by_tap(x, w, bias, **options)
    assert got.shape == expected.shape and got.dtype == np.result_type(x, w)
    size = tap_by_tap(np.abs(x), np.abs(w), None if bias is None else np.abs(bias), **options).astype(got.dtype)
    assert (np.abs(got - expected) <= NUMERICS.ulp * np.spacing(size)).all()


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("images", "filters", "options"), CASES)
def test_a_convolution_is_the_sum_over_its_taps(runtime, devices, biased, images, filters, options):
    for dtype in FLOATS:
        x, w = numbers(images, dtype), numbers(filters, dtype, 1)
        bias = numbers(filters[0], dtype, 2) if biased else None
        got = np.asarray(conv2d.using(devices=devices)(cx.array(x), w, bias, **options))
        assert_convolution(got, x, w, bias, **options)


@st.composite
def convolutions(draw):
    """Draw images, filters and options that fit."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 5]))
    channels, filters = draw(st.integers(1, 9)), draw(st.integers(1, 9)) * groups
    taps = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    options = {
        name: draw(st.one_of(st.integers(least, 3), st.tuples(st.integers(least, 3), st.integers(least, 3))))
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))
    }
    least = [
        max(1, (t - 1) * d + 1 - 2 * p)
        for t, d, p in zip(taps, pair(options["dilation"]), pair(options["padding"]), strict=True)
    ]
    size = (least[0] + draw(st.integers(0, 12)), least[1] + draw(st.integers(0, 40)))
    images = (draw(st.integers(1, 3)), channels * groups, *size)
    return images, (filters, channels, *taps), {**options, "groups": groups}


@needs_opencl
@settings(max_examples=40)
@given(convolutions(), st.sampled_from(FLOATS), st.sampled_from(MIXES), st.lists(st.sampled_from(LAYOUTS), min_size=3))
def test_any_shapes_options_and_layouts_give_the_sum_over_the_taps(runtime, case, dtype, devices, layouts):
    images, filters, options = case
    x, w = numbers(images, dtype), numbers(filters, dtype, 1)
    expected = tap_by_tap(x, w, **options)
    out = laid_out(np.zeros(expected.shape, dtype), layouts[2] if layouts[2] != "borrowed" else "dense")
    result = conv2d.using(devices=devices)(laid_out(x, layouts[0]), laid_out(w, layouts[1]), out=out, **options)
    assert result is out
    assert_convolution(np.asarray(out), x, w, **options)


@needs_opencl
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[3], CASES[4], CASES[7], CASES[10]])
def test_a_convolution_may_be_divided_along_images_filters_and_rows(case):
    images, filters, options = case
    x, w, bias = np.abs(numbers(images)), np.abs(numbers(filters, seed=1)), np.abs(numbers(filters[0], seed=2))
    with cx.Runtime("cpu:0"):
        call = conv2d.prepare(x, w, bias, **options)
        check_kernel(call.kernel, *call.arguments, ulp=NUMERICS.ulp)


@needs_opencl
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("images", "filters", "options"), CASES)
def test_the_source_for_gpus_computes_the_same(runtime, biased, images, filters, options):
    x, w, bias = numbers(images), numbers(filters, seed=1), numbers(filters[0], seed=2) if biased else None
    call = conv2d.prepare(cx.array(x), w, bias, **options)
    accesses: dict[str, Any] = {param.name: param.access for param in call.kernel.array_params}
    made = cx.kernel(split=(0, 1, 2), over="out", **accesses)(convolution_body(SumFinish(biased=biased)))
    made.variants.append(gpu_variant(TILES["float32"], SumFinish(biased=biased)))
    made.using(devices="opencl:0")(*call.arguments)
    assert_convolution(np.asarray(call.result), x, w, bias, **options)
    if 0 not in call.result.shape:
        plain = [np.abs(np.asarray(a)) if isinstance(a, cx.Array) else a for a in call.arguments]
        check_kernel(made, *plain, splits=(2,), ulp=NUMERICS.ulp)


FINISHES = [
    SumFinish(low=0.0),
    SumFinish(True, True, 0.0),
    SumFinish(True, False, -0.5, 0.5),
    SumFinish(added=True),
    SumFinish(high=-0.25),
]


def finished(call: Any, after: SumFinish, x: Any, w: Any, operands: tuple[Any, ...], options: Any) -> tuple[Any, Any]:
    """Return the kernel of a call with what is done to its sums, and what must come out."""
    window = next(param.access.mapper.window for param in call.kernel.array_params if param.name == "x")
    named = dict(zip(after.operands, operands, strict=True))
    with np.errstate(invalid="ignore"):
        expected = tap_by_tap(x, w, named.get("bias"), **options) + named.get("other", 0)
    low, high = -np.inf if after.low is None else after.low, np.inf if after.high is None else after.high
    return conv2d_kernel("float32", window, after), np.clip(expected, low, high)


@needs_opencl
@pytest.mark.parametrize("after", FINISHES)
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[4]])
def test_sums_are_finished_in_the_same_call(runtime, after, case):
    images, filters, options = case
    x, w = numbers(images), numbers(filters, seed=1)
    call = conv2d.prepare(cx.array(x), w, **options)
    given = {"bias": numbers(filters[0], seed=2), "other": numbers(call.result.shape, seed=3)}
    operands = tuple(given[name] for name in after.operands)
    kernel, expected = finished(call, after, x, w, operands, options)
    scalars = call.arguments[3:]
    variants = [kernel.using(devices=device) for device in ("cpu:0", "opencl:0", "cpu:0,opencl:0")]
    gpu = cx.kernel(split=(0, 1, 2), over="out", **{p.name: p.access for p in kernel.array_params})(
        convolution_body(after)
    )
    gpu.variants.append(gpu_variant(TILES["float32"], after))
    for made in (*variants, gpu.using(devices="opencl:0")):
        out = cx.empty(call.result.shape, np.float32)
        made(cx.array(x), cx.array(w), *map(cx.array, operands), out, *scalars)
        np.testing.assert_allclose(np.asarray(out), expected, rtol=1e-4, atol=1e-4)


@needs_opencl
def test_what_is_not_a_number_stays_so_beyond_bounds(runtime):
    x, w = numbers((1, 2, 6, 6)), numbers((3, 2, 3, 3), seed=1)
    x[0, 1, 3, 3] = np.nan
    call = conv2d.prepare(cx.array(x), w)
    kernel, expected = finished(call, SumFinish(low=0.0, high=1.0), x, w, (), {})
    for device in ("cpu:0", "opencl:0"):
        out = cx.empty(call.result.shape, np.float32)
        kernel.using(devices=device)(cx.array(x), cx.array(w), out, *call.arguments[3:])
        np.testing.assert_array_equal(np.isnan(np.asarray(out)), np.isnan(expected))


@needs_opencl
@pytest.mark.parametrize("devices", MIXES)
@pytest.mark.parametrize("groups", [1, 4])
def test_nan_and_infinity_reach_the_pixels_that_see_them_alone(runtime, devices, groups):
    x, w = numbers((1, 4, 9, 30)), numbers((8, 4 // groups, 3, 3), seed=1)
    x[0, 1, 4, 20], x[0, 2, 0, 0], w[7, 0, 0, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = tap_by_tap(x, w, stride=1, padding=0, groups=groups)
        got = np.asarray(conv2d.using(devices=devices)(cx.array(x), cx.array(w), groups=groups))
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(np.isinf(got), np.isinf(expected))


def test_padding_is_zero_even_beside_infinity():
    with cx.Runtime("cpu:0"):
        got = np.asarray(conv2d(np.full((1, 1, 2, 2), np.inf), np.ones((1, 1, 3, 3)), padding=1))
        assert (got == np.inf).all()


@pytest.mark.parametrize(("images", "filters", "options"), CASES[:-3])
def test_torch_agrees(images, filters, options):
    torch = pytest.importorskip("torch", reason="torch is a second oracle, where it is installed")
    x, w, bias = numbers(images), numbers(filters, seed=1), numbers(filters[0], seed=2)
    expected = torch.nn.functional.conv2d(*(torch.from_numpy(a) for a in (x, w, bias)), **options).numpy()
    with cx.Runtime("cpu:0"):
        np.testing.assert_allclose(np.asarray(conv2d(x, w, bias, **options)), expected, rtol=1e-4, atol=1e-4)


def test_scipy_agrees_on_one_channel():
    from scipy.signal import correlate2d

    x, w = numbers((20, 30), np.float64), numbers((4, 5), np.float64, 1)
    with cx.Runtime("cpu:0"):
        got = np.asarray(conv2d(cx.array(x)[None, None], w[None, None]))[0, 0]
        np.testing.assert_allclose(got, correlate2d(x, w, mode="valid"), rtol=1e-10, atol=1e-10)


def test_types_are_promoted_and_others_refused_with_the_remedy():
    with cx.Runtime("cpu:0"):
        x, w = numbers((1, 2, 6, 6)), numbers((3, 2, 3, 3), np.float64, 1)
        assert conv2d(x, w).dtype == np.float64
        assert_convolution(np.asarray(conv2d(x, w)), x, w)
        with pytest.raises(ArgumentError, match="takes float32 or float64, not int64, int64; convert with"):
            conv2d(x.astype(int), w.astype(int))
        with pytest.raises(ArgumentError, match="takes float32 or float64"):
            conv2d(x.astype(np.complex64), w)


@pytest.mark.parametrize(
    ("images", "filters", "options", "error", "message"),
    [
        ((3, 6, 6), (4, 3, 3, 3), {}, ShapeError, r"x has shape \(3, 6, 6\) and w .* A single image is x\[None\]"),
        ((1, 3, 6, 6), (4, 2, 3, 3), {}, ShapeError, "has 3 channels, w of shape .* with groups=1 takes 2"),
        ((1, 4, 6, 6), (3, 2, 3, 3), {"groups": 2}, ShapeError, "the 3 filters .* cannot be divided into 2 groups"),
        ((1, 4, 6, 6), (3, 4, 3, 3), {"groups": 0}, ArgumentError, "groups=0; give a whole number from 1"),
        ((1, 3, 6, 6), (4, 3, 7, 7), {}, ShapeError, "do not fit into images of .* pad more"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"stride": 0}, ArgumentError, "stride=0; give a whole number from 1, or a pair"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"stride": 1.5}, ArgumentError, "stride=1.5; give a whole number"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"padding": -1}, ArgumentError, "padding=-1; give a whole number from 0"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"padding": "full"}, ArgumentError, "padding='full'; give numbers, 'valid' or"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"padding": "same", "stride": 2}, ArgumentError, "'same' needs stride 1"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"dilation": (1, 2, 3)}, ArgumentError, "dilation=.*or a pair"),
        ((1, 3, 6, 6), (4, 3, 3, 3), {"bias": np.zeros(3)}, ShapeError, r"bias has shape \(3,\).* filter: \(4,\)"),
    ],
)
def test_what_does_not_fit_is_named_with_the_remedy(images, filters, options, error, message):
    with cx.Runtime("cpu:0"), pytest.raises(error, match=message):
        conv2d(cx.zeros(images), cx.zeros(filters), **options)


def test_the_operations_of_a_convolution_are_known_and_kernels_are_kept():
    with cx.Runtime("cpu:0"):
        call = conv2d.prepare(cx.zeros((1, 4, 6, 6)), cx.zeros((6, 2, 3, 3)), groups=2)
        again = conv2d.prepare(cx.zeros((9, 4, 8, 6)), cx.zeros((6, 2, 3, 3)), groups=2)
    assert call.kernel is again.kernel
    assert conv2d_kernel.cache_info().currsize >= 1
    assert call.kernel.cost.flops is not None
    assert call.kernel.cost.flops.function(np.empty((6, 2, 3, 3)), np.empty((1, 6, 4, 4))) == 2 * 96 * 18
