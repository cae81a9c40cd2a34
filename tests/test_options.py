"""Options of a runtime: what is malformed or unknown is said at once, with the nearest known name."""

from __future__ import annotations

import threading

import pytest

import coexec as cx
from coexec.errors import ConfigError, UnknownName
from tests.inside import planner_of


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": "cpu;0"}, "is not a device"),
        ({"devices": "cpu:0,cpu:0"}, "named twice"),
        ({"devices": ","}, "no device is named"),
        ({"devices": "cpu:0@999"}, "core 999 is not available"),
        ({"devices": "cpu:0@a"}, "is not a device"),
        ({"devices": "cpu:0@0-99999999"}, "core .* is not available"),
        ({"devices": "cpu:0@1-0"}, "cores after @"),
        ({"devices": "opencl:first"}, "number OpenCL devices"),
        ({"devices": "null:some"}, "say how many"),
        ({"devices": "simulated:600,null:600"}, "from 1 to"),
        ({"devices": "simulated:" + "9" * 50}, "from 1 to"),
        ({"devices": "simulated:" + "9" * 5000}, "is not a device"),
        ({"devices": "cpu:\u00b2"}, "is not a device"),
        ({"data_threshold": 2.0}, "from 0 to 1"),
        ({"devices": "cpu:0", "memory": {"host": "lots"}}, "is not a size"),
        ({"devices": "cpu:0", "memory": "host"}, "must read device=size"),
        ({"devices": 5}, "expected a str"),
        ({"sync": "yes"}, "expected a bool"),
        ({"horizon": 0}, "at least 1"),
        ({"policy": "dynamc"}, r"unknown policy 'dynamc'; did you mean 'dynamic'\?"),
        ({"policy": 3}, "expected a str"),
        ({"objective": "speed"}, r"unknown objective 'speed' \(known: energy, time\)"),
        ({"energy_cap": "5"}, "expected a float"),
        ({"energy_cap": -1.0}, "must be a number of joules"),
        ({"energy_cap": float("nan")}, "must be a number of joules"),
        ({"watts": "cpu:0"}, "must read device=busy"),
        ({"watts": "cpu:0=1/5"}, "busy >= idle"),
        ({"watts": "cpu:0=much"}, "must read device=busy"),
        ({"watts": 5}, "expected a str"),
        ({"store": 5}, "expected a str"),
        ({"plan": 5}, "expected a str"),
        ({"fuse": 1}, "expected a bool"),
        ({"inline": 0}, "expected a bool"),
    ],
)
def test_malformed_options_are_refused_in_words(options, words) -> None:
    with pytest.raises(ConfigError, match=words):
        cx.Runtime(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": "opencll:0"}, r"unknown device kind 'opencll'; did you mean 'opencl'\?"),
        ({"devices": "cpu:99"}, r"unknown device 'cpu:99'; did you mean 'cpu:"),
        ({"devices": "opencl:99"}, "opencl:99"),
        ({"devices": "cpu:0", "placement": "round-robbin"}, r"did you mean 'round-robin'\?"),
        ({"devices": "cpu:0", "lanes": "disjont"}, r"did you mean 'disjoint'\?"),
        ({"devices": "cpu:0", "memory": {"cpu:1": "1GB"}}, "unknown device in memory="),
        ({"devices": "cpu:0", "watts": "cpu:1=5"}, r"unknown device 'cpu:1'; did you mean 'cpu:0'\?"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(options, words) -> None:
    before = threading.enumerate()
    with pytest.raises(UnknownName, match=words):
        cx.Runtime(**options)
    assert threading.enumerate() == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("COEXEC_DEVICE", "cpu:0", r"unknown environment variable 'COEXEC_DEVICE'; did you mean 'COEXEC_DEVICES'\?"),
        ("COEXEC_SYNC", "maybe", "COEXEC_SYNC='maybe' must be 0, 1, true or false"),
        ("COEXEC_HORIZON", "many", "COEXEC_HORIZON='many' must be a whole number"),
        ("COEXEC_DATA_THRESHOLD", "x", "COEXEC_DATA_THRESHOLD='x' must be a number"),
        ("COEXEC_ENERGY_CAP", "-3", "must be a number of joules"),
        ("COEXEC_POLICY", "fast", "unknown policy 'fast'"),
        ("COEXEC_FUSE", "2", "COEXEC_FUSE='2' must be 0, 1"),
        ("COEXEC_WATTS", "lots", "must read device=busy"),
    ],
)
def test_mistakes_in_the_environment_are_errors(monkeypatch, name, value, words) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words):
        cx.Runtime("cpu:0")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DEVICES", "cpu:99", "unknown device"),
        ("DEVICES", "simulated:100000000", "from 1 to 1,021"),
        ("DEVICES", "null:0", "from 1 to 1,021"),
        ("MEMORY", "host", "must read device=size"),
        ("MEMORY", "host=lots", "is not a size"),
        ("MEMORY", "gpu=1GB", "unknown device in memory="),
        ("PLATFORM", "a100x5", "did you mean 'a100x4'"),
        ("RANKS", "3", "simulated clusters"),
        ("RANKS", "-1", "number of nodes"),
        ("EXECUTE", "1", "for simulations"),
        ("SCENARIO", "none.toml", "for simulations"),
        ("TRACE", "no/where.json", "make the folder"),
        ("DIAGNOSTICS", "loud", "known: error, off, warn"),
        ("PLACEMENT", "best", "unknown placement"),
        ("DATA_THRESHOLD", "nan", "from 0 to 1"),
        ("LANES", "many", "unknown lane policy"),
        ("HORIZON", "0", "at least 1"),
        ("POLICY", "fast", "known: auto, dynamic, even, static"),
        ("OBJECTIVE", "speed", "known: energy, time"),
        ("ENERGY_CAP", "nan", "number of joules"),
        ("WATTS", "cpu:99=3", "unknown device"),
        ("WATTS", "lots", "must read device=busy"),
        ("PLAN", "none.json", "cannot be read as plans"),
        ("LOOKAHEAD", "far", "known: auto, infinite, none"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value_and_what_is_accepted(
    monkeypatch, tmp_path, name, value, words
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"COEXEC_{name}", value)
    with pytest.raises(cx.CoexecError) as caught:
        cx.Runtime()
    assert str(caught.value).startswith(f"COEXEC_{name}={value!r}")
    assert words in str(caught.value)
    assert str(caught.value).count("COEXEC_") == 1


def test_an_argument_is_not_blamed_on_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_WATTS", "cpu:0=3")
    with pytest.raises(ConfigError) as caught:
        cx.Runtime("cpu:0", watts="lots")
    assert "COEXEC_" not in str(caught.value)


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch) -> None:
    for name in ("HORIZON", "POLICY", "SYNC", "DEVICES", "PLAN"):
        monkeypatch.setenv(f"COEXEC_{name}", "")
    with cx.Runtime("null:1") as runtime:
        assert (runtime.config.horizon, runtime.config.policy) == (512, "static")


def test_the_environment_sets_defaults_and_arguments_win(monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_DEVICES", "cpu:0")
    monkeypatch.setenv("COEXEC_HORIZON", "17")
    with cx.Runtime() as runtime:
        assert [device.name for device in runtime.platform.devices] == ["cpu:0"]
        assert runtime.config.horizon == 17
    with cx.Runtime("null:2", horizon=5) as runtime:
        assert len(runtime.platform.devices) == 2
        assert runtime.config.horizon == 5


def test_the_options_of_divisions_reach_their_places(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_FUSE", "0")
    monkeypatch.setenv("COEXEC_POLICY", "auto")
    store = tmp_path / "s.sqlite"
    with cx.Runtime("cpu:0", objective="energy", watts="cpu:0=15/3", store=store) as runtime:
        assert not runtime._driver.scheduler.fuse.enabled
        assert planner_of(runtime)._policy == "auto"
        assert planner_of(runtime).divider.for_energy
        assert (runtime.platform.device("cpu:0").watts, runtime.platform.device("cpu:0").idle_watts) == (15.0, 3.0)
        assert runtime.learned.store.path == store
    with cx.Runtime("cpu:0", fuse=True, policy="static", energy_cap=2, watts="cpu:0=9", store="off") as runtime:
        assert runtime._driver.scheduler.fuse.enabled
        assert planner_of(runtime).divider.for_energy
        assert runtime.learned.store.path is None


def test_files_may_be_given_as_paths(tmp_path) -> None:
    with cx.Runtime("cpu:0", trace=tmp_path / "t.json", store=tmp_path / "s.sqlite"):
        x = cx.zeros(4)
        cx.kernel(x=cx.update)(lambda x: None).plan(x).save(tmp_path / "p.json")
    with cx.Runtime("cpu:0", plan=tmp_path / "p.json") as runtime:
        assert len(planner_of(runtime).to_the_letter.plans) == 1


@pytest.mark.parametrize("store", ["folder", "read-only"])
def test_a_store_that_cannot_be_written_is_a_warning_and_work_runs(tmp_path, store) -> None:
    path = tmp_path / "s.sqlite"
    if store == "folder":
        path.mkdir()
    else:
        (tmp_path / "file").write_text("")
        path = tmp_path / "file" / "s.sqlite"

    def work() -> list[float]:
        with cx.Runtime("cpu:0", store=path):
            doubled: list[float] = (cx.array([1.0, 2.0]) * 2).tolist()
            return doubled

    with pytest.warns(cx.CoexecWarning, match="cannot keep measurements"):
        assert work() == [2.0, 4.0]
