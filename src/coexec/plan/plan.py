"""A plan as plain data: who does which part, how long that is predicted to take, and why. One type for every planner.

Before: nothing.  After: plan/preview.py, runtime.py, cli/.  Knows no kernel object, array or device object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import PlanError
from ..files import write_text
from ..predict.work import Estimate
from .plan_fields import wrong

VERSION = 1


@dataclass(frozen=True, slots=True)
class Part:
    """What one device does."""

    device: str
    variant: str
    lo: tuple[int, ...]  # a box of the index space
    hi: tuple[int, ...]
    share: float  # of the work of the whole: of the points, each as much as the kernel's weight= says
    input_s: float = 0.0  # seconds of copies before it can begin
    compute_s: float | None = None  # None: nothing is known
    output_s: float = 0.0
    finish_s: float | None = None  # from the start of the task
    spread: float = 0.0  # of the compute time, relative
    source: str = "unknown"  # history, regression, roofline, unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """Who does what, and what is predicted of it."""

    kind: str  # kernel, pipeline, model
    name: str
    shapes: str  # the arrays' shapes and types, as text: a plan holds for these
    space: tuple[int, ...]
    parts: tuple[Part, ...]
    seconds: float | None  # predicted; None: nothing is known
    spread: float = 0.0
    joules: float | None = None
    objective: str = "time"
    policy: str = "static"
    axis: int | None = None
    single: Mapping[str, float] = field(default_factory=dict)  # device -> predicted seconds if it did everything
    left_out: Mapping[str, str] = field(default_factory=dict)  # device -> why it does nothing
    why: str = ""
    limit_s: float | None = None  # see limit_seconds

    @property
    def predicted(self) -> Estimate | None:
        """The predicted duration and energy, or None if nothing is known."""
        if self.seconds is None:
            return None
        sources = {part.source for part in self.parts}
        source = next((s for s in ("unknown", "roofline", "regression") if s in sources), "history")
        return Estimate(self.seconds, self.spread, source, self.joules)

    @property
    def shares(self) -> dict[str, float]:
        """The part of the work that each device does; of the rows too, unless the kernel's `weight=` makes them unlike."""
        shares: dict[str, float] = {}
        for part in self.parts:
            shares[part.device] = shares.get(part.device, 0.0) + part.share
        return shares

    @property
    def limit_seconds(self) -> float | None:
        """The physical limit: all devices at their own speed from the first moment, nothing to copy, nothing to hand over.

        No plan is predicted to be faster. None if nothing is known of any device.
        """
        return self.limit_s

    def explain(self) -> str:
        """Return the plan in sentences: shares, times, the limit, and why each device does what it does."""
        lines = [f"{self.name} over {self.space}: {self.why}"]
        for part in self.parts:
            took = "unknown" if part.compute_s is None else f"{part.compute_s * 1e3:.3g} ms (+-{part.spread:.0%})"
            copies = f", copies {part.input_s * 1e3:.3g} ms in and {part.output_s * 1e3:.3g} ms out"
            moved = copies if part.input_s or part.output_s else ""
            lines.append(f"  {part.device} {part.share:.1%}: {took} by {part.source} as {part.variant!r}{moved}")
        for device, why in self.left_out.items():
            lines.append(f"  {device} does nothing: {why}")
        alone = [f"{name} {seconds * 1e3:.3g} ms" for name, seconds in self.single.items() if seconds < float("inf")]
        if alone:
            lines.append(f"  alone: {', '.join(alone)}")
        if self.seconds is not None:
            limit = self.limit_seconds
            bound = "" if limit is None else f"; the limit with all of them is {limit * 1e3:.3g} ms"
            lines.append(f"  predicted: {self.seconds * 1e3:.3g} ms (+-{self.spread:.0%}){bound}")
        return "\n".join(lines)

    # Files --------------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        single = {name: seconds if seconds < float("inf") else None for name, seconds in self.single.items()}
        return {"coexec_plan": VERSION, **asdict(self), "single": single, "left_out": dict(self.left_out)}

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file; `Runtime(plan=path)` follows it."""
        save_plans([self], path)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a file that holds one."""
        found = load_plans(path)
        if len(found) != 1:
            raise PlanError(f"{path} holds {len(found)} plans; use load_plans")
        return found[0]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Return the plan that `as_dict` described; raise PlanError if it is none."""
        found = wrong(data)
        if found:
            raise PlanError(
                f"this is no plan of version {VERSION}: {found}; make it anew with kernel.plan(...).save(path)"
            )
        try:
            values = {name: value for name, value in data.items() if name != "coexec_plan"}
            parts = tuple(Part(**{**p, "lo": tuple(p["lo"]), "hi": tuple(p["hi"])}) for p in values.pop("parts"))
            single = {name: float("inf") if s is None else s for name, s in values.pop("single").items()}
            return cls(**{**values, "parts": parts, "single": single, "space": tuple(values["space"])})
        except KeyError as error:
            raise PlanError(f"this is no plan of version {VERSION}: it has no {error}") from error
        except TypeError as error:  # a field too many, or one missing
            raise PlanError(
                f"this is no plan of version {VERSION}: {str(error).rpartition('__init__() ')[2]}"
            ) from error


def save_plans(plans: Iterable[Plan], path: str | Path) -> None:
    """Write plans to a JSON file, in one step: a file that exists is replaced whole or not at all."""
    write_text(path, json.dumps([plan.as_dict() for plan in plans], indent=1), "the plan")


def load_plans(path: str | Path) -> list[Plan]:
    """Read plans from a JSON file."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} cannot be read as plans: {error}; write it with plan.save(path)") from error
    entries = data if isinstance(data, list) else [data]
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("coexec_plan") != VERSION:
            raise PlanError(f"{path} holds no plan of version {VERSION}; make it anew with kernel.plan(...).save(path)")
    try:
        return [Plan.from_dict(entry) for entry in entries]
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
