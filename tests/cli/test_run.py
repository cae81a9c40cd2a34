"""`coexec run` runs a script as it is, traces it, and leaves with its exit code, also when a signal ends it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coexec.observe.trace import Trace
from tests.cli.commands import SECONDS, Ended, arguments_of, call, child, environment, signalled

GOOD = """
import sys
import numpy as np
import coexec as cx

@cx.kernel(split=0, x=cx.update)
def double(x):
    x *= 2

x = cx.array(np.arange(200_000.0))
double(x)
assert np.asarray(x)[3] == 6
print("arguments", sys.argv[1:])
"""

LONG = """
import numpy as np
import coexec as cx

@cx.kernel(x=cx.update)
def slow(x):
    for _ in range(20):
        np.sqrt(x, out=x)

x = cx.array(np.ones(300_000))
slow(x).result()
for _ in range(3000):  # minutes of work, unless somebody interrupts
    slow(x)
    if _ == 100:
        print("ready", flush=True)
cx.wait()
print("never reached")
"""

KILLED_LATER = """
import os, signal
while os.path.getsize(os.environ["COEXEC_TRACE"]) < 10_000:
    double(x)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(GOOD)
    return path


def test_a_script_runs_with_its_arguments_and_leaves_a_trace(script: Path) -> None:
    ended = child(script.parent, "run", "app.py", "--steps", "3", "-x")
    assert (ended.code, ended.out) == (0, "arguments ['--steps', '3', '-x']\n")
    assert "coexec: trace in run.json; look at it with: coexec trace run.json --gantt run.svg" in ended.err
    trace = Trace.load(script.parent / "run.json")
    assert trace.complete
    assert "double" in [task["name"] for task in trace.tasks]


def test_options_reach_the_script_and_the_trace_goes_where_it_should(script: Path) -> None:
    script.write_text(GOOD + "import os; print(os.environ['COEXEC_SYNC'], os.environ['COEXEC_PLACEMENT'])\n")
    options = ["--devices", "cpu:0", "--placement", "round-robin", "--sync", "--trace", "other.json"]
    ended = child(script.parent, "run", *options, "app.py")
    assert (ended.code, ended.out) == (0, "arguments []\n1 round-robin\n")
    assert Trace.load(script.parent / "other.json").devices[0] == "cpu:0"
    assert not (script.parent / "run.json").exists()


def test_the_trace_stays_where_the_command_was_called(script: Path) -> None:
    (script.parent / "elsewhere").mkdir()
    script.write_text("import os; os.chdir('elsewhere')\n" + GOOD)
    assert child(script.parent, "run", "app.py").code == 0
    assert (script.parent / "run.json").exists()


def test_with_json_the_scripts_output_goes_to_stderr(script: Path) -> None:
    ended = child(script.parent, "run", "--json", "app.py")
    assert ended.data["exit_code"] == 0
    assert ended.data["summary"]["kernels"]["double"]["count"] >= 1
    assert "arguments []" in ended.err


def test_a_script_without_coexec_leaves_no_trace_and_no_old_one_is_shown(script: Path) -> None:
    assert child(script.parent, "run", "app.py").code == 0
    script.write_text("print('hello')\n")
    ended = child(script.parent, "run", "app.py")
    assert (ended.code, ended.out) == (0, "hello\n")
    assert ended.err == "coexec: the script used no coexec array, so there is no trace\n"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise ValueError('no luck')", 1, "ValueError: no luck"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL, ""),
        (GOOD + "@cx.kernel(x=cx.update)\ndef bad(x):\n    raise ValueError('boom')\nbad(x)\n", 1, "ValueError: boom"),
        (GOOD + KILLED_LATER, 128 + signal.SIGKILL, "is cut off"),
    ],
    ids=["exit code", "exception", "killed", "failed kernel", "killed with a trace"],
)
def test_a_script_that_fails_gives_its_exit_code(script: Path, text: str, code: int, said: str) -> None:
    script.write_text(text)
    ended = child(script.parent, "run", "app.py")
    assert ended.code == code
    assert said in ended.err
    assert "coexec/cli/" not in ended.err, "no frame of the command line in the script's traceback"


def interrupted(folder: Path, number: signal.Signals) -> Ended:
    """Run the long script and send `number` to the command once it is at work."""
    (folder / "app.py").write_text(LONG)
    return signalled(folder, number, "run", "app.py")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_script_and_leaves_a_valid_trace(tmp_path: Path, number: signal.Signals) -> None:
    ended = interrupted(tmp_path, number)
    assert (ended.code, ended.out) == (128 + number, "")
    assert "cancelled" in ended.err
    assert "trace in run.json" in ended.err
    trace = Trace.load(tmp_path / "run.json")
    assert trace.complete
    assert {row["state"] for row in trace.ran} == {"done", "cancelled"}


def test_ctrl_c_at_a_terminal_reaches_the_script_once(tmp_path: Path) -> None:
    text = "import signal, sys\ncount = []\nsignal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
    text += "print('ready', flush=True)\nsys.stdin.readline()\nprint('interrupts:', len(count))\n"
    (tmp_path / "app.py").write_text(text)
    process, terminal = pty.fork()
    if not process:
        os.chdir(tmp_path)
        command = arguments_of("run", "app.py")
        os.execve(command[0], command, environment(tmp_path))
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03\n")
    while b"no trace" not in seen:
        seen += os.read(terminal, 1000)
    assert b"interrupts: 1" in seen
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    os.close(terminal)


STOLEN = """
import os, signal, threading
from coexec.cli.script import run_child

def spawn_and_wait(*arguments, **more):
    child = spawn(*arguments, **more)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its SIGCHLD goes to the thread that blocks nothing
    return child

spawn, os.posix_spawn = os.posix_spawn, spawn_and_wait
asked = threading.Event()
threading.Thread(target=asked.wait).start()
print(run_child(["/bin/sh", "-c", "exit 7"], os.environ))
asked.set()
"""


def test_the_end_of_a_script_is_seen_when_another_thread_takes_its_signal(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STOLEN],
        check=False,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (ended.stdout, ended.stderr) == ("7\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.py"], "the script missing.py does not exist; name a Python file: coexec run app.py"),
        (["."], "the script . is a folder"),
        (["--devices", "gqu:0", "app.py"], "unknown device kind 'gqu'"),
        (["--devices", "cpu:0@99999", "app.py"], "core 99999 is not available"),
        (["--devices", "", "app.py"], "--devices names no device"),
        (["--placement", "round-robbin", "app.py"], "did you mean 'round-robin'?"),
        (["--trace", "app.py", "app.py"], "is a file that is no trace; name another file, or delete it first"),
        (["--trace", "nowhere/run.json", "app.py"], "make the folder 'nowhere' first"),
        (["--trace", ".", "app.py"], "name a file inside it"),
    ],
)
def test_a_wrong_call_is_told_before_anything_runs(
    script: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(script.parent)
    ended = call("run", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert script.read_text() == GOOD
