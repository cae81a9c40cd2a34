"""Generated CUDA C: the same statements as OpenCL's, in a kernel that nvcc accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import CudaForm, Declined, cuda_form
from coexec.compile.cuda import OPTIONS
from coexec.compile.opencl_text import TEXTS
from tests.compile.test_opencl import counted, heat, masked, nearest, prices, totals

BOTH = ("x", "y", "out")


def arrays(*names: str, dtype: Any = np.float64, shape: tuple[int, ...] = (20, 30)) -> dict[str, Any]:
    return {name: np.ones(shape, dtype) for name in names}


def every_ufunc(dtype: Any) -> Any:
    """Return a body that uses all ufuncs with a text for a type, one after the other."""
    kind = np.dtype(dtype).kind
    known = [f for f, text in TEXTS.items() if (text.floats if kind == "f" else text.integers) and not text.calm]
    names = [f.__name__ for f in known if isinstance(f, np.ufunc) and f is not np.divide]
    lines = [
        f"    found = np.where(np.{name}({'x, y' if getattr(np, name).nin == 2 else 'x'}) != 0, found, y)"
        for name in names
    ]
    space: dict[str, Any] = {"np": np}
    exec("\n".join(["def every(x, y, out):", "    found = x + y", *lines, "    out[...] = found"]), space)
    return space["every"]


BODIES: dict[str, tuple[Any, dict[str, Any], set[str]]] = {
    "heat": (heat, {"u": np.ones((22, 32)), "out": np.ones((20, 30)), "k": 0.1}, {"out"}),
    "heat in singles": (heat, {"u": np.ones((22, 32), "f4"), "out": np.ones((20, 30), "f4"), "k": 0.1}, {"out"}),
    "masked": (masked, {**arrays(*BOTH, dtype=np.float32), "limit": 0.5}, {"out"}),
    "prices": (prices, arrays("spot", "years", "call", "put"), {"call", "put"}),
    "nearest": (nearest, {"x": np.ones((20, 30)), "label": np.zeros(20, np.int64)}, {"label"}),
    "totals": (totals, {"x": np.ones((20, 30)), "out": np.ones(20)}, {"out"}),
    "counted": (counted, arrays("n", "out", dtype=np.int32), {"out"}),
    "every ufunc of doubles": (every_ufunc(np.float64), arrays(*BOTH), {"out"}),
    "every ufunc of singles": (every_ufunc(np.float32), arrays(*BOTH, dtype=np.float32), {"out"}),
    "every ufunc of bytes": (every_ufunc(np.uint8), arrays(*BOTH, dtype=np.uint8), {"out"}),
    "every ufunc of integers": (every_ufunc(np.int64), arrays(*BOTH, dtype=np.int64), {"out"}),
}


def test_nvcc_compiles_the_text_of_every_body(tmp_path: Path) -> None:
    texts = []
    for number, (name, (body, given, writes)) in enumerate(BODIES.items()):
        form = cuda_form(body, given, writes=writes)
        assert isinstance(form, CudaForm), (name, form)
        assert form.parameters[-1].startswith("const long")
        texts += [form.source.replace(form.entry, f"body{number}")]
        texts += [f"#undef {macro}" for macro in re.findall(r"#define (\w+)", form.source)]
    if (nvcc := shutil.which("nvcc")) is None:
        pytest.skip("no nvcc")
    source, made = tmp_path / "bodies.cu", tmp_path / "bodies.ptx"
    source.write_text("\n".join(texts))  # all at once: most of the time is nvcc's own headers
    command = [nvcc, "--ptx", *OPTIONS, "-o", str(made), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert made.read_text().count(".entry body") == len(BODIES)


def test_numbers_are_the_hosts_and_bits_are_promised_where_opencl_promises_them() -> None:
    form = cuda_form(heat, {"u": np.ones((22, 32)), "out": np.ones((20, 30)), "k": 0.1}, writes={"out"})
    assert isinstance(form, CudaForm)
    assert form.numerics == cx.exact
    assert sorted(form.numbers.values()) == sorted({*form.numbers.values()}) and "k" in form.numbers.values()


def test_what_opencl_refuses_is_refused() -> None:
    answer = cuda_form(lambda x, y: y.sort(), arrays("x", "y"), writes={"y"})
    assert isinstance(answer, Declined)
