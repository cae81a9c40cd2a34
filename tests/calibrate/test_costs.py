from __future__ import annotations

from math import isfinite

from coexec.calibrate.costs import measured_costs


def test_the_cost_of_scheduling_is_measured_for_every_part_of_it() -> None:
    costs = measured_costs(calls=20, rounds=1)
    parts = [costs.submission, costs.instruction, costs.completion, costs.wake, costs.step, costs.part]
    assert all(isfinite(seconds) and seconds >= 0.0 for seconds in parts)
    assert costs.submission + costs.instruction > 0.0  # a busy machine may hide one behind the other
    assert costs.step > 0.0
    assert not costs.live


def test_what_follows_a_kernel_is_measured_by_the_bytes_that_it_touched() -> None:
    touched, seconds = zip(*measured_costs(calls=20, rounds=1).cold, strict=True)
    assert list(touched) == sorted(touched)
    assert touched[0] < 2e6
    assert touched[-1] > 5e7
    assert min(seconds) > 0.0
