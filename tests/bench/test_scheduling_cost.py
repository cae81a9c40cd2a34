"""What scheduling costs is measured on the programs themselves; what can be counted is exact."""

from __future__ import annotations

import pytest

from coexec.bench import schedule
from coexec.bench.schedule import PROGRAMS, case
from coexec.execute.holding import Holding


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy machine look like a program that pauses, which ends lookahead; and repeat little: counts are looked at."""
    monkeypatch.setattr(Holding, "let_go", lambda *_: True)
    monkeypatch.setattr(schedule, "MOST_INSTRUCTIONS", 1_000)


@pytest.mark.parametrize(("app", "allocations", "copies"), [("wave_sim", 2, 6), ("nbody", 3, 12), ("rsim", 1, 11.8)])
def test_on_four_devices_each_array_is_allocated_once_and_halos_move_once(app, allocations, copies):
    found = case(PROGRAMS[app](4), 4, 100)
    assert found["allocations"] == allocations  # per device
    assert found["copies"] == pytest.approx(copies)
    assert found["instructions"] == pytest.approx(4 + copies, abs=0.05)  # a horizon now and then
