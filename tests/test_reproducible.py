"""`reproducible=True`: the same bits on whatever devices, with whatever shares, policy and ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.backend.library_threads import LibraryThreads
from coexec.plan import planned, planner
from tests.clusters import cluster
from tests.devices import MIXED, TWO

F4 = np.float32


@pytest.fixture(autouse=True)
def everything_is_divided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let small tasks be divided too, so that programs of some milliseconds show what large ones do."""
    for name in ("WORTH_DIVIDING", "UNKNOWN_BYTES", "UNKNOWN_FLOPS"):
        monkeypatch.setattr(planner, name, 0)
    monkeypatch.setattr(planned, "CHEAP", 0)
    return iter([None])


@cx.kernel(split=0, a=cx.read, b=cx.read(cx.all), out=cx.write)
def times(a: Any, b: Any, out: Any) -> None:
    out[...] = a @ b


@cx.kernel(split=0, u=cx.read(cx.halo(1, border="wrap")), out=cx.write)
def around(u: Any, out: Any) -> None:
    out[...] = (u[:-2, 1:-1] + u[2:, 1:-1] + F4(0.3) * u[1:-1, 1:-1]) * np.tanh(u.sum(dtype=F4))


@cx.kernel(split=(0, 1), x=cx.read, out=cx.write)
def centred(x: Any, out: Any) -> None:
    out[...] = np.exp(np.sin(x)) - x.mean(dtype=F4)


@cx.kernel(split=1, x=cx.read, out=cx.update)
def by_columns(x: Any, out: Any) -> None:
    out += x * x.sum(dtype=F4) + np.log1p(np.abs(x))


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"), most=cx.reduce("max"))
def totals(x: Any, total: Any, most: Any) -> None:
    total += np.cos(x).sum(axis=0)
    most[...] = np.maximum(most, x.max(axis=0))


@cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
def rolled(x: Any, chunk: Any) -> Any:
    return np.cumsum(x, dtype=F4).reshape(x.shape) * F4(1e-3) + F4(chunk.lo[0])


@cx.kernel(split=0, x=cx.read, y=cx.read, out=cx.write)
def exact(x: Any, y: Any, out: Any) -> None:
    out[...] = x * y + y


@cx.kernel(split=0, x=cx.read, out=cx.write)
def near(x: Any, out: Any) -> None:
    np.exp(x, out=out)


exact.opencl("out(i0, i1) = x(i0, i1) * y(i0, i1) + y(i0, i1);", numerics=cx.exact)
near.opencl("out(i0, i1) = exp(x(i0, i1));")


def program(seed: int) -> list[np.ndarray[Any, Any]]:
    """Return everything that a random program computes: products, sums in bodies, chains, reductions, odd views."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.integers(90, 260, 2))
    data = rng.standard_normal((rows, columns)).astype(F4)
    a, borrowed = cx.array(data), cx.asarray(np.asfortranarray(data[::-1]))
    kept: list[Any] = []
    for _ in range(3):
        out = cx.zeros((rows, columns), F4)
        step = int(rng.integers(9))
        if step == 0:
            thin = cx.zeros(rows, F4)
            times(a, cx.array(rng.standard_normal(columns).astype(F4)), thin)
            out = a + thin[:, None]
        elif step == 1:
            around(a, out)
        elif step == 2:
            flipped = cx.zeros((columns, rows), F4)
            centred(a.T, flipped)
            out = flipped.T
        elif step == 3:
            by_columns(borrowed, out)
            by_columns(a[:, ::-1], out)
        elif step == 4:
            total, most = cx.zeros(columns, F4), cx.full(columns, -np.inf, F4)
            totals(a, total, most)
            out = a * F4(0.5) + total / F4(rows) - most
        elif step == 5:
            out = np.tanh(np.exp(a * F4(0.1)) * a + np.sin(a)) + np.sqrt(np.abs(borrowed))
        elif step == 6:
            exact(a, borrowed, out)
            near(np.tanh(out), out)
        elif step == 7:
            out = rolled(a)
            out[1:-1:2] += a[::2][: len(out[1:-1:2])]
        else:
            out = cx.matmul(a, a.T @ a) * F4(1e-3) + a.mean(axis=0) + a.std()
        a = np.clip(out, -30, 30)  # type: ignore[assignment]  # NumPy gives what it is given
        kept += [out, a, a.sum(), a.max(axis=1)]
    return [np.asarray(value) for value in kept]


def same(found: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))


@pytest.fixture(scope="module")
def references() -> dict[int, list[np.ndarray[Any, Any]]]:
    found = {}
    for seed in range(6):
        with cx.Runtime("cpu:0", reproducible=True):
            found[seed] = program(seed)
    return found


MIXES: dict[str, dict[str, Any]] = {
    "static": {"devices": TWO},
    "even": {"devices": TWO, "policy": "even"},
    "dynamic": {"devices": TWO, "policy": "dynamic"},
    "auto": {"devices": TWO, "policy": "auto"},
    "all cores": {"devices": "cpu:all"},
    "unfused": {"devices": TWO, "fuse": False, "replay": False, "policy": "even"},
    "in turn": {"devices": TWO, "placement": "round-robin"},
    "sync": {"devices": "cpu:0", "sync": True},
    "simulated": {"platform": "a100x4", "execute": True},
    "simulated, even": {"platform": "workstation", "execute": True, "policy": "even"},
    "opencl": {"devices": MIXED},
    "opencl, even": {"devices": MIXED, "policy": "even"},
    "opencl, shared": {"devices": MIXED, "memory": "opencl:0=shared", "policy": "even"},
    "opencl, little memory": {"devices": MIXED, "memory": "opencl:0=400KB", "policy": "even"},
    "simulated, little memory": {"platform": "a100x4", "memory": "gpu:0=300KB,gpu:1=500KB", "execute": True},
    "torch": {"devices": "cpu:0,torch:cpu", "policy": "even"},
}


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_random_programs_give_the_same_bits_on_every_mix_of_devices(
    mix: dict[str, Any], references: dict[int, list[np.ndarray[Any, Any]]]
) -> None:
    with cx.Runtime(reproducible=True, **mix):
        for seed, expected in references.items():
            assert same(program(seed), expected), f"program {seed} has other bits"


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_random_programs_give_the_same_bits_on_any_number_of_ranks(
    ranks: int, references: dict[int, list[np.ndarray[Any, Any]]]
) -> None:
    with cx.Runtime(platform=cluster(ranks), ranks=ranks, execute=True, reproducible=True):
        for seed, expected in references.items():
            assert same(program(seed), expected), f"program {seed} has other bits"


def test_without_it_a_product_has_other_bits_when_it_is_divided() -> None:
    """What the option is for: else these tests would show nothing."""
    data = np.random.default_rng(1).standard_normal((301, 403)).astype(F4)
    found = []
    for devices in ("cpu:0", TWO):
        with cx.Runtime(devices, policy="even"):
            out = cx.zeros((301, 403), F4)
            by_columns(cx.array(data), out)
            found.append(np.asarray(out))
    assert found[0].tobytes() != found[1].tobytes()


def test_a_task_is_divided_all_the_same() -> None:
    with cx.Runtime(TWO, policy="even", reproducible=True):
        out = cx.zeros((260, 260), F4)
        task = around(cx.ones((260, 260), F4), out)
        cx.wait()
    assert "divided" in task.why


def test_devices_with_other_bits_are_left_out_and_named() -> None:
    with cx.Runtime(MIXED, policy="even", reproducible=True):
        x, out = cx.ones((200, 200), F4), cx.zeros((200, 200), F4)
        plan = near.plan(x, out)
        assert plan.shares.keys() == {"cpu:0"}
        assert "close(2), not exact" in plan.left_out["opencl:0"]
        assert "left out: opencl:0 (other bits)" in plan.why
        assert exact.plan(x, x, out).shares.keys() == {"cpu:0", "opencl:0"}


def test_no_device_with_the_bits_of_the_body_raises_with_the_remedy() -> None:
    with cx.Runtime("opencl:0", reproducible=True):
        x, out = cx.ones((200, 200), F4), cx.zeros((200, 200), F4)
        with pytest.raises(cx.errors.PlanError, match="declare numerics="):
            near(x, out)
        exact(x, x, out)
        assert np.asarray(np.exp(out)).tobytes() == np.exp(np.asarray(out)).tobytes()  # our own are left to the host


def test_all_cores_as_one_device_stand_aside() -> None:
    with cx.Runtime("cpu:0,cpu:all", reproducible=True):
        plan = times.plan(cx.ones((300, 300)), cx.ones((300, 300)), cx.zeros((300, 300)))
    assert "threads" in plan.left_out["cpu:all"]


def test_libraries_keep_to_one_thread_until_the_runtime_is_closed() -> None:
    before = [n for _, n in LibraryThreads()._found()]
    with cx.Runtime("cpu:all", reproducible=True), cx.Runtime("cpu:0"):
        times(cx.ones((30, 30)), cx.ones((30, 30)), cx.zeros((30, 30)))
        cx.wait()
        assert all(library.get_num_threads() == 1 for library, _ in LibraryThreads()._found())
    assert [n for _, n in LibraryThreads()._found()] == before


def test_a_plan_whose_parts_are_no_blocks_is_refused(tmp_path: Any) -> None:
    arrays = np.ones((4001, 40), F4)
    with cx.Runtime(TWO, policy="even"):
        around.plan(cx.array(arrays), cx.zeros((4001, 40), F4)).save(tmp_path / "plan.json")
    with (
        cx.Runtime(TWO, plan=tmp_path / "plan.json", reproducible=True),
        pytest.raises(cx.errors.PlanError, match="made without reproducible=True"),
    ):
        around(cx.array(arrays), cx.zeros((4001, 40), F4))


def test_the_environment_asks_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "COEXEC_REPRODUCIBLE", "1")
    with cx.Runtime("cpu:0") as runtime:
        assert runtime.config.reproducible


def test_a_chain_calls_its_functions_on_the_blocks_that_each_alone_is_called_on() -> None:
    """Blocks of a chain end where blocks of its operations end, whatever the length of rows."""
    rng = np.random.default_rng(3)
    for shape in ((700_001,), (5, 140_000), (300, 1001), (3, 70, 2003)):
        data = rng.standard_normal(shape).astype(F4)
        found = []
        for fuse in (False, True):
            with cx.Runtime("cpu:0", reproducible=True, fuse=fuse):
                x = cx.array(data)
                found.append(np.asarray(np.tanh(np.exp(x) * x) + np.sin(x)))
        assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
def test_a_part_that_is_done_on_the_host_after_a_failure_has_the_same_bits() -> None:
    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def failing(x: Any, out: Any) -> None:
        out[...] = x * x.sum(dtype=F4)

    failing.opencl("this is no C;", numerics=cx.exact)
    data = np.random.default_rng(5).standard_normal((300, 301)).astype(F4)
    found = []
    for devices in ("cpu:0", MIXED):
        with cx.Runtime(devices, policy="even", reproducible=True):
            out = cx.zeros(data.shape, F4)
            task = failing(cx.array(data), out)
            found.append(np.asarray(out))
            assert devices == "cpu:0" or "over 2 devices" in task.why
    assert found[0].tobytes() == found[1].tobytes()


def test_short_calls_that_run_at_once_see_compact_arrays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same elements in other places; the sum of a view with gaps is not that of a dense copy."""
    monkeypatch.setattr(planned, "CHEAP", 1.0)

    @cx.kernel(x=cx.read, out=cx.write)
    def total(x: Any, out: Any) -> None:
        out[...] = x.sum(dtype=F4)

    data = np.random.default_rng(6).standard_normal((40, 90)).astype(F4)
    with cx.Runtime("cpu:0", reproducible=True):
        wide, dense, found = cx.array(np.repeat(data, 2, 1)), cx.array(data), cx.zeros((3, 6), F4)
        raw = np.empty(data.nbytes + 1, np.uint8)
        unaligned = raw[1:].view(F4).reshape(data.shape)
        unaligned[...] = data
        borrowed = cx.asarray(unaligned)
        for turn in range(6):
            total(borrowed, found[2, turn, ...])
            total(wide[:, ::2], found[0, turn, ...])
            total(dense, found[1, turn, ...])
        values = np.asarray(found)
    assert len({value.tobytes() for value in values.ravel()}) == 1


@pytest.mark.filterwarnings("ignore::coexec.CoexecWarning")
def test_a_body_that_reads_what_it_has_written_sees_it_in_every_layout() -> None:
    @cx.kernel(split=0, x=cx.read, out=cx.update)
    def again(x: Any, out: Any) -> None:
        out += 1
        out *= x

    data = np.random.default_rng(7).standard_normal((300, 200)).astype(F4)
    for reproducible in (False, True):
        with cx.Runtime(TWO, policy="even", reproducible=reproducible):
            a = cx.array(data)
            again(a.T, a.T)
            np.testing.assert_array_equal(np.asarray(a), (data + 1) ** 2)
