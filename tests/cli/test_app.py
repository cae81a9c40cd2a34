"""What holds for every command: help with examples, usage errors, one sentence instead of a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import coexec
from coexec.cli import app as commands, main, output
from coexec.cli.app import app
from coexec.errors import TraceError
from tests.cli.commands import MAIN, call, child, environment

COMMANDS = ["devices", "doctor", "demo", "run", "trace", "bench"]


def test_help_lists_every_command() -> None:
    ended = call("--help")
    assert ended.code == 0
    assert [name for name in COMMANDS if name not in ended.out] == []


def test_without_arguments_the_help_is_shown() -> None:
    assert "Usage: coexec" in call().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    for option in ("--help", "-h"):
        ended = call(name, option)
        assert ended.code == 0
        assert f"\n coexec {name}" in ended.out
        assert "--json" in ended.out


def test_the_version_is_the_packages() -> None:
    assert call("--version").out == f"coexec {coexec.__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["devices", "--nonsense"], ["doctor", "extra"], ["trace"], ["run"],
                                       ["bench"], ["demo", "--seconds", "long"], ["demo", "--seconds", "-1"],
                                       ["demo", "--size", "0"]])  # fmt: skip
def test_a_wrong_call_ends_with_code_2_and_the_way_to_the_help(arguments: list[str]) -> None:
    ended = call(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "--help" in ended.err or "-h' for help" in ended.err


def test_a_misspelt_variable_is_one_sentence() -> None:
    ended = call("devices", COEXEC_DEVCES="cpu")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("coexec: unknown environment variable 'COEXEC_DEVCES'; did you mean 'COEXEC_DEVICES'?")
    assert ended.err.count("\n") == 1


def test_ctrl_c_ends_every_command_with_one_line_whenever_it_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    names = {
        str(command.callback and command.callback.__name__): command.callback for command in app.registered_commands
    }
    assert {"devices", "demo", "run_script", "simulate", "trace", "calibrate", "plan", "bench"} <= set(names)
    assert [name for name, callback in names.items() if not hasattr(callback, "__wrapped__")] == []  # all are friendly
    with pytest.raises(SystemExit) as ended:
        output.friendly(interrupted)()
    assert (ended.value.code, capsys.readouterr().err) == (130, "coexec: interrupted\n")
    monkeypatch.setattr(commands, "run", interrupted)  # while modules are loaded, or options read
    with pytest.raises(SystemExit) as ended:
        main(["devices"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "coexec: interrupted\n")


def test_errors_keep_their_traceback_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("trace", "missing.json").code == 1
    with pytest.raises(TraceError):
        call("trace", "missing.json", COEXEC_DEBUG="1")
    monkeypatch.setattr(output, "_tracebacks", [])
    with pytest.raises(TraceError):
        call("--debug", "trace", "missing.json")


def test_help_loads_no_command_and_no_driver(tmp_path: Path) -> None:
    text = "import sys, json, atexit; atexit.register(lambda: print(json.dumps(sorted(sys.modules))));" + MAIN
    ended = subprocess.run(
        [sys.executable, "-c", text, "--help"], env=environment(tmp_path), check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(ended.stdout.splitlines()[-1]))
    assert loaded & {"pyopencl", "scipy", "numba", "importlib.resources"} == set()
    own = {name.removeprefix("coexec.cli.") for name in loaded if name.startswith("coexec.cli.")}
    assert own == {"app", "output", "plan_options", "simulate_options"}
    assert not any(name.startswith(("coexec.bench", "coexec.observe.pictures.gantt")) for name in loaded)


def test_a_reader_that_had_enough_is_no_traceback(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -c "{MAIN}" devices --options --json | head -c 10'
    ended = subprocess.run(
        ["bash", "-c", command], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert len(ended.stdout) == 10


def test_main_is_what_the_installed_command_calls(tmp_path: Path) -> None:
    assert child(tmp_path, "--version").out == f"coexec {coexec.__version__}\n"
    assert child(tmp_path, "nonsense").code == 2
