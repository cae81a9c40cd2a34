"""Energy counters of processors, as Linux shows them under /sys/class/powercap.

Before: nothing.  After: joules/meter.py.  Reads files; knows no device of coexec's.

A counter counts microjoules, and begins again at 0 after `max_energy_range_uj`. Zones within zones count what these count already.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

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
