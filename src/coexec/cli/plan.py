"""`coexec plan`: how one call would be divided over the devices, how long that would take, and why.

Before: calibrate/steering.py, ops/, plan/plan.py.  After: app.py.  Computes nothing: arrays here have shapes only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import shortened
from ..errors import ConfigError, unknown_name
from ..files import write_text
from ..observe.pictures.svg import seconds_text
from .output import check_files, console, emit, say, spoken_warnings, table

if TYPE_CHECKING:
    from ..plan.plan import Plan
    from ..program.array import Array
    from ..runtime import Runtime

MOST_BYTES = (1 << 62) - 1
DTYPES = ("float32", "float64", "int32", "int64", "complex64", "complex128")


@dataclass(frozen=True)
class Sizes:
    """What a call works on; None where the user said nothing."""

    m: int | None = None
    n: int | None = None
    k: int | None = None
    size: int | None = None
    shape: str | None = None
    filters: int | None = None
    kernel: str | None = None
    stride: int | None = None
    padding: int | None = None
    groups: int | None = None
    dtype: str | None = None


class PlanRequest(NamedTuple):
    """What to plan for, and what to do with the plan."""

    devices: str | None = None
    objective: str = "time"
    energy_cap: float | None = None
    watts: str | None = None
    policy: str | None = None
    explain: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None
    target: str | None = None  # of a pipeline: file and name
    platform: str | None = None


class PlannableOperation(NamedTuple):
    """An operation that can be planned: the sizes it needs, those it takes, and the call."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    call: Callable[[Sizes], Any]


# Calls on arrays without memory -------------------------------------------------------------------------------------------


def on_host(shape: Sequence[int], dtype: str) -> Array:
    """Return an array that counts as being on the host, however large, and takes no memory there."""
    import numpy as np

    from ..program.array import asarray

    check_size(shape, dtype)
    return asarray(np.broadcast_to(np.zeros((), dtype), tuple(shape)))


def check_size(shape: Sequence[int], dtype: str) -> None:
    """Raise ConfigError if no memory could hold such an array, since its bytes cannot be counted."""
    import numpy as np

    nbytes = prod(shape) * np.dtype(dtype).itemsize
    if nbytes > MOST_BYTES:
        text = " x ".join(shortened(str(length)) for length in shape)
        raise ConfigError(
            f"an array of {text} elements of {dtype} has more than {MOST_BYTES:,} bytes; give smaller sizes"
        )


def _matmul(sizes: Sizes) -> None:
    from ..ops import matmul

    m, n, k = sizes.m or 1, sizes.n or 1, sizes.k or 1
    dtype = sizes.dtype or "float32"
    check_size((m, n), dtype)
    matmul(on_host((m, k), dtype), on_host((k, n), dtype))


def _conv2d(sizes: Sizes) -> None:
    from ..ops import conv2d

    dtype = sizes.dtype or "float32"
    shape = whole_numbers("--shape", sizes.shape or "", 4)
    taps = whole_numbers("--kernel", sizes.kernel or "", 1, 2)
    groups = sizes.groups or 1
    if shape[1] % groups:
        raise ConfigError(f"--groups {groups} does not divide the {shape[1]} channels of --shape {sizes.shape}")
    filters = (sizes.filters or 1, shape[1] // groups, taps[0], taps[-1])
    padded = [length + 2 * (sizes.padding or 0) for length in shape[2:]]
    check_size((shape[0], max(filters[0], shape[1]), *padded), dtype)
    conv2d(
        on_host(shape, dtype),
        on_host(filters, dtype),
        stride=sizes.stride or 1,
        padding=sizes.padding or 0,
        groups=groups,
    )


def _vector(name: str, operands: int) -> PlannableOperation:
    def call(sizes: Sizes) -> None:
        import numpy as np

        from ..ops import reductions

        vector = on_host((sizes.size or 1,), sizes.dtype or "float32")
        function = getattr(reductions, name) if name in ("sum", "max") else getattr(np, name)
        function(*[vector] * operands)

    return PlannableOperation(("size",), ("dtype",), call)


OPS: dict[str, PlannableOperation] = {
    "matmul": PlannableOperation(("m", "n", "k"), ("dtype",), _matmul),
    "conv2d": PlannableOperation(("shape", "filters", "kernel"), ("stride", "padding", "groups", "dtype"), _conv2d),
    "sum": _vector("sum", 1),
    "max": _vector("max", 1),
    "add": _vector("add", 2),
    "multiply": _vector("multiply", 2),
    "exp": _vector("exp", 1),
    "sqrt": _vector("sqrt", 1),
}


def whole_numbers(option: str, text: str, *counts: int) -> tuple[int, ...]:
    """Read "1,64,56,56" as numbers from 1, as many as one of `counts` says."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in counts or not all(re.fullmatch("[0-9]{1,18}", part) and int(part) for part in parts):
        wanted = " or ".join(map(str, counts))
        raise ConfigError(f"{option} {shortened(text)!r} must be {wanted} whole numbers from 1, separated by commas")
    return tuple(map(int, parts))


def check(op: str, sizes: Sizes) -> PlannableOperation:
    """Return the operation, or raise what is wrong with the sizes given for it."""
    if op not in OPS:
        raise unknown_name("operation", op, list(OPS))
    planned = OPS[op]
    known = (*planned.needs, *planned.takes)
    given = [field.name for field in fields(Sizes) if getattr(sizes, field.name) is not None]
    if foreign := [name for name in given if name not in known]:
        takes = ", ".join(f"--{name}" for name in known)
        raise ConfigError(f"--{foreign[0]} is no option of {op}, which takes {takes}")
    if missing := [f"--{name}" for name in planned.needs if name not in given]:
        raise ConfigError(f"{op} needs {', '.join(missing)}; see `coexec plan --help`")
    if sizes.dtype is not None and sizes.dtype not in DTYPES:
        raise unknown_name("dtype", sizes.dtype, DTYPES)
    return planned


# The plan -----------------------------------------------------------------------------------------------------------------


def show(op: str, sizes: Sizes, request: PlanRequest) -> None:
    """Plan one call, or a pipeline, and print it; write the picture and the file that were asked for."""
    if op == "pipeline" or request.target is not None:
        from .plan_pipeline import show as show_pipeline

        show_pipeline(op, sizes, request)
        return
    if request.platform is not None:
        raise ConfigError("--platform goes with `coexec plan pipeline`; for one call use `coexec simulate`")
    planned = check(op, sizes)
    check_files(("--plot", request.plot, (".svg",)), ("--save", request.save, ()))
    with spoken_warnings():
        plan, unable = make(planned, sizes, request)
    data = report(plan, unable)
    if request.plot is not None:
        from ..observe.pictures.plan import plan_svg

        write_text(request.plot, plan_svg(plan, unable), "the picture")
    if request.save is not None:
        plan.save(request.save)
    if request.json:
        emit(data)
    else:
        _print(plan, data, explain=request.explain)


def make(planned: PlannableOperation, sizes: Sizes, request: PlanRequest) -> tuple[Plan, dict[str, str]]:
    """Return the plan of a call, and why devices that it does not name cannot take part."""
    from ..calibrate.steering import asking

    with open_runtime(request) as runtime, asking(runtime, policy=request.policy or "") as session:
        planned.call(sizes)
        plan = session.plans[0]
        named = {*plan.shares, *plan.left_out, *plan.single}
        names = [device.name for device in runtime.platform.devices]
    return plan, {name: "no variant of this kernel runs on it" for name in names if name not in named}


def open_runtime(request: PlanRequest) -> Runtime:
    """Open the devices, with the watts that were given."""
    from ..config import parse
    from ..runtime import Runtime

    watts = request.watts if request.watts is not None else parse(os.environ).watts
    for option, given in (
        ("--objective energy", request.objective == "energy"),
        ("--energy-cap", request.energy_cap is not None),
    ):
        if given and not watts.strip():
            raise ConfigError(f"{option} needs what the devices draw; give it as --watts cpu:0=15/3,... (busy/idle)")
    return Runtime(
        request.devices,
        watts=watts,
        objective=request.objective,
        energy_cap=request.energy_cap,
        policy=request.policy,
    )


def report(plan: Plan, unable: dict[str, str]) -> dict[str, Any]:
    """Return the plan as JSON-ready data, with what follows from it."""
    best = min(plan.single, key=lambda name: plan.single[name], default=None)
    alone = plan.single[best] if best is not None else inf
    return {
        **plan.as_dict(),
        "left_out": {**plan.left_out, **unable},
        "limit_seconds": plan.limit_seconds,
        "best_single": best if alone < inf else None,
        "speedup": alone / plan.seconds if plan.seconds and alone < inf else None,
        "hint": hint(plan),
    }


def hint(plan: Plan) -> str:
    """Return what would make the prediction better, if anything would."""
    sources = {part.source for part in plan.parts}
    if plan.seconds is None or "unknown" in sources:
        return "nothing was measured of this kernel on some device: run `coexec calibrate` first"
    if "roofline" in sources:
        return "predicted from the devices' peak rates only: `coexec calibrate` measures the kernels"
    return ""


# What is printed ----------------------------------------------------------------------------------------------------------


def _print(plan: Plan, data: dict[str, Any], *, explain: bool) -> None:
    screen = console()
    rows = [
        (
            part.device,
            part.variant,
            f"{part.share:.1%}",
            seconds_text(part.input_s) if part.input_s else "",
            "unknown" if part.compute_s is None else f"{seconds_text(part.compute_s)} ±{part.spread:.0%}",
            part.source,
            seconds_text(part.output_s) if part.output_s else "",
            "unknown" if part.finish_s is None else seconds_text(part.finish_s),
        )
        for part in plan.parts
    ]
    columns = ["device", "variant", "share", "copy in", "compute", "by", "copy out", "finish"]
    space = "x".join(map(str, plan.space)) or "1"
    screen.print(table(f"{plan.name} over {space}", columns, rows, numbers="llrrrlrr"))
    if data["left_out"]:
        screen.print(table("Left out", ["device", "why"], data["left_out"].items(), numbers="lw"))
    for line in summary(plan, data):
        screen.print(line)
    if explain:
        screen.print(plan.explain())
    if data["hint"]:
        say(f"coexec: {data['hint']}")


def summary(plan: Plan, data: dict[str, Any]) -> list[str]:
    """Return what the plan comes to, in a few lines."""
    if plan.seconds is None:
        return ["predicted: unknown"]
    lines = [f"predicted: {seconds_text(plan.seconds)} ±{plan.spread:.0%}"]
    if plan.joules is not None:
        lines[0] += f", {plan.joules:.4g} J"
    if data["speedup"] is not None:
        alone = plan.single[data["best_single"]]
        lines.append(f"{data['speedup']:.2f} times as fast as {data['best_single']} alone, {seconds_text(alone)}")
    if data["limit_seconds"] is not None:
        lines.append(f"limit: {seconds_text(data['limit_seconds'])}, if all computed at full speed and nothing moved")
    return lines
