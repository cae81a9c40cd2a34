"""One trace of the traces of several ranks."""

from __future__ import annotations

from typing import Any

from coexec.observe.merging import merged
from tests.clusters import cluster

HEADER = {"row": "header", "version": 1, "options": {"ranks": 1, "trace": "run.rank0.json"}, "devices": []}
Row = dict[str, Any]


def message(kind: str, id: int, **more: Any) -> Row:
    row = {"row": "instruction", "id": id, "kind": kind, "name": kind, "task": 3, "device": "network", "bytes": 8}
    return {**row, "from_rank": 0, "to_rank": 1, "message": [7, 0, False, 0], "needs": [], "after": [], **more}


def ran(kind: str, id: int, device: str, lane: int) -> Row:
    row = {"row": "ran", "id": id, "kind": kind, "name": kind, "task": 3, "device": device, "lane": lane}
    return {**row, "start": 1.0, "stop": 2.0, "ready": 0.5, "bytes": 8, "state": "done"}


def test_ids_of_ranks_stay_apart_and_the_header_is_that_of_all():
    task = {"row": "task", "id": 3, "name": "t", "after": [1], "submitted": 0.0}
    headers = [{**HEADER, "devices": [{"name": f"n{rank}/gpu:0"}]} for rank in range(2)]
    rows = list(merged([[header, task] for header in headers], cluster(2), "run.json"))
    assert [(row["id"], row["after"]) for row in rows if row["row"] == "task"] == [(6, [2]), (7, [3])]
    assert rows[0]["options"] == {"ranks": 2, "trace": "run.json"}
    assert [device["name"] for device in rows[0]["devices"]] == ["n0/gpu:0", "n1/gpu:0"]


def test_a_message_is_one_copy_that_comes_after_both_sides():
    later: Row = {"row": "instruction", "id": 9, "kind": "free", "name": "free", "task": None, "device": "host"}
    first = [HEADER, message("send", 5, needs=[4]), ran("send", 5, "network", 0), {**later, "needs": [], "after": [5]}]
    second = [HEADER, message("receive", 6, after=[2]), ran("receive", 6, "network", 1)]
    rows = list(merged([first, second], cluster(2)))
    (copy,) = [row for row in rows if row["row"] == "instruction" and row["kind"] == "copy"]
    assert (copy["id"], copy["needs"], copy["after"]) == (13, [8], [5])
    assert (copy["from"], copy["to"], copy["reason"]) == ("n0/host", "n1/host", "message")
    assert [row["id"] for row in rows if row["row"] == "ran"] == [13]
    assert next(row["after"] for row in rows if row.get("kind") == "free") == [13]
    assert [(row["from"], row["to"]) for row in rows if row["row"] == "link"] == [("n0/host", "n1/host")]


def test_hosts_of_ranks_have_lanes_of_their_own_and_totals_come_once():
    total = {"row": "simulation", "nodes": 1, "seconds": 3.0}
    rank = [HEADER, ran("fence", 4, "host", 1), total]
    rows = list(merged([rank, rank], cluster(2)))
    assert [row["lane"] for row in rows if row["row"] == "ran"] == [1, 65]
    assert [row["nodes"] for row in rows if row["row"] == "simulation"] == [2]
