"""`coexec simulate` runs a script as it is in virtual time, and answers from its trace."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from coexec.cli.cases import Wanted, cases_of
from coexec.cli.simulate import OPTIONS, misspelt
from coexec.errors import ConfigError, UnknownName
from coexec.machine.platform import Platform
from coexec.observe.trace import Trace
from tests.cli.commands import Ended, call, child, signalled

HEAT = """
import sys
import numpy as np
import coexec as cx

@cx.kernel(split=0, u=cx.read(cx.halo(1, border="inside")), out=cx.update, flops=6)
def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])

n, steps = 30_000, 4
u, v = cx.zeros((n, n), np.float32), cx.zeros((n, n), np.float32)
for _ in range(steps):
    heat(u, v, 0.1)
    u, v = v, u
cx.wait()
print("arguments", sys.argv[1:])
"""
READS = """
import numpy as np
import coexec as cx

@cx.kernel(split=0, x=cx.update, flops=10)
def double(x):
    x *= 2

x = cx.array(np.ones(1000, np.float32))
double(x)
while float(x[0]) < 8:
    double(x)
print("value", float(x[0]))
"""
FOREVER = """
import coexec as cx

@cx.kernel(x=cx.update, flops=10)
def touch(x):
    x += 1

x = cx.zeros(1000)
for i in range(10_000_000):
    touch(x)
    if i == 50:
        print("ready", flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(HEAT)
    return path


@pytest.fixture
def here(script: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(script.parent)
    monkeypatch.setenv("COEXEC_STORE", "off")
    return script.parent


def test_a_script_is_simulated_and_everything_is_told(script: Path) -> None:
    command = ["simulate", "app.py", "--platform", "a100x4", "--devices", "gpu", "--steps", "3", "--gantt", "run.svg"]
    ended = child(script.parent, *command, COEXEC_STORE="off")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("arguments ['--steps', '3']\nsimulated on a100x4, 4 devices: ")
    for text in (
        "of virtual time, efficiency",
        "durations: 100% of the kernel time is what peak rates allow (roofline)",
        "gpu:3",
        "nvlink",
        "Critical path as it happened",
        "of the critical path is kernel heat",
        "wrote run.svg",
        "trace in simulated.json; look at it with: coexec trace simulated.json",
    ):
        assert text in ended.out
    assert (script.parent / "run.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in script.parent.iterdir()) == ["app.py", "run.svg", "simulated.json"]
    shown = child(script.parent, "trace", "simulated.json")
    assert "simulated on a100x4" in shown.out
    assert Trace.load(script.parent / "simulated.json").header["virtual"]


def test_json_has_every_answer_and_nothing_else_is_on_stdout(here: Path) -> None:
    ended = call("simulate", "app.py", "--platform", "a100x4", "--devices", "gpu", "--json")
    data = ended.data
    assert (data["exit_code"], data["complete"], data["platform"], data["devices"]) == (0, True, "a100x4", 4)
    report = data["summary"]
    assert data["seconds"] == report["makespan"] > 0
    assert 0 < data["efficiency"] <= 1
    assert data["joules"] == pytest.approx(sum(report["simulation"]["energy"]["devices"].values()))
    assert report["bottleneck"]["seconds"] == pytest.approx(data["seconds"])
    assert sum(entry["count"] for entry in report["simulation"]["durations"].values()) == 16
    assert (data["sweeps"], data["what_if"], data["written"]) == ([], [], [])
    assert (here / "simulated.json").exists()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    folder = tmp_path_factory.mktemp("swept")
    (folder / "app.py").write_text(HEAT)
    changes = ["--what-if", "device gpu bandwidth x2", "--what-if", "device gpu count +1"]
    sweeps = ["--sweep", "devices=1,4", "--sweep", "link nvlink bandwidth=x0.01,x1", "--plot", "s.svg"]
    command = ["simulate", "app.py", "--platform", "a100x4", *sweeps, *changes, "--json"]
    return child(folder, *command, COEXEC_STORE="off"), folder


def test_a_sweep_over_devices_is_strong_scaling(swept: tuple[Ended, Path]) -> None:
    ended, folder = swept
    assert ended.code == 0, ended.err
    devices = ended.data["sweeps"][0]
    one, four = devices["points"]
    assert [point["devices"] for point in devices["points"]] == [1, 4]
    assert one["seconds"] > four["seconds"]
    assert (one["speed_up"], one["efficiency"]) == (1.0, 1.0)
    assert four["speed_up"] == pytest.approx(one["seconds"] / four["seconds"])
    assert four["efficiency"] == pytest.approx(four["speed_up"] / 4)
    assert "Strong scaling" in (folder / "s.svg").read_text()
    assert "coexec: 1 of 5, devices=4: " in ended.err
    assert ended.err.count("arguments []") == 1, "only the first run is heard"


def test_a_sweep_over_anything_else_changes_the_platform(swept: tuple[Ended, Path]) -> None:
    slow, same = swept[0].data["sweeps"][1]["points"]
    assert (slow["value"], same["value"]) == ("x0.01", "x1")
    assert slow["seconds"] > same["seconds"] == swept[0].data["seconds"]


def test_what_if_is_told_as_before_and_after_in_time_and_energy(swept: tuple[Ended, Path]) -> None:
    bandwidth, more = swept[0].data["what_if"]
    assert bandwidth["change"] == "device gpu bandwidth x2"
    assert bandwidth["speed_up"] == pytest.approx(bandwidth["seconds_before"] / bandwidth["seconds"])
    assert 1.3 < bandwidth["speed_up"] <= 2.0
    assert more["devices"] == 5
    assert 1.0 < more["speed_up"] < 1.25
    assert more["energy_ratio"] == pytest.approx(more["joules"] / more["joules_before"])


def test_sweeps_and_changes_are_tables(here: Path) -> None:
    ended = call(
        *("simulate", "app.py", "--platform", "workstation", "--sweep", "devices=1,2"),
        *("--what-if", "link pcie bandwidth x2"),
    )
    assert ended.code == 0
    assert "Strong scaling" in ended.out
    assert "link pcie bandwidth x2" in ended.out
    assert "With devices=2, " in ended.out
    assert "Devices" not in ended.out, "the run itself is told where nothing else was asked for"


def test_a_program_that_reads_values_is_told_the_line_and_the_way_out(script: Path) -> None:
    script.write_text(READS)
    ended = child(script.parent, "simulate", "app.py", "--platform", "laptop", COEXEC_STORE="off")
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("coexec: app.py:11 reads values, but a simulation computes none; add --execute")
    assert "(simulated until there: " in last
    assert ended.err.count("Traceback") == 1
    ended = child(script.parent, "simulate", "app.py", "--platform", "laptop", "--execute", COEXEC_STORE="off")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("value 8.0\nsimulated on laptop")


def test_a_read_may_be_taken_for_the_end_of_the_program(here: Path) -> None:
    (here / "app.py").write_text(READS)
    sweep = ["--sweep", "devices=1", "--what-if", "device cpu count +1"]
    ended = call("simulate", "app.py", "--platform", "laptop", "--devices", "cpu", "--until-read", *sweep)
    assert ended.code == 0
    assert "until the program reads a result, at app.py:11" in ended.out
    assert "Traceback" not in ended.err
    (here / "app.py").write_text("raise ValueError('no luck')")
    ended = call("simulate", "app.py", "--platform", "laptop", "--until-read")
    assert ended.code == 1
    assert "ValueError: no luck" in ended.err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit(3)", 3, "the script used no coexec array, so there is nothing to simulate"),
        ("print('hello')", 1, "the script used no coexec array, so there is nothing to simulate"),
        (HEAT + "raise SystemExit(3)", 3, "the script ended with exit code 3 after"),
    ],
)
def test_a_script_that_fails_gives_its_exit_code(here: Path, text: str, code: int, said: str) -> None:
    (here / "app.py").write_text(text)
    ended = call("simulate", "--platform", "laptop", "app.py")
    assert ended.code == code
    assert said in ended.err


def test_a_change_that_keeps_the_script_from_its_end_is_shown_as_missing(here: Path) -> None:
    (here / "app.py").write_text("import os\nassert os.environ['COEXEC_PLATFORM'] == 'a100x4'\n" + HEAT)
    ended = call("simulate", "app.py", "--platform", "a100x4", "--what-if", "device gpu watts 500", "--json")
    data = ended.data
    assert ended.code == 1
    assert (data["exit_code"], data["complete"]) == (0, False)
    assert data["what_if"][0]["seconds"] is None


def test_ctrl_c_ends_the_script_and_says_that_the_answer_is_a_part(script: Path) -> None:
    script.write_text(FOREVER)
    ended = signalled(script.parent, signal.SIGINT, "simulate", "app.py", "--platform", "laptop", COEXEC_STORE="off")
    assert ended.code == 128 + signal.SIGINT
    assert "interrupted after" in ended.err
    assert ended.out.startswith("simulated on laptop")
    assert Trace.load(script.parent / "simulated.json").complete


def test_ranks_of_a_cluster_leave_one_trace_and_one_answer(here: Path) -> None:
    Platform.load("a100x128").save(here / "big.toml")
    small = (here / "big.toml").read_text().replace("nodes = 32", "nodes = 2")
    (here / "pair.toml").write_text(small)
    (here / "big.toml").unlink()
    data: Any = call("simulate", "app.py", "--platform", "pair.toml", "--devices", "gpu", "--ranks", "0", "--json").data
    assert (data["exit_code"], data["devices"]) == (0, 8)
    assert sorted(path.name for path in here.iterdir()) == ["app.py", "pair.toml", "simulated.json"]
    links = data["summary"]["copies"]["links"]
    assert "network" in links["n0/host -> n1/host"]["over"]
    assert data["summary"]["bottleneck"]["seconds"] == pytest.approx(data["seconds"])


MINE = '[[memory]]\nname = "host"\n[[device]]\nname = "gpu"\nknid = "gpu"\nmemory = "host"\n'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["app.py"], "name the machine with --platform: a file.toml, or one of a100x128, a100x4"),
        (["app.py", "--platfrm", "a100x4"], "(--platfrm is not an option of coexec, so it went to the script)"),
        (["missing.py", "--platform", "laptop"], "the script missing.py does not exist"),
        (["app.py", "--platform", "a100x5"], "unknown platform 'a100x5'; did you mean 'a100x"),
        (["app.py", "--platform", "mine.toml"], "mine.toml:5: device.knid: unknown field 'knid'; did you mean 'kind'?"),
        (["app.py", "--platform", "nowhere.toml"], "nowhere.toml: cannot be read: No such file"),
        (["app.py", "--platform", "a100x4", "--devices", "gqu"], "unknown device of platform a100x4 'gqu'"),
        (["app.py", "--platform", "a100x4", "--memory", "gpu"], "memory 'gpu' must read device=size"),
        (["app.py", "--platform", "a100x4", "--memory", "npu:0=1GB"], "unknown device in memory= 'npu:0'"),
        (["app.py", "--platform", "a100x4", "--scenario", "none.toml"], "scenario none.toml: "),
        (["app.py", "--platform", "a100x4", "--sweep", "devices"], "a sweep reads WHAT=VALUE,VALUE"),
        (["app.py", "--platform", "a100x4", "--sweep", "devices=0"], "give whole numbers from 1"),
        (["app.py", "--platform", "a100x4", "--sweep", "devices=1,8"], '--sweep "device gpu count=4,8"'),
        (["app.py", "--platform", "a100x4", "--sweep", "link pci bandwidth=1e9"], "did you mean 'pcie'?"),
        (["app.py", "--platform", "a100x4", "--what-if", "link pcie x2"], "does not read link NAME bandwidth|latency"),
        (["app.py", "--platform", "a100x4", "--what-if", "pcie bandwidth x2"], "unknown thing to change 'pcie'"),
        (["app.py", "--platform", "a100x4", "--plot", "x.svg"], "--plot draws a sweep; add one"),
        (["app.py", "--platform", "a100x4", "--ranks", "3"], "--ranks 3, but a100x4 has 1 nodes; give 0"),
        (["app.py", "--platform", "a100x4", "--until-read", "--execute"], "exclude each other"),
        (["app.py", "--platform", "a100x4", "--gantt", "x.png"], "end the name in .svg"),
        (["app.py", "--platform", "a100x4", "--gantt", "no/x.svg"], "make the folder 'no' first"),
        (["app.py", "--platform", "a100x4", "--trace", "app.py"], "is a file that is no trace"),
    ],
)
def test_a_wrong_call_is_told_in_one_sentence_before_anything_runs(here: Path, arguments: list[str], said: str) -> None:
    (here / "mine.toml").write_text(MINE)
    ended = call("simulate", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == ["app.py", "mine.toml"]


def test_an_argument_of_the_script_that_looks_like_an_option_of_ours_is_asked_about() -> None:
    assert misspelt(["--swep", "devices=1", "--what_if=x", "--device", "gpu"]) == [
        ("--swep", "--sweep"),
        ("--what_if", "--what-if"),
        ("--device", "--devices"),
    ]
    assert misspelt(["--steps", "3", "--devices", "cpu", "-x", "--picture=a.png"]) == []


def test_every_option_of_the_command_is_known_as_ours() -> None:
    shown = call("simulate", "--help").out
    assert all(option in shown for option in OPTIONS)
    assert set(re.findall(r"^│ (--[\w-]+)", shown, re.MULTILINE)) - {"--help"} == set(OPTIONS)


def names(wanted: Wanted) -> list[list[str]]:
    """Return the devices of each case."""
    found = []
    for case in cases_of(wanted).all:
        chosen = case.devices.split(",") if case.devices else []
        found.append([d.name for d in case.platform.devices if not chosen or d.name in chosen or d.kind in chosen])
    return found


@pytest.mark.parametrize(
    ("platform", "devices", "expected"),
    [
        ("a100x4", "", [["gpu:0", "gpu:1"], ["gpu:0"]]),
        ("a100x4", "gpu:2,gpu:3,cpu:0", [["cpu:0", "gpu:2"], ["cpu:0"]]),
        ("a100x128", "", [["n0/gpu:0", "n0/gpu:1"], ["n0/gpu:0"]]),
        ("laptop", "cpu", [["cpu:0", "cpu:1"], ["cpu:0"]]),
    ],
)
def test_a_sweep_counts_the_first_of_the_devices_that_may_be_used(
    platform: str, devices: str, expected: list[list[str]]
) -> None:
    assert names(Wanted(platform, devices, sweeps=("devices=1,2",))) == expected


def test_one_more_device_is_used_too_when_all_of_its_kind_were() -> None:
    cases = cases_of(Wanted("a100x4", sweeps=("devices=4",), what_ifs=("device gpu count +1", "device gpu count -1")))
    assert [case.devices for case in cases.all] == ["gpu", "gpu", "gpu"]
    named = cases_of(Wanted("a100x4", "gpu:0,gpu:3", what_ifs=("device gpu count -1",)))
    assert named.what_ifs[0].devices == "gpu:0"


def test_cases_that_are_alike_are_simulated_once() -> None:
    cases = cases_of(Wanted("a100x4", sweeps=("devices=2,4", "link pcie bandwidth=x1,x2"), what_ifs=("nodes 1",) * 0))
    assert [case.label for case in cases.all] == ["devices=4", "devices=2", "link pcie bandwidth x2"]
    assert cases.sweeps[1].cases[0] is cases.base


def test_a_file_of_ones_own_works_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Platform.load("laptop").save(tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    assert cases_of(Wanted("mine.toml")).base.source == str(tmp_path / "mine.toml")


@pytest.mark.parametrize("wrong", [Wanted("a100x4", sweeps=(f"devices={','.join(map(str, range(1, 99)))}",))])
def test_too_many_values_are_taken_for_a_mistake(wrong: Wanted) -> None:
    with pytest.raises((ConfigError, UnknownName), match="more than 64"):
        cases_of(wrong)


def test_the_environment_gives_what_the_command_does_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEXEC_PLATFORM", "a100x4")
    monkeypatch.setenv("COEXEC_DEVICES", "gpu:1")
    data: Any = call("simulate", "app.py", "--json").data
    assert next(iter(data["summary"]["devices"])) == "gpu:1"
    assert data["devices"] == 1
