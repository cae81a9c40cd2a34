"""Devices that say what they can do get nothing else: operations, types and granules of a platform reach the planner."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from coexec.errors import CannotCompute, PlanError
from coexec.machine.parts import DTYPES
from coexec.predict.roofline import DevicePeaks
from tests.backend.simulated_parts import DIRECT, MB, arrays, opened, platform
from tests.inside import planner_of

FPGA = DIRECT.replace('count = 2\nmemory = "gpu"', 'count = 2\nmemory = "gpu"\nops = ["matmul", "gemm"]').replace(
    'name = "gpu"\nkind = "gpu"', 'name = "fpga"\nkind = "fpga"'
) + (
    """
[[device]]
name = "cpu"
kind = "cpu"
memory = "host"
flops = 1e8
"""
)
"""Two devices that do products only, and a slow processor."""


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=1000)
def heat(x, y):
    y[...] = x


@cx.kernel(split=0, name="gemm", x=cx.read, y=cx.write, flops=1000)
def product(x, y):
    y[...] = x


def used(plan: cx.Plan) -> set[str]:
    """Return the devices that a plan gives something to."""
    return {part.device for part in plan.parts}


@pytest.mark.parametrize("policy", ["static", "even", "dynamic", "auto"])
def test_a_kernel_that_is_none_of_its_operations_never_gets_to_a_device(policy: str, tmp_path) -> None:
    file = tmp_path / "run.json"
    with cx.Runtime(platform=cx.Platform.load("dype-pcie4"), policy=policy, store="off", trace=file):
        x, y = cx.zeros(4 * MB, np.float32), cx.zeros(4 * MB, np.float32)
        for _ in range(6):
            heat(x, y)
            x, y = y, x
            z = np.sqrt(x) + 1  # nor one of coexec's own
        cx.wait()
        del z
    on = {row["device"] for row in cx.Trace.load(file).ran if row["kind"] == "kernel"}
    assert on and not any(name.startswith("fpga") for name in on)


def test_a_kernel_that_is_one_of_its_operations_is_divided_over_such_devices() -> None:
    with opened(FPGA):
        x, y = cx.zeros(MB), cx.zeros(MB)
        assert {"fpga:0", "fpga:1"} <= used(product.plan(x, y))
        plan = heat.plan(x, y)
        assert used(plan) == {"cpu"} and plan.left_out["fpga:1"] == "its operations are matmul, gemm"


def test_ready_made_products_are_known_by_the_name_of_their_operation() -> None:
    from coexec.ops.conv2d import conv2d
    from coexec.ops.matmul import matmul

    with opened(FPGA):
        a = cx.zeros((2000, 2000), np.float32)
        assert used(matmul.plan(a, a)) & {"fpga:0", "fpga:1"}
    with cx.Runtime("fpga", platform="f1.16xlarge", store="off"):
        image, filters = cx.zeros((8, 16, 64, 64), np.float32), cx.zeros((16, 16, 3, 3), np.float32)
        assert all(name.startswith("fpga") for name in used(conv2d.plan(image, filters)))


def test_whoever_names_a_device_that_cannot_do_it_is_told_what_it_can() -> None:
    with opened(FPGA):
        x, y = cx.zeros(MB), cx.zeros(MB)
        with pytest.raises(PlanError, match=r"'heat' is operation 'heat', .*fpga:0 does matmul, gemm.*`ops`"):
            heat.using(devices="fpga:0")(x, y)
        product.using(devices="fpga:0")(x, y)
    with (
        cx.Runtime("fpga", platform="f1.16xlarge", store="off"),
        pytest.raises(PlanError, match=r"none of the devices can do \(fpga:0 does conv2d.*, \.\.\.\)"),
    ):
        heat(cx.zeros(MB), cx.zeros(MB))


def test_what_only_coexec_itself_needs_runs_on_the_host_if_no_device_does_it() -> None:
    with cx.Runtime("fpga", platform="f1.16xlarge", store="off", execute=True):
        x = cx.zeros(1000)
        x[10:20] = 3.0
        assert np.asarray(x + 1).sum() == 1000 + 30


def test_a_part_that_is_redone_goes_to_a_processor_that_can_do_it() -> None:
    text = FPGA.replace('name = "cpu"\nkind = "cpu"', 'name = "cpu"\nkind = "cpu"\nops = ["other"]')
    with opened(text, execute=True, scenario=Scenario((Happening.lost("fpga:0"), Happening.lost("fpga:1")))):
        x, y = cx.array(np.arange(10.0)), cx.zeros(10)
        with pytest.warns(cx.CoexecWarning, match="is not used any more"):
            product(x, y).wait()
        assert np.array_equal(np.asarray(y), np.arange(10.0))


def test_a_device_without_a_rate_for_a_type_does_not_compute_with_it() -> None:
    small = cx.Platform.load("edge-soc")
    with cx.Runtime("npu,cpu:0", platform=small, store="off"):
        from coexec.ops.matmul import matmul

        single, half = (cx.zeros((2000, 2000), dtype) for dtype in (np.float32, np.float16))
        assert used(matmul.plan(single, single)) == {"cpu:0"}
        assert used(matmul.plan(half, half)) & {"npu:0", "npu:1"}
        with pytest.raises(PlanError, match=r"none of npu:0, npu:1 can compute with float32"):
            matmul.using(devices="npu")(single, single)


def test_a_device_without_a_rate_for_a_type_is_left_out_and_the_plan_says_why() -> None:
    from coexec.ops.matmul import matmul

    with cx.Runtime("npu,gpu", platform="edge-soc", store="off"):
        single = cx.zeros((500, 500), np.float32)
        plan = matmul.plan(single, single)
    assert used(plan) == {"gpu:0"}
    assert plan.left_out["npu:1"] == "it cannot compute with float32: its rates are for float16, int8"
    assert "npu:0 does nothing: it cannot compute with float32" in plan.explain()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "longdouble"])
def test_where_no_device_has_a_rate_for_a_type_a_product_is_refused_planned_or_called(dtype: str) -> None:
    """Nor does the host do it, in no time: who takes such devices alone wants to know what they can do."""
    from coexec.ops.matmul import matmul

    with cx.Runtime("npu", platform="edge-soc", store="off"):
        a = cx.zeros((64, 64), dtype)
        a[3] = 1  # no computing: the host can do that
        for call in (matmul, matmul.plan):
            with pytest.raises(CannotCompute, match=r"none of npu:0, npu:1 can compute with .*rates for float16, int8"):
                call(a, a)


def test_a_device_that_states_rates_by_type_but_none_for_double_precision_has_none() -> None:
    from coexec.ops.matmul import matmul

    with cx.Runtime(platform="laptop", store="off"):
        double, single, whole = (cx.zeros((900, 900), dtype) for dtype in (np.float64, np.float32, np.int32))
        assert "gpu:0" not in used(matmul.plan(double, double)) and "gpu:0" in used(matmul.plan(single, single))
        assert "gpu:0" in used(matmul.plan(whole, whole)), "what single precision holds"
        assert matmul.plan(double, double).left_out["gpu:0"].startswith("it cannot compute with float64")


@pytest.mark.parametrize("preset", cx.Platform.presets())
def test_every_device_of_a_preset_has_a_rate_for_each_type_that_it_computes_with(preset: str) -> None:
    platform = cx.Platform.load(preset)
    for device in {d.speed: d for d in platform.devices}.values():
        assert any(device.computes(dtype) for dtype in DTYPES)
        for dtype in DTYPES:
            known = DevicePeaks(device).of(np.dtype(dtype if dtype != "bfloat16" else "float16").str).flops
            assert not device.computes(dtype) or (known is not None and known > 0.0), (device.name, dtype)


def test_what_the_host_does_for_a_device_that_cannot_takes_the_time_of_a_processor() -> None:
    """Whether or not the program has the processor as a device."""
    took = []
    for devices in ("npu", "npu,cpu:0"):
        with cx.Runtime(devices, platform="edge-soc", store="off") as runtime:
            x = cx.ones(4_000_000, np.float32)
            cx.wait()
            before = runtime._driver.recorder.clock()
            np.sqrt(x)
            cx.wait()
            took.append(runtime._driver.recorder.clock() - before)
    assert took[0] == pytest.approx(took[1], rel=0.1)


def cuts(plan: cx.Plan) -> Iterable[tuple[str, int]]:
    return [(part.device, part.hi[0] - part.lo[0]) for part in plan.parts]


def test_granules_of_a_platform_reach_the_planner() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\ngranule = 96")
    with opened(text):
        x, y = cx.zeros((1000, 100)), cx.zeros((1000, 100))
        shares = list(cuts(heat.plan(x, y)))
        assert {name for name, _ in shares} == {"gpu:0", "gpu:1"} and sum(rows for _, rows in shares) == 1000
        assert sum(rows % 96 != 0 for _, rows in shares) <= 1


@pytest.mark.parametrize("name", ["dype-pcie4", "mi210x8", "a100x4"])
def test_presets_with_matrix_units_are_given_whole_granules(name: str) -> None:
    with cx.Runtime("gpu", platform=name, store="off") as runtime:
        granule = runtime.platform.devices[0].granule
        x, y = cx.zeros((100_000, 100)), cx.zeros((100_000, 100))
        rows = [rows for _, rows in cuts(product.plan(x, y))]
        assert granule > 1 and len(rows) > 1 and sum(r % granule != 0 for r in rows) <= 1


def test_the_planner_counts_with_the_rates_of_the_type() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = { float64 = 0.5e9, float32 = 1e9 }")
    with opened(text) as runtime:
        for dtype, seconds in ((np.float64, 2.0), (np.float32, 1.0)):
            y = cx.empty(8, dtype)
            predicted = compute.using(devices="gpu:0").plan(y).predicted.seconds
            before = runtime.machine.lanes["host"].now
            compute.using(devices="gpu:0")(y)
            cx.wait()
            assert predicted == pytest.approx(seconds, rel=1e-12)
            assert runtime.machine.lanes["host"].now - before == pytest.approx(seconds, rel=1e-12)


@cx.kernel(y=cx.write, flops=lambda y: 1e9)
def compute(y):
    y[...] = 1


def test_a_memory_states_the_bandwidth_of_a_device_that_states_none() -> None:
    with opened(DIRECT):
        (y,) = arrays(1, 8 * MB)
        assert move.using(devices="gpu:0").plan(y).predicted.seconds == pytest.approx(2.0, rel=1e-12)


@cx.kernel(y=cx.write)
def move(y):
    y[...] = 1


@cx.kernel(x=cx.read, y=cx.write, flops=lambda x, y: 5e10)
def solve(x, y):
    y[...] = x


@pytest.mark.parametrize(("devices", "best"), [("", "gpu:0"), ("cpu", "cpu:all"), ("gpu:1,cpu:0", "gpu:1")])
def test_the_first_calls_of_a_simulation_go_where_the_data_sheets_say(devices: str, best: str, tmp_path) -> None:
    file = tmp_path / "run.json"
    with cx.Runtime(devices, platform="workstation", store="off", trace=file):
        x, y = cx.zeros(1000), cx.zeros(1000)
        for _ in range(6):
            solve(x, y)
            x, y = y, x
        cx.wait()
    assert {row["device"] for row in cx.Trace.load(file).ran if row["name"] == "solve"} == {best}


def test_the_first_division_of_a_simulation_is_no_guess() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e12").replace("bandwidth = 1e6", "bandwidth = 1e12")
    text = text.replace("bandwidth = 4e6\n", "")
    slow = text + '[[device]]\nname = "cpu"\nkind = "cpu"\nmemory = "host"\nflops = 1e11\n'
    with cx.Runtime(platform=platform(slow), store="off") as runtime:
        x, y = cx.zeros(4 * MB, np.float32), cx.zeros(4 * MB, np.float32)
        plan = large.plan(x, y)
        task = large(x, y)
        assert task.id not in runtime._driver.scheduler.plan.lessons.guesses
        assert set(plan.shares) == {"gpu:0", "gpu:1", "cpu"}
        assert plan.shares["gpu:0"] == pytest.approx(10 * plan.shares["cpu"], rel=0.2)
        cx.wait()


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=1_000_000)
def large(x, y):
    y[...] = x


@pytest.mark.parametrize("device", ["cpu:0", "gpu:0"])
def test_a_variant_for_tensors_is_no_hindrance_where_values_are_computed_with_numpy(device) -> None:
    ones = np.ones((64, 64), np.float32)
    with cx.Runtime(platform="laptop", devices=device, execute=True, diagnostics="off"):
        out = cx.empty((64, 64), np.float32)
        cx.matmul(cx.array(np.eye(64, dtype=np.float32)), cx.array(ones), out)
        assert np.array_equal(np.asarray(out), ones)


def test_a_simulated_core_runs_what_a_real_one_would() -> None:
    @cx.kernel(x=cx.read, y=cx.write)
    def doubled(x, y):
        y[...] = 2 * x

    doubled.variant(lambda x, y: y, kind="torch", name="tensors")
    with cx.Runtime(platform="laptop", diagnostics="off") as runtime:
        candidates = planner_of(runtime)._candidates.of(doubled, None).all
    assert {c.variant.name for c in candidates if c.device.kind == "cpu"} == {"python"}
    assert {c.variant.name for c in candidates if c.device.kind == "gpu"} == {"python", "tensors"}


def far_but_fast(transfer: str) -> str:
    """Return four cores, and a device a thousand times as fast whose data comes at `transfer` bytes per second."""
    return f"""
[[memory]]
name = "host"
[[memory]]
name = "gpu"
[[device]]
name = "cpu"
kind = "cpu"
count = 4
cores = 1
memory = "host"
flops = 1e9
[[device]]
name = "gpu"
kind = "gpu"
memory = "gpu"
flops = 1e12
[[link]]
from = "host"
to = "gpu"
bandwidth = {transfer}
latency = 0.0
"""


@pytest.mark.parametrize(("transfer", "divided"), [("1e6", True), ("1e14", False)])
def test_who_is_quick_only_without_its_copies_keeps_nothing_from_being_divided(transfer: str, divided: bool) -> None:
    with opened(far_but_fast(transfer)):
        x, y = cx.array(np.zeros(1000)), cx.array(np.zeros(1000))
        found = used(heavy.plan(x, y))  # 10 ms on a core, 10 us on the other device
        assert {"cpu:0", "cpu:1"} <= found if divided else found == {"gpu"}


@cx.kernel(split=0, x=cx.read, y=cx.update, flops=10_000)
def heavy(x, y):
    y += x


@pytest.mark.parametrize(("transfer", "divided"), [("1e6", True), ("1e14", False)])
def test_a_short_reduction_goes_to_who_is_quickest_copies_included(transfer: str, divided: bool) -> None:
    with opened(far_but_fast(transfer)):
        x, total = cx.array(np.zeros(100_000)), cx.zeros(())
        found = used(add_up.plan(x, total))
        assert len(found) > 1 if divided else found == {"gpu"}


@cx.kernel(split=0, over="x", x=cx.read, total=cx.reduce("sum"), flops=100)
def add_up(x, total):
    total += x.sum()


def test_what_is_spread_over_devices_is_not_gathered_for_a_short_kernel() -> None:
    with opened(DIRECT.replace("bandwidth = 4e6\n", "")):
        x, y, total = cx.zeros(MB), cx.zeros(MB), cx.zeros(())
        heat(x, y)  # a second of work: on both
        plans = (add_up.plan(y, total), tiny.plan(y, x))
        assert [used(plan) for plan in plans] == [{"gpu:0", "gpu:1"}] * 2


@cx.kernel(split=0, x=cx.read, y=cx.write, flops=1e-1)
def tiny(x, y):
    y[...] = x
