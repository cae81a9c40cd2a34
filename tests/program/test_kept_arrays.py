"""Arrays that are kept for the next time: which are given again, which are not, and that results do not depend on it."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import TaskFailed
from coexec.program import kept_arrays as kept_module
from coexec.program.kept_arrays import KeptArrays, making


@cx.kernel(split=0, x=cx.read, out=cx.write)
def twice(x, out):
    out[...] = 2 * x


@cx.kernel(split=0, x=cx.read, out=cx.write)
def raises(x, out):
    raise ValueError("on purpose")


def test_a_part_gets_the_arrays_that_it_had_the_time_before() -> None:
    kept = KeptArrays()
    turns = []
    for _ in range(3):
        with kept.again():
            kept.part(1)
            first = [cx.empty((3, 4)), cx.empty((3, 4), np.int32)]
            kept.part(2)
            turns.append([*first, cx.empty((3, 4))])
    for one, other, third in zip(*turns, strict=True):
        assert one is other is third
    assert len({id(array._storage) for array in turns[0]}) == 3
    assert kept.given == 6
    assert making.give is None and cx.empty((3, 4)) is not turns[0][0], "outside of it arrays are new"


def test_another_shape_or_type_is_made_and_kept_instead() -> None:
    kept = KeptArrays()
    for shape, dtype in (((3,), float), ((4,), float), ((4,), np.float32)):
        for _ in range(2):
            with kept.again():
                found = cx.empty(shape, dtype)
        assert found.shape == shape and found.dtype == dtype
    assert kept.given == 3


def test_what_a_part_leaves_out_changes_nothing_for_the_others() -> None:
    kept = KeptArrays()
    for parts in ((0, 1, 2), (0, 2), (0, 1, 2)):
        with kept.again():
            for part in parts:
                kept.part(part)
                cx.empty((2,))
    assert kept.given == 5


def test_arrays_that_somebody_else_has_are_not_given_again() -> None:
    kept = KeptArrays()
    with kept.again():
        whole, other = cx.empty((6,)), cx.empty((6,))
    kept.leave([whole[2:4]])
    with kept.again():
        assert cx.empty((6,))._storage is not whole._storage
        assert cx.empty((6,)) is other


def test_no_more_is_kept_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST_BYTES", 100)
    kept = KeptArrays()
    for _ in range(3):
        with kept.again():
            first, _, third = cx.empty(8), cx.empty(8), cx.empty(4)
    assert kept.given == 4, "of 64, 64 and 32 bytes the first and the last"
    kept.leave([first, third])
    for size in (12, 12, 13):  # 96 bytes fit, 104 do not
        with kept.again():
            cx.empty(size)
    assert kept.given == 5


def test_an_exception_leaves_nothing() -> None:
    kept = KeptArrays()
    with pytest.raises(RuntimeError, match="oh"), kept.again():
        cx.empty(4)
        raise RuntimeError("oh")
    assert making.give is None
    with kept.again():
        cx.empty(4)
    assert kept.given == 0


def test_an_array_that_a_failed_call_should_have_written_holds_what_the_next_one_writes() -> None:
    x = np.arange(100_000.0)
    kept = KeptArrays()
    with cx.Runtime("cpu", store="off"):
        with kept.again():
            broken = cx.empty(x.shape)
            raises(cx.array(x), broken)
        with pytest.raises(TaskFailed, match="on purpose"):
            np.asarray(broken)
        with kept.again():
            again = cx.empty(x.shape)
            twice(cx.array(x), again)
        assert again is broken
        np.testing.assert_array_equal(again, 2 * x)


def test_chains_of_large_arrays_are_still_one_kernel() -> None:
    """An array that is kept would have to be written, so what may become part of a chain is new."""
    x = np.arange(100_000.0)
    kept = KeptArrays()
    with cx.Runtime("cpu", store="off"):
        for _ in range(2):
            with kept.again():
                found = np.sqrt(np.add(cx.array(x), 1.0)) * 2.0
            np.testing.assert_array_equal(found, np.sqrt(x + 1.0) * 2.0)
    assert kept.given == 0
