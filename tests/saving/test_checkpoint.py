"""Checkpoints: read as they were written whatever the pieces, complete or not there, and damage is always noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import CheckpointError, ShapeError, UnknownName
from coexec.geometry import Box, whole
from coexec.saving import checkpoint as module, manifest
from coexec.saving.checkpoint import Checkpoint, begin, commit, numbers, write
from tests.saving.test_npy import between


def save(folder: Path, arrays: dict[str, Any], ranks: int = 1, axis: int = 0, **more: Any) -> int:
    """Write a checkpoint of whole arrays, cut along an axis over so many ranks."""
    number = begin(folder)
    written = []
    for rank in range(ranks):
        pieces = []
        for name, data in arrays.items():
            box = whole(data.shape)
            if data.ndim:
                at = min(axis, data.ndim - 1)
                low, high = (rank * data.shape[at] // ranks, (rank + 1) * data.shape[at] // ranks)
                box = Box((*box.lo[:at], low, *box.lo[at + 1 :]), (*box.hi[:at], high, *box.hi[at + 1 :]))
            elif rank:
                continue
            pieces.append((name, box, data[(*box.slices((0,) * data.ndim), ...)]))
        written.append(write(folder, number, rank, pieces))
    commit(folder, number, {name: (data.shape, data.dtype) for name, data in arrays.items()}, written, **more)
    return number


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_box_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("kept")
    shape = tuple(data.draw(st.lists(st.integers(0, 9), max_size=3)))
    dtype = data.draw(st.sampled_from(["f8", "i2", "c16", "?"]))
    array = (np.arange(int(np.prod(shape))) * 7 % 251).astype(dtype).reshape(shape)
    with pytest.MonkeyPatch.context() as patch:
        block = data.draw(st.sampled_from([16, 48, 1 << 20]))
        patch.setattr(manifest, "BLOCK", block)
        patch.setattr(module, "BLOCK", block)
        save(folder, {"u": array}, ranks=data.draw(st.integers(1, 4)), axis=data.draw(st.integers(0, 2)))
        kept = Checkpoint(folder)
        lo = [data.draw(st.integers(0, n)) for n in shape]
        box = Box(tuple(lo), tuple(data.draw(st.integers(a, n)) for a, n in zip(lo, shape, strict=True)))
        there: Any = (*box.slices((0,) * len(shape)), ...)
        expected = array[there]
        assert np.array_equal(kept.read("u", box), expected)
        strided = between(box.shape, dtype)
        assert np.array_equal(kept.read("u", box, strided), expected)
        assert np.array_equal(kept.read("u"), array)


def test_types_and_values_come_back(tmp_path: Path) -> None:
    arrays = {
        "when": np.array(["2026-01-01", "2027-01-01"], "M8[D]"),
        "records": np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")]),
        "nested": np.zeros(2, [("p", [("x", "f4"), ("y", "f4")]), ("q", "i4", (2, 3))]),
        "names": np.array([b"one", b"two"]),
        "big-endian": np.arange(3, dtype=">i8"),
    }
    save(tmp_path, arrays, values={"step": 7, "name": "wave"})
    kept = Checkpoint(tmp_path)
    assert kept.values == {"step": 7, "name": "wave"}
    for name, data in arrays.items():
        assert kept.read(name).dtype == data.dtype
        assert kept.read(name).tobytes() == data.tobytes()


def test_the_last_ones_stay_and_the_newest_is_read(tmp_path: Path) -> None:
    for value in range(5):
        save(tmp_path, {"x": np.full(3, value)})
    assert numbers(tmp_path) == [4, 5]
    assert (Checkpoint(tmp_path).read("x") == 4).all()
    assert (Checkpoint(tmp_path, 4).read("x") == 3).all()
    with pytest.raises(CheckpointError, match=r"no checkpoint 2 in .* \(there: \[4, 5\]\)"):
        Checkpoint(tmp_path, 2)


@pytest.mark.parametrize("steps", range(4))
def test_killed_in_the_middle_the_one_before_is_intact(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, {"x": np.arange(10)})
    number = begin(tmp_path)
    if steps > 0:
        written = write(tmp_path, number, 0, [("x", whole((10,)), np.zeros(10, int))])
    if steps > 1:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module if steps == 2 else Path, "write_text" if steps == 2 else "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(tmp_path, number, {"x": ((10,), int)}, [written])
        monkeypatch.undo()
    assert numbers(tmp_path) == [1]
    assert np.array_equal(Checkpoint(tmp_path).read("x"), np.arange(10))
    save(tmp_path, {"x": np.ones(10)})
    assert Checkpoint(tmp_path).read("x").all()
    assert [entry.name for entry in sorted(tmp_path.iterdir())] == ["000001", "000002"]


def test_a_byte_that_changed_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    save(tmp_path, {"x": np.arange(10)})
    save(tmp_path, {"x": np.arange(400.0).reshape(20, 20)}, ranks=2)
    file = tmp_path / "000002" / "rank-1.bin"
    plain = file.read_bytes()
    for at in (0, 799, len(plain) - 1):
        file.write_bytes(plain[:at] + bytes([plain[at] ^ 1]) + plain[at + 1 :])
        with pytest.raises(
            CheckpointError, match=r"rank-1.bin is damaged: a checksum .* of 'x'; the one before it is number 1"
        ):
            Checkpoint(tmp_path).read("x")
        assert Checkpoint(tmp_path).read("x", Box((0, 0), (10, 20))).shape == (10, 20)
    file.write_bytes(plain[:-3])
    with pytest.raises(CheckpointError, match="is damaged: the file ends 3 bytes too early"):
        Checkpoint(tmp_path).read("x")
    file.unlink()
    with pytest.raises(CheckpointError, match=r"rank-1.bin cannot be read: No such file"):
        Checkpoint(tmp_path).read("x")


def test_a_manifest_that_changed_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, {"x": np.arange(10)})
    path = tmp_path / "000001" / "manifest.json"
    plain = path.read_text()
    for text in (plain.replace("10", "11"), plain[:-40], "", "[]", "{}", '{"crc32": 5, "manifest": []}'):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=r"manifest\.json"):
            Checkpoint(tmp_path)


def rewritten(path: Path, **changes: Any) -> None:
    """Change fields of a manifest, with the right checksum."""
    import zlib

    body = {**json.loads(json.loads(path.read_text())["manifest"]), **changes}
    text = json.dumps(body)
    path.write_text(json.dumps({"crc32": f"{zlib.crc32(text.encode()):08x}", "manifest": text}))


def test_a_checkpoint_of_another_version_or_with_strange_pieces_is_refused(tmp_path: Path) -> None:
    save(tmp_path, {"x": np.arange(10)})
    path = tmp_path / "000001" / "manifest.json"
    rewritten(path, version=2)
    with pytest.raises(CheckpointError, match="has version 2, and this coexec reads version 1"):
        Checkpoint(tmp_path)
    rewritten(path, version=1, format="something")
    with pytest.raises(CheckpointError, match="is no checkpoint of coexec"):
        Checkpoint(tmp_path)
    piece = {"file": "rank-0.bin", "offset": 0, "lo": [0], "hi": [10], "crc32": "00000000"}
    for change, words in (
        ({"file": "../../secret"}, "does not lie in its checkpoint"),
        ({"hi": [9]}, "1 elements are missing"),
        ({"hi": [11]}, "does not lie in 'x'"),
        ({"crc32": ""}, "not one checksum for each block"),
    ):
        entry = {"shape": [10], "dtype": "<i8", "pieces": [{**piece, **change}]}
        rewritten(path, format=manifest.FORMAT, arrays={"x": entry})
        with pytest.raises(CheckpointError, match=words):
            Checkpoint(tmp_path)
    rewritten(path, arrays={"x": {"shape": [1], "dtype": "|O", "pieces": [{**piece, "hi": [1]}]}})
    with pytest.raises(CheckpointError, match="Python objects"):
        Checkpoint(tmp_path)


def test_pieces_must_cover_each_array_once(tmp_path: Path) -> None:
    data = np.zeros((4, 4))
    for boxes, words in (
        ([Box((0, 0), (3, 4))], "4 elements are missing"),
        ([Box((0, 0), (3, 4)), Box((2, 0), (4, 2))], "overlap"),
        ([Box((0, 0), (4, 4)), Box((1, 1), (2, 2))], "overlap"),
    ):
        number = begin(tmp_path)
        written = write(tmp_path, number, 0, [("x", box, data[box.slices((0, 0))]) for box in boxes])
        with pytest.raises(CheckpointError, match=words):
            commit(tmp_path, number, {"x": ((4, 4), "f8")}, [written])
    assert numbers(tmp_path) == []


def test_what_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        Checkpoint(tmp_path / "nowhere")
    number = begin(tmp_path)
    with pytest.raises(ShapeError, match=r"contents of shape \(3,\) were given for the box \[0:4\]"):
        write(tmp_path, number, 0, [("x", Box((0,), (4,)), np.zeros(3))])
    with pytest.raises(CheckpointError, match="Python objects, which no checkpoint can hold"):
        write(tmp_path, number, 1, [("x", Box((0,), (1,)), np.array([None]))])
    with pytest.raises(UnknownName, match="unknown array in a checkpoint 'y'; did you mean"):
        commit(tmp_path, number, {"yy": ((1,), "f8")}, [write(tmp_path, number, 2, [("y", whole((1,)), np.zeros(1))])])
    save(tmp_path, {"x": np.zeros(4)})
    with pytest.raises(UnknownName, match="unknown array in the checkpoint 'z'"):
        Checkpoint(tmp_path).read("z")
    with pytest.raises(ShapeError, match="does not lie in 'x'"):
        Checkpoint(tmp_path).read("x", Box((0,), (5,)))
    with pytest.raises(ShapeError, match="cannot be read into"):
        Checkpoint(tmp_path).read("x", None, np.zeros(4, "f4"))
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write a checkpoint in"):
        begin(tmp_path / "file" / "below")
