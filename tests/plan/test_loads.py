"""Loads of devices: work that is theirs counts, whoever tells of it."""

from __future__ import annotations

from coexec.geometry import Box
from coexec.graph.command import Chunk
from coexec.machine.platform import HOST, USER, Device, Platform
from coexec.plan.policies import Loads
from coexec.testing.conformance import NO_SHARE
from coexec.testing.invented import invented_platform


def _shared_cores() -> Platform:
    """Return two devices that occupy the same core."""
    return Platform(tuple(Device(f"dev:{i}", "cpu", HOST, (HOST, USER), cores=(0,)) for i in range(2)))


def test_what_the_host_itself_does_is_no_load_of_a_device() -> None:
    """Told of it in any way, one by one, as a step again or cut anew, the loads are those of the devices."""
    for platform in (invented_platform(2), _shared_cores()):
        loads = Loads(platform)
        loads.add("host", 1.0, 0.0, 7)
        chunks = [Chunk(device, Box((0,), (4,))) for device in ("host", "dev:0")]
        shares = [NO_SHARE._replace(seconds=1.0), NO_SHARE._replace(seconds=2.0)]
        loads.again(loads.parts(chunks, shares), 8)
        loads.in_pieces(["host"], ["host", "host"])
        assert loads.tasks == {"dev:0": 1, "dev:1": 0}
        assert loads.ready((7,)) == 0.0
        loads.remove("host", 1.0)
        loads.remove("dev:0", 2.0)
        assert loads.idle
