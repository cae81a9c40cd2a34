"""The commands and their options. Each loads what it needs when it is called, so that --help is quick.

Before: the modules of this folder.  After: nothing.  Knows options, not what is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..errors import ConfigError
from .output import friendly, show_tracebacks
from .plan_options import plan, run_model
from .simulate_options import simulate


def _without_types(params: list[Any]) -> list[Any]:
    """Let help show no type for flags, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


app = typer.Typer(
    name="coexec",
    cls=_Group,
    help="Run one Python array program on every device at once.",
    epilog="Begin with `coexec demo`. Every command has examples in its --help.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="NAMES", help="Devices to use, e.g. cpu:0,opencl:0@1.")
]


def run(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    app(args=None if arguments is None else list(arguments), prog_name="coexec")


def _version(wanted: bool) -> None:
    if wanted:
        from .._version import __version__

        print(f"coexec {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors; so does COEXEC_DEBUG=1.")] = False,
) -> None:
    """Run one Python array program on every device at once."""
    del version
    if debug:
        show_tracebacks()


@app.command(cls=_Command)
@friendly
def devices(
    *,
    json: Json = False,
    options: Annotated[bool, typer.Option("--options", help="List every option and its COEXEC_ variable.")] = False,
    placements: Annotated[bool, typer.Option("--placements", help="List the placement policies.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the platforms that come with coexec.")] = False,
    platform: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Describe this platform instead of the machine here.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write this machine as a platform file (.toml).")
    ] = None,
) -> None:
    """What is here, what it can do, what is off and why.

    [bold]Examples[/bold]

    coexec devices

    coexec devices --json

    coexec devices --options --placements

    coexec devices --save here.toml

    coexec devices --platform a100x4
    """
    from . import devices, platforms

    if save is not None and platform is not None:
        raise ConfigError("--save and --platform exclude each other; give one of them")
    if save is not None:
        platforms.save(save, json=json)
    elif platform is not None:
        platforms.show(platform, json=json)
    else:
        devices.show(json=json, options=options, placements=placements, presets=presets)


@app.command(cls=_Command)
@friendly
def doctor(
    *,
    json: Json = False,
    kernels: Annotated[
        Path | None, typer.Option(metavar="SCRIPT", help="Run a script, and tell which of its kernels are compiled.")
    ] = None,
) -> None:
    """What is wrong with this installation, and the fix.

    Leaves with exit code 1 only if programs cannot run at all; what is merely missing is a hint.
    With --kernels it runs a script instead, and tells of each kernel whether its body is compiled, or why not.

    [bold]Examples[/bold]

    coexec doctor

    coexec doctor --json

    coexec doctor --kernels app.py
    """
    if kernels is not None:
        from .kernels import show as show_kernels

        show_kernels(kernels, json=json)
    else:
        from .doctor import show

        show(json=json)


@app.command(cls=_Command)
@friendly
def demo(
    *,
    json: Json = False,
    seconds: Annotated[float, typer.Option(min=0.0, max=600.0, help="About how long to measure.")] = 15.0,
    size: Annotated[float, typer.Option(min=0.001, max=4.0, help="Scale of the problem.")] = 1.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the trace and the picture.")] = Path(),
    devices: Devices = None,
) -> None:
    """The main job in one minute: co-execute, print the gain, write the trace and the picture.

    One program, run three ways in turn: NumPy with one thread, NumPy with all its threads, coexec.
    Writes demo-trace.json, demo.perfetto.json and demo.svg.

    [bold]Examples[/bold]

    coexec demo

    coexec demo --seconds 5 --out results

    coexec demo --devices cpu:0,opencl:0@1
    """
    from .demo import show

    show(json=json, seconds=seconds, size=size, out=out, devices=devices)


@app.command("run", cls=_Command, context_settings={"allow_interspersed_args": False})
@friendly
def run_script(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python program.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments.", show_default=False)
    ] = None,
    *,
    trace: Annotated[Path, typer.Option(metavar="FILE", help="Where to record the run.")] = Path("run.json"),
    devices: Devices = None,
    placement: Annotated[
        str | None, typer.Option(metavar="NAME", help="A policy from `coexec devices --placements`.")
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Run each call at once, in order, for pdb.")] = False,
    ranks: Annotated[
        int | None,
        typer.Option("-n", "--ranks", metavar="N", help="Run the program on N ranks."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who starts ranks: mpi, gloo, ray or dask. Default: mpi, if there."),
    ] = None,
    restart: Annotated[
        int, typer.Option(metavar="N", help="Start ranks again, up to N times, after one was lost.")
    ] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON; the script's output goes to stderr.")
    ] = False,
) -> None:
    """Run a script and trace it; print a short summary on stderr. Leaves with the script's exit code.

    Options of coexec come before the script, arguments of the script after it.

    [bold]Examples[/bold]

    coexec run app.py

    coexec run --devices cpu:0,cpu:1 --trace app.json app.py --steps 100

    coexec run -n 4 app.py
    """
    from .run import ProgramRun, execute

    request = ProgramRun(script, tuple(arguments or ()), trace, devices, placement, sync=sync, json=json)
    if ranks is None and on is None and not restart:
        execute(request)
    from .ranks import execute_on_ranks

    execute_on_ranks(request, 1 if ranks is None else ranks, on, restart)


app.command(cls=_Command, context_settings={"ignore_unknown_options": True})(friendly(simulate))
app.command("run-model", cls=_Command)(friendly(run_model))


@app.command(cls=_Command)
@friendly
def trace(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A trace, e.g. run.json; or the folder of those of all ranks.", show_default=False
        ),
    ],
    *,
    json: Json = False,
    graph: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the graph; the ending .dot, .svg or .html decides how.")
    ] = None,
    level: Annotated[str, typer.Option(help="Which graph: task, command or instruction.")] = "task",
    perfetto: Annotated[Path | None, typer.Option(metavar="OUT", help="Write a file for ui.perfetto.dev.")] = None,
    gantt: Annotated[Path | None, typer.Option(metavar="OUT", help="Write a picture of the run (.svg).")] = None,
) -> None:
    """Time per kernel, device and lane, idle time with its cause, overlap, critical path.

    [bold]Examples[/bold]

    coexec trace run.json

    coexec trace run.json --gantt run.svg --perfetto run.perfetto.json

    coexec trace run.json --graph tasks.svg --level task

    coexec trace traces/ --perfetto run.perfetto.json
    """
    from .trace import Exports, show

    show(file, Exports(graph, level, perfetto, gantt), json=json)


@app.command(cls=_Command)
@friendly
def calibrate(
    *,
    devices: Devices = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="About how long to measure.")] = 45.0,
    ops: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these: matmul, conv2d, elementwise, chains, reduce, matmul64."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Say what was measured so far, and measure nothing.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Forget what was measured so far.")] = False,
    json: Json = False,
) -> None:
    """Measure devices and links, so that what was never run can be predicted.

    Each operation runs on every device alone and on all at once, over a range of sizes; the largest only while there
    is time. Ctrl-C ends it and keeps what was measured. Measurements are kept between runs.

    [bold]Examples[/bold]

    coexec calibrate

    coexec calibrate --devices cpu:0,opencl:0@1 --ops matmul --seconds 15

    coexec calibrate --list
    """
    from .calibrate import show

    show(devices=devices, seconds=seconds, ops=ops, json=json, listing=listing, clear=clear)


app.command(cls=_Command)(friendly(plan))


@app.command(cls=_Command)
@friendly
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME|all|list", help="Which benchmark.", show_default=False)],
    *,
    json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, fewer repetitions.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Everything, where a smaller set is usual (plan, cluster).")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="OUT", help="Write a picture of the result (.svg).")] = None,
    ranks: Annotated[int | None, typer.Option(metavar="N", help="On so many ranks (cluster).")] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...", help="Only these cases, or those whose name has all these words (plan, pipeline)."
        ),
    ] = None,
    devices: Annotated[
        list[str] | None,
        typer.Option(metavar="SET", help="Only on this set of devices, as results call it; may be repeated."),
    ] = None,
) -> None:
    """Run the benchmarks.

    [bold]Examples[/bold]

    coexec bench list

    coexec bench overhead --quick

    coexec bench cluster --ranks 2 --json

    coexec bench apps --only cg,nbody --devices cpu:0,opencl:0@1

    coexec bench all --json
    """
    from .bench import show

    show(name, json=json, quick=quick, full=full, plot=plot, ranks=ranks, only=only, devices=devices or ())
