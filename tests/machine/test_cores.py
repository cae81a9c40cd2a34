from __future__ import annotations

import os
import threading

import pytest

from coexec.machine import cores


def tree(root, files):
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root / "proc", root / "cgroup"


def test_cores_are_those_of_the_affinity():
    assert cores.available_cores() == tuple(sorted(os.sched_getaffinity(os.getpid())))


def test_cores_fall_back_to_the_count_where_there_are_no_affinities(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert cores.available_cores() == (0, 1, 2)


def test_a_pinned_thread_still_sees_all_cores_of_the_process():
    seen = []

    def body():
        assert cores.pin_thread(cores.available_cores()[-1])
        seen.extend([os.sched_getaffinity(0), cores.available_cores()])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [{cores.available_cores()[-1]}, cores.available_cores()]


def test_pinning_to_a_core_that_does_not_exist_is_answered_not_raised():
    assert cores.pin((0,), (99_999,)) is False


def test_pinning_a_thread_that_has_ended_is_no_failure():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    assert cores.pin((thread.native_id,), cores.available_cores())


def test_pinning_says_so_where_the_system_has_no_affinities(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    assert cores.pin_thread(0) is False


def test_native_threads_include_the_main_thread_and_survive_a_missing_proc(tmp_path):
    assert os.getpid() in cores.native_threads()
    assert cores.native_threads(tmp_path) == frozenset()


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "4096\n"}, 4096),
        ({"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "max\n", "cgroup/a/memory.max": "2048\n"}, 2048),
        ({"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "9\n", "cgroup/a/memory.max": "2048\n"}, 9),
        ({"proc/self/cgroup": "0::/not/mounted/here\n", "cgroup/memory.max": "512\n"}, 512),
        ({"proc/self/cgroup": "4:cpu,memory:/x\n", "cgroup/memory/x/memory.limit_in_bytes": "77\n"}, 77),
        ({"proc/self/cgroup": "4:cpuset:/x\n", "cgroup/memory/x/memory.limit_in_bytes": "77\n"}, None),
        ({"proc/self/cgroup": "4:memory:/x\n", "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"proc/self/cgroup": "damaged", "cgroup/memory.max": "not a number\n"}, None),
        ({"proc/self/cgroup": "0::/../..\n", "cgroup/memory.max": "33\n"}, 33),
    ],
)
def test_the_tightest_limit_of_the_control_groups_counts(tmp_path, files, limit):
    assert cores.memory_limit(*tree(tmp_path, files)) == limit


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/a\n", "cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a\n", "cgroup/a/cpu.max": "max 100000", "cgroup/cpu.max": "50000 100000"}, 0.5),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n",
                "cgroup/cpu/x/cpu.cfs_quota_us": "200000\n",
                "cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        ({"proc/self/cgroup": "3:cpu:/x\n", "cgroup/cpu/x/cpu.cfs_quota_us": "-1\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "1 0\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": ""}, None),
    ],
)
def test_the_tightest_quota_of_the_control_groups_counts(tmp_path, files, quota):
    assert cores.cpu_quota(*tree(tmp_path, files)) == quota


def test_capacity_is_the_smaller_of_machine_and_container(tmp_path):
    proc, groups = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "1000\n"})
    assert cores.memory_capacity(proc, groups) == 1000
    machine = cores.memory_capacity(tmp_path, tmp_path)
    assert machine is not None and machine > 1000


def test_the_processor_is_named_as_its_vendor_does(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Fancy   CPU @ 3 GHz\nmodel name : other\n")
    assert cores.cpu_model(tmp_path) == "Fancy CPU @ 3 GHz"
    assert cores.cpu_model(tmp_path / "nowhere")


def test_what_a_processor_can_do_is_read_or_unknown(tmp_path):
    assert cores.cpu_flags(tmp_path) == frozenset()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cores.cpu_flags(tmp_path) == {"fpu", "avx2", "avx512f"}


@pytest.mark.parametrize(
    ("files", "own", "last"),
    [
        ({"index2": "1024K", "index3": "32768K"}, 1 << 20, 32 << 20),
        ({"index2": "2M"}, 2 << 20, 2 << 20),
        ({"index2": "1024K", "index3": "unknown"}, 1 << 20, 1 << 20),
        ({}, 1 << 20, 32 << 20),
    ],
)
def test_the_sizes_of_caches_are_the_systems_or_usual_ones(tmp_path, files, own, last):
    tree(tmp_path, {f"{index}/size": f"{text}\n" for index, text in files.items()})
    assert (cores.cache_bytes(tmp_path), cores.last_cache_bytes(tmp_path)) == (own, last)
