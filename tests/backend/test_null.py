from __future__ import annotations

import numpy as np

import coexec as cx
from coexec.backend.null import NullBackend
from coexec.machine.platform import HOST, Device
from coexec.testing.conformance import check_backend


def test_the_null_backend_keeps_the_contract():
    check_backend(lambda: NullBackend([Device("null:0", "null", 2)]), executes=False)


def test_a_dry_run_finishes_any_program_and_computes_nothing():
    @cx.kernel(split=0, x=cx.read, y=cx.update)
    def add(x, y):
        raise AssertionError("null devices run no bodies")

    with cx.Runtime(devices="null:3"):
        x, y = cx.array(np.ones(1_000_000)), cx.zeros(1_000_000)
        handle = add(x, y)
        handle.result()
        assert np.asarray(y).shape == (1_000_000,)


def test_null_devices_are_linked_with_each_other_and_with_the_host():
    with cx.Runtime(devices="null:3") as runtime:
        memories = [device.memory for device in runtime.platform.devices]
        assert all(runtime.platform.link(a, b) for a in [*memories, HOST] for b in memories if a != b)
