"""`xp` on torch against NumPy: every function, on every type that it takes, gives NumPy's shape, type and values."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tests.repository import child_environment

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from coexec.backend.torch import namespace  # noqa: E402 - needs torch
from coexec.backend.torch.handover import to_numpy, to_tensor  # noqa: E402

xp = namespace.Namespace(torch.device("cpu"))
rng = np.random.default_rng(0)
FLOATS: list[Any] = [rng.random((3, 4)), rng.random((3, 4), dtype=np.float32)]
INTEGERS: list[Any] = [rng.integers(1, 9, (3, 4)), rng.integers(1, 9, (3, 4), dtype=np.int32)]
REAL: list[Any] = [*FLOATS, *INTEGERS, rng.integers(1, 9, (3, 4), dtype=np.int16)]
COMPLEX = [rng.random((3, 4)) + 1j * rng.random((3, 4))]
BOOLEAN: list[Any] = [rng.random((3, 4)) < 0.5]


def names(table: str) -> list[str]:
    return [name.partition(":")[0] for name in table.split()]


def given(value):
    if isinstance(value, np.ndarray):
        return to_tensor(value.copy())
    return type(value)(map(given, value)) if isinstance(value, list | tuple) else value


def same(name, *args, **options):
    """Check one call; what NumPy refuses is not asked of torch."""
    function: Any = np
    other: Any = xp
    for part in name.split("."):
        function, other = getattr(function, part), getattr(other, part)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            wanted = np.asarray(function(*args, **options))
    except (TypeError, RuntimeWarning, ValueError):
        return 0
    found = other(*given(args), **{key: given(value) for key, value in options.items()})
    found = to_numpy(found) if isinstance(found, torch.Tensor) else np.asarray(found)
    kinds = [arg.dtype.name if isinstance(arg, np.ndarray) else arg for arg in args]
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), (name, kinds, options)
    assert np.allclose(found, wanted, rtol=1e-5, equal_nan=True), (name, kinds, options)
    return 1


def test_functions_of_one_operand():
    for name in names(namespace.UNARY):
        assert sum(same(name, x) for x in [*REAL, *FLOATS]) >= 2, name
    for name in [*names(namespace.UNARY), *names(namespace.PARTS)]:
        if name not in ("real", "imag"):
            assert sum(same(name, x) for x in [*FLOATS, *INTEGERS]) >= 1, name
        if name not in ("sign", "sort", "argsort", "signbit"):
            same(name, *COMPLEX)


def test_functions_of_two_operands():
    operands = [*REAL, *BOOLEAN]
    for name in [*names(namespace.BINARY), "power", "pow", "matmul"]:
        turned = name == "matmul"
        pairs = [(a, b.T.copy() if turned else b) for a in operands for b in operands]
        assert sum(same(name, a, b) for a, b in pairs if not (a.dtype == b.dtype == bool)) >= 4, name
        if turned:
            continue
        for a in REAL[:4]:
            same(name, a, 2)
            same(name, a, 2.5)
            same(name, a, np.array(2.5))
            same(name, 2.5, a)
            same(name, a, np.float64(0.1))
            same(name, np.float32(0.1), a)


def test_folds_over_any_axes():
    for name in names(namespace.FOLDS):
        for x in [*REAL, *BOOLEAN]:
            assert same(name, x) + same(name, x, axis=1) + same(name, x, axis=0, keepdims=True) == 3, name
            if name not in ("argmax", "argmin"):
                assert same(name, x, axis=(0, 1))
    assert same("sum", INTEGERS[1], dtype=np.float64) and same("sum", FLOATS[1], dtype=float)


def test_mean_and_spread_divide_as_numpy_does():
    for x in [*FLOATS, *INTEGERS]:
        for name in ("mean", "std", "var"):
            assert same(name, x) and same(name, x, axis=0) and same(name, x, axis=1, keepdims=True)
    assert (
        same("std", FLOATS[0], ddof=1)
        and same("var", FLOATS[1], axis=0, ddof=1)
        and same("mean", INTEGERS[0], dtype="f8")
    )


def test_arrays_are_made_with_numpys_types():
    for name in ("zeros", "ones"):
        assert same(name, 3) and same(name, (2, 3)) and same(name, (2,), dtype=np.int32) and same(name, (), bool)
    assert xp.empty(3).dtype == torch.float64 and xp.empty_like(xp.zeros(3, int)).dtype == torch.int64
    assert same("full", (2, 3), 7) and same("full", (2,), 1.5) and same("full", 2, 1, dtype=np.float32)
    assert same("arange", 5) and same("arange", 1.0, 2.0, 0.25) and same("arange", 5, dtype=np.float32)
    assert same("linspace", 0, 1, 5) and same("linspace", 0, 1, 5, endpoint=False) and same("eye", 3)
    assert same("asarray", [1, 2]) and same("asarray", [1.5]) and same("array", 2, dtype=np.float32)
    assert same("array", [np.ones(2), np.zeros(2)]) and same("identity", 2)
    for name in ("zeros_like", "ones_like"):
        assert same(name, FLOATS[1]) and same(name, INTEGERS[0], dtype=float)
    assert same("full_like", FLOATS[1], np.float64(2)) and same("meshgrid", np.arange(3), np.arange(2), indexing="ij")
    made = xp.array(tensor := torch.zeros(2))
    assert (
        made is not tensor
        and xp.asarray(tensor) is tensor
        and xp.ascontiguousarray(tensor.expand(2, 2)).is_contiguous()
    )


def test_shapes_change_as_in_numpy():
    a, b, v = FLOATS[0], INTEGERS[0], np.arange(12.0)
    cases: list[tuple[Any, ...]] = [
        ("reshape", v, (3, 4)), ("squeeze", a[None]), ("expand_dims", a, 1), ("moveaxis", a, 0, 1), ("swapaxes", a, 0, 1),
        ("broadcast_to", v, (2, 12)), ("roll", a, 1), ("roll", a, 1, 0), ("tile", v, (2, 1)), ("repeat", v, 2),
        ("take", v, np.array([3, 1]), 0), ("where", a > 0.5, a, 0.0), ("where", a > 0.5, a, a), ("clip", a, 0.2, 0.8),
        ("stack", [a, a]), ("vstack", [a, a]), ("hstack", [a, a]), ("concat", [a, b.astype(float)]), ("outer", v, v),
        ("concatenate", [a, a], 1), ("concatenate", (v, v)), ("transpose", a), ("transpose", a[None], (2, 0, 1)),
        ("ravel", a), ("cumsum", a), ("cumsum", b, 1), ("cumprod", b, 0), ("cumprod", b), ("take", a, np.array([[0, -1]]), -1), ("take", a, np.array([5])), ("round", a, 1), ("squeeze", a[None], 0),
        ("diff", v), ("tril", a), ("triu", a), ("diagonal", a), ("trace", a), ("einsum", "ij,ij->i", a, a),
        ("tensordot", a, a.T.copy(), 1), ("searchsorted", v, np.array([2.5])), ("isin", b, np.array([1, 2])),
        ("nan_to_num", np.array([np.nan, 1])), ("bincount", b.ravel()), ("permute_dims", a, (1, 0)), ("flip", a, axis_0 := 0),
        ("dot", v, v), ("dot", a, a.T.copy()), ("dot", a, 2.0), ("dot", a, a[0]), ("vdot", a, a), ("copy", a),
        ("shape", a), ("ndim", a), ("size", a), ("astype", a, "float32"), ("allclose", a, a),
    ]  # fmt: skip
    assert axis_0 == 0
    for name, *args in cases:
        assert same(name, *args), name


def test_results_go_into_out_by_numpys_casting_rule():
    out = torch.zeros(3, dtype=torch.float32)
    assert xp.add(torch.arange(3), 1.5, out=out) is out and out.tolist() == [1.5, 2.5, 3.5]
    assert xp.sqrt(torch.tensor([4.0, 9.0, 16.0]), out=(out,)) is out and out.tolist() == [2, 3, 4]
    assert xp.sum(torch.ones(2, 3), 0, out=out).tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match=r"cannot cast the result from torch\.float64 to torch\.int64"):
        xp.add(torch.arange(3), 1.5, out=torch.zeros(3, dtype=torch.int64))
    xp.copyto(out, torch.arange(3))
    assert out.tolist() == [0, 1, 2]


def test_linear_algebra_and_transforms():
    square = rng.random((4, 4)) + 4 * np.eye(4)
    for name in ("inv", "det", "norm"):
        assert same(f"linalg.{name}", square)
    assert same("linalg.solve", square, np.ones((4, 1))) and same("linalg.norm", INTEGERS[0], axis=1)
    assert same("linalg.norm", square, ord=1) and same("linalg.cholesky", square @ square.T)
    for name in names(namespace.FFT):
        assert same(f"fft.{name}", FLOATS[0]), name
        assert same(f"fft.{name}", FLOATS[1]), name
    assert same("fft.rfft", FLOATS[0], 3, axis=0)


def test_every_name_is_one_of_numpys_and_a_missing_one_says_so():
    public = [name for name in (*vars(xp), *vars(namespace.Namespace)) if not name.startswith("_")]
    assert [name for name in public if not hasattr(np, name)] == []
    with pytest.raises(AttributeError, match="coexec's NumPy for torch has no 'i0'"):
        xp.i0  # noqa: B018
    assert repr(xp) == "<NumPy's language on torch device cpu>"
    assert xp.float32 is torch.float32 and xp.newaxis is None and xp.finfo(xp.float32).eps == np.finfo("f4").eps


def test_opening_a_cpu_imports_no_torch(tmp_path):
    script = "import sys, coexec.backend.machine as m; m.open_machine('cpu'); import coexec.backend.torch.driver; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], env=child_environment(tmp_path), check=True, timeout=60)
