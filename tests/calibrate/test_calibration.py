"""What calibration measures in a moment, another runtime predicts with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coexec as cx
from coexec.calibrate import calibrate
from coexec.calibrate.calibration import parts_of, peak_rates
from coexec.calibrate.designs import DESIGNS, Design, DesignedCall, chains
from coexec.calibrate.steering import asking
from coexec.errors import ArgumentError, UnknownName
from coexec.machine.platform import Device
from coexec.ops import matmul
from coexec.plan.plan import Plan
from coexec.predict.learned import ELEMENTWISE, Learned
from coexec.predict.model import KernelModel
from coexec.predict.store import Store
from coexec.predict.work import Work
from tests.devices import MIXED

MEASURED = {"history", "regression"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "measured.sqlite"
    monkeypatch.setenv("COEXEC_STORE", str(path))
    return path


def planned(devices: str) -> Plan:
    """Return the plan of a product that calibration does not run."""
    with cx.Runtime(devices=devices):
        a, b = (cx.asarray(np.broadcast_to(np.float32(1), shape)) for shape in ((700, 500), (500, 900)))
        plan: Plan = matmul.plan(a, b)
        return plan


@cx.kernel(split=0, x=cx.read, y=cx.update)
def shifted(x, y, by):
    y += x + by


@pytest.mark.parametrize("devices", ["cpu:0", MIXED])
def test_a_new_runtime_predicts_a_shape_that_was_never_run(devices: str, store: Path) -> None:
    assert planned(devices).predicted is None
    report = calibrate(devices, seconds=2.5, ops=["matmul"])
    assert store.exists()
    assert not report.interrupted
    plan = planned(devices)
    assert plan.predicted is not None
    assert plan.predicted.source in MEASURED
    assert plan.single.keys() == set(report.devices)
    for device in report.devices:
        mine = [m for m in report.models if m.kernel == "matmul_float32" and device in m.devices]
        assert max(m.shapes for m in mine) >= 4
        assert any(m.median_error is not None for m in mine)


def test_copies_of_designed_sizes_teach_both_directions_of_a_link(store: Path) -> None:
    report = calibrate(MIXED, seconds=1.0, ops=["matmul"])
    ways = {(link.source, link.target) for link in report.links}
    assert {("host", "opencl:0"), ("opencl:0", "host")} <= ways
    assert all(link.bytes_per_second > 0 for link in report.links)
    assert Store(store).links().keys() == ways


def test_a_kernel_of_the_users_is_measured_for_the_calls_given(store: Path) -> None:
    sizes = (1_000, 4_000, 30_000, 200_000, 500_000)
    report = calibrate("cpu:0", seconds=5.0, kernels=[(shifted, [(np.ones(n), np.zeros(n), 2.0) for n in sizes])])
    (model,) = [m for m in report.models if (m.kernel, m.variant) == ("shifted", "python")]
    assert (model.shapes, model.types) == (len(sizes), ("float64",))
    assert report.calls >= 3 * len(sizes)
    with cx.Runtime(devices="cpu:0"):
        plan = shifted.plan(cx.zeros(100_000), cx.zeros(100_000), 1.0)
    assert plan.predicted is not None
    assert plan.predicted.source == "regression"
    assert len(Store(store).models()) >= 1


def test_a_kernel_of_the_users_that_fails_says_so() -> None:
    with pytest.raises(ExceptionGroup, match="1 task failed"):
        calibrate("cpu:0", kernels=[(shifted, [(np.ones(3), np.zeros(3), None)])])


def test_an_operation_that_fails_on_a_device_is_left_out_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: cx.Array) -> None:
        shifted(x, cx.zeros(x.shape), None)

    cases = [DesignedCall("broken", f"{n} elements", float(n), (np.ones(n),), broken) for n in (10, 20)]
    monkeypatch.setitem(DESIGNS, "broken", Design("broken", 1.0, lambda: cases, "fails"))
    report = calibrate("cpu:0", seconds=1.0, ops=["broken"])
    assert "shifted" in report.left_out["broken on cpu:0"]
    assert report.calls == 0


def test_what_was_measured_before_an_interrupt_is_kept(store: Path) -> None:
    told: list[float] = []

    def progress(fraction: float, text: str) -> None:
        told.append(fraction)
        assert text
        if len(told) == 12:
            raise KeyboardInterrupt

    report = calibrate("cpu:0", seconds=20.0, ops=["matmul"], progress=progress)
    assert report.interrupted
    assert told == sorted(told)
    assert any(info.model.startswith("matmul_float32") for info in Store(store).models())


def test_a_store_that_cannot_be_written_is_one_warning_and_the_work_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COEXEC_STORE", str(tmp_path / "file" / "measured.sqlite"))
    with pytest.warns(cx.CoexecWarning, match="cannot keep measurements"):
        report = calibrate("cpu:0", seconds=0.5, ops=["matmul"])
    assert any(model.measurements > 3 for model in report.models)


def test_without_time_the_report_says_what_is_missing() -> None:
    report = calibrate("cpu:0", seconds=1e-6, ops=["matmul"])
    assert report.calls == 0
    assert "no time was left" in report.left_out["matmul on cpu:0"]
    assert report.store is None
    assert report.as_dict()["models"] == ()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ArgumentError, match="above 0"):
        calibrate("cpu:0", seconds=seconds)


def test_a_misspelt_operation_is_refused_before_anything_opens() -> None:
    with pytest.raises(UnknownName, match="matmul64"):
        calibrate("cpu:0", ops=["matmul46"])


def test_the_highest_rates_come_from_products_and_from_arrays_larger_than_caches() -> None:
    device = Device("cpu:0", "cpu", 1, speed="fast")
    learned = Learned(Store(None))
    key = "{} | 123 | python | fast | numpy 2 | python 3"
    products, sums = KernelModel(flops_at=1), KernelModel()
    for size, seconds in ((1e6, 1.0), (4e6, 2.0)):
        for _ in range(3):
            products.learn(Work((size, size * 100), "f4", size), seconds)
    for size, seconds in ((1e3, 1e-9), (2e7, 1e-2)):
        for _ in range(3):
            sums.learn(Work((size,), "f4", size), seconds)
    learned.models().update({key.format("matmul_float32"): products, key.format("add"): sums})
    assert peak_rates([device], learned) == {("fast", ""): (2e8, 2e9)}
    assert parts_of(key.format("a | b")) == ("a | b", "python", "fast")


def test_chains_are_measured_as_one_kernel_and_teach_what_elementwise_bodies_take(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = DESIGNS["chains"]._replace(cases=lambda: chains((1 << 17, 1 << 18)))
    monkeypatch.setitem(DESIGNS, "chains", few)
    report = calibrate("cpu:0", seconds=3.0, ops=["chains"])
    names = {model.kernel for model in report.models}
    assert {"multiply+add", ELEMENTWISE} <= names
    with cx.Runtime("cpu:0") as runtime:
        x = cx.asarray(np.broadcast_to(1.0, 3_000_000))
        with asking(runtime) as asked:
            np.log2(x)  # which was never run by itself
    (plan,) = asked.plans
    assert plan.predicted is not None and plan.predicted.source == "regression"
