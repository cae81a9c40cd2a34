"""Kernels that share a device teach models what they would take alone."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.bench.plan import exact
from coexec.bench.plan.harness import simulated
from coexec.machine.platform import Platform
from coexec.observe.learning import Shared, Spans

MOMENTS = st.integers(0, 20).map(float)
SPANS = st.lists(st.tuples(MOMENTS, MOMENTS.filter(bool)).map(lambda s: (s[0], s[0] + s[1])), min_size=1, max_size=8)


def test_kernels_one_after_the_other_have_all_of_their_time() -> None:
    shared = Shared([(0.0, 2.0), (2.0, 3.0), (5.0, 9.0)])
    assert [shared.seconds(0.0, 2.0), shared.seconds(2.0, 3.0), shared.seconds(5.0, 9.0)] == [2.0, 1.0, 4.0]


def test_kernels_at_once_share_their_time_and_who_goes_on_alone_has_the_rest() -> None:
    shared = Shared([(0.0, 10.0), (0.0, 20.0)])
    assert (shared.seconds(0.0, 10.0), shared.seconds(0.0, 20.0)) == (5.0, 15.0)


@given(SPANS)
def test_shares_are_the_time_that_the_device_was_busy(spans: Spans) -> None:
    shared = Shared(list(spans))
    each = [shared.seconds(*span) for span in spans]
    assert all(0.0 < share <= stop - start + 1e-9 for share, (start, stop) in zip(each, spans, strict=True))
    busy = sum(any(start <= moment < stop for start, stop in spans) for moment in range(40))
    assert abs(sum(each) - busy) < 1e-9


def test_the_limit_of_a_step_holds_though_kernels_of_several_turns_overlap() -> None:
    platform = Platform.load("workstation")
    chain = next(program for program in exact.programs(quick=True) if program.name == "chain")
    ran = simulated(platform, [device.name for device in platform.devices], chain)
    assert 0.0 < ran.planning["bound_s"] <= ran.period * 1.001
