"""The options of `coexec simulate`.

Before: nothing.  After: app.py.  Knows options, not what is done with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python program.", show_default=False)]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its arguments.", show_default=False)]
Machine = Annotated[
    str | None, typer.Option("--platform", metavar="NAME|FILE", help="The machine: see `coexec devices --presets`.")
]
Devices = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Devices of it to use, by name or kind, e.g. gpu or gpu:0,gpu:1.")
]
Memory = Annotated[str | None, typer.Option(metavar="LIST", help="Less memory than it has, e.g. gpu:0=6GB.")]
Goes = Annotated[Path | None, typer.Option("--scenario", metavar="FILE", help="What goes wrong, and noise (.toml).")]
Execute = Annotated[
    bool, typer.Option("--execute", help="Compute values on this machine, for programs that read them.")
]
UntilRead = Annotated[
    bool, typer.Option("--until-read", help="The first read of a value that nobody computed is the end of the program.")
]
Ranks = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Processes that drive a cluster: 1 for all of it, 0 for one on each node."),
]
Trace = Annotated[Path, typer.Option(metavar="FILE", help="Where to record the run.")]
Gantt = Annotated[Path | None, typer.Option(metavar="OUT", help="Write a picture of the run (.svg).")]
Sweeps = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="WHAT=LIST", help="Simulate for several values, e.g. devices=1,2,4."),
]
Plot = Annotated[Path | None, typer.Option(metavar="OUT", help="Write a picture of the sweeps (.svg).")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--what-if", metavar="CHANGE", help='Simulate with a change, e.g. "link pcie bandwidth x2".'),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else; the script's output goes to stderr.")]


def simulate(
    script: Script,
    arguments: Arguments = None,
    *,
    platform: Machine = None,
    devices: Devices = None,
    memory: Memory = None,
    scenario: Goes = None,
    execute: Execute = False,
    until_read: UntilRead = False,
    ranks: Ranks = None,
    trace: Trace = Path("simulated.json"),
    gantt: Gantt = None,
    sweeps: Sweeps = None,
    plot: Plot = None,
    changes: Changes = None,
    json: Json = False,
) -> None:
    """Run a script on a machine that is not here: how long, how much energy, where is the bottleneck.

    The script is run as it is, in virtual time. Its kernels are not computed, so it ends where it reads a result: take
    that for its end with --until-read, or compute with --execute. Options that coexec does not know go to the script,
    and so does everything after `--`.

    A change names what and how: link NAME bandwidth or latency; device NAME flops, bandwidth, launch, watts or count;
    memory NAME capacity; network bandwidth or latency; nodes. By x2, +1, or a value.

    [bold]Examples[/bold]

    coexec simulate app.py --platform a100x4

    coexec simulate app.py 20000 --platform a100x4 --devices gpu --until-read --gantt run.svg

    coexec simulate app.py --platform a100x128 --sweep devices=1,2,4,8,16 --plot scaling.svg

    coexec simulate app.py --platform workstation --what-if "link pcie bandwidth x2" --what-if "device gpu count +1"

    coexec simulate app.py --platform a100x128 --ranks 0 --sweep nodes=1,2,4,8

    coexec simulate --platform laptop --execute app.py -- --steps 100
    """
    from .simulate import SimulateRequest, execute as run

    given = tuple(arguments or ()), platform, devices, memory, scenario, execute, until_read, ranks
    run(SimulateRequest(script, *given, trace, gantt, tuple(sweeps or ()), plot, tuple(changes or ()), json))
