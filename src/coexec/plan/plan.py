"""A plan as plain data: who does which part, how long that is predicted to take, and why. One type for every planner.

Before: errors.py.  After: plan/preview.py, driver.py, cli/.  Knows no kernel object, array or device object. What each field of a
saved plan may hold is checked when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PlanError
from ..files import write_text
from ..predict.work import Estimate

MOST = 1 << 62
"""No extent or index is larger."""
SHOWN = 60
"""Characters of a wrong value that an error shows."""


class FieldKind(NamedTuple):
    """What a field may hold."""

    fits: Callable[[Any], bool]
    says: str


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # a NaN is refused, too


def or_null(kind: FieldKind) -> FieldKind:
    """Return a kind that may be absent, too."""
    return FieldKind(lambda value: value is None or kind.fits(value), f"{kind.says} or null")


def _by_name(kind: FieldKind, says: str) -> FieldKind:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(n, str) and kind.fits(v) for n, v in value.items())

    return FieldKind(fits, says)


_TEXT = FieldKind(lambda value: isinstance(value, str), "a text")
_NUMBER = FieldKind(_number, "a number from 0")
_POINT = FieldKind(
    lambda value: isinstance(value, list | tuple) and all(map(_whole, value)), "a list of whole numbers from 0"
)
PART = {
    "device": _TEXT,
    "variant": _TEXT,
    "lo": _POINT,
    "hi": _POINT,
    "share": _NUMBER,
    "input_s": _NUMBER,
    "compute_s": or_null(_NUMBER),
    "output_s": _NUMBER,
    "finish_s": or_null(_NUMBER),
    "spread": _NUMBER,
    "source": _TEXT,
}
PLAN = {
    "kind": _TEXT,
    "name": _TEXT,
    "shapes": _TEXT,
    "space": _POINT,
    "parts": FieldKind(
        lambda value: isinstance(value, list | tuple) and all(isinstance(part, Mapping) for part in value),
        "a list of parts",
    ),
    "seconds": or_null(_NUMBER),
    "spread": _NUMBER,
    "joules": or_null(_NUMBER),
    "objective": _TEXT,
    "policy": _TEXT,
    "axis": or_null(FieldKind(_whole, "the number of an axis")),
    "single": _by_name(or_null(_NUMBER), "seconds or null by device"),
    "left_out": _by_name(_TEXT, "a reason by device"),
    "why": _TEXT,
    "limit_s": or_null(_NUMBER),
    "children": FieldKind(
        lambda value: isinstance(value, list | tuple) and all(isinstance(plan, Mapping) for plan in value),
        "a list of plans",
    ),
    "latency_s": or_null(_NUMBER),
    "considered": _by_name(_NUMBER, "seconds by name"),
    "cuts": _by_name(_POINT, "sizes of parts by dimension"),
    "rotates": _TEXT,
    "measured_s": or_null(_NUMBER),
    "ranks": FieldKind(lambda value: _whole(value) and value > 0, "a number of ranks"),
}


def wrong(data: Any) -> str:
    """Return in words the first field of a plan that is not of its kind, or nothing."""
    if not isinstance(data, Mapping):
        return f"it is {_shown(data)}"
    found = _wrong(data, PLAN, "")
    for number, part in enumerate(() if found else data.get("parts", ())):
        found = found or _wrong(part, PART, f"parts[{number}].")
    return found


def _wrong(data: Mapping[str, Any], kinds: Mapping[str, FieldKind], path: str) -> str:
    for name, value in data.items():
        kind = kinds.get(name)
        if kind is not None and not kind.fits(value):
            return f"{path + name!r} is {_shown(value)}, not {kind.says}"
    return ""


def _shown(value: Any) -> str:
    text = repr(value) if type(value) is not int or abs(value) < MOST else "a very large number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


VERSION = 1
NAMED = ("model", "set", "layer")
"""Kinds of plans whose `why` says all about them and their parts."""


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
    finish_s: float | None = None  # from the start of the task; of a layer, of its model
    spread: float = 0.0  # of the compute time, relative
    source: str = "unknown"  # history, regression, roofline, unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """Who does what, and what is predicted of it."""

    kind: str  # kernel, step, pipeline, stage, model, set, layer
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
    children: tuple[
        Plan, ...
    ] = ()  # what it consists of: calls of a step, stages of a pipeline, sets of a model, layers of a set
    latency_s: float | None = None  # of one item of a stream, from the host and back; `seconds` are between two of them
    considered: Mapping[str, float] = field(default_factory=dict)  # what it was compared with -> seconds of that
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of a layer: dimension -> sizes of its parts
    rotates: str = ""  # of a layer: what goes around a ring, and the dimension along which it is cut
    measured_s: float | None = None  # of a step: seconds of a turn, since it is in force
    ranks: int = 1  # for which it was made; with several, its devices are called n1/cpu:0

    @property
    def predicted(self) -> Estimate | None:
        """The predicted duration and energy, or None if nothing is known."""
        if self.seconds is None:
            return None
        sources = {part.source for part in self.parts}
        source = next((s for s in ("unknown", "roofline", "regression") if s in sources), "history")
        return Estimate(self.seconds, self.spread, source, self.joules)

    @property
    def period(self) -> float | None:
        """Seconds from one repetition to the next: from one item of a stream to the next."""
        return self.seconds

    @property
    def energy(self) -> float | None:
        """Joules of one repetition, or of one item of a stream."""
        return self.joules

    @property
    def latency(self) -> float | None:
        """Seconds from an item's arrival to its result, if nobody waits."""
        return self.seconds if self.latency_s is None else self.latency_s

    @property
    def stages(self) -> tuple[Plan, ...]:
        """The stages of a pipeline."""
        return tuple([child for child in self.children if child.kind == "stage"])

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
        if self.kind == "step":
            return self._explain_step()
        if self.kind in NAMED:
            inner = [f"  {line}" for child in self.children for line in child.explain().splitlines()]
            if self.kind == "model" and not self.children:
                inner = [f"  on {device}" for device in self.shares]
                inner += [f"  {device} does nothing: {why}" for device, why in self.left_out.items()]
            return "\n".join([f"{self.name}: {self.why}", *inner])
        lines = [f"{self.name} over {self.space}: {self.why}"]
        lines += [f"  {line}" for child in self.children for line in child.explain().splitlines()]
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

    def _explain_step(self) -> str:
        """Return the plan of a step in sentences: its calls, what it was compared with, and what was measured since."""
        lines = [f"a step of {self.why}"]
        for call in self.children:
            parts = ", ".join(f"{device} {share:.1%}" for device, share in call.shares.items())
            lines.append(f"  {call.name}: {parts or 'the host'}")
        for devices, seconds in sorted(self.considered.items(), key=lambda entry: entry[1]):
            lines.append(f"  a turn on {devices}: {seconds * 1e3:.3g} ms")
        lines += [f"  not on {devices}: {why}" for devices, why in self.left_out.items()]
        if self.seconds is not None:
            measured = "" if self.measured_s is None else f", measured: {self.measured_s * 1e3:.3g} ms"
            limit = "" if self.limit_s is None else f"; the limit is {self.limit_s * 1e3:.3g} ms"
            lines.append(f"  predicted: {self.seconds * 1e3:.3g} ms{measured}{limit}")
        return "\n".join(lines)

    # Files --------------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data."""
        single = {name: seconds if seconds < float("inf") else None for name, seconds in self.single.items()}
        own: dict[str, Any] = {"single": single, "left_out": dict(self.left_out), "considered": dict(self.considered)}
        own |= {"children": [child.as_dict() for child in self.children], "cuts": dict(self.cuts)}
        return {"coexec_plan": VERSION, **asdict(replace(self, children=())), **own}

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
            children = tuple([cls.from_dict(child) for child in values.pop("children", ())])
            cuts = {name: tuple(sizes) for name, sizes in values.pop("cuts", {}).items()}
            inner = {
                "parts": parts,
                "single": single,
                "space": tuple(values["space"]),
                "children": children,
                "cuts": cuts,
            }
            return cls(**{**values, **inner})
        except KeyError as error:
            raise PlanError(f"this is no plan of version {VERSION}: it has no {error}") from error
        except TypeError as error:  # a field too many, or one missing
            raise PlanError(
                f"this is no plan of version {VERSION}: {str(error).rpartition('__init__() ')[2]}"
            ) from error


def plan_of_ranks(plans: Sequence[Plan], ranks: int) -> Plan:
    """Return one plan out of those of the ranks that have a part of a call."""
    seconds, joules = [p.seconds for p in plans], [p.joules for p in plans]
    return replace(
        plans[0],
        parts=tuple([part for plan in plans for part in plan.parts]),
        seconds=None if None in seconds else max(filter(None, seconds), default=0.0),
        joules=None if None in joules else sum(filter(None, joules)),
        spread=max(plan.spread for plan in plans),
        single={},
        limit_s=None,
        left_out={device: why for plan in plans for device, why in plan.left_out.items()},
        why=f"{len(plans)} of {ranks} ranks; in each: {plans[0].why}",
        ranks=ranks,
    )


def check_ranks(plans: Iterable[Plan], ranks: int) -> None:
    """Raise unless plans were made for so many ranks: parts belong to ranks, and others would not know what is whose."""
    for plan in plans:
        if plan.ranks != ranks:
            raise PlanError(
                f"the plan for {plan.name!r} was made on {_ranks_text(plan.ranks)}, and this run has {_ranks_text(ranks)}; run it "
                "on as many, or make the plan anew"
            )


def _ranks_text(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def named_for(plan: Plan, rank: int) -> Plan:
    """Return a plan of one rank whose devices are called as all ranks call them: n1/cpu:0."""
    parts = tuple([replace(part, device=f"n{rank}/{part.device}") for part in plan.parts])
    return replace(plan, parts=parts, left_out={f"n{rank}/{name}": why for name, why in plan.left_out.items()})


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
