"""The Perfetto file keeps the rules of the Trace Event Format."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coexec.errors import ConfigError
from coexec.observe.pictures.perfetto import write_perfetto
from coexec.observe.trace import Trace
from tests.observe.stories import Story, heat

Event = dict[str, Any]


def events_of(trace: Trace, folder: Path) -> list[Event]:
    write_perfetto(trace, folder / "run.perfetto.json")
    data = json.loads((folder / "run.perfetto.json").read_text(), parse_constant=pytest.fail)
    assert data["displayTimeUnit"] == "ms" and all(isinstance(v, str) for v in data["otherData"].values())
    found: list[Event] = data["traceEvents"]
    return found


def slices(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    return tracks


def check(events: list[Event]) -> None:
    """Raise AssertionError unless a viewer would accept every event."""
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    for event in events:
        assert event["ph"] in {"X", "M", "s", "f", "C", "i"}
        assert {"pid", "tid", "name", "ts"} <= event.keys() and event["pid"] in processes
    for track, items in slices(events).items():
        assert track in named
        assert all(item["dur"] > 0 for item in items)
        items.sort(key=lambda e: e["ts"])
        assert all(round((a["ts"] + a["dur"]) * 1000) <= round(b["ts"] * 1000) for a, b in pairwise(items))
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == sum(e["ph"] == "s" for e in events)
    tracks = slices(events)
    for id, start in starts.items():
        end = ends[id]
        assert start["ts"] <= end["ts"] and end["bp"] == "e"
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        for side in (start, end):
            assert any(s["ts"] <= side["ts"] < s["ts"] + s["dur"] for s in tracks[side["pid"], side["tid"]])


@pytest.mark.parametrize("trace", [heat(6), heat(6, unit=1e-8), Trace([]), Trace([{"row": "header", "version": 1}])])
def test_every_event_is_acceptable(trace: Trace, tmp_path: Path) -> None:
    check(events_of(trace, tmp_path))


def test_devices_are_processes_and_lanes_are_threads(tmp_path: Path) -> None:
    events = events_of(heat(4), tmp_path)
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert list(processes) == ["program", "cpu:0", "cpu:1", "opencl:0"]
    assert {(processes["opencl:0"], f"lane {n}") for n in range(3)} <= threads
    assert (processes["program"], "user thread") in threads


def test_a_kernel_a_copy_a_submission_and_a_wait_are_slices_in_microseconds(tmp_path: Path) -> None:
    story = Story((("gpu:0", []),))
    task = story.task("axpy", submitted=0.001, scheduling=0.0005, why="fast")
    copy = story.run("copy", "x", "gpu:0", 0.002, lane=1, task=task, link=("host", "gpu:0"), nbytes=4000)
    story.run("kernel", "axpy", "gpu:0", 0.003, task=task, needs=(copy,), predicted=0.004, waited=0.001)
    story.wait(0.002, 0.006, "np.asarray(y)")
    events = events_of(story.trace(), tmp_path)
    found = {e["name"]: e for e in events if e["ph"] == "X"}
    assert (found["axpy"]["ts"], found["axpy"]["dur"], found["axpy"]["cat"]) == (3000.0, 3000.0, "kernel")
    assert found["axpy"]["args"] | {"late_us": 0} == {
        "instruction": "I2", "state": "done", "task": "T1", "predicted_us": 4000.0, "waited_us": 1000.0, "late_us": 0,
    }  # fmt: skip
    moved = found["copy host -> gpu:0"]
    assert (moved["cat"], moved["args"]["bytes"], moved["cname"]) == ("copy", 4000, "thread_state_iowait")
    assert (found["submit axpy"]["ts"], found["submit axpy"]["dur"]) == (1000.0, 500.0)
    assert (found["wait np.asarray(y)"]["ts"], found["wait np.asarray(y)"]["dur"]) == (2000.0, 4000.0)
    assert [(e["ph"], e["ts"]) for e in events if e["ph"] in "sf"] == [("s", 2999.999), ("f", 3000.0)]


def test_there_is_no_arrow_inside_one_lane(tmp_path: Path) -> None:
    story = Story()
    first = story.run("kernel", "a", "cpu:0", 1.0)
    story.run("kernel", "b", "cpu:0", 1.0, needs=(first,))
    assert not [e for e in events_of(story.trace(), tmp_path) if e["ph"] == "s"]


def test_an_instruction_that_took_no_time_still_holds_its_arrows(tmp_path: Path) -> None:
    story = Story()
    first = story.run("kernel", "a", "cpu:0", 0.0)
    story.run("kernel", "b", "cpu:1", 0.0, needs=(first,))
    events = events_of(story.trace(), tmp_path)
    check(events)
    assert [e["ph"] for e in events if e["ph"] in "sf"] == ["s", "f"]


def test_slices_that_overlap_on_one_lane_get_a_thread_of_their_own(tmp_path: Path) -> None:
    ran = {"row": "ran", "kind": "kernel", "name": "k", "device": "cpu:0", "lane": 0, "start": 0.0, "stop": 1.0}
    events = events_of(Trace([{**ran, "id": 1}, {**ran, "id": 2}, {**ran, "id": 3, "lane": 1}]), tmp_path)
    check(events)
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == ["lane 0", "lane 0 (2)", "lane 1"]


def test_counters_add_up(tmp_path: Path) -> None:
    trace = heat(6)
    events = events_of(trace, tmp_path)
    counts = [e["args"]["kernels"] for e in events if e["name"] == "running kernels"]
    assert counts[0] == counts[-1] == 0 and max(counts) == 3 and min(counts) >= 0
    moved = [e["args"]["bytes"] for e in events if e["name"] == "bytes moved"]
    assert moved == sorted(moved) and moved[-1] == sum(trace.nbytes(r) for r in trace.work if r["kind"] == "copy")


def test_a_failed_instruction_and_a_note_can_be_seen(tmp_path: Path) -> None:
    story = Story()
    story.run("kernel", "bad", "cpu:0", 1.0, state="failed")
    story.rows.append({"row": "note", "t": 0.5, "text": "variant off"})
    events = events_of(story.trace(), tmp_path)
    assert next(e for e in events if e["name"] == "bad")["cname"] == "terrible"
    assert next(e for e in events if e["ph"] == "i")["name"] == "variant off"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        write_perfetto(Trace([]), tmp_path)
