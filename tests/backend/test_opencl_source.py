from __future__ import annotations

import numpy as np
import pytest

from coexec.backend.opencl.source import SourceArgument, is_long, scalar, signature, singles, write
from coexec.errors import BackendError

X = SourceArgument("x", "float32", 1, unit=True)
Y = SourceArgument("y", "float32", 1, writes=True)
A = SourceArgument("a", "float32")


def test_the_short_form_becomes_a_kernel():
    written = write("y(i) += a * x(i)", None, (A, X, Y), 1, checked=False)
    assert written.text == (
        "#pragma OPENCL FP_CONTRACT OFF\n"
        "#define x(a0) (x_data[x_start + (long)(a0)])\n"
        "#define y(a0) (y_data[y_start + (long)(a0) * y_stride0])\n"
        "__kernel void coexec_point(const float a, const __global float *x_data, const long x_start, "
        "const long x_stride0, __global float *y_data, const long y_start, const long y_stride0, const long n0)\n"
        "{\nconst long i0 = get_global_id(0);\nconst long i = i0;\n{\n#line 1\ny(i) += a * x(i)\n;}\n}\n"
    )
    assert written.options == ("-cl-single-precision-constant",)


def test_only_a_rounded_up_launch_compares_its_indices():
    assert "if (!(i0 < n0 && i1 < n1)) return;" in write("", None, (), 2, checked=True).text
    assert "return" not in write("", None, (), 2, checked=False).text


def test_extents_and_origin_are_passed_when_they_are_named():
    written = write("y(i) = x_n0 + lo0; // x_n1", None, (X, Y), 1, checked=False)
    assert written.extents == (("x", 0),) and written.origin
    assert "const long n0, const long x_n0, const long lo0)" in written.text


def test_a_parameter_hides_the_letter_of_an_index():
    assert "const long j = i1" not in write("", None, (SourceArgument("j", "int64"),), 2, checked=False).text


def test_a_parameter_with_the_name_of_an_extent_is_refused_with_a_remedy():
    with pytest.raises(BackendError, match=r"parameter 'n0' has the name of an index or extent.*long form"):
        write("", None, (SourceArgument("n0", "int64"),), 1, checked=False)


def test_a_zero_dimensional_array_reads_like_a_scalar():
    scale = SourceArgument("s", "float64", 0)
    written = write("y(i) *= s", None, (scale, Y), 1, checked=False)
    assert "#define s (s_data[s_start])" in written.text and "cl_khr_fp64" in written.text
    assert written.options == ()


def test_more_than_three_axes_share_one_id():
    text = write("", None, (), 5, checked=False).text
    assert "i2 = coexec_rest % n2" in text and "const long i0 = coexec_rest;" in text


def test_the_long_form_is_kept_and_given_its_macros():
    source = "// kernel void fake(\n__kernel void one(int q) {}\nkernel void two(int q) { s () += q; }"
    written = write(source, None, (X, SourceArgument("s", "int32", 0)), 2, checked=True)
    assert written.entry == "one" and source in written.text and written.options == ()
    assert "#define s() (s_data[s_start])" in written.text
    assert "#define x" not in written.text  # unused: one text, and so one compilation, for every layout of x
    assert "#define id0 ((long)get_global_id(1))" in written.text
    assert write(source, "two", (), 1, checked=False).entry == "two"
    with pytest.raises(BackendError, match=r"no kernel 'three' \(it has: one, two\)"):
        write(source, "three", (), 1, checked=False)


def test_the_long_form_is_told_by_its_kernel():
    assert is_long("__kernel void f(")
    assert is_long("kernel __attribute__((reqd_work_group_size(4, 1, 1))) void f (")
    assert not is_long("y(i) = x(i); /* kernel void f( */")


def test_the_signature_names_every_argument_in_order():
    assert signature((SourceArgument("b", "uint8"), SourceArgument("u", "bool", 2)), 1) == [
        "const uchar b",
        "const __global uchar *u_data",
        "const long u_start",
        "const long u_stride0",
        "const long u_stride1",
        "const long n0",
    ]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "int32"),
        (np.True_, "int32"),
        (3, "int64"),
        (1.5, "float32"),
        (np.float64(1.5), "float64"),
        (np.int8(-1), "int8"),
        (np.array(2, np.uint16), "uint16"),
    ],
)
def test_scalars_have_the_type_that_their_value_has(value, dtype):
    assert scalar("a", value, single=True) == (dtype, value)


def test_a_python_float_is_as_wide_as_the_arrays():
    assert scalar("a", 0.1, single=False)[0] == "float64"
    assert singles(["float32", "int64"], fp64=True)
    assert not singles(["float32", "float64"], fp64=True)
    assert not singles(["int32"], fp64=True)
    assert singles(["int32"], fp64=False)


@pytest.mark.parametrize("value", ["text", 1j, np.complex64(1), np.datetime64("2020"), 2**63, object()])
def test_what_opencl_cannot_take_is_refused_by_name(value):
    with pytest.raises(BackendError, match="a"):
        scalar("a", value, single=True)


def test_the_long_form_gets_the_extents_and_the_place_that_it_names():
    source = "kernel void f(PARAMETERS) { const long q = x_n0 + lo0; } // y_n0"
    written = write(source, None, (X, Y), 1, checked=False)
    assert written.extents == (("x", 0),) and written.origin
    assert signature((X, Y), 1, written.extents, origin=True)[-3:] == [f"const long {n}" for n in ("n0", "x_n0", "lo0")]


@pytest.mark.parametrize("source", ["y(i) = x(i)", "kernel void f(int q) {}"])
def test_contraction_is_off_unless_the_variant_asks_for_it(source):
    assert "FP_CONTRACT OFF" in write(source, None, (X, Y), 1, checked=False).text
    assert "FP_CONTRACT ON" in write(source, None, (X, Y), 1, checked=False, contract=True).text
