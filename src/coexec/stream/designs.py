"""Designs of devices, as streams give them and as calls find them: one account of what each device holds.

Before: backend/simulated/, plan/designs.py.  After: stream/pipeline.py.  Only simulated devices are configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..driver import Driver


def configurer(driver: Driver) -> Callable[[str, str], None] | None:
    """Return what gives a device a design, and tells whoever places calls; None if no device can be configured."""
    simulation, held = driver.parts.simulation, driver.scheduler.plan.loads.designs.held
    if simulation is None:
        return None

    def configure(device: str, design: str) -> None:
        simulation.configure(device, design)
        held[device] = design

    return configure


@contextmanager
def looking(driver: Driver) -> Iterator[None]:
    """Let calls run under whichever design they need, and load none: a sample is looked at, and nothing is deployed yet."""
    simulation, held = driver.parts.simulation, driver.scheduler.plan.loads.designs.held
    if simulation is None or not driver.scheduler.plan.loads.designs.some:
        yield
        return
    before = dict(held)
    with simulation.loading_nothing():
        yield
    held.clear()
    held.update(before)
