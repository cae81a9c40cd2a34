from __future__ import annotations

from functools import partial

import pytest

from coexec.bench.measure import in_turns, named


def test_ways_run_in_turns_and_each_is_first_as_often() -> None:
    order: list[str] = []
    found = in_turns({name: partial(order.append, name) for name in "abc"}, (3, 3))
    assert "".join(order) == "abcbcacab"
    assert {name: len(runs) for name, runs in found.items()} == {"a": 3, "b": 3, "c": 3}


def test_rounds_end_with_the_time_but_not_before_the_least_of_them() -> None:
    assert in_turns({"a": lambda: 1}, (2, 1000), -1.0) == {"a": [1, 1]}


def test_what_two_things_are_called_is_listed_once() -> None:
    assert named("case", ["b", "a", "b"], []) == ["b", "a"]
    assert named("case", ["b", "a", "b"], ["b"]) == ["b"]
    with pytest.raises(LookupError, match=r"known: .*a, b\)"):
        named("case", ["b", "a", "b"], ["c"])
