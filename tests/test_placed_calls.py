"""Calls that carry their placement: results are NumPy's, parts are where the program said, and errors tell why not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.errors import CoexecWarning, PlanError, TaskFailed
from coexec.observe.trace import Trace
from coexec.program.call import DEFAULT, in_force
from tests.devices import MIXED, TWO

GPUS = [f"gpu:{i}" for i in range(4)]


@cx.kernel(split=(0, 1), x=cx.read, y=cx.update)
def axpy(a, x, y):
    y += a * x


@cx.kernel(split=(0, 1), u=cx.read(cx.halo(1, border="inside")), out=cx.update)
def heat(u, out, k):
    out[...] = u[1:-1, 1:-1] + k * (u[:-2, 1:-1] + u[2:, 1:-1] - 2 * u[1:-1, 1:-1])


@cx.kernel(split=(0, 1), over="x", x=cx.read, label=cx.write, s=cx.reduce("sum"), most=cx.reduce("max"))
def judged(x, label, s, most):
    label[...] = x > 0
    s += x.sum()
    most[...] = np.maximum(most, x.max())


@cx.kernel(split=(0, 1, 2), over="abc", a=cx.read(lambda c: np.s_[c.lo[0] : c.hi[0], c.lo[2] : c.hi[2]]),
           b=cx.read(lambda c: np.s_[c.lo[2] : c.hi[2], c.lo[1] : c.hi[1]]), abc=cx.read, out=cx.reduce("sum"))  # fmt: skip
def product(a, b, abc, out, chunk):
    out[chunk.lo[0] : chunk.hi[0], chunk.lo[1] : chunk.hi[1]] += a @ b


@cx.kernel(x=cx.read, y=cx.update)
def whole(x, y):
    y += x


def opened(**options: Any) -> cx.Runtime:
    """Return four GPUs with memories of their own, which compute values."""
    return cx.Runtime(platform="a100x4", execute=True, **options)


@st.composite
def cuts(draw: Any, axes: int = 2) -> cx.Placement:
    grids: list[dict[int, int]] = [{0: 4}, {1: 3}, {0: 2, 1: 2}, {1: 2, 0: 1}]
    if axes > 2:
        grids += [{2: 4}, {2: 2, 0: 2}, {0: 2, 2: 2}]
    grid = draw(st.sampled_from(grids))
    cut: dict[int, Any] = {}
    for axis, count in grid.items():
        weights = draw(st.none() | st.lists(st.integers(0, 5), min_size=count, max_size=count).filter(any))
        cut[axis] = count if weights is None else [w / sum(weights) for w in weights]
    rotate = draw(st.sampled_from([None, *(axis for axis in range(axes) if axis not in cut)]))
    members = draw(st.permutations([*GPUS, "cpu:0"]))[: int(np.prod(list(grid.values())))]
    return cx.Placement(members, cut, rotate=rotate)


@given(placements=st.lists(cuts(), min_size=3, max_size=5), shape=st.tuples(st.integers(3, 30), st.integers(3, 30)))
@settings(max_examples=25)
def test_results_are_those_of_numpy_whatever_the_placement(
    placements: list[cx.Placement], shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(shape[0])
    x, y, u = (rng.standard_normal(shape) for _ in range(3))
    with opened():
        ours, mine, field = cx.array(x), cx.array(y), cx.array(u)
        for placement in placements:
            axpy.using(placement=placement)(2.0, ours, mine)
            heat.using(placement=placement)(mine, field, 0.25)
            y += 2.0 * x
            u[1:-1, 1:-1] = y[1:-1, 1:-1] + 0.25 * (y[:-2, 1:-1] + y[2:, 1:-1] - 2 * y[1:-1, 1:-1])
        np.testing.assert_array_equal(np.asarray(mine), y)
        np.testing.assert_allclose(np.asarray(field), u, rtol=1e-12, atol=1e-12)


@given(placement=cuts(), shape=st.tuples(st.integers(1, 700), st.integers(1, 700)))
@settings(max_examples=25)
def test_reductions_along_any_axes(placement: cx.Placement, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(shape[1]).integers(-9, 9, shape).astype(float)  # exact in any order
    with opened():
        label, s, most = cx.empty(shape, bool), cx.full((), 7.0), cx.full((), -np.inf)
        judged.using(placement=placement)(cx.array(x), label, s, most)
        assert float(s) == x.sum() + 7.0
        assert float(most) == x.max()
        np.testing.assert_array_equal(np.asarray(label), x > 0)


@given(placement=cuts(axes=3), shape=st.tuples(*[st.integers(1, 12)] * 3))
@settings(max_examples=25)
def test_a_product_cut_along_the_axis_that_is_summed(placement: cx.Placement, shape: tuple[int, int, int]) -> None:
    n, m, k = shape
    rng = np.random.default_rng(n)
    a, b = rng.integers(-5, 5, (n, k)).astype(float), rng.integers(-5, 5, (k, m)).astype(float)
    with opened():
        out = cx.zeros((n, m))
        product.using(placement=placement)(cx.array(a), cx.array(b), cx.zeros(shape), out)
        np.testing.assert_array_equal(np.asarray(out), a @ b)


def test_bits_of_a_reduction_do_not_depend_on_cuts_of_its_first_axis() -> None:
    x = np.random.default_rng(1).standard_normal((900, 500))
    found = set()
    for placement in (
        None,
        cx.Placement(GPUS, 0),
        cx.Placement(GPUS, {0: (0.7, 0.1, 0.1, 0.1)}),
        cx.Placement("gpu:2", 0),
    ):
        with opened():
            label, s, most = cx.empty(x.shape, bool), cx.zeros(()), cx.full((), -np.inf)
            (judged if placement is None else judged.using(placement=placement))(cx.array(x), label, s, most)
            found.add(float(s))
    assert len(found) == 1


def parts(plan: cx.Plan) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [(part.device, part.lo, part.hi) for part in plan.parts]


def test_the_plan_is_what_the_program_said_and_says_so() -> None:
    with opened():
        x, y = cx.zeros((100, 8)), cx.zeros((100, 8))
        plan = axpy.using(placement=cx.Placement("gpu:3,gpu:1", {0: (0.25, 0.75)})).plan(1.0, x, y)
        assert parts(plan) == [("gpu:3", (0, 0), (24, 8)), ("gpu:1", (24, 0), (100, 8))]  # they want multiples of 8
        assert "as placed: axis 0 in parts of 0.25, 0.75 of the work on gpu:3, gpu:1" in plan.explain()
        assert plan.seconds is not None and plan.limit_seconds is not None and plan.seconds >= plan.limit_seconds
        kinds = axpy.using(placement=cx.Placement("gpu", {0: 2, 1: 2})).plan(1.0, x, y)
        assert [device for device, *_ in parts(kinds)] == GPUS


def kernels(trace: Path) -> list[tuple[str, str]]:
    """Return who ran what, of a trace."""
    rows = Trace.load(trace).instructions
    return [(str(row["name"]), str(row["device"])) for row in rows if row["kind"] == "kernel"]


def test_every_member_of_a_ring_computes_every_shard(tmp_path: Path) -> None:
    n = 64
    with opened(trace=str(tmp_path / "ring.json")):
        a, b = cx.array(np.eye(n)), cx.array(np.arange(n * n, dtype=float).reshape(n, n))
        out = cx.matmul.using(placement=cx.Placement(GPUS, 0, rotate=1))(a, b)
        np.testing.assert_array_equal(np.asarray(out), np.arange(n * n).reshape(n, n))
    launched = kernels(tmp_path / "ring.json")
    assert sorted(device for _, device in launched) == sorted(GPUS * 4)


@cx.kernel(split=(0, 1), x=cx.update)
def count_up(x):
    x += 1.0


def test_a_shard_comes_from_the_neighbour_that_had_it_before(tmp_path: Path) -> None:
    n = 64
    with opened(trace=str(tmp_path / "ring.json")):
        a, b, out = cx.zeros((n, n)), cx.zeros((n, n)), cx.zeros((n, n))
        count_up.using(placement=cx.Placement(GPUS, 0))(a)
        count_up.using(placement=cx.Placement(GPUS, 1))(b)  # each has a shard
        cx.matmul.using(placement=cx.Placement(GPUS, 0, rotate=1))(a, b, out=out)
        cx.wait()
        assert (np.asarray(out) == n).all()
    rows = [
        row for row in Trace.load(tmp_path / "ring.json").instructions if row["kind"] == "copy" and row["to"] != "host"
    ]
    moved = sorted((row["from"], row["to"]) for row in rows)
    assert moved == sorted([(GPUS[(i + 1) % 4], GPUS[i]) for i in range(4)] * 3)
    assert {row["bytes"] for row in rows} == {n * n // 4 * 8}


def test_items_of_a_stream_go_to_the_replicas_in_turn() -> None:
    placement = cx.Placement("gpu:0,gpu:1,gpu:2", replicas=3)
    with opened():
        x, y = cx.ones((64, 64)), cx.zeros((64, 64))
        for item in range(6):
            with cx.placed(placement, item=item):
                (part,) = axpy.plan(1.0, x, y).parts
                assert part.device == f"gpu:{item % 3}"
                axpy(1.0, x, y)
        assert (np.asarray(y) == 6.0).all()


def test_a_block_places_kernels_operations_and_chains(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((300, 300)), rng.standard_normal((300, 300))
    with opened(trace=str(tmp_path / "block.json")):
        x, y = cx.array(a), cx.array(b)
        z = x * 2.0 + y  # outside
        with cx.placed(cx.Placement("gpu:2,gpu:3", 0)):
            c = cx.matmul(x, y)
            d = np.sqrt(c * c + 1.0)
            s = cx.sum(d)
            d[0] = 3.0
            with cx.placed("gpu:1"):
                e = np.exp(y) * x
            with cx.placed(None):
                pass
        np.testing.assert_allclose(np.asarray(d)[1:], np.sqrt((a @ b) ** 2 + 1)[1:])
        np.testing.assert_allclose(float(s), np.sqrt((a @ b) ** 2 + 1).sum())
        np.testing.assert_allclose(np.asarray(e), np.exp(b) * a)
        np.testing.assert_allclose(np.asarray(z), a * 2 + b)
    by_name: dict[str, set[str]] = {}
    for name, device in kernels(tmp_path / "block.json"):
        by_name.setdefault(name, set()).add(device)
    assert by_name.pop("matmul_float64") == {"gpu:2", "gpu:3"}
    assert {"gpu:1"} in by_name.values()  # the chain of the inner block is one kernel of its own


def test_a_block_holds_for_its_context_only() -> None:
    seen = []
    with cx.placed("gpu:0"):
        thread = threading.Thread(target=lambda: seen.append(in_force(DEFAULT)))
        thread.start()
        thread.join()
        assert in_force(DEFAULT).devices == "gpu:0"
    assert seen == [DEFAULT]
    assert in_force(DEFAULT) is DEFAULT


def test_a_call_that_names_devices_is_not_moved_by_a_block() -> None:
    with opened(), cx.placed("gpu:0"):
        (part,) = axpy.using(devices="gpu:3").plan(1.0, cx.zeros((4, 4)), cx.zeros((4, 4))).parts
        assert part.device == "gpu:3"
        (part,) = axpy.using(priority=1).plan(1.0, cx.zeros((4, 4)), cx.zeros((4, 4))).parts
        assert part.device == "gpu:0"


def test_a_block_cuts_what_can_be_cut_so_and_tells_the_rest() -> None:
    with opened(), cx.placed(cx.Placement("gpu:0,gpu:1", {1: (300, 700)})):
        x, y, small = cx.zeros((10, 1000)), cx.zeros((10, 1000)), cx.zeros((10, 10))
        assert [part.hi[1] for part in axpy.plan(1.0, x, y).parts] == [300, 1000]
        for plan in (whole.plan(x, y), axpy.plan(1.0, small, small)):
            assert {part.device for part in plan.parts} <= {"gpu:0", "gpu:1"}
        assert "not cut as placed: axis 1 cannot be cut" in whole.plan(x, y).why
        assert "has 10 rows" in axpy.plan(1.0, small, cx.zeros((10, 10))).why


@pytest.mark.parametrize(
    ("placement", "what"),
    [
        (cx.Placement("gpu:0,gpu:1", 2), "axis 2 cannot be cut"),
        (cx.Placement("gpu:0,gpu:1", {0: 3}), "3 parts for 2 devices"),
        (cx.Placement("gpu:0,gpu:1", {0: (1, 2)}), "has 8 rows"),
        (cx.Placement("gpu:0,gpu:9", 0), "unknown device 'gpu:9'"),
    ],
)
def test_a_call_that_cannot_be_placed_so_is_refused(placement: cx.Placement, what: str) -> None:
    with opened():
        x, y = cx.zeros((8, 8)), cx.ones((8, 8))
        with pytest.raises(Exception, match=what):
            axpy.using(placement=placement)(1.0, x, y)
        assert (np.asarray(y) == 1.0).all()


def test_a_member_that_cannot_compute_is_named() -> None:
    with cx.Runtime(platform="edge-soc", execute=True):
        x = cx.zeros((8, 8), np.float32)
        with pytest.raises(PlanError, match=r"npu:0 cannot run it: it cannot compute with float32"):
            cx.matmul.using(placement=cx.Placement("cpu:0,npu:0", 0)).plan(x, x)
        with pytest.raises(PlanError, match=r"npu:0 cannot run it: its operations are"):
            axpy.using(placement=cx.Placement("cpu:0,npu:0", 0)).plan(np.float32(1), x, cx.zeros((8, 8), np.float32))


@cx.kernel(split=0, x=cx.read(cx.all), y=cx.update)
def sees_all(x, y):
    y += x.sum()


def test_parts_that_get_in_each_others_way_are_refused() -> None:
    placement = cx.Placement("gpu:0,gpu:1", 0)
    with opened():
        x = cx.ones(100)
        with pytest.raises(PlanError, match="one part would touch what another one writes"):
            sees_all.using(placement=placement)(x, x)
        with cx.placed(placement), pytest.warns(CoexecWarning, match="one part would touch"):
            sees_all(x, x)
        assert (np.asarray(x) == 101.0).all()


def test_placed_calls_are_replayed() -> None:
    placement = cx.Placement("gpu:0,gpu:1,gpu:2", {0: (0.5, 0.25, 0.25)}, rotate=1)
    with opened() as runtime:
        x, y = cx.ones((48, 48)), cx.zeros((48, 48))
        for _ in range(40):
            axpy.using(placement=placement)(1.0, x, y)
        assert (np.asarray(y) == 40.0).all()
        assert runtime._driver.scheduler.counts.replayed >= 20


@pytest.mark.parametrize("devices", [TWO, MIXED])
def test_real_devices(devices: str) -> None:
    names = [name.partition("@")[0] for name in devices.split(",")]
    a, b = np.random.default_rng(0).random((2, 60, 50))
    with cx.Runtime(devices):
        x, y = cx.array(a), cx.array(b)
        shares = {0: [0.75] + [0.25 / max(1, len(names) - 1)] * (len(names) - 1)} if len(names) > 1 else 0
        with cx.placed(cx.Placement(names, shares)):
            c = cx.matmul(x, np.asarray(b).T)
            z = np.sqrt(x * y + 1.0)
        np.testing.assert_allclose(np.asarray(c), a @ b.T)
        np.testing.assert_allclose(np.asarray(z), np.sqrt(a * b + 1.0))


def test_reproducible_bits_of_placed_calls() -> None:
    x = np.random.default_rng(2).standard_normal((4000, 30))
    found = []
    for placement in (
        cx.Placement("cpu:0", 0),
        cx.Placement(TWO, 0),
        cx.Placement(TWO, {0: [0.9, 0.1]} if "," in TWO else 0),
    ):
        with cx.Runtime(TWO, reproducible=True):
            found.append(np.asarray(cx.matmul.using(placement=placement)(cx.array(x), cx.array(x[:30]))).tobytes())
    assert len(set(found)) == 1
    with cx.Runtime(TWO, reproducible=True), pytest.raises(PlanError, match="reproducible=True"):
        cx.matmul.using(placement=cx.Placement("cpu:0", 1))(cx.array(x), cx.array(x[:30]))


def test_a_failing_part_is_a_failing_call() -> None:
    @cx.kernel(split=0, x=cx.update)
    def fails(x):
        raise ValueError("no")

    with opened():
        x = cx.ones(8)
        fails.using(placement=cx.Placement("gpu:0,gpu:1", 0))(x)
        with pytest.raises(TaskFailed, match="no"):
            np.asarray(x)
