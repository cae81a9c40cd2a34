"""Bodies of the kinds that strangers write, drawn at random: NumPy's bits at every size that a form takes, and no flag that NumPy has not."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body, compiled, streaming
from tests.compile.random_bodies import bits
from tests.compile.stranger_bodies import CHANGED, LARGE, OTHERS, SIZES, Call, drawn

pytest.importorskip("llvmlite")
QUICK = 40
ALL, PART = 10_000, 200  # bodies of the slow suite, and of one test of it
CASTS = "dtype="  # NumPy says nothing of what a cast on the way into some functions does


@contextmanager
def flags() -> Iterator[set[str]]:
    """Collect the floating-point flags that NumPy would warn of."""
    seen: set[str] = set()
    before = np.seterrcall(lambda words, _: seen.add(words))
    with np.errstate(all="call"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield seen
    np.seterrcall(before)


def by_numpy(body: Callable[..., Any], given: Call) -> tuple[dict[str, Any] | None, set[str]]:
    """Return the arguments after a call of the body, or None if it raises; and its flags."""
    arguments = given.arguments()
    with flags() as seen:
        try:
            body(**arguments)
        except Exception:
            return None, seen
    return arguments, seen


def check(seed: int, text: str, body: Callable[..., Any], form: Compiled, given: Call) -> str:
    """Return what became of a call: it ran and has NumPy's bits, or it did not fit."""
    wanted, raised = by_numpy(body, given)
    got = given.arguments()
    with flags() as seen:
        if form(*(got[name] for name in form.names)):
            return "missed"
    assert wanted is not None, f"seed {seed}: NumPy raises where the compiled form runs\n{text}"
    for name in CHANGED:
        np.testing.assert_array_equal(bits(got[name]), bits(wanted[name]), f"seed {seed}: {name}\n{text}")
    assert seen <= raised or CASTS in text, f"seed {seed}: {seen - raised} where NumPy has none\n{text}"
    return "ran"


def tried(seeds: range, *sizes: tuple[tuple[int, int], ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        text, body, calls = drawn(seed, *sizes)
        if by_numpy(body, calls[0])[0] is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            form = compile_body(body, calls[0].arguments(), writes=CHANGED)
        if not isinstance(form, Compiled):
            assert form.reason and "fail" not in form.reason, f"seed {seed}: {form.reason}\n{text}"
            found["refused"] += 1
            continue
        found["compiled"] += 1
        found.update(check(seed, text, body, form, given) for given in calls)
    return found


def test_bodies_of_strangers_have_numpys_bits_at_every_size() -> None:
    found = tried(range(QUICK))
    assert found["compiled"] > QUICK // 6 and found["ran"] > found["compiled"], found


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile for vectors of 32 bytes, as for processors without AVX-512."""
    monkeypatch.setattr(compiled, "register_bytes", lambda: 32)


def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every result that can go past the caches do so."""
    monkeypatch.setattr(streaming, "last_cache_bytes", lambda: 64)
    monkeypatch.setattr(streaming, "ROW", 256)


def test_they_have_them_with_short_vectors_and_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch)
    found = tried(range(1_000, 1_000 + QUICK // 2))
    monkeypatch.undo()
    stream(monkeypatch)
    found += tried(range(2_000, 2_000 + QUICK // 2), LARGE, LARGE)
    assert found["ran"] > QUICK // 4, found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ALL // PART))
def test_ten_thousand_bodies_of_strangers_have_numpys_bits(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    way = (None, narrow, stream)[number % 3]
    if way is not None:
        way(monkeypatch)
    first = 100_000 + PART * number
    found = tried(range(first, first + PART), *((LARGE, LARGE) if way is stream else (SIZES, SIZES + OTHERS)))
    assert found["ran"] > PART // 6
