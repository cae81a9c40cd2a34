"""Random programs on several ranks of a simulated cluster, in one process, against sequential NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import coexec as cx
from coexec.ranked import Ranked
from tests.clusters import cluster
from tests.test_ranked import smooth
from tests.twin import Twin

CALM = ("new", "drop", "axpy", "axpy", "shifted", "stencil", "stencil", "scale", "reduce", "assign", "assign", "ufunc")
LOOKS = ("look", "look_at_sum", "host_task", "wait")
TROUBLE = ("fail", "fail")
LOOP = ("axpy", "axpy", "shifted", "stencil", "scale", "reduce", "assign")

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


def check(kinds: tuple[str, ...], make: Any, examples: int) -> None:
    """Run random programs in the current runtime."""
    number = st.integers(0, 10**4)
    programs = st.lists(st.tuples(st.sampled_from(kinds), number, number, number), min_size=1, max_size=25)

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(programs)
    def random_program(program):
        make().run(program)

    random_program()


@pytest.mark.parametrize("options", [{}, {"policy": "even"}, {"horizon": 3}, {"lookahead": "none"}], ids=str)
@pytest.mark.parametrize(("nodes", "gpus"), [(2, 1), (3, 2)])
def test_every_rank_computes_what_numpy_computes(nodes, gpus, options) -> None:
    with cx.Runtime(platform=cluster(nodes, gpus), ranks=nodes, execute=True, **options):
        check((*CALM, *LOOKS), Twin, 15)


def test_a_failure_on_one_rank_reaches_whoever_waits_for_its_results() -> None:
    with cx.Runtime(platform=cluster(3, 1), ranks=3, execute=True):
        check((*CALM, *LOOKS, *TROUBLE), lambda: Twin(steps=(1, 1, -1), split=False), 25)


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(LOOP), *[st.integers(0, 10**4)] * 3), min_size=1, max_size=4),
    st.integers(5, 15),
    st.sampled_from([(2, 2), (3, 1)]),
)
def test_loops_are_replayed_and_compute_the_same(body, times, shape) -> None:
    nodes, gpus = shape
    with cx.Runtime(platform=cluster(nodes, gpus), ranks=nodes, execute=True, horizon=20) as runtime:
        Twin().run([*body * times, ("look", 1, 2, 3), *body * times])
        assert isinstance(runtime, cx.Runtime)


def test_every_rank_replays_a_loop() -> None:
    data = np.random.default_rng(3).random(60)
    with cx.Runtime(platform=cluster(3), ranks=3, execute=True) as runtime:
        u, v = cx.array(data), cx.zeros(60)
        for _ in range(40):
            smooth(u, v)
            u, v = v, u
        got = np.asarray(u)
        assert isinstance(runtime, Ranked)
        assert [member._replay.tasks > 15 for member in runtime.members] == [True] * 3
    a, b = data.copy(), np.zeros(60)
    for _ in range(40):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a, b = b, a
    np.testing.assert_array_equal(got, a)
