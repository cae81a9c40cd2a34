"""`coexec bench` runs what the table names and prints whatever comes back."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import coexec.bench
from coexec.cli.bench import load
from tests.cli.commands import call

FINE, BROKEN = "tests.cli.benchmarks:fine", "tests.cli.benchmarks:broken"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coexec.bench, "BENCHMARKS", {"fine": FINE, "broken": BROKEN})


def test_every_benchmark_of_the_table_keeps_its_contract() -> None:
    for name in coexec.bench.BENCHMARKS:
        function = load(name, coexec.bench.BENCHMARKS)
        more = ["ranks"] * (name in coexec.bench.ON_RANKS) + ["full"] * (name in coexec.bench.LONG)
        more += ["only"] * (name in coexec.bench.CHOOSING) + ["devices"] * (name in coexec.bench.BY_DEVICES)
        assert list(inspect.signature(function).parameters) == ["quick", "progress", *more]
        assert function.__doc__


@pytest.mark.usefixtures("two")
def test_benchmarks_are_listed_with_the_first_line_of_their_contract() -> None:
    assert call("bench", "list", "--json").data == {"fine": "Measure nothing.", "broken": "Fail."}
    assert "Measure nothing." in call("bench", "list").out


@pytest.mark.usefixtures("two")
def test_one_benchmark_prints_its_result_alone_and_progress_apart() -> None:
    ended = call("bench", "fine", "--json", "--quick")
    assert (ended.code, ended.data["quick"], ended.data["chain_us"]) == (0, True, 1.234567)
    assert "fine: half way" in ended.err


@pytest.mark.usefixtures("two")
def test_a_picture_is_written_where_a_benchmark_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(coexec.bench, "PICTURES", {"fine": "tests.cli.benchmarks:drawn"})
    ended = call("bench", "fine", "--json", "--plot", str(tmp_path / "fine.svg"))
    assert (ended.code, ended.data["chain_us"]) == (0, 1.234567)
    assert (tmp_path / "fine.svg").read_text() == "<svg>1.234567</svg>"
    ended = call("bench", "broken", "--plot", str(tmp_path / "broken.svg"))
    assert ended.code == 2 and "bench broken has no picture; --plot goes with fine" in ended.err


@pytest.mark.usefixtures("two")
def test_some_cases_on_some_devices_are_asked_for_where_a_benchmark_can_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coexec.cli.bench.CHOOSING", frozenset({"fine"}))
    monkeypatch.setattr("coexec.cli.bench.BY_DEVICES", frozenset({"fine"}))
    monkeypatch.setitem(coexec.bench.BENCHMARKS, "fine", "tests.cli.benchmarks:choosing")
    ended = call("bench", "fine", "--json", "--only", "cg,nbody", "--devices", "cpu:0,cpu:1", "--devices", "cpu:0")
    assert ended.data == {"only": ["cg", "nbody"], "devices": ["cpu:0,cpu:1", "cpu:0"]}
    assert call("bench", "fine", "--json").data == {"only": [], "devices": []}
    ended = call("bench", "broken", "--only", "cg")
    assert ended.code == 2 and "bench broken measures all its cases; --only goes with fine" in ended.err


@pytest.mark.parametrize("name", sorted(coexec.bench.CHOOSING))
def test_a_case_that_is_not_there_is_refused_by_every_benchmark_that_can_choose(name: str) -> None:
    ended = call("bench", name, "--quick", "--only", "nothing")
    assert (ended.code, ended.out) == (2, "") and "'nothing'" in ended.err


@pytest.mark.parametrize("name", sorted(coexec.bench.BY_DEVICES))
def test_a_case_or_a_set_of_devices_that_is_not_there_is_answered_with_those_that_are(name: str) -> None:
    ended = call("bench", name, "--quick", "--only", "nothing")
    assert (ended.code, ended.out) == (2, "") and "unknown" in ended.err and "known: " in ended.err
    ended = call("bench", name, "--quick", "--devices", "cpu:0,cpu:9")
    assert ended.code == 2 and "unknown set of devices 'cpu:0,cpu:9'" in ended.err and "cpu:0,cpu:1" in ended.err


def test_every_picture_of_the_table_belongs_to_a_benchmark() -> None:
    assert coexec.bench.PICTURES.keys() <= coexec.bench.BENCHMARKS.keys()
    for name in coexec.bench.PICTURES:
        assert load(name, coexec.bench.PICTURES).__doc__


@pytest.mark.usefixtures("two")
def test_any_result_becomes_tables() -> None:
    out = call("bench", "fine").out
    for text in ("chain_us", "1.235", "fine: cases", "speedup", "1, 2", "fine: peers", "pool_us"):
        assert text in out


@pytest.mark.usefixtures("two")
def test_one_that_fails_is_a_sentence_and_stops_no_other() -> None:
    ended = call("bench", "broken")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("coexec: the device went away; plug it in\n")
    ended = call("bench", "all", "--json")
    assert ended.code == 1
    assert ended.data["fine"]["quick"] is False
    assert ended.data["broken"] == {"error": "the device went away; plug it in"}


@pytest.mark.usefixtures("two")
def test_a_misspelt_benchmark_is_answered_with_the_right_name() -> None:
    ended = call("bench", "fin")
    assert (ended.code, ended.out) == (2, "")
    assert "unknown benchmark 'fin'; did you mean 'fine'? (known: all, broken, fine, list)" in ended.err
