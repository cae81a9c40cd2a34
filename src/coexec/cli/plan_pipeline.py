"""`coexec plan pipeline FILE:NAME`: the front of a function that is applied to a stream, its stages, and what others would give.

Before: stream/, observe/pictures/front.py.  After: app.py.  Runs the function once, in simulation if a platform is named.
"""

from __future__ import annotations

import runpy
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CoexecError, ConfigError, NoValues
from ..files import write_text
from .output import check_files, console, emit, say, spoken_warnings, table

if TYPE_CHECKING:
    from ..stream.pipeline import Pipeline
    from ..stream.planning import PreparedFront
    from .plan import PlanRequest, Sizes

HOW = "FILE:NAME names a function without parameters that returns (cx.Pipeline(...), sample)"


def check_options(op: str, sizes: Sizes, request: PlanRequest) -> str:
    """Return FILE:NAME; raise unless all options go with a pipeline."""
    if op != "pipeline":
        raise ConfigError(f"{request.target!r} goes with `coexec plan pipeline`, not with {op}")
    if request.target is None:
        raise ConfigError(f"coexec plan pipeline needs FILE:NAME; {HOW}")
    given = {f.name: getattr(sizes, f.name) for f in fields(sizes)}
    given |= {name: getattr(request, name) for name in ("energy_cap", "watts", "policy", "save")}
    for name, value in given.items():
        if value is not None:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} is no option of pipeline, which takes --platform, --devices and --objective")
    return request.target


def show(op: str, sizes: Sizes, request: PlanRequest) -> None:
    """Plan a pipeline and print its front; draw it if that was asked for."""
    target = check_options(op, sizes, request)
    wanted = request if request.objective != "time" else request._replace(objective="throughput")
    check_files(("--plot", wanted.plot, (".svg",)))
    make, name = find(target)
    try:
        _show(wanted, make, target, name, execute=False)
    except NoValues:  # the function looks at what it has computed, so that it must be
        _show(wanted, make, target, name, execute=True)


def _show(wanted: PlanRequest, make: Any, target: str, name: str, *, execute: bool) -> None:
    """Plan in simulation, if a platform is named: with values or without."""
    from ..runtime import Runtime

    elsewhere: dict[str, Any] = (
        {"platform": wanted.platform, "execute": execute, "store": "off"} if wanted.platform else {}
    )
    with spoken_warnings(), Runtime(None if wanted.platform else wanted.devices, diagnostics="off", **elsewhere):
        pipeline, sample = made(make, target)
        front = pipeline.plan(sample, objective=wanted.objective, devices=wanted.devices if wanted.platform else None)
        prepared = pipeline.planned
        chosen_point = prepared.front.choose(wanted.objective)
        chosen = front[prepared.front.points.index(chosen_point)]
        others = _others(prepared, wanted.objective)
        checked = pipeline.check()
        text = pipeline.explain() if wanted.explain else ""
    if wanted.plot is not None:
        from ..observe.pictures.front import front_svg

        pairs = {label: (entry["period"], entry["energy"]) for label, entry in others.items()}
        write_text(wanted.plot, front_svg(name, front, chosen, pairs), "the picture")
        say(f"{name}: a picture is in {wanted.plot}")
    data = {
        "pipeline": name,
        "objective": wanted.objective,
        "chosen": front.index(chosen),
        "bottleneck": chosen.why,
        "host_seconds": prepared.host,
        "front": [plan.as_dict() for plan in front],
        "compared": others,
        "error": prepared.front.error,
        "notes": list(prepared.front.notes),
        "simulated": checked.as_dict(),
        "not_modelled": ["what copies draw", "links that several stages use at once"],
    }
    if wanted.json:
        emit(data)
    else:
        _print(data, checked.told(), text)


def find(target: str) -> tuple[Any, str]:
    """Return what FILE:NAME names, and its name; raise ConfigError if there is none."""
    file, colon, name = target.rpartition(":")
    if not colon or not file or not name.isidentifier():
        raise ConfigError(f"{target!r} names no pipeline; {HOW}")
    if not Path(file).is_file():
        raise ConfigError(f"there is no file {file}; {HOW}")
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python FILE` does, so that it finds the modules beside it
    try:
        module = runpy.run_path(file, run_name="coexec_plan")
    except CoexecError:
        raise
    except Exception as error:
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    if name not in module:
        raise ConfigError(f"{file} has no {name!r}; {HOW}")
    return module[name], name


def made(make: Any, target: str) -> tuple[Pipeline, Any]:
    """Return the pipeline and the sample that a function of the user's makes."""
    from ..stream.pipeline import Pipeline

    found = make() if callable(make) and not isinstance(make, Pipeline) else make
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Pipeline):
        raise ConfigError(f"{target} gives a {type(found).__name__}; {HOW}")
    return found[0], found[1]


def _others(prepared: PreparedFront, objective: str) -> dict[str, Any]:
    from ..stream.baselines import compared

    return {
        name: {"period": point.period, "energy": point.energy, "latency": point.latency + prepared.host}
        for name, point in compared(prepared, objective).items()
    }


def _print(data: dict[str, Any], checked: str, text: str) -> None:
    rows = []
    for number, plan in enumerate(data["front"]):
        stages = " | ".join(
            f"{stage['shapes']} on {'+'.join(part['device'] for part in stage['parts'])} {stage['policy']}"
            for stage in plan["children"]
        )
        mark = "*" if number == data["chosen"] else ""
        rows.append((mark, *_figures(plan["seconds"], plan["joules"], plan["latency_s"]), stages))
    title = f"{data['pipeline']}: front, * the best for {data['objective']}"
    console().print(table(title, ["", "items/s", "J/item", "latency ms", "stages"], rows, numbers="lrrrw"))
    beside = [(name, *_figures(o["period"], o["energy"], o["latency"])) for name, o in data["compared"].items()]
    console().print(table("compared with", ["", "items/s", "J/item", "latency ms"], beside, numbers="lrrr"))
    console().print(f"{data['bottleneck']}; not modelled: {', '.join(data['not_modelled'])}")
    console().print(checked)
    for note in data["notes"]:
        console().print(note)
    if text:
        console().print(text)


def _figures(period: float, energy: float, latency: float) -> tuple[str, str, str]:
    return f"{1 / period:.4g}", f"{energy:.4g}", f"{latency * 1e3:.4g}"
