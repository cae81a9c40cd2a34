"""`coexec demo` computes what NumPy computes, says so honestly, and leaves a trace and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import coexec as cx
from coexec.cli import demo as command
from coexec.cli.demo import FEWEST, FILES, compare, rotated, verdict
from coexec.cli.demo_program import heat, inputs, price, rank, spectrum, total, with_coexec, with_numpy
from coexec.observe.trace import Trace
from tests.cli.commands import call, child

QUICK = ("--seconds", "0", "--size", "0.02")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(folder: Path) -> Any:
    ended = child(folder, "demo", "--json", *QUICK, "--out", "results")
    assert ended.code == 0, ended.err
    return ended.data


def test_all_three_ways_are_measured_as_often_and_agree(demo: Any) -> None:
    assert set(demo["seconds"]) == {"numpy_1", "numpy_all", "coexec"}
    assert {len(way["all"]) for way in demo["seconds"].values()} == {demo["turns"]}
    assert demo["turns"] >= FEWEST
    assert demo["equal"]
    assert demo["others_cores"] >= 0
    assert demo["gain_over_one_thread"] > 0
    assert demo["gain_over_all_threads"] > 0


def test_the_files_show_one_turn(demo: Any, folder: Path) -> None:
    trace, perfetto, picture = (folder / name for name in demo["files"])
    loaded = Trace.load(trace)
    assert loaded.complete
    assert [task["name"] for task in loaded.tasks].count("price") == 1
    assert [task["name"] for task in loaded.tasks].count("heat") == 16
    assert json.loads(perfetto.read_text())["traceEvents"]
    ET.parse(picture)
    assert call("trace", trace).code == 0


def test_the_printed_form_names_gains_limit_and_files(folder: Path) -> None:
    ended = child(folder, "demo", *QUICK)
    assert ended.code == 0
    for text in (
        "NumPy, 1 thread",
        "NumPy, all its threads",
        "With NumPy's own bodies",
        "open it in a browser",
        "ui.perfetto.dev",
    ):
        assert text in ended.out
    assert "coexec trace demo-trace.json" in ended.out
    assert (folder / "demo.svg").exists()


def test_the_program_gives_numpys_bits_on_cores() -> None:
    given = inputs(0.02)
    expected = with_numpy(given)
    with cx.Runtime("cpu"):
        found = with_coexec(given._replace(spot=cx.array(given.spot), strike=cx.array(given.strike),
                                           years=cx.array(given.years)))  # fmt: skip
    for name in ("calls", "puts", "plate", "spectrum"):
        assert np.array_equal(getattr(expected, name), getattr(found, name)), name
    assert compare(expected, found) < 1e-12, "the sum is added up in another order"


def test_the_demos_kernels_are_kernels_of_their_word() -> None:
    given = inputs(0.001)
    n = given.spot.size
    near = given.spot * np.linspace(0.95, 1.05, n)  # far from the strike a price is all rounding
    cx.testing.check_kernel(price, given.spot, near, given.years + 0.5, np.empty(n), np.empty(n), 0.02, 0.3)
    cx.testing.check_kernel(heat, given.plate, given.plate.copy(), 0.2)
    cx.testing.check_kernel(rank, given.spot, np.empty(n))
    cx.testing.check_kernel(spectrum, given.plate, np.empty(given.plate.shape[1] // 2 + 1))
    cx.testing.check_kernel(total, given.spot, near, np.zeros(()))


def test_a_difference_is_measured_against_the_largest_element() -> None:
    a = with_numpy(inputs(0.001))
    assert compare(a, a) == 0
    assert compare(a, a._replace(value=a.value * (1 + 1e-6))) == pytest.approx(1e-6)


def test_no_way_always_comes_after_the_same_other() -> None:
    names = ["a", "b", "c"]
    assert [rotated(names, i) for i in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_a_loss_is_said_as_plainly_as_a_gain() -> None:
    figures = {
        "gain_over_one_thread": 0.8, "gain_over_all_threads": 0.5, "turns": 3, "cores": 2, "used": ["cpu:0"],
        "difference": 0.0, "equal": True, "others_cores": 0.9,
    }  # fmt: skip
    said = list(verdict(figures))
    assert said[0].startswith("coexec is 0.80 times as fast as NumPy with one thread and 0.50 times")
    assert "With NumPy's own bodies 2 cores could be at most 2.00 times as fast as one; this is 40% of it." in said
    assert said[-1].startswith("Other programs kept 0.9 of 2 cores busy meanwhile")
    assert not any("Other programs" in line for line in verdict({**figures, "others_cores": 0.05}))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(command, "measure", lambda *_: pytest.fail("measured"))
    (tmp_path / name).mkdir()
    ended = call("demo", *QUICK, "--out", tmp_path)
    assert ended.code == 2 and name in ended.err and ended.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_wrong_device_or_folder_is_one_sentence(tmp_path: Path) -> None:
    ended = call("demo", *QUICK, "--devices", "gqu:0", "--out", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "unknown device kind 'gqu'" in ended.err
    (tmp_path / "file").write_text("in the way")
    ended = call("demo", *QUICK, "--out", tmp_path / "file" / "x")
    assert ended.code == 2
    assert "cannot make the folder" in ended.err
