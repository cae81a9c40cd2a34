"""NumPy's own functions and chains of them: one OpenCL C for all calls with operands of the same types and patterns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile.chains import chain_variant, work_items
from coexec.program.fuse import FusedStep, Operand, fused_kernel
from coexec.program.ufunc import _kernel, broadcast
from coexec.program.variant import Variant, exact

F4, F8, I4, B1 = (np.dtype(kind) for kind in ("f4", "f8", "i4", "?"))


def of(dtype: Any, *ones: bool) -> Operand:
    return Operand(dtype, ones or (False,))


def written(function: Any, operands: list[Operand], out: Any, **options: Any) -> Variant:
    """Return the OpenCL variant of a ufunc."""
    ndim = max(len(operand.ones) for operand in operands)
    kernel = _kernel(
        function, tuple(operands), ((np.dtype(out), "write"),), ndim, tuple(sorted(options.items())), False
    )
    return chain_variant(kernel)


def chain(*steps: tuple[Any, tuple[tuple[str, int], ...], tuple[Operand, ...], Any], arrays: list[Operand]) -> Variant:
    made = tuple(
        FusedStep(function, (), values, operands, np.dtype(dtype), number == len(steps) - 1)
        for number, (function, values, operands, dtype) in enumerate(steps)
    )
    numbers = sum(kind == "s" for step in made for kind, _ in step.values)
    return chain_variant(fused_kernel(made, tuple(arrays), numbers, len(arrays[0].ones), broadcast))


def test_sums_have_numpys_bits_and_functions_say_how_close_they_come() -> None:
    plain = written(np.add, [of(F4), of(F4)], F4)
    assert not plain.off and plain.numerics == exact and plain.global_size is None
    assert written(np.log, [of(F8)], F8).numerics.ulp >= 4


@pytest.mark.parametrize(
    ("function", "operands", "out", "reason"),
    [
        (np.add, [of(F4), Operand(complex)], np.complex64, "complex"),
        (np.add, [of(np.dtype("u1")), of(F4)], F4, "uint8"),
        (np.less, [of(I4), Operand(float)], bool, "double precision without an array"),  # which not all devices have
        (np.arccosh, [of(F4)], F4, "np.arccosh has no OpenCL C"),
        (np.power, [of(I4), Operand(int)], I4, "depends on x1"),
        (np.logical_and, [of(F4), Operand(float)], bool, "might be zero"),
        (np.add, [Operand(np.dtype(object)), of(I4)], I4, "object"),  # a Python integer that C does not have
    ],
)
def test_what_only_numpy_can_is_off_with_the_reason(
    function: Any, operands: list[Operand], out: Any, reason: str
) -> None:
    assert re.search(reason, written(function, operands, out).off)


def test_functions_are_computed_in_vectors_of_one_type() -> None:
    wide = written(np.exp, [of(F8, False, False)], F8)
    assert "double8" in wide.source and "vstore8" in wide.source
    assert wide.global_size is not None
    assert wide.global_size((17,)) == (3,) and wide.global_size((2, 3, 4, 17)) == (3, 4, 6)
    assert wide.global_size is work_items(8)[0]  # one function for all: fingerprints of kernels stay
    whole = [of(F4), Operand(float)]
    mixed = chain(
        (np.multiply, (("x", 0), ("s", 0)), tuple(whole), F4),
        (np.exp, (("v", 0),), (of(F4),), F4),
        (np.greater, (("v", 1), ("x", 0)), (of(F4), of(F4)), bool),
        arrays=[of(F4)],
    )
    assert "float8" in mixed.source and "convert_uchar8" in mixed.source and not mixed.off
    assert "vload" not in written(np.multiply, [of(F8), of(F8)], F8).source  # which compilers find themselves


def test_a_python_integer_is_compared_in_its_own_type() -> None:
    assert "((long)x1)" in written(np.less, [of(I4), Operand(int)], bool).source
    assert "(int)(x1)" in written(np.add, [of(I4), Operand(int)], I4).source


def test_an_axis_of_one_element_is_read_once_for_all() -> None:
    text = written(np.exp, [of(F8, False, True)], F8).source
    assert "x0(i0, 0L)" in text and "vload8(0, &x0" not in text


def test_large_angles_are_computed_one_by_one() -> None:
    assert "if (!all(fabs(" in written(np.sin, [of(F4)], F4).source
    assert "sin" in written(np.sin, [of(F4)], F8).off  # of two types: no vectors, and PoCL would make its own


def test_a_number_below_one_is_true() -> None:
    """It was taken as an integer first, and an integer of it is zero."""
    data = np.array([0, 1, 0, 3], np.int64)
    with cx.Runtime("opencl:0", store="off"):
        x = cx.array(data)
        for function in (np.logical_or, np.logical_and, np.logical_xor):
            for number in (np.float32(0.1), np.float64(-0.25), np.float32(0.0), np.float32("nan"), 0.5, True):
                for given, wanted in (
                    (function(number, x), function(number, data)),
                    (function(x, number), function(data, number)),
                ):
                    np.testing.assert_array_equal(np.asarray(given), wanted)
