"""The options of `coexec plan` and `coexec run-model`.

Before: nothing.  After: app.py.  Knows options, not what is done with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Op = Annotated[
    str,
    typer.Argument(
        metavar="OP|MODEL|pipeline",
        help="matmul, conv2d, sum, max, add, multiply, exp, sqrt; model.onnx, resnet50; or pipeline.",
    ),
]
Target = Annotated[
    str | None, typer.Argument(metavar="[FILE:NAME]", help="pipeline: a function that returns it and a sample.")
]
M = Annotated[int | None, typer.Option(min=1, metavar="N", help="matmul: rows of the result.")]
N = Annotated[int | None, typer.Option(min=1, metavar="N", help="matmul: columns of the result.")]
K = Annotated[int | None, typer.Option(min=1, metavar="N", help="matmul: length of the sums.")]
Size = Annotated[int | None, typer.Option(min=1, metavar="N", help="sum and others: number of elements.")]
Shape = Annotated[
    str | None, typer.Option(metavar="N,C,H,W", help="conv2d: its images; a model: x=1,3,224,224 or size=1.")
]
Values = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="NAME=...", help="A model: an input that is constant, sr=16000, to=2,3, to=v.npy."),
]
Filters = Annotated[int | None, typer.Option(min=1, metavar="N", help="conv2d: output channels.")]
Taps = Annotated[str | None, typer.Option(metavar="R[,S]", help="conv2d: rows and columns of a filter.")]
Stride = Annotated[int | None, typer.Option(min=1, metavar="N", help="conv2d: stride, default 1.")]
Padding = Annotated[int | None, typer.Option(min=0, metavar="N", help="conv2d: zeros on each side, default 0.")]
Groups = Annotated[int | None, typer.Option(min=1, metavar="N", help="conv2d: groups, default 1.")]
Dtype = Annotated[str | None, typer.Option(metavar="NAME", help="Type of the elements, default float32.")]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="NAMES", help="Devices to use, e.g. cpu:0,opencl:0@1.")
]
Objective = Annotated[
    str | None, typer.Option(metavar="NAME", help="time or energy; of a model or pipeline latency, throughput, energy.")
]
EnergyCap = Annotated[float | None, typer.Option(min=0.0, metavar="J", help="The fastest plan within so many joules.")]
Watts = Annotated[
    str | None, typer.Option(metavar="LIST", help="What devices draw, busy/idle, e.g. cpu:0=15/3,opencl:0=20/5.")
]
Policy = Annotated[str | None, typer.Option(metavar="NAME", help="How to divide: static, dynamic, auto or even.")]
Machine = Annotated[str | None, typer.Option(metavar="NAME|FILE", help="A model or pipeline: plan for this machine.")]
Budget = Annotated[str, typer.Option(metavar="TIME", help="A model: how long to search.")]
Baselines = Annotated[
    list[str] | None, typer.Option("--baseline", metavar="NAME", help="A model: compare with cp, all, single, equal.")
]
Annotate = Annotated[
    Path | None, typer.Option(metavar="OUT.onnx", help="A model: write it with its plan as ONNX annotations.")
]
Explain = Annotated[bool, typer.Option("--explain", help="Add the plan in sentences.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Plot = Annotated[Path | None, typer.Option(metavar="OUT", help="Write a picture (.svg), of a model a page (.html).")]
Save = Annotated[Path | None, typer.Option(metavar="OUT", help="Write the plan for Runtime(plan=...) or run-model.")]


def plan(
    op: Op,
    target: Target = None,
    *,
    m: M = None,
    n: N = None,
    k: K = None,
    size: Size = None,
    shape: Shape = None,
    value: Values = None,
    filters: Filters = None,
    kernel: Taps = None,
    stride: Stride = None,
    padding: Padding = None,
    groups: Groups = None,
    dtype: Dtype = None,
    devices: Devices = None,
    objective: Objective = None,
    energy_cap: EnergyCap = None,
    watts: Watts = None,
    policy: Policy = None,
    platform: Machine = None,
    budget: Budget = "30s",
    baseline: Baselines = None,
    explain: Explain = False,
    json: Json = False,
    plot: Plot = None,
    save: Save = None,
    annotate: Annotate = None,
) -> None:
    """How one call would be divided, or a model mapped, how long it would take, and why. Nothing is computed.

    The data begins on the host. Predictions come from what was measured: run `coexec calibrate` once before.

    [bold]Examples[/bold]

    coexec plan conv2d --shape 8,64,56,56 --filters 128 --kernel 3 --padding 1 --plot plan.svg

    coexec plan matmul --m 4096 --n 4096 --k 4096 --objective energy --watts cpu:0=15/3,cpu:1=15/3

    coexec plan resnet50.onnx --platform f1.16xlarge --plot plan.html --save plan.json

    coexec plan pipeline examples/graph_stream.py:gcn --platform dype-pcie4 --objective energy --plot front.svg
    """
    from . import models, plan as calls

    if models.is_model(op):
        told = (objective or "latency", budget, tuple(baseline or ()), shape, tuple(value or ()))
        models.show_plan(op, models.ModelRequest(platform, *told, devices, explain, json, plot, save, annotate))
    else:
        models.refuse_unknown(op, [*calls.OPS, "pipeline"])
        models.refuse_values(op, value or ())
        sizes = calls.Sizes(m, n, k, size, shape, filters, kernel, stride, padding, groups, dtype)
        goals = (objective or "time", energy_cap, watts, policy)
        calls.show(op, sizes, calls.PlanRequest(devices, *goals, explain, json, plot, save, target, platform))


Network = Annotated[str, typer.Argument(metavar="FILE.onnx|NAME", help="An ONNX file, or a model of coexec's.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", metavar="[NAME=]X.npy", help="An input; once for each.")]
Outputs = Annotated[list[str] | None, typer.Option("--output", metavar="[NAME=]Y.npy", help="Where a result goes.")]
Planned = Annotated[Path | None, typer.Option(metavar="PLAN.json", help="Cut and place its layers as this says.")]
Sizes = Annotated[
    str | None, typer.Option(metavar="X=1,3,224,224", help="Sizes that the file leaves open; several with ';'.")
]
Repeat = Annotated[int, typer.Option(min=1, metavar="N", help="Run it so often; the quickest is told.")]


def run_model(
    model: Network,
    *,
    input: Inputs = None,
    output: Outputs = None,
    plan: Planned = None,
    shape: Sizes = None,
    value: Values = None,
    devices: Devices = None,
    repeat: Repeat = 1,
    json: Json = False,
) -> None:
    """Run a model on .npy files, as a plan says if one is given, and tell the measured time beside the predicted one.

    [bold]Examples[/bold]

    coexec run-model resnet18.onnx --input x.npy --output y.npy

    coexec run-model resnet18.onnx --plan plan.json --input x.npy --output y.npy --devices cpu:0,cpu:1

    coexec run-model voice.onnx --value sr=16000 --shape input=1,576 --input input=x.npy --output output=y.npy
    """
    from .models import RunRequest, run_model as run

    told = (shape, tuple(value or ()))
    run(model, RunRequest(tuple(input or ()), tuple(output or ()), plan, devices, *told, repeat, json))
