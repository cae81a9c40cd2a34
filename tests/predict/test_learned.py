"""What was learnt outlives a runtime, under a name that changes with whatever could change the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.machine.platform import Device
from coexec.predict.learned import Learned, model_key
from coexec.predict.model import KernelModel
from coexec.predict.store import Store
from coexec.predict.work import Work
from coexec.program.kernel import Kernel
from coexec.program.variant import Variant
from tests.devices import TWO
from tests.predict.store_files import marked

CPU = Device("cpu:0", "cpu", 0, speed="some core")
WORK = Work((800.0, 100.0, 800.0), "f8", (100,))


def scaling(by: Any = 2.0, **declared: Any) -> Kernel:
    @cx.kernel(split=0, name="scaled", **{"x": cx.update, **declared})
    def scaled(x):
        x *= by

    assert isinstance(scaled, Kernel)
    return scaled


def key_of(kernel: Kernel, device: Device = CPU, how: str = "") -> str:
    learned = Learned()
    learned.model(kernel, kernel.variants[0], device, how)
    (key,) = learned.models()
    return key


def model_of(learned: Learned, kernel: Kernel) -> KernelModel:
    return learned.model(kernel, kernel.variants[0], CPU)


def test_the_same_code_has_the_same_key() -> None:
    assert key_of(scaling()) == key_of(scaling())


@pytest.mark.parametrize(
    "other",
    [
        lambda: key_of(scaling(3.0)),
        lambda: key_of(scaling(features={"n": lambda x: 1.0})),
        lambda: key_of(scaling(flops=lambda x: 7.0)),
        lambda: key_of(scaling(), Device("cpu:0", "cpu", 0, speed="another core")),
        lambda: key_of(scaling(), Device("cpu:0", "cpu", 0, speed="some core", software="driver 2")),
        lambda: key_of(scaling(), how="in cache"),
    ],
    ids=["a closure's constant", "a feature", "operations", "device", "driver", "in cache"],
)
def test_what_may_change_the_time_changes_the_key(other) -> None:
    assert other() != key_of(scaling())


def test_devices_of_one_speed_share_a_model() -> None:
    learned = Learned()
    kernel = scaling()
    first = learned.model(kernel, kernel.variants[0], CPU)
    assert learned.model(kernel, kernel.variants[0], Device("cpu:1", "cpu", 0, speed="some core")) is first


def test_a_key_names_what_it_holds_for() -> None:
    key = model_key(scaling(), "abc", Variant("python", "python"), CPU, "in cache")
    assert key.startswith(f"scaled | abc | python in cache | some core | numpy {np.__version__} | python 3.")


def test_what_is_saved_is_known_to_the_next(tmp_path: Path) -> None:
    first = Learned(Store(tmp_path / "s.sqlite"))
    model = model_of(first, scaling())
    for _ in range(3):
        model.learn(WORK, 0.5)
    first.save({("host", "gpu"): (1e-5, 1e9)})
    second = Learned(Store(tmp_path / "s.sqlite"))
    estimate = model_of(second, scaling()).estimate(WORK)
    assert estimate is not None and estimate.source == "history"
    assert estimate.seconds == pytest.approx(0.5)
    assert model_of(second, scaling(5.0)).estimate(WORK) is None
    assert second.store.links() == {("host", "gpu"): (1e-5, 1e9)}


def test_measured_peaks_serve_where_nothing_else_is_known(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.save_rates({("some core", ""): (1e9, 1e10)})
    estimate = model_of(Learned(store), scaling()).estimate(WORK)
    assert estimate is not None and estimate.source == "roofline"


def test_peaks_are_trusted_in_simulations_unless_the_kernel_was_measured_anywhere(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.save_rates({("some core", ""): (1e9, 1e10)})
    assert model_of(Learned(store), scaling()).seconds(WORK) is None
    assert model_of(Learned(store, simulated=True), scaling()).seconds(WORK) is not None
    real = Learned(Store(tmp_path / "s.sqlite"))
    model_of(real, scaling()).learn(WORK, 0.5)
    real.save()
    later = Learned(Store(tmp_path / "s.sqlite"), simulated=True)
    other = Device("cpu:1", "cpu", 0, speed="another core", flops=1e9)
    unmeasured = later.model(scaling(), scaling().variants[0], other)
    assert unmeasured.seconds(WORK) is None


def run(store: Path | str, kernel: Kernel, devices: str = "cpu:0") -> str:
    """Return where the first prediction of a new runtime comes from; then run the kernel a few times."""
    with cx.Runtime(devices, store=str(store)) as runtime:
        x = cx.array(np.ones(1000))
        predicted = kernel.plan(x).predicted
        for _ in range(4):
            kernel(x)
            runtime.wait()
        return "unknown" if predicted is None else predicted.source


def test_a_second_runtime_predicts_by_what_the_first_measured(tmp_path: Path) -> None:
    store = tmp_path / "folder" / "s.sqlite"
    assert run(store, scaling()) == "unknown"
    assert run(store, scaling()) == "history"
    assert run(store, scaling(7.0)) == "unknown"
    assert run(store, scaling(), TWO) == "history"


def test_without_a_store_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEXEC_STORE", str(tmp_path / "never.sqlite"))
    assert [run("off", scaling()) for _ in range(2)] == ["unknown", "unknown"]
    assert not list(tmp_path.iterdir())


def test_a_damaged_store_is_set_aside_with_a_warning(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    store.write_bytes(marked(b"this is no database, however long it may be" * 50))
    with pytest.warns(cx.CoexecWarning, match=r"s\.sqlite"):
        assert run(store, scaling()) == "unknown"
    assert run(store, scaling()) == "history"


def test_chains_are_learnt_under_their_structure(tmp_path: Path) -> None:
    sources = []
    for _ in range(2):
        with cx.Runtime("cpu:0", store=str(tmp_path / "s.sqlite")) as runtime:
            x = cx.array(np.ones(1 << 16))
            for _ in range(4):
                with runtime._driver.lock:  # the whole chain, however slow this machine is
                    y = x * 2.0 + 1.0
                    assert runtime._driver.scheduler.fuse.held is not None
                    ((kernel, arguments, _),) = runtime._driver.scheduler.fuse.held.calls()
                predicted = kernel.plan(*arguments).predicted
                sources.append("unknown" if predicted is None else predicted.source)
                runtime.wait()
                del y, arguments
    assert (sources[0], sources[4]) == ("unknown", "history")
