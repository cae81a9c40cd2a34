"""Tests of backend/opencl/processor_name.py: processors that are newer than PoCL."""

from __future__ import annotations

import ctypes

import pytest

from coexec.backend.opencl.processor_name import LEVELS, OLDEST, RECORD, WORD, nearest, stored_name


def a_record(words: dict[int, int]) -> ctypes.Array[ctypes.c_uint64]:
    """Return a device's record with the given words; the rest of it is zeros."""
    record = (ctypes.c_uint64 * (RECORD // WORD))()
    for index, word in words.items():
        record[index] = word
    return record


@pytest.mark.parametrize("index", [0, 80, RECORD // WORD - 1])
def test_the_field_with_the_word_generic_is_found_among_fields_that_point_nowhere(index: int) -> None:
    word = ctypes.create_string_buffer(b"generic")
    elsewhere = {0: 1, 3: 2**64 - 1, 5: 2**47 + 8, 7: 0xDEADBEEF}  # no addresses, though they look like some
    record = a_record(elsewhere | {index: ctypes.addressof(word)})
    assert stored_name(ctypes.addressof(record)) == ctypes.addressof(record) + WORD * index


@pytest.mark.parametrize("name", [b"znver3", b"generic-x", b"", b"skylake-avx512"])
def test_a_processor_with_a_name_is_left_alone(name: bytes) -> None:
    word = ctypes.create_string_buffer(name, 16)
    record = a_record({80: ctypes.addressof(word)})
    assert stored_name(ctypes.addressof(record)) is None


def test_a_processor_is_called_by_the_most_able_one_that_it_can_stand_for() -> None:
    by_name = dict(LEVELS)
    everything = frozenset().union(*by_name.values())
    assert nearest(everything) == "skylake-avx512"
    assert nearest(by_name["haswell"]) == "haswell"
    assert nearest(by_name["skylake-avx512"] - {"avx512vl"}) == OLDEST  # without AVX2, an invented one
    assert nearest(frozenset()) == OLDEST
