"""`coexec trace` prints where the time went and writes pictures; a file that is no trace is one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from coexec.observe.cut import save
from tests.cli.commands import call
from tests.observe.stories import Story, heat


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.json"
    save(heat(12), path)
    return path


def test_tables_name_kernels_devices_lanes_copies_and_the_path(recorded: Path) -> None:
    ended = call("trace", recorded)
    assert (ended.code, ended.err) == (0, "")
    for title in ("Kernels", "Devices", "Lanes", "Bytes moved", "The program's own thread", "Critical path"):
        assert title in ended.out
    for word in ("heat", "residual_norm", "opencl:0 lane 1", "host -> opencl:0", "waiting for", "GIL", "parallelism"):
        assert word in ended.out
    assert "overlap: CT " in ended.out


def test_memories_are_shown_beside_what_they_hold(tmp_path: Path) -> None:
    rows = [
        {
            "row": "header",
            "version": 1,
            "memories": [{"name": "gpu", "capacity": 4000}, {"name": "host", "capacity": None}],
        },
        {"row": "given", "t": 0.0, "array": 1, "memory": "gpu", "bytes": 3000},
        {"row": "given", "t": 0.5, "array": 2, "memory": "host", "bytes": 64},
        {"row": "end", "t": 1.0},
    ]
    path = tmp_path / "run.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    shown = [" ".join(line.split()) for line in call("trace", path).out.splitlines()]
    assert "gpu 3.00 kB 4.00 kB 75%" in shown and "host 64 B - -" in shown


def test_json_is_the_whole_report(recorded: Path) -> None:
    data = call("trace", recorded, "--json").data
    assert data["complete"]
    assert set(data["overlap"]) == {"ct", "tc", "cc", "tot"}
    assert data["kernels"]["heat"]["count"] == 27
    assert data["written"] == []


def test_pictures_and_the_timeline_are_written(recorded: Path, tmp_path: Path) -> None:
    names = {"--gantt": "run.svg", "--perfetto": "run.perfetto.json", "--graph": "tasks.dot"}
    ended = call("trace", recorded, *(str(part) for o, n in names.items() for part in (o, tmp_path / n)))
    assert ended.code == 0
    assert [name for name in names.values() if f"wrote {tmp_path / name}" not in ended.out.replace("\n", "")] == []
    ET.parse(tmp_path / "run.svg")
    assert json.loads((tmp_path / "run.perfetto.json").read_text())["traceEvents"]
    assert (tmp_path / "tasks.dot").read_text().startswith("digraph tasks {")


@pytest.mark.parametrize("level", ["task", "command", "instruction"])
def test_each_level_of_graph_can_be_drawn(recorded: Path, tmp_path: Path, level: str) -> None:
    out = tmp_path / "graph.svg"
    data = call("trace", recorded, "--json", "--graph", out, "--level", level).data
    assert data["written"] == [str(out)]
    assert f"{level}s, " in out.read_text()


def test_a_page_has_all_levels(recorded: Path, tmp_path: Path) -> None:
    assert call("trace", recorded, "--graph", tmp_path / "all.html").code == 0
    assert (tmp_path / "all.html").read_text().count('role="tabpanel"') == 3


def test_a_trace_that_was_cut_off_is_shown_with_a_warning(recorded: Path, tmp_path: Path) -> None:
    cut_off = tmp_path / "cut.json"
    text = recorded.read_text()
    cut_off.write_text(text[: len(text) // 2])
    ended = call("trace", cut_off)
    assert ended.code == 0
    assert ended.err.startswith("coexec: warning: the trace ")
    assert ended.err.count("\n") == 1
    assert "; the trace is cut off" in ended.out
    ended = call("trace", cut_off, "--json")
    assert ended.data["complete"] is False


def test_failures_and_notes_are_listed(tmp_path: Path) -> None:
    story = Story()
    task = story.task("bad")
    story.run("kernel", "bad", "cpu:0", 1e-3, task=task, state="failed")
    story.rows.append({"row": "note", "t": 0.5, "text": "variant [opencl] was turned off"})
    save(story.trace(), tmp_path / "run.json")
    out = call("trace", tmp_path / "run.json").out
    assert "Failures" in out
    assert "variant [opencl] was turned off" in out, "brackets are text, not markup"


def test_an_empty_run_is_no_error(tmp_path: Path) -> None:
    save(Story().trace(), tmp_path / "run.json")
    assert call("trace", tmp_path / "run.json").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file"),
        ("", "is empty: the program ended before it wrote anything; run it again"),
        ("[\n", "has no rows"),
        ("hello\n", "is not the beginning of a trace"),
        ('{"displayTimeUnit":"ms","traceEvents":[]}', "is a Perfetto file: open it at ui.perfetto.dev"),
        ('[\n{"row":"header","version":99},\n', "the trace has version 99"),
        ('[\n{"row":"header","version":1},\nnonsense\n{"row":"end"}\n]', "line 3 is not a trace row"),
    ],
)
def test_a_file_that_is_no_trace_is_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    ended = call("trace", path)
    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--graph", "x.png"], "--graph x.png: end the name in .dot or .svg or .html"),
        (["--gantt", "x.png"], "--gantt x.png: end the name in .svg"),
        (["--graph", "x.svg", "--level", "tasks"], "unknown level 'tasks'; did you mean 'task'?"),
        (["--perfetto", "nowhere/x.json"], "make the folder 'nowhere' first"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_written(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("trace", recorded, *options)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_sentence(recorded: Path, tmp_path: Path) -> None:
    for option, name in (("--graph", "x.svg"), ("--gantt", "y.svg"), ("--perfetto", "z.json")):
        (tmp_path / name).mkdir()
        ended = call("trace", recorded, option, tmp_path / name)
        assert ended.code == 2
        assert ended.err.startswith("coexec: cannot write")
