"""An invented machine: devices that exist on paper, with whatever memories and links a test wants.

Before: machine/platform.py.  After: testing/graphs.py, tests.  Plain data.
"""

from __future__ import annotations

from ..machine.platform import HOST, USER, Device, Link, Memory, Platform, host_links


def invented_platform(
    devices: int = 1,
    *,
    shared: bool = False,
    peers: bool = True,
    paged: bool = True,
    lanes: int = 64,
    capacity: int | None = None,
    host: int | None = None,
) -> Platform:
    """Return devices dev:0, dev:1, ... each with a memory of its own (ids from 2), or all on the host's (`shared`).

    Without `peers` device memories are linked through the host only. `paged=False` makes host allocations exact.
    `capacity` limits the bytes of each device's memory, `host` those of the host's.
    """
    memories = [Memory("user"), Memory("host", host, paged=paged)]
    if shared:
        made = [Device(f"dev:{i}", "invented", HOST, (HOST, USER), lanes=lanes) for i in range(devices)]
        return Platform(tuple(made), tuple(memories), host_links(()))
    made = [Device(f"dev:{i}", "invented", i + 2, (i + 2,), lanes=lanes) for i in range(devices)]
    memories += [Memory(device.name, capacity) for device in made]
    ids = [device.memory for device in made]
    links = host_links(ids)
    if peers:
        links |= {(a, b): Link(a, b, bandwidth=20e9) for a in ids for b in ids if a != b}
    return Platform(tuple(made), tuple(memories), links)
