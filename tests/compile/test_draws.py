"""Random numbers in compiled bodies: the bits of `chunk.rng`, whatever the chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Compiled, Declined, compile_body
from coexec.compile.reference import Meaning
from coexec.compile.trace import trace
from coexec.geometry import Box
from coexec.program.chunk import ChunkInfo

pytest.importorskip("llvmlite")

WAYS = [
    "out[...] = chunk.rng(seed).random()",
    "chunk.rng(seed, 3).random(out=out)",
    "r = chunk.rng(seed); r.random(); out[...] = r.uniform(-k, 2.5) * 2",
    "chunk.rng(seed).normal(k, 0.5, out=out)",
    "r = chunk.rng(seed); out[...] = r.normal() + r.exponential(k) * r.random()",
    "chunk.rng(seed).exponential(k, out=out)",
    "out[...] = chunk.rng(seed).random(np.float32)",
    "r = chunk.rng(seed); x, y = r.random(), r.random(); x *= x; y *= y; x += y; out[...] = np.where(x < 1, x, y)",
    "r = chunk.rng(seed); out[...] = r.random() - r.random().sum(axis=-1, keepdims=True)",
    "out[...] = np.exp(chunk.rng(seed).normal()) + (chunk.rng(seed).random() < 0.5).sum()",
    "out[...] = chunk.rng(seed).random()[..., ::-1]",
]
BOXES = [
    (Box((0,), (5000,)), Box((0,), (5000,))),
    (Box((17,), (2048,)), Box((0,), (5000,))),
    (Box((1026,), (1033,)), Box((3,), (5000,))),
    (Box((3, 5), (40, 77)), Box((0, 0), (64, 80))),
    (Box((2, 0), (9, 3)), Box((0, 0), (64, 3))),
    (Box((1, 2, 7), (4, 9, 30)), Box((0, 0, 0), (5, 9, 31))),
]


def made(text: str) -> Any:
    space: dict[str, Any] = {"np": np}
    exec(f"def body(out, seed, k, chunk):\n    {text}\n", space)
    return space["body"]


def call(box: Box, space: Box, seed: int = 7, k: float = 1.5) -> dict[str, Any]:
    return {"out": np.zeros(box.shape), "seed": seed, "k": k, "chunk": ChunkInfo(box, space, {"out": box})}


@pytest.mark.parametrize("text", WAYS)
def test_random_numbers_have_the_bits_of_the_body_on_every_chunk(text: str) -> None:
    body = made(text)
    forms: dict[int, Compiled] = {}
    for number, (box, space) in enumerate(BOXES):
        form = forms.get(box.ndim)
        if form is None or form.fits(*call(box, space).values()):
            found = compile_body(body, call(box, space), writes={"out"})
            assert isinstance(found, Compiled), found
            form = forms[box.ndim] = found
        for seed in (0, number, 2**64 + 5, 2**63 + 1, -3):
            wanted, got = call(box, space, seed), call(box, space, seed)
            body(**wanted)
            assert form(*got.values()) == ""
            np.testing.assert_array_equal(got["out"], wanted["out"], f"{text} of {box}")
    meaning = Meaning(trace(body, call(*BOXES[3]), {"out"}), call(*BOXES[3])).run()
    wanted = call(*BOXES[3])
    body(**wanted)
    np.testing.assert_array_equal(meaning["out"], wanted["out"])


def test_one_form_serves_every_place_seed_and_size() -> None:
    body = made("out[...] = chunk.rng(seed, 2).normal(k)")
    form = compile_body(body, call(*BOXES[0]), writes={"out"})
    assert isinstance(form, Compiled)
    rng = np.random.default_rng(0)
    for _ in range(40):
        low = int(rng.integers(0, 4000))
        box = Box((low,), (low + int(rng.integers(2, 1100)),))
        wanted, got = (call(box, Box((0,), (6000,)), int(low), 0.25) for _ in range(2))
        body(**wanted)
        assert form(*got.values()) == ""
        np.testing.assert_array_equal(got["out"], wanted["out"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("out[...] = chunk.rng(seed).integers(0, 9)", "chunk.rng"),
        ("out[...] = chunk.rng(k).random()", "no plain integer"),
        ("out[...] = chunk.rng(seed).random(np.float16)", "float16"),
        ("chunk.rng(seed).random(out=out[:5])", "another type or shape"),
        ("r = chunk.rng(seed)\n    for lo in range(0, len(out), 64): out[lo : lo + 64] = r.random()[:64]", ""),
    ],
)
def test_what_is_not_compiled_of_random_numbers_says_why(text: str, words: str) -> None:
    found = compile_body(made(text), call(*BOXES[0]), writes={"out"})
    assert isinstance(found, Declined) and words in found.reason


def test_arrays_of_random_numbers_are_compiled_and_stay_the_same() -> None:
    with cx.Runtime("cpu:0", compile_bodies="off", store="off"):
        source = cx.random.Generator(5)
        wanted = [np.asarray(source.normal(size=(300, 40))) for _ in range(4)]
    with cx.Runtime("cpu:0", compile_bodies="always", inline=False, store="off") as runtime:
        source = cx.random.Generator(5)
        got = [np.asarray(source.normal(size=(300, 40))) for _ in range(4)]
        runtime.wait()
    for a, b in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_monte_carlo_kernel_is_compiled() -> None:
    @cx.kernel(split=0, payoff=cx.write)
    def paid(payoff, seed, chunk):
        random = chunk.rng(seed)
        price = np.full(payoff.shape, 100.0)
        for _ in range(4):
            price *= np.exp(random.normal(0.01, 0.1))
        np.maximum(price - 100.0, 0.0, out=payoff)

    results = []
    for mode in ("off", "always"):
        with cx.Runtime("cpu:0,cpu:1", compile_bodies=mode, inline=False, store="off"):
            payoff = cx.zeros(20_000)
            for _ in range(3):
                paid(payoff, 11)
            results.append(np.asarray(payoff))
    np.testing.assert_array_equal(*results)
    assert [(v.name, v.off) for v in paid.variants[1:2]] == [("compiled", "")]
