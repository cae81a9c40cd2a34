"""Ranks save together and read apart: written on some number of ranks, read on another; who cannot write tells all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coexec.cluster.keeping import keep_together, save_npy
from coexec.cluster.loopback import loopback
from coexec.cluster.transport import Transport
from coexec.errors import CheckpointError, ConfigError
from coexec.geometry import Box
from coexec.saving.checkpoint import Checkpoint, numbers
from coexec.saving.npy import open_npy
from coexec.testing import on_ranks

WHOLE = np.arange(600.0).reshape(30, 20)


def part(rank: int, size: int) -> Box:
    return Box((rank * 30 // size, 0), ((rank + 1) * 30 // size, 20))


@pytest.mark.parametrize(("writers", "readers"), [(1, 3), (4, 1), (3, 4), (4, 3)])
def test_what_some_ranks_write_any_number_of_ranks_reads(writers: int, readers: int, tmp_path: Path) -> None:
    def save(transport: Transport) -> int:
        box = part(transport.rank, writers)
        mine = WHOLE[box.slices((0, 0))]
        save_npy(transport, tmp_path / "u.npy", WHOLE.shape, WHOLE.dtype, [(box, mine)])
        arrays = {"u": (WHOLE.shape, WHOLE.dtype)}
        numbers = [keep_together(transport, tmp_path, arrays, [("u", box, mine)], {"step": n}) for n in range(3)]
        transport.close()
        return numbers[-1]

    assert on_ranks(loopback(writers), save) == [3] * writers
    assert numbers(tmp_path) == [2, 3]
    assert np.array_equal(np.load(tmp_path / "u.npy"), WHOLE)
    for rank in range(readers):
        box = part(rank, readers)
        kept = Checkpoint(tmp_path)
        assert kept.values == {"step": 2} and kept.manifest.ranks == writers
        for found in (kept.read("u", box), open_npy(tmp_path / "u.npy").read(box)):
            assert np.array_equal(found, WHOLE[box.slices((0, 0))])


def test_a_rank_that_cannot_write_tells_all(tmp_path: Path) -> None:
    def save(transport: Transport) -> list[str]:
        box = part(transport.rank, 3)
        mine: Any = np.full(box.shape, None) if transport.rank == 1 else WHOLE[box.slices((0, 0))]
        told = []
        with pytest.raises(CheckpointError) as kept:
            keep_together(transport, tmp_path / "kept", {"u": (WHOLE.shape, "f8")}, [("u", box, mine)])
        told.append(str(kept.value))
        with pytest.raises(ConfigError) as saved:
            save_npy(transport, tmp_path / "nowhere" / "u.npy", WHOLE.shape, "f8", [(box, mine)])
        told.append(str(saved.value))
        transport.close()
        return told

    told = on_ranks(loopback(3), save)
    assert told[0] == told[1] == told[2]
    assert "Python objects" in told[0][0] and "(on rank 1)" in told[0][0]
    assert "cannot open" in told[0][1] and "(on rank 0)" in told[0][1]
    assert numbers(tmp_path / "kept") == []
