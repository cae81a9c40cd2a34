from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import BackendError
from coexec.geometry import Box, whole
from coexec.graph.instruction import Allocation
from tests.backend.opencl_parts import OWN, USER, Rig, needs_opencl

pytestmark = needs_opencl


@pytest.fixture(scope="module")
def rig():
    with Rig() as rig:
        yield rig


def empty(rig: Rig, box: Box, dtype) -> Allocation:
    allocation = Allocation(rig.id(), OWN, 0, box, np.dtype(dtype))
    rig.backend.allocate(allocation)
    return allocation


@st.composite
def parts(draw):
    """A shape, a few disjoint boxes inside it, and the box of a target that holds them."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=5)))
    lo = tuple(draw(st.integers(0, extent)) for extent in shape)
    box = Box(lo, tuple(draw(st.integers(low, extent)) for low, extent in zip(lo, shape, strict=True)))
    boxes = [box]
    if shape and box.shape[0] > 1:  # two boxes, with a gap
        boxes = [Box(box.lo, (box.lo[0] + 1, *box.hi[1:])), Box((box.hi[0] - 1, *box.lo[1:]), box.hi)]
        boxes = boxes if box.shape[0] > 1 and boxes[0] != boxes[1] else [box]
    target = whole(shape) if draw(st.booleans()) else box
    return shape, tuple(boxes), target, draw(st.sampled_from(["u1", "f4", "c16", "i4,f8"]))


def values(shape, dtype):
    raw = np.random.default_rng(1).integers(0, 255, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


@settings(deadline=None)
@given(parts())
def test_boxes_go_in_and_out_and_across_and_nothing_else_changes(rig, case):
    shape, boxes, target, dtype = case
    source = rig.host(values(shape, dtype))
    device, moved = empty(rig, whole(shape), dtype), empty(rig, target, dtype)
    back = rig.host(np.zeros(target.shape, dtype), target.lo)
    blank = rig.host(np.zeros(target.shape, dtype), target.lo)
    rig.run(
        rig.copy(source, device, *boxes),
        rig.copy(blank, moved, target),
        rig.copy(device, moved, *boxes),
        rig.copy(moved, back, target),
    )
    expected = np.zeros(target.shape, dtype)
    for box in boxes:
        expected[box.slices(target.lo)] = source.data[box.slices((0,) * len(shape))]
    assert back.data.tobytes() == expected.tobytes()
    for allocation in (device, moved):
        rig.backend.release(allocation)
        assert allocation.data is None


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2, 1::3],
        lambda a: a.T,
        lambda a: a[::-1, ::-1],
        lambda a: a[:, 2:5],
        lambda a: np.broadcast_to(a[0], (4, 12)),
    ],
)
def test_what_the_user_owns_need_not_be_dense(rig, view):
    data = view(np.arange(120, dtype=np.int32).reshape(10, 12))
    data.flags.writeable = False
    source = rig.host(data, memory=USER)
    target = empty(rig, source.box, np.int32)
    box = Box((1, 1), (3, 2))
    rig.run(rig.fill(target, -1, target.box), rig.copy(source, target, box))
    expected = np.full(data.shape, -1, np.int32)
    expected[1:3, 1:2] = data[1:3, 1:2]
    assert np.array_equal(rig.get(target), expected)


def test_our_own_host_memory_must_be_dense(rig):
    source = rig.host(np.zeros((4, 4))[:, ::2])
    target = empty(rig, source.box, np.float64)
    with pytest.raises(BackendError, match="is not dense"):
        rig.run(rig.copy(source, target, source.box))
    with pytest.raises(BackendError, match="is not dense"):
        rig.run(rig.copy(target, source, source.box))


def test_a_copy_that_touches_no_memory_of_the_device_is_refused(rig):
    source = rig.host(np.zeros(3))
    with pytest.raises(BackendError, match=r"neither .* is in a memory of opencl:0"):
        rig.run(rig.copy(source, rig.host(np.zeros(3)), source.box))


@pytest.mark.parametrize("mode", ["own", "shared"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float32, np.float64, np.complex128, np.dtype("i4,f8")])
@pytest.mark.parametrize(
    "boxes",
    [
        (whole((5, 6, 7)),),
        (Box((1, 0, 0), (3, 6, 7)),),
        (Box((1, 2, 3), (4, 5, 6)),),
        (Box((0, 2, 0), (5, 3, 7)), Box((0, 4, 6), (5, 6, 7))),
        (Box((2, 2, 2), (2, 5, 5)),),
    ],
)
def test_fills_set_their_boxes_and_nothing_else(mode, dtype, boxes):
    start = np.zeros((5, 6, 7), dtype)
    value: Any = np.ones((), dtype)[()]
    with Rig(mode) as rig:
        target = rig.put(start)
        rig.run(rig.fill(target, value, *boxes))
        for box in boxes:
            start[box.slices((0, 0, 0))] = value
        assert np.array_equal(rig.get(target), start)


def test_a_negative_zero_and_a_nan_are_filled_bit_by_bit(rig):
    target = rig.put(np.zeros((9, 9), np.float32))
    rig.run(rig.fill(target, -0.0, Box((0, 0), (9, 4))), rig.fill(target, np.nan, Box((0, 4), (9, 9))))
    found = rig.get(target)
    assert np.signbit(found[:, :4]).all() and np.isnan(found[:, 4:]).all()
