"""cx.energy(): what some code drew. Measured where that is possible, modelled otherwise, and always said which.

Before: joules/modelled.py.  After: stream/pipeline.py, the package.  Has a thread while counters could go around.

Energy counters of processors are read as Linux shows them under /sys/class/powercap.
A counter counts microjoules, and begins again at 0 after `max_energy_range_uj`. Zones within zones count what these count already.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..driver import Driver
from ..program import session
from ..runtime import Runtime
from .modelled import MODELLED, NO_WATTS, BusyDevices, devices_now, modelled

ROOT = "/sys/class/powercap"
UPDATED = 1e-3  # seconds between two values of a counter: Intel's, and the slowest of those that are known
STEP = 61e-6  # joules: what most processors count in
MOST_WATTS = 2000.0  # of a zone: so often is a counter read that it cannot go around twice


class Zone(NamedTuple):
    """One counter."""

    name: str  # "package-0"
    file: Path
    range: int  # microjoules until it begins again

    def read(self) -> int:
        """Return microjoules since it last began at 0; raise OSError or ValueError if it cannot be read."""
        return int(self.file.read_text(encoding="ascii"))


def zones(root: str | os.PathLike[str] = ROOT) -> tuple[list[Zone], str]:
    """Return the counters that can be read, outermost zones only, and why there are none, if so."""
    folder = Path(root)
    found: list[Zone] = []
    refused = ""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return [], f"this machine has no energy counters under {folder}"
    for entry in entries:
        if entry.name.count(":") != 1:  # "intel-rapl" is a control, "intel-rapl:0:0" a part of "intel-rapl:0"
            continue
        try:
            name = (entry / "name").read_text(encoding="ascii").strip()
            zone = Zone(name, entry / "energy_uj", int((entry / "max_energy_range_uj").read_text(encoding="ascii")))
            zone.read()
        except PermissionError:
            refused = f"no right to read {entry / 'energy_uj'}"
        except (OSError, ValueError):
            continue
        else:
            if not any(zone.name == other.name for other in found):  # the same counter over two buses
                found.append(zone)
    if any(zone.name.startswith("package") for zone in found):
        found = [zone for zone in found if zone.name != "psys"]  # the whole platform, packages included
    return found, "" if found else refused or f"this machine has no energy counters under {folder}"


class Counters:
    """Joules since the beginning, of some zones. Read it at least every `interval` seconds."""

    def __init__(self, counted: list[Zone]) -> None:
        self._zones = counted
        self._last = [zone.read() for zone in counted]
        self._sums = [0] * len(counted)
        self.missed = ""  # why a zone could not be read the last time: its joules are those of the look before

    @property
    def interval(self) -> float:
        """Seconds within which no counter can go around."""
        return min(zone.range * 1e-6 / MOST_WATTS for zone in self._zones)

    def read(self) -> dict[str, float]:
        """Return the joules of each zone since the beginning."""
        self.missed = ""
        for number, zone in enumerate(self._zones):
            try:
                now, before = zone.read(), self._last[number]
            except (OSError, ValueError) as error:
                self.missed = f"{zone.name} could not be read: {error}"
                continue
            self._sums[number] += now - before if now >= before else now - before + zone.range
            self._last[number] = now
        return {zone.name: total * 1e-6 for zone, total in zip(self._zones, self._sums, strict=True)}


NOTHING_OPEN = "unknown: no runtime was open, and nothing was measured"


@dataclass
class EnergyReport:
    """What was drawn. `joules` is None if nobody knows."""

    joules: float | None = None
    seconds: float = 0.0  # of the machine's clock, or of a simulation's
    source: str = NOTHING_OPEN  # in words: measured by what, or modelled from what
    measured: bool = False
    parts: dict[str, float] = field(default_factory=dict)  # joules by counter or by device
    resolution_s: float | None = None  # seconds between two values of what was measured with
    resolution_j: float | None = None
    why_not: str = ""  # why nothing was measured, if so

    @property
    def watts(self) -> float | None:
        """On average."""
        return self.joules / self.seconds if self.joules is not None and self.seconds else None


class EnergyMeter(EnergyReport):
    """Measures what happens in its `with` block; afterwards it is the report."""

    def __init__(self, counters: str | os.PathLike[str] = ROOT) -> None:
        """Take the folder in which the system shows its counters."""
        super().__init__()
        self._root = counters
        self._counters: Counters | None = None
        self._zeus: Any = None
        self._driver: Driver | None = None  # of the runtime that is open, if it has one rank
        self._busy: BusyDevices | None = None
        self._begun = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def begin(self, runtime: Runtime | None = None) -> None:
        """Begin to measure. What a simulation draws is never measured: this machine only computes it."""
        self._driver = _driver(runtime or session.innermost())
        virtual = self._driver is not None and self._driver.parts.simulation is not None
        self._begun = self._clock()
        if self._driver is not None:
            self._busy = BusyDevices(self._begun, devices_now(self._driver))
            self._driver.pump.observe(self._busy)
        if virtual:
            self.why_not = "a simulation draws nothing"
            return
        self._zeus, self.why_not = _zeus()
        if self._zeus is None:
            found, why = zones(self._root)
            self.why_not = why if not found else ""
            self._counters = Counters(found) if found else None
        if self._counters is not None:
            self._thread = threading.Thread(target=self._look_now_and_then, name="coexec-energy", daemon=True)
            self._thread.start()

    def _look_now_and_then(self) -> None:
        counters = self._counters
        while counters is not None and not self._stop.wait(counters.interval):
            counters.read()

    def _clock(self) -> float:
        return time.perf_counter() if self._driver is None else self._driver.recorder.clock()

    def end(self) -> None:
        """End, and say what was drawn. Idempotent."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.look()
        if self._driver is not None and self._busy is not None:
            self._driver.pump.ignore(self._busy)

    def look(self) -> EnergyReport:
        """Say what was drawn so far."""
        self.seconds = self._clock() - self._begun
        if self._zeus is not None:
            for name, joules in _zeus_parts(self._zeus).items():
                self.parts[name] = self.parts.get(name, 0.0) + joules
            self.source = "measured by zeus"
        elif self._counters is not None:
            self.parts, self.source = self._counters.read(), "measured by the processor's counters (powercap)"
            self.resolution_s, self.resolution_j = UPDATED, STEP
            self.why_not = self._counters.missed
        else:
            self._model()
            return self
        self.measured, self.joules = True, sum(self.parts.values())
        return self

    def _model(self) -> None:
        driver, busy = self._driver, self._busy
        if driver is None or busy is None:
            return
        driver.pump.drain()
        self.parts = modelled(driver.platform, busy, self.seconds)
        self.joules = sum(self.parts.values()) if self.parts else None
        self.source = MODELLED if self.parts else NO_WATTS


def energy() -> EnergyMeter:
    """Return a context that tells what the code in it drew: `with cx.energy() as used: ...`, then `used.joules`, `used.source`.

    Measured by zeus where it is installed (extra `energy`: processors and graphics cards), by the processor's own counters
    where they may be read, and otherwise modelled from the watts of the platform: `Runtime(watts=...)` or its file.
    """
    return EnergyMeter()


def _driver(runtime: Any) -> Driver | None:
    """Return what drives a runtime of one rank; of several, nobody knows all devices."""
    way = runtime._way if isinstance(runtime, Runtime) else None
    return way if isinstance(way, Driver) else None


def _zeus() -> tuple[Any, str]:
    """Return zeus's monitor with an open window, or why there is none."""
    try:
        from zeus.monitor import ZeusMonitor
    except ImportError:
        return None, "zeus is not installed (extra `energy`)"
    try:
        monitor = ZeusMonitor()
        monitor.begin_window("coexec", sync_execution=False)
        seen = _zeus_parts(monitor)
    except Exception as error:  # noqa: BLE001 - whatever it lacks here, counters or rights: then nothing is measured
        return None, f"zeus cannot measure here: {error}"
    return (monitor, "") if seen else (None, "zeus finds no counters here")


def _zeus_parts(monitor: Any) -> dict[str, float]:
    """Return the joules of zeus's window, and open the next one."""
    found = monitor.end_window("coexec", sync_execution=False)
    monitor.begin_window("coexec", sync_execution=False)
    parts = {f"gpu {index}": float(joules) for index, joules in (found.gpu_energy or {}).items()}
    parts |= {f"cpu {index}": float(joules) for index, joules in (found.cpu_energy or {}).items()}
    parts |= {f"dram {index}": float(joules) for index, joules in (found.dram_energy or {}).items()}
    return parts
