"""Small clusters for tests: nodes with some GPUs each, on a network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import coexec as cx

TEXT = """
about = "A small cluster"
nodes = {nodes}

[[memory]]
name = "host"
capacity = "8 GiB"
bandwidth = 50e9

[[memory]]
name = "gpu"
count = {gpus}
capacity = "4 GB"
bandwidth = 500e9

[[device]]
name = "gpu"
kind = "gpu"
count = {gpus}
memory = "gpu"
flops = {{ float64 = 1e12, float32 = 1e12, int64 = 1e12, int32 = 1e12, int16 = 1e12, uint8 = 1e12, bool = 1e12, complex128 = 1e12 }}
bandwidth = 500e9
launch = 5e-6

[[nic]]
name = "nic"

[[link]]
name = "pcie"
from = "host"
to = "gpu"
bandwidth = 16e9
latency = 5e-6

[[link]]
name = "card"
from = "host"
to = "nic"
bandwidth = 16e9
latency = 1e-6

[network]
bandwidth = 10e9
latency = 2e-6
"""


@cache
def cluster(nodes: int, gpus: int = 1) -> cx.Platform:
    """Return a cluster of so many nodes with so many GPUs each."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "small.toml"
        file.write_text(TEXT.format(nodes=nodes, gpus=gpus))
        return cx.Platform.load(file)
