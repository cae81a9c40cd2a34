"""A neural network that can be looked at, run as ordinary coexec calls, and planned.

Before: models/running.py, models/onnx_files.py, models/extract.py.  After: the package's own namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, ModelError, PlanError, ShapeError, UnsupportedError, unknown_name
from ..machine.platform import Platform
from ..plan.plan import Plan
from ..program import array as arrays, session
from ..program.array import Array
from ..program.kept_arrays import KeptArrays
from . import catalogue
from .extract import workload
from .fusing import fused
from .loops import Workload
from .multimodal import NOT_A_MODEL
from .onnx_reading import read_onnx
from .onnx_simplifying import Shapes, Values
from .operators.calls import OpCall
from .running import GraphConstants, RunNode, as_called, own, run_graph
from .searching import Tell
from .values import LayerGraph, ValueType
from .whole import WholeModel, whole_device


class Model:
    """A neural network. Calling it with arrays returns its results at once, as arrays that are computed meanwhile."""

    def __init__(self, graph: LayerGraph | None, layers: Workload | None = None, why_not: str = "") -> None:
        """Take a graph that can be run, or a list of layers that can be planned only, and why."""
        if graph is None and layers is None:
            raise ArgumentError("cx.Model needs a graph; use cx.Model.from_onnx, from_torch or named")
        self._graph, self._listed, self._why_not = graph, layers, why_not
        self._constants: tuple[Any, GraphConstants | None] = (None, None)
        self._scratch: list[
            tuple[Any, KeptArrays]
        ] = []  # the arrays between operations, and whose they are; empty while in use
        self._deployed: tuple[Any, Plan | None, RunNode | None] = (None, None, None)

    # Where models come from -------------------------------------------------------------------------------------------

    @classmethod
    def from_onnx(cls, path: str | Path, shapes: Shapes | None = None, values: Values | None = None) -> Model:
        """Read an ONNX file.

        `shapes` gives the sizes that the file leaves open, by the name of the size or of the input:
        `{"batch": 1}` or `{"x": (1, 3, 224, 224)}`. `values` turns inputs into constants.
        """
        if not isinstance(path, str | Path):
            raise ArgumentError(f"cx.Model.from_onnx takes the path of a file, not {type(path).__name__}")
        return cls(read_onnx(path, shapes, values))

    @classmethod
    def from_torch(cls, module: Any, example: Any) -> Model:
        """Take a torch module, exported by torch.export for the shapes of an example: one tensor or a tuple of them."""
        from .torch_modules import exported

        return cls(read_onnx(exported(module, example)))

    @classmethod
    def named(cls, name: str, **sizes: int) -> Model:
        """Return a network that comes with coexec, with random weights. `sizes` are those of its builder: image=64."""
        if name not in catalogue.NAMES:
            raise unknown_name("model", name, catalogue.NAMES)
        if name not in catalogue.GRAPHS:
            return cls(None, catalogue.layers(name), NOT_A_MODEL)
        builder: Callable[..., LayerGraph] = catalogue.GRAPHS[name]
        try:
            graph = builder(**sizes)
        except TypeError as error:
            raise ArgumentError(f"cx.Model.named({name!r}): {str(error).rpartition('() ')[2]}") from None
        listed = catalogue.LISTED[name]() if name in catalogue.LISTED and not sizes else None
        return cls(graph, listed)

    # What it is -------------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> LayerGraph:
        """Its operations; raises for a list of layers that is no model."""
        if self._graph is None:
            raise UnsupportedError(self._why_not)
        return self._graph

    @cached_property
    def running(self) -> LayerGraph:
        """Its operations as they run: what follows a convolution is part of it."""
        return fused(self.graph)

    @property
    def name(self) -> str:
        """Its name."""
        return self._graph.name if self._graph is not None else self.layers.name

    @property
    def __name__(self) -> str:
        """Its name as that of a function: what a pipeline of it is called."""
        return self.name

    @property
    def inputs(self) -> dict[str, ValueType]:
        """Shapes and types of its inputs, by name."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    @property
    def outputs(self) -> dict[str, ValueType]:
        """Shapes and types of its results, by name."""
        return {name: self.graph.types[name] for name in self.graph.outputs}

    @cached_property
    def layers(self) -> Workload:
        """Its layers with sums: what is planned."""
        if self._listed is not None:
            return self._listed
        return workload(self.graph)

    @property
    def parameters(self) -> int:
        """How many numbers it has learned."""
        return self.layers.parameters if self._graph is None else self._graph.parameters

    @property
    def macs(self) -> int:
        """Multiplications with addition of one call."""
        return self.layers.macs

    def __repr__(self) -> str:
        return f"<cx.Model {self.name}: {len(self.layers.layers)} layers, {self.parameters:,} parameters, {self.macs:,} MACs>"

    def save(self, path: str | Path) -> None:
        """Write it as an ONNX file."""
        from .onnx_writing import save_onnx, to_onnx

        save_onnx(to_onnx(self.graph), path)

    # Planning ---------------------------------------------------------------------------------------------------------

    def plan(
        self,
        platform: Platform | str | None = None,
        objective: str = "latency",
        budget: str | float = "30s",
        *,
        baselines: Sequence[str] | None = None,
        progress: Tell | None = None,
    ) -> Plan:
        """Return the best plan found for a platform: which accelerators get which design and layers, and how each is cut.

        `objective` is latency, throughput or energy; `platform` a Platform, a preset's name or a file, and without one
        the devices here. The search is exact unless `budget` (seconds, or "30s") ends it; `plan.limit_seconds` is what
        no mapping of its class is below. `baselines` are what it is compared with; `progress` is told how far it is.
        """
        together = session.current()
        if getattr(together, "joined", False):
            return self._plan_of_ranks(together, platform, objective, budget, baselines, progress)
        from .baselines import BASELINES
        from .fabric import fabric
        from .planning import refuse_nothing
        from .searching import search_plan

        refuse_nothing(self.layers)
        compared = tuple(BASELINES) if baselines is None else tuple(baselines)
        if platform is None and objective == "latency" and self._graph is not None and not simulated_here():
            return self._plan_as_timed(budget, compared, progress)
        found = fabric(platform_of(platform), every=platform is None)
        return search_plan(self.layers, found, objective, budget, compared, progress)

    def _plan_of_ranks(self, together: Any, *wanted: Any) -> Plan:
        """Return the plan that the first rank finds, on every rank: budgets and times differ between ranks."""
        platform, objective, budget, baselines, progress = wanted

        def search() -> dict[str, Any]:
            with session.within(together.alone()):
                return self.plan(platform, objective, budget, baselines=baselines, progress=progress).as_dict()

        return Plan.from_dict(together.agree(PlanError, None if together.place[0] else search)[0])

    def front(self, platform: Platform | str) -> list[Plan]:
        """Return plans of which none is better than another in latency, time between results and energy; the quickest first.

        Energy counts where the platform's accelerators say what they need.
        """
        from .fabric import fabric
        from .plan_tree import as_plan
        from .planning import front, refuse_nothing

        refuse_nothing(self.layers)
        return [as_plan(found, {}, {}) for found in front(self.layers, fabric(platform_of(platform)))]

    def _plan_as_timed(self, budget: str | float, baselines: Sequence[str], progress: Tell | None) -> Plan:
        """Return the plan for the devices here, on which the model runs a few times."""
        from .here import plan_for_devices

        given = example_inputs(self.inputs)

        def run(way: RunNode) -> Any:
            return self.run(way, **given)

        current: Any = session.current()
        with current.trying():
            return plan_for_devices(self.running, self.layers, platform_here(), run, budget, baselines, progress)

    # Running ----------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, plan: Plan | None = None, **kwargs: Any) -> Any:
        """Return the result for inputs in order or by name, or a tuple if there are several, without waiting.

        With a plan of this model, its layers are cut and placed as that says.
        """
        return self.run(as_called if plan is None else self._as_planned(plan), *args, **kwargs)

    def _as_planned(self, plan: Plan) -> RunNode:
        """Return how operations run under a plan, which is worked out once for each plan and runtime."""
        from .deploying import check_devices, planned
        from .fabric import fabric
        from .plan_tree import check_platform, cuts_of

        current = session.current()
        if not isinstance(plan, Plan):
            raise ArgumentError(f"{self.name}: plan= takes what model.plan() returns, not {type(plan).__name__}")
        runtime, known, run = self._deployed
        if runtime is not current or known is not plan or run is None:
            cuts = cuts_of(plan, self.layers)
            here = [device.name for device in platform_here().devices]
            check_devices(cuts, getattr(current, "device_names", here))
            if simulated_here():  # what real devices were measured at changes from run to run
                check_platform(plan, self.layers, [fabric(platform_here(), every=every) for every in (False, True)])
            run = planned(self.running, cuts)
            self._deployed = (current, plan, run)
        return run

    def run(self, run: RunNode, *args: Any, **kwargs: Any) -> Any:
        """Do the same with another way to run an operation."""
        values = self._given(args, kwargs)
        results = self._at_once(values, run)
        if results is None:
            given = {n: v if isinstance(v, Array) else arrays.array(v) for n, v in values.items()}
            results = own(self._results(given, run), given)
        return results[0] if len(results) == 1 else tuple(results)

    def _at_once(self, given: Mapping[str, Any], run: RunNode) -> list[Array] | None:
        """Return the results as one call where one device does everything; None where there is more than one to make."""
        wanted = "" if run is as_called else getattr(run, "alone", None)
        if wanted is None:
            return None
        name, kind = whole_device(session.current(), wanted)
        return self._whole.call(list(given.values()), name if wanted else "", kind) if name else None

    @cached_property
    def _whole(self) -> WholeModel:
        return WholeModel(self.running, self.name, 2.0 * self.macs)

    def _results(self, given: Mapping[str, Array], run: RunNode) -> list[Array]:
        """Run its operations. If nothing is under way, what is between them is written to the arrays of the call before."""
        current, constants = session.current(), self._kept()
        if not current.quiet():
            return run_graph(self.running, given, constants, run)
        try:
            owner, kept = self._scratch.pop()  # another thread that comes meanwhile finds nothing
        except IndexError:
            owner, kept = current, KeptArrays()
        kept = kept if owner is current else KeptArrays()

        def part(position: int, call: OpCall) -> list[Array]:
            kept.part(position)
            return run(position, call)

        with kept.again():
            results = run_graph(self.running, given, constants, part)
        kept.leave(results)
        self._scratch[:] = [(current, kept)]
        return results

    def _kept(self) -> GraphConstants:
        """Return the constants as arrays of the present runtime, which keeps them where they were used."""
        current = session.current()
        runtime, kept = self._constants
        if kept is None or runtime is not current:
            kept = GraphConstants(self.running)
            self._constants = (current, kept)
        return kept

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = self.graph.inputs
        if len(args) == len(names) and not kwargs:
            return {name: self._checked(name, value) for name, value in zip(names, args, strict=True)}
        if len(args) > len(names):
            raise ArgumentError(f"{self.name} takes {len(names)} inputs ({', '.join(names)}), got {len(args)}")
        found = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in found:
                what = "twice" if name in found else "which it does not have"
                raise ArgumentError(f"{self.name} was given the input {name!r} {what}; it takes {', '.join(names)}")
            found[name] = value
        if missing := [name for name in names if name not in found]:
            raise ArgumentError(f"{self.name} needs the input {missing[0]!r}: {self._described(missing[0])}")
        return {name: self._checked(name, found[name]) for name in names}

    def _described(self, name: str) -> str:
        kind = self.graph.types[name]
        return f"shape {kind.shape}, {kind.dtype}"

    def _checked(self, name: str, value: Any) -> Any:
        """Return an input as an array, coexec's or NumPy's, or raise if it is another one than the model takes."""
        kind = self.graph.types[name]
        if type(value) is np.ndarray and value.shape == kind.shape and value.dtype == kind.dtype:
            return value
        try:
            taken = value if isinstance(value, Array) else np.asarray(value)
        except (
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # a tensor with gradients or elsewhere, rows of unlike lengths
            raise ArgumentError(f"{self.name}: input {name!r} is no array: {error}") from error
        if taken.shape != kind.shape:
            raise ShapeError(f"{self.name}: input {name!r} has shape {taken.shape}, and the model takes {kind.shape}")
        if taken.dtype != np.dtype(kind.dtype):
            raise ArgumentError(
                f"{self.name}: input {name!r} is {taken.dtype}, and the model takes {kind.dtype}; convert it with "
                f"x.astype(np.{kind.dtype})"
            )
        return taken


def example_inputs(types: Mapping[str, ValueType]) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs for trials: random numbers, which take what a program's take, and zeros where they may be indices."""
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(kind.shape).astype(kind.dtype)
        if np.dtype(kind.dtype).kind in "fc"
        else np.zeros(kind.shape, kind.dtype)
        for name, kind in types.items()
    }


def platform_of(platform: Platform | str | None) -> Platform:
    """Return a platform by its name or file, or the devices here with the speeds that were measured."""
    if platform is None and simulated_here():
        return platform_here()
    if platform is None:
        from .measured import measured_platform

        return measured_platform(platform_here())
    return Platform.load(platform) if isinstance(platform, str | Path) else platform


def simulated_here() -> bool:
    """Tell whether the present runtime's devices are simulated: their speeds are known, and no clock tells of them."""
    return bool(session.current().config.platform)  # type: ignore[attr-defined]


def platform_here() -> Platform:
    """Return the platform of the present runtime."""
    found: Platform = session.current().platform  # type: ignore[attr-defined]
    return found


__all__ = ["Model", "ModelError"]
