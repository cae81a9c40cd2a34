"""Numbers assigned to elements of a type that cannot hold them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import coexec as cx


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint8, bool])
def test_numpys_complex_numbers_lose_their_imaginary_part_with_a_warning_as_numpys_do(dtype: Any, inline: bool) -> None:
    def change(whole: Any, given: Any) -> None:
        whole[0] += given[1]
        whole[1:3] = np.complex128(3 + 4j)
        whole[3:] = np.array([5 + 1j, 1j])
        whole[np.array([False, True, False, False, False])] = np.complex64(6 + 1j)

    wanted = np.ones(5, dtype)
    with warnings.catch_warnings(record=True) as numpys:
        warnings.simplefilter("always")
        change(wanted, np.array([0, 2 + 1j]))
    with cx.Runtime("cpu:0", store="off", inline=inline), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole, given = cx.ones(5, dtype), cx.array([0, 2 + 1j])
        number = given[1]
        assert complex(number) == 2 + 1j  # it was read, and is assigned as a number
        change(whole, [None, number])
        np.testing.assert_array_equal(np.asarray(whole), wanted)
    if inline:  # else one value is pending, and the task that assigns it warns
        told, wanted_told = (
            [(w.filename, w.lineno, w.category, str(w.message)) for w in ws] for ws in (caught, numpys)
        )
        assert told == wanted_told


@pytest.mark.parametrize("given", [1j, [1j, 2j, 3j]])
def test_pythons_complex_numbers_are_refused_as_numpy_refuses_them(given: Any) -> None:
    for whole in (np.zeros(3, int), cx.zeros(3, int)):
        with pytest.raises(TypeError, match="complex"):
            whole[...] = given


def _assign(whole: Any, given: Any) -> None:
    whole[...] = given


def _assign_one(whole: Any, given: Any) -> None:
    whole[1] = given


def _assign_masked(whole: Any, given: Any) -> None:
    whole[np.array([True, False, True])] = given


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("given", [-1, 256, 2**70])
@pytest.mark.parametrize(
    "change",
    [
        _assign,
        _assign_one,
        _assign_masked,
        lambda whole, given: _assign(whole, [1, given, 2]),
        lambda whole, given: whole.fill(given),
        np.copyto,
        lambda whole, given: np.copyto(whole, given, where=np.array([True, False, True])),
        np.full_like,
    ],
)
def test_pythons_integers_beyond_the_type_are_refused_as_numpy_refuses_them(
    change: Any, given: int, inline: bool
) -> None:
    with pytest.raises(OverflowError):
        change(np.zeros(3, np.uint8), given)
    with cx.Runtime("cpu:0", store="off", inline=inline):
        whole = cx.zeros(3, np.uint8)
        with pytest.raises(OverflowError):
            change(whole, given)
        assert np.asarray(whole).tolist() == [0, 0, 0], "nothing was assigned"
        with pytest.raises(OverflowError):
            cx.full(3, given, np.uint8)


@pytest.mark.parametrize("inline", [True, False])
def test_numpys_integers_beyond_the_type_come_in_again_at_its_other_end(inline: bool) -> None:
    with cx.Runtime("cpu:0", store="off", inline=inline):
        for whole in (np.zeros(3, np.uint8), cx.zeros(3, np.uint8)):
            whole[0] = np.int64(300)
            whole[1:] = np.array([-1, 257])
            assert np.asarray(whole).tolist() == [44, 255, 1]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.float32])
@pytest.mark.parametrize(
    "given",
    [
        np.uint8(200),
        np.int64(-1),
        np.int64(300),
        np.float64(1.5),
        np.float64("nan"),
        np.float64(1e300),
        np.uint64(1 << 63),
        np.float32(300),
        np.bool_(True),
    ],
)
@pytest.mark.parametrize(
    "change", [_assign, _assign_one, _assign_masked, lambda whole, given: whole.fill(given), np.copyto]
)
def test_numpys_numbers_are_assigned_or_refused_as_numpy_does(
    change: Any, given: Any, dtype: Any, inline: bool
) -> None:
    def outcome(whole: Any) -> Any:
        try:
            change(whole, given)
        except (TypeError, ValueError, OverflowError) as error:
            return next(kind for kind in (TypeError, OverflowError, ValueError) if isinstance(error, kind))
        return str(np.asarray(whole).tolist())

    with cx.Runtime("cpu:0", store="off", inline=inline), warnings.catch_warnings(), np.errstate(all="ignore"):
        assert outcome(cx.zeros(3, dtype)) == outcome(np.zeros(3, dtype))


@pytest.mark.parametrize("inline", [True, False])
def test_an_element_is_cast_as_an_array_is_known_or_not(inline: bool) -> None:
    with cx.Runtime("cpu:0", store="off", inline=inline):
        whole, given = cx.zeros(3, np.int8), cx.array([300.0, 200.0])
        whole[0] = given[0]
        whole[np.array([False, True, False])] = given[1]
        known = given[0]
        assert float(known) == 300
        whole[2] = known
        assert np.asarray(whole).tolist() == [44, -56, 44]
