"""Kernels as the user declares and calls them: index space, results, chunks, values from outside, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coexec as cx
from coexec.errors import ArgumentError, ShapeError
from tests.devices import TWO


@pytest.fixture(autouse=True)
def two_cores():
    with cx.Runtime(TWO):
        yield


def kernel_of(function, **declaration):
    return cx.kernel(**declaration)(function)


def divided(kernel):
    return kernel.using(devices=TWO)


# Index space --------------------------------------------------------------------------------------------------------------


def test_the_index_space_is_the_first_written_array() -> None:
    @cx.kernel(split=0, x=cx.read(cx.all), y=cx.write, z=cx.write)
    def where(x, y, z, chunk):
        y[...] = chunk.shape[0]
        z[...] = chunk.whole

    y, z = cx.zeros(6, int), cx.zeros(6, bool)
    where.using(split=False)(cx.zeros(100), y, z)
    assert np.asarray(y).tolist() == [6] * 6 and np.asarray(z).all()


def test_over_names_an_array_a_shape_or_an_integer() -> None:
    def body(x, out, chunk, n=0):
        out += np.prod(chunk.shape)

    access: dict[str, Any] = {"x": cx.read(cx.all), "out": cx.reduce("sum")}
    for over, args, expected in [
        ("x", (cx.zeros((5, 4)),), 20),
        ((3, 7), (cx.zeros(2),), 21),
        (11, (cx.zeros(2),), 11),
    ]:
        out = cx.zeros((), int)
        divided(kernel_of(body, split=0, over=over, **access))(*args, out)
        assert int(out) == expected
    counted = kernel_of(body, split=0, over="n", **access)
    out = cx.zeros((), int)
    divided(counted)(cx.zeros(2), out, n=9)
    divided(counted)(cx.zeros(2), out, n=np.int32(4))
    divided(counted)(cx.zeros(2), out, 0)
    assert int(out) == 13
    with pytest.raises(ArgumentError, match="needs an integer"):
        counted(cx.zeros(2), out, n=1.5)
    with pytest.raises(ShapeError, match="negative"):
        counted(cx.zeros(2), out, n=-1)


def test_split_axes_must_exist() -> None:
    @cx.kernel(split=1, x=cx.write)
    def second(x):
        x[...] = 0

    with pytest.raises(ShapeError, match="split along axis 1"):
        second(cx.zeros(5))
    with pytest.raises(ArgumentError, match="count from 0"):
        kernel_of(lambda x: None, split=-1, x=cx.write)
    with pytest.raises(ArgumentError, match="writes no array"):
        kernel_of(lambda x: None, split=0, x=cx.read)


def test_zero_size_index_spaces_are_fine() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def copy(x, y):
        y[...] = x

    y = cx.empty((0, 3))
    copy(cx.zeros((0, 3)), y)
    divided(copy)(cx.zeros((0, 3)), y)
    assert np.asarray(y).shape == (0, 3)


# Results ------------------------------------------------------------------------------------------------------------------


def test_the_functional_form_returns_new_arrays() -> None:
    @cx.kernel(split=0, x=cx.read, returns=cx.like("x"))
    def square(x):
        return x * x

    data = np.arange(300_000.0)
    x = cx.array(data)
    for call in (square, divided(square), square.using(split=False)):
        y = call(x)
        assert isinstance(y, cx.Array)
        np.testing.assert_array_equal(np.asarray(y), data * data)
    x[...] = 0
    np.testing.assert_array_equal(np.asarray(y), data * data)  # its own memory


def test_results_are_declared_by_value_or_by_function() -> None:
    @cx.kernel(
        x=cx.read,
        returns=(
            cx.like("x", dtype=np.int8),
            cx.like("x", shape=lambda x, n: (n, *x.shape)),
            cx.new((2,), bool),
            cx.new(lambda n: (n,), dtype=lambda x: x.dtype),
        ),
    )
    def many(x, n):
        return x.astype(np.int8), np.stack([x] * n), np.array([True, False]), np.full(n, 7.0)

    a, b, c, d = many(cx.array([1.0, 2.0]), 3)
    assert (a.dtype, b.shape, c.dtype, d.shape) == (np.int8, (3, 2), np.bool_, (3,))
    assert np.asarray(b).tolist() == [[1, 2]] * 3
    assert np.asarray(c).tolist() == [True, False]
    assert np.asarray(d).tolist() == [7] * 3


def test_a_result_that_does_not_fit_its_declaration_is_said() -> None:
    bodies: list[tuple[Any, str]] = [
        (lambda x: np.zeros(2), r"returned shape \(2,\) where returns= declares shape \(3,\)"),
        (lambda x: np.zeros((1, 3)), r"shape \(1, 3\)"),
        (lambda x: None, "returned nothing"),
    ]
    for body, words in bodies:
        result = kernel_of(body, x=cx.read, returns=cx.like("x"))(cx.zeros(3))
        with pytest.raises(ShapeError, match=words):
            np.asarray(result)
    first, second = kernel_of(lambda x: x, x=cx.read, returns=(cx.like("x"), cx.like("x")))(cx.zeros(3))
    with pytest.raises(ArgumentError, match="must return 2 arrays"):
        np.asarray(first)
    with pytest.raises(cx.TaskFailed):
        np.asarray(second)


def test_a_body_that_returns_without_a_declaration_is_told() -> None:
    @cx.kernel(x=cx.update)
    def forgetful(x):
        return x + 1

    with pytest.raises(cx.errors.ProgramError, match=r"returns=cx\.like"):
        forgetful(cx.zeros(3)).result()


def test_a_file_that_changed_since_it_was_read_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text("f(\n" * 5, encoding="utf-8")
    made: dict[str, Any] = {}
    exec(compile("\n\ndef body(y):\n    y += 1\n", str(path), "exec"), made)  # as a stale import would be
    assert cx.kernel(y=cx.update)(made["body"]).name == "body"


def test_a_body_that_rebinds_its_output_is_told() -> None:
    with pytest.warns(cx.CoexecWarning, match=r"rebinds its output 'y'.*y\[\.\.\.\] ="):

        @cx.kernel(x=cx.read, y=cx.write)
        def rebinding(x, y):
            y = x * 2  # noqa: F841


# Chunks -------------------------------------------------------------------------------------------------------------------


def test_random_numbers_do_not_depend_on_the_division() -> None:
    @cx.kernel(split=0, x=cx.write, y=cx.write)
    def draw(x, y, chunk, seed):
        rng = chunk.rng(seed)
        x[...] = rng.random()
        y[...] = rng.normal() + rng.integers(0, 10) + rng.uniform(-1, 1)

    results = []
    for call in (divided(draw), draw.using(split=False)):
        x, y = cx.empty((300, 7)), cx.empty((300, 7))
        call(x, y, seed=42)
        results.append((np.asarray(x), np.asarray(y)))
    np.testing.assert_array_equal(results[0], results[1])
    other = cx.empty((300, 7))
    draw(other, cx.empty((300, 7)), seed=43)
    assert (np.asarray(other) != results[0][0]).mean() > 0.99
    sample = results[0][0]
    assert sample.min() >= 0 and sample.max() < 1 and abs(sample.mean() - 0.5) < 0.02
    assert len(np.unique(sample)) == sample.size


def test_chunk_tells_ones_place() -> None:
    @cx.kernel(split=0, u=cx.read(cx.halo(1)), out=cx.write)
    def place(u, out, chunk):
        assert chunk.shape == out.shape
        assert chunk.hi[0] - chunk.lo[0] == len(out)
        assert u[chunk.at("u")].shape == out.shape
        out[...] = np.arange(chunk.lo[0], chunk.hi[0])
        with pytest.raises(ArgumentError, match="arrays: u, out"):
            chunk.at("nobody")

    out = cx.empty(10, int)
    divided(place)(cx.zeros(10), out)
    assert np.asarray(out).tolist() == list(range(10))


def test_xp_is_the_devices_numpy() -> None:
    @cx.kernel(x=cx.update)
    def use(x, xp):
        assert xp is np
        x += xp.float64(2)

    x = cx.zeros(3)
    use(x)
    assert float(x[0]) == 2


# Declarations -------------------------------------------------------------------------------------------------------------


def test_declarations_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"declares access to 'z', but its parameters are \(x\)"):
        kernel_of(lambda x: None, z=cx.read)
    with pytest.raises(ArgumentError, match="neither an access nor an option"):
        kernel_of(lambda x: None, x="read")
    with pytest.raises(ArgumentError, match="name every parameter"):
        kernel_of(lambda *x: None)
    with pytest.raises(ArgumentError, match="over='n'"):
        kernel_of(lambda x: None, x=cx.write, over="n")
    with pytest.raises(ArgumentError, match="returns="):
        kernel_of(lambda x: None, x=cx.read, returns="x")
    kernel = kernel_of(lambda x: None, x=cx.read, returns=cx.like("y"))
    with pytest.raises(ArgumentError, match="no such parameter"):
        kernel(cx.zeros(2))


def test_a_kernel_keeps_its_functions_name_and_words() -> None:
    @cx.kernel(x=cx.update)
    def documented(x):
        """Do nothing."""

    assert vars(documented)["__name__"] == "documented" and documented.__doc__ == "Do nothing."
    assert repr(documented) == "<cx.kernel documented(x=update(all))>"
    named: Any = kernel_of(lambda x: None, x=cx.update, name="lambda_with_a_name")
    assert named(cx.zeros(1)).name == "lambda_with_a_name"


def test_debug_mode_finds_writes_that_leave_something_out() -> None:
    @cx.kernel(split=0, x=cx.read, y=cx.write)
    def partial(x, y):
        y[:-1] = x[:-1]

    words = r"'y' as cx.write but left element \(9,\).*cx.update"
    with cx.Runtime(TWO, debug=True), pytest.raises(cx.errors.ProgramError, match=words):
        partial.using(split=False)(cx.zeros(10), cx.zeros(10)).result()


def test_using_names_devices_and_says_what_exists() -> None:
    @cx.kernel(x=cx.update)
    def add(x, a):
        x += a

    x = cx.zeros(1)
    with pytest.raises(cx.errors.UnknownName, match=r"unknown device 'cpu:9'; did you mean 'cpu:[01]'\?"):
        add.using(devices="cpu:9")(x, 1)
    task = add.using(devices="cpu:0", priority=1)(x, 111)
    task.result()
    assert float(x) == 111
