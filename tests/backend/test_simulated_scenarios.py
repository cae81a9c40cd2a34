"""What goes wrong in simulated runs, noise, and what the runtime makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from coexec.errors import DeviceLost
from tests.backend.simulated_parts import DIRECT, MB, SWITCHED, arrays, backend_of, make, opened, platform, use

lost, slow, degraded = Happening.lost, Happening.slow, Happening.degraded


def after(scenario: Scenario, text: str = DIRECT, nbytes: int = 8) -> float:
    """Return the time of one kernel of 4 s on gpu:0 with an input of so many bytes."""
    with opened(text, scenario=scenario) as runtime:
        (y,) = arrays(1)
        use.using(devices="gpu:0")(cx.asarray(np.zeros(nbytes // 8)), y, 4.0)
        cx.wait()
        return backend_of(runtime).now


def test_a_device_slows_down_in_the_middle_of_a_kernel() -> None:
    begun = 0.25 + 8 / MB
    assert after(Scenario((slow("gpu:0", 3.0, at=2.0),))) == pytest.approx(2.0 + 3 * (4.0 + begun - 2.0))
    assert after(Scenario((slow("gpu:1", 3.0, at=2.0),))) == pytest.approx(begun + 4.0)
    assert after(Scenario((slow("gpu:0", 3.0, at=50.0),))) == pytest.approx(begun + 4.0)


def test_the_clock_does_not_wait_for_what_never_matters() -> None:
    with opened(DIRECT, scenario=Scenario((slow("gpu:0", 2.0, at=1e9),))) as runtime:
        (y,) = arrays(1)
        make.using(devices="gpu:0")(y, 1.0)
        cx.wait()
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(1.0)


@pytest.mark.parametrize(("text", "name"), [(DIRECT, "pcie"), (DIRECT, "host>gpu:0"), (SWITCHED, "host>hub")])
def test_a_link_degrades_in_the_middle_of_a_copy(text: str, name: str) -> None:
    latency = 0.25 if text is DIRECT else 0.0
    happens = Scenario((degraded(name, 0.5, at=latency + 0.5),))
    assert after(happens, text, MB) == pytest.approx(latency + 0.5 + 1.0 + 4.0)


def test_what_a_wire_is_made_of_names_it_too() -> None:
    assert after(Scenario((degraded("pcie", 0.25),)), SWITCHED, MB) == pytest.approx(8.0)


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=lambda x, y: 100.0 * y.nbytes)
def double(x, y):
    y[...] = 2 * x


def test_a_device_that_is_lost_has_its_part_redone_and_is_not_used_any_more() -> None:
    x = np.arange(4 * MB // 8, dtype=float)
    with opened(DIRECT, scenario=Scenario((lost("gpu:1", at=6.0),)), execute=True) as runtime:
        source, target = cx.array(x), cx.empty_like(cx.array(x))
        for _ in range(6):
            double(source, target)
        with pytest.warns(cx.CoexecWarning, match="gpu:1 was lost at 6 s"):
            cx.wait()
        assert np.array_equal(np.asarray(target), 2 * x)
        before = backend_of(runtime).energy().active["gpu:1"]
        double(target, source)
        assert np.array_equal(np.asarray(source), 4 * x)
        assert backend_of(runtime).energy().active["gpu:1"] == before > 0.0


def test_an_undivided_task_on_a_lost_device_goes_elsewhere() -> None:
    with opened(DIRECT, scenario=Scenario((lost("gpu:0"), lost("gpu:1"))), execute=True):
        (y,) = arrays(1)
        with pytest.warns(cx.CoexecWarning, match="is not used any more"):
            make(y, 3.0).wait()
        assert np.array_equal(np.asarray(y), [3.0])


def test_what_only_a_lost_device_holds_can_still_be_read_and_used_elsewhere() -> None:
    with opened(DIRECT, scenario=Scenario((lost("gpu:0", at=2.0),)), execute=True):
        a, b = arrays(2)
        make.using(devices="gpu:0")(a, 1.0)
        make.using(devices="gpu:1")(b, 3.0)
        cx.wait()
        use.using(devices="gpu:1")(a, b, 1.0)
        assert np.asarray(a) == 1.0 and np.asarray(b) == 3.0 + 1.0 + 1.0


def test_who_names_a_device_that_is_lost_gets_its_error() -> None:
    with opened(DIRECT, scenario=Scenario((lost("gpu:0", at=0.5),)), execute=True):
        (y,) = arrays(1)
        task = make.using(devices="gpu:0")(y, 3.0)
        with pytest.warns(cx.CoexecWarning, match="is not used any more"):
            task.wait()
        with pytest.raises(DeviceLost, match=r"gpu:0 was lost at 0\.5 s"):
            np.asarray(y)


def noisy(seed: int, spread: float = 0.2, name: str = "gpu") -> float:
    with opened(DIRECT, scenario=Scenario(noise={name: spread}, seed=seed)) as runtime:
        for y in arrays(200):
            make.using(devices="gpu:0")(y, 1.0)
        cx.wait()
        return backend_of(runtime).now


def test_noise_repeats_with_its_seed_and_is_1_on_average() -> None:
    assert noisy(1) == noisy(1) != noisy(2)
    assert noisy(1) == pytest.approx(200.0, rel=0.05)
    assert noisy(1, 0.0) == pytest.approx(200.0)
    assert noisy(1, name="*") == noisy(1, name="gpu:0") == noisy(1)
    assert noisy(1, name="gpu:1") == pytest.approx(200.0)


def test_scenarios_are_read_from_files(tmp_path) -> None:
    file = tmp_path / "bad day.toml"
    file.write_text(
        """
seed = 7
noise = { "*" = 0.05 }
[[happening]]
what = "lost"
name = "gpu:1"
at = 2.5
[[happening]]
what = "link"
name = "pcie"
factor = 0.5
"""
    )
    assert Scenario.load(file) == Scenario((lost("gpu:1", 2.5), degraded("pcie", 0.5)), {"*": 0.05}, 7)
    with cx.Runtime(platform=platform(DIRECT), scenario=file, store="off") as runtime:
        assert runtime.config.scenario == str(file)
