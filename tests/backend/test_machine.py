from __future__ import annotations

import os

import pytest

import coexec as cx
from coexec.backend.machine import open_machine, parse_devices
from coexec.errors import ConfigError, UnknownName

CORES = sorted(os.sched_getaffinity(0))


def test_devices_are_read_by_kind_number_and_cores():
    assert [(d.kind, d.which, d.cores) for d in parse_devices(f"cpu:0, opencl:0@{CORES[-1]}")] == [
        ("cpu", "0", ()),
        ("opencl", "0", (CORES[-1],)),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpu 0", "is not a device"),
        ("cpu:0,cpu:0", "named twice"),
        ("", "no device is named"),
        ("opencl:0@9999", "core 9999 is not available"),
        ("opencl:0@a", "is not a device"),
        ("cpu:0@-", "cores after @"),
    ],
)
def test_malformed_devices_are_refused_in_one_sentence(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_devices(text)


def test_an_unknown_device_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown device kind 'cpuu'; did you mean 'cpu'\?"):
        open_machine("cpuu:0")
    with pytest.raises(UnknownName, match=r"unknown device 'cpu:999'"):
        open_machine("cpu:999")


def test_every_core_is_a_narrow_device_and_all_together_a_wide_one():
    machine = open_machine("cpu")
    names = [d.name for d in machine.platform.devices]
    assert names == [f"cpu:{i}" for i in range(len(CORES))] + (["cpu:all"] if len(CORES) > 1 else [])


def test_cores_given_to_another_device_are_not_given_to_the_cpu():
    machine = open_machine(f"cpu,opencl:0@{CORES[-1]}")
    cpu = [d for d in machine.platform.devices if d.kind == "cpu"]
    assert all(CORES[-1] not in d.cores for d in cpu)
    for backend in machine.backends:
        backend.stop()


def test_a_limit_for_a_device_that_is_not_there_is_refused():
    with pytest.raises(UnknownName, match="unknown device in memory="):
        cx.Runtime(devices="cpu:0", memory={"opencl:0": "6GB"})
