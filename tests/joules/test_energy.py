"""What code drew: counters that go around, counters that may not be read, and the model where there are none."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.joules import meter as powercap
from coexec.joules.meter import EnergyMeter
from coexec.joules.modelled import BusyDevices, modelled
from coexec.machine.parts import AchievedRate
from coexec.machine.platform import HOST, Device, Memory, Platform

RANGE = 1_000_000  # microjoules


def tree(root: Path, **zones: int) -> Path:
    """Make a powercap tree: zones by name, with what they count; a package has a core within it."""
    (root / "intel-rapl").mkdir(parents=True)
    (root / "intel-rapl" / "enabled").write_text("1")
    for number, (name, value) in enumerate(zones.items()):
        for folder, label in ((f"intel-rapl:{number}", name.replace("_", "-")), (f"intel-rapl:{number}:0", "core")):
            (root / folder).mkdir()
            (root / folder / "name").write_text(f"{label}\n")
            (root / folder / "energy_uj").write_text(f"{value}\n")
            (root / folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
    return root


def set_counter(root: Path, number: int, value: int) -> None:
    (root / f"intel-rapl:{number}" / "energy_uj").write_text(f"{value}\n")


def test_packages_are_counted_once_and_parts_of_them_are_not(tmp_path: Path) -> None:
    root = tree(tmp_path / "powercap", package_0=100, package_1=200, psys=900)
    found, why = powercap.zones(root)
    assert [zone.name for zone in found] == ["package-0", "package-1"] and not why
    assert [zone.range for zone in found] == [RANGE, RANGE]


def test_a_counter_that_goes_around_loses_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path / "powercap", package_0=999_000)
    counters = powercap.Counters(powercap.zones(root)[0])
    set_counter(root, 0, 1_000)
    assert counters.read() == {"package-0": pytest.approx(0.002)}
    set_counter(root, 0, 900_000)
    assert counters.read() == {"package-0": pytest.approx(0.901)}
    set_counter(root, 0, 100)
    assert counters.read() == {"package-0": pytest.approx(1.0011)}
    assert counters.interval == pytest.approx(RANGE * 1e-6 / powercap.MOST_WATTS)


def test_a_counter_that_cannot_be_read_for_a_moment_loses_nothing_and_says_so(tmp_path: Path) -> None:
    root = tree(tmp_path / "powercap", package_0=100, dram=100)
    meter = EnergyMeter(root)
    with meter as used:
        counters = meter._counters
        assert counters is not None
        set_counter(root, 0, 300_100)
        (root / "intel-rapl:1" / "energy_uj").write_text("")
        assert counters.read() == {"package-0": pytest.approx(0.3), "dram": 0.0}
        assert counters.missed.startswith("dram could not be read")
        assert used.look().why_not == counters.missed
        set_counter(root, 1, 200_100)
    assert used.parts == {"package-0": pytest.approx(0.3), "dram": pytest.approx(0.2)} and not used.why_not


def test_what_is_measured_says_by_what_and_how_finely(tmp_path: Path) -> None:
    root = tree(tmp_path / "powercap", package_0=10, dram=990_000)
    with EnergyMeter(root) as used:
        set_counter(root, 0, 500_010)
        set_counter(root, 1, 10_000)
    assert used.measured and used.joules == pytest.approx(0.52)
    assert used.parts == {"package-0": pytest.approx(0.5), "dram": pytest.approx(0.02)}
    assert "powercap" in used.source and used.resolution_s == 1e-3 and not used.why_not
    used.end()
    assert not [t for t in threading.enumerate() if t.name == "coexec-energy"]


def test_counters_that_are_missing_damaged_or_forbidden_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert powercap.zones(tmp_path / "nothing") == (
        [],
        f"this machine has no energy counters under {tmp_path / 'nothing'}",
    )
    root = tree(tmp_path / "damaged", package_0=1)
    (root / "intel-rapl:0" / "max_energy_range_uj").write_text("many")
    assert powercap.zones(root)[0] == []
    root = tree(tmp_path / "forbidden", package_0=1)

    def refuse(zone: Any) -> int:
        raise PermissionError(zone.file)

    monkeypatch.setattr(powercap.Zone, "read", refuse)
    found, why = powercap.zones(root)
    assert found == [] and "no right to read" in why


def test_without_a_runtime_and_counters_nothing_is_claimed(tmp_path: Path) -> None:
    with EnergyMeter(tmp_path) as used:
        pass
    assert used.joules is None and not used.measured and used.watts is None
    assert used.source.startswith("unknown") and "no energy counters" in used.why_not


def test_the_model_by_hand() -> None:
    devices = (
        Device("cpu:0", "cpu", HOST, watts=10.0, idle_watts=2.0),
        Device("cpu:all", "cpu", HOST, wide=True, watts=50.0, idle_watts=8.0),
        Device("gpu:0", "gpu", HOST),
    )
    platform = Platform(devices, (Memory("user"), Memory("host")), {})
    assert modelled(platform, busy({("cpu:0", "k"): 3.0}), 10.0) == {"cpu:0": 3 * 10.0 + 7 * 2.0, "cpu:all": 0.0}
    assert modelled(platform, busy({("cpu:all", "k"): 4.0}), 10.0) == {"cpu:0": 20.0, "cpu:all": 200.0}


def busy(seconds: dict[tuple[str, str], float]) -> BusyDevices:
    """Return devices that computed for so long."""
    found = BusyDevices(0.0)
    found.seconds |= seconds
    return found


def test_operations_draw_their_own_watts() -> None:
    card = Device("fpga:0", "fpga", HOST, watts=225.0, idle_watts=30.0, achieved=(AchievedRate("spmm", 0.2, 52.0),))
    platform = Platform((card,), (Memory("user"), Memory("host")), {})
    found = busy({("fpga:0", "spmm_float32"): 2.0, ("fpga:0", "other"): 1.0})
    found.ops["spmm_float32"] = "spmm"
    assert modelled(platform, found, 10.0) == {"fpga:0": 2 * 52.0 + 1 * 225.0 + 7 * 30.0}


def test_a_simulation_is_modelled_on_its_own_clock() -> None:
    with cx.Runtime(platform="dype-pcie4", store="off", diagnostics="off"):
        x = cx.array(np.ones((512, 512), np.float32))
        with cx.energy() as used:
            cx.matmul(x, x)
            cx.wait()
    assert not used.measured and used.source.startswith("modelled") and used.why_not == "a simulation draws nothing"
    idle = 90.0 + 3 * 30.0 + 2 * 40.0
    assert used.joules is not None and used.joules > idle * used.seconds > 0.0
    assert used.watts == pytest.approx(used.joules / used.seconds)


def test_real_devices_without_watts_say_so(tmp_path: Path) -> None:
    with cx.Runtime(devices="cpu:0", store="off"):
        x = cx.array(np.ones(1000))
        with EnergyMeter(tmp_path) as used:
            np.asarray(x + 1)
    assert used.joules is None and used.source == "unknown: the platform states no watts"
    with cx.Runtime(devices="cpu:0", store="off", watts="cpu:0=15/3"):
        x = cx.array(np.ones(1000))
        with EnergyMeter(tmp_path) as used:
            np.asarray(x + 1)
    assert used.joules is not None and 3.0 * used.seconds <= used.joules <= 15.0 * used.seconds


def test_zeus_is_asked_where_it_is_and_what_it_counts_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType, SimpleNamespace

    counted = [{0: 5.0}, {0: 1.5}, {0: 2.0}]

    class ZeusMonitor:
        """Counts what the test says, window by window."""

        def begin_window(self, key: str, *, sync_execution: bool) -> None:
            assert key == "coexec" and not sync_execution

        def end_window(self, key: str, *, sync_execution: bool) -> Any:
            assert key == "coexec" and not sync_execution
            return SimpleNamespace(gpu_energy=counted.pop(0) if counted else {}, cpu_energy=None, dram_energy=None)

    module: Any = ModuleType("zeus.monitor")
    module.ZeusMonitor = ZeusMonitor
    monkeypatch.setitem(sys.modules, "zeus", ModuleType("zeus"))
    monkeypatch.setitem(sys.modules, "zeus.monitor", module)
    with EnergyMeter(tmp_path) as used:
        assert used.look().joules == 1.5  # what came before it began does not count
    assert used.joules == 3.5 and used.parts == {"gpu 0": 3.5} and used.measured and used.source == "measured by zeus"
    with EnergyMeter(tmp_path) as used:  # now it gives nothing: no rights, or no counters
        pass
    assert not used.measured and used.joules is None and used.why_not
