"""All that is known here of coexec's inside: how a run is made to repeat itself exactly, and its trace read back.

A run repeats itself if nothing in it asks a real clock and nothing runs beside the program's own thread. So clocks stand
still (`freeze`, before coexec is imported), what is held back has no timer (`prepare`), and devices are patient: they
begin what was issued to them only when the program waits, one instruction at a time, and report durations that follow from
the size of the work. Simulated and null devices are like that by themselves.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

TIMERS = (("coexec.execute.moment", "Moment", "begin"), ("coexec.execute.idle_timer", "IdleTimer", "begin"))
"""Methods that start a timer which lets go of what is held back: module, class, method. One of them must be there."""
NOW = 1000.0  # seconds: what every clock says
PATIENCE = 60.0  # seconds after which a device that does not answer has failed
RATES = (
    1e-9,
    1e-8,
    1e-7,
    1e-6,
)  # seconds per byte: the slowest make it worth dividing the small arrays of random programs
LEAST = 20e-6  # seconds that everything takes
NO_CODE = "it has no OpenCL C"  # the variant was never written: turned on again, it would compute nothing
LINK = 2e-10  # seconds per byte copied


def freeze() -> None:
    """Let clocks stand still for coexec; those of programs go on by a second with each look.

    Before coexec is imported, because its modules keep the functions.
    """
    ticks = count(NOW)

    def clock() -> float:
        return NOW if sys._getframe(1).f_globals.get("__name__", "").startswith("coexec") else next(ticks)

    time.perf_counter = time.thread_time = clock


def prepare() -> None:
    """Import what coexec would fetch at its leisure, turn its timers off, and watch its variants. Before other modules of it."""
    importlib.import_module("scipy.optimize")
    _without_timers()
    variant = importlib.import_module("coexec.program.variant").Variant
    slot = variant.__dict__["off"]

    def turn(self: Any, why: str) -> None:
        slot.__set__(self, why)
        if why and not why.startswith(NO_CODE):  # which is so whatever ran before, and stays so
            _off.append(self)

    variant.off = property(slot.__get__, turn)


_off: list[Any] = []  # variants that a device has refused


def forget() -> None:
    """Let variants that a device refused be tried again: the programs before this one must not matter."""
    while _off:
        _off.pop().off = ""


def _without_timers() -> None:
    """Let what is held back be let go by the program alone."""
    found = 0
    for module, name, method in TIMERS:
        try:
            holder = getattr(importlib.import_module(module), name)
            original = getattr(holder, method)
        except (ImportError, AttributeError):
            continue
        assert callable(original)
        setattr(holder, method, lambda self: None)
        found += 1
    if not found:
        raise LookupError("no timer of coexec was found: say in tests/becomes/tap.py how they are turned off")


class PatientBackend:
    """A real backend of which one instruction at a time runs, when the program waits."""

    helps = True

    def __init__(self, inner: Any, line: deque[tuple[PatientBackend, Any, int]], speed: Callable[[str], float]) -> None:
        self._inner = inner
        self._line = line  # of all devices, in the order of issue
        self._speed = speed  # of a device, in seconds per byte
        self._reports: queue.Queue[Any] = queue.Queue()
        self._report: Callable[[Any], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def start(self, finished: Callable[[Any], None], call_helper: Callable[[], bool] | None = None) -> None:
        """Begin to accept work."""
        del call_helper
        self._report = finished
        self._inner.start(self._reports.put, lambda: False)

    def issue(self, instruction: Any, lane: int, waits: Sequence[Any] = ()) -> None:
        """Queue an instruction behind everything that was issued before, to any device."""
        del waits  # they are over when its turn comes
        self._line.append((self, instruction, lane))

    def withdraw(self, instruction: Any) -> bool:
        """Take back what has not begun."""
        for entry in self._line:
            if entry[1] is instruction:
                self._line.remove(entry)
                return True
        return False

    def help(self, waiting_for: Any = None) -> bool:
        """Run the first of everything that was issued."""
        del waiting_for
        if not self._line:
            return False
        backend, instruction, lane = self._line.popleft()
        backend.run(instruction, lane)
        return True

    def run(self, instruction: Any, lane: int) -> None:
        """Run an instruction to its end, and report it."""
        assert self._report is not None
        self._inner.issue(instruction, lane)
        while self._inner.helps and self._reports.empty() and self._inner.help():
            pass
        ran = self._reports.get(timeout=PATIENCE)
        self._report(ran._replace(start=NOW, stop=NOW + self._seconds(instruction), waited=0.0))

    def _seconds(self, instruction: Any) -> float:
        step = getattr(
            instruction, "step", instruction
        )  # what is done; trees of before had it in the instruction itself
        if instruction.kind == "kernel" and not hasattr(step, "work"):
            raise LookupError("a kernel has no work: say in tests/becomes/tap.py where it is")
        work = getattr(step, "work", None)
        if work is None:
            return LEAST + LINK * float(instruction.nbytes)
        return LEAST + self._speed(instruction.device) * float(work.features[0])

    def left(self, *, idle: bool) -> None:
        """Tell the device that nobody waits any more."""
        self._inner.left(idle=idle)

    def stop(self) -> None:
        """Finish what was issued."""
        while self.help():
            pass
        self._inner.stop()


def patient_machine(devices: str, memory: Mapping[str, str], seed: int, *, debug: bool) -> Any:
    """Open devices of this machine that are patient; `seed` decides how fast they seem to be."""
    from coexec.backend.machine import open_machine

    machine = open_machine(devices, memory, debug=debug, sync=True)
    line: deque[tuple[PatientBackend, Any, int]] = deque()

    def speed(device: str) -> float:
        return RATES[crc32(f"{device}/{seed}".encode()) % len(RATES)]

    patient = {id(backend): PatientBackend(backend, line, speed) for backend in machine.backends}
    return machine._replace(
        lanes={name: patient[id(backend)] for name, backend in machine.lanes.items()},
        memories={number: patient[id(backend)] for number, backend in machine.memories.items()},
    )


def open_runtime(make: Callable[..., Any], options: Mapping[str, Any], trace: Path, seed: int) -> Any:
    """Open a runtime that repeats itself and writes a trace; `platform` as a number is a cluster of so many ranks."""
    from tests.clusters import cluster

    given = dict(options)
    if isinstance(nodes := given.get("platform"), int):
        given |= {"platform": cluster(nodes, 2 if nodes < 3 else 1), "ranks": nodes}
    if "platform" not in given and not given["devices"].startswith("null"):
        machine = patient_machine(given["devices"], given.pop("memory", {}), seed, debug=given.get("debug", False))
        given["machine"] = machine
    return make(trace=trace, store="off", **given)


def rows_of(trace: Path) -> list[dict[str, Any]]:
    """Return the rows of a trace, without checking them."""
    return [json.loads(line.rstrip(",")) for line in trace.read_text().splitlines() if line.startswith("{")]
