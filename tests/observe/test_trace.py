"""The trace file survives whatever happens to the process, and says clearly what is wrong with any other file."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coexec.errors import CoexecWarning, ConfigError, TraceError
from coexec.observe import trace as module
from coexec.observe.rows import rows_text
from coexec.observe.trace import Row, Trace, TraceWriter

HEADER: Row = {"row": "header", "version": 1, "coexec": "0.1.0", "devices": [{"name": "cpu:0"}]}
TASK: Row = {"row": "task", "id": 1, "name": "axpy", "after": [], "submitted": 0.5, "scheduling": 1e-6}
RAN: Row = {"row": "ran", "id": 1, "kind": "kernel", "name": "axpy", "device": "cpu:0", "start": 1.0, "stop": 2.0}


def write(path: Path, *rows: Row, t: float | None = 3.0) -> Path:
    with TraceWriter(path) as writer:
        for row in rows:
            writer.row(row)
        writer.close(t)
    return path


def test_what_was_written_is_read_back_sorted_by_kind(tmp_path: Path) -> None:
    notes: Row = {"row": "note", "t": 0.1, "text": 'a "quoted" },{"row": text\nüber'}
    wait: Row = {"row": "wait", "start": 1.0, "stop": 2.0, "what": "np.asarray(y)"}
    command: Row = {
        "row": "command",
        "id": 1,
        "task": 1,
        "after": [],
        "chunks": [{"device": "cpu:0", "lo": [0], "hi": [5]}],
    }
    instruction: Row = {"row": "instruction", "id": 1, "kind": "kernel", "device": "cpu:0", "needs": [], "after": []}
    rows = [HEADER, TASK, command, instruction, RAN, wait, notes]
    trace = Trace.load(write(tmp_path / "run.json", *rows))
    assert trace.header == HEADER and trace.complete
    assert (trace.tasks, trace.commands, trace.instructions, trace.ran) == ([TASK], [command], [instruction], [RAN])
    assert (trace.waits, trace.notes) == ([wait], [notes])
    assert trace.rows == [*rows, {"row": "end", "t": 3.0}]
    assert trace.duration == 3.0
    assert trace.window == (0.5, 2.0)


def test_the_file_is_one_json_array_with_one_row_per_line(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", HEADER, *([TASK] * 1000))
    text = path.read_text()
    assert len(json.loads(text)) == 1002
    assert text.splitlines()[0] == "[" and text.splitlines()[-1] == "]"
    assert all(json.loads(line.rstrip(","))["row"] for line in text.splitlines()[1:-1])


def test_numbers_that_json_cannot_hold_become_null_and_numpy_ones_plain(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "t": 0.0,
        "text": "x",
        "a": float("nan"),
        "b": np.float32(0.5),
        "c": np.int64(7),
        "d": {1: 2},
    }
    odd |= {"e": Path("p"), "f": (1, float("inf")), "g": np.float64("nan")}
    note = Trace.load(write(tmp_path / "run.json", HEADER, {"row": "note", **odd})).notes[0]
    expected = {"a": None, "b": 0.5, "c": 7, "d": {"1": 2}, "e": "p", "f": [1, None], "g": None}
    assert {key: note[key] for key in expected} == expected


def test_nested_objects_that_look_like_rows_stay_on_their_line(tmp_path: Path) -> None:
    note = {"row": "note", "t": 0.0, "text": "x", "inner": [{"row": 1}, {"row": 2}]}
    assert Trace.load(write(tmp_path / "run.json", HEADER, note, note)).notes == [note, note]


def test_an_interrupt_while_rows_are_written_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TraceWriter(tmp_path / "trace.json")
    for number in range(3):
        writer.row({"row": "note", "number": number})
    plain = rows_text

    def interrupted(rows: Any) -> str:
        monkeypatch.setattr(module, "rows_text", plain)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "rows_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    writer.close()
    assert [row.get("number") for row in json.loads((tmp_path / "trace.json").read_text())] == [0, 1, 2, None]


def test_rows_reach_the_disk_by_number_by_time_and_by_flush(tmp_path: Path) -> None:
    now = [0.0]
    writer = TraceWriter(tmp_path / "run.json", batch=3, every=10.0, clock=lambda: now[0])

    def lines() -> int:
        return len((tmp_path / "run.json").read_text().splitlines()) - 1

    writer.row(HEADER)
    writer.row(TASK)
    assert lines() == 0
    writer.row(TASK)
    assert lines() == 3, "a full batch is written"
    writer.row(TASK)
    assert lines() == 3
    now[0] = 11.0
    writer.row(TASK)
    assert lines() == 5, "what waited too long is written with the next row"
    writer.row(TASK)
    writer.flush()
    assert lines() == 6
    writer.close()


def test_a_killed_process_leaves_a_file_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    code = f"""
import os, signal
from coexec.observe.trace import TraceWriter
writer = TraceWriter({str(path)!r}, batch=4)
writer.row({HEADER!r})
for i in range(11):
    writer.row({{"row": "note", "t": float(i), "text": "x"}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False
    )
    with pytest.warns(CoexecWarning, match=r"run\.json is cut off after 12 rows"):
        trace = Trace.load(path)
    assert len(trace.notes) == 11 and not trace.complete and trace.duration == 10.0


def test_a_file_cut_anywhere_after_its_header_loads_with_one_warning(tmp_path: Path) -> None:
    text = write(tmp_path / "run.json", HEADER, TASK, RAN).read_bytes()
    cut = tmp_path / "cut.json"
    second = text.index(b"\n", text.index(b"\n") + 1)
    for end in range(second, len(text)):
        cut.write_bytes(text[:end])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace = Trace.load(cut)
        assert trace.header == HEADER
        assert len(caught) == (0 if trace.complete else 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.json is empty"),
        ("  \n\n", "run.json is empty"),
        ("[\n", "run.json has no rows: .* run it again"),
        ('[\n{"row":"end"}\n]\n', "has no rows"),
        ("import numpy\n", r"run.json, line 1 is not the beginning of a trace; give the file named by Runtime\(trace="),
        ('{"traceEvents":[]}', r"is a Perfetto file: open it at ui\.perfetto\.dev"),
        ('[\n{"row":"header","version":2,"coexec":"9.1"},\n', "line 2: the trace has version 2, .* coexec 9.1"),
        ('[\n{"row":"header"},\n', "line 2: the 'header' row has no 'version'"),
        ('[\n{"row":"task","id":1,"name":"a","submitted":0},\n', "line 2 is a 'task' row where the header should be"),
        ('[\n{"row":"header","version":1},\n{"row":"ran","id":3},\n', "line 3: the 'ran' row has no 'kind'"),
        ('[\n{"row":"header","version":1},\n{"id":3},\n', "line 3 is not a trace row"),
        ('[\n{"row":"header","version":1},\n{oops\n{"row":"end"}\n]', "line 3 is not a trace row; .* damaged"),
        ('[\n{"row":"header","version":1},\n{"row":"note","t":"x","text":""},\n', "line 3: 't' is \"x\", not a time"),
        ('[\n{"row":"header","version":1},\n{"row":"wait","start":null,"stop":1},\n', "line 3: 'start' is null"),
        (b"\xff\xfe\x00", "it is not text"),
    ],
)
def test_what_is_no_trace_is_refused_with_file_line_and_remedy(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceError, match=message) as caught:
        Trace.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"there is no file .*none\.json; record one with"):
        Trace.load(tmp_path / "none.json")
    with pytest.raises(TraceError, match="cannot read the trace"):
        Trace.load(tmp_path)


def test_rows_of_a_kind_not_known_yet_are_kept(tmp_path: Path) -> None:
    trace = Trace.load(write(tmp_path / "run.json", HEADER, {"row": "energy", "joules": 3}))
    assert trace.rows[1] == {"row": "energy", "joules": 3}


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"make the folder .*none.* first"):
        TraceWriter(tmp_path / "none" / "run.json")
    with pytest.raises(ConfigError, match="name a file inside it"):
        TraceWriter(tmp_path)


def full(file: object, data: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_write_all", full)
    with pytest.raises(ConfigError, match="No space left on device; free some space"):
        TraceWriter(tmp_path / "run.json")


def test_a_file_that_is_no_trace_is_never_overwritten_but_an_old_trace_is(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text("[1, 2]\n")
    with pytest.raises(ConfigError, match=r"app\.py' is a file that is no trace; name another"):
        TraceWriter(script)
    assert script.read_text() == "[1, 2]\n"
    path = write(tmp_path / "run.json", HEADER, TASK)
    assert Trace.load(write(path, HEADER)).tasks == []


def test_a_disk_that_fills_up_later_ends_the_trace_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TraceWriter(tmp_path / "run.json", batch=1)
    writer.row(HEADER)

    monkeypatch.setattr(module, "_write_all", full)
    with pytest.warns(
        CoexecWarning, match=r"run\.json cannot be written any more \(No space left on device\)"
    ) as caught:
        writer.row(TASK)
    writer.row(TASK)
    writer.close()
    assert len(caught) == 1 and not writer.recording
    with pytest.warns(CoexecWarning, match="cut off"):
        assert Trace.load(tmp_path / "run.json").header == HEADER


def test_closing_twice_and_writing_afterwards_do_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "run.json", HEADER)
    writer = TraceWriter(path)
    writer.row(HEADER)
    writer.close()
    before = path.read_bytes()
    writer.row(TASK)
    writer.flush()
    writer.close()
    assert path.read_bytes() == before


def test_rows_from_many_threads_are_all_there(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "run.json", batch=7)
    writer.row(HEADER)
    writer.flush()

    def work(thread: int) -> None:
        for i in range(500):
            writer.row({"row": "note", "t": float(i), "text": str(thread)})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    notes = Trace.load(tmp_path / "run.json").notes
    for n in range(4):
        assert [note["t"] for note in notes if note["text"] == str(n)] == list(range(500))


def test_a_forked_child_writes_nothing_into_its_parents_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TraceWriter(tmp_path / "run.json", batch=1)
    writer.row(HEADER)
    before = (tmp_path / "run.json").read_bytes()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    writer.row(TASK)
    writer.close()
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_cancelled_instruction_has_no_times_and_is_no_work() -> None:
    cancelled = {**RAN, "id": 2, "start": None, "stop": None, "state": "cancelled"}
    trace = Trace([HEADER, RAN, cancelled])
    assert trace.work == [RAN] and len(trace.ran) == 2 and trace.window == (1.0, 2.0)


def test_an_empty_run_has_a_window_and_a_duration() -> None:
    trace = Trace([HEADER])
    assert trace.duration == 0.0 and trace.window == (0.0, 0.0) and trace.devices == ["cpu:0"]
