"""Small platform files for tests."""

from __future__ import annotations

import pytest

from coexec.errors import PlatformError
from coexec.machine.files import loading as files
from coexec.machine.platform import Link, Platform

HOST_ONLY = """
[[memory]]
name = "host"

[[device]]
name = "cpu:0"
kind = "cpu"
memory = "host"
"""

NODE = """
[[memory]]
name = "host"
capacity = "8 GiB"
bandwidth = 40e9

[[memory]]
name = "gpu"
count = 4
capacity = "2 GB"

[[device]]
name = "cpu"
kind = "cpu"
count = 2
cores = 4
memory = "host"

[[device]]
name = "gpu"
kind = "gpu"
count = 4
memory = "gpu"
model = "Fast GPU"
flops = { float64 = 1e12, float32 = 2e12 }
watts = 100.0
idle_watts = 10.0

[[switch]]
name = "pcie"
count = 2

[[nic]]
name = "nic"

[[link]]
from = "host"
to = "pcie"
name = "pcie"
bandwidth = 10e9
latency = 4e-6

[[link]]
from = "pcie"
to = "gpu"
pairwise = true
name = "pcie"
bandwidth = 20e9
latency = 1e-6

[[link]]
from = "pcie:0"
to = "nic"
bandwidth = 20e9
latency = 1e-6

[[link]]
from = "gpu:0"
to = "gpu:1"
name = "nvlink"
bandwidth = 100e9
latency = 2e-6
"""

CLUSTER = f"""nodes = 3
{NODE}
[network]
bandwidth = 5e9
latency = 3e-6
"""


def platform(text: str) -> Platform:
    """Return the platform that a text describes."""
    return Platform(*files.parse(text))


def ids(described: Platform) -> dict[str, int]:
    """Return the ids of memories by name."""
    return {memory.name: i for i, memory in enumerate(described.memories)}


def way(described: Platform, source: str, target: str) -> Link | None:
    """Return the way between two memories, by name."""
    known = ids(described)
    return described.link(known[source], known[target])


def refused(text: str) -> PlatformError:
    """Return the error about a text, as if it were in here.toml."""
    with pytest.raises(PlatformError) as caught:
        files.parse(text, "here.toml")
    return caught.value
