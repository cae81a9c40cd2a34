from __future__ import annotations

from math import isfinite

from coexec.calibrate.costs import measured_costs


def test_the_cost_of_scheduling_is_measured_per_submission_instruction_and_completion() -> None:
    costs = measured_costs(calls=20, rounds=1)
    assert all(isfinite(seconds) and seconds >= 0.0 for seconds in costs)
    assert costs.submission > 0.0
