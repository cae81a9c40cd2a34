"""What a newcomer gets wrong about simulations is answered by one sentence, and nothing is half made."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec import process
from coexec.backend.simulated import Happening, Scenario
from coexec.errors import CoexecError, ConfigError, NoValues, PlatformError, UnknownName
from coexec.program import session
from tests.backend.simulated_parts import DIRECT

RUNTIME: list[tuple[dict[str, Any], type[CoexecError], str]] = [
    ({"platform": "a100x5"}, PlatformError, r"unknown platform 'a100x5'; did you mean 'a100x4'\?"),
    ({"platform": "a100x4.toml"}, PlatformError, r"no such file; the preset is called 'a100x4'"),
    ({"platform": "nothing.toml"}, PlatformError, r"nothing\.toml: cannot be read: No such file"),
    ({"platform": 3}, ConfigError, r"Runtime\(platform=3\): expected the path of a file, the name of a preset or a"),
    ({"platform": ["a100x4"]}, ConfigError, r"expected the path of a file, the name of a preset"),
    ({"devices": "gpx"}, UnknownName, r"unknown device of platform a100x4 'gpx'; did you mean 'gpu'\?"),
    ({"devices": "gpu:0,gpu:4"}, UnknownName, r"unknown device of platform a100x4 'gpu:4'; did you mean 'gpu:"),
    ({"devices": "opencl:0"}, UnknownName, r"known: cpu, cpu:0, cpu:1, gpu, gpu:0, gpu:1, gpu:2, gpu:3"),
    ({"devices": "gpu:0@1"}, UnknownName, r"unknown device of platform a100x4 'gpu:0@1'"),
    ({"memory": {"gpu:9": "1GB"}}, UnknownName, r"unknown device in memory= 'gpu:9'; did you mean 'gpu:"),
    ({"memory": {"gpu:0": "lots"}}, ConfigError, r"'lots' is not a size"),
    ({"memory": {"gpu:0": 5}}, ConfigError, r"5 is not a size"),
    ({"memory": {"gpu:0": "own"}}, ConfigError, r"the platform says whose memory it is"),
    ({"scenario": 3}, ConfigError, r"Runtime\(scenario=3\): expected the path of a file, a Scenario"),
    ({"scenario": {"seed": 1}}, ConfigError, r"expected the path of a file, a Scenario"),
    ({"scenario": "nothing.toml"}, ConfigError, r"scenario nothing\.toml: cannot be read: No such file"),
    ({"scenario": Scenario((Happening.lost("gpu:9"),))}, UnknownName, r"unknown device in a scenario 'gpu:9'"),
    ({"scenario": Scenario((Happening.degraded("pcix", 0.5),))}, UnknownName, r"did you mean 'pcie'\?"),
    ({"scenario": Scenario(noise={"gpus": 0.1})}, UnknownName, r"did you mean 'gpu'\?"),
    ({"platform": None, "execute": True}, ConfigError, r"are for simulations; name a platform="),
    ({"platform": None, "scenario": "x.toml"}, ConfigError, r"are for simulations; name a platform="),
    ({"execute": "yes"}, ConfigError, r"Runtime\(execute='yes'\): expected a bool"),
]


@pytest.mark.parametrize(("options", "kind", "words"), RUNTIME, ids=[words[:40] for _, _, words in RUNTIME])
def test_what_a_runtime_cannot_be_opened_with_is_said_and_nothing_remains(
    options: dict[str, Any], kind: type[CoexecError], words: str, tmp_path: Path
) -> None:
    trace, open_ones, program = tmp_path / "run.json", len(process._open), session.program
    with pytest.raises(kind, match=words) as caught:
        cx.Runtime(**{"platform": "a100x4", "store": "off", "trace": trace, **options})
    assert "\n" not in str(caught.value)
    assert not trace.exists() and session.program == program and len(process._open) == open_ones


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PLATFORM", "worksation", r"unknown platform 'worksation'; did you mean 'workstation'\?"),
        ("EXECUTE", "maybe", r"COEXEC_EXECUTE='maybe' must be 0, 1, true or false"),
        ("SCENARIO", "nothing.toml", r"scenario nothing\.toml: cannot be read"),
        ("DEVICES", "gpx", r"unknown device of platform a100x4 'gpx'"),
        ("MEMORY", "gpu:0", r"must read device=size"),
        ("PLATFROM", "a100x4", r"did you mean 'COEXEC_PLATFORM'\?"),
    ],
)
def test_variables_that_are_wrong_are_named(name: str, value: str, words: str, monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_PLATFORM", "a100x4")
    monkeypatch.setenv(f"COEXEC_{name}", value)
    with pytest.raises(CoexecError, match=words):
        cx.Runtime(store="off")


def test_a_cluster_does_not_list_all_of_its_devices() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'n1/gpu:3'\?") as caught:
        cx.Runtime("n1/gpu:4", platform="a100x128", store="off")
    assert "..." in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize("read", [float, bool, np.asarray, lambda x: x.item()])
def test_a_program_that_needs_values_is_told_how_to_get_them(read: Any) -> None:
    @cx.kernel(y=cx.write)
    def decide(y):
        y[...] = 1.0

    with cx.Runtime(platform="a100x4", store="off"):
        y = cx.empty(())
        decide(y)
        with pytest.raises(NoValues, match=r"execute=True \(coexec simulate --execute, COEXEC_EXECUTE=1\)"):
            read(y)
        decide(y)  # and it goes on


# Scenarios ----------------------------------------------------------------------------------------------------------------

WHOLE = """
seed = 7
noise = { gpu = 0.05, "*" = 0.1 }
[[happening]]
what = "slow"
name = "gpu:0"
factor = 2.0
at = 1.5
[[happening]]
what = "lost"
name = "gpu:1"
[[happening]]
what = "link"
name = "pcie"
factor = 0.5
"""

WRONG = [
    ("seed = 7", "seed = 1.5", r"seed is 1\.5; it must be a whole number"),
    ("seed = 7", "seed = true", r"seed is True; it must be a whole number"),
    ("seed = 7", "sede = 7", r"unknown field 'sede'; did you mean 'seed'\?"),
    ("noise = { gpu = 0.05, ", "noise = 0.1 # ", r"noise is 0\.1; it must be a table"),
    ("gpu = 0.05", "gpu = 'much'", r"noise of gpu is 'much'"),
    ("gpu = 0.05", "gpu = nan", r"noise of gpu is nan"),
    ("gpu = 0.05", "gpu = 9.0", r"must be a number from 0 to 5"),
    ('what = "slow"', 'what = "slwo"', r"unknown happening 'slwo'; did you mean 'slow'\?"),
    ('what = "slow"', "what = 3", r"unknown happening '3'"),
    ('what = "slow"\n', "", r"happening\.what: is missing"),
    ('name = "gpu:0"\n', "", r"happening\.name: is missing"),
    ('name = "gpu:0"', "name = ['gpu:0']", r"name is \['gpu:0'\]; it must be a text"),
    ("factor = 2.0", "factor = 0", r"slow gpu:0: factor is 0; it must be a finite number above 0"),
    ("factor = 2.0\n", "", r"happening\.factor: is missing: 'slow' needs it"),
    ('name = "gpu:1"', 'name = "gpu:1"\nfactor = 2.0', r"what is lost takes no factor"),
    ("at = 1.5", "at = -1", r"slow gpu:0: at is -1; it must be a finite number of seconds from 0"),
    ("at = 1.5", "at = inf", r"at is inf"),
    ("at = 1.5", "at = " + "9" * 400, r"at is 999"),
    ("at = 1.5", "when = 1.5", r"unknown field 'when'"),
    ('[[happening]]\nwhat = "slow"', '[happening]\nwhat = "slow"', r"not valid TOML: .*line"),
    (WHOLE, "happening = 3", r"happening: must be written \[\[happening\]\]"),
    (WHOLE, "[happening]\nwhat = 'lost'", r"happening: must be written \[\[happening\]\]"),
    (WHOLE, "this is none", r"not valid TOML: .*line 1"),
    (WHOLE, "x = " + "[" * 100_000, r"not valid TOML"),
]


@pytest.mark.parametrize(("right", "wrong", "words"), WRONG, ids=[words[:40] for _, _, words in WRONG])
def test_scenarios_that_make_no_sense_are_refused_with_their_file(
    right: str, wrong: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "day.toml"
    assert right in WHOLE
    file.write_text(WHOLE.replace(right, wrong, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=words) as caught:
        Scenario.load(file)
    assert str(caught.value).startswith(f"scenario {file}: ")


def test_files_that_are_none_are_no_scenarios(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Scenario.load(tmp_path)
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        Scenario.load(tmp_path / "picture.toml")
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    assert Scenario.load(tmp_path / "empty.toml") == Scenario()


def attempted(file: Path) -> Scenario | ConfigError:
    """Return what a file says, or why it says nothing."""
    try:
        return Scenario.load(file)
    except ConfigError as error:
        return error


SCRAPS = ["", "\n", "=", "[", "]]", "[[happening]]", '"', "-", "nan", "true", "9" * 400, "[1]", "{}", "seed", "#", "é"]


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_a_damaged_scenario_loads_or_is_refused_with_its_file(
    tmp_path_factory: pytest.TempPathFactory, source: random.Random
) -> None:
    text = WHOLE
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(text) + 1)
        text = text[:at] + source.choice(SCRAPS) + text[at + source.randint(0, 8) :]
    file = tmp_path_factory.getbasetemp() / "damaged.toml"
    file.write_text(text, encoding="utf-8")
    found = attempted(file)
    if isinstance(found, ConfigError):
        assert str(found).startswith(f"scenario {file}: ")
    else:
        assert found == attempted(file)


def test_scenarios_made_by_hand_are_checked_too() -> None:
    wrong: Any = "gpu:0"
    with pytest.raises(ConfigError, match="a scenario takes happenings"):
        Scenario((wrong,))
    with pytest.raises(ConfigError, match="at is None"):
        Happening("lost", "gpu:0", None)  # type: ignore[arg-type]


# Platforms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [3, None, b"a100x4", ["a100x4"]])
def test_what_is_no_name_and_no_path_is_no_platform(given: Any) -> None:
    with pytest.raises(PlatformError, match="is neither the name of a platform nor the path of a file"):
        cx.Platform.load(given)


def test_an_unreadable_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret.toml"
    file.write_text(DIRECT, encoding="utf-8")

    def refuse(*args: object, **kwargs: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(PlatformError, match=r"secret\.toml: cannot be read: Permission denied"):
        cx.Platform.load(file)
    with pytest.raises(ConfigError, match=r"secret\.toml: cannot be read: Permission denied"):
        Scenario.load(file)
