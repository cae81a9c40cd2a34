"""Saved plans: the same shares, places and variants again, or a clear word why not."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import CoexecWarning, PlanError
from coexec.observe.pictures.plan import plan_svg
from coexec.plan.plan import Plan, load_plans, save_plans
from coexec.plan.split import BLOCK_ELEMENTS
from tests.devices import MIXED, TWO
from tests.ops.forced import DEVICES

ROWS = 1 << 18


@cx.kernel(split=0, x=cx.read, y=cx.update)
def axpy(a, x, y):
    y += a * x


axpy.opencl("y(i) += a * x(i);")


@cx.kernel(split=0, x=cx.read(cx.halo(1)), y=cx.update)
def neighbours(x, y, chunk):
    first = chunk.lo[0] - max(0, chunk.lo[0] - 1)
    y += x[first : first + len(y)]


@cx.kernel(split=1, over="x", x=cx.read, s=cx.reduce("sum"))
def total(x, s):
    s += x.sum()


@cx.kernel(split=0, over="x", x=cx.read, s=cx.reduce("sum"))
def total_of_rows(x, s):
    s += np.sin(x).sum()


@cx.kernel(split=0, over="y", x=cx.read(cx.all), y=cx.update, s=cx.reduce("sum"))
def added(x, y, s):
    y += x[::-1][: len(y)].sum()
    s += y.sum()


def uneven(plan: Plan) -> Plan:
    """Return the plan with its cut moved, as no planner would put it."""
    data = plan.as_dict()
    first, second = data["parts"]
    cut = data["space"][0] // 5
    first |= {"hi": (cut,), "share": 0.2}
    second |= {"lo": (cut,), "share": 0.8}
    return Plan.from_dict(json.loads(json.dumps(data)))


def made(devices: str, kernel: Any, *args: Any) -> Plan:
    with cx.Runtime(devices):
        plan: Plan = kernel.plan(*[cx.array(a) if isinstance(a, np.ndarray) else a for a in args])
        return plan


def parts(plan: Plan) -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    return [(p.device, p.variant, p.lo, p.hi) for p in plan.parts]


@pytest.mark.parametrize("devices", DEVICES)
def test_a_plan_is_followed_to_the_letter(tmp_path: Path, devices: str) -> None:
    x = np.arange(float(ROWS))
    plan = made(devices, axpy, 2.0, x, x)
    if len(plan.parts) == 2:
        plan = uneven(plan)
    plan.save(tmp_path / "plan.json")
    with cx.Runtime(devices, plan=str(tmp_path / "plan.json")):
        ours, y = cx.array(x), cx.array(x)
        again = axpy.plan(2.0, ours, y)
        assert parts(again) == parts(plan)
        assert again.why == "as the plan says"
        axpy(2.0, ours, y)
        np.testing.assert_array_equal(np.asarray(y), 3 * x)


def test_other_shapes_types_and_kernels_are_planned_as_ever(tmp_path: Path) -> None:
    x = np.arange(float(ROWS))
    made(TWO, axpy, 2.0, x, x).save(tmp_path / "plan.json")
    with cx.Runtime(TWO, plan=str(tmp_path / "plan.json")):
        for a, b in ((x[:100], x[:100]), (x.astype("f4"), x.astype("f4"))):
            assert axpy.plan(2.0, cx.array(a), cx.array(b)).why != "as the plan says"
        assert neighbours.plan(cx.array(x), cx.array(x)).why != "as the plan says"


def test_one_file_holds_many_plans(tmp_path: Path) -> None:
    x = np.arange(float(ROWS))
    plans = [uneven(made(TWO, kernel, *args)) for kernel, args in ((axpy, (1.0, x, x)), (neighbours, (x, x)))]
    save_plans(plans, tmp_path / "plans.json")
    assert load_plans(tmp_path / "plans.json") == plans
    with cx.Runtime(TWO, plan=str(tmp_path / "plans.json")):
        ours, y = cx.array(x), cx.zeros(ROWS)
        assert [parts(axpy.plan(1.0, ours, y)), parts(neighbours.plan(ours, y))] == [parts(p) for p in plans]
        neighbours(ours, y)
        np.testing.assert_array_equal(np.asarray(y), x)


@pytest.mark.parametrize("kernel", [total, total_of_rows])
def test_a_reduction_gives_its_blocks_to_the_same_devices(tmp_path: Path, kernel: Any) -> None:
    x = np.random.default_rng(0).random((600, 700))
    plan = made(TWO, kernel, x, np.zeros(()))
    assert len({p.device for p in plan.parts}) == len(TWO.split(","))
    plan.save(tmp_path / "plan.json")
    with cx.Runtime(TWO, plan=str(tmp_path / "plan.json")):
        s = cx.zeros(())
        again = kernel.plan(cx.array(x), s)
        assert (parts(again), again.why) == (parts(plan), "as the plan says")
        kernel(cx.array(x), s)
        followed = s.item()
    with cx.Runtime("cpu:0"):
        s = cx.zeros(())
        kernel(cx.array(x), s)
        assert s.item() == followed  # fixed blocks: whoever computes them


def test_a_chain_of_operations_can_follow_a_plan_too(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random(ROWS)
    with cx.Runtime(TWO) as runtime:
        ours = cx.array(x)
        with runtime._driver.lock:
            y = np.exp(ours * 2.0 + 1.0)
            assert runtime._driver.scheduler.fuse.held is not None
            ((kernel, args, _),) = runtime._driver.scheduler.fuse.held.calls()
        plan = uneven(kernel.plan(*args))
        plan.save(tmp_path / "plan.json")
    with cx.Runtime(TWO, plan=str(tmp_path / "plan.json"), trace=tmp_path / "trace.json") as runtime:
        ours = cx.array(x)
        with runtime._driver.lock:
            y = np.exp(ours * 2.0 + 1.0)
        np.testing.assert_array_equal(np.asarray(y), np.exp(x * 2.0 + 1.0))
    rows = json.loads((tmp_path / "trace.json").read_text())
    assert [r["name"] for r in rows if r["row"] == "task" and r["why"] == "as the plan says"] == ["multiply+add+exp"]
    chunks = [r["chunks"] for r in rows if r["row"] == "command" and r["chunks"]]
    assert [[(c["device"], "python", tuple(c["lo"]), tuple(c["hi"])) for c in made] for made in chunks] == [parts(plan)]


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    if len(DEVICES) < 3:
        return
    x = np.arange(float(ROWS))
    plan = made(MIXED, axpy, 2.0, x, x)
    assert len(plan.parts) == 2
    plan.save(tmp_path / "plan.json")
    with cx.Runtime("cpu:0", plan=str(tmp_path / "plan.json")):
        y = cx.array(x)
        with pytest.raises(
            PlanError, match=r"the plan for 'axpy' wants opencl:0 \(.*\), which this runtime does not have"
        ):
            axpy(2.0, cx.array(x), y)
        np.testing.assert_array_equal(np.asarray(y), x)


def test_one_array_twice_is_not_divided_by_a_plan_for_two(tmp_path: Path) -> None:
    x = np.arange(float(ROWS))
    made(TWO, neighbours, x, x).save(tmp_path / "plan.json")
    with cx.Runtime(TWO, plan=str(tmp_path / "plan.json")):
        y = cx.array(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoexecWarning)
            neighbours(y, y)
        np.testing.assert_array_equal(np.asarray(y), 2 * x)


def test_one_array_twice_is_not_reduced_block_by_block_by_a_plan_for_two(tmp_path: Path) -> None:
    """Every block reads all of what the others write."""
    x, s = np.ones(3 * BLOCK_ELEMENTS), np.zeros(())
    made(TWO, added, x, x, s).save(tmp_path / "plan.json")
    found = []
    for plan in ("", str(tmp_path / "plan.json")):
        with cx.Runtime(TWO, plan=plan), warnings.catch_warnings():
            warnings.simplefilter("ignore", CoexecWarning)
            y, total = cx.array(x), cx.array(s)
            added(y, y, total)
            found.append((np.asarray(y).copy(), float(total)))
    expected, summed = x.copy(), s.copy()
    added.function(expected, expected, summed)
    for values, one in found:
        np.testing.assert_array_equal(values, expected)
        assert one == summed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p[0].update(hi=[5]), "do not make up"),
        (lambda p: p[1].update(lo=[0]), "do not make up"),
        (lambda p: p.pop(), "do not make up"),
        (lambda p: p[1].update(hi=[ROWS + 1]), "do not make up"),
        (lambda p: p[0].update(lo=[0, 0], hi=[1, 1]), "do not make up"),
        (lambda p: p[0].update(hi=[5, 5]), "do not make up"),
        (lambda p: p[0].update(variant="fortran"), r"wants cpu:0 \(fortran\)"),
        (lambda p: p[0].pop("lo"), "no plan of version"),
        (lambda p: p[0].update(lo=7), "no plan of version"),
        (lambda p: p[0].update(lo=["a"]), "no plan of version"),
        (lambda p: p[0].update(colour="red"), "no plan of version"),
    ],
)
def test_a_plan_that_was_tampered_with_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    x = np.arange(float(ROWS))
    data = json.loads(json.dumps(made(TWO, axpy, 2.0, x, x).as_dict()))
    change(data["parts"])
    (tmp_path / "plan.json").write_text(json.dumps([data]))
    with pytest.raises(PlanError, match=words), cx.Runtime(TWO, plan=str(tmp_path / "plan.json")):
        axpy(2.0, cx.array(x), cx.array(x))


VALUES: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "x", "", [], [1], ["x"], [None], [{}], {}, {"a": 1}, [[1]],
    {"cpu:0": "x"}, {"cpu:0": None},
]  # fmt: skip


def mutated(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a plan with something in it changed, left out or added."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.8):
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.05:
            return {**value, "more": rng.choice(VALUES)}
        return {**value, key: mutated(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(rng, value[at], depth + 1), *value[at + 1 :]]
    return rng.choice(VALUES)


def test_a_plan_with_anything_changed_is_used_or_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with cx.Runtime("null:2"):
        x = cx.zeros(1 << 16)
        plan = json.loads(json.dumps(axpy.plan(2.0, x, x).as_dict()))
        refused = []
        for seed in range(300):
            path.write_text(json.dumps(mutated(random.Random(seed), plan)))
            try:
                for found in load_plans(path):
                    found.explain()
                    plan_svg(found)
                    assert (found.shares, found.predicted, found.as_dict()) is not None
            except PlanError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert [text for text in refused if str(path) not in text or "\n" in text or len(text) > 400] == []


@pytest.mark.parametrize(
    "text", ["", "no json", "[1, 2]", '{"coexec_plan": 99}', "null", '[{"coexec_plan": 1}]', "[" * 100_000, "\x00"]
)
def test_a_damaged_file_is_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"plan"):
        cx.Runtime("cpu:0", plan=str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere\.json cannot be read as plans"):
        cx.Runtime("cpu:0", plan=str(tmp_path / "nowhere.json"))
