"""What programs become can be recorded: the same twice, and a difference is seen."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.becomes.canonical import become, record
from tests.becomes.comparing import report
from tests.becomes.programs import EACH, NAMES, mixes_of, names_of
from tests.becomes.recording import load
from tests.repository import ROOT, child_environment

PROGRAMS = ["random 36/core", "random 37/cores", "random 43/simulated", "random 45/ranks", "even heat/cores"]
"""Few and quick: no OpenCL, no torch."""


def rows() -> list[dict[str, Any]]:
    """Return a trace by hand: two kernels on two devices, a copy between them, a mark, and a read of the result."""
    edges = {1: ([], []), 2: ([1], []), 3: ([2], [1]), 4: ([], [3]), 5: ([3], [4])}
    kinds = {1: "kernel", 2: "copy", 3: "kernel", 4: "horizon", 5: "fence"}
    tasks = {1: 10, 2: 12, 3: 12, 4: 13, 5: 14}
    found: list[dict[str, Any]] = [{"row": "header", "version": 1}]
    for id, name in ((10, "fill"), (12, "axpy"), (13, "horizon"), (14, "read")):
        found.append({"row": "task", "id": id, "name": name})
    found.append({"row": "command", "task": 12, "chunks": [{"device": "gpu:1", "lo": [0], "hi": [8]}]})
    for id, (needs, after) in edges.items():
        row = {"row": "instruction", "id": id, "kind": kinds[id], "task": tasks[id], "device": f"gpu:{id % 2}"}
        more = {"from": "gpu:0", "to": "gpu:1", "bytes": 64} if kinds[id] == "copy" else {"bytes": 0}
        found.append({**row, **more, "needs": needs, "after": after})
        found.append({"row": "ran", "id": id, "kind": kinds[id], "state": "done"})
    return found


def records(*changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the record of one program."""
    return {"p/cores": record("p/cores", "right", "", [become(changed or rows())])}


def instruction(found: list[dict[str, Any]], id: int) -> dict[str, Any]:
    """Return one of the rows."""
    return next(row for row in found if row["row"] == "instruction" and row["id"] == id)


def test_numbers_do_not_matter() -> None:
    moved = rows()
    for row in moved:
        for field in ("id", "task"):
            if field in row:
                row[field] += 100
        for field in ("needs", "after"):
            if field in row:
                row[field] = [id + 100 for id in row[field]]
    assert report(records(), records(*moved)) == ("1 programs in both (1 before, 1 now), 0 became something else", True)


def test_an_edge_that_another_way_stands_for_does_not_matter() -> None:
    changed = rows()
    instruction(changed, 3)["after"] = []  # it needs the copy, which needs the first kernel
    assert report(records(), records(*changed))[1]


@pytest.mark.parametrize(
    ("id", "field", "value", "told"),
    [
        (3, "needs", [], "feeds: 1"),
        (2, "needs", [], "feeds: 1"),
        (5, "after", [], ""),
        (2, "bytes", 72, "copy gpu:0>gpu:1: [1, 64] -> [1, 72]"),
        (3, "device", "gpu:0", "kernel gpu:0: None -> [1, 0]"),
    ],
    ids=["an edge of a kernel", "an edge of a copy", "a doubled edge", "bytes", "the device"],
)
def test_a_difference_is_seen_if_it_is_one(id: int, field: str, value: Any, told: str) -> None:
    changed = rows()
    instruction(changed, id)[field] = value
    text, same = report(records(), records(*changed))
    assert (told in text, same) == (True, not told)


def test_a_dropped_edge_changes_the_order() -> None:
    changed = rows()
    for id in (2, 3):
        instruction(changed, id).update(needs=[], after=[])
    text, same = report(records(), records(*changed))
    assert "order: 1" in text
    assert "by mix: cores 1" in text
    assert not same


def test_another_division_is_seen() -> None:
    changed = copy.deepcopy(rows())
    next(row for row in changed if row["row"] == "command")["chunks"][0]["hi"] = [4]
    assert "parts: 1" in report(records(), records(*changed))[0]


def test_every_seed_has_its_mixes_and_examples_have_all() -> None:
    assert mixes_of(len(NAMES)) == NAMES[:EACH]
    chosen = names_of(range(24), ["cores"], examples=True)
    assert chosen[:2] == ["random 1/cores", "random 13/cores"]
    assert "even heat/cores" in chosen


def test_two_recordings_are_the_same(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.becomes.worker"],
            input="\n".join(PROGRAMS[:: 1 - 2 * number]),  # the second time from the last to the first
            cwd=ROOT,
            env=child_environment(tmp_path) | {"PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        file = tmp_path / f"{number}.jsonl"
        file.write_text(ended.stdout)
        files.append(load(file))
    assert files[0] == files[1], report(*files)[0]
    assert {record["outcome"] for record in files[0].values()} == {"right"}


FORGETS = """
from tests.becomes import tap
tap.prepare()
from coexec.program.variant import Variant
unwritten, refused = Variant("opencl", "opencl"), Variant("opencl", "opencl")
unwritten.off, refused.off = "it has no OpenCL C: np.add of numbers", "out of resources"
tap.forget()
print(bool(unwritten.off), bool(refused.off))
"""


def test_a_variant_that_was_never_written_stays_off_when_refusals_are_forgotten(tmp_path: Path) -> None:
    """Turned on again it computed nothing, and programs saw what happened to be in memory."""
    found = subprocess.run(
        [sys.executable, "-c", FORGETS],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=child_environment(tmp_path),
    )
    assert found.stdout.split() == ["True", "False"]
