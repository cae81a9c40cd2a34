"""Many simulated ranks: what strong and weak scaling mean, for every application, and their picture."""

from __future__ import annotations

import pytest

from coexec.bench.cluster import scaling
from coexec.bench.cluster.scaling import APPS, SIZE, picture, points, seconds


@pytest.mark.parametrize("name", APPS)
def test_more_ranks_are_faster_and_no_faster_than_they_can_be(name: str) -> None:
    one, four = points(name, "strong", (1, 4))
    assert (one["ranks"], one["speed_up"], one["efficiency"]) == (1, 1.0, 1.0)
    assert one["step_s"] == seconds(name, SIZE, 1)
    assert four["speed_up"] == pytest.approx(one["step_s"] / four["step_s"]) == pytest.approx(4 * four["efficiency"])
    assert 0.5 < four["efficiency"] <= 1.0


def test_in_weak_scaling_each_rank_has_as_much_to_do_as_one_alone() -> None:
    one, four = points("wave_sim", "weak", (1, 4))
    assert four["efficiency"] == pytest.approx(one["step_s"] / four["step_s"])
    assert four["step_s"] == seconds("wave_sim", 4, 4) >= one["step_s"] == seconds("wave_sim", 1, 1)


def test_a_picture_has_a_panel_for_each_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "RANKS", (1, 2))
    monkeypatch.setattr(scaling, "APPS", {"wave_sim": APPS["wave_sim"]})
    said: list[str] = []
    found = scaling.measure(said.append, quick=True, full=False)
    assert [(case["app"], case["kind"]) for case in found["cases"]] == [("wave_sim", "strong"), ("wave_sim", "weak")]
    assert len(said) == 2
    drawn = picture({"scaling": found})
    assert drawn.startswith("<svg") and "wave_sim, weak scaling" in drawn and "Simulated ranks" in drawn
