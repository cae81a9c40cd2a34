"""Random bodies: the graph means what the body does, and the compiled form has NumPy's bits, also at other sizes."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest

from coexec.compile import Compiled, compile_body
from coexec.compile.reference import Meaning
from coexec.compile.refused import Untraceable
from coexec.compile.trace import trace
from tests.compile.random_bodies import Drawn, bits, copied, draw

QUICK = 24  # bodies; each takes an eighth of a second to compile
ALL, PART = 10_000, 200  # bodies of the slow suite, and of one test of it: a minute of processor time, at most


def fails_in_numpy(drawn: Drawn, call: int) -> bool:
    try:
        drawn.body(**copied(drawn.calls[call]))
    except Exception:
        return True
    return False


def same_at(drawn: Drawn, call: int, form: Compiled, seed: int) -> str:
    """Return what became of one call: it ran, or why not."""
    wanted, got = copied(drawn.calls[call]), copied(drawn.calls[call])
    drawn.body(**wanted)
    missed = form(*(got[name] for name in form.names))
    if not missed:
        for name in drawn.writes:
            np.testing.assert_array_equal(bits(got[name]), bits(wanted[name]), f"seed {seed}: {name}\n{drawn.text}")
    return missed


def check(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        drawn = draw(seed)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fails_in_numpy(drawn, 0):
                continue
            form = compile_body(drawn.body, drawn.calls[0], writes=drawn.writes)
            if not isinstance(form, Compiled):
                assert form.reason
                found["refused"] += 1
                continue
            assert same_at(drawn, 0, form, seed) == "", drawn.text
            found["compiled"] += 1
            if not fails_in_numpy(drawn, 1):
                found["guard" if same_at(drawn, 1, form, seed) else "other sizes"] += 1
    return found


def test_compiled_random_bodies_have_numpys_bits_also_at_other_sizes() -> None:
    pytest.importorskip("llvmlite")
    found = check(range(QUICK))
    assert found["compiled"] > QUICK // 3 and found["other sizes"] > QUICK // 4, found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100_000, 100_000 + ALL, PART))
def test_ten_thousand_random_bodies_have_numpys_bits(first: int) -> None:
    pytest.importorskip("llvmlite")
    found = check(range(first, first + PART))
    assert found["compiled"] > PART // 3


def test_the_graph_of_a_random_body_means_what_the_body_does() -> None:
    meant = 0
    for seed in range(500, 600):
        drawn = draw(seed)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if fails_in_numpy(drawn, 0):
                continue
            try:
                traced = trace(drawn.body, drawn.calls[0], drawn.writes)
            except Untraceable:
                continue
            for number in range(2):
                if fails_in_numpy(drawn, number):
                    continue
                meaning = Meaning(traced, drawn.calls[number])
                if meaning.missed():
                    assert number, f"seed {seed}: {meaning.missed()}\n{drawn.text}"
                    continue
                wanted = copied(drawn.calls[number])
                drawn.body(**wanted)
                for name, got in meaning.run().items():
                    np.testing.assert_array_equal(bits(got), bits(wanted[name]), f"seed {seed}: {name}\n{drawn.text}")
                meant += 1
    assert meant > 50
