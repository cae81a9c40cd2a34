"""The log of calls: what it hashes, and where two ranks parted."""

from __future__ import annotations

import numpy as np
import pytest

from coexec.cluster.calls import KEPT, Calls
from coexec.cluster.host_data import HostData, as_note, checksum


def log(*words: str) -> Calls:
    calls = Calls()
    for number, one in enumerate(words):
        calls.note(one, f"app.py:{number}")
    return calls


def test_equal_calls_have_equal_stamps_and_part_nowhere() -> None:
    one, other = log("f(A1)", "g(A2)"), log("f(A1)", "g(A2)")
    assert one.stamp == other.stamp
    assert one.parted(other.told(1000), "rank 0", "rank 1") == ""


def test_the_first_call_that_differs_is_shown_of_both() -> None:
    one, other = log("f(A1)", "g(A2)", "h(A3)"), log("f(A1)", "g(A9)", "h(A3)", "i(A4)")
    words = one.parted(other.told(1000), "rank 0", "rank 1")
    assert words == "they part at call 2: rank 0 calls g(A2) at app.py:1; rank 1 calls g(A9) at app.py:1"


def test_a_rank_that_is_ahead_is_named_with_its_call() -> None:
    words = log("f(A1)").parted(log("f(A1)", "g(A2)").told(1000), "rank 0", "rank 1")
    assert words == "rank 0 is at call 1: f(A1) at app.py:0; rank 1 has made call 2: g(A2) at app.py:1"


def test_calls_that_are_remembered_no_more_are_not_invented() -> None:
    many = [f"f(A{number})" for number in range(3 * KEPT)]
    one, other = log("x()", *many), log("y()", *many)
    assert "they part at a call before" in one.parted(other.told(100_000), "rank 0", "rank 1")


def test_what_is_told_fits() -> None:
    assert all(len(log(*["f(A1)"] * 50).told(room)) <= room for room in range(0, 500, 7))


@pytest.mark.parametrize("ours_first", [True, False])
def test_contents_are_compared_whoever_comes_first(ours_first: bool) -> None:
    data = HostData()
    steps = [lambda: data.given(1, 5, 77, "app.py:3"), lambda: data.heard(2, as_note(1, 5, 78))]
    found = [step() for step in (steps if ours_first else steps[::-1])]
    assert found == [None, (2, "app.py:3")]
    assert data.given(1, 6, 77, "app.py:4") is None
    assert data.heard(2, as_note(1, 6, 77)) is None
    assert data.heard(2, "nonsense") is None


@pytest.mark.parametrize("dtype", ["f8", "M8[ns]", "S3", "i1,f4", "?"])
def test_a_checksum_is_of_the_elements_not_of_their_strides(dtype: str) -> None:
    data = np.zeros((4, 6), dtype)
    assert checksum(data[:, ::2]) == checksum(data[:, ::2].copy()) == checksum(np.asfortranarray(data[:, :3]))
    assert checksum(np.zeros((), dtype)) == checksum(np.zeros(1, dtype))


def test_arrays_of_other_contents_come_with_the_remedy() -> None:
    here, there = Calls(), Calls()
    here.note("array(A1 (3,) <f8 contents aa)", "app.py:2")
    there.note("array(A1 (3,) <f8 contents bb)", "app.py:2")
    assert here.parted(there.told(400), "rank 0", "rank 1").endswith("take one rank's: cx.array(x, root=0)")
    here, there = Calls(), Calls()
    here.note("add(A1 a=1.0)", "app.py:3")
    there.note("add(A1 a=2.0)", "app.py:3")
    assert "root=0" not in here.parted(there.told(400), "rank 0", "rank 1")
