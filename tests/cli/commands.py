"""How tests call the command line: in this process where nothing but text is at stake, as a child otherwise."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from coexec.cli.app import app
from tests.repository import child_environment

MAIN = "import sys; sys.argv[0] = 'coexec'; from coexec.cli import main; sys.exit(main())"
SECONDS = 120  # a command that takes longer hangs


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed, as JSON: all of stdout."""
        return json.loads(self.out)


def call(*arguments: object, **environ: str | None) -> Ended:
    """Run a command in this process."""
    given: dict[str, str | None] = {"COLUMNS": "120", **environ}
    result = CliRunner().invoke(app, [str(a) for a in arguments], env=given, prog_name="coexec")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def arguments_of(*arguments: object) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, "-c", MAIN, *map(str, arguments)]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a child, without coexec's own variables."""
    clean = {name: value for name, value in child_environment(folder).items() if not name.startswith("COEXEC_")}
    return {**clean, "COLUMNS": "120", **more}


def signalled(folder: Path, number: signal.Signals, *arguments: object, **environ: str) -> Ended:
    """Run a command as a child process in `folder`, and send it a signal once its script has printed "ready"."""
    with subprocess.Popen(
        arguments_of(*arguments),
        cwd=folder,
        env=environment(folder, **environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        command.send_signal(number)
        out, err = command.communicate(timeout=SECONDS)
    return Ended(command.returncode, out, err)


def child(folder: Path, *arguments: object, **environ: str) -> Ended:
    """Run a command as a child process in `folder`."""
    ended = subprocess.run(
        arguments_of(*arguments),
        cwd=folder,
        env=environment(folder, **environ),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
