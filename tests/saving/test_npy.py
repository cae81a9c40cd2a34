"""`.npy` files by boxes: what NumPy writes is read, what is written NumPy reads, whatever the cuts and strides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from coexec.errors import ArgumentError, ConfigError, ShapeError
from coexec.geometry import Box, whole
from coexec.saving import runs
from coexec.saving.npy import NpyWriter, open_npy

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def boxed(draw: Any) -> tuple[tuple[int, ...], Box]:
    shape = draw(shapes)
    lo = [draw(st.integers(0, n)) for n in shape]
    return shape, Box(tuple(lo), tuple(draw(st.integers(a, n)) for a, n in zip(lo, shape, strict=True)))


def numbered(shape: tuple[int, ...], dtype: Any = "f8") -> Any:
    return (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape)


def between(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of zeros whose elements do not lie together."""
    every_second: Any = (*[slice(None, None, 2)] * len(shape), ...)
    return np.zeros([2 * n for n in shape], dtype)[every_second]


@settings(max_examples=150, deadline=None)
@given(boxed(), st.booleans(), st.sampled_from([0, 40, 1 << 20]), st.sampled_from([30, 1 << 20]))
def test_any_box_of_a_file_of_numpys_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[tuple[int, ...], Box],
    fortran: bool,
    whole_rows: int,
    at_once: int,
) -> None:
    shape, box = case
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    data = numbered(shape)
    np.save(path, data.copy(order="F") if fortran else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "WHOLE_ROWS", whole_rows)
        patch.setattr(runs, "AT_ONCE", at_once)
        found = open_npy(path)
        assert found.shape == shape
        assert np.array_equal(found.read(box), data[box.slices((0,) * len(shape))])
        strided = between(box.shape, "f8")
        assert np.array_equal(found.read(box, strided), data[box.slices((0,) * len(shape))])


@settings(max_examples=60, deadline=None)
@given(shapes, st.data())
def test_boxes_of_several_ranks_make_a_file_that_numpy_reads(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], draw: Any
) -> None:
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    data = numbered(shape, "i4")
    writer = NpyWriter(path, shape, "i4")
    writer.create()
    axis = draw.draw(st.integers(0, len(shape) - 1)) if shape else 0
    cut = draw.draw(st.integers(0, shape[axis])) if shape else 0
    for low, high in ((0, cut), (cut, shape[axis])) if shape else ((0, 0),):
        box = whole(shape)
        if shape:
            box = Box((*box.lo[:axis], low, *box.lo[axis + 1 :]), (*box.hi[:axis], high, *box.hi[axis + 1 :]))
        part = data[(*box.slices((0,) * len(shape)), ...)].copy(order="F")
        NpyWriter(path, shape, "i4").write(box, part)
    assert not path.exists()
    writer.finish()
    assert np.array_equal(np.load(path), data)


@pytest.mark.parametrize("dtype", ["u1", "c16", "?", "M8[s]", "S3", ">i4", [("a", "i4"), ("b", "f8")]])
def test_any_plain_type_goes_to_disk_and_back(dtype: Any, tmp_path: Path) -> None:
    data = np.zeros((3, 4), dtype)
    data.view(np.uint8)[...] = numbered(data.view(np.uint8).shape) % 2
    writer = NpyWriter(tmp_path / "a.npy", (3, 4), dtype)
    writer.create()
    writer.write(whole((3, 4)), data)
    writer.finish()
    assert np.load(tmp_path / "a.npy").tobytes() == data.tobytes()
    assert open_npy(tmp_path / "a.npy").read(Box((1, 1), (3, 3))).tobytes() == data[1:3, 1:3].tobytes()


def test_until_it_is_finished_what_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    writer = NpyWriter(path, (5,), "f4")
    writer.create()
    writer.write(Box((0,), (2,)), np.ones(2, "f4"))
    assert np.array_equal(np.load(path), np.arange(3))


def test_what_is_no_array_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read as \.npy"):
        open_npy(tmp_path / "missing.npy")
    text = tmp_path / "text.npy"
    text.write_text("hello, this is no array at all")
    with pytest.raises(ConfigError, match=r"cannot be read as \.npy"):
        open_npy(text)
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ConfigError, match="Python objects, which coexec never loads"):
        open_npy(objects)
    with pytest.raises(ArgumentError, match="Python objects cannot be saved"):
        NpyWriter(tmp_path / "o.npy", (1,), object)
    short = tmp_path / "short.npy"
    np.save(short, np.arange(100))
    short.write_bytes(short.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"is damaged: it has .* bytes, and should have"):
        open_npy(short)


def test_boxes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 5)))
    found = open_npy(tmp_path / "a.npy")
    for box in (Box((0,), (4,)), Box((0, 0), (5, 5)), Box((-1, 0), (2, 2))):
        with pytest.raises(ShapeError, match="does not lie in an array of shape"):
            found.read(box)
    with pytest.raises(ShapeError, match="cannot be read into"):
        found.read(Box((0, 0), (2, 2)), np.zeros((2, 3)))
    writer = NpyWriter(tmp_path / "b.npy", (4, 5), "f8")
    with pytest.raises(ConfigError, match="cannot open"):
        writer.write(whole((4, 5)), np.zeros((4, 5)))
    with pytest.raises(ShapeError, match="was given for a box of"):
        writer.write(whole((4, 5)), np.zeros((4, 5), "f4"))


def test_a_file_that_shrinks_meanwhile_is_said_to_be_damaged(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(100))
    found = open_npy(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:300])
    with pytest.raises(ConfigError, match=r"is damaged: the file ends .* too early"):
        found.read()
