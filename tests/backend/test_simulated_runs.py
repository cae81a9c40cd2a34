"""Programs on small simulated platforms whose times can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.backend.simulated import Costs, simulate
from coexec.bench.plan.program import ArrayMaker
from tests.backend.simulated_parts import (
    CORES,
    DIRECT,
    MB,
    SWITCHED,
    arrays,
    backend_of,
    make,
    opened,
    platform,
    use,
)

ON = [make.using(devices=f"gpu:{i}") for i in range(2)]
USE = [use.using(devices=f"gpu:{i}") for i in range(2)]


def test_a_chain_takes_the_sum_of_its_parts() -> None:
    with opened(DIRECT) as runtime:
        (y,) = arrays(1)
        ON[0](y, 2.0)
        for _ in range(9):
            USE[0](y, y, 1.0)
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(11.0)


def test_a_join_waits_for_the_slower_branch() -> None:
    with opened(DIRECT) as runtime:
        a, b = arrays(2)
        ON[0](a, 3.0)
        ON[1](b, 2.0)
        USE[0](b, a, 1.0)
        cx.wait()
        # b is there at 2, and goes through the host: 8 bytes over two links of 0.25 s, before a is there at 3
        assert backend_of(runtime).now == pytest.approx(4.0, abs=1e-4)


def test_a_copy_takes_the_latency_and_the_bytes_of_its_link() -> None:
    with opened(DIRECT) as runtime:
        x = cx.asarray(np.zeros(MB // 4))  # 2 MB
        (y,) = arrays(1)
        USE[0](x[: MB // 8], y, 0.5)  # 1 MB
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(0.25 + 1.0 + 0.5)


def test_two_copies_share_the_link_that_both_cross() -> None:
    alone: list[float] = []
    shared: list[float] = []
    for text, into in ((DIRECT, alone), (SWITCHED, shared)):
        with opened(text) as runtime:
            x, y = cx.asarray(np.zeros(MB // 8)), arrays(2)
            USE[0](x, y[0], 1e-9)
            USE[1](x, y[1], 1e-9)
            cx.wait()
            into.append(backend_of(runtime).now)
    assert alone[0] == pytest.approx(1.25 + 0.25, abs=1e-5)  # memory bound: 1 MB at 4 MB/s
    assert shared[0] == pytest.approx(2.0 + 0.25, abs=1e-5)


def test_the_two_directions_of_a_link_do_not_meet() -> None:
    with opened(SWITCHED) as runtime:
        x, (a, b) = cx.asarray(np.zeros(MB // 8)), arrays(2, MB)
        ON[0](a, 1.0)
        cx.wait()
        USE[1](x, b, 0.0)  # in: 1 s
        host = cx.empty(MB // 8)
        copied = cx.host_task(src=cx.read, dst=cx.write)(lambda src, dst: None)
        copied(a, host)  # out: 1 s
        cx.wait()
        assert backend_of(runtime).now < 1.0 + 1.0 + 0.6


def test_copies_overlap_kernels_in_a_pipeline() -> None:
    items, copy, compute = 6, 1.0, 2.0
    with opened(SWITCHED) as runtime:
        xs, ys = [cx.asarray(np.zeros(MB // 8)) for _ in range(items)], arrays(items)
        for x, y in zip(xs, ys, strict=True):
            USE[0](x, y, compute)
        cx.wait()
        # All copies begin at once and share the link, so the first input is there when all are; afterwards it is
        # the device that sets the pace.
        assert backend_of(runtime).now == pytest.approx(items * copy + items * compute, rel=1e-6)


def test_one_input_after_the_other_makes_a_pipeline_of_copy_and_kernel() -> None:
    items, copy, compute = 6, 1.0, 2.0
    with opened(SWITCHED) as runtime:
        xs, ys = [cx.asarray(np.zeros(MB // 8)) for _ in range(items)], arrays(items)
        for x, y in zip(xs, ys, strict=True):
            use.using(devices="gpu:0")(x, y, compute)
            backend_of(runtime).spend(copy)
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(copy + items * compute, rel=1e-6)


def test_a_copy_within_a_memory_reads_and_writes_it() -> None:
    from coexec.backend.simulated import Durations
    from coexec.geometry import whole
    from coexec.graph.instruction import Allocation, Copy, Fill, Instruction

    box = whole((MB // 8,))
    one, other = (Allocation(i, 2, 0, box, np.dtype(float)) for i in range(2))
    durations = Durations(platform(DIRECT))
    copy, fill = Copy("gpu:0", one, other, (box,), "resize"), Fill("gpu:0", one, (box,), np.float64(0))
    assert durations.seconds(Instruction(0, copy, None)) == (0.5, "memory")
    assert durations.seconds(Instruction(1, fill, None)) == (0.25, "memory")


# Kernels at once ----------------------------------------------------------------------------------------------------------


def test_kernels_at_once_share_what_their_device_can_do() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\nconcurrent = 4")
    with opened(text) as runtime:
        for y in arrays(4):
            ON[0](y, 1.0)
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(4.0)  # each at a quarter of its speed


def test_a_kernel_that_computes_overlaps_one_that_moves() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\nconcurrent = 2")
    with opened(text) as runtime:
        small, large = arrays(1)[0], arrays(1, 8 * MB)[0]
        ON[0](small, 2.0)  # no bytes to speak of
        ON[0](large, 0.1)  # 8 MB at 4 MB/s: 2 s
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(2.1, abs=0.01)  # the second needs a 20th of the rate


def test_what_the_host_computes_it_computes_one_after_the_other() -> None:
    """No device here can add, so one thread of the host does, at the speed of a core: 15 GB/s."""
    with cx.Runtime("npu:0", platform="edge-soc", store="off", diagnostics="off") as runtime:
        x = ArrayMaker(runtime._driver)(4096, 4096)
        for _ in range(5):
            x.sum()
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(
            5 * x.nbytes / 15e9, rel=0.02
        )  # beside what coexec itself takes


def test_a_device_moves_no_more_than_it_can_however_many_kernels_it_runs_at_once() -> None:
    device = 'name = "gpu:0"\nkind = "gpu"\nmemory = "host"\nflops = 1e9\nbandwidth = 2e6\nconcurrent = 4\n'
    text = f"{CORES}\n[[device]]\n{device}"
    with opened(text) as runtime:
        for y in arrays(4, 2 * MB):
            ON[0](y, 0.0)  # 2 MB at 2 MB/s: 1 s each, and the memory has 3 MB/s
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(4.0)
    with opened(text) as runtime:
        for y in arrays(4, MB):
            ON[0](y, 0.0)
        make.using(devices="cpu:0")(arrays(1, 2 * MB)[0], 0.0)
        cx.wait()  # both ask for 2 of 3 MB/s: the core is done after 4/3 s, and the device has moved 2 of its 4 MB
        assert backend_of(runtime).now == pytest.approx(4.0 / 3.0 + 1.0)


def test_cores_that_share_a_memory_slow_each_other_down() -> None:
    with opened(CORES) as runtime:
        for i, y in enumerate(arrays(2, 2 * MB)):
            make.using(devices=f"cpu:{i}")(y, 0.0)  # 1 s each at 2 MB/s, but both get 3 MB/s
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(4.0 / 3.0)


def test_launching_takes_its_time_once_for_what_is_handed_over_together() -> None:
    text = DIRECT.replace("flops = 1e9", "flops = 1e9\nlaunch = 0.5")
    with opened(text) as runtime:
        (y,) = arrays(1)
        ON[0](y, 1.0)
        USE[0](y, y, 1.0)  # queued behind the first: its launch is over when its turn comes
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(2.5)


# What coexec itself costs -------------------------------------------------------------------------------------------------


def submitted(costs: Costs, seconds: float) -> float:
    with opened(DIRECT, costs=costs) as runtime:
        begin = backend_of(runtime).clock()
        for y in arrays(10):
            ON[0](y, seconds)
        cx.wait()
        return backend_of(runtime).now - begin


def test_scheduling_hides_behind_long_kernels_and_bounds_short_ones() -> None:
    costs = Costs(submission=0.1, instruction=0.0, completion=0.01)
    assert submitted(costs, 5.0) == pytest.approx(50.0, abs=0.3)
    short = submitted(costs, 1e-6)
    assert 1.0 <= short < 1.4  # ten submissions, and some completions between them


def test_a_program_that_computes_on_all_cores_shares_them_with_its_own_scheduling() -> None:
    with opened(CORES, costs=Costs(1.0, 0.0, 0.0)) as runtime:
        y = arrays(3)
        for device, array in zip(("cpu:0", "cpu:1", "cpu:0"), y, strict=True):
            make.using(devices=device)(array, 3.0)
        cx.wait()
        # The first mark until 1, then a submission each second. From 3 to 5 there are three threads for two cores, so
        # the first kernel (2 s left) ends at 5 + 2/3, and the third takes 3 s more.
        assert backend_of(runtime).now == pytest.approx(5.0 + 2.0 / 3.0 + 3.0)


# Energy, records ----------------------------------------------------------------------------------------------------------


def test_energy_is_watts_times_seconds_by_state() -> None:
    with opened(DIRECT) as runtime:
        a, b = arrays(2)
        ON[0](a, 3.0)
        ON[1](b, 1.0)
        cx.wait()
        energy = backend_of(runtime).energy()
        assert energy.devices == {"gpu:0": pytest.approx(300.0), "gpu:1": pytest.approx(100.0 + 2 * 10.0)}
        assert energy.total == pytest.approx(420.0)
        assert energy.active["gpu:1"] == pytest.approx(1.0)
        assert energy.seconds == pytest.approx(3.0)


def test_a_wide_device_draws_nothing_of_its_own_while_it_waits() -> None:
    text = CORES.replace("wide = true", "wide = true\nwatts = 50.0\nidle_watts = 20.0").replace(
        "bandwidth = 2e6", "bandwidth = 2e6\nwatts = 30.0\nidle_watts = 10.0"
    )
    with opened(text) as runtime:
        (a,) = arrays(1)
        make.using(devices="cpu:0")(a, 2.0)
        cx.wait()
        assert backend_of(runtime).energy().total == pytest.approx(60.0 + 20.0)


def test_records_say_how_each_duration_is_known(tmp_path) -> None:
    @cx.kernel(y=cx.write)
    def unknown(y):
        pass

    text = DIRECT.replace("bandwidth = 4e6\n", "")
    file = tmp_path / "run.json"
    machine = simulate(platform(text))
    with cx.Runtime(machine=machine, store="off", trace=file) as runtime:
        a, b = arrays(2)
        ON[0](a, 1.0)
        unknown.using(devices="gpu:0")(b)
        cx.wait()
        assert backend_of(runtime).sources() == {
            "make": {"roofline": (1, pytest.approx(1.0))},
            "unknown": {"default": (1, 1e-3)},
        }
    trace = cx.Trace.load(file)
    assert trace.header["virtual"]
    assert {row["name"]: row["source"] for row in trace.ran if row["kind"] == "kernel"} == {
        "make": "roofline",
        "unknown": "default",
    }


def test_nothing_that_was_simulated_is_kept_as_measured(tmp_path) -> None:
    from coexec.predict.store import Store

    store = tmp_path / "store.sqlite"
    with cx.Runtime(platform=platform(DIRECT), store=store):
        for y in arrays(20):
            make(y, 0.5)
        cx.wait()
    assert Store(store).models() == [] and not Store(store).links() and not Store(store).start_delays()


def test_the_platform_that_is_simulated_does_not_change() -> None:
    here = platform(DIRECT)
    links = dict(here.links)
    with opened(here) as runtime:
        for _ in range(10):
            x, y = cx.asarray(np.zeros(MB)), arrays(1)[0]
            use(x, y, 0.1)
            cx.wait()
        assert runtime.platform.links != {}
    assert here.links == links


def test_an_instruction_without_a_record_takes_no_time() -> None:
    from coexec.backend.simulated import Durations
    from coexec.graph.instruction import Horizon, Instruction

    horizon = Instruction(0, Horizon(), None)
    assert Durations(platform(DIRECT)).seconds(horizon) == (0.0, "default")
    assert horizon.source == ""
