"""Parts together are the whole, both sides cut alike, and strides do not matter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from coexec.cluster.parts import in_place, packed, parts, unpack
from coexec.testing.transports import boxes

shapes = st.lists(st.integers(0, 6), max_size=4).map(tuple)


@given(shapes, st.sampled_from(["u1", "f4", "c16"]), st.integers(1, 200))
def test_parts_are_all_of_it_in_order_and_small(shape: tuple[int, ...], dtype: str, limit: int) -> None:
    data = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    found = list(parts(data, limit))
    assert b"".join(part.tobytes() for part in found) == data.tobytes()
    assert all(0 < part.nbytes <= max(limit, data.itemsize) for part in found)
    assert all(np.shares_memory(part, data) for part in found)


@given(shapes.filter(lambda shape: len(shape) > 1), st.integers(1, 200))
def test_strides_do_not_change_the_cuts(shape: tuple[int, ...], limit: int) -> None:
    dense = np.zeros(shape)
    strided = np.zeros([2 * n for n in shape])[tuple(slice(None, None, 2) for _ in shape)]
    assert [p.shape for p in parts(dense, limit)] == [p.shape for p in parts(strided, limit)]


def test_packing_copies_only_what_does_not_lie_together() -> None:
    whole = np.arange(120).reshape(4, 5, 6)
    for box in boxes(whole):
        if box.size:
            bytes_of = packed(box)
            assert bytes_of.tobytes() == box.tobytes()
            assert np.shares_memory(bytes_of, whole) == in_place(box)
            target = np.zeros_like(whole)
            into = boxes(target)[[b.shape == box.shape and b.strides == box.strides for b in boxes(whole)].index(True)]
            unpack(bytes_of, into)
            assert np.array_equal(into, box)
            assert np.count_nonzero(target) == np.count_nonzero(box)
