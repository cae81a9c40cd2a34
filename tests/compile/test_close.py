"""Sums in any order and products of matrices: for kernels that declare to be close, and never for others."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Compiled, Declined, Forms, compile_body
from coexec.compile.reference import Meaning
from coexec.compile.trace import trace
from coexec.errors import ArgumentError

CLOSE = cx.close(64)


@pytest.fixture(autouse=True)
def _llvm() -> None:
    pytest.importorskip("llvmlite")


def made(text: str, names: str) -> Any:
    space: dict[str, Any] = {"np": np}
    exec(f"def body({names}):\n    {text}\n", space)
    return space["body"]


def whole_numbers(seed: int, *shape: int, dtype: str = "f8") -> np.ndarray[Any, Any]:
    """Return small integers as floats: their products and sums are exact in every order, rounded once or twice."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def check(body: Any, arguments: dict[str, Any], writes: set[str], *, ulp: float = 0.0) -> Compiled:
    form = compile_body(body, arguments, writes=writes, numerics=CLOSE)
    assert isinstance(form, Compiled), form
    wanted, got = ({k: v.copy() if k in writes else v for k, v in arguments.items()} for _ in range(2))
    body(**wanted)
    assert form(*got.values()) == ""
    for name in writes:
        gap = np.abs(wanted[name].astype(float) - got[name]).max()
        assert gap <= ulp * np.finfo(float).eps * np.abs(wanted[name]).max(), (name, gap)
    return form


PRODUCTS = [
    ("out[...] = a @ b", (37, 5), (5, 41), (37, 41)),
    ("out[...] = a @ b", (37, 129), (129, 3), (37, 3)),
    ("out[...] = a @ b.T", (37, 129), (6, 129), (37, 6)),
    ("out[...] = a.T @ b", (129, 3), (129, 4), (3, 4)),
    ("out[...] = a @ b", (37, 11), (11,), (37,)),
    ("out[...] = a @ b", (7,), (7, 33), (33,)),
    ("out[...] = a @ b", (1003,), (1003,), ()),
    ("out[...] = a @ b", (4, 6, 5), (5, 30), (4, 6, 30)),
    ("out[...] = a[:, ::2] @ b[1:6]", (37, 9), (9, 21), (37, 21)),
    ("np.matmul(a, b, out=out)", (37, 5), (5, 41), (37, 41)),
    ("out[...] = np.dot(a, b) + a.dot(b)", (9, 5), (5, 41), (9, 41)),
    ("np.vecdot(a, b, out=out)", (37, 130), (37, 130), (37,)),
    ("out[...] = np.einsum('ij,ij->', a, b)", (37, 130), (37, 130), ()),
    ("out[...] = np.einsum('ij,jk', a, b)", (37, 13), (13, 8), (37, 8)),
    ("out[...] = np.einsum('ij,kj->ki', a, b)", (37, 13), (8, 13), (8, 37)),
    ("np.einsum('ij,i->j', a, b, out=out)", (37, 130), (37,), (130,)),
    ("out[...] = (a @ b).sum(axis=0) - (a @ b)[0].max()", (37, 5), (5, 41), (41,)),
]


@pytest.mark.parametrize(("text", "a", "b", "out"), PRODUCTS)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_product_of_matrices_is_right_in_whatever_order(text: str, a: Any, b: Any, out: Any, dtype: str) -> None:
    arguments = {"a": whole_numbers(1, *a, dtype=dtype), "b": whole_numbers(2, *b, dtype=dtype)}
    check(made(text, "a, b, out"), arguments | {"out": np.zeros(out, dtype)}, {"out"})


@pytest.mark.parametrize(("text", "a", "b", "out"), PRODUCTS[:6])
@pytest.mark.parametrize("dtype", ["i8", "i4", "u1", "?"])
def test_a_product_of_integers_has_numpys_bits_without_any_declaration(
    text: str, a: Any, b: Any, out: Any, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    high = 2 if dtype == "?" else np.iinfo(dtype).max
    given = {"a": rng.integers(0, high, a).astype(dtype), "b": rng.integers(0, high, b).astype(dtype)}
    given["out"] = np.zeros(out, dtype)
    form = compile_body(made(text, "a, b, out"), given, writes={"out"})
    assert isinstance(form, Compiled), form
    wanted, got = given | {"out": given["out"].copy()}, given | {"out": given["out"].copy()}
    made(text, "a, b, out")(**wanted)
    assert form(*got.values()) == ""
    np.testing.assert_array_equal(got["out"], wanted["out"])


def test_a_product_of_floats_is_refused_unless_close_is_declared() -> None:
    given = {"a": np.ones((9, 4)), "b": np.ones((4, 9)), "out": np.zeros((9, 9))}
    for text in ("out[...] = a @ b", "np.matmul(a, b, out=out)", "np.einsum('ij,jk->ik', a, b, out=out)"):
        found = compile_body(made(text, "a, b, out"), given, writes={"out"})
        assert isinstance(found, Declined) and "numerics=cx.close" in found.reason


def test_a_product_of_large_matrices_stays_with_the_library() -> None:
    given = {"a": np.ones((50, 60)), "b": np.ones((60, 70)), "out": np.zeros((50, 70))}
    found = compile_body(made("out[...] = a @ b", "a, b, out"), given, writes={"out"}, numerics=CLOSE)
    assert isinstance(found, Declined) and "large matrices" in found.reason


def test_a_small_extent_of_a_product_is_a_guard() -> None:
    body = made("out[...] = b @ a.T", "a, b, out")
    form = check(body, {"a": whole_numbers(0, 30, 90), "b": whole_numbers(1, 6, 90), "out": np.zeros((6, 30))}, {"out"})
    assert form.fits(np.ones((30, 90)), np.ones((7, 90)), np.ones((7, 30))) == ""
    assert "b__0" in form.fits(np.ones((30, 90)), np.ones((60, 90)), np.ones((60, 30)))


SUMS = (
    "x.sum(axis=1)",
    "x.sum()",
    "x.sum(axis=(0, 1))",
    "x[1:-1, ::2].sum()",
    "x.T.sum(axis=0)",
    "x[::-1].sum(axis=0)",
    "(x * y).sum(axis=1)",
    "(x * y + x).sum(axis=0)",
    "(x - y[:, :1]).sum(axis=1)",
    "((x - x.sum(axis=1, keepdims=True)) * y).sum(axis=1)",
    "(x[:, None, :] * y[None, :4, :]).sum(axis=2)",
    "(x > 0).sum(axis=1)",
    "np.where(x > y, x, -y).sum(axis=0)",
    "x.astype('i4').mean()",
    "x[:, i].sum(axis=1)",
    "x.max(axis=1)",
    "(x ** 3 + y ** 4).sum(axis=1)",
)


def random_sums(count: int) -> Iterator[tuple[int, str, list[tuple[int, int]]]]:
    for seed in range(count):
        random = Random(seed)
        parts = [random.choice(SUMS) for _ in range(random.choice((1, 2, 3)))]
        text = "\n    ".join(f"out[{n}] = ({part}).sum()" for n, part in enumerate(parts))
        text += f"\n    all[...] = ({random.choice(('x @ y[:5].T', 'x * y', '(x @ v[:, None]) + x'))})[:, :5]"
        sizes = [(random.choice((6, 9, 33)), random.choice((7, 18, 40, 131, 300))) for _ in range(2)]
        yield seed, text, sizes


def test_random_sums_of_whole_numbers_are_the_same_in_every_order_also_at_other_sizes() -> None:
    compiled = other = 0
    for seed, text, sizes in random_sums(10):
        body = made(text, "x, y, v, i, out, all")
        form: Any = None
        for number, (n, m) in enumerate(sizes):
            rng = np.random.default_rng(seed)
            given = {"x": whole_numbers(seed, n, m), "y": whole_numbers(seed + 1, n, m), "v": whole_numbers(2, m)}
            given |= {"i": rng.integers(0, m, 5), "out": np.zeros(3), "all": np.zeros((n, 5))}
            wanted, got = ({k: v.copy() for k, v in given.items()} for _ in range(2))
            body(**wanted)
            if not number:
                form = compile_body(body, given, writes={"out", "all"}, numerics=CLOSE)
                assert isinstance(form, Compiled), (seed, form, text)
                meaning = Meaning(trace(body, given, {"out", "all"}, free=True), given).run()
                np.testing.assert_allclose(meaning["out"], wanted["out"], rtol=1e-12, err_msg=text)
            if form(*got.values()):
                assert number, text
                continue
            np.testing.assert_array_equal(got["out"], wanted["out"], f"seed {seed}: {text}")
            np.testing.assert_array_equal(got["all"], wanted["all"], f"seed {seed}: {text}")
            compiled, other = compiled + (not number), other + number
    assert compiled == 10 and other > 4


def test_gravity_is_close_and_its_three_sums_share_one_loop() -> None:
    def pulled(stars, mass, mine, pull):
        dx, dy, dz = (b[None, :] - a[:, None] for a, b in zip(mine.T, stars.T, strict=True))
        w = mass / (dx**2 + dy**2 + dz**2 + 0.0025) ** 1.5
        pull[...] = np.stack([(w * d).sum(axis=1) for d in (dx, dy, dz)], axis=1)

    places = np.random.default_rng(0).normal(size=(203, 3))
    given = {"stars": places, "mass": np.full(203, 0.01), "mine": places[:50].copy(), "pull": np.zeros((50, 3))}
    form = check(pulled, given, {"pull"}, ulp=64)
    divisions = [line for line in form.text.splitlines() if " fdiv " in line]
    exact = compile_body(pulled, given, writes={"pull"})
    assert isinstance(exact, Compiled) and "contract" not in exact.text and "contract" in form.text
    assert 0 < len(divisions) <= 4  # one each for the vectors and what is left of them, in two loops over bodies


def test_a_form_that_is_not_as_close_as_declared_is_never_used() -> None:
    a, b = np.random.default_rng(0).normal(size=(40, 300)), np.random.default_rng(1).normal(size=(300, 4))
    body = made("out[...] = a @ b", "a, b, out")
    near, far = (Forms(body, writes={"out"}, numerics=cx.close(ulp)) for ulp in (1e4, 1e-9))
    out = np.zeros((40, 4))
    for _ in range(3):
        near(a, b, out)
        far(a, b, out)
    assert near.on and not near.off
    assert "out differs" in far.off
    np.testing.assert_array_equal(out, a @ b)


def test_what_is_not_finite_must_be_alike_in_a_close_form() -> None:
    body = made("out[...] = x.sum(axis=1)", "x, out")
    x = np.ones((40, 64))
    x[3, 5], x[4, 6] = np.nan, np.inf
    forms = Forms(body, writes={"out"}, numerics=CLOSE)
    out = np.zeros(40)
    for _ in range(3):
        forms(x, out)
    assert forms.on and np.isnan(out[3]) and np.isposinf(out[4])


def test_a_kernel_that_declares_close_is_compiled_with_its_product() -> None:
    @cx.kernel(split=0, a=cx.read, b=cx.read(cx.all), out=cx.write, numerics=cx.close(64))
    def near(a, b, out):
        out[...] = a @ b

    @cx.kernel(split=0, a=cx.read, b=cx.read(cx.all), out=cx.write)
    def exactly(a, b, out):
        out[...] = a @ b

    left, right = whole_numbers(0, 300, 5), whole_numbers(1, 5)
    with cx.Runtime("cpu:0", compile_bodies="always", inline=False):
        a, b, out = cx.array(left), cx.array(right), cx.zeros(300)
        for _ in range(3):
            near(a, b, out)
            exactly(a, b, out)
        np.testing.assert_array_equal(np.asarray(out), left @ right)
    assert [(v.name, v.off, v.numerics) for v in near.variants[1:]] == [("compiled", "", cx.close(64))]
    assert [v.name for v in exactly.variants[1:]] == ["compiled"] and "cx.close" in exactly.variants[1].off


@pytest.mark.parametrize("wrong", [4, "close", cx.close(-1), cx.close(float("inf"))])
def test_wrong_numerics_are_refused_where_they_are_declared(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="numerics="):
        cx.kernel(x=cx.update, numerics=wrong)
