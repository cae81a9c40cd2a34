"""What a stranger types wrongly: one sentence on stderr, an exit code, nothing half done, and no traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coexec.backend.base import Unavailable
from coexec.backend.opencl.probe import Probe
from coexec.cli import devices
from coexec.observe.cut import save
from tests.cli.commands import arguments_of, call, child, environment
from tests.observe.stories import Story, heat

APP = "import coexec as cx\nprint(float((cx.ones(100) * 2).sum()))\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a script, a trace, and a file of somebody else."""
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text(APP)
    Path("notes.txt").write_text("mine")
    save(heat(3), "run.json")
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# Text as it is -----------------------------------------------------------------------------------------------------------


def test_advice_with_brackets_is_printed_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Unavailable("opencl", "PyOpenCL is not installed", "pip install 'coexec[opencl]'")
    monkeypatch.setattr(devices, "probe", lambda: Probe((), (missing,)))
    monkeypatch.setattr(devices, "listing", lambda: ([], [Unavailable("torch", "no [torch]", "see :smile: [/b]")]))
    out = call("devices").out
    for words in ("pip install 'coexec[opencl]'", "no [torch]", "see :smile: [/b]"):
        assert words in out


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    story = Story()
    for name in ("[bold]k[/bold]", "[/x]", "x[0]", ":smile:"):
        story.run("kernel", name, "cpu:0", 1e-3, task=story.task(name))
    save(story.trace(), tmp_path / "run.json")
    ended = call("trace", tmp_path / "run.json", "--gantt", tmp_path / "a[b].svg")
    assert ended.code == 0
    for words in ("[bold]k[/bold]", "[/x]", "x[0]", ":smile:", "a[b].svg"):
        assert words in ended.out.replace("\n", "")


@pytest.mark.parametrize(
    "command", ["devices", "doctor", "demo", "run", "simulate", "trace", "calibrate", "plan", "bench"]
)
def test_flags_are_shown_without_a_value(command: str) -> None:
    out = call(command, "--help").out
    assert "--json" in out and "bool" not in out.lower()


# Wrong calls -------------------------------------------------------------------------------------------------------------


HUGE = "1" + "0" * 25
CALLS: list[tuple[list[str], str]] = [
    (["run", "--devices", "cpu:9999", "app.py"], "unknown device 'cpu:9999'"),
    (["run", "--devices", "simulated:100000000", "app.py"], "from 1 to 1,021 such devices"),
    (["run", "--devices", "nonsense:0", "app.py"], "unknown device kind 'nonsense'"),
    (["run", "--devices", "opencl:x", "app.py"], "number OpenCL devices"),
    (["run", "--devices", "[bold]", "app.py"], "'[bold]' is not a device"),
    (["run", "--placement", "best", "app.py"], "unknown placement 'best'"),
    (["run", "--trace", "notes.txt", "app.py"], "is a file that is no trace"),
    (["run", "none.py"], "does not exist"),
    (["run", "."], "is a folder"),
    (["simulate", "app.py"], "name the machine with --platform"),
    (["simulate", "app.py", "--platform", "a100x4", "--trace", "no/run.json"], "make the folder 'no' first"),
    (["simulate", "app.py", "--platform", "a100x4", "--memory", "gpu:0=lots"], "is not a size"),
    (["simulate", "app.py", "--platform", "a100x4", "--devices", "tpu"], "unknown device of platform a100x4"),
    (["simulate", "app.py", "--platform", "a100x4", "--sweep", "devices=" + HUGE], "devices="),
    (["simulate", "app.py", "--platform", "a100x4", "--sweep", "devices=²"], "whole numbers from 1"),
    (["simulate", "app.py", "--platform", "a100x4", "--what-if", "device gpu count " + HUGE], "are more than 128"),
    (["simulate", "app.py", "--platform", "notes.txt"], "notes.txt"),
    (["plan", "matmul", "--m", HUGE, "--n", "3", "--k", "3"], "give smaller sizes"),
    (["plan", "matmul", "--m", "3", "--n", HUGE, "--k", "1"], "give smaller sizes"),
    (["plan", "matmul", "--m", "4000000000", "--n", "4000000000", "--k", "1"], "give smaller sizes"),
    *[(["plan", op, "--size", HUGE], "give smaller sizes") for op in ("sum", "max", "add", "multiply", "exp", "sqrt")],
    (["plan", "conv2d", "--shape", f"1,1,{HUGE},9", "--filters", "1", "--kernel", "3"], "must be 4 whole numbers"),
    (["plan", "conv2d", "--shape", "1,1,9,9", "--filters", HUGE, "--kernel", "3"], "give smaller sizes"),
    (["plan", "conv2d", "--shape", "1,1,9,9", "--filters", "1", "--kernel", "3", "--padding", HUGE], "smaller sizes"),
    (["plan", "conv2d", "--shape", "1,1,9,9", "--filters", "1", "--kernel", "3", "--stride", "-1"], "--stride"),
    (["plan", "conv2d", "--shape", "1,1,²,9", "--filters", "1", "--kernel", "3"], "must be 4 whole numbers"),
    *[
        (["plan", "matmul", "--m", "3", "--n", "3", "--k", "3", f"--{name}", "-3"], f"--{name}")
        for name in ("m", "n", "k")
    ],
    (["plan", "sum", "--size", "-1"], "--size"),
    (["plan", "sum", "--size", "9", "--devices", "cpu:0", "--save", "/dev/full"], "No space left on device"),
    (["plan", "sum", "--size", "9", "--devices", "cpu:0", "--plot", "no/x.svg"], "make the folder 'no' first"),
    (["plan", "sum", "--size", "9", "--devices", "simulated:2000"], "from 1 to 1,021 such devices"),
    (["trace", "notes.txt"], "is not the beginning of a trace"),
    (["trace", "run.json", "--perfetto", "/dev/full"], "No space left on device"),
    (["trace", "run.json", "--perfetto", "."], "name a file inside it"),
    (["devices", "--save", "/dev/full"], "No space left on device"),
    (["devices", "--save", "no/x.toml"], "make the folder 'no' first"),
    (["devices", "--platform", "[x]"], "unknown platform '[x]'"),
    (["calibrate", "--devices", "cpu:9999"], "unknown device 'cpu:9999'"),
    (["calibrate", "--ops", "matmull"], "did you mean 'matmul'"),
    (["bench", "none"], "unknown benchmark 'none'"),
    (["bench", "list", "--plot", "x.svg"], "has no picture"),
    (["bench", "overhead", "--only", "real"], "bench overhead measures all its cases; --only goes with apps, cluster"),
    (["demo", "--seconds", "nan"], "--seconds"),
    (["demo", "--size", "nan"], "--size"),
    (["demo", "--devices", "cpu:9999", "--out", "."], "unknown device 'cpu:9999'"),
    (["demo", "--out", "notes.txt"], "notes.txt"),
    (["demo", "--out", "notes.txt/x"], "notes.txt"),
]


@pytest.mark.parametrize(("arguments", "words"), CALLS, ids=[" ".join(arguments)[:60] for arguments, _ in CALLS])
def test_a_wrong_call_is_one_clear_sentence_and_changes_nothing(here: Path, arguments: list[str], words: str) -> None:
    before = files(here)
    ended = call(*arguments)  # raises whatever would be a traceback
    assert (ended.code in (1, 2), ended.out) == (True, "")
    assert words in " ".join(ended.err.replace("│", " ").split())
    assert files(here) == before


def test_nothing_is_left_of_a_file_that_did_not_fit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    Path("old.svg").write_text("old")
    before = files(here)
    for arguments in (
        ["trace", "run.json", "--perfetto", "new.json"],
        ["trace", "run.json", "--gantt", "old.svg"],
        ["trace", "run.json", "--graph", "new.html"],
        ["devices", "--save", "here.toml"],
        ["plan", "sum", "--size", "9", "--devices", "cpu:0", "--save", "plan.json"],
        ["plan", "sum", "--size", "9", "--devices", "cpu:0", "--plot", "old.svg"],
    ):
        ended = call(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert "No space left on device; free some space" in ended.err
        assert files(here) == before


@pytest.mark.parametrize(
    "arguments", [["devices", "--options"], ["devices", "--options", "--json"], ["trace", "run.json"]]
)
def test_an_answer_that_cannot_be_printed_is_said(here: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            arguments_of(*arguments),
            env=environment(here),
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr == "coexec: the output cannot be written: No space left on device\n"


def test_a_wrong_variable_is_told_before_the_script_runs(here: Path) -> None:
    for name, value in {"HORIZON": "0", "PLAN": "none.json", "MEMORY": "host", "WATTS": "x", "LANES": "x", "RANKS": "3",
                        "LOOKAHEAD": "x", "POLICY": "x", "PLATFORM": "x", "DEVICES": "cpu:9999", "EXECUTE": "1",
                        "PLACEMENT": "x", "SCENARIO": "none.toml"}.items():  # fmt: skip
        ended = call("run", "app.py", **{f"COEXEC_{name}": value})
        assert ended.code in (1, 2) and ended.out == ""
        assert ended.err.startswith(f"coexec: COEXEC_{name}={value!r}") and ended.err.count("\n") == 1


def test_a_store_that_is_somebody_elses_file_stays_as_it_is(here: Path) -> None:
    ended = child(here, "calibrate", "--list", COEXEC_STORE="notes.txt")
    assert ended.code == 0
    assert "notes.txt: it is no store of coexec" in ended.err
    assert (here / "notes.txt").read_text() == "mine"
    assert sorted(files(here)) == ["app.py", "notes.txt", "run.json"]
