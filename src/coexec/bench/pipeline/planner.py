"""Plans against all schedules: from exact figures, from figures fitted on other inputs, and with errors put in.

Before: workloads.py, plan/pipeline/, predict/.  After: harness.py.  Simulated by the definition of what a pipeline costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from time import process_time
from typing import NamedTuple

import numpy as np

from ...errors import PlanError
from ...plan.pipeline import (
    DeviceClass,
    Hop,
    PipelinePoint,
    PipelineStage,
    StreamKernel,
    StreamSystem,
    StreamWork,
    judged,
    plan_on_class,
    plan_pipeline,
)
from ...plan.pipeline.front import OBJECTIVES
from ...predict.model import KernelModel
from ...predict.work import Work
from ..measure import Data, Progress
from .workloads import (
    GRAPHS,
    WINDOWS,
    Cards,
    GraphDataSet,
    Seconds,
    Speeds,
    StageOperation,
    block,
    cards_of,
    gcn,
    gin,
    planned_for,
    true_seconds,
)

PRESETS = ("dype-pcie4", "dype-pcie5", "dype-cxl3")
OPTIMAL = 0.005  # of the best: what counts as optimal
NOISE = 0.03  # spread of measurements that estimates are fitted on
ERROR = 0.10  # artificial error of estimates
STATIC = {"gcn": "pubmed", "gin": "pubmed", "attention": "4096/512"}  # the input for which the one static plan is made


class PipelineCase(NamedTuple):
    """One workload on one platform, for one objective."""

    preset: str
    kind: str
    input: str
    objective: str
    calls: list[StageOperation]
    cuts: list[float]

    @property
    def work(self) -> tuple[list[StageOperation], list[float]]:
        """Its calls, and the bytes around them."""
        return self.calls, self.cuts

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return f"{self.kind} {self.input} {self.objective}"


def cases(quick: bool) -> Iterator[PipelineCase]:
    """Yield ninety cases; quickly, those of one interconnect."""
    for preset in PRESETS[:1] if quick else PRESETS:
        for name, graph in GRAPHS.items():
            for kind, make in (("gcn", gcn), ("gin", gin)):
                for objective in ("throughput", "energy"):
                    yield PipelineCase(preset, kind, name, objective, *make(graph))
        for length, window in WINDOWS:
            yield PipelineCase(preset, "attention", f"{length}/{window}", "throughput", *block(length, window))


def truth(case: PipelineCase, cards: Cards, speeds: Speeds | None = None) -> Seconds:
    """Return what each call really takes on each class."""
    return {
        (call.name, c.name): true_seconds(call, c.name, speeds or cards.speeds, c.handover)
        for call in case.calls
        for c in cards.classes.system.classes
    }


class TaughtModels:
    """Models of operations on classes of devices, taught with other inputs than those of the cases."""

    def __init__(self, cards: Cards, seed: int = 0) -> None:
        import scipy.optimize  # noqa: F401 - fits need it, and would otherwise answer roughly until it is there

        self._models: dict[tuple[str, str], KernelModel] = {}
        random = np.random.default_rng(seed)
        for calls in _others(random):
            for call in calls:
                for c in cards.classes.system.classes:
                    if (call.op, c.name) not in cards.speeds:
                        continue
                    seconds = true_seconds(call, c.name, cards.speeds, c.handover) * float(random.lognormal(0.0, NOISE))
                    model = self._models.setdefault((call.op, c.name), KernelModel(None, 2))
                    model.learn(Work(call.features, "<f4"), seconds)

    def seconds(self, case: PipelineCase) -> Seconds:
        """Return what the models predict of a case's calls."""
        found = {}
        for call in case.calls:
            for (op, name), model in self._models.items():
                if op == call.op:
                    answer = model.seconds(Work(call.features, "<f4"))
                    assert answer is not None, "every operation was taught on every class that does it"
                    found[call.name, name] = answer
        return found


def _others(random: np.random.Generator) -> Iterator[list[StageOperation]]:
    """Yield calls on inputs that are none of the cases'."""
    for _ in range(40):
        nodes = int(10 ** random.uniform(3.2, 5.5))
        degree = 10 ** random.uniform(0.5, 2.8)
        features, hidden = (int(2 ** random.uniform(low, high)) for low, high in ((6.5, 10.5), (4.0, 8.0)))
        graph = GraphDataSet(
            nodes, int(nodes * degree), features, int(random.integers(3, 50)), hidden, float(random.uniform(0.5, 3.5))
        )
        yield gcn(graph)[0]
        yield gin(graph)[0]
        yield block(int(2 ** random.uniform(9.5, 14.5)), int(2 ** random.uniform(6.5, 10)))[0]


def run(quick: bool, progress: Progress) -> Data:
    """Return shares of optimal plans, gains over simpler ones, and planning times."""
    machines = {preset: cards_of(preset) for preset in PRESETS}
    fitted = {preset: TaughtModels(cards) for preset, cards in machines.items()}
    random = np.random.default_rng(1)
    found: list[Data] = []
    static: dict[tuple[str, str, str], tuple[PipelineStage, ...]] = {}
    everything = list(cases(quick))
    for case in sorted(everything, key=lambda case: case.input != STATIC[case.kind]):  # those of static plans first
        progress(f"{case.kind} {case.input} on {case.preset} for {case.objective}")
        cards = machines[case.preset]
        real, system = planned_for(case.work, cards, truth(case, cards))
        best = plan_pipeline(real, system, shared=True).choose(case.objective)
        key = (case.kind, case.preset, case.objective)
        static.setdefault(key, best.stages)
        noisy = {k: t * float(random.lognormal(0.0, ERROR)) for k, t in truth(case, cards).items()}
        only_gpus = plan_on_class(real, system, "gpu", case.objective, shared=True)
        found.append(
            {
                "case": f"{case.name} {case.preset}",
                "objective": case.objective,
                "exact": exact(real, system, case.objective),
                "loss": _loss(case, fitted[case.preset].seconds(case), real, cards, best),
                "loss_at_10_percent": _loss(case, noisy, real, cards, best),
                "over_static": _over(judge(real, cards.classes.system, static[key]), best, case.objective),
                "over_gpu": _over(only_gpus, best, case.objective),
                "classes": sorted({name for stage in best.stages for name, _ in stage.group}),
            }
        )
    return summary(found, _flips(quick, progress))


def summary(found: list[Data], flips: Data) -> Data:
    """Return the figures of all cases together."""

    def share(name: str) -> float:
        return float(np.mean([case[name] <= OPTIMAL for case in found]))

    def mean(name: str, objective: str) -> float:
        return float(
            np.mean([case[name] for case in found if case["objective"] == objective and case[name] is not None])
        )

    return {
        "cases": len(found),
        "dp_exact_share": float(np.mean([case["exact"] for case in found])),
        "optimal_share": share("loss"),
        "mean_loss": float(np.mean([case["loss"] for case in found])),
        "optimal_share_at_10_percent": share("loss_at_10_percent"),
        "mean_loss_at_10_percent": float(np.mean([case["loss_at_10_percent"] for case in found])),
        "gain_over_static": {o: mean("over_static", o) for o in ("throughput", "energy")},
        "gain_over_gpu": {o: mean("over_gpu", o) for o in ("throughput", "energy")},
        "seconds_8": _timed(8, 3, 2),
        "seconds_32": _timed(32, 8, 8),
        "flips": flips,
        "workers": workers(),
        "details": found,
    }


def judge(work: StreamWork, system: StreamSystem, stages: tuple[PipelineStage, ...]) -> PipelinePoint | None:
    """Return what stages come to for a workload; None if they cannot compute it."""
    try:
        return judged(work, system, stages)
    except PlanError:
        return None


def _loss(case: PipelineCase, estimated: Seconds, real: StreamWork, cards: Cards, best: PipelinePoint) -> float:
    """Return by how much the plan that estimates lead to misses the best, as a fraction."""
    chosen = plan_pipeline(*planned_for(case.work, cards, estimated), shared=True).choose(case.objective)
    came = judge(real, cards.classes.system, chosen.stages)
    key = OBJECTIVES[case.objective]
    return 1.0 if came is None else max(0.0, key(came)[0] / key(best)[0] - 1.0)


def _over(other: PipelinePoint | None, best: PipelinePoint, objective: str) -> float | None:
    key = OBJECTIVES[objective]
    return None if other is None else key(other)[0] / key(best)[0]


# Every schedule -----------------------------------------------------------------------------------------------------------


def exact(work: StreamWork, system: StreamSystem, objective: str) -> bool:
    """Tell whether the planner finds what trying all schedules of consecutive stages finds."""
    key = OBJECTIVES[objective]
    found = [point for stages in schedules(work, system) if (point := judge(work, system, stages)) is not None]
    best = min(key(point)[0] for point in found)
    planned = key(plan_pipeline(work, system, shared=False, error=0.0).choose(objective))[0]
    return abs(planned / best - 1.0) < 1e-9


def schedules(work: StreamWork, system: StreamSystem) -> Iterator[tuple[PipelineStage, ...]]:
    """Yield every partition of a chain into consecutive stages on groups of one class each."""
    names = [kernel.name for kernel in work.kernels]
    groups = [(c.name, n) for c in system.classes for n in range(1, c.count + 1)]  # of which each takes a unit
    for cuts in product((False, True), repeat=len(names) - 1):
        parts: list[list[str]] = [[names[0]]]
        for name, cut in zip(names[1:], cuts, strict=True):
            if cut:
                parts.append([name])
            else:
                parts[-1].append(name)
        yield from _on_groups(work, parts, groups, {c.name: c.budget or c.name for c in system.classes}, system.budgets)


def _on_groups(
    work: StreamWork,
    parts: list[list[str]],
    groups: list[tuple[str, int]],
    budgets: dict[str, str],
    left: dict[str, int],
    slot: int = 0,
) -> Iterator[tuple[PipelineStage, ...]]:
    if not parts:
        yield ()
        return
    able = {kernel.name: set(kernel.seconds) for kernel in work.kernels}
    for name, n in groups:
        budget = budgets[name]
        if n <= left[budget] and all(name in able[kernel] for kernel in parts[0]):
            stage = PipelineStage(tuple(parts[0]), ((name, n),), "alone" if n == 1 else "in turn", slot)
            rests = _on_groups(work, parts[1:], groups, budgets, {**left, budget: left[budget] - n}, slot + 1)
            for rest in rests:
                yield (stage, *rest)


# What else is told ----------------------------------------------------------------------------------------------------------


LEAST_GAIN = 1.05  # on average over the cases: less is no reason to buy a card
GAINS = {
    "throughput": "FPGAs beside GPUs compute more items per second, by 5 % on average",
    "energy": "FPGAs beside GPUs take fewer joules per item, by 5 % on average",
}


class Conclusions(NamedTuple):
    """What the cases say, with one set of estimates."""

    used: list[tuple[str, ...]]  # the classes of cards in the best plan of each case
    general: dict[str, bool]


def _conclusions(chosen: list[PipelineCase], cards: Cards) -> Conclusions:
    """Return which cards the best plans use, and what that means for someone who buys cards."""
    used, over = [], []
    for case in chosen:
        work, system = planned_for(case.work, cards, truth(case, cards))
        best = plan_pipeline(work, system, shared=False).choose(case.objective)
        only_gpus = plan_on_class(work, system, "gpu", case.objective, shared=False)
        used.append(tuple(sorted({name for stage in best.stages for name, _ in stage.group})))
        over.append((case.objective, _over(only_gpus, best, case.objective) or 1.0))
    general = {text: mean_of(over, what) > LEAST_GAIN for what, text in GAINS.items()}
    general["which cards are best depends on the data"] = len(set(used)) > 1
    return Conclusions(used, general)


def mean_of(over: list[tuple[str, float]], objective: str) -> float:
    """Return the mean gain of the cases with one objective; 1 if there are none."""
    gains = [gain for name, gain in over if name == objective]
    return float(np.mean(gains)) if gains else 1.0


def _flips(quick: bool, progress: Progress) -> Data:
    """Return, for each estimate halved and doubled, which conclusions flip, and in which cases other cards are used."""
    general: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    cards = cards_of(PRESETS[0])
    chosen = [case for case in cases(quick=True) if case.kind != "attention" or case.input in ("1024/128", "16384/512")]
    if quick:
        chosen = chosen[:4]
    usual = _conclusions(chosen, cards)
    estimates = {at: speed for at, speed in cards.speeds.items() if speed.basis.startswith("estimate")}
    for (at, speed), what, factor in product(estimates.items(), ("rate", "watts"), (0.5, 2.0)):
        least = next(c.idle_watts for c in cards.classes.system.classes if c.name == at[1])
        changed = speed._replace(**{what: max(getattr(speed, what) * factor, least if what == "watts" else 0.0)})
        name = f"{what} of {at[0]} on {at[1]} x{factor:g}"
        progress(name)
        now = _conclusions(chosen, cards._replace(speeds={**cards.speeds, at: changed}))
        for conclusion, held in usual.general.items():
            if now.general[conclusion] != held:
                general.setdefault(conclusion, []).append(name)
        flipped = [
            f"{case.name}: {' + '.join(other)} instead of {' + '.join(used)}"
            for case, used, other in zip(chosen, usual.used, now.used, strict=True)
            if used != other
        ]
        if flipped:
            found[name] = flipped
    return {
        "cases": len(chosen),
        "estimates": 2 * len(estimates),
        "conclusions": usual.general,
        "flipped_conclusions": general,
        "by_estimate": found,
    }


def _timed(kernels: int, first: int, second: int) -> float:
    """Return the processor seconds of planning a random chain for two classes of devices."""
    random = np.random.default_rng(kernels)
    made = [
        StreamKernel(f"k{i}", {"a": float(random.uniform(1e-3, 9e-3)), "b": float(random.uniform(1e-3, 9e-3))})
        for i in range(kernels)
    ]
    ends = [(a, b) for a in ("host", "a", "b") for b in ("host", "a", "b") if a != b]
    system = StreamSystem(
        (DeviceClass("a", first, 60.0, 30.0), DeviceClass("b", second, 250.0, 40.0)),
        {pair: Hop(1e-6, 1e10) for pair in ends},
    )
    work = StreamWork.chain(made, [float(random.uniform(1e5, 1e7)) for _ in range(kernels + 1)])
    took = []
    for _ in range(2 if kernels > 16 else 10):  # the first ones load what is used
        begin = process_time()
        plan_pipeline(work, system, shared=False, error=0.0)
        took.append(process_time() - begin)
    return min(took)


def workers() -> Data:
    """Return how 126 workers are shared by stages of 0.17 s and 0.21 s that cannot be one: a published case, by rate."""
    ways = {pair: Hop() for name in ("first", "second") for pair in (("host", name), (name, "host"))}
    system = StreamSystem(
        (DeviceClass("first", 126, budget="workers"), DeviceClass("second", 126, budget="workers")), ways
    )
    work = StreamWork.chain([StreamKernel("a", {"first": 0.17}), StreamKernel("b", {"second": 0.21})], [0.0, 0.0, 0.0])
    best = plan_pipeline(work, system, shared=False).choose("throughput")
    return {
        "split": [stage.devices for stage in best.stages],
        "items_per_s": 1.0 / best.period,
        "of_329": 1.0 / best.period / 329.4,
    }
