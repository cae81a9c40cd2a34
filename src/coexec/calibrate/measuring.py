"""Run designed calls on each device alone and on all together, as long as there is time. The runtime does the learning.

Before: calibrate/designs.py, calibrate/steering.py.  After: calibrate/calibration.py.  Keeps no measurement itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import CoexecError
from ..machine.platform import HOST, Device
from ..program import array as arrays
from ..runtime import Runtime
from .designs import Design, DesignedCall, begin, numbers
from .steering import steered, steered_chains

QUICK, LONG = 2e-3, 0.1  # seconds: quick calls are repeated more often, long ones less
REPEATS = {"quick": 6, "usual": 4, "long": 3}  # the first run of a shape is cold and does not count
ROUNDS = 2  # a disturbance that lasts some seconds spoils one of them; and the second divides by what the first learnt
COPIES = tuple(1 << power for power in range(12, 27, 2))  # bytes: 4 KiB to 64 MiB
COPY_REPEATS = 3
ENOUGH = 1e6  # bytes or operations: from here on an operation does what it does for large arrays
LINK_WEIGHT = 0.06  # of the time goes to copies

Progress = Callable[[float, str], None]


class MeasuredPlace(NamedTuple):
    """Where a case runs: one device, or several at once."""

    devices: str
    policy: str = ""

    def __str__(self) -> str:
        return self.devices if self.alone else f"{self.devices} at once"

    @property
    def alone(self) -> bool:
        """Whether one device has the machine to itself."""
        return not self.policy


def places(devices: Sequence[Device]) -> list[MeasuredPlace]:
    """Return one place per unlike device, and all devices together: in equal parts, then in the parts that suit them."""
    first = {device.speed: device for device in reversed(devices)}
    alone = [MeasuredPlace(device.name) for device in devices if first[device.speed] is device]
    narrow = ",".join(device.name for device in devices if not device.wide)
    return [*alone, MeasuredPlace(narrow, "even"), MeasuredPlace(narrow, "static")] if "," in narrow else alone


class DesignBudget:
    """Spends a budget of seconds on designs, one after the other; what one leaves over goes to the next."""

    def __init__(self, runtime: Runtime, seconds: float, progress: Progress) -> None:
        self._runtime = runtime
        self._seconds = seconds
        self._progress = progress
        self._start = time.perf_counter()
        self._rates: dict[tuple[str, MeasuredPlace], float] = {}  # seconds per unit of cost, by op and place
        self._impossible: set[tuple[str, MeasuredPlace]] = set()
        self.calls = 0
        self.left_out: dict[str, str] = {}  # what was not measured, and why

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._start

    def run(self, designs: Sequence[Design], *, links: bool) -> None:
        """Measure everything that there is time for."""
        cases = [design.cases() for design in designs]
        self._start = time.perf_counter()  # making operands is not measuring
        if links:
            self._links(self._seconds * LINK_WEIGHT)
        for number, design in enumerate(designs):
            left = max(0.0, self._seconds - self.spent)
            weight = design.weight / sum(later.weight for later in designs[number:])
            self._design(design.name, cases[number], self.spent + left * weight)
            self._runtime.learned.save()  # a process that is killed keeps what it had

    def _design(self, name: str, cases: Sequence[DesignedCall], deadline: float) -> None:
        """Measure the cases of one operation until `deadline`; small ones come first, so all devices get some."""
        where = places(self._runtime.platform.devices)
        for number, case, place in [(r, c, p) for r in range(ROUNDS) for c in cases for p in where]:
            if (case.together_only and place.alone) or (case.op, place) in self._impossible:
                continue
            expected = self._rates.get((case.op, place), 0.0) * case.cost * REPEATS["long"]
            if self.spent + expected <= deadline:
                self._progress(min(1.0, self.spent / self._seconds), f"{case.op} {case.label} on {place}")
                self._case(case, place, deadline)
            elif number == 0:
                late = f"no time was left for {case.op} of {case.label} and more"
                self.left_out.setdefault(f"{name} on {place}", late)

    def _case(self, case: DesignedCall, place: MeasuredPlace, deadline: float) -> None:
        """Run a case a few times; a device that cannot run any of it is left out from then on."""
        took: list[float] = []
        if case.chain:
            block = steered_chains(self._runtime, place.devices, place.policy)
        else:
            block = steered(self._runtime, devices=place.devices, split=not place.alone, policy=place.policy)
        with block as steering:
            values = begin(case)
            repeats = REPEATS["long"]
            while len(took) < repeats and (not took or self.spent + min(took) <= deadline):
                start = time.perf_counter()
                try:
                    case.call(*values)
                    self._runtime.wait()
                except (CoexecError, ExceptionGroup) as error:
                    if case.own:
                        raise
                    self._leave_out(case, place, str(getattr(error, "exceptions", [error])[0]))
                    return
                took.append(time.perf_counter() - start)
                self.calls += 1
                if not steering.obeyed:
                    break
                repeats = REPEATS["quick" if min(took) < QUICK else "usual" if min(took) < LONG else "long"]
        if steering.obeyed:
            self._rates[case.op, place] = min(took) / case.cost
        elif case.cost >= ENOUGH or case.own:  # small calls may take another way than large ones
            self._leave_out(case, place, next(iter(steering.refused.values()), "it makes no kernel call"))

    def _leave_out(self, case: DesignedCall, place: MeasuredPlace, why: str) -> None:
        self._impossible.add((case.op, place))
        self.left_out[f"{case.op} on {place}"] = why

    def _links(self, deadline: float) -> None:
        """Copy arrays of growing size to each device with a memory of its own, and back."""
        seen = {HOST}
        for device in self._runtime.platform.devices:
            if device.memory in seen:
                continue
            seen.add(device.memory)
            for nbytes in COPIES:
                if self.spent > deadline:
                    self.left_out.setdefault(
                        f"copies to {device.name}", f"no time was left for {nbytes} bytes and more"
                    )
                    break
                self._progress(self.spent / self._seconds, f"copies of {nbytes} bytes to {device.name} and back")
                try:
                    self._copies(device.name, numbers("float32")[: nbytes // 4])
                except CoexecError as error:
                    self.left_out[f"copies to {device.name}"] = str(error)
                    break

    def _copies(self, device: str, data: np.ndarray[Any, Any]) -> None:
        with steered(self._runtime, devices=device, split=False):
            for make in (arrays.array, arrays.asarray):
                for _ in range(COPY_REPEATS):
                    np.asarray(np.negative(make(data)))
                    self.calls += 1
