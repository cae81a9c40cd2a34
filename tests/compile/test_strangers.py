"""Bodies as strangers write them: whatever a body does beside computing happens as often as without a compiler, or it is refused."""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
import pytest

import coexec as cx
from coexec.compile import Forms, compile_body
from coexec.compile.refused import Declined

pytest.importorskip("llvmlite")
CALLS = 4  # NumPy computes; a form is compared; the form would compute the others
notes: list[Any] = []
state = {"calls": 0}
total = 0
lock = threading.Lock()
box: queue.Queue[int] = queue.Queue()
page = StringIO()
log = logging.getLogger("strangers")


class Settings(NamedTuple):
    factor: float

    def looked_up(self) -> float:
        notes.append("looked up")
        return self.factor


class Loud(float):
    def __mul__(self, other: float) -> float:
        notes.append("multiplied")
        return float(self) * other


class Model:
    factor = 2.0
    uses = 0

    def scaled(self, x):
        self.uses += 1
        notes.append("scaled")
        return x * self.factor


settings = Settings(2.0)
loud = Loud(2.0)
model = Model()


def note(value: Any) -> Any:
    notes.append(value)
    return value


noted: Any = np.frompyfunc(note, 1, 1)


@lru_cache
def cached(k: float) -> float:
    notes.append(k)
    return k


def remembers(x, seen=[]):  # noqa: B006 - what is tested
    seen.append(1)
    notes.append("seen")
    return x


def with_a_list(x, seen=[]):  # noqa: B006 - what is tested
    seen.append(1)
    return x * len(seen)


def prints(x, out):
    print("computing", file=page)
    out[...] = x


def logs(x, out):
    log.info("here")
    out[...] = x


def counts_globally(x, out):
    global total
    total += 1
    out[...] = x


def counts_in_a_dictionary(x, out):
    state["calls"] += 1
    out[...] = x


def waits_for_a_lock(x, out):
    with lock:
        out[...] = x


def takes_a_lock(x, out):
    lock.acquire()
    out[...] = x
    lock.release()


def blocks(x, out):
    out[...] = x * box.get()


def looks_at_the_clock(x, out):
    time.monotonic()
    out[...] = x


def draws(x, out):
    out[...] = x * random.random()


def asks_the_system(x, out):
    out[...] = x * len(os.environ)


def opens_a_file(x, out):
    open(os.devnull).close()  # noqa: PTH123 - what is tested
    out[...] = x


def calls_a_method(x, out):
    out[...] = model.scaled(x)


def calls_a_tuples_method(x, out):
    out[...] = x * settings.looked_up()


def multiplies_by_something_loud(x, out):
    out[...] = x * (loud * 2.0)


def calls_its_own_ufunc(x, out):
    out[...] = x * float(noted(2.0))


def calls_what_is_cached(x, out):
    out[...] = x * cached(2.0)


def remembers_in_a_default(x, out):
    out[...] = remembers(x)


def counts_in_a_default(x, out):
    out[...] = with_a_list(x)


def sets_an_attribute(x, out):
    model.uses += 1
    out[...] = x


def defines_a_class(x, out):
    class Inner:
        factor = note(2.0)

    out[...] = x * Inner.factor


def suppresses(x, out):
    with np.errstate(all="ignore"):
        out[...] = x


def refuses_values(x, out):
    if not (x > 0).all():
        raise ValueError("negative")
    out[...] = x


def iterates_until_it_converges(x, out):
    y = x
    while np.abs(y).max() > 1:
        y = y / 2
    out[...] = y


def formats_elements(x, out):
    out[...] = float(f"{x[0]}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (prints, "it uses page, a StringIO from outside"),
        (logs, "it uses log, a Logger from outside"),
        (counts_globally, "it changes total"),
        (counts_in_a_dictionary, "it uses state, a dict from outside"),
        (waits_for_a_lock, "it handles exceptions or uses `with`"),
        (takes_a_lock, "it uses lock, a lock from outside"),
        (blocks, "it uses box, a Queue from outside"),
        (looks_at_the_clock, "it uses the module time"),
        (draws, "it uses the module random"),
        (asks_the_system, "it uses the module os"),
        (opens_a_file, "it uses open"),
        (calls_a_method, "it uses model, a Model from outside"),
        (calls_a_tuples_method, "no attribute 'looked_up'"),
        (multiplies_by_something_loud, "it uses loud, a Loud from outside"),
        (calls_its_own_ufunc, "it uses noted, a ufunc from outside"),
        (calls_what_is_cached, "it uses cached, a _lru_cache_wrapper from outside"),
        (remembers_in_a_default, "it uses a default, a list from outside"),
        (counts_in_a_default, "it uses a default, a list from outside"),
        (sets_an_attribute, "it changes uses"),
        (defines_a_class, "it defines a class"),
        (suppresses, "it handles exceptions or uses `with`"),
        (refuses_values, "it branches by the values of an array"),
        (iterates_until_it_converges, "it branches by the values of an array"),
        (formats_elements, "it makes text of an array"),
    ],
)
def test_a_body_that_does_more_than_compute_is_refused_and_runs_as_often_as_it_is_called(body: Any, words: str) -> None:
    for _ in range(2 * CALLS):
        box.put(1)
    x = np.linspace(0.5, 2.0, 64)

    def effects(run: Callable[..., Any]) -> tuple[Any, ...]:
        before = len(notes), state["calls"], total, model.uses, page.tell(), box.qsize()
        for _ in range(CALLS):
            run(x, np.zeros(64))
        after = len(notes), state["calls"], total, model.uses, page.tell(), box.qsize()
        return tuple(b - a for a, b in zip(before, after, strict=True))

    cached.cache_clear()
    plain = effects(body)
    cached.cache_clear()
    forms = Forms(body, writes={"out"})
    assert effects(forms) == plain
    assert words in forms.refusal
    assert not lock.locked()


def test_a_kernel_that_prints_prints_once_per_call(capsys: pytest.CaptureFixture[str]) -> None:
    @cx.kernel(split=0, x=cx.read, out=cx.write)
    def announced(x, out):
        print("computing")  # noqa: T201 - what is tested
        out[...] = 2 * x

    with cx.Runtime(devices="cpu:0", store="off", compile_bodies="always", inline=False):
        x, out = cx.array(np.ones(10_000)), cx.zeros(10_000)
        for _ in range(CALLS):
            announced(x, out)
        cx.wait()
    assert capsys.readouterr().out.count("computing") == CALLS
    assert announced.variants[-1].off == "it uses print"


def test_generators_and_other_callables_never_run() -> None:
    def gives(x, out):
        notes.append("ran")
        yield x

    before = len(notes)
    for body in (gives, partial(counts_globally), model.scaled):
        answer = compile_body(body, {"x": np.ones(64), "out": np.zeros(64)}, writes={"out"})
        assert isinstance(answer, Declined) and answer.reason
    assert len(notes) == before
