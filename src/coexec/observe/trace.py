"""The trace file: one JSON array, one row per line, written while the program runs and read back whole.

Before: execute/ (its records).  After: report.py and the pictures.  Knows rows as plain dicts, never the objects behind.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Self

from ..errors import CoexecWarning, ConfigError, TraceError
from .rows import TIMES, Row, check_row, rows_text

__all__ = ["COMPUTE", "KERNELS", "Row", "Trace", "TraceWriter", "check_replaceable"]

KERNELS = frozenset({"kernel", "host task", "reduce"})
"""Kinds of instruction that run a body or combine its results."""
COMPUTE = KERNELS | {"fill"}
"""Kinds of instruction that occupy a device; copies and bookkeeping do not."""


class TraceWriter:
    """Streams rows to a file that can be loaded at any moment, even if the process is killed."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch: int = 256,
        every: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open `path` and begin the array. Raise ConfigError if it cannot be written.

        Rows go to disk when `batch` of them wait, or at the first row `every` seconds after the last time.
        """
        self.path = Path(path)
        self._rows: deque[Row] = deque()
        self._batch, self._every, self._clock = batch, every, clock
        self._due = clock() + every
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._file: FileIO | None = _open(self.path)

    @property
    def recording(self) -> bool:
        """Tell whether rows are still recorded."""
        return self._file is not None

    def row(self, row: Row) -> None:
        """Record a row, which belongs to the writer from now on. Its first key is "row". Any thread may call."""
        if self._file is None:
            return
        self._rows.append(row)
        # Never blocks: a finalizer may record a row while its own thread is inside flush.
        if (len(self._rows) >= self._batch or self._clock() >= self._due) and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def flush(self) -> None:
        """Write every row recorded so far."""
        with self._lock:
            self._drain()

    def close(self, t: float | None = None) -> None:
        """Write what is left and end the array, at time `t` of the run. Idempotent."""
        with self._lock:
            self._drain()
            end = {"row": "end"} if t is None else {"row": "end", "t": t}
            self._write(f"{rows_text([end])}\n]\n")
            self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _drain(self) -> None:
        """Write the rows present now; the caller holds the lock."""
        self._due = self._clock() + self._every
        while self._rows and self._file is not None:
            rows = [self._rows[n] for n in range(min(len(self._rows), self._batch))]
            text = rows_text(rows) + ",\n"  # takes a while: rows wait for it, so that an interrupt loses none
            for _ in rows:
                self._rows.popleft()
            self._write(text)

    def _write(self, text: str) -> None:
        if self._file is None or os.getpid() != self._process:  # a forked child must not write into its parent's trace
            return
        try:
            _write_all(self._file, text.encode("ascii"))
        except OSError as error:
            self._shut()
            warnings.warn(
                f"the trace {self.path} cannot be written any more ({error.strerror or error}); it ends here, "
                "the program goes on; what was recorded so far can be loaded",
                CoexecWarning,
                stacklevel=2,
            )

    def _shut(self) -> None:
        file, self._file = self._file, None
        self._rows.clear()
        if file is not None:
            with suppress(OSError):  # nothing is buffered, so nothing is lost
                file.close()


def _open(path: Path) -> FileIO:
    """Create the file and write its first line; unbuffered, so that a killed process loses nothing written."""
    check_replaceable(path, f"trace={str(path)!r}")
    try:
        file = FileIO(path, "w")
    except OSError as error:
        raise ConfigError(f"cannot write the trace {str(path)!r}: {error.strerror or error}{_remedy(path)}") from error
    try:
        _write_all(file, b"[\n")
    except OSError as error:
        file.close()
        raise ConfigError(
            f"cannot write the trace {str(path)!r}: {error.strerror or error}; free some space or name another place"
        ) from error
    return file


def check_replaceable(path: Path, option: str) -> None:
    """Raise ConfigError if a file is there that is neither empty nor a trace: nothing else is ever overwritten."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                ours = b'[\n{"row":'.startswith(file.read(9))
            if not ours:
                raise ConfigError(f"{option} is a file that is no trace; name another file, or delete it first")
    except OSError as error:
        raise ConfigError(f"{option} cannot be looked at: {error.strerror or error}; name another place") from error


def _remedy(path: Path) -> str:
    if path.is_dir():
        return "; name a file inside it"
    if not path.parent.is_dir():
        return f"; make the folder {str(path.parent)!r} first"
    return "; name another place"


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


class Trace:
    """A recorded run: its rows, sorted by kind. Times are seconds since the runtime started."""

    def __init__(self, rows: Iterable[Row], path: str = "", complete: bool = True) -> None:
        self.rows = list(rows)
        self.path = path
        self.complete = complete  # False: the end is missing
        kinds: dict[str, list[Row]] = {}
        for row in self.rows:
            kinds.setdefault(row["row"], []).append(row)
        self.header: Row = kinds.get("header", [{}])[0]
        self.tasks = kinds.get("task", [])
        self.commands = kinds.get("command", [])
        self.instructions = kinds.get("instruction", [])
        self.ran = kinds.get("ran", [])
        self.waits = kinds.get("wait", [])
        self.links = {(row["from"], row["to"]): row for row in kinds.get("link", [])}
        self.simulation: Row = kinds.get("simulation", [{}])[-1]  # what a simulated run adds at its end
        self.notes = kinds.get("note", [])
        self.planning: Row = kinds.get("planning", [{}])[-1]  # what planning steps has taken
        self.streams = kinds.get("stream", [])  # what streams of items came to, in the order of their ends
        self._end: Row = kinds.get("end", [{}])[-1]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace file. Warn if its end is missing; raise TraceError if it is no trace."""
        name = os.fspath(path)
        rows = [row for _, row in _read(name)]
        complete = bool(rows) and rows[-1]["row"] == "end"
        if not rows or rows[0]["row"] == "end":
            raise TraceError(f"{name} has no rows: the program ended before its first one; run it again")
        if not complete:
            warnings.warn(
                f"the trace {name} is cut off after {len(rows)} rows (was the program killed?); "
                "what happened later is not in it",
                CoexecWarning,
                stacklevel=2,
            )
        return cls(rows, name, complete)

    @cached_property
    def duration(self) -> float:
        """Seconds from the start of the runtime to its end, or to the last thing recorded."""
        times = [row[key] for row in self.rows for key in TIMES if row.get(key) is not None]
        return float(max([*times, self._end.get("t") or 0.0]))

    @cached_property
    def work(self) -> list[Row]:
        """The `ran` rows of instructions that really began, by start."""
        began = (r for r in self.ran if r.get("state") != "cancelled" and r["start"] is not None)
        return sorted((r for r in began if r["stop"] is not None), key=lambda r: (r["start"], r["id"]))

    @cached_property
    def window(self) -> tuple[float, float]:
        """From the first submission or start to the last stop."""
        begins = [t["submitted"] for t in self.tasks] + [r["start"] for r in self.work[:1]]
        ends = [r["stop"] for r in self.work]
        return (min(begins, default=0.0), max(ends, default=max(begins, default=self.duration)))

    @cached_property
    def task_by_id(self) -> dict[int, Row]:
        """Tasks by id."""
        return {task["id"]: task for task in self.tasks}

    @cached_property
    def instruction_by_id(self) -> dict[int, Row]:
        """Instructions by id."""
        return {instruction["id"]: instruction for instruction in self.instructions}

    @cached_property
    def ran_by_id(self) -> dict[int, Row]:
        """The instructions that really began, by id."""
        return {row["id"]: row for row in self.work}

    @cached_property
    def devices(self) -> list[str]:
        """Names of the devices: the header's order, then those that only ran something."""
        names = [str(device["name"]) for device in self.header.get("devices", ())]
        return list(dict.fromkeys([*names, *(r["device"] for r in self.work if r["device"])]))

    @cached_property
    def launches(self) -> dict[str, float]:
        """Seconds from handing over a kernel until it runs, of the devices that state them."""
        devices = self.header.get("devices", ())
        return {str(device["name"]): float(device["launch_s"]) for device in devices if device.get("launch_s")}

    def dependencies(self, id: int) -> tuple[int, ...]:
        """Return the ids that instruction `id` waited for."""
        row = self.instruction_by_id.get(id, {})
        return (*row.get("needs", ()), *row.get("after", ()))

    def link(self, ran: Row) -> str:
        """Return where a copy moved data, as "host -> opencl:0"."""
        row = self.instruction_by_id.get(ran["id"], ran)
        source, target = row.get("from", ran.get("from")), row.get("to", ran.get("to"))
        return f"{source or '?'} -> {target or ran.get('device') or '?'}"

    def way(self, ran: Row) -> str:
        """Return how a copy went, as "host -> gpu:0 over pcie"."""
        made_of = self.made_of(ran)
        return f"{self.link(ran)} over {made_of}" if made_of else self.link(ran)

    def made_of(self, ran: Row) -> str:
        """Return what a copy went over, as "pcie"; empty if nobody gave it a name."""
        return str(self._link_row(ran).get("name") or "")

    def passes(self, ran: Row) -> tuple[str, ...]:
        """Return what a copy shares with others: the wires and buses on its way, and the way itself."""
        way = self.link(ran).replace("user -> ", "host -> ")  # what is the user's is on the host
        return (way, *self._link_row(ran).get("shared", ()))

    def _link_row(self, ran: Row) -> Row:
        row = self.instruction_by_id.get(ran["id"], ran)
        return self.links.get((row.get("from"), row.get("to")), {})

    def nbytes(self, ran: Row) -> int:
        """Return how many bytes an instruction moved or allocated."""
        return int(ran.get("bytes") or self.instruction_by_id.get(ran["id"], {}).get("bytes") or 0)


def _read(name: str) -> Iterator[tuple[int, Row]]:
    """Yield (line, row); a last line that was cut off is left out."""
    lines = _lines(name)
    if not lines or lines[0].strip() != "[":
        raise TraceError(_not_a_trace(name, lines))
    while lines[-1].strip() in ("", "]"):
        lines.pop()
    for number, line in enumerate(lines[1:], start=2):
        text = line.strip().rstrip(",")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            if number == len(lines):
                return
            raise TraceError(
                f"{name}, line {number} is not a trace row; the file is damaged or was reformatted "
                "(coexec writes one row per line): record the run again"
            ) from None
        check_row(f"{name}, line {number}", row, first=number == 2)
        yield number, row


def _lines(name: str) -> list[str]:
    try:
        return Path(name).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise TraceError(
            f"there is no file {name}; record one with cx.Runtime(trace={name!r}) or `coexec run`"
        ) from None
    except UnicodeDecodeError:
        raise TraceError(f"{name} is not a trace: it is not text; give the file named by Runtime(trace=...)") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise TraceError(
            f"cannot read the trace {name}: {getattr(error, 'strerror', None) or error}; check the path"
        ) from error


def _not_a_trace(name: str, lines: list[str]) -> str:
    if not "".join(lines).strip():
        return f"{name} is empty: the program ended before it wrote anything; run it again"
    if '"traceEvents"' in "".join(lines[:5])[:2000]:
        return f"{name} is a Perfetto file: open it at ui.perfetto.dev, and give the original trace here"
    return f"{name}, line 1 is not the beginning of a trace; give the file named by Runtime(trace=...)"
