"""What scheduling costs is measured on the programs themselves; what can be counted is exact."""

from __future__ import annotations

import pytest

from coexec.bench.schedule import PROGRAMS, case


@pytest.mark.parametrize(("app", "allocations", "copies"), [("wave_sim", 2, 6), ("nbody", 3, 12), ("rsim", 1, 11.8)])
def test_on_four_devices_each_array_is_allocated_once_and_halos_move_once(app, allocations, copies):
    found = case(PROGRAMS[app](4), 4, 100)
    assert found["allocations"] == allocations  # per device
    assert found["copies"] == pytest.approx(copies)
    assert found["instructions"] == pytest.approx(4 + copies, abs=0.05)  # a horizon now and then
