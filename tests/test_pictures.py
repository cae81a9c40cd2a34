"""The examples' pictures are what their formats say: a PNG with the right pixels, an SVG that any reader can parse."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
import zlib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.repository import ROOT


@pytest.fixture(scope="module")
def picture() -> Any:
    spec = spec_from_file_location("picture", ROOT / "examples" / "picture.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pixels_of(path: Path) -> np.ndarray[Any, Any]:
    """Return what a PNG of filter 0 and 2 shows; every chunk's checksum must be right."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, parts = 8, {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        parts[kind] = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + parts[kind])
        at += 12 + length
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert rows[:, 0].tolist() == [0, *[2] * (height - 1)]
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)


def test_a_heat_map_shows_each_value_in_the_colour_of_its_level(picture, tmp_path):
    path = tmp_path / "map.png"
    picture.heat_map(path, [[0.0, 5.0, 10.0], [np.nan, -3.0, 99.0]], low=0, high=10, scale=2)
    shown = pixels_of(path)[::2, ::2]
    low, high = (tuple(bytes.fromhex(picture.VIRIDIS.split()[end])) for end in (0, -1))
    assert pixels_of(path).shape == (4, 6, 3)
    assert tuple(shown[0, 0]) == tuple(shown[1, 1]) == low
    assert tuple(shown[1, 0]) == (255, 255, 255)
    assert tuple(shown[0, 2]) == tuple(shown[1, 2]) == high
    assert tuple(shown[0, 1]) not in (low, high)


def test_a_heat_map_of_one_value_has_one_colour(picture, tmp_path):
    picture.heat_map(tmp_path / "flat.png", np.full((3, 4), 7.0), picture.BALANCE)
    assert len(np.unique(pixels_of(tmp_path / "flat.png").reshape(-1, 3), axis=0)) == 1


@pytest.mark.parametrize("log", ["", "y", "xy"])
def test_a_plot_is_xml_with_its_lines_dots_and_names(picture, tmp_path, log):
    path = tmp_path / "plot.svg"
    x = np.arange(1, 50)
    shown = [picture.Series("a < b", x, 1.0 / x), picture.Series("dots", x, x / 7, points=True)]
    picture.plot(path, "Title & more", shown, x="step", y="value", log=log)
    root = ET.parse(path).getroot()
    texts = {found.text for found in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Title & more", "a < b", "dots", "step", "value"} <= texts
    line = next(root.iter("{http://www.w3.org/2000/svg}polyline")).attrib["points"].split()
    assert len(line) == len(x)
    across = [float(place.partition(",")[0]) for place in line]
    assert across == sorted(across) and 0 < across[0] < across[-1] < 720


def test_equal_axes_give_a_unit_the_same_length(picture, tmp_path):
    picture.plot(tmp_path / "wide.svg", "t", [picture.Series("", [0, 4], [0, 1])], equal=True)
    root = ET.parse(tmp_path / "wide.svg").getroot()
    (a, b), (c, d) = (
        map(float, p.split(","))
        for p in next(root.iter("{http://www.w3.org/2000/svg}polyline")).attrib["points"].split()
    )
    assert c - a == pytest.approx(4 * (b - d), abs=0.5)
