"""Programs whose data does not fit: on devices whose memories are limited by the user, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import coexec as cx
from coexec.backend.machine import Machine, open_machine
from coexec.errors import DoesNotFit
from coexec.graph.instruction import Allocation
from tests.devices import MIXED

N = 300_000  # elements: 2.4 MB of float64
LIMIT = {"opencl:0": "1MB"}

pytestmark = pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(a, x, y):
    y += a * x


axpy.opencl("y(i) += a * x(i);")


@cx.kernel(x=cx.read, y=cx.update)
def whole(x, y):
    y += x


whole.opencl("y(i) += x(i);")


@cx.kernel(x=cx.read, returns=cx.like("x"))
def temporary(x):
    return x


def evictions(runtime: cx.Runtime) -> int:
    return sum(account.evictions for account in runtime._driver.scheduler.lowering.coherence.budget.open)


def test_data_several_times_larger_than_the_device_completes_and_is_numpys(tmp_path: Path) -> None:
    plain = np.arange(float(N))
    with cx.Runtime("opencl:0", memory=LIMIT, trace=tmp_path / "trace.json") as runtime:
        x, y = cx.array(plain), cx.ones(N)
        for _ in range(3):
            axpy(2.0, x, y)
        np.testing.assert_array_equal(np.asarray(y), 1 + 6 * plain)
        assert evictions(runtime) > 10
    rows = json.loads((tmp_path / "trace.json").read_text())
    text = json.dumps(rows)
    assert '"evict"' in text


def test_expressions_larger_than_the_device_complete() -> None:
    plain = np.arange(float(N))
    with cx.Runtime("opencl:0", memory=LIMIT):
        x = cx.array(plain)
        np.testing.assert_array_equal(np.asarray((x * 2 + x) * x), (plain * 2 + plain) * plain)


@pytest.mark.parametrize("policy", ["static", "even", "dynamic", "auto"])
def test_a_core_and_a_small_device_divide_work_by_every_policy(policy: str) -> None:
    plain = np.arange(float(N))
    with cx.Runtime(MIXED, memory=LIMIT, policy=policy):
        x, y = cx.array(plain), cx.ones(N)
        for _ in range(6):
            axpy.using(devices="cpu:0,opencl:0")(1.0, x, y)
        np.testing.assert_array_equal(np.asarray(y), 1 + 6 * plain)


def test_what_a_device_cannot_hold_goes_to_one_that_can() -> None:
    with cx.Runtime(MIXED, memory=LIMIT, placement="round-robin"):
        x, y = cx.ones(N), cx.zeros(N)
        for _ in range(4):
            whole(x, y)
        assert (np.asarray(y) == 4).all()


def test_what_no_device_holds_is_refused_at_the_call_and_the_program_goes_on() -> None:
    with cx.Runtime("opencl:0", memory=LIMIT):
        x, y = cx.ones(N), cx.zeros(N)
        with pytest.raises(
            DoesNotFit, match=r"task 'whole' needs 4\.6 MiB in memory 'opencl:0', which has 1\.0 MiB"
        ) as caught:
            whole(x, y)
        assert caught.value.needs == 16 * N and caught.value.has == 10**6
        axpy(3.0, x, y)
        assert (np.asarray(y) == 3).all()


def test_tasks_that_evict_each_others_operands_take_turns() -> None:
    """starpu#38."""
    small = 100_000
    with cx.Runtime("opencl:0", memory=LIMIT) as runtime:
        a, b = cx.zeros(small), cx.zeros(small)
        one = cx.ones(1)
        for _ in range(10):
            axpy(1.0, one, a[:1])
            a += 1.0
            b += 1.0
        assert (np.asarray(b) == 10).all() and np.asarray(a)[0] == 20
        assert evictions(runtime) > 10


def test_many_temporaries_fit_into_a_memory_of_a_few() -> None:
    with cx.Runtime("null", memory={"null:0": "1MB"}) as runtime:
        x = cx.ones(5_000)  # 40 kB: 25 of them fill the memory
        for _ in range(5_000):
            temporary(x)
        runtime.wait()
        (account,) = runtime._driver.scheduler.lowering.coherence.budget.open
        assert account.evictions == 0 and account.waits > 2_500
        assert account.held <= 80_000 and len(account.freed) < 30


def test_a_limited_host_waits_for_what_was_dropped_and_refuses_what_is_too_much() -> None:
    with cx.Runtime("cpu:0", memory={"host": "4MB"}):
        for number in range(20):
            x = cx.array(np.full(100_000, float(number)))
            assert np.asarray(x + 1)[0] == number + 1
        kept = [x]
        with pytest.raises(DoesNotFit, match=r"an array of shape \(100000,\).* drop arrays that are not needed"):
            kept += [cx.array(np.zeros(100_000)) for _ in range(6)]
        del kept[1:]
        assert np.asarray(cx.array(np.ones(100_000))).sum() == 100_000
        assert np.asarray(x)[0] == 19


class Fragmented:
    """A memory that refuses whatever its budget admits, until something was freed."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.refused = 0
        self.live = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def allocate(self, allocation: Allocation) -> None:
        if self.live:
            self.refused += 1
            raise DoesNotFit(repr(allocation), "null:0", allocation.nbytes, 0)
        self.live += 1

    def release(self, allocation: Allocation) -> None:
        self.live -= 1


def test_an_allocation_that_fails_although_it_should_fit_is_tried_again_after_open_frees() -> None:
    machine = open_machine("null")
    memory = Fragmented(machine.memories[2])
    machine = Machine(machine.platform, machine.lanes, {**machine.memories, 2: memory})
    with cx.Runtime(machine=machine) as runtime:
        for _ in range(3):
            a = cx.empty(10)
            temporary_write(a)
            del a
        runtime.wait()
        assert memory.refused >= 2 and memory.live == 0


@cx.kernel(y=cx.write)
def temporary_write(y):
    y[...] = 1


number = st.integers(0, 5)


@pytest.mark.parametrize("limit", ["8kB", "30kB"])
def test_random_programs_in_a_small_memory_give_numpys_results_or_the_clear_error(limit: str) -> None:
    with cx.Runtime("opencl:0", memory={"opencl:0": limit}):

        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.tuples(st.sampled_from(["axpy", "whole", "scale", "new", "look"]), number, number)))
        def random_program(steps: list[tuple[str, int, int]]) -> None:
            plain = [np.arange(1000.0) + i for i in range(6)]
            arrays = [cx.array(p) for p in plain]
            for kind, i, j in steps:
                if kind == "axpy" and i != j:
                    axpy(2.0, arrays[i], arrays[j])
                    plain[j] = plain[j] + 2.0 * plain[i]
                elif kind == "whole" and i != j:
                    try:
                        whole(arrays[i], arrays[j])
                    except DoesNotFit:
                        continue
                    plain[j] = plain[j] + plain[i]
                elif kind == "scale":
                    arrays[i], plain[i] = arrays[i] * 0.5 + arrays[j], plain[i] * 0.5 + plain[j]
                elif kind == "new":
                    plain[i] = np.full(1000, float(j))
                    arrays[i] = cx.array(plain[i])
                else:
                    np.testing.assert_array_equal(np.asarray(arrays[i]), plain[i])
            for array, expected in zip(arrays, plain, strict=True):
                np.testing.assert_array_equal(np.asarray(array), expected)

        random_program()


@pytest.mark.parametrize(
    ("needs", "has", "said"),
    [
        (1_700_000, 1_690_000, "needs 1.621 MiB in memory 'gpu', which has 1.612 MiB;"),
        (1_700_001, 1_700_000, "needs 1,700,001 bytes in memory 'gpu', which has 1,700,000 bytes;"),
        (5 << 30, 800, "needs 5,120.0 MiB in memory 'gpu', which has 800 bytes;"),
        (4_000, 0, "needs 4,000 bytes in memory 'gpu', which has 0 bytes;"),
    ],
)
def test_the_error_shows_as_many_digits_as_tell_the_sizes_apart(needs: int, has: int, said: str) -> None:
    assert said in str(DoesNotFit("it", "gpu", needs, has))


@cx.kernel(split=0, y=cx.write)
def seven(y):
    y[...] = 7


seven.opencl("y(i) = 7;")


def test_what_a_call_has_written_is_lost_if_it_fails_half_way() -> None:
    """Results are written back to a host that has room for half of them."""
    with cx.Runtime("opencl:0", memory={"opencl:0": "8kB", "host": "80kB"}):
        y = cx.zeros(20_000)
        with pytest.raises(DoesNotFit, match="in memory 'host', which has 0 bytes; drop arrays"):
            seven(y)
        with pytest.raises(cx.TaskFailed, match="seven cannot run"):
            np.asarray(y[:100])


@cx.kernel(split=0, over="y", x=cx.read(lambda c: slice(0, 100 * c.hi[0])), y=cx.write)
def rising(x, y):
    y[...] = x.sum()


def test_a_call_that_is_refused_after_it_returned_tells_the_sizes_where_its_results_are_read() -> None:
    with cx.Runtime("null:1", memory={"null:0": "4kB"}, lookahead="infinite", diagnostics="off"):
        x, y = cx.array(np.ones(1000)), cx.zeros(20)
        rising(x, y[:10])  # held back: its last row is found not to fit when it is lowered
        with pytest.raises(DoesNotFit, match="rising cannot run: the part of task 'rising' with row") as caught:
            np.asarray(y)
        assert isinstance(caught.value, cx.TaskFailed)
        assert caught.value.needs > caught.value.has == 4000
