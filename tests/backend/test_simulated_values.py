"""Values in simulated runs: none by default, real ones with execute=True, and those that the program gave."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import SimulatedBackend, simulate
from coexec.errors import ConfigError, NoValues, PlatformError, UnknownName
from coexec.machine.platform import Device
from coexec.testing.conformance import check_backend
from tests.backend.simulated_parts import DIRECT, arrays, backend_of, make, opened, platform
from tests.backend.test_cpu import cpu_kernel


def test_what_the_program_gave_can_be_read_back() -> None:
    given = np.arange(12.0).reshape(3, 4)
    with cx.Runtime(platform=platform(DIRECT), store="off"):
        copied, borrowed = cx.array(given), cx.asarray(given)
        assert np.array_equal(np.asarray(copied), given)
        assert np.array_equal(np.asarray(borrowed[1:, ::2]), given[1:, ::2])
        assert float(copied[2, 3]) == 11.0
        assert np.array_equal(np.asarray(cx.full(3, 7.0)), [7.0, 7.0, 7.0])


def test_what_was_computed_cannot_be_read_and_the_error_says_what_to_do() -> None:
    with cx.Runtime(platform="a100x4", store="off"):
        y = cx.array(np.zeros(4))
        make(y, 1.0)
        with pytest.raises(NoValues, match=r"execute=True \(coexec simulate --execute, COEXEC_EXECUTE=1\)"):
            np.asarray(y)
        with pytest.raises(NoValues):
            bool(y[0] > 0)


def test_the_same_program_computes_the_same_values_when_it_is_executed() -> None:
    @cx.kernel(split=0, x=cx.read(cx.halo(1, border="inside")), y=cx.update, total=cx.reduce("sum"))
    def smooth(x, y, total):
        y[...] = (x[:-2] + x[1:-1] + x[2:]) / 3
        total += y.sum()

    def program(u: np.ndarray) -> tuple[np.ndarray, float]:
        x, y, total = cx.array(u), cx.zeros_like(cx.array(u)), cx.zeros(())
        while float(total) < 10.0 * len(u):  # control flow that needs values
            smooth(x, y, total)
            x, y = y, x
        return np.asarray(np.sqrt(x) + 1), float(total)

    u = np.random.default_rng(0).random(1000) + 1.0
    with cx.Runtime("cpu:0", store="off"):
        expected = program(u)
    for name in ("laptop", "a100x4", "edge-soc"):
        with cx.Runtime(platform=name, execute=True, store="off") as runtime:
            found = program(u)
            assert backend_of(runtime).now > 0.0
        assert np.allclose(found[0], expected[0]) and found[1] == pytest.approx(expected[1])


def test_arrays_of_an_executed_simulation_outlive_it() -> None:
    with cx.Runtime(platform="laptop", execute=True, store="off"):
        (y,) = arrays(1)
        make(y, 3.0)
    assert np.array_equal(np.asarray(y), [3.0])


def test_nothing_of_the_size_of_the_arrays_is_allocated() -> None:
    with cx.Runtime(platform="a100x4", store="off") as runtime:
        y = cx.zeros(1 << 32)  # 32 GiB
        make.using(devices="gpu:0")(y, 1.0)
        cx.wait()
        assert backend_of(runtime).now > 0.01


def test_the_end_of_a_simulation_brings_nothing_home_and_takes_no_time() -> None:
    with cx.Runtime("gpu", platform="a100x4", store="off") as runtime:
        y = cx.zeros(1 << 28)
        make(y, 1.0)
        cx.wait()
        before = backend_of(runtime).now
    assert backend_of(runtime).now == before
    with pytest.raises(cx.CoexecError):
        np.asarray(y)


def test_a_failing_body_fails_its_task_in_virtual_time_too() -> None:
    @cx.kernel(y=cx.write)
    def bad(y):
        raise ZeroDivisionError("no")

    with opened(DIRECT, execute=True):
        (y,) = arrays(1)
        bad(y)
        with pytest.raises(ZeroDivisionError, match="no"):
            np.asarray(y)


def one_of_each() -> SimulatedBackend:
    here = platform(DIRECT.replace('kind = "gpu"', 'kind = "simulated"\nwaits_across_lanes = true'))
    backend: SimulatedBackend = simulate(here).lanes["host"]
    return backend


def test_the_devices_of_a_platform_keep_the_contract() -> None:
    check_backend(one_of_each, executes=False)


def test_simulated_devices_that_execute_keep_the_contract() -> None:
    check_backend(
        lambda: SimulatedBackend([Device("sim:0", "simulated", 2, waits_across_lanes=True)], execute=True),
        kernel=cpu_kernel,
    )


# Opening ------------------------------------------------------------------------------------------------------------------


def test_a_platform_may_come_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("COEXEC_PLATFORM", "laptop")
    monkeypatch.setenv("COEXEC_EXECUTE", "1")
    with cx.Runtime(store="off") as runtime:
        assert runtime.platform.device("gpu:0").kind == "gpu"
        assert backend_of(runtime).executes


def test_devices_of_a_platform_are_chosen_by_name_or_kind() -> None:
    with cx.Runtime("gpu:1,cpu", platform="a100x4", store="off") as runtime:
        assert [d.name for d in runtime.platform.devices] == ["cpu:0", "cpu:1", "gpu:1"]


def test_memory_of_a_platform_can_be_limited() -> None:
    with cx.Runtime(platform="a100x4", memory={"gpu:0": "1GB"}, store="off") as runtime:
        memory = runtime.platform.memories[runtime.platform.device("gpu:0").memory]
        assert (memory.capacity, memory.strict) == (10**9, True)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"platform": "a100x5"}, PlatformError, "did you mean 'a100x4'"),
        ({"platform": "a100x4", "devices": "gpu:7"}, UnknownName, "did you mean 'gpu:"),
        ({"platform": "a100x4", "memory": {"gpu:7": "1GB"}}, UnknownName, "did you mean 'gpu:"),
        ({"platform": "a100x4", "memory": {"gpu:0": "shared"}}, ConfigError, "give a size"),
        ({"devices": "cpu:0", "execute": True}, ConfigError, "name a platform="),
        ({"platform": "a100x4", "scenario": "none.toml"}, ConfigError, r"scenario none\.toml"),
    ],
)
def test_malformed_simulations_are_refused_in_words(options, error, words) -> None:
    with pytest.raises(error, match=words):
        cx.Runtime(store="off", **options)


@pytest.mark.parametrize("name", cx.Platform.presets())
def test_every_preset_can_be_simulated(name: str) -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.update, flops=2)
    def axpy(x, y):
        y += x

    with cx.Runtime(platform=name, store="off", diagnostics="off") as runtime:
        x, y = cx.zeros(1 << 20), cx.zeros(1 << 20)
        for _ in range(3):
            axpy(x, y)
        cx.wait()
        assert backend_of(runtime).now > 0.0
