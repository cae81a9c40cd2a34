"""Debug mode gives bodies private copies of arrays of which they may touch some boxes: the same values come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from coexec.backend.hulls import Hull
from coexec.backend.launch import set_data
from coexec.errors import ProgramError
from coexec.geometry import Box, bounding
from coexec.graph.instruction import Allocation, Binding
from coexec.program.view import Cut

BOXES = (Box((1, 0), (2, 6)), Box((3, 2), (4, 4)))
HULL = bounding(BOXES)


def binding(dtype: Any = float, *, writes: bool, cut: Cut | None = None) -> Binding:
    """Return a binding to two boxes of an array that holds its own numbers."""
    allocation = Allocation(1, 1, 1, Box((0, 0), (5, 6)), np.dtype(dtype))
    set_data(allocation, np.arange(30).reshape(5, 6).astype(dtype))
    return Binding("x", allocation, HULL, cut, writes, None, allocation.dtype, BOXES)


@pytest.mark.parametrize("dtype", [float, np.complex64, np.int32, np.uint8, bool])
def test_inputs_show_their_boxes_and_nothing_else(dtype) -> None:
    bound = binding(dtype, writes=False)
    assert bound.allocation is not None
    seen = Hull(bound).seen()
    expected = bound.allocation.data[1:4]
    inside = np.zeros(seen.shape, bool)
    inside[0] = inside[2, 2:4] = True
    np.testing.assert_array_equal(seen[inside], expected[inside])
    if seen.dtype.kind in "fc":
        assert np.isnan(seen[~inside]).all()
    assert not seen.flags.writeable


@pytest.mark.parametrize("dtype", [float, np.complex64, np.int32, np.uint8])
def test_what_is_written_into_the_boxes_comes_back(dtype) -> None:
    bound = binding(dtype, writes=True)
    assert bound.allocation is not None
    before = bound.allocation.data.copy()
    hull = Hull(bound)
    seen = hull.seen()
    seen[0], seen[2, 2:4] = 7, 8
    hull.put_back("k")
    before[1], before[3, 2:4] = 7, 8
    np.testing.assert_array_equal(bound.allocation.data, before)


@given(st.integers(0, 2), st.integers(0, 5))
def test_what_is_written_elsewhere_is_found(row, column) -> None:
    hull = Hull(binding(writes=True))
    hull.seen()[row, column] += 1
    if row == 0 or (row == 2 and 2 <= column < 4):
        hull.put_back("k")
    else:
        with pytest.raises(ProgramError, match=rf"kernel 'k' wrote element \({row + 1}, {column}\) of 'x'"):
            hull.put_back("k")


def test_a_stepped_view_puts_back_its_own_elements_only() -> None:
    bound = binding(writes=True, cut=Cut((1, -2), (1, 0)))
    assert bound.allocation is not None
    hull = Hull(bound)
    seen = hull.seen()  # transposed, every other column from the last one on
    assert seen.shape == (3, 3) and seen[0, 0] == 11.0
    bound.allocation.data[1, 0] = -5.0  # somebody else's, meanwhile
    seen[:, 0] = 100.0
    hull.put_back("k")
    assert bound.allocation.data[1].tolist() == [-5.0, 100.0, 8.0, 100.0, 10.0, 100.0]
