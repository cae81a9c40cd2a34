"""`coexec plan model.onnx` and `coexec run-model`: models on platforms, and here.

Before: models/, plan/plan.py.  After: cli/app.py.  Knows options and tables, no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import shortened
from ..errors import ConfigError, PlanError, unknown_name
from ..files import write_text
from ..observe.pictures.svg import seconds_text
from .output import check_files, console, emit, say, spoken_warnings, table

if TYPE_CHECKING:
    from ..models.model import Model
    from ..models.searching import SearchProgress
    from ..plan.plan import Plan


class ModelRequest(NamedTuple):
    """What to plan a model for, and what to do with the plan."""

    platform: str | None = None
    objective: str = "latency"
    budget: str = "30s"
    baselines: tuple[str, ...] = ()
    shapes: str | None = None
    values: tuple[str, ...] = ()
    devices: str | None = None
    explain: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None
    annotate: Path | None = None


def is_model(name: str) -> bool:
    """Tell whether the first argument of `coexec plan` is a model: a file, or one that comes with coexec."""
    from ..models.catalogue import NAMES

    return name.endswith(".onnx") or name in NAMES


def refuse_unknown(name: str, operations: Sequence[str]) -> None:
    """Raise UnknownName if the first argument of `coexec plan` is nothing that can be planned."""
    from ..models.catalogue import NAMES

    if name not in operations:
        raise unknown_name("operation or model", name, [*operations, *NAMES, "FILE.onnx"])


def shapes_of(text: str | None) -> dict[str, Any]:
    """Read "x=1,3,224,224;batch=1" as shapes and sizes by name."""
    found: dict[str, Any] = {}
    for entry in (text or "").split(";"):
        if not entry.strip():
            continue
        name, _, sizes = entry.partition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not name.strip() or not all(part.isdigit() for part in parts):
            raise ConfigError(
                f"--shape {shortened(entry)!r} must be name=1,3,224,224 or size=1; several are separated by ;"
            )
        numbers = tuple(int(part) for part in parts)
        found[name.strip()] = numbers if len(numbers) > 1 else numbers[0]
    return found


def refuse_values(name: str, values: Sequence[str]) -> None:
    """Raise ConfigError if `--value` is given for something whose inputs it cannot turn into constants."""
    if values:
        raise ConfigError(f"--value {shortened(values[0])!r} is for inputs of ONNX files, and {name} is none")


def values_of(entries: Sequence[str]) -> dict[str, Any]:
    """Read "sr=16000", "to=2,3", "to=6," (one element) and "to=v.npy" as constants by name."""
    found: dict[str, Any] = {}
    for entry in entries:
        name, _, text = entry.partition("=")
        name, text = name.strip(), text.strip()
        if not name or not text:
            raise ConfigError(f"--value {shortened(entry)!r} must be name=16000, name=2,3 or name=v.npy")
        if name in found:
            raise ConfigError(f"--value {shortened(entry)!r}: {name!r} is given twice; name each once")
        if text.endswith(".npy"):
            found[name] = read_array("--value", Path(text))
            continue
        try:
            numbers = [_number(part.strip()) for part in text.removesuffix(",").split(",")]
        except ValueError:
            raise ConfigError(
                f"--value {shortened(entry)!r} must be a number, numbers separated by commas, true, false or a .npy file"
            ) from None
        found[name] = numbers if "," in text else numbers[0]
    return found


def _number(text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def load_model(name: str, shapes: str | None = None, values: Sequence[str] = ()) -> Model:
    """Return the model of a file, or one that comes with coexec."""
    from ..models.model import Model

    if name.endswith(".onnx"):
        return Model.from_onnx(name, shapes_of(shapes), values_of(values))
    refuse_values(name, values)
    return Model.named(name)


def show_plan(name: str, request: ModelRequest) -> None:
    """Plan a model and print it; write the page and the files that were asked for."""
    check_files(
        ("--plot", request.plot, (".html",)), ("--save", request.save, ()), ("--annotate", request.annotate, (".onnx",))
    )
    model = load_model(name, request.shapes, request.values)
    with spoken_warnings():
        plan = make_plan(model, request)
    if request.plot is not None:
        from .model_page import model_page

        write_text(request.plot, model_page(plan), "the page")
    if request.save is not None:
        plan.save(request.save)
    if request.annotate is not None:
        from ..models.onnx_annotations import save_annotated

        save_annotated(model, plan, request.annotate)
    if request.json:
        emit(report(model, plan))
    else:
        _print(model, plan, explain=request.explain)


def make_plan(model: Model, request: ModelRequest) -> Plan:
    """Return the plan of a model for a platform, or for the devices here."""
    tell = None if request.json else _tell
    baselines = request.baselines or None
    if request.platform is not None:
        return model.plan(request.platform, request.objective, request.budget, baselines=baselines, progress=tell)
    from ..runtime import Runtime

    with Runtime(devices=request.devices):
        return model.plan(None, request.objective, request.budget, baselines=baselines, progress=tell)


def _tell(progress: SearchProgress) -> None:
    best = "none yet" if progress.best is None else f"{progress.best:.4g}"
    say(
        f"coexec: {progress.what}: best {best}, bound {progress.bound:.4g}, {progress.evaluations} evaluations, "
        f"{progress.seconds:.1f} s"
    )


def report(model: Model, plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON-ready data, with what it comes to."""
    own = value(plan)
    reduction = {name: 1.0 - own / other for name, other in plan.considered.items() if other}
    gap = max(own / plan.limit_s - 1.0, 0.0) if plan.limit_s else None
    return {
        "model": model.name, "layers": len(model.layers.layers), "parameters": model.parameters, "macs": model.macs,
        "objective": plan.objective, "value": own, "bound": plan.limit_s, "gap": gap, "reduction": reduction,
        "plan": plan.as_dict(),
    }  # fmt: skip


def value(plan: Plan) -> float:
    """Return what the objective looks at: seconds or joules."""
    found = plan.joules if plan.objective == "energy" else plan.seconds
    if found is None:
        raise PlanError(f"the plan of {plan.name} has no prediction")
    return found


MOST_ROWS = 60
"""Layers that a table shows; --json and --plot have all."""


def _print(model: Model, plan: Plan, *, explain: bool) -> None:
    from .model_page import layers, less_text

    screen = console()
    rows = []
    for group in plan.children:
        for layer in group.children:
            part = layer.parts[0]
            rows.append((
                layer.name, ", ".join(p.device for p in layer.parts), group.policy, layer.policy,
                seconds_text(part.compute_s or 0.0), seconds_text(part.input_s + part.output_s),
            ))  # fmt: skip
    columns = ["layer", "accelerators", "design", "shards", "compute", "communication"]
    title = f"{model.name} for {plan.objective}"
    screen.print(table(title, columns, rows[:MOST_ROWS], numbers="lwlwrr"))
    if len(layers(plan)) > MOST_ROWS:
        screen.print(f"... and {len(layers(plan)) - MOST_ROWS} more layers; --json and --plot show all")
    screen.print(plan.why)
    unit = "J" if plan.objective == "energy" else "s"
    for name, other in plan.considered.items():
        screen.print(f"{name}: {other:.4g} {unit}; this plan takes {less_text(value(plan), other)}")
    if explain:
        screen.print(plan.explain())


# Running --------------------------------------------------------------------------------------------------------------------


class RunRequest(NamedTuple):
    """How to run a model."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    plan: Path | None = None
    devices: str | None = None
    shapes: str | None = None
    values: tuple[str, ...] = ()
    repeat: int = 1
    json: bool = False


def run_model(name: str, request: RunRequest) -> None:
    """Run a model on .npy files and write its results as .npy files."""
    from time import perf_counter

    import numpy as np

    from ..plan.plan import Plan
    from ..runtime import Runtime

    model = load_model(name, request.shapes, request.values)
    given = read_inputs(model, request.inputs)
    targets = named_files("--output", request.outputs, list(model.outputs))
    check_files(*(("--output", path, (".npy",)) for path in targets.values()))
    plan = None if request.plan is None else Plan.load(request.plan)
    seconds = []
    with spoken_warnings(), Runtime(devices=request.devices):
        for _ in range(max(1, request.repeat)):
            begun = perf_counter()
            found = model(**given, plan=plan)
            results = [np.asarray(value) for value in (found if isinstance(found, tuple) else (found,))]
            seconds.append(perf_counter() - begun)
    for output, result in zip(model.outputs, results, strict=True):
        if output in targets:
            write_array(targets[output], result)
    predicted = None if plan is None else plan.latency_s
    data = {
        "model": model.name, "seconds": min(seconds), "first_seconds": seconds[0], "predicted_s": predicted,
        "outputs": {n: {"shape": list(r.shape), "dtype": str(r.dtype)} for n, r in zip(model.outputs, results, strict=True)},
    }  # fmt: skip
    if request.json:
        emit(data)
        return
    said = "" if predicted is None else f", predicted {seconds_text(predicted)}"
    first = (
        " for the first call, which gets everything ready (--repeat 5 times later ones)" if len(seconds) == 1 else ""
    )
    console().print(f"{model.name}: {seconds_text(min(seconds))}{first}{said}")


def write_array(path: Path, result: Any) -> None:
    """Write an array as a .npy file, whole or not at all."""
    import io

    import numpy as np

    from ..files import write_bytes

    stream = io.BytesIO()
    np.save(stream, result, allow_pickle=False)
    write_bytes(path, stream.getvalue(), "the result")


def named_files(option: str, entries: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """Read "name=file" or, in order, "file"."""
    found: dict[str, Path] = {}
    for number, entry in enumerate(entries):
        name, equals, file = entry.partition("=")
        if not equals:
            name, file = (names[number] if number < len(names) else ""), entry
        if name not in names:
            raise ConfigError(f"{option} {shortened(entry)!r}: the model has {', '.join(names)}; write name=file.npy")
        if name in found:
            raise ConfigError(f"{option} {shortened(entry)!r}: {name!r} is given twice; name each once")
        found[name] = Path(file)
    return found


def read_array(option: str, path: Path) -> Any:
    """Read a .npy file that an option names."""
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"{option} {path}: {shortened(str(error))}; give a .npy file of numbers") from error


def read_inputs(model: Model, entries: Sequence[str]) -> dict[str, Any]:
    """Read the inputs of a model from .npy files."""
    files = named_files("--input", entries, list(model.inputs))
    found = {name: read_array("--input", path) for name, path in files.items()}
    if missing := [name for name in model.inputs if name not in found]:
        kind = model.inputs[missing[0]]
        raise ConfigError(
            f"the model needs the input {missing[0]!r}, {kind.shape} {kind.dtype}; give --input {missing[0]}=x.npy"
        )
    return found
