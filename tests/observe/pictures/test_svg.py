"""Units, colours and escapes of the pictures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, strategies as st

from coexec.observe.pictures.svg import (
    PALETTE,
    bytes_text,
    colours,
    count_text,
    document,
    esc,
    fit,
    ink_on,
    seconds_text,
    text_width,
    ticks,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.5, "1.50 s"),
        (0.0123, "12.3 ms"),
        (0.9999, "1.00 s"),
        (45e-6, "45.0 µs"),
        (2e-9, "2.00 ns"),
        (1234, "1,234 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_bytes_and_counts_read_well() -> None:
    assert [bytes_text(n) for n in (0, 999, 1500, 23e6, 4e9, 5e12)] == [
        "0 B",
        "999 B",
        "1.50 kB",
        "23.0 MB",
        "4.00 GB",
        "5.00 TB",
    ]
    assert [count_text(1, "copy"), count_text(2000, "copy"), count_text(3, "task")] == [
        "1 copy",
        "2,000 copies",
        "3 tasks",
    ]


@given(st.floats(1e-9, 1e6), st.integers(2, 20))
def test_ticks_are_round_increasing_and_about_as_many_as_asked(span: float, about: int) -> None:
    axis = ticks(span, about)
    assert axis.at[0] == 0 and list(axis.at) == sorted(set(axis.at)) and axis.at[-1] <= span * (1 + 1e-6)
    assert len(set(axis.labels)) == len(axis.at) <= about + 1
    assert len(axis.at) >= about / 3


def test_ticks_share_one_unit() -> None:
    assert ticks(0.0105, 5) == ([0.0, 0.005, 0.01], ["0", "5", "10"], "ms")
    assert ticks(0) == ([0.0], ["0"], "s")


def test_names_keep_their_colours_and_do_not_meet_while_there_are_enough() -> None:
    few = colours(["axpy", "heat", "norm"])
    assert len(set(few.values())) == 3 and colours(["norm", "heat", "axpy"]) == few
    many = colours(f"k{i}" for i in range(25))
    assert len(set(many.values())) == 25 and set(PALETTE) <= set(many.values())
    assert len(set(colours(f"k{i}" for i in range(len(PALETTE))).values())) == len(PALETTE)


def test_ink_is_readable_on_every_colour() -> None:
    assert {ink_on("#ffffff"), ink_on("#000000")} == {"#111111", "#ffffff"}


@given(st.text(), st.floats(0, 200))
def test_a_fitted_text_fits_or_is_empty(text: str, width: float) -> None:
    found = fit(text, width, 10)
    assert found == "" or text_width(found, 10) <= width or len(found) <= 2


@given(st.text())
def test_any_text_makes_a_valid_document(text: str) -> None:
    ET.fromstring(document(10, 10, [f'<text x="{esc(text)}">{esc(text)}</text>'], text))
