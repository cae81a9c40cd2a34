"""cx.Pipeline: a function of one item, planned as stages on groups of devices, and applied to streams of items.

Before: stream/planning.py, stream/deployment.py, stream/stream.py.  After: the package.  The scheduler does the rest.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import Any, Self, cast

from ..errors import ArgumentError, CoexecError, NoValues, ProgramError
from ..joules.meter import EnergyMeter
from ..machine.platform import Platform
from ..plan.pipeline import PipelinePoint
from ..plan.plan import Plan
from ..program import session
from ..runtime import Runtime
from . import asynchronous, sources
from .as_plan import as_plan, one_more
from .bundles import Tapes
from .checking import PlanCheck, check
from .deployment import Deployment
from .designs import configurer, looking
from .effects import same_randomness
from .failures import FailurePolicy, StreamFailure
from .item import driver_of
from .on_ranks import agreed, check_stateless, stream_on_ranks
from .planning import PreparedFront, check_limits, prepare, record_on
from .progress import ProgressBar
from .pulling import Pulling
from .recording import record
from .rehearsing import pace_of_python
from .rescheduling import Adviser, StreamDecision
from .sources import BatchSize, ItemSource
from .statistics import StreamWatch, told
from .stream import Stream
from .trees import described, leaves, mapped, plain, taken
from .trials import drags_of
from .watching import ended, over, watching
from .window import Ahead, Window

KEPT = 8  # items that wait while newer ones come, with drop="oldest", unless the user says something else
MOST_BYTES = 1 << 30  # of items under way, unless the user says something else: a gigabyte


class Pipeline:
    """A function of one item and its constants, to be applied to many items. See docs/howto/pipelines.md."""

    def __init__(self, fn: Callable[..., Any], /, **constants: Any) -> None:
        """Take `fn(item, **constants)`: a plain function that calls kernels, operations and ufuncs on the item's arrays."""
        if not callable(fn):
            raise ArgumentError(f"cx.Pipeline takes a function of one item, not {fn!r}")
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self._given = constants
        self._home: tuple[Runtime, dict[str, Any]] | None = None  # the constants as arrays of a runtime
        self._tapes: Tapes | None = None  # what is known of items there
        self._lent = False  # nobody changes the items of the stream that begins
        self._features: dict[str, Callable[[Any], float]] = {}
        self._planned: list[tuple[Plan, PreparedFront, PipelinePoint]] = []  # of the last call of plan()
        self._planned_on: Runtime | None = None
        self._asked: dict[str, Any] = {}  # what plan() was asked for
        self._deployment: Deployment | None = None
        self._together: Runtime | None = None  # of all ranks, each of which computes some of the items
        self._shared: dict[str, Any] | None = None  # the constants as arrays of all ranks
        self._watch: StreamWatch | None = None
        self._meter = EnergyMeter()
        self._stream: Callable[[], Stream | None] = lambda: None  # weakly: a consumer that drops it ends it
        self._policy: FailurePolicy | None = None  # of the last stream
        self._checked: tuple[PipelinePoint, PlanCheck] | None = None  # the last plan that was simulated

    # Planning ---------------------------------------------------------------------------------------------------------

    def __call__(self, item: Any) -> Any:
        """Apply the function to one item, as it is: nothing is placed, and the result's arrays stay where they are."""
        runtime, constants = self._at_home()
        if self._together is not None and runtime is not self._together:  # a call that all ranks make
            runtime = self._together
            if self._shared is None:
                self._shared = {name: taken(value) for name, value in self._given.items()}
            constants = self._shared
        with session.within(runtime):
            return self.fn(taken(item), **constants)

    def feature(self, name: str, function: Callable[[Any], float]) -> Self:
        """Add a feature by which items are told apart: a function of an item that gives a number, and is quick."""
        if not callable(function):
            raise ArgumentError(f"feature {name!r} is {function!r}; give a function of an item")
        self._features[name] = function
        return self

    def plan(
        self,
        sample: Any,
        platform: Platform | str | None = None,
        objective: str = "throughput",
        *,
        latency: float | None = None,
        power: float | None = None,
        devices: str | Sequence[str] | None = None,
        memory: float | None = None,
        mixed: bool = False,
    ) -> list[Plan]:
        """Return the front of pipelines for items like `sample`, the quickest first; the one for `objective` is deployed.

        `platform` plans for another machine, in simulation. `latency` is a limit in seconds, `power` in watts on average,
        `memory` in bytes of each device. `devices` are those that may be used. `mixed` lets unlike devices share a stage.
        """
        check_limits(objective, latency=latency, power=power, memory=memory)
        names = [n.strip() for n in devices.split(",") if n.strip()] if isinstance(devices, str) else devices
        if platform is not None:
            return self._plan_elsewhere(sample, platform, objective, latency, power, names, memory, mixed)
        runtime, constants = self._at_home()
        self._asked = {"devices": names, "memory": memory, "latency": latency, "mixed": mixed}
        prepared = self._prepare(runtime, constants, sample)
        points = prepared.front.points if power is None else prepared.front.throttled(power)
        if self._together is not None:
            points = (prepared.front.choose(objective, power=power),)
        shapes = "; ".join(described(leaf) for leaf in leaves(sample))
        plans = agreed(self._together, [as_plan(self.name, shapes, prepared, p, objective) for p in points])
        self._planned = [(plan, prepared, point) for plan, point in zip(plans, points, strict=True)]
        self._planned_on = runtime
        self._asked |= {"objective": objective, "power": power}
        self._deployment = None
        return [plan for plan, _, _ in self._planned]

    def _plan_elsewhere(
        self,
        sample: Any,
        platform: Platform | str,
        objective: str,
        latency: float | None,
        power: float | None,
        names: Sequence[str] | None,
        memory: float | None,
        mixed: bool,
    ) -> list[Plan]:
        other = Pipeline(self.fn, **{name: mapped(value, plain) for name, value in self._given.items()})

        def planned(*, execute: bool) -> list[Plan]:
            with Runtime(platform=platform, store="off", execute=execute):
                return other.plan(
                    sample, None, objective, latency=latency, power=power, devices=names, memory=memory, mixed=mixed
                )

        try:
            return planned(execute=False)
        except NoValues:  # the function looks at what it has computed
            return planned(execute=True)

    def _prepare(self, runtime: Runtime, constants: Mapping[str, Any], sample: Any) -> PreparedFront:
        constants = mapped(dict(constants), lambda leaf: leaf)  # the function may change lists and dicts
        with runtime.trying(), looking(driver_of(runtime)), same_randomness(self.fn, constants):
            recorded = record(runtime, self.fn, constants, sample)
            if self._together is not None:
                check_stateless(recorded.state_line)
            prepared = prepare(
                runtime,
                recorded,
                again=lambda device: record_on(runtime, self.fn, constants, sample, recorded, device),
                **self._limits(),
            )
            prepared = prepared.paced(pace_of_python(runtime, self.fn, constants, sample, prepared, recorded))
            return prepared.tried(drags_of(runtime, self.fn, constants, sample, prepared, recorded, self._tapes))

    def _limits(self) -> dict[str, Any]:
        """Return what plan() was asked to keep to."""
        return {name: self._asked.get(name) for name in ("devices", "memory", "latency")} | {
            "mixed": bool(self._asked.get("mixed"))
        }

    def _at_home(self) -> tuple[Runtime, dict[str, Any]]:
        """Return the current runtime, of several ranks that of this rank alone, and the constants as arrays of it."""
        current = session.current()
        while isinstance(current, Pulling):  # the source of one stream begins with another
            current = current.runtime
        if not isinstance(current, Runtime):
            raise ProgramError("a pipeline cannot be used inside another one's function; call its function instead")
        if current.config.ranks != 1:
            raise ProgramError("pipelines do not run on the ranks of a simulation; open a runtime with ranks=1")
        if current.joined and self._together is not current:
            self._together, self._shared = current, None
            self._given = {name: mapped(value, plain) for name, value in self._given.items()}  # all ranks read them
        elif not current.joined and (self._home is None or self._home[0] is not current):
            self._together = None
        current = current.alone()
        if self._home is None or self._home[0] is not current:
            with session.within(current):
                self._home = (current, {name: taken(value) for name, value in self._given.items()})
            self._tapes = Tapes(current)
            self._deployment = None
        return self._home

    # Streams ----------------------------------------------------------------------------------------------------------

    def stream(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        objective: str | None = None,
        plan: Plan | None = None,
        order: str = "input",
        ahead: int | tuple[int | None, float | None] | None = None,
        batch: tuple[int, float] | None = None,
        on_error: str = "raise",
        max_failures: float | None = None,
        drop: str | None = None,
        after: int | None = None,
        progress: bool | None = None,
    ) -> Stream:
        """Return an iterator over the results, arrays on the host; `async for` works, too. See docs/howto/pipelines.md.

        The first item is the sample if nothing was planned. `plan` is one of those that `plan(...)` returned.
        `after=n` goes on after item n.
        """
        runtime, constants = self._at_home()
        if self._together is not None and self._together is session.current():
            of_all = stream_on_ranks(
                self, self._together, items, on_error, max_failures, after, order=order, drop=drop,
                objective=objective, plan=plan, ahead=ahead, batch=batch,
            )  # fmt: skip
            self._policy = of_all.policy
            return cast("Stream", of_all)  # but for asyncio, which it refuses
        lent, self._lent = self._lent, False
        if drop not in (None, "oldest"):
            raise ArgumentError(f"drop={drop!r}; say 'oldest', or leave it away")
        policy, size = FailurePolicy(on_error, max_failures), BatchSize.of(batch)
        if not isinstance(items, AsyncIterable | Iterable):
            raise ArgumentError(f"stream() takes an iterable of items, not a {type(items).__name__}")
        deployment = self._deployment = self._deploy(runtime, constants, objective, plan)
        most = Ahead.of(ahead, 0, float(MOST_BYTES))
        window = Window(runtime, self.fn, constants, deployment, ahead=most, order=order, tapes=self._tapes, lent=lent)
        kept = max(1, window.ahead.items or KEPT) if drop is not None else None
        source: ItemSource
        if isinstance(items, AsyncIterable) and not isinstance(items, Iterable):  # a stream of results is both
            source = asynchronous.source_of(items, after, size, kept)
        else:
            source = sources.source_of(items, after, size, kept)
        watch = self._watch = deployment.watch = watching(runtime)
        meter = self._meter = EnergyMeter()
        bar = ProgressBar(progress, items, self.name)
        stream = Stream(
            source,
            window,
            policy,
            stage_of=deployment.stage_of,
            ended=lambda: ended(self.name, runtime, watch, window, source, bar, deployment, meter),
            told=lambda _: over(watch, bar),
            consumer=watch,
        )
        self._stream, self._policy = weakref.ref(stream), policy
        watch.begin()
        driver_of(runtime).pump.observe(watch)
        meter.begin(runtime)
        return stream

    def _deploy(
        self, runtime: Runtime, constants: Mapping[str, Any], objective: str | None, plan: Plan | None
    ) -> Deployment:
        """Return what says where items go: one of the plans that were made, or what the first item asks for."""
        wanted = objective or self._asked.get("objective") or "throughput"
        check_limits(wanted)
        driver = driver_of(runtime)
        simulation = driver.parts.simulation
        deployment = Deployment(
            lambda item: self._prepare(runtime, constants, item),
            lambda recorded: prepare(runtime, recorded, **self._limits()).paced(recorded.host).tried(recorded.drags),
            Adviser(wanted, self._asked.get("power")),
            constants,
            self._features,
            driver.recorder.note,
            configurer(driver),
            gone=lambda: driver.scheduler.lost,
            aside=simulation is None,
        )
        if simulation is not None:
            deployment.designs = simulation.designs()
        if plan is not None:
            known = [entry for entry in self._planned if entry[0] is plan]
            if not known or self._planned_on is not runtime:
                raise ArgumentError(
                    "plan= takes one of the plans that pipeline.plan(sample) returned last, on this runtime"
                )
            deployment.adopt(known[0][1], known[0][2])
            deployment.fixed = True
        elif self._planned and self._planned_on is runtime:
            deployment.adopt(self._planned[0][1])
        return deployment

    def map(self, items: Iterable[Any], **options: Any) -> list[Any]:
        """Return the results of all items, as a list. Options are those of `stream`."""
        self._lent = type(items) in (list, tuple)  # nothing else happens until all results are there
        with self.stream(items, **options) as results:
            return list(results)

    @property
    def planned(self) -> PreparedFront:
        """The front of the last call of plan(), with everything that it was made from."""
        if not self._planned:
            raise ProgramError("nothing is planned yet; call plan(sample) first")
        return self._planned[0][1]

    def as_plan(self, point: PipelinePoint) -> Plan:
        """Return stages of your own, judged for what was planned last, as a plan that `stream(plan=...)` takes."""
        prepared = self.planned
        made = as_plan(self.name, "", prepared, point, str(self._asked["objective"]))
        self._planned.append((made, prepared, point))
        return made

    @property
    def failures(self) -> list[StreamFailure]:
        """The items of the last stream that have no result: index, stage and error of each."""
        return self._policy.failures if self._policy is not None else []

    @property
    def decisions(self) -> list[StreamDecision]:
        """The last decisions about the plan of the last stream, also those not to change it, with their figures."""
        return list(self._deployment.decisions) if self._deployment is not None else []

    # Reports ----------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return what the stages of the last stream did: shares of time, items and joules, with where the joules come from."""
        deployment, watch, stream = self._deployment, self._watch, self._stream()
        if self._together is not None and deployment is not None and deployment.point is None:
            return {"items": 0}  # other ranks computed all of them
        if deployment is None or watch is None or deployment.point is None:
            raise ProgramError("this pipeline has no stream yet; call stream(items) and take a result first")
        runtime = self._at_home()[0]
        if not runtime.closed:
            driver_of(runtime).pump.drain()
        watch.failed = len(self.failures)
        if stream is not None:
            watch.dropped = stream.dropped
        in_flight = stream.in_flight if stream is not None else 0
        drawn = self._meter.look() if watch.ended is None else self._meter
        return watch.table(deployment.point, deployment.route, in_flight, drawn)

    def check(self) -> PlanCheck:
        """Return what the plan in force, or the one that `plan` would deploy, comes to when items pass through the simulator.

        Plans are worked out from their stages; here copies meet on links and buffers are finite. `explain` tells the difference.
        """
        chosen = self._chosen()
        if chosen is None:
            raise ProgramError("nothing is planned yet; call plan(sample) first")
        prepared, point = chosen
        if self._checked is None or self._checked[0] is not point:
            self._checked = (point, check(prepared, point, self._at_home()[0].platform))
        return self._checked[1]

    def explain(self) -> str:
        """Return in sentences which stages there are, which one sets the pace, and what one more device would bring."""
        chosen = self._chosen()
        if chosen is None:
            return f"{self.name}: nothing is planned yet; call plan(sample), or take a result of stream(items)"
        prepared, point = chosen
        objective = str(self._asked.get("objective") or "throughput")
        plan = as_plan(self.name, "", prepared, point, objective)
        lines = [plan.explain(), *one_more(prepared, point, objective)]
        try:
            lines.append(self.check().told())
        except CoexecError as error:  # such as arrays that fit no memory twice
            lines.append(f"not simulated: {error}")
        if prepared.state_line:
            lines.append(f"{prepared.state_line} writes a constant: items are computed one after the other there")
        if prepared.reads:
            lines.append(f"the function waits for values {prepared.reads} times; other items go on meanwhile")
        lines += list(prepared.front.notes)
        if self._watch is not None and self._watch.items:
            lines += told(self.stats())
        return "\n".join(lines)

    def _chosen(self) -> tuple[PreparedFront, PipelinePoint] | None:
        deployment = self._deployment
        if deployment is not None and deployment.prepared is not None and deployment.point is not None:
            return deployment.prepared, deployment.point
        if self._planned:
            prepared = self._planned[0][1]
            return prepared, prepared.front.choose(self._asked["objective"], power=self._asked["power"])
        return None

    def close(self) -> None:
        """End the stream that is open, and let go of the constants. Idempotent."""
        stream = self._stream()
        if stream is not None:
            stream.close()
        self._home = self._tapes = self._together = self._shared = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cx.Pipeline {self.name}({', '.join(['item', *self._given])})>"
