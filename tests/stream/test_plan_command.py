"""`coexec plan pipeline`: the front as a table, as JSON and as a picture, and what is wrong in one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from coexec.cli.app import run

PROGRAM = """
import numpy as np
import coexec as cx

def fn(item, w):
    return np.tanh(cx.matmul(cx.matmul(item, w), w))

def good():
    return cx.Pipeline(fn, w=np.ones((64, 64), np.float32)), np.ones((64, 64), np.float32)

def bad():
    return 5
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    return path


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(list(arguments))
    return int(ended.value.code or 0)


def test_a_front_is_shown_told_and_drawn(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "front.svg"
    options = ["--platform", "dype-pcie4", "--objective", "balanced"]
    assert called("plan", "pipeline", f"{program}:good", *options, "--json", "--plot", str(picture)) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    front = data["front"]
    assert front and [plan["seconds"] for plan in front] == sorted(plan["seconds"] for plan in front)
    assert [plan["kind"] for plan in front] == ["pipeline"] * len(front)
    assert all(stage["kind"] == "stage" and stage["parts"] for plan in front for stage in plan["children"])
    best = min(front, key=lambda plan: plan["joules"] * plan["seconds"])
    assert front[data["chosen"]]["seconds"] == pytest.approx(best["seconds"])
    assert set(data["compared"]) >= {"each kind of kernel on one class"} and data["bottleneck"]
    assert "copies" in data["not_modelled"][0]
    assert picture.read_text().startswith("<svg")
    assert called("plan", "pipeline", f"{program}:good", *options, "--explain") == 0
    text = capsys.readouterr().out
    assert "items/s" in text and "0.matmul_float32" in text and "one more" in text


@pytest.mark.parametrize(("objective", "figure"), [("energy", "energy"), ("throughput", "period")])
def test_no_plan_to_compare_with_is_charged_less_than_the_chosen_one(
    program: Path, capsys: pytest.CaptureFixture[str], objective: str, figure: str
) -> None:
    options = ["--platform", "dype-pcie4", "--objective", objective, "--json"]
    assert called("plan", "pipeline", f"{program}:good", *options) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    chosen = data["front"][data["chosen"]]
    ours = {"energy": chosen["joules"], "period": chosen["seconds"]}[figure]
    assert len(data["compared"]) == 3
    for other in data["compared"].values():
        assert other[figure] >= ours * (1 - 1e-9) and other["period"] >= data["host_seconds"]


def test_a_file_may_import_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "beside_the_pipeline.py").write_text(PROGRAM)
    (tmp_path / "app.py").write_text("from beside_the_pipeline import good\n")
    assert called("plan", "pipeline", f"{tmp_path / 'app.py'}:good", "--platform", "laptop", "--json") == 0
    assert json.loads(capsys.readouterr().out)["front"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pipeline"], "FILE:NAME"),
        (["pipeline", "{}"], "names no pipeline"),
        (["pipeline", "{}:nothing"], "has no 'nothing'"),
        (["pipeline", "{}:bad"], "gives a int"),
        (["pipeline", "nowhere.py:good"], "there is no file"),
        (["pipeline", "{}:good", "--m", "4"], "--m is no option of pipeline"),
        (["matmul", "{}:good"], "goes with `coexec plan pipeline`"),
        (["matmul", "--m", "4", "--n", "4", "--k", "4", "--platform", "laptop"], "--platform goes with"),
        (["pipeline", "{}:good", "--objective", "speed"], "unknown objective 'speed'"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(
    program: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert called("plan", *[argument.format(program) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert told in " ".join(captured.err.split()) and captured.out == ""
