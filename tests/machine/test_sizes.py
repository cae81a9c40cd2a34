"""Sizes are read with their units, and written so that they read as the same."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from coexec.errors import ConfigError
from coexec.machine.sizes import bytes_as_written, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"), [("6GB", 6 * 10**9), ("512 MiB", 512 << 20), ("100", 100), ("1.5kb", 1500), (" .5 GiB ", 1 << 29)]
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["6 potatoes", "", "GB", ".", "1.2.3 GB", "-1 GB", "9" * 400 + " GB", "1e3"])
def test_a_size_without_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_bytes(text)


@given(st.one_of(st.integers(0, 2**62), st.builds(lambda n, k: n << k, st.integers(1, 999), st.integers(10, 50))))
def test_bytes_are_written_as_they_read(nbytes: int) -> None:
    written = bytes_as_written(nbytes)
    assert (parse_bytes(written) if isinstance(written, str) else written) == nbytes
    assert bytes_as_written(40 * 10**9) == "40 GB" and bytes_as_written(3 << 30) == "3 GiB"
