"""Streaming stores: NumPy's bits wherever rows begin, only for large results that nothing reads, and a fence after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body, streaming
from coexec.compile.forms import Forms

pytest.importorskip("llvmlite")

SMALL = 1 << 14  # bytes: a last cache for tests


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: SMALL)


def compiled(body: Callable[..., Any], writes: tuple[str, ...] = ("out",), **arguments: Any) -> Compiled:
    form = compile_body(body, arguments, writes=writes)
    assert isinstance(form, Compiled), form
    return form


def heat(u: Any, out: Any) -> None:
    out[...] = u[1:-1, 1:-1] + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])


def chain(x: Any, out: Any) -> None:
    out[...] = np.sqrt(x * x + 1) / 2 + x


def test_vectors_go_past_the_caches_and_a_fence_follows() -> None:
    text = compiled(chain, x=np.ones(8192), out=np.zeros(8192)).text
    assert "!nontemporal" in text
    assert text.index("call void @llvm.x86.sse.sfence()") > text.rindex("!nontemporal !0")


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i8"])
@pytest.mark.parametrize("start", [0, 1, 3, 7, 9])
@pytest.mark.parametrize("width", [1024, 1029])
def test_rows_that_begin_anywhere_have_numpys_bits_and_nothing_beside_them_changes(
    dtype: str, start: int, width: int
) -> None:
    rng = np.random.default_rng(start)

    def body(x: Any, out: Any) -> None:
        out[:, 1:] = x[:, :-1] * x[:, 1:] - x[:, 1:]

    x = (rng.random((40, width)) * 100).astype(dtype)
    wide = [np.full((40, width + 20), 7, dtype) for _ in range(2)]
    wanted, got = (each[:, start : start + width] for each in wide)
    form = compiled(body, x=x, out=got)
    assert "!nontemporal" in form.text
    body(x, wanted)
    assert form(x, got) == ""
    assert np.array_equal(wide[0], wide[1])


@pytest.mark.parametrize("side", [129, 200])
def test_a_stencil_has_numpys_bits(side: int) -> None:
    u = np.random.default_rng(0).random((side + 2, side + 2))
    wanted, got = np.zeros((side, side)), np.zeros((side, side))
    form = compiled(heat, u=u, out=got)
    assert "!nontemporal" in form.text
    heat(u, wanted)
    assert form(u, got) == ""
    assert np.array_equal(wanted, got)


def updated(x: Any, out: Any) -> None:
    out[...] = x + out


def read_again(x: Any, out: Any, more: Any) -> None:
    out[...] = x + 1
    more[...] = out * 2


def rows_summed(x: Any, out: Any) -> None:
    out[...] = x / x.sum(axis=1, keepdims=True)


def transposed(x: Any, out: Any) -> None:
    out.T[...] = x + 1


def exponentials(x: Any, out: Any) -> None:
    out[...] = np.exp(x)


@pytest.mark.parametrize("body", [updated, rows_summed, transposed, exponentials])
def test_results_that_are_read_or_reduced_or_not_written_in_order_stay_in_the_caches(body: Callable[..., Any]) -> None:
    assert "nontemporal" not in compiled(body, x=np.ones((256, 256)), out=np.zeros((256, 256))).text


def test_of_two_results_only_the_one_that_nothing_reads_goes_past_the_caches() -> None:
    arrays = {name: np.ones(8192) for name in ("x", "out", "more")}
    form = compiled(read_again, ("out", "more"), **arrays)
    vector = [line for line in form.text.splitlines() if "!nontemporal !0" in line]
    assert len(vector) == 1
    assert form(*arrays.values()) == ""
    assert arrays["more"].tolist() == [4.0] * 8192


def test_small_results_and_short_rows_stay_in_the_caches() -> None:
    assert "nontemporal" not in compiled(chain, x=np.ones(4095), out=np.zeros(4095)).text
    assert "nontemporal" not in compiled(chain, x=np.ones((512, 100)), out=np.zeros((512, 100))).text


def test_a_form_for_large_results_leaves_small_ones_to_another_and_the_other_way_round() -> None:
    large, small = (np.zeros(8192), np.zeros(8192)), (np.zeros(64), np.zeros(64))
    streams, stays = compiled(chain, x=large[0], out=large[1]), compiled(chain, x=small[0], out=small[1])
    assert streams(*large) == stays(*small) == ""
    assert streams(*small) == "out is too small for its stores"
    assert stays(*large) == "out is too large for its stores"


def test_both_forms_of_a_body_are_compared_before_they_serve() -> None:
    forms = Forms(chain, writes=["out"])
    way = forms._way
    for size in (64, 8192):
        x, out = np.full(size, 3.0), np.zeros(size)
        served = [forms.run((x, out), (), way)[0] for _ in range(3)]
        assert served == ["waiting", "compared", "compiled"]
        assert out.tolist() == (np.sqrt(x * x + 1) / 2 + x).tolist()
