"""One trace of ranks that were processes: clocks by messages, names with ranks, messages as copies between hosts."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import TraceError
from coexec.observe.rank_traces import aligned, merge_ranks, rank_files
from coexec.observe.report import summary
from coexec.testing import on_teams
from tests.cli.commands import call
from tests.test_ranked import smooth


def message(kind: str, number: int, way: tuple[int, int], start: float, stop: float) -> list[dict[str, Any]]:
    known = {"id": number, "kind": kind}
    named = {"row": "instruction", "from_rank": way[0], "to_rank": way[1], "message": [number, 0, False, 0, None]}
    return [known | named, known | {"row": "ran", "start": start, "stop": stop, "state": "done"}]


def exchanged(apart: float, there: float, back: float) -> list[list[dict[str, Any]]]:
    """Return the messages of two ranks whose clocks are `apart`; one way takes `there` seconds, the other `back`."""
    first = [*message("send", 1, (0, 1), 1.0, 1.1), *message("receive", 2, (1, 0), 0.5, 5.0 + back)]
    second = [
        *message("receive", 1, (0, 1), 0.2, 1.0 + there - apart),
        *message("send", 2, (1, 0), 5.0 - apart, 5.1 - apart),
    ]
    return [first, second]


def test_messages_both_ways_say_how_far_clocks_are_apart() -> None:
    first, second = aligned(exchanged(apart=7.0, there=0.01, back=0.01))
    assert first == (0.0, 0.0)
    assert second.offset == pytest.approx(7.0) and second.error == pytest.approx(0.01)


def test_the_error_holds_however_unlike_the_ways_are() -> None:
    _, second = aligned(exchanged(apart=-3.0, there=0.5, back=0.01))
    assert abs(second.offset - -3.0) <= second.error == pytest.approx(0.255)


def test_clocks_are_found_over_a_rank_between_and_unknown_without_messages() -> None:
    near, far = exchanged(2.0, 0.1, 0.1), exchanged(3.0, 0.1, 0.1)
    moved = [[{**row, **_ways(row, 1)} for row in rows] for rows in far]
    clocks = aligned(
        [near[0], [*near[1], *[_renumbered(row) for row in moved[0]]], [_renumbered(row) for row in moved[1]], []]
    )
    assert [clock.offset for clock in clocks] == pytest.approx([0.0, 2.0, 5.0, 0.0])
    assert [clock.error for clock in clocks] == pytest.approx([0.0, 0.1, 0.2, inf])


def _ways(row: dict[str, Any], by: int) -> dict[str, Any]:
    return {field: row[field] + by for field in ("from_rank", "to_rank") if field in row}


def _renumbered(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "id": row["id"] + 10}


def record(folder: Path) -> None:
    def program() -> None:
        with cx.Runtime("cpu:0", store="off", trace=folder / "run.json"):
            u, v = cx.array(np.arange(3000.0)), cx.zeros(3000)
            for _ in range(4):
                smooth(u, v)
                u, v = v, u
            np.asarray(u)

    on_teams(3, program)


def test_ranks_are_merged_with_names_of_their_own_and_messages_as_copies(tmp_path: Path) -> None:
    record(tmp_path)
    files = rank_files(tmp_path)
    assert [file.name for file in files] == ["run.json", "run.rank1.json", "run.rank2.json"]
    clocks = merge_ranks(files, tmp_path / "all")
    assert all(clock.error < inf for clock in clocks)
    trace = cx.Trace.load(tmp_path / "all")
    report = summary(trace)
    assert {"n0/cpu:0", "n1/cpu:0", "n2/cpu:0"} <= set(report["devices"])
    halo = [row for row in trace.instructions if row["name"] == "message" and row["bytes"] == 8]
    ways = {(row["from"], row["to"]) for row in halo}
    near = [("n0/host", "n1/host"), ("n1/host", "n2/host")]
    assert ways >= {*near, *[(b, a) for a, b in near]}
    ran = {row["id"]: row for row in trace.rows if row["row"] == "ran"}
    assert all(ran[row["id"]]["start"] <= ran[row["id"]]["stop"] for row in halo)
    ids = [row["id"] for row in trace.instructions]
    assert len(ids) == len(set(ids))


def test_the_command_takes_the_folder_of_all_ranks(tmp_path: Path) -> None:
    record(tmp_path)
    ended = call("trace", tmp_path, "--json", "--gantt", tmp_path / "run.svg", "--perfetto", tmp_path / "run.perfetto")
    assert ended.code == 0, ended.err
    assert "3 ranks; clocks are aligned by their messages, within" in ended.err
    assert "n2/cpu:0" in ended.data["devices"]
    assert "n1/cpu:0" in (tmp_path / "run.svg").read_text()
    assert json.loads((tmp_path / "run.perfetto").read_text())


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "no traces of ranks"),
        (["run.json"], "no traces of ranks"),
        (["run.json", "run.rank2.json"], "lacks the trace of rank 1"),
        (["run.rank1.json"], "lacks the trace of rank 0"),
        (["a.json", "a.rank1.json", "b.json", "b.rank1.json"], "several runs: a.json, b.json"),
    ],
)
def test_a_folder_with_other_files_is_refused(names: list[str], said: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("[]")
    with pytest.raises(TraceError, match=said):
        rank_files(tmp_path)
