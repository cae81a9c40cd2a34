"""A planner on invented devices, with speeds that a test makes up: what the tests of planner and divider share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coexec.geometry import Box
from coexec.graph.task import Task
from coexec.lower.whereabouts import Whereabouts
from coexec.machine.platform import HOST, USER, Device, Link, Memory, Platform, host_links
from coexec.observe.diagnostics import Diagnostics
from coexec.plan.candidate import Candidates
from coexec.plan.division.divider import Divider
from coexec.plan.planned import Planned
from coexec.plan.planner import Planner
from coexec.plan.policies import Loads, load_placement
from coexec.predict.features import work_of, work_of_part
from coexec.predict.learned import Learned
from coexec.program.array import Array
from coexec.program.call import Options
from coexec.program.kernel import Kernel
from coexec.testing import GraphBuilder

BANDWIDTH = 8e9


def unlike(
    *, own: Sequence[bool] = (False, False), wide: bool = False, capacity: int | None = None, granule: int = 1
) -> Platform:
    """Return devices dev:0, dev:1, ... of unlike speed; those with memory of their `own` have links to the host."""
    devices: list[Device] = []
    memories, ids = [Memory("user"), Memory("host", paged=True)], []
    for number, separate in enumerate(own):
        memory = HOST
        readable: tuple[int, ...] = (HOST, USER)
        if separate:
            memory, readable = len(memories), (len(memories),)
            memories.append(Memory(f"dev:{number}", capacity))
            ids.append(memory)
        devices.append(Device(f"dev:{number}", "null", memory, readable, f"speed {number}", granule=granule))
    if wide:
        devices.append(Device("dev:all", "null", HOST, (HOST, USER), "all of them", wide=True))
    links = host_links(ids)
    links |= {(a, b): Link(a, b) for a in ids for b in ids if a != b}
    return Platform(tuple(devices), tuple(memories), links)


def alike(devices: int) -> Platform:
    """Return devices of one speed on the host's memory."""
    made = [Device(f"dev:{i}", "null", HOST, (HOST, USER), "the same") for i in range(devices)]
    return Platform(tuple(made))


class Planning:
    """A planner, and arrays to plan with."""

    def __init__(
        self,
        devices: int = 2,
        placement: str = "round-robin",
        *,
        platform: Platform | None = None,
        policy: str = "static",
    ) -> None:
        self.g = GraphBuilder(platform=platform or alike(devices))
        self.learned = Learned()
        self.names = self.g.devices
        self.candidates = Candidates(
            self.g.platform, self.learned, dict.fromkeys(self.names, True), dict.fromkeys(self.names, self._supports)
        )
        self.loads = Loads(self.g.platform)
        self.loads.start_delays.load(
            {d.name: 0.0 for d in self.g.platform.devices}
        )  # what is planned here never begins late
        self.unsupported: set[str] = set()
        self.notes: list[str] = []
        self.diagnostics = Diagnostics("warn", self.g.platform, self.notes.append)
        self.divider = Divider(self.g.platform, Whereabouts(self.g.lowering))
        self.planner = Planner(
            self.candidates,
            load_placement(placement, self.loads, 0.1),
            self.loads,
            Whereabouts(self.g.lowering),
            self.divider,
            policy=policy,
            note=self.notes.append,
            tell=self.diagnostics.conflict,
        )
        self._tasks = 0

    def _supports(self, dtype: np.dtype[Any]) -> bool:
        return dtype.name not in self.unsupported

    def array(self, *shape: int) -> Array:
        """Return an array that is nowhere yet."""
        return self.g.array(shape)

    def on_host(self, *shape: int) -> Array:
        """Return an array with contents in host memory."""
        return self.g.array(shape, data=np.zeros(shape))

    def task(self, kernel: Kernel, *arguments: Any, **options: Any) -> Task:
        arrays, scalars = kernel.bind(arguments, {})
        self._tasks += 1
        task = Task(self._tasks, kernel.name, kernel, None)
        task.accesses, task.arrays, task.scalars = kernel.array_params, arrays, scalars
        task.options = Options(**options)
        task.extents, task.domain, task.key = kernel.space(arrays, scalars)
        task.space = None if kernel.simple else task.domain
        return task

    def plan(self, kernel: Kernel, *arguments: Any, idle: bool = False, **options: Any) -> Planned:
        planned = self.planner.plan(self.task(kernel, *arguments, **options), idle=idle)
        self.diagnostics.speak()
        return planned

    def devices(self, *arguments: Any, **options: Any) -> list[str]:
        return [chunk.device for chunk in self.plan(*arguments, **options).command.chunks]

    def rows(self, *arguments: Any, **options: Any) -> dict[str, int]:
        """Return the rows of each device."""
        chunks = self.plan(*arguments, **options).command.chunks
        found: dict[str, int] = {}
        for chunk in chunks:  # a device may have its share in several
            found[chunk.device] = found.get(chunk.device, 0) + chunk.box.hi[0] - chunk.box.lo[0]
        return found

    def teach(self, kernel: Kernel, arguments: Sequence[Any], rates: dict[str, float], *, start: float = 0.0) -> None:
        """Let each device have been measured at so many rows per second, in parts of several sizes and as a whole."""
        task = self.task(kernel, *arguments)
        rows = task.domain.hi[0]
        for candidate in self.candidates.of(kernel, None).all:
            rate = rates.get(candidate.name)
            if rate is None:
                continue
            for part in sorted({max(1, rows * i // 10) for i in range(1, 11)}):
                box = Box((0, *task.domain.lo[1:]), (part, *task.domain.hi[1:]))
                for together in (False, True):
                    for _ in range(4):
                        candidate.model.learn(work_of_part(task, box), start + part / rate, together=together)
            for _ in range(4):
                candidate.model.learn(work_of(task), start + rows / rate)
