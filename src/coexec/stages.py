"""The stages of a runtime, put together: from measurements and plans to lanes, each told of those it needs.

Before: every stage.  After: runtime.py, which sends the program's calls through them.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from . import process
from .backend.base import Ran
from .backend.library_threads import LibraryThreads
from .backend.machine import Machine, open_machine
from .config import Config, blamed, merged, parse, parse_memory
from .errors import ConfigError, DoesNotFit, RuntimeClosed
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
from .graph.instruction import Kernel as KernelInstruction
from .graph.task import Task
from .graph.task_graph import TaskGraph
from .lower.lowering import Lowering
from .lower.recipes import Recipes
from .machine.cores import cache_bytes
from .machine.platform import Platform
from .machine.power import parse_watts, powered
from .observe.diagnostics import Diagnostics
from .observe.recorder import Recorder
from .plan.assemble import make_candidates, make_planner
from .plan.decisions import Decisions
from .plan.place import Loads
from .predict.learned import Learned
from .predict.links import Links
from .predict.store import Store, default_path
from .program.kernel import Kernel

if TYPE_CHECKING:
    from .backend.simulated import Scenario, SimulatedBackend
    from .cluster.table import Seat


def named(option: str, given: object) -> str | None:
    """Return what to call a platform or a scenario in the options: its path, or its name."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, os.PathLike):
        return str(os.fspath(given))
    if type(given).__name__.lower() != option:
        ours = "the name of a preset or a cx.Platform" if option == "platform" else "a Scenario"
        raise ConfigError(f"Runtime({option}={given!r}): expected the path of a file, {ours}")
    return getattr(given, "name", "") or option


def configured(
    devices: str | None,
    trace: str | os.PathLike[str] | None,
    platform: object,
    scenario: object,
    options: Mapping[str, Any],
) -> Config:
    """Return the options of a runtime: as given, else as the environment says."""
    file = None if trace is None else os.fspath(trace)
    given = {**options, "platform": named("platform", platform), "scenario": named("scenario", scenario)}
    config = merged(parse(os.environ), devices=devices, trace=file, **given)
    if config.trace and trace is None:
        config = merged(config, trace=process.free_trace_name(config.trace))
    return config


def _wants_ranks(options: Mapping[str, Any]) -> bool:
    """Tell whether a runtime is asked for that has several ranks in this process."""
    if options.get("machine") is not None:
        return False
    given = options.get("ranks")
    return (parse(os.environ).ranks if given is None else given) != 1


def simulated_ranks(
    config: Config,
    memory: Mapping[str, str] | str | None,
    platform: Platform | str | os.PathLike[str] | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> tuple[Platform, list[Machine]]:
    """Open one process per node of a platform, in one simulation."""
    if not config.platform:
        with blamed("ranks", config.ranks):
            raise ConfigError(
                f"ranks={config.ranks} is for simulated clusters; name one: platform='a100x128', which has 32 nodes"
            )
    what = platform if isinstance(platform, Platform) else Platform.load(config.platform)
    if config.ranks not in (0, what.nodes):
        with blamed("ranks", config.ranks):
            raise ConfigError(
                f"ranks={config.ranks}, but platform {what.name or config.platform} has {what.nodes} nodes: "
                f"give ranks={what.nodes} for one process on each, or ranks=1 for one that drives them all"
            )
    from .backend.simulated.opening import simulate_ranks

    machines = simulate_ranks(what, reproducible=config.reproducible, **_simulation(config, memory, scenario))
    return machines[0].lanes["host"].world.platform, machines


def _simulation(
    config: Config,
    memory: Mapping[str, str] | str | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """Return what a simulation needs to know beside its platform."""
    from .backend.simulated import Scenario

    happens = scenario if isinstance(scenario, Scenario) else None
    if happens is None and config.scenario:
        with blamed("scenario", config.scenario):
            happens = Scenario.load(config.scenario)
    return {
        "devices": config.devices,
        "memory": _limits(config, memory),
        "execute": config.execute,
        "scenario": happens,
        "store": default_path(config.store),
    }


def open_as(
    config: Config,
    memory: Mapping[str, str] | str | None,
    platform: Platform | str | os.PathLike[str] | None,
    scenario: Scenario | str | os.PathLike[str] | None,
) -> Machine:
    """Open what the options say: devices of this machine, or a platform that is simulated."""
    if not config.platform:
        if config.scenario or config.execute:
            with blamed("execute", config.execute), blamed("scenario", config.scenario):
                raise ConfigError("scenario= and execute= are for simulations; name a platform=, such as 'a100x4'")
        limits = _limits(config, memory)
        with blamed("devices", config.devices):
            return open_machine(config.devices or None, limits, debug=config.debug, sync=config.sync)
    from .backend.simulated import simulate  # many modules, which real machines do without

    what = platform if isinstance(platform, Platform) else Platform.load(config.platform)
    with blamed("devices", config.devices):
        return simulate(what, **_simulation(config, memory, scenario))


def _limits(config: Config, memory: Mapping[str, str] | str | None) -> dict[str, str]:
    limits = config.memory if memory is None else memory
    with blamed("memory", limits):
        return parse_memory(limits) if isinstance(limits, str) else dict(limits)


class Stages(ABC):
    """What a runtime is made of. All of it is guarded by one lock."""

    machine: Machine
    platform: Platform
    checks: bool
    closed: bool
    one_thread: LibraryThreads  # held while bits must not depend on how many threads a library uses
    _in_block = False  # a `with` block of the program is about it
    alone = True  # this process has no other rank of the same program
    before_wait: Callable[[Task], None] | None = None  # lets other ranks of this process send what they hold back
    _lock: Any

    ranked: ClassVar[Callable[[], type[Stages]] | None] = None  # the class for several ranks, which few programs need

    def __new__(cls, *given: Any, **options: Any) -> Self:
        """Return the kind of runtime that the options ask for."""
        del given
        several = cls.__dict__.get("ranked")  # not of a subclass, which knows what it is
        made: Self = object.__new__(several() if several is not None and _wants_ranks(options) else cls)
        return made

    @property
    def _seat(self) -> Seat | None:
        """Which rank this is; None if there is only one."""
        seat: Seat | None = self.machine.seat
        return seat

    def _open(
        self,
        config: Config,
        memory: Mapping[str, str] | str | None,
        platform: Platform | str | os.PathLike[str] | None,
        scenario: Scenario | str | os.PathLike[str] | None,
        machine: Machine | None,
    ) -> None:
        """Open the devices, and put the stages together on them."""
        self.one_thread = LibraryThreads()
        if config.reproducible:
            self.one_thread.hold()
        self.machine = machine or open_as(config, memory, platform, scenario)
        with blamed("watts", config.watts):
            self.platform = powered(self.machine.platform, parse_watts(config.watts))
        self._build(config)

    def _build(self, config: Config) -> None:
        """Put the stages together."""
        machine, platform, cache = self.machine, self.platform, cache_bytes() // 2
        host = machine.lanes["host"]
        self._virtual: SimulatedBackend | None = host if host.kind == "simulated" else None
        real = self._virtual is None  # nothing may depend on real time in a simulation, and nothing of it is kept
        self.learned = Learned(Store(default_path(config.store)), keep=real, described=platform)
        self._links = Links(platform, self.learned.store.links() if real else {})
        clock = host.clock
        self._recorder = Recorder(config.trace, platform, clock, asdict(config), self._links.learn, self._closing())
        self._timed = timed = machine.lanes["host"].kind == "cpu" and not config.sync
        watch = self._diagnostics = Diagnostics(config.diagnostics, platform, self._recorder.note, timed=timed)
        self.loads = Loads(platform)
        self.loads.lags.load(self.learned.lags() if real else {})
        self._graph = TaskGraph(self)
        candidates = make_candidates(platform, self.learned, machine.lanes, reproducible=config.reproducible)
        note = self._recorder.note if self._recorder.tracing else None
        self._planner = make_planner(config, platform, candidates, self.loads, cache, note, watch)
        self._lowering = Lowering(platform, watch if watch.on else None)
        candidates.roomy = self._lowering.fitting.roomy
        self._engine = Engine(open_lanes(platform.devices, LanePolicy.parse(config.lanes)))
        self._executor = self._make_executor()
        at_once = config.sync or watch.strict
        self._holding = Holding(self._lowering, self._executor, "none" if at_once else config.lookahead, timed=real)
        self._lookahead = self._holding.queue
        cpu = machine.lanes["host"] if machine.lanes["host"].kind == "cpu" else None
        self._inline = config.inline and not config.sync and cpu is not None and self._seat is None
        known = self._inline and config.replay and not config.debug and not self._recorder.tracing
        self._at_once = (
            AtOnce(self._executor, self._lowering.coherence, machine.lanes["host"].limit_threads) if known else None
        )
        repeat = config.replay and not at_once
        self._recipes = Recipes(self._lowering, on=repeat)
        self._decisions = Decisions(self.loads, lambda: candidates.mark, lambda: self._upkeep.last_array, on=repeat)
        self._issuing = Issuing(
            self._lowering,
            self._executor,
            self.loads,
            self._recorder,
            cpu,
            self._lookahead,
            self._recipes,
            self._at_once,
        )
        self._on_demand = OnDemand(
            self._lowering.lower, self._issuing.part, self.loads, self._executor.release, self._lookahead, cache=cache
        )
        self._fusing = Fusing(
            self._lock, self._enter_chain, self._planner.runs, on=config.fuse and not at_once, timed=real
        )
        self._fusing.in_rows = config.reproducible
        self._upkeep = Upkeep(
            self._graph, self._lowering, self._executor, self._lookahead, self._recorder, self._recipes, self._at_once
        )
        self._executor.on_finished = self._finished
        redo = Redo(platform, candidates, self._lowering, self.loads, self._recorder.note)
        self._executor.stand_in = redo.instructions
        self._sync, self._horizon_step = config.sync, config.horizon
        self._guesses: deque[Task] = deque()  # tasks divided by guess, of which none was waited for
        self._begin()

    def _closing(self) -> Callable[[], Mapping[str, Any]] | None:
        """Return what tells, at the end, what only a simulation knows."""
        if self._virtual is None:
            return None
        from .backend.simulated import answers

        return partial(answers, self._virtual, self.platform)

    def _begin(self) -> None:
        """Take signals from now on, take a place among the ranks, and begin with an epoch."""
        if self._seat is not None:
            self._lowering.join(self._seat.rank)
            self._upkeep.forget = self._seat.forget
        self._signals = Signals(self._lock, self.cancel_pending)
        if self.alone:
            self._signals.install()
        self._executor.check_signals = self._signals.check
        self._lowering.fitting.listen = self._signals.listen
        self._executor.look_up = self._diagnostics.progress(self._lock, self._engine.issued, time.monotonic)
        with self._lock:
            _, epoch = self._upkeep.epoch("start")
            self._lowering.passed(epoch[-1].id, ())

    @property
    def instructions(self) -> int:
        """How many instructions were made so far."""
        return self._lowering.emitter.last

    def _make_executor(self) -> Executor:
        if self._virtual is None:
            return Executor(self._engine, self.machine.lanes, self.machine.memories, self._lock)
        from .execute.virtual import VirtualExecutor

        self.learned.take_time()  # what is fetched meanwhile comes at no certain time
        return VirtualExecutor(self._engine, self.machine.lanes, self.machine.memories, self._lock, self._virtual)

    def _carry_out(self, task: Task) -> None:
        """Run a task, now or when its turn comes. Where it has begun, here or on other ranks, errors are its results. Locked."""
        try:
            self._run(task)
        except Exception as error:
            if task.deal is not None:
                self._holding.fail(task, error)
                return
            if self._lowering.has_begun(task):
                with suppress(DoesNotFit):  # of what is in no memory; the program is told anyway
                    self._holding.fail(task, error, told=True)
            self._signals.check()
            raise

    def _entered(self, task: Task) -> None:
        """Account for a task that was recorded. Locked."""
        task.scheduling += time.perf_counter() - task.submitted
        if self._virtual is not None:
            task.submitted = self._virtual.clock()
        if self._recorder.tracing:
            self._recorder.task(task)
        if self._virtual is not None:
            self._virtual.keep_up()

    # All of them together ---------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Give the records to the trace and to the predictors."""
        with self._lock:
            records, self._executor.records = self._executor.records, []
        self._recorder.ran(records)
        self._diagnostics.ran(records)
        self._links.update()

    def _settle(self) -> None:
        if self._executor.broken is not None:
            return
        with self._lock:
            self._lower_all()
            if self._virtual is None or self._virtual.executes:  # else there is nothing to bring
                self._upkeep.gather()
        self._executor.wait_idle()

    def _lower_all(self) -> None:
        """Lower everything so far, to whoever has it: the program is about to end or to cancel. Locked."""
        self._fusing.flush()
        self._on_demand.flush()
        self._lookahead.flush()

    def _catch_up(self) -> None:
        """Record what was held back, and free what is gone: somebody wants to see everything so far. Locked."""
        self._check_open()
        self._fusing.flush()
        self._upkeep.collect()

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeClosed("this runtime is closed; open another with cx.Runtime(...)")
        self._executor.check_broken()

    def _finished(self, ran: Ran) -> None:
        """Account for a finished kernel. Locked."""
        instruction = ran.instruction
        if type(instruction) is KernelInstruction:
            self.loads.finished(instruction, ran.start, ran.stop)
            self._on_demand.finished(ran)

    # What stages tell the runtime -------------------------------------------------------------------------------------

    @abstractmethod
    def _enter_chain(self, kernel: Kernel, args: tuple[Any, ...], context: Context, where: tuple[str, int]) -> None:
        """Record a chain of elementwise operations. Locked."""

    @abstractmethod
    def _run(self, task: Task) -> None:
        """Plan, lower and issue a task. Locked."""

    @abstractmethod
    def cancel_pending(self, reason: str) -> None:
        """Cancel whatever has not begun."""

    @abstractmethod
    def wait_for(self, task: Task, timeout: float | None = None) -> bool:
        """Wait for one task; return False on time-out."""

    @abstractmethod
    def cancel(self, task: Task) -> bool:
        """Cancel a task unless it has begun."""
