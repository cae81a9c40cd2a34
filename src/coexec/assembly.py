"""Put a scheduler, an executor and everything around them together, as the options say.

Before: every stage.  After: pump.py, which drives them.  Whatever a part needs is given to it when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from time import thread_time
from typing import TYPE_CHECKING, Any

from .backend.machine import Machine
from .compile.serving import Bodies
from .config import Config, blamed
from .execute.engine import Engine
from .execute.executor import Executor
from .execute.lanes import LanePolicy, open_lanes
from .lower.lowering import Lowering
from .lower.whereabouts import Whereabouts
from .machine.abilities import abilities_of
from .machine.cores import cache_bytes
from .machine.platform import Platform
from .machine.power import parse_watts, powered
from .observe.diagnostics import Diagnostics
from .observe.recorder import Recorder
from .plan.assemble import make_candidates, make_planner
from .plan.policies import Loads
from .predict.learned import Learned
from .predict.links import Links
from .predict.store import Store, default_path
from .schedule.fuse import Describe
from .schedule.host_retry import HostRetry
from .schedule.plan import HandOut
from .schedule.scheduler import Scheduler, Settings

if TYPE_CHECKING:
    from .backend.simulated import SimulatedBackend
    from .plan.candidate import Candidates
    from .plan.planner import Planner
    from .plan.steps.telling import ToldPlanner


AHEAD = 20e-3  # seconds: long enough that no device runs dry while the next calls are planned


@dataclass(frozen=True, slots=True)
class Assembly:
    """What one rank of a program is made of."""

    machine: Machine
    platform: Platform
    learned: Learned
    links: Links
    recorder: Recorder
    diagnostics: Diagnostics
    loads: Loads
    scheduler: Scheduler
    executor: Executor
    simulation: SimulatedBackend | None  # where time is virtual
    timed: bool  # what the devices' times say of a program that runs ahead is real
    inline: Any  # the backend that runs a short kernel on the calling thread, or None
    bodies: Bodies  # what compiles the bodies of kernels


def assemble(config: Config, machine: Machine, lock: Any, describe: Describe) -> Assembly:
    """Return the parts of one rank. `lock` guards all of them; `describe` makes the calls of chains."""
    with blamed("watts", config.watts):
        platform = powered(machine.platform, parse_watts(config.watts))
    host = machine.lanes["host"]
    simulation: SimulatedBackend | None = host if host.kind == "simulated" else None
    real = simulation is None  # nothing may depend on real time in a simulation, and nothing of it is kept
    first = machine.seat is None or machine.seat.rank == 0  # others read: many writers are too much for a network home
    learned = Learned(Store(default_path(config.store)), keep=first, simulated=not real, described=platform)
    links = Links(platform, learned.store.links() if real else {})
    closing = _closing(simulation, platform)
    recorder = Recorder(config.trace, platform, host.clock, asdict(config), closing)
    on_cores = abilities_of(host.kind).on_numpy  # threads of ours run the bodies
    timed = on_cores and not config.sync
    diagnostics = Diagnostics(config.diagnostics, platform, recorder.note, timed=timed)
    loads = Loads(platform)
    loads.start_delays.load(learned.start_delays() if real else {})
    inline = host if config.inline and not config.sync and on_cores and machine.seat is None else None
    bodies = Bodies(config.compile_bodies, debug=config.debug, note=recorder.note)
    scheduler = _scheduler(config, machine, platform, learned, loads, recorder, diagnostics, describe, inline, bodies)
    if on_cores and not config.reproducible:  # where the bodies themselves decide
        host.bodies = bodies
    engine = Engine(open_lanes(platform.devices, LanePolicy.parse(config.lanes)))
    executor = _executor(engine, machine, lock, simulation)
    if not real:
        learned.take_time()  # what is fetched meanwhile comes at no certain time
    return Assembly(
        machine,
        platform,
        learned,
        links,
        recorder,
        diagnostics,
        loads,
        scheduler,
        executor,
        simulation,
        timed,
        inline,
        bodies,
    )


def _scheduler(
    config: Config,
    machine: Machine,
    platform: Platform,
    learned: Learned,
    loads: Loads,
    recorder: Recorder,
    diagnostics: Diagnostics,
    describe: Describe,
    inline: Any,
    bodies: Bodies,
) -> Scheduler:
    at_once = config.sync or diagnostics.strict
    cache = cache_bytes() // 2
    lowering = Lowering(platform, diagnostics if diagnostics.on else None)
    where = Whereabouts(lowering)
    compiled = config.compile_bodies != "off"
    candidates = make_candidates(
        platform, learned, machine.lanes, where, reproducible=config.reproducible, compiled=compiled
    )
    bodies.changed = candidates.forget
    note = recorder.note if recorder.tracing else None
    planner = make_planner(config, platform, candidates, loads, cache, note, diagnostics, where)
    narrow = [device.name for device in platform.devices if not device.wide]  # where compiled bodies run
    bodies.ahead = lambda: (
        {} if planner.to_the_letter.plans else {d: last for d in narrow if (last := loads.latest.get(d)) is not None}
    )
    settings = Settings(
        lookahead="none" if at_once else config.lookahead,
        replay=config.replay and not at_once,
        fuse=config.fuse and not at_once,
        in_rows=config.reproducible,
        inline=inline is not None,
        handout=HandOut(cache, allowed=not diagnostics.strict),
        ahead=inf if at_once else AHEAD,
    )
    retry = HostRetry(platform, candidates, lowering, loads, recorder.note)
    steps = _steps(config, platform, candidates, planner, where, machine) if settings.replay else None
    loads.planned_as_steps = steps is not None
    recorder.planning = None if steps is None else steps.figures
    return Scheduler(
        lowering, planner, loads, describe, settings, version=candidates, seat=machine.seat, retry=retry, steps=steps
    )


def _steps(
    config: Config, platform: Platform, candidates: Candidates, planner: Planner, where: Whereabouts, machine: Machine
) -> ToldPlanner | None:
    """Return what plans steps; None where there is nothing to choose."""
    if len(platform.devices) < 2 or machine.seat is not None or config.objective != "time" or config.energy_cap:
        return None
    from .plan.steps.bounds import Target
    from .plan.steps.estimate import Overheads
    from .plan.steps.telling import ToldPlanner

    host = machine.lanes["host"]
    simulated = host.kind == "simulated"
    overheads = Overheads(*host.costs[:5]) if simulated else Overheads()
    clock = None if simulated else thread_time  # planning is not charged for what others compute meanwhile
    exact = simulated and not host.world.scenario.happens  # else devices are not what models say of them
    target = Target(platform, overheads, where.where, by_peaks=exact and host.law.by_peaks)
    return ToldPlanner(target, candidates, planner, exact=exact, clock=clock)


def _executor(engine: Engine, machine: Machine, lock: Any, simulation: SimulatedBackend | None) -> Executor:
    if simulation is None:
        return Executor(engine, machine.lanes, machine.memories, lock)
    from .execute.virtual import VirtualExecutor

    return VirtualExecutor(engine, machine.lanes, machine.memories, lock, simulation)


def _closing(simulation: SimulatedBackend | None, platform: Platform) -> Callable[[], Mapping[str, Any]] | None:
    """Return what tells, at the end, what only a simulation knows."""
    if simulation is None:
        return None
    from .backend.simulated import answers

    return partial(answers, simulation, platform)
