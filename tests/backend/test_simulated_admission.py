"""Who waits for whom in a simulation: wide devices and cores, kernels at once, copy engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import coexec as cx
from coexec.backend.simulated import Happening, Scenario
from tests.backend.simulated_parts import CORES, DIRECT, MB, arrays, backend_of, kernels_of, make, opened, use

FOUR = (
    CORES.replace("count = 2", "count = 4").replace("cores = [0, 1]", "cores = [0, 1]").replace("bandwidth = 3e6\n", "")
)
"""Four cores, of which the wide device has the first two."""


def on(device: str, seconds: float) -> cx.Task:
    (y,) = arrays(1)
    return make.using(devices=device)(y, seconds)


# All cores at once --------------------------------------------------------------------------------------------------------


def test_all_cores_at_once_wait_for_the_cores_that_compute() -> None:
    with opened(CORES) as runtime:
        ran = kernels_of(runtime)
        on("cpu:0", 1.0)
        on("cpu:1", 3.0)
        on("wide", 4.0)  # 2 s on both cores
        cx.wait()
    assert ran["wide"] == [(3.0, 5.0)]


def test_cores_wait_while_all_of_them_compute_as_one() -> None:
    with opened(CORES) as runtime:
        ran = kernels_of(runtime)
        on("wide", 4.0)
        on("cpu:0", 1.0)
        on("cpu:1", 2.0)
        cx.wait()
    assert ran == {"wide": [(0.0, 2.0)], "cpu:0": [(2.0, 3.0)], "cpu:1": [(2.0, 4.0)]}


def test_what_claims_all_cores_comes_before_what_is_queued_behind_it() -> None:
    with opened(CORES) as runtime:
        ran = kernels_of(runtime)
        on("cpu:0", 2.0)
        on("wide", 2.0)
        on("cpu:1", 1.0)  # its core is free, but claimed
        cx.wait()
    assert ran == {"cpu:0": [(0.0, 2.0)], "wide": [(2.0, 3.0)], "cpu:1": [(3.0, 4.0)]}


def test_cores_that_a_wide_device_does_not_have_go_on() -> None:
    with opened(FOUR) as runtime:
        ran = kernels_of(runtime)
        on("wide", 4.0)
        on("cpu:1", 1.0)
        on("cpu:2", 1.0)
        cx.wait()
    assert ran == {"wide": [(0.0, 2.0)], "cpu:1": [(2.0, 3.0)], "cpu:2": [(0.0, 1.0)]}


def test_a_claim_that_is_taken_back_lets_the_cores_go_on() -> None:
    with opened(CORES) as runtime:
        ran = kernels_of(runtime)
        on("cpu:0", 4.0)
        wide = on("wide", 2.0)
        on("cpu:1", 1.0)
        backend_of(runtime).spend(1.0)
        on("cpu:0", 1.0)  # time is 1 now
        assert wide.cancel()
        cx.wait()
    assert ran == {"cpu:0": [(0.0, 4.0), (4.0, 5.0)], "cpu:1": [(1.0, 2.0)]}


def test_a_wide_device_that_is_lost_gives_the_cores_back() -> None:
    with opened(CORES, scenario=Scenario((Happening.lost("wide", at=1.0),))) as runtime:
        ran = kernels_of(runtime)
        wide = on("wide", 8.0)
        on("cpu:1", 1.0)
        with pytest.warns(cx.CoexecWarning, match="wide was lost"), pytest.raises(ExceptionGroup, match="failed"):
            cx.wait()
        assert wide.failure is not None
    assert ran["cpu:1"] == [(1.0, 2.0)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["cpu:0", "cpu:1", "wide"]), st.floats(0.1, 3.0)), min_size=1, max_size=12))
def test_no_core_is_used_by_two_at_once_and_nothing_is_left_over(program) -> None:
    with opened(CORES) as runtime:
        ran = kernels_of(runtime)
        for device, seconds in program:
            on(device, seconds)
        cx.wait()
        end = backend_of(runtime).now
    wide, narrow = ran.get("wide", []), [*ran.get("cpu:0", []), *ran.get("cpu:1", [])]
    assert len(wide) + len(narrow) == len(program)
    for start, stop in wide:
        assert all(stop <= begin + 1e-9 or finish <= start + 1e-9 for begin, finish in narrow)
    busy = sum(stop - start for start, stop in wide) + max(
        sum(stop - start for start, stop in ran.get(name, [])) for name in ("cpu:0", "cpu:1")
    )
    assert end >= busy * (1 - 1e-9)


# Kernels at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_kernels_run_at_once_than_a_device_can(limit: int) -> None:
    text = DIRECT.replace("flops = 1e9", f"flops = 1e9\nconcurrent = {limit}")
    with opened(text) as runtime:
        ran = kernels_of(runtime)
        for seconds in (1.0, 2.0, 3.0, 1.0, 2.0):
            on("gpu:0", seconds)
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(9.0, rel=1e-12)  # they share one rate, and it is never idle
    spans = ran["gpu:0"]
    for start, _ in spans:
        assert sum(begin <= start < end for begin, end in spans) <= limit


# Copies at once -----------------------------------------------------------------------------------------------------------

ENGINES = DIRECT.replace("flops = 1e9", "flops = 1e9\ncopies = 1").replace("latency = 0.25", "latency = 0.0")


def test_copies_take_turns_where_a_device_has_one_engine() -> None:
    ends = {}
    for text in (ENGINES, ENGINES.replace("copies = 1", "copies = 2"), ENGINES.replace("copies = 1\n", "")):
        with opened(text) as runtime:
            for _ in range(2):
                (y,) = arrays(1)
                use.using(devices="gpu:0")(cx.asarray(np.zeros(MB // 8)), y, 1.0)
            cx.wait()
            ends[text] = backend_of(runtime).now
    one, two, any_number = ends.values()
    assert one == pytest.approx(1.0 + 1.0 + 1.0, rel=1e-4)  # the first kernel runs beside the second copy
    assert two == any_number == pytest.approx(2.0 + 1.0 + 1.0, rel=1e-4)  # both inputs are there at 2


def test_each_direction_has_its_engines() -> None:
    with opened(ENGINES) as runtime:
        (a, b) = arrays(2, MB)
        make.using(devices="gpu:0")(a, 1.0)
        cx.wait()
        use.using(devices="gpu:0")(cx.asarray(np.zeros(MB // 8)), b, 0.25)  # in: until 2
        copied = cx.host_task(src=cx.read, dst=cx.write)(lambda src, dst: None)
        copied(a, cx.empty(MB // 8))  # out: until 2
        cx.wait()
        assert backend_of(runtime).now == pytest.approx(2.0 + 0.5, rel=1e-4)  # 2 MB at 4 MB/s


def test_a_copy_that_waits_for_an_engine_can_be_taken_back() -> None:
    with opened(ENGINES) as runtime:
        y, z = arrays(2)
        use.using(devices="gpu:0")(cx.asarray(np.zeros(MB // 8)), y, 0.5)
        second = use.using(devices="gpu:0")(cx.asarray(np.zeros(MB // 8)), z, 0.5)
        assert second.cancel()
        cx.wait()
        assert backend_of(runtime).now < 3.0


def test_engines_are_part_of_a_platform_file(tmp_path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(ENGINES, encoding="utf-8")
    loaded = cx.Platform.load(file)
    assert [device.copies for device in loaded.devices] == [1, 1]
    loaded.save(file)
    assert cx.Platform.load(file) == loaded and "copies = 1" in file.read_text(encoding="utf-8")
