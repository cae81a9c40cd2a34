"""Python loops over blocks of rows: they become the whole where each row is its own affair, and nowhere else."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Compiled, compile_body
from coexec.compile.reference import Meaning
from coexec.compile.refused import Untraceable
from coexec.compile.trace import _traced, trace

ROWS = (8, 5, 16, 17, 23, 24, 40, 41, 7)  # of which the first is traced; blocks have 8
CLOSE = cx.close(64)
NAMES = "x, y, v, w, p, out, u, total, all"


@pytest.fixture(autouse=True)
def _llvm() -> None:
    pytest.importorskip("llvmlite")


def made(text: str) -> Any:
    space: dict[str, Any] = {"np": np, "B": 8}
    lines = "\n".join(f"    {line}" for line in text.strip("\n").splitlines())
    exec(f"def body({NAMES}):\n{lines}\n", space)
    return space["body"]


def arguments(n: int, seed: int = 0) -> dict[str, Any]:
    """Return arrays of n rows, of whole numbers: sums of them are exact in every order."""
    rng = np.random.default_rng(seed)

    def whole(*shape: int) -> Any:
        return rng.integers(-9, 10, shape).astype(float)

    found = {"x": whole(n, 21), "y": whole(n, 21), "v": whole(21), "w": whole(n), "p": whole(n + 2, 23)}
    return found | {"out": whole(n, 21), "u": whole(n, 21), "total": whole(21), "all": whole(3)}


def vanished(text: str, numerics: Any = cx.exact, first: int = ROWS[2]) -> Compiled:
    """Compile a body at one size, and compare it with NumPy there and at every other that fits."""
    body = made(text)
    writes = {"out", "u", "total", "all"}
    form = compile_body(body, arguments(first), writes=writes, numerics=numerics)
    assert isinstance(form, Compiled), form
    traced = trace(body, arguments(first), writes, free=numerics != cx.exact)
    fitted = 0
    for seed, n in enumerate((first, *ROWS)):
        wanted, got = arguments(n, seed), arguments(n, seed)
        body(**wanted)
        if form(*got.values()):
            assert seed, "it does not fit its own arguments"
            continue
        fitted += 1
        for name in writes:
            np.testing.assert_array_equal(got[name], wanted[name], f"{name} of {n} rows:\n{text}")
        for name, array in Meaning(traced, arguments(n, seed)).run().items():
            np.testing.assert_array_equal(array, wanted[name], f"the graph, {name} of {n} rows:\n{text}")
    form.fitted = fitted  # type: ignore[attr-defined]
    return form


BECOMES_THE_WHOLE = [
    """
for lo in range(0, len(x), B):
    out[lo : lo + B] = x[lo : lo + B] * 2 + v
""",
    """
rows = max(1, 170 // x.shape[1])
for lo in range(0, len(out), rows):
    part = slice(lo, min(lo + rows, len(out)))
    t = x[part] * y[part]
    out[part] = t + t.sum(axis=1, keepdims=True)
""",
    """
for lo in range(0, len(out), B):
    mine, near = out[lo : lo + B], p[lo : lo + B + 2]
    np.multiply(near[1:-1, 1:-1], 4.0, out=mine)
    mine -= near[:-2, 1:-1]
    mine -= near[2:, 1:-1]
    mine -= near[1:-1, 2:]
""",
    """
for lo in range(0, len(x), B):
    hi = min(lo + B, len(x))
    t = np.empty((hi - lo, 21))
    t[...] = x[lo:hi]
    t *= w[lo:hi, None]
    u[lo:hi] += t
    out[lo:hi] = u[lo:hi] - t
""",
    """
t = x * 2
for lo in range(0, len(x), B):
    out[lo : lo + B] = t[lo : lo + B] + x[lo : lo + B].max(axis=1)[:, None]
u[...] = out
""",
    """
for lo in range(0, len(x), B):
    for left in range(0, x.shape[1], 4):
        out[lo : lo + B, left : left + 4] = x[lo : lo + B, left : left + 4] * v[left : left + 4]
""",
    """
for lo in range(0, len(x), B):
    k = 2
    k = k + 1
    part = x[lo : lo + B]
    part = part * k
    out[lo : lo + B] = part
for lo in range(0, len(x), B):
    part = out[lo : lo + B]
    part += 1
""",
    """
rows = max(1, 170 // x.shape[1])
for lo in range(0, len(out), rows):
    part = slice(lo, lo + rows)
    np.add(x[part], y[part], out=out[part])
    u[part] = (x[part].T > 0).argmax(axis=0)[:, None]
""",
    """
t = np.zeros(x.shape)
for lo in range(0, len(x), B):
    t[lo : lo + B] = x[lo : lo + B] + 1
    t[lo : lo + B] *= 2
out[...] = t
""",
]


@pytest.mark.parametrize("text", BECOMES_THE_WHOLE)
def test_a_loop_over_blocks_becomes_the_whole_and_serves_every_number_of_rows(text: str) -> None:
    form = vanished(text)
    assert form.fitted == len(ROWS) + 1, form.traced.guards.answers  # type: ignore[attr-defined]


ADDED_UP = [
    """
for lo in range(0, len(x), B):
    part = x[lo : lo + B]
    out[lo : lo + B] = part * 2
    total += part.sum(axis=0)
    all[0] += part.sum()
""",
    """
for lo in range(0, len(x), B):
    total += w[lo : lo + B] @ x[lo : lo + B]
    all[1:2] += np.einsum('ij,ij->', x[lo : lo + B], y[lo : lo + B])
""",
    """
for lo in range(0, len(x), B):
    hi = min(lo + B, len(x))
    pull = np.zeros((hi - lo, 4))
    for left in range(0, len(y), 6):
        others = slice(left, min(left + 6, len(y)))
        pull += (x[lo:hi, None, :4] - y[None, others, :4]).sum(axis=1)
    out[lo:hi, :4] = pull * 2
""",
]


@pytest.mark.parametrize("text", ADDED_UP)
def test_sums_over_blocks_become_sums_over_the_whole_where_any_order_will_do(text: str) -> None:
    form = vanished(text, CLOSE)
    assert form.fitted == len(ROWS) + 1, form.traced.guards.answers  # type: ignore[attr-defined]


def test_sums_of_floats_over_blocks_keep_their_order_without_that() -> None:
    form = vanished(ADDED_UP[0].replace("all[0] += part.sum()", "u[lo : lo + B] = 2 * part"))
    assert form.fitted < len(ROWS) + 1  # type: ignore[attr-defined]  # unrolled, for as many blocks as there were


def test_integers_are_added_up_over_blocks_in_any_order() -> None:
    def body(x, hits):
        for lo in range(0, len(x), 8):
            hits += np.count_nonzero(x[lo : lo + 8] > 0)

    form = compile_body(body, {"x": np.ones(20), "hits": np.zeros((), int)}, writes={"hits"})
    assert isinstance(form, Compiled)
    for n in (3, 8, 21, 100):
        x, hits = np.random.default_rng(n).normal(size=n), np.full((), 5)
        assert form(x, hits) == ""
        assert hits == 5 + (x > 0).sum()


DEPENDS_ON_BLOCKS = [
    ("k = 1\nfor lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo : lo + B] * k\n    k = k + 1", "carries k"),
    ("n = 0\nfor lo in range(0, len(x), B):\n    out[lo : lo + B] = n\n    n += 1", "carries n"),
    (
        "first = True\nfor lo in range(0, len(x), B):\n    if not first:\n        out[lo : lo + B] = 3\n    first = False",
        "carries first",
    ),
    ("seen = []\nfor lo in range(0, len(x), B):\n    out[lo : lo + B] = len(seen)\n    seen.append(1)", "changes seen"),
    ("seen = [0]\nfor lo in range(0, len(x), B):\n    out[lo : lo + B] = seen[0]\n    seen[0] += 1", "changes seen"),
    ("for lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo : lo + B]\n    break", "leaves a loop"),
    ("for lo in range(0, len(x), B):\n    if lo == 0:\n        out[lo : lo + B] = 1", "something else in some blocks"),
    (
        "for lo in range(0, len(x), B):\n    if lo + B <= len(x):\n        out[lo : lo + B] = 2\n    else:\n        out[lo:] = 3",
        "something else in some blocks",
    ),
    (
        "for lo in range(0, len(x), B):\n    hi = min(lo + B, len(x))\n    out[lo:hi] = x[lo:hi] - x[hi - 1]",
        "row by row",
    ),
    ("for lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo]", "row by row"),
    ("for lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo : lo + B][::-1]", "row by row"),
    ("for lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo : lo + B].max(axis=0)", "reduces the rows"),
    (
        "for lo in range(0, len(x), B):\n    out[lo : lo + B] = x[lo : lo + B] - x[lo : lo + B].sum()",
        "reduces the rows",
    ),
    ("for lo in range(0, len(x), B):\n    out[lo : lo + B] = lo", "the number of a row"),
    (
        "for lo in range(0, len(x), B):\n    hi = min(lo + B, len(x))\n    out[lo:hi] = np.arange(hi - lo)[:, None]",
        "counts the rows",
    ),
    ("for lo in range(0, len(x), B):\n    t = x[lo : lo + B] * 1\n    t[0] = 0\n    out[lo : lo + B] = t", "some rows"),
    ("for lo in range(0, len(x), B):\n    t = x[lo : lo + B] * 1\n    t[1:] += 1\n    out[lo : lo + B] = t", ""),
    ("for lo in range(0, len(u) - 1, B):\n    out[lo : lo + B] = u[lo : lo + B]\n    u[lo + 1 : lo + 1 + B] = 5", ""),
    ("for lo in range(0, len(u), B):\n    u[lo : lo + B] = u[: len(u[lo : lo + B])] + 1", ""),
    ("for lo in range(0, len(x), B):\n    total[...] = x[lo]", "same elements in each block"),
    ("for lo in range(0, len(x), B):\n    total += 1", "same elements in each block"),
    (
        "for lo in range(0, len(x), B):\n    out[lo : lo + B] = total\n    total += x[lo : lo + B].sum(axis=0)",
        "before they are complete",
    ),
    (
        "t = np.zeros(21)\nfor lo in range(0, len(x), B):\n    out[lo : lo + B] = t\n    t += x[lo : lo + B].sum(axis=0)",
        "before they are complete",
    ),
    (
        "old = total.copy()\nfor lo in range(0, len(x), B):\n    total[...] = old + x[lo : lo + B].sum(axis=0)",
        "same elements in each block",
    ),
    ("for lo in range(0, len(x), B):\n    t = x[lo : lo + B] * 2\nout[: len(t)] = t", "something else"),
    ("for lo in range(0, len(x), B):\n    last = w[lo : lo + B].max()\nall[...] = last", "what the last one left"),
    ("for n, lo in enumerate(range(0, len(x), B)):\n    out[lo : lo + B] = n", ""),
    ("for a, lo in zip((1, 2), range(0, len(x), B)):\n    out[lo : lo + B] = a", ""),
    ("los = [lo for lo in range(0, len(x), B)]\nout[...] = len(los)", ""),
    ("for lo in range(0, len(x), B):\n    part = x[lo : lo + B]\n    out[lo : lo + B] = part @ part[:1].T", ""),
    ("los = range(0, len(x), B)\nout[...] = len(los)\nout[0] = los[-1]", ""),
]


@pytest.mark.parametrize(("text", "words"), DEPENDS_ON_BLOCKS)
def test_a_loop_whose_blocks_differ_is_never_taken_for_the_whole(text: str, words: str) -> None:
    """Such a loop is unrolled for one number of rows or refused; whatever fits has NumPy's results."""
    body, writes = made(text), {"out", "u", "total", "all"}
    for first, numerics in ((16, cx.exact), (23, CLOSE)):
        form = compile_body(body, arguments(first), writes=writes, numerics=numerics)
        for seed, n in enumerate((first, *ROWS)):
            wanted, got = arguments(n, seed), arguments(n, seed)
            try:
                body(**wanted)
            except ValueError:  # NumPy refuses such sizes
                continue
            if isinstance(form, Compiled) and not form(*got.values()):
                for name in writes:
                    np.testing.assert_array_equal(got[name], wanted[name], f"{name} of {n} rows:\n{text}")
    if words:
        with pytest.raises(Untraceable, match=words):
            _traced(body, arguments(23), writes, (), free=True, vanish=True)


def random_loop(seed: int) -> str:
    """Return a body with a loop over blocks, right or wrong."""
    random = Random(seed)
    at = ("[lo : lo + B]", "[lo:hi]", "[part]")
    names = ["x", "y", "u", "out"]

    def rows(depth: int) -> str:
        kind = random.random()
        if depth <= 0 or kind < 0.35:
            return random.choice(
                (f"{random.choice(names)}{random.choice(at)}", "t", "v", "p[lo : lo + B + 2][2:, 1:-1]")
            )
        if kind < 0.6:
            return f"({rows(depth - 1)} {random.choice('+-*')} {rows(depth - 1)})"
        if kind < 0.75:
            return f"({rows(depth - 1)} + x{random.choice(at)}).sum(axis={random.choice((0, 1, 1))}, keepdims=True)"
        if kind < 0.85:
            return f"np.where({rows(depth - 1)} > {random.choice(('0', 'w[part][:, None]', 'lo'))}, {rows(0)}, 2)"
        return random.choice(("x[lo]", "u[hi - 1]", "t[0]", "total", "k", "out[:1]", "x[lo:hi][::-1]", "out[part] * 2"))

    lines = ["t = x[lo:hi] * 2"]
    for _ in range(random.choice((1, 2, 3))):
        choices = (
            f"out[part] = {rows(2)}",
            f"out[part] = {rows(1)}",
            f"u[lo : lo + B] += {rows(2)}",
            f"t = t + {rows(1)}",
            f"t += {rows(1)}",
            "total += t.sum(axis=0)",
            "total += x[part].sum(axis=0)",
            "k = k + 1",
            f"out[lo : lo + B, :4] = ({rows(1)} + t)[:, 1:5]",
        )
        lines += [random.choice(choices)]
    head = "k = 3\nfor lo in range(0, len(x), B):\n    hi = min(lo + B, len(x))\n    part = slice(lo, hi)\n"
    return head + "\n".join(f"    {line}" for line in lines) + "\nu -= out"


def check_random(seeds: range) -> tuple[int, int]:
    compiled = others = 0
    writes = {"out", "u", "total", "all"}
    for seed in seeds:
        text = random_loop(seed)
        body = made(text)
        sizes = (Random(seed).choice((16, 19)), *ROWS)
        try:
            body(**arguments(sizes[0], seed))
        except ValueError:
            continue
        form = compile_body(body, arguments(sizes[0]), writes=writes, numerics=Random(seed).choice((cx.exact, CLOSE)))
        if not isinstance(form, Compiled):
            assert form.reason
            continue
        for number, n in enumerate(sizes):
            wanted, got = arguments(n, number), arguments(n, number)
            if form(*got.values()):
                assert number, text
                continue
            body(**wanted)
            for name in writes:
                np.testing.assert_array_equal(got[name], wanted[name], f"seed {seed}, {name} of {n} rows:\n{text}")
            compiled, others = compiled + (not number), others + (number > 0)
    return compiled, others


def test_random_loops_over_blocks_are_right_or_refused() -> None:
    compiled, others = check_random(range(14))
    assert compiled > 4 and others > 12


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 500))
def test_thousands_of_random_loops_over_blocks_are_right_or_refused(first: int) -> None:
    compiled, others = check_random(range(first, first + 500))
    assert compiled > 100 and others > 300
