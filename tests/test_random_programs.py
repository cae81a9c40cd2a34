"""Random programs against sequential NumPy: every mix of devices, with failures, cancellations, holds and threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import coexec as cx
from tests.devices import MIXED, TWO
from tests.twin import Twin

CALM = ("new", "drop", "axpy", "axpy", "shifted", "stencil", "stencil", "scale", "reduce", "assign", "assign", "ufunc")
LOOKS = ("look", "look", "look_at_sum", "host_task", "wait")
TROUBLE = ("fail", "fail", "cancel", "cancel")
HOLDS = ("hold", "release")

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


def programs(*kinds: str, size: int = 30) -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    number = st.integers(0, 10**4)
    return st.lists(st.tuples(st.sampled_from(kinds), number, number, number), min_size=1, max_size=size)


def check(strategy: Any, make: Any, examples: int) -> None:
    """Run random programs in the current runtime."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def random_program(program):
        make().run(program)

    random_program()


def troubled(**options: Any) -> Twin:
    """Return a program of undivided tasks on views without steps: what a failure poisons is one box."""
    return Twin(**{"steps": (1, 1, -1), "split": False, **options})


@contextmanager
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("options", [{}, {"inline": False}, {"horizon": 3}, {"debug": True}], ids=str)
@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_programs_without_trouble(devices, options) -> None:
    with cx.Runtime(devices, **options), eager_switching():
        check(programs(*CALM, *LOOKS), lambda: Twin(devices=(None, devices)), 60)


@pytest.mark.parametrize("lanes", ["same-as-parent", "always-new", "disjoint+reuse"])
@pytest.mark.parametrize("placement", ["round-robin", "least-busy", "min-transfer-size"])
def test_programs_under_every_policy(placement, lanes) -> None:
    with cx.Runtime(TWO, placement=placement, lanes=lanes):
        check(programs(*CALM, *LOOKS), lambda: Twin(devices=(None, TWO)), 15)


@pytest.mark.parametrize("options", [{}, {"inline": False}, {"horizon": 3}], ids=str)
@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_programs_with_failures_and_cancellations(devices, options) -> None:
    with cx.Runtime(devices, **options), eager_switching():
        check(programs(*CALM, *LOOKS, *TROUBLE), troubled, 60)


def test_programs_in_sync_mode() -> None:
    with cx.Runtime(TWO, sync=True):
        check(programs(*CALM, *LOOKS, *TROUBLE), troubled, 60)


@pytest.mark.parametrize("devices", ["cpu:0", TWO])
def test_programs_that_run_past_a_held_task(devices) -> None:
    with cx.Runtime(devices, inline=False):
        check(programs(*CALM, *LOOKS, *HOLDS, *HOLDS), lambda: Twin(devices=(None, devices)), 60)
        check(programs(*CALM, *LOOKS, *HOLDS, *TROUBLE), troubled, 40)


@pytest.mark.parametrize("memory", ["own", "shared"])
def test_programs_on_a_core_and_an_opencl_device(memory) -> None:
    with cx.Runtime(MIXED, memory={"opencl:0": memory}), eager_switching():
        devices = (None, "cpu:0", "opencl:0", "cpu:0,opencl:0")
        check(programs(*CALM, *LOOKS), lambda: Twin(devices=devices, overlap=False), 60)
        check(
            programs(*CALM, *LOOKS, *TROUBLE),
            lambda: troubled(devices=devices[:3], overlap=False),
            40,
        )


@pytest.mark.parametrize("devices", ["cpu:0", TWO, MIXED])
def test_two_threads_run_programs_on_their_own_arrays(devices) -> None:
    calm = [kind for kind in (*CALM, *LOOKS) if kind not in ("wait", "host_task")]
    strategy = st.tuples(programs(*calm), programs(*calm))
    with cx.Runtime(devices), eager_switching():

        @settings(max_examples=25, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def side_by_side(both):
            errors: list[BaseException] = []
            start = threading.Barrier(2)

            def run(program):
                start.wait()
                try:
                    Twin(overlap=False).run(program)
                except BaseException as error:
                    errors.append(error)
                    start.abort()  # the other must not wait for ever

            threads = [threading.Thread(target=run, args=(program,)) for program in both]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if errors:
                raise errors[0]

        side_by_side()
