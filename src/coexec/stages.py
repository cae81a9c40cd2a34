"""The stages of a runtime, put together: from measurements and plans to lanes, each told of those it needs.

Before: every stage.  After: runtime.py, which sends the program's calls through them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from contextvars import Context
from dataclasses import asdict
from typing import Any

from .backend.base import Ran
from .backend.machine import Machine
from .config import Config
from .execute.at_once import AtOnce
from .execute.engine import Engine
from .execute.executor import Executor
from .execute.fusing import Fusing
from .execute.holding import Holding
from .execute.issuing import Issuing
from .execute.lanes import LanePolicy, open_lanes
from .execute.on_demand import OnDemand
from .execute.redo import Redo
from .execute.signals import Signals
from .execute.upkeep import Upkeep
from .graph.task import Task
from .graph.task_graph import TaskGraph
from .lower.lowering import Lowering
from .lower.replay import Replay
from .machine.cores import cache_bytes
from .machine.platform import Platform
from .observe.diagnostics import Diagnostics
from .observe.recorder import Recorder
from .plan.assemble import make_candidates, make_planner
from .plan.place import Loads
from .predict.learned import Learned
from .predict.links import Links
from .predict.store import Store, default_path
from .program.kernel import Kernel


class Stages(ABC):
    """What a runtime is made of. All of it is guarded by one lock."""

    machine: Machine
    platform: Platform
    checks: bool
    _lock: Any

    def _build(self, config: Config) -> None:
        """Put the stages together."""
        machine, platform, cache = self.machine, self.platform, cache_bytes() // 2
        self.learned = Learned(Store(default_path(config.store)))
        self._links = Links(platform, self.learned.store.links())
        clock = machine.lanes["host"].clock
        self._recorder = Recorder(config.trace, platform, clock, asdict(config), self._links.learn)
        self._timed = timed = machine.lanes["host"].kind == "cpu" and not config.sync
        watch = self._diagnostics = Diagnostics(config.diagnostics, platform, self._recorder.note, timed=timed)
        self.loads = Loads(platform)
        self.loads.lags.load(self.learned.lags())
        self._graph = TaskGraph(self)
        candidates = make_candidates(platform, self.learned, machine.lanes)
        note = self._recorder.note if self._recorder.tracing else None
        self._planner = make_planner(config, platform, candidates, self.loads, cache, note, watch.conflict)
        self._lowering = Lowering(platform, watch if watch.on else None)
        candidates.roomy = self._lowering.fitting.roomy
        self._engine = Engine(open_lanes(platform.devices, LanePolicy.parse(config.lanes)))
        self._executor = Executor(self._engine, machine.lanes, machine.memories, self._lock)
        at_once = config.sync or watch.strict
        self._holding = Holding(self._lowering, self._executor, "none" if at_once else config.lookahead)
        self._lookahead = self._holding.queue
        cpu = machine.lanes["host"] if machine.lanes["host"].kind == "cpu" else None
        self._inline = config.inline and not config.sync and cpu is not None
        known = self._inline and config.replay and not config.debug and not self._recorder.tracing
        self._at_once = (
            AtOnce(self._executor, self._lowering.coherence, machine.lanes["host"].limit_threads) if known else None
        )
        repeat = config.replay and not at_once
        self._replay = Replay(self._graph, self._lowering, lambda: candidates.mark, on=repeat)
        self._issuing = Issuing(
            self._lowering,
            self._executor,
            self.loads,
            self._recorder,
            cpu,
            self._lookahead,
            self._replay,
            self._at_once,
        )
        self._on_demand = OnDemand(
            self._lowering.lower, self._issuing.part, self.loads, self._executor.release, self._lookahead, cache=cache
        )
        self._fusing = Fusing(self._lock, self._enter_chain, self._planner.runs, on=config.fuse and not at_once)
        self._upkeep = Upkeep(
            self._graph, self._lowering, self._executor, self._lookahead, self._recorder, self._replay, self._at_once
        )
        self._executor.on_finished = self._finished
        redo = Redo(platform, candidates, self._lowering, self.loads, self._recorder.note)
        self._executor.stand_in = redo.instructions
        self._signals = Signals(self._lock, self.cancel_pending)
        self._signals.install()
        self._executor.check_signals = self._signals.check
        self._executor.look_up = watch.progress(self._lock, self._engine.issued, time.monotonic)
        self._sync, self._horizon_step = config.sync, config.horizon
        self._guesses: deque[Task] = deque()  # tasks divided by guess, of which none was waited for
        with self._lock:
            _, epoch = self._upkeep.epoch("start")
            self._lowering.passed(epoch[-1].id, ())

    # What stages tell the runtime -------------------------------------------------------------------------------------

    @abstractmethod
    def _enter_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, where: tuple[str, int]) -> None:
        """Record a chain of elementwise operations. Locked."""

    @abstractmethod
    def _finished(self, ran: Ran) -> None:
        """Account for a finished kernel. Locked."""

    @abstractmethod
    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun."""

    @abstractmethod
    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""

    @abstractmethod
    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
