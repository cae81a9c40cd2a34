"""Host tasks: effects outside of arrays, in the program's order."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError
from tests.devices import MIXED, TWO
from tests.holding import closed_gate, pass_gate


@cx.kernel(x=cx.update)
def increment(x):
    x += 1


@pytest.mark.parametrize("devices", [TWO, MIXED])
def test_effects_happen_in_program_order_and_see_the_arrays_of_their_place(devices) -> None:
    seen: list[float] = []

    @cx.host_task(x=cx.read)
    def note(x, into):
        into.append(float(x[0]))

    with cx.Runtime(devices):
        x = cx.zeros(1000)
        for _ in range(50):
            increment(x)
            note(x, seen)
        cx.wait()
    assert seen == [float(i) for i in range(1, 51)]


def test_host_tasks_without_common_arrays_keep_their_order() -> None:
    seen: list[int] = []

    @cx.host_task(x=cx.read)
    def note(x, number):
        if number == 0:
            pass_gate("first host task")
        seen.append(number)

    with cx.Runtime(TWO):
        arrays = [cx.zeros(3) for _ in range(10)]
        with closed_gate("first host task"):
            for number, x in enumerate(arrays):
                note(x, number)
        cx.wait()
    assert seen == list(range(10))


def test_orders_are_independent_and_none_is_free() -> None:
    seen: list[str] = []

    def note(text, gate=""):
        pass_gate(gate)
        seen.append(text)

    a, b, free = (cx.host_task(order=order)(note) for order in ("a", "b", None))
    with cx.Runtime(TWO):
        with closed_gate("order a") as gate:
            a("a1", "order a")
            gate.wait_for_arrival()
            last = a("a2")
            b("b1").result()
            free("free").result()
            assert not last.done()
            assert seen == ["b1", "free"]
        cx.wait()
    assert seen == ["b1", "free", "a1", "a2"]


def test_a_read_is_not_held_up_by_host_tasks_of_other_arrays() -> None:
    @cx.host_task(order=None, x=cx.update)
    def long(x):
        pass_gate("long host task")
        x += 1

    with cx.Runtime(TWO):
        x, y, z = cx.zeros(3), cx.zeros(3), cx.zeros(3)
        increment(z)
        with closed_gate("long host task"):
            tasks = [long(x), long(y)]
            assert np.asarray(z).tolist() == [1, 1, 1]
            assert not any(task.done() for task in tasks)
        assert np.asarray(x).tolist() == np.asarray(y).tolist() == [1, 1, 1]


def test_a_host_task_may_write_arrays_and_takes_any_object() -> None:
    @cx.host_task(x=cx.update)
    def load(x, source):
        x[...] = source["values"]

    with cx.Runtime(TWO):
        x = cx.zeros(3)
        load(x, {"values": [1, 2, 3]})
        increment(x)
        assert np.asarray(x).tolist() == [2, 3, 4]


def test_host_tasks_take_views_and_mappers_do_not_narrow_them() -> None:
    shapes = []

    @cx.host_task(x=cx.read(cx.halo(1)))
    def note(x):
        shapes.append(x.shape)

    with cx.Runtime(TWO):
        note(cx.zeros((4, 6))[1:3, ::2]).result()
    assert shapes == [(2, 3)]
    with pytest.raises(ArgumentError, match="cannot reduce"):
        cx.host_task(x=cx.reduce("sum"))(lambda x: None)


def test_a_failing_host_task_is_reported_and_later_ones_run() -> None:
    seen = []

    @cx.host_task(x=cx.read)
    def note(x, number):
        if number == 1:
            raise OSError("disk full")
        seen.append(number)

    with cx.Runtime(TWO):
        x = cx.zeros(3)
        tasks = [note(x, number) for number in range(4)]
        with pytest.raises(OSError, match="disk full"):
            tasks[1].result()
        tasks[3].result()
    assert seen == [0, 2, 3]


def test_returned_values_of_host_tasks_are_ignored() -> None:
    with cx.Runtime("cpu:0"):
        task = cx.host_task()(lambda: 5)()
        assert task.exception() is None
