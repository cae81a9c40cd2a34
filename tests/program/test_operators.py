"""Python's operators on coexec arrays, where they are more than a ufunc."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from tests.devices import TWO


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("exponent", [-1, 2, 0.5, 3, 1.5, True], ids=repr)
def test_powers_are_those_of_numpys_operator(exponent, dtype) -> None:
    """`x ** 0.5` is no `np.power(x, 0.5)` for halves and complex numbers: NumPy's operator takes the root."""
    values = np.resize(np.array([-0.0, -np.inf, np.nan, np.inf, 4.0, -1.5, 0.3, 7.7, 1e-5]), 45).astype(dtype)
    with np.errstate(all="ignore"), cx.Runtime(devices=TWO, store="off"):
        for size in (45, 300_000):
            data = np.resize(values, size)
            expected = data**exponent
            x: Any = cx.array(data)
            found = np.asarray(x**exponent)
            assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
            data **= exponent
            x **= exponent
            assert np.asarray(x).tobytes() == data.tobytes()


def test_a_power_of_a_single_element_is_that_of_numpys_scalars() -> None:
    data = np.array([-0.0, 4.0, 2.5], np.float16)
    with cx.Runtime(devices=TWO, store="off"):
        x: Any = cx.array(data)
        for i in range(3):
            element = x[i]
            element **= 0.5
            assert np.float16(x[i] ** 0.5).tobytes() == np.float16(element).tobytes() == (data[i] ** 0.5).tobytes()
        whole: Any = cx.array(np.float16(-0.0)) ** 0.5
        assert np.asarray(whole).tobytes() == np.asarray(np.asarray(np.float16(-0.0)) ** 0.5).tobytes()
