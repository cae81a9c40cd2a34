"""A trace is read as it was written; whatever else is in a file is refused in one sentence, never with a traceback."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coexec.errors import TraceError
from coexec.observe.cut import save
from coexec.observe.pictures.gantt import gantt_svg
from coexec.observe.pictures.graphs import graph_dot, graph_html
from coexec.observe.pictures.nodes import LEVELS
from coexec.observe.pictures.perfetto import events
from coexec.observe.report import summary
from coexec.observe.trace import Trace
from tests.observe.stories import heat

VALUES: list[Any] = [
    None, True, -1, 0, 10**30, 1e308, float("nan"), float("inf"), "x", "", "[bold]", [], [1], ["x"], [None], [{}], {},
    {"a": 1}, [[1]], 2**61, -0.5,
]  # fmt: skip


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a row with something in it changed or left out."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.7):
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(rng, value[at], depth + 1), *value[at + 1 :]]
    return rng.choice(VALUES)


def changed_rows(rng: random.Random, text: str) -> str:
    rows = [json.loads(line.rstrip(",")) for line in text.splitlines()[1:-1]]
    for _ in range(rng.choice([1, 1, 2, 5])):
        kind = rng.choice(sorted({str(row["row"]) for row in rows if isinstance(row, dict) and "row" in row}))
        at = rng.choice([i for i, row in enumerate(rows) if isinstance(row, dict) and str(row.get("row")) == kind])
        rows[at] = mutated(rng, rows[at])
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


def changed_text(rng: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(rng.choice([1, 3, 30])):
        characters[rng.randrange(len(characters))] = rng.choice('"[]{},:0-9e.x\n\0é ')
    return "".join(characters)


def use(path: Path) -> None:
    """Do everything that can be done with a trace."""
    trace = Trace.load(path)
    json.dumps(summary(trace))
    gantt_svg(trace)
    for _ in events(trace):
        pass
    for level in LEVELS:
        graph_dot(trace, level)
    graph_html(trace)


@pytest.mark.parametrize("change", [changed_rows, changed_text])
def test_a_trace_with_anything_changed_is_shown_or_refused_in_one_sentence(
    tmp_path: Path, change: Callable[[random.Random, str], str]
) -> None:
    path = tmp_path / "run.json"
    save(heat(3), path)
    text = path.read_text()
    refused: list[str] = []
    for seed in range(150):
        path.write_text(change(random.Random(seed), text))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(path)
        except TraceError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert [text for text in refused if str(path) not in text or "\n" in text or len(text) > 600] == []


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"row": "task", "id": "7", "name": "t", "submitted": 0.0}, "'id' is \"7\", not a whole number"),
        ({"row": "task", "id": 7, "name": ["t"], "submitted": 0.0}, "'name' is [\"t\"], not a text"),
        ({"row": "task", "id": 7, "name": "t", "submitted": 1e99}, "'submitted' is 1e+99, not a time in seconds"),
        (
            {"row": "task", "id": 7, "name": "t", "submitted": 0.0, "after": 3},
            "'after' is 3, not a list of whole numbers",
        ),
        (
            {"row": "task", "id": 10**40, "name": "t", "submitted": 0.0},
            "'id' is a very large number, not a whole number",
        ),
        (
            {"row": "command", "id": 1, "task": 1, "chunks": [{"device": 3}]},
            "'chunks[0].device' is 3, not a text or null",
        ),
        ({"row": "command", "id": 1, "task": 1, "chunks": [{}]}, "'chunks[0]' has no 'device'"),
        ({"row": "given", "t": 0.0, "memory": "host", "bytes": -3}, "'bytes' is -3, not a number of bytes"),
        ({"row": "given", "t": 0.0, "memory": 7, "bytes": 3}, "'memory' is 7, not a text"),
        ({"row": "given", "t": 0.0, "memory": "host"}, "the 'given' row has no 'bytes'"),
        (
            {"row": "ran", "id": 1, "kind": "alloc", "device": "host", "start": 0, "stop": 0, "memory": ["host"]},
            "'memory' is [\"host\"], not a text or null",
        ),
        (
            {"row": "ran", "id": 1, "kind": "alloc", "device": "host", "start": 0, "stop": 0, "array": 1.5},
            "'array' is 1.5, not a whole number or null",
        ),
        (
            {"row": "instruction", "id": 1, "kind": "kernel", "device": "gpu:0", "scratch": "much"},
            "'scratch' is \"much\", not a number of bytes or null",
        ),
        ({"row": "wait", "start": 2.0, "stop": 1.0}, "'stop' is 1.0, before 'start', 2.0"),
        ({"row": "simulation", "joules": {"gpu:0": "much"}}, "not joules by device"),
    ],
)
def test_a_field_of_a_wrong_type_is_named_with_its_line(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = tmp_path / "run.json"
    path.write_text("[\n" + json.dumps({"row": "header", "version": 1}) + ",\n" + json.dumps(row) + "\n]\n")
    with pytest.raises(TraceError) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(f"{path}, line 3: ") and words in str(caught.value)
    assert str(caught.value).endswith("; record the run again")


def test_a_very_deep_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('[\n{"row":"header","version":1},\n' + "[" * 100_000 + ',\n{"row":"end"}\n]\n')
    with pytest.raises(TraceError, match="line 3 is not a trace row"):
        Trace.load(path)
