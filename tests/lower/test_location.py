"""Where arrays are, and how host access changes it: behaviours G14 to G20 and G49 of the GrCUDA reference."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ConfigError
from coexec.geometry import Box, Region
from coexec.lower.lowering import Lowering
from coexec.lower.state import FILL, ArrayState
from coexec.machine.platform import HOST, USER, Memory, Platform
from coexec.program.array import Array
from coexec.testing import GraphBuilder


def places(array: Array) -> set[int]:
    """Return the memories that hold all of a view's present value."""
    state: ArrayState = array._storage.state
    masks = [mask & ~FILL for _, mask in state.valid.get(array._box)]
    return {memory for memory in range(8) if all(mask >> memory & 1 for mask in masks)}


def test_a_host_read_of_what_kernels_only_read_waits_for_none_of_them() -> None:
    """G14: the read goes beside the kernels; a host write is ordered behind them."""
    g = GraphBuilder(1, shared=True)
    x = g.array(10, data=np.arange(10.0))
    reader = g.kernels(g.call("use", reads=x, writes=g.array(10))).only()
    fence = g.of(g.read(x)).of("fence").only()
    write = g.kernels(g.call("write", writes=x)).only()
    assert g.emitted_graph.concurrent(reader, fence)
    assert g.emitted_graph.ordered(reader, write) and g.emitted_graph.ordered(fence, write)


def test_without_declared_reads_every_access_is_ordered() -> None:
    """G16."""
    g = GraphBuilder(1, shared=True)
    x = g.array(10, data=np.arange(10.0))
    user = g.kernels(g.call("use", updates=x)).only()
    fence = g.of(g.read(x)).of("fence").only()
    assert g.emitted_graph.ordered(user, fence)


def test_a_host_write_after_a_reader_leaves_the_array_on_the_host_only() -> None:
    """G17."""
    g = GraphBuilder(2)
    x = g.array(10, data=np.arange(10.0))
    g.call("use", reads=x, writes=g.array(10), on="dev:0")
    assert places(x) == {HOST, 2}
    g.host_task("write", writes=x)
    assert places(x) == {HOST}
    assert g.edges() == 1 and g.parents(g.tasks[1]) == {"use"}


def test_a_new_array_is_where_it_was_given_or_nowhere() -> None:
    """G18: ours allocates nothing before it is touched."""
    g = GraphBuilder()
    assert places(g.array(10, data=np.zeros(10))) == {HOST}
    assert places(g.array(10, data=np.zeros(10), borrowed=True)) == {USER}
    assert places(g.array(10)) == places(g.array(10, 1.0)) == set()
    assert g.instructions.kinds == ["epoch"]


def test_views_and_their_base_see_each_others_places() -> None:
    """G19: ours by box, so that a view may be somewhere its base is not in whole."""
    g = GraphBuilder(2)
    x = g.array(10, data=np.zeros(10))
    left, right = x[:5], x[5:]
    g.call("base", updates=x, on="dev:0")
    assert places(left) == places(right) == places(x) == {2}
    g.call("view", updates=right, on="dev:1")
    assert places(left) == {2} and places(right) == {3} and places(x) == set()
    g.call("again", reads=x, writes=g.array(10), on="dev:0")
    assert places(x) == {2} and places(right) == {2, 3}


def test_reads_add_places_and_writes_leave_one() -> None:
    """G20."""
    g = GraphBuilder(2)
    x, y = g.array(10, data=np.zeros(10)), g.array(10)
    g.call("use", reads=x, writes=g.array(10), on="dev:0")
    g.call("use", reads=x, writes=g.array(10), on="dev:1")
    assert places(x) == {HOST, 2, 3}
    g.host_task("write", updates=x)
    assert places(x) == {HOST}
    g.call("make", writes=y, on="dev:0")
    assert places(y) == {2}
    g.read(y)
    assert places(y) == {HOST, 2}


def test_a_copy_between_arrays_reads_one_and_writes_the_other() -> None:
    """G49: and a copy from the host program's own array depends on its target only."""
    g = GraphBuilder(1, shared=True)
    with g:
        source, target, later = cx.zeros(10), cx.zeros(10), cx.zeros(10)
        g.call("make", updates=source)
        g.call("fill", updates=target)
        target[...] = source
        g.call("over", updates=source)
        later[...] = np.arange(10.0)
        target[2:4] = np.ones(2)
    parents = [g.parents(task) for task in g.tasks]
    assert parents == [set(), set(), {"make", "fill"}, {"copy"}, set(), {"copy"}]


def test_inputs_move_before_their_kernel_is_next() -> None:
    """Prefetch: a copy waits for nothing but its data, so it runs while the kernels before its reader do."""
    g = GraphBuilder(1)
    x, busy = g.array(10, data=np.zeros(10)), g.array(10)
    long = g.kernels(g.call("long", writes=busy)).only()
    g.call("use", reads=x, updates=busy)
    copy = g.instructions.of("copy", array=x).only()
    assert g.emitted_graph.concurrent(long, copy) and copy.step.priority > long.step.priority


def test_what_any_of_many_memories_holds_is_copied_and_not_made_anew() -> None:
    """One bit stands for the initial value; no memory may have the same, however many there are."""
    g = GraphBuilder(200)
    memories = range(HOST + 1, HOST + 201)
    for memory, device in zip(memories, g.devices, strict=True):
        x = g.array(10)
        g.call("make", writes=x, on=device)
        assert x._storage.state.places(x._box) == [(x._box, 1 << memory)]
        g.read(x)
        assert g.instructions.of("copy", array=x, to=HOST).only().step.source.memory == memory


def test_more_memories_than_there_are_bits_for_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"1,034 memories, and one program can use 1,023; take fewer nodes"):
        Lowering(Platform((), (Memory("user"), *[Memory(f"memory {i}") for i in range(1033)])))


def test_a_divided_read_moves_to_each_device_only_its_part() -> None:
    g = GraphBuilder(2)
    x = g.array(10, data=np.arange(10.0))
    g.call("use", reads=x, writes=g.array(10), on="all")
    assert g.instructions.of("copy", to=2).copied == Region([Box((0,), (5,))])
    assert g.instructions.of("copy", to=3).copied == Region([Box((5,), (10,))])
