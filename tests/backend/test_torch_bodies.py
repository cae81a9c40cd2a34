from __future__ import annotations

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ProgramError, ShapeError
from coexec.geometry import Box, whole
from coexec.graph.instruction import Binding
from coexec.machine.platform import USER
from coexec.program.padding import Pad
from coexec.program.view import Cut

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from tests.backend.torch_parts import Rig, on_torch  # noqa: E402 - needs torch

both = pytest.mark.parametrize("memory", ["shared", "own"])


@both
def test_a_body_sees_tensors_and_writes_into_its_outputs(memory):
    @cx.kernel(x=cx.read, y=cx.update)
    def scale_and_add(x, y, a):
        y[...] = a * y + x

    with Rig(memory) as rig:
        x, y = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
        _, found = rig.call(scale_and_add, x, y, a=np.float32(3))
        assert np.array_equal(found, 3 * y + x)


def test_arrays_of_the_host_are_handed_over_and_not_copied():
    kinds = []

    def look(x, y):
        kinds.append((x.data_ptr(), y.data_ptr()))
        y[...] = x

    kernel = cx.kernel(x=cx.read, y=cx.write)(lambda x, y: None)
    x, y = np.arange(4.0), np.zeros(4)
    x.flags.writeable = False
    with Rig() as rig:
        held = {"x": rig.host(x, USER), "y": rig.host(y)}
        bindings = {n: Binding(n, a, a.box, None, n == "y", None, a.dtype) for n, a in held.items()}
        rig.run(rig.kernel(kernel, bindings, whole((4,)), on_torch(look)))
    assert kinds == [(x.ctypes.data, y.ctypes.data)] and np.array_equal(x, y)


@both
def test_views_with_steps_of_either_sign_and_other_axis_orders_are_what_numpy_shows(memory):
    rng = np.random.default_rng(0)
    kernel = cx.kernel(x=cx.read, y=cx.update)(_add_up)
    cases = [
        (Cut((-1, 1), (0, 1)), np.s_[::-1, :]),
        (Cut((-2, -3), (1, 0)), np.s_[::-2, ::-3]),
        (Cut((2, -1), (0, -1, 1)), np.s_[::2, None, ::-1]),
    ]
    with Rig(memory) as rig:
        for cut, key in cases:
            base, out = rng.random((7, 10)), rng.random((7, 10))
            seen, expected = base[key], out.copy()
            hull = Box((0, 0), (7, 10))
            # A backward view's hull ends at its first element and begins at its last.
            lo = tuple((n - 1) % -s if s < 0 else 0 for n, s in zip(hull.hi, cut.steps, strict=True))
            hi = tuple(n if s < 0 else (n - 1) // s * s + 1 for n, s in zip(hull.hi, cut.steps, strict=True))
            box = Box(lo, hi)
            expected[key] += seen
            x, y = rig.put(base), rig.put(out)
            bindings = {n: Binding(n, a, box, cut, n == "y", None, a.dtype) for n, a in (("x", x), ("y", y))}
            rig.run(rig.kernel(kernel, bindings, whole(seen.shape)))
            assert np.array_equal(rig.get(y), expected), key


def _add_up(x, y):
    y += x


def test_borrowed_arrays_with_strides_that_torch_cannot_have_are_copied():
    kernel = cx.kernel(x=cx.read, y=cx.update)(_add_up)
    record = np.zeros(5, np.dtype([("a", "i1"), ("b", "f8")]))
    record["b"] = np.arange(5)
    with Rig() as rig:
        for x in (np.arange(5.0)[::-1], record["b"], np.broadcast_to(np.float64(2), (5,))):
            y = rig.put(np.zeros(5))
            source = rig.host(x, USER)
            bindings = {n: Binding(n, a, a.box, None, n == "y", None, a.dtype) for n, a in (("x", source), ("y", y))}
            rig.run(rig.kernel(kernel, bindings, whole((5,))))
            assert np.array_equal(y.data, x)


@both
@pytest.mark.parametrize("border", ["wrap", "edge", "reflect", 7.0])
def test_borders_are_padded_as_on_numpy(memory, border):
    @cx.kernel(u=cx.read(cx.halo(1, border=border)), out=cx.write)
    def blur(u, out):
        out[...] = u[:-2] + u[1:-1] + u[2:]

    data = np.arange(1.0, 7.0)
    pad = Pad(Box((-1,), (7,)), whole((6,)), (6,), (border,))
    with Rig(memory) as rig:
        u, out = rig.put(data), rig.put(np.zeros(6))
        bindings = {
            "u": Binding("u", u, u.box, None, False, pad, u.dtype),
            "out": Binding("out", out, out.box, None, True, None, out.dtype),
        }
        rig.run(rig.kernel(blur, bindings, whole((6,))))
        padded = pad.apply(data, np)
        assert np.array_equal(rig.get(out), padded[:-2] + padded[1:-1] + padded[2:])


@both
def test_results_of_the_functional_form_find_their_place(memory):
    @cx.kernel(x=cx.read, returns=cx.like("x"))
    def square(x):
        return x * x

    @cx.kernel(x=cx.read, returns=(cx.like("x"), cx.like("x")))
    def parts(x, xp):
        return xp.floor(x), x - xp.floor(x)

    x = np.array([1.5, -2.25])
    with Rig(memory) as rig:
        assert rig.call(square, x, np.zeros(2))[1].tolist() == [2.25, 5.0625]
        assert [a.tolist() for a in rig.call(parts, x, np.zeros(2), np.zeros(2))[1:]] == [[1, -3], [0.5, 0.75]]


def test_results_that_do_not_fit_are_errors_as_on_numpy():
    square = cx.kernel(x=cx.read, returns=cx.like("x"))(lambda x: x * x)
    nothing = cx.kernel(x=cx.update)(lambda x: None)
    x = np.ones(2)
    with Rig() as rig:
        with pytest.raises(ShapeError, match=r"returned shape \(1,\) where returns= declares shape \(2,\)"):
            rig.call(square, x, x, variant=on_torch(lambda x: x[:1]))
        with pytest.raises(ShapeError, match="returned nothing"):
            rig.call(square, x, x, variant=on_torch(lambda x: None))
        with pytest.raises(TypeError, match=r"returned torch\.complex64 where"):
            rig.call(square, x, x, variant=on_torch(lambda x: x.to(torch.complex64)))
        with pytest.raises(ProgramError, match="returned a Tensor; write into an output"):
            rig.call(nothing, x, variant=on_torch(lambda x: x))
        pair = cx.kernel(x=cx.read, returns=(cx.like("x"), cx.like("x")))(lambda x: (x, x))
        with pytest.raises(ArgumentError, match="must return 2 arrays"):
            rig.call(pair, x, x, x, variant=on_torch(lambda x: x))


@both
def test_zero_dimensional_arrays_and_chunks_and_keywords_arrive(memory):
    @cx.kernel(k=cx.read, y=cx.update)
    def shift(k, y, chunk, *, times, xp):
        y += times * k + chunk.lo[0] + xp.asarray(chunk.shape[0])

    with Rig(memory) as rig:
        assert rig.call(shift, np.array(2.0), np.zeros(3), times=2)[1].tolist() == [7, 7, 7]


@both
def test_complex_numbers_and_booleans_and_empty_arrays_pass(memory):
    kernel = cx.kernel(x=cx.read, y=cx.update)(_add_up)
    with Rig(memory) as rig:
        x = np.array([1 + 2j, 3])
        assert np.array_equal(rig.call(kernel, x, x)[1], 2 * x)
        flip = cx.kernel(y=cx.update)(_negate)
        assert rig.call(flip, np.array([True, False]))[0].tolist() == [False, True]
        assert rig.call(kernel, np.zeros((0, 3)), np.zeros((0, 3)))[1].shape == (0, 3)
        nothing = Binding("x", None, Box((0,), (0,)), None, False, None, np.dtype(float))
        y = rig.put(np.zeros(0))
        bound = {"x": nothing, "y": Binding("y", y, y.box, None, True, None, y.dtype)}
        rig.run(rig.kernel(kernel, bound, whole((0,))))


def _negate(y):
    y[...] = ~y


@both
def test_debug_mode_finds_inputs_that_are_written_and_outputs_that_are_not(memory):
    @cx.kernel(x=cx.read, y=cx.write)
    def copy(x, y):
        y[...] = x

    def scribble(x, y):
        y[...] = x
        x += 1

    def forget(x, y):
        y[1:] = x[1:]

    x = np.array([1.0, np.nan])
    with Rig(memory, debug=True) as rig:
        assert np.array_equal(rig.call(copy, x, x)[1], x, equal_nan=True)
        with pytest.raises(ProgramError, match=r"'copy' wrote to 'x', which it declares as cx.read"):
            rig.call(copy, x, x, variant=on_torch(scribble))
        with pytest.raises(ProgramError, match=r"left element \(0,\) of"):
            rig.call(copy, x, x, variant=on_torch(forget))


@both
def test_debug_mode_finds_what_is_written_beside_the_elements_that_an_input_shares_with_an_output(memory):
    @cx.kernel(over="out", x=cx.read(cx.all), out=cx.update)
    def add(x, out):
        out += 1

    def scribble(x, out):
        out.add_(1)
        x[0] = 7

    with Rig(memory, debug=True) as rig:
        for first, message in ((5, "wrote to 'x'"), (0, "")):
            one = rig.put(np.arange(10.0))
            shared = Box((first,), (first + 5,))
            bound = {
                "x": Binding("x", one, one.box, None, False, None, one.dtype),
                "out": Binding("out", one, shared, None, True, None, one.dtype),
            }
            kernel = rig.kernel(add, bound, whole((5,)), on_torch(scribble))
            if message:
                with pytest.raises(ProgramError, match=message):
                    rig.run(kernel)
            else:
                rig.run(kernel)  # here the first element is an output, too
                assert rig.get(one).tolist() == [7.0, 2.0, 3.0, 4.0, 5.0, *range(5, 10)]
