"""Which inputs may be handed out as they are: a body that could write one, or pass it on, never gets one."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.program.unwritten import lent_whole

# Bodies: which parameters are used in harmless ways alone, and copied by NumPy ------------------------------------------


def gathers(x: Any, idx: Any, out: Any) -> None:
    for lo in range(0, len(out), 4):
        out[lo : lo + 4] = np.take(x, idx[lo : lo + 4], mode="clip")


def looks_for_the_largest(x: Any, out: Any) -> None:
    out[0] = x[1:].argmax() + x.shape[0] + np.argmin(x)


def counts(x: Any, w: Any, out: Any) -> None:
    out[...] = np.bincount(x, weights=w, minlength=out.size)


def adds_rows(terms: Any, ptr: Any, out: Any) -> None:
    np.add.reduceat(terms, ptr[:-1], out=out)


def writes_it(x: Any, idx: Any, out: Any) -> None:
    idx[0] = 0
    out[...] = np.take(x, idx)


def adds_to_it(x: Any, idx: Any, out: Any) -> None:
    idx += 1
    out[...] = np.take(x, idx)


def writes_a_view_of_it(x: Any, idx: Any, out: Any) -> None:
    part = idx[1:]
    part[0] = 0
    out[...] = np.take(x, idx)


def passes_it_on(x: Any, idx: Any, out: Any) -> None:
    writes_it(x, idx, out)
    out[...] = np.take(x, idx)


def lets_numpy_write_it(x: Any, idx: Any, out: Any) -> None:
    np.add(x, 1, out=idx)
    out[...] = np.take(x, idx, 0, idx)


def calls_another_np(x: Any, idx: Any, out: Any) -> None:
    np = cx  # a name of its own
    out[...] = np.take(x, idx)


def sorts_it(x: Any, idx: Any, out: Any) -> None:
    idx.sort()
    out[...] = np.take(x, idx)


def keeps_it(x: Any, idx: Any, out: Any) -> None:
    out[...] = np.take(x, [idx][0])


def only_reads(x: Any, idx: Any, out: Any) -> None:
    out[...] = x[idx] + np.sum(x)


@pytest.mark.parametrize(
    ("body", "lent"),
    [
        (gathers, {"x", "idx"}),
        (looks_for_the_largest, {"x"}),
        (counts, {"x", "w"}),
        (adds_rows, {"terms", "ptr"}),
        (writes_it, {"x"}),
        (adds_to_it, {"x"}),
        (writes_a_view_of_it, {"x"}),
        (passes_it_on, set()),
        (lets_numpy_write_it, {"x"}),
        (calls_another_np, set()),
        (sorts_it, {"x"}),
        (keeps_it, {"x"}),
        (only_reads, set()),
    ],
)
def test_what_is_never_written_nor_passed_on_is_handed_out_as_it_is(body: Any, lent: set[str]) -> None:
    assert lent_whole(body) == lent


def test_a_body_whose_source_is_another_one_by_now_is_not_trusted(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import numpy as np\ndef body(x, idx, out):\n    {}\n    out[...] = np.take(x, idx)\n"
    (tmp_path / "changing.py").write_text(text.format("idx[0] = 0"))
    monkeypatch.syspath_prepend(tmp_path)
    import changing  # type: ignore[import-not-found]

    (tmp_path / "changing.py").write_text(text.format("idx.shape"))
    assert lent_whole(changing.body) == set()


def test_no_body_is_trusted_without_its_source() -> None:
    scope: dict[str, Any] = {"np": np}
    exec("def body(x, idx, out):\n    out[...] = np.take(x, idx)\n", scope)
    assert lent_whole(scope["body"]) == set()
    assert lent_whole(np.take) == set()


# In a runtime -------------------------------------------------------------------------------------------------------------

SIZE = 1 << 18


@cx.kernel(x=cx.read(cx.all), idx=cx.read, out=cx.write, split=0)
def take(x: Any, idx: Any, out: Any) -> None:
    np.take(x, idx, out=out, mode="clip")


@cx.kernel(x=cx.read(cx.all), idx=cx.read(cx.all), out=cx.write)
def wrong(x: Any, idx: Any, out: Any) -> None:
    idx[0] = 0
    out[...] = np.take(x, idx)


@pytest.mark.parametrize("debug", [False, True])
def test_indices_are_not_copied_unless_in_debug_mode(debug: bool) -> None:
    with cx.Runtime(devices="cpu:0", debug=debug, compile_bodies="off") as runtime:
        x, idx = np.arange(SIZE) * 0.5, np.arange(SIZE)[::-1].copy()
        arrays = cx.array(x), cx.array(idx), cx.array(np.zeros(SIZE))
        take(*arrays).result()
        tracemalloc.start()
        take(*arrays).result()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (most < idx.nbytes) is not debug
        assert np.array_equal(np.asarray(arrays[2]), x[idx])
        del runtime


def test_a_body_that_writes_an_input_still_fails() -> None:
    with cx.Runtime(devices="cpu:0", compile_bodies="off"):
        x, idx, out = cx.array(np.arange(8.0)), cx.array(np.arange(8)), cx.array(np.zeros(8))
        with pytest.raises(ValueError, match="read-only"):
            wrong(x, idx, out).result()


def test_views_parts_and_divisions_give_numpys_results() -> None:
    with cx.Runtime(devices="cpu:0,cpu:1", policy="even", compile_bodies="off"):
        x, idx = np.arange(100) * 0.5, np.arange(100)[::-1].copy()
        out = cx.array(np.zeros(50))
        take(cx.array(x), cx.array(idx)[::2], out)
        assert np.array_equal(np.asarray(out), x[idx[::2]])
