"""Links: latency from small copies, bandwidth from large ones, per direction; one outlier moves nothing."""

from __future__ import annotations

import math
import sys
import threading

import pytest
from hypothesis import given, strategies as st

from coexec.machine.platform import Device, Link, Memory, Platform
from coexec.predict.links import ENOUGH, LARGE, WINDOW, Links

TINY = 64


def platform() -> Platform:
    memories = (Memory("host"), Memory("user"), Memory("gpu"))
    links = {(a, b): Link(a, b, 1e-5, 1e9) for a, b in ((0, 2), (2, 0))}
    return Platform((Device("gpu:0", "gpu", 2),), memories, links)


def taught(*copies: tuple[int, float], known: dict[tuple[str, str], tuple[float, float]] | None = None) -> Link:
    """Return the link to the device after these copies (bytes, seconds)."""
    machine = platform()
    links = Links(machine, known or {})
    for at, (nbytes, seconds) in enumerate(copies):  # one after the other
        links.learn(0, 2, nbytes, at * 1e4, at * 1e4 + seconds)
    links.update()
    assert machine.links[2, 0] == Link(2, 0, 1e-5, 1e9)  # the other direction is another link
    return machine.links[0, 2]


def test_small_copies_tell_the_latency_and_large_ones_the_bandwidth() -> None:
    link = taught(*[(TINY, 2e-4)] * ENOUGH, *[(LARGE, 2e-4 + LARGE / 4e9)] * ENOUGH)
    assert link.latency == pytest.approx(2e-4)
    assert link.bandwidth == pytest.approx(4e9, rel=1e-6)


def test_too_few_copies_change_nothing() -> None:
    assert taught(*[(TINY, 1.0)] * (ENOUGH - 1), *[(LARGE, 1.0)] * (ENOUGH - 1)) == Link(0, 2, 1e-5, 1e9)


def test_one_outlier_moves_nothing() -> None:
    good = [(TINY, 2e-4)] * 5 + [(LARGE, 1e-3)] * 5
    moved, link = taught(*good, (TINY, 3.0), (LARGE, 9.0)), taught(*good)
    assert moved.latency == pytest.approx(link.latency) and moved.bandwidth == pytest.approx(link.bandwidth)


def test_a_link_that_changes_is_followed() -> None:
    link = taught(*[(LARGE, 1e-3)] * 100, *[(LARGE, 1e-2)] * (WINDOW // 2 + 1))
    assert link.bandwidth == pytest.approx(LARGE / 1e-2, rel=0.01)


def test_what_is_no_measurement_is_left_out() -> None:
    machine = platform()
    links = Links(machine, {})
    for nbytes, seconds in ((0, 1.0), (LARGE, 0.0), (-5, 1.0), (LARGE, -1.0)):
        for _ in range(ENOUGH):
            links.learn(0, 2, nbytes, 1.0, 1.0 + seconds)
    links.learn(0, 1, LARGE, 0.0, 1.0)  # no such link
    assert links.measured() == {}
    assert machine.links == platform().links


def test_what_is_known_is_taken_and_what_is_measured_given_by_names() -> None:
    machine = platform()
    links = Links(machine, {("host", "gpu"): (3e-4, 5e9), ("host", "elsewhere"): (1.0, 1.0)})
    assert machine.links[0, 2] == Link(0, 2, 3e-4, 5e9)
    assert links.measured() == {}
    for at in range(ENOUGH):
        links.learn(2, 0, TINY, float(at), at + 7e-4)
    ((names, (latency, bandwidth)),) = links.measured().items()
    assert names == ("gpu", "host") and latency == pytest.approx(7e-4) and bandwidth == 1e9


def test_copies_side_by_side_tell_together_how_fast_a_link_is() -> None:
    """Each of them alone would say that it is a fraction as fast."""
    machine = platform()
    links = Links(machine, {})
    for turn in range(2 * ENOUGH):
        for _ in range(4):
            links.learn(0, 2, LARGE, float(turn), turn + 4 * LARGE / 4e9)
        for _ in range(3):
            links.learn(0, 2, TINY, turn + 0.5, turn + 0.5 + 3e-3)  # none of these was alone
            links.update()
    links.update()
    assert machine.links[0, 2].bandwidth == pytest.approx(4e9, rel=0.05)
    assert machine.links[0, 2].latency == 1e-5


@given(st.lists(st.tuples(st.integers(1, 1 << 30), st.floats(1e-9, 1e3)), max_size=100))
def test_whatever_is_measured_a_link_stays_one(copies) -> None:
    link = taught(*copies)
    assert link.latency > 0 and link.bandwidth > 0
    assert math.isfinite(link.latency) and math.isfinite(link.bandwidth)


def test_several_threads_teach_at_once() -> None:
    machine = platform()
    links = Links(machine, {})
    failed: list[BaseException] = []

    def teach(source: int, target: int) -> None:
        try:
            for turn in range(2000):
                links.learn(source, target, LARGE if turn % 2 else TINY, float(turn), turn + 1e-3)
                links.update()
        except BaseException as error:
            failed.append(error)

    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=teach, args=pair) for pair in ((0, 2), (2, 0), (0, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(pause)
    assert not failed
    assert 0.0 < machine.links[0, 2].latency < 3e-3


def test_a_link_is_as_late_as_those_who_wait_for_it_are_and_as_fast_as_its_copies() -> None:
    machine = platform()
    links = Links(machine, {})
    for at in range(ENOUGH):
        links.learn(0, 2, LARGE, float(at), at + 1e-4)
        links.delayed(0, 2, 4e-4)
    links.delayed(0, 1, 1.0)  # no such link
    for _ in range(3):  # what was corrected does not correct itself again
        links.learn(0, 2, LARGE, 9.0 + _, 9.0 + _ + 1e-4)
        links.update()
    assert machine.links[0, 2].latency == pytest.approx(4e-4)
    assert machine.links[0, 2].bandwidth == pytest.approx(LARGE / (1e-4 - 1e-5))
    assert links.measured() == {("host", "gpu"): (machine.links[0, 2].latency, machine.links[0, 2].bandwidth)}
