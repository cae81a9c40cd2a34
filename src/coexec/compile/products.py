"""Products of matrices as sums of products: exact for integers, close to NumPy's for floats where a kernel allows that.

Before: compile/folds.py.  After: compile/functions.py.  Computes nothing.

NumPy leaves products of floats to a library, whose order of additions depends on the processor, on sizes and on how
matrices lie in memory. So they are written out only for a kernel that declares `numerics=cx.close(...)`, and where one
extent is so small that a library gains little.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .calling import elementwise
from .cells import check_dtype
from .folds import fold
from .graph import Expr
from .host import Size, plain
from .refused import Untraceable
from .symbolic import HOOKS, Symbolic, symbolic_arrays

SMALL = 16  # elements of the least of a product's extents; a library is faster where all are larger
LEAVE = "adds floats in the order of a library; numerics=cx.close(...) lets any order do"


def _operands(name: str, values: tuple[Any, ...], dtype: Any = None) -> tuple[list[Symbolic], np.dtype[Any]]:
    """Return the operands in the type of their product; raise if its bits are the library's secret."""
    if not all(isinstance(value, Symbolic) for value in values):
        raise Untraceable(f"np.{name} of something else than arrays")
    kind = check_dtype(np.result_type(*(value.dtype for value in values)) if dtype is None else np.dtype(dtype))
    if kind.kind == "f" and not values[0].tape.free:
        raise Untraceable(f"np.{name} {LEAVE}")
    return [value if value.dtype == kind else value.astype(kind) for value in values], kind


def _summed(array: Symbolic, factors: list[Symbolic], axes: int, kind: np.dtype[Any]) -> Symbolic:
    """Return the product of arrays that broadcast together, added up along its last axes."""
    node: Expr = factors[0].node()
    for factor in factors[1:]:
        node = elementwise(array, "logical_and" if kind.kind == "b" else "multiply", [node, factor.node()], kind)
    for _ in range(axes):
        node = fold(array, node, "any" if kind.kind == "b" else "sum", len(node.shape) - 1, kind)
    return array.fresh(node)


def _check_small(*extents: Size) -> None:
    small = next((extent for extent in extents if plain(extent) <= SMALL), None)
    if small is None or not small <= SMALL:  # asked again, so that it becomes a guard
        raise Untraceable("a product of large matrices is left to NumPy's library")


def matmul(a: Symbolic, b: Symbolic, dtype: Any = None) -> Symbolic:
    """As np.matmul."""
    (left, right), kind = _operands("matmul", (a, b), dtype)
    if not left.ndim or not right.ndim:
        raise Untraceable("np.matmul of a number")
    row, column = left.ndim == 1, right.ndim == 1
    left = left[None, :] if row else left
    right = right[:, None] if column else right
    _check_small(left.shape[-2], left.shape[-1], right.shape[-1])
    product = _summed(a, [left[..., :, None, :], right.swapaxes(-1, -2)[..., None, :, :]], 1, kind)
    if row:
        product = product[..., 0, :]
    return product[..., 0] if column else product


def vecdot(a: Symbolic, b: Symbolic, dtype: Any = None) -> Symbolic:
    """As np.vecdot: rows times rows."""
    factors, kind = _operands("vecdot", (a, b), dtype)
    return _summed(a, factors, 1, kind)


PRODUCTS = {"matmul": matmul, "vecdot": vecdot}


def product(function: np.ufunc, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of a ufunc of rows or matrices, in `out` if given."""
    known = PRODUCTS.get(function.__name__)
    out = options.pop("out", (None,))[0]
    dtype = options.pop("dtype", None)
    if known is None or options or getattr(np, function.__name__, None) is not function:
        raise Untraceable(f"np.{function.__name__} is left to NumPy's library")
    result = known(*inputs, dtype=dtype)
    if out is None:
        return result
    if not isinstance(out, Symbolic):
        raise Untraceable("it computes into an array from outside")
    out.write(result, "same_kind")
    return out


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """As np.dot of vectors and matrices."""
    if out is not None or not all(isinstance(x, Symbolic) and 1 <= x.ndim <= 2 for x in (a, b)):
        raise Untraceable("np.dot of other things than vectors and matrices")
    return vecdot(a, b) if a.ndim == b.ndim == 1 else matmul(a, b)


def einsum(subscripts: Any, *values: Any, out: Any = None, **options: Any) -> Any:
    """As np.einsum with letters, each once per array."""
    if options or not isinstance(subscripts, str) or not symbolic_arrays(values):
        raise Untraceable("np.einsum with options")
    given, arrow, wanted = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    letters = "".join(terms)
    if not arrow:
        wanted = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    factors, kind = _operands("einsum", values)
    plain = all(
        term.isalpha() and len(set(term)) == len(term) == x.ndim for term, x in zip(terms, factors, strict=True)
    )
    if len(terms) != len(factors) or not plain or not set(wanted) <= set(letters) or len(set(wanted)) < len(wanted):
        raise Untraceable(f"np.einsum of {subscripts!r} is not compiled")
    summed = [letter for letter in dict.fromkeys(letters) if letter not in wanted]
    order = [*wanted, *summed]
    placed = []
    for term, factor in zip(terms, factors, strict=True):
        turned = factor.transpose([term.index(letter) for letter in order if letter in term])
        placed.append(turned[tuple(slice(None) if letter in term else None for letter in order)])
    result = _summed(factors[0], placed, len(summed), kind)
    if out is None:
        return result
    out.write(result, "same_kind")
    return out


HOOKS["product"] = product
