"""Many devices and links are told as few rows."""

from __future__ import annotations

from typing import Any

from coexec.cli.grouping import counts, devices, links, platform_devices, stem


def report(nodes: int) -> dict[str, Any]:
    told = {"utilisation": 0.5, "busy": 1.0, "idle": 1.0, "idle_by_cause": {"scheduling": 1.0}}
    names = [f"n{node}/{name}" for node in range(nodes) for name in ("gpu:0", "gpu:1", "host")]
    link = {
        "over": "pcie",
        "count": 2,
        "bytes": 10,
        "seconds": 1.0,
        "reasons": {"coherence": 2},
        "bytes_per_second": 10.0,
    }
    return {
        "devices": {name: {**told, "utilisation": 0.25 if name.endswith("1") else 0.75} for name in names},
        "simulation": {"energy": {"devices": {name: 2.0 for name in names if "gpu" in name}}},
        "copies": {"links": {f"n{i}/host -> n{i}/gpu:0": dict(link) for i in range(nodes)}},
    }


def test_few_devices_have_a_row_each() -> None:
    assert [row["name"] for row in devices(report(2))] == [
        f"n{i}/{d}" for i in (0, 1) for d in ("gpu:0", "gpu:1", "host")
    ]
    assert list(links(report(2))) == ["n0/host -> n0/gpu:0", "n1/host -> n1/gpu:0"]
    assert devices({**report(1), "simulation": None})[0]["joules"] is None


def test_many_devices_that_are_alike_share_a_row() -> None:
    gpus, hosts = devices(report(32))
    assert (gpus["name"], gpus["share"], gpus["joules"], gpus["busy"]) == ("64 x gpu", "50% (25% to 75%)", 128.0, 64.0)
    assert gpus["causes"] == {"scheduling": 64.0}
    assert (hosts["name"], hosts["joules"]) == ("32 x host", None)


def test_many_links_are_told_by_what_they_join() -> None:
    assert links(report(32)) == {
        "host -> gpu (32 ways)": {
            "count": 64,
            "bytes": 320,
            "seconds": 32.0,
            "over": "pcie",
            "reasons": {"coherence": 64},
            "bytes_per_second": 10.0,
        }
    }


def test_kernels_are_counted_by_device_or_together() -> None:
    assert counts({"gpu:0": 2, "gpu:1": 1}) == "gpu:0 2, gpu:1 1"
    assert counts({f"n{i}/gpu:0": 10 for i in range(32)}) == "gpu 320 on 32 devices"


def test_hosts_and_networks_are_no_devices_of_the_platform() -> None:
    assert platform_devices({"devices": {"cpu:0": 1, "host": 1, "n1/host": 1, "n0/network": 1}}) == ["cpu:0"]
    assert stem("n3/gpu:1") == "gpu"
