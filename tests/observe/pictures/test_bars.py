"""Small bars are drawn together, nothing is lost, and the number of elements stays bounded."""

from __future__ import annotations

from hypothesis import given, strategies as st

from coexec.observe.pictures.bars import SMALL, WIDEST, Bar, bar_svg, blocks

pieces = st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.sampled_from(["#4477AA", "#EE7733"])), max_size=60)


def row(shape: list[tuple[float, float, str]]) -> list[Bar]:
    bars, x = [], 0.0
    for gap, width, fill in shape:
        bars.append(Bar(x + gap, x + gap + width, fill, "", fill, "I1 kernel: 1 s"))
        x += gap + width
    return bars


@given(pieces)
def test_every_bar_is_in_exactly_one_block_and_large_ones_are_alone(shape: list[tuple[float, float, str]]) -> None:
    bars = row(shape)
    found = list(blocks(bars))
    assert sum(block.members for block in found) == len(bars)
    assert [b for b in bars if b.x1 - b.x0 >= SMALL] == [
        b.bar for b in found if b.bar.x1 - b.bar.x0 >= SMALL and b.members == 1
    ]
    for block in found:
        assert block.members == 1 or block.bar.x1 - block.bar.x0 <= WIDEST + SMALL
        assert 0 <= block.cover <= 1


def test_a_hundred_thousand_tiny_bars_become_some_hundred_blocks() -> None:
    bars = [Bar(i / 100, i / 100 + 0.008, "#4477AA", "", "axpy", "t") for i in range(100_000)]
    found = list(blocks(bars))
    assert len(found) < 1000 / WIDEST + 10
    assert 0.7 < found[3].cover < 0.9
    assert "300 together: axpy 300" in found[3].bar.title


def test_a_block_has_the_colour_that_fills_most_of_it_and_shows_failures() -> None:
    blue, orange = Bar(0, 0.1, "#4477AA", "", "a", "t"), Bar(0.1, 0.4, "#EE7733", "", "b", "t", failed=True)
    (block,) = blocks([blue, orange])
    assert block.bar.fill == "#EE7733" and block.bar.failed
    assert 'class="bad"' in bar_svg(block, 0, 20)


def test_a_label_is_written_only_where_it_fits() -> None:
    wide, narrow = Bar(0, 100, "#4477AA", "", "axpy", "t"), Bar(0, 9, "#4477AA", "", "axpy", "t")
    assert ">axpy</text>" in bar_svg(next(blocks([wide])), 0, 20)
    assert "<text" not in bar_svg(next(blocks([narrow])), 0, 20)
    assert "<text" not in bar_svg(next(blocks([wide])), 0, 9)
