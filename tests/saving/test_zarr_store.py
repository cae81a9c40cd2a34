"""Zarr stores by parts: what zarr writes is read, what is written zarr reads, and no chunk is written by two ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import coexec as cx
from coexec.errors import ArgumentError, ConfigError
from coexec.geometry import Box
from coexec.saving import zarr_store
from coexec.saving.zarr_store import AT_ONCE, ZarrSource, ZarrWriter, chunks_for
from tests.test_joined import driver, on


def zarr() -> Any:
    return pytest.importorskip("zarr", reason="needs the extra zarr: pip install 'coexec[zarr]'")


@given(st.lists(st.integers(0, 1 << 30), max_size=4).map(tuple), st.sampled_from([1, 8, 16]), st.integers(1, 1024))
def test_chunks_are_small_and_end_where_ranks_of_equal_parts_do(
    shape: tuple[int, ...], itemsize: int, ranks: int
) -> None:
    chunks = chunks_for(shape, itemsize, ranks)
    assert len(chunks) == len(shape) and all(chunk >= 1 for chunk in chunks)
    assert prod(chunks) * itemsize <= max(AT_ONCE, itemsize)
    part = shape[0] // ranks if shape else 0
    if part and shape[0] % ranks == 0 and part * prod(max(1, n) for n in shape[1:]) * itemsize <= AT_ONCE:
        assert chunks[0] == part


def test_without_zarr_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zarr", None)
    with cx.Runtime("cpu:0"):
        for act in (lambda: cx.save(tmp_path / "a.zarr", np.ones(3)), lambda: cx.load(tmp_path / "a.zarr")):
            with pytest.raises(ConfigError, match=r"pip install 'coexec\[zarr\]'"):
                act()
    assert list(tmp_path.iterdir()) == []


def test_python_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Python objects cannot be saved"):
        ZarrWriter(tmp_path / "a.zarr", (3,), object, 1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_arrays_go_to_stores_and_back_without_being_gathered(ranks: int, tmp_path: Path) -> None:
    library = zarr()
    data = np.random.default_rng(1).random((24, 5))

    def program(runtime: cx.Runtime) -> tuple[Any, int]:
        x = cx.array(data) * 2
        cx.save(tmp_path / "x.zarr", x)
        again = cx.load(tmp_path / "x.zarr") + 1
        cx.save(tmp_path / "y.zarr", again)
        sent = driver(runtime).network.bytes if ranks > 1 else 0
        return np.asarray(again), sent

    for found, sent in on(ranks, program):
        np.testing.assert_array_equal(found, data * 2 + 1)
        assert sent == 0  # cuts of equal parts are cuts of chunks
    np.testing.assert_array_equal(library.open_array(tmp_path / "x.zarr", mode="r")[...], data * 2)
    stored = library.open_array(tmp_path / "y.zarr", mode="r")
    np.testing.assert_array_equal(stored[...], data * 2 + 1)
    assert stored.chunks == (24 // ranks, 5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["x.zarr", "y.zarr"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_no_chunk_is_written_by_two_ranks_though_parts_do_not_fit(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = zarr()
    monkeypatch.setattr(zarr_store, "AT_ONCE", 4 * 7 * 8)  # bytes: four rows
    data = np.arange(31.0 * 7).reshape(31, 7)
    written: list[Box] = []
    write = ZarrWriter.write

    def note(writer: ZarrWriter, box: Box, part: Any) -> None:
        written.append(box)
        assert box.lo[0] % writer.rows == 0 and (box.hi[0] % writer.rows == 0 or box.hi[0] == 31)
        write(writer, box, part)

    monkeypatch.setattr(ZarrWriter, "write", note)
    on(ranks, lambda _: cx.save(tmp_path / "x.zarr", cx.array(data)))
    np.testing.assert_array_equal(library.open_array(tmp_path / "x.zarr", mode="r")[...], data)
    assert len(written) == ranks


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_store_of_another_program_is_read_whatever_its_chunks(version: int, ranks: int, tmp_path: Path) -> None:
    library = zarr()
    for name, data, chunks in (
        ("a", np.arange(60, dtype=">i4").reshape(10, 3, 2), (3, 2, 2)),
        ("b", np.linspace(0, 1, 17) * 1j, (5,)),
        ("c", np.array(7.5), ()),
        ("d", np.zeros((0, 4)), (1, 4)),
    ):
        path = tmp_path / f"{name}{version}.zarr"
        made = library.create_array(
            path, shape=data.shape, chunks=chunks, dtype=data.dtype, zarr_format=version, overwrite=True
        )
        made[...] = data
        for found in on(ranks, lambda _, path=path: np.asarray(cx.load(path))):
            np.testing.assert_array_equal(found, data)


def test_what_was_there_stays_until_the_new_store_is_complete(tmp_path: Path) -> None:
    library = zarr()
    path = tmp_path / "x.zarr"
    with cx.Runtime("cpu:0"):
        cx.save(path, np.ones(4))
        writer = ZarrWriter(path, (4,), "f8", 1)
        writer.create()
        writer.write(Box((0,), (4,)), np.zeros(4))
        np.testing.assert_array_equal(library.open_array(path, mode="r")[...], np.ones(4))  # killed here
        cx.save(path, np.full(6, 3.0))
    np.testing.assert_array_equal(library.open_array(path, mode="r")[...], np.full(6, 3.0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.zarr"]


def test_what_is_no_store_is_an_error_that_names_it(tmp_path: Path) -> None:
    library = zarr()
    library.create_group(tmp_path / "group.zarr")
    broken, folder, file = (tmp_path / name for name in ("broken.zarr", "folder", "file.zarr"))
    broken.mkdir()
    (broken / "zarr.json").write_text("{")
    folder.mkdir()
    file.write_text("text")
    makes: list[Callable[[], Any]] = [
        *[lambda name=name: cx.load(tmp_path / name) for name in ("group.zarr", "broken.zarr", "folder", "none.zarr")],
        lambda: cx.save(file, np.ones(3)),
    ]
    with cx.Runtime("cpu:0"):
        for make in makes:
            with pytest.raises(ConfigError, match=str(tmp_path)):
                make()
    assert file.read_text() == "text"


@pytest.mark.parametrize("where", ["filters", "compressors"])
def test_a_store_that_would_unpickle_is_refused(where: str, tmp_path: Path) -> None:
    library = zarr()
    pickle = pytest.importorskip("numcodecs").Pickle()
    path = tmp_path / "p.zarr"
    codecs = {"compressors": None, where: [pickle]}
    library.create_array(path, shape=(3,), chunks=(3,), dtype="f8", zarr_format=2, **codecs)
    with pytest.raises(ConfigError, match=r"never loads|No Zarr data type"):  # zarr itself refuses some of them
        ZarrSource(path)
