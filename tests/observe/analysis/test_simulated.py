"""What a simulated run answers beside its times, from rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from coexec.observe.analysis.simulated import durations, efficiency, simulated, trust
from coexec.observe.report import summary
from tests.observe.stories import Story


def story(*sources: str, **closing: Any) -> Story:
    made = Story((("gpu:0", []), ("gpu:1", [])))
    made.rows[0] |= {"virtual": True, "options": {"platform": "a100x4", "execute": False}}
    for source in sources:
        made.run("kernel", f"k {source}", "gpu:0", 1.0, task=made.task("k"))
        made.rows[-1]["source"] = source
    if closing:
        made.rows.append({"row": "simulation", **closing})
    return made


def test_a_real_run_has_no_answers_of_a_simulation() -> None:
    assert simulated(Story().trace()) is None
    assert summary(Story().trace())["simulation"] is None


def test_energy_is_told_by_device_and_in_all_with_those_that_state_no_watts() -> None:
    found = simulated(story("roofline", joules={"gpu:0": 6.0}, no_watts=["gpu:1"], seconds=2.0).trace())
    assert found is not None
    assert found["energy"] == {"total": 6.0, "mean_watts": 3.0, "devices": {"gpu:0": 6.0}, "no_watts": ["gpu:1"]}
    nobody = simulated(story("roofline", joules={}, no_watts=["gpu:0", "gpu:1"], seconds=2.0).trace())
    assert nobody is not None
    assert nobody["energy"]["total"] is None


def test_a_run_that_was_cut_off_has_no_energy_but_still_its_durations() -> None:
    found = simulated(story("roofline").trace())
    assert found is not None
    assert (found["energy"], found["platform"]) == (None, "a100x4")
    assert found["durations"]["roofline"]["count"] == 1


def test_durations_are_counted_by_how_they_are_known() -> None:
    found = durations(story("roofline", "roofline", "default").trace())
    assert list(found) == ["roofline", "default"]
    assert found["roofline"] == {
        "count": 2,
        "seconds": 2.0,
        "share": pytest.approx(2 / 3),
        "kernels": {"k roofline": 2},
    }


def test_an_answer_that_rests_on_guesses_says_so_plainly() -> None:
    assert "guess of 1 ms per kernel (k default), so the answer means little" in trust(
        durations(story("default", "measured").trace())
    )
    assert "lower bound" in trust(durations(story("roofline", "measured").trace()))
    assert trust(durations(story("measured", "measured", "scaled from x").trace())) == (
        "67% of the kernel time is measured, 33% scaled from measurements by peak rates"
    )
    assert trust(durations(story("measured").trace())) == "100% of the kernel time is measured"
    assert trust(durations(story("given").trace())) == trust({}) == ""


def test_efficiency_is_useful_time_over_devices_and_a_wide_device_counts_as_its_cores() -> None:
    assert efficiency(story("roofline", "roofline").trace(), {"gpu:0": 2.0}) == 0.5
    made = Story((("cpu:0", [0]), ("cpu:1", [1]), ("cpu:all", [0, 1])))
    made.rows[0]["devices"][2]["wide"] = True
    made.run("kernel", "a", "cpu:all", 2.0, task=made.task("a"))
    made.run("kernel", "b", "cpu:0", 2.0, task=made.task("b"), late=2.0)
    assert efficiency(made.trace(), {"cpu:all": 2.0, "cpu:0": 2.0}) == pytest.approx(6.0 / 8.0)
