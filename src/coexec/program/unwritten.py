"""Inputs that a body provably leaves as they are, though it calls functions of NumPy that copy what is read-only.

Before: program/capture.py.  After: backend/launch.py.  Reads Python functions; knows no array.

Bodies get their inputs read-only, so that a wrong `cx.read` raises instead of racing. Some functions of NumPy ask for arrays that
could be written, though they never do: `np.take` copies read-only indices, `np.argmax` what it looks through. Where every use of a
parameter is one of those that neither write to it nor pass it on, it can be handed out as it is, and nothing is copied.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from .capture import parsing

COPYING = {
    "argmax": 1, "argmin": 1, "bincount": 2, "choose": 1, "convolve": 2, "correlate": 2, "interp": 3, "repeat": 2, "take": 2,
}  # fmt: skip
"""Functions of NumPy that copy inputs which are read-only, and how many of their first arguments are inputs."""
LOOKING = {
    "all": 1,
    "any": 1,
    "dot": 2,
    "max": 1,
    "mean": 1,
    "min": 1,
    "searchsorted": 2,
    "sum": 1,
    "where": 3,
} | COPYING
"""Functions of NumPy that leave their inputs as they are, and return arrays of their own."""
METHODS = frozenset({"all", "any", "argmax", "argmin", "choose", "max", "mean", "min", "repeat", "sum", "take"})
"""Methods of an array that leave it as it is, and return arrays of their own."""
ABOUT = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size"})
"""Attributes that are no view of an array."""


def lent_whole(function: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters that a body never writes, whatever it is called with, and of which NumPy would make copies."""
    if type(function) is not FunctionType:
        return frozenset()
    names = function.__code__.co_names
    if not any(name in COPYING for name in names) and "reduceat" not in names:
        return frozenset()  # most bodies: nothing to gain, and no source to read
    tree = _source(function)
    return frozenset() if tree is None else frozenset(_Uses(function, tree).unwritten())


def _source(function: FunctionType) -> ast.FunctionDef | None:
    """Return the text of a function as a tree; None unless compiling it gives the code that runs."""
    try:
        with parsing:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            (found,) = tree.body
            if not isinstance(found, ast.FunctionDef):
                return None
            found.decorator_list = []
            modules = [n for n in function.__code__.co_names if isinstance(function.__globals__.get(n), ModuleType)]
            if modules:  # of names that are imported, attributes are called by other instructions
                tree.body.insert(0, ast.Import([ast.alias(name) for name in modules]))
                ast.fix_missing_locations(tree)
            compiled = compile(tree, "<body>", "exec", dont_inherit=True)
    except (OSError, SyntaxError, TypeError, ValueError, SystemError, tokenize.TokenError):  # no source, or another one
        return None
    made = [part for part in compiled.co_consts if isinstance(part, CodeType) and part.co_name == found.name]
    return found if len(made) == 1 and _same(made[0], function.__code__) else None


def _same(one: CodeType, two: CodeType) -> bool:
    """Tell whether two functions do the same with the same names."""
    if one.co_code != two.co_code or len(one.co_consts) != len(two.co_consts):
        return False
    if (one.co_names, one.co_varnames, one.co_freevars) != (two.co_names, two.co_varnames, two.co_freevars):
        return False
    pairs = zip(one.co_consts, two.co_consts, strict=True)
    return all(_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else a == b for a, b in pairs)


class _Uses:
    """What a function does with its parameters."""

    def __init__(self, function: FunctionType, tree: ast.FunctionDef) -> None:
        self._scope = function.__globals__
        self._locals = frozenset(name for code in _codes(function.__code__) for name in code.co_varnames)
        self._tree = tree
        self._above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._copied = False

    def unwritten(self) -> Iterator[str]:
        """Yield the parameters of which each use is harmless, and one makes NumPy copy."""
        for parameter in self._tree.args.posonlyargs + self._tree.args.args + self._tree.args.kwonlyargs:
            uses = [n for n in ast.walk(self._tree) if isinstance(n, ast.Name) and n.id == parameter.arg]
            self._copied = False
            if all(isinstance(use.ctx, ast.Load) and self._is_harmless(use) for use in uses) and self._copied:
                yield parameter.arg

    def _is_harmless(self, node: ast.expr) -> bool:
        """Tell whether what an expression gives, or a view of it, is neither written nor passed on where it stands."""
        above = self._above[node]
        if isinstance(above, ast.Subscript):
            return above.value is node and isinstance(above.ctx, ast.Load) and self._is_harmless(above)
        if isinstance(above, ast.Attribute):
            return above.attr in ABOUT or (above.attr in METHODS and self._is_method(above))
        if isinstance(above, ast.keyword):
            return above.arg == "weights" and self._is_input(self._above[above], 0)
        return self._is_input(
            above, above.args.index(node) if isinstance(above, ast.Call) and node in above.args else -1
        )

    def _is_method(self, method: ast.Attribute) -> bool:
        call = self._above[method]
        self._copied = self._copied or method.attr in COPYING
        return isinstance(call, ast.Call) and call.func is method

    def _is_input(self, call: ast.AST, position: int) -> bool:
        """Tell whether an argument at a position of a call is one that NumPy looks at only, or that `len` counts."""
        if not isinstance(call, ast.Call) or position < 0 or any(isinstance(a, ast.Starred) for a in call.args):
            return False
        function = call.func
        if isinstance(function, ast.Name):
            return function.id == "len" and self._outside("len") is len
        if not isinstance(function, ast.Attribute):
            return False
        owner = function.value
        if isinstance(owner, ast.Name) and self._outside(owner.id) is np:
            return self._looks(function.attr, position)
        if (
            isinstance(owner, ast.Attribute)
            and isinstance(owner.value, ast.Name)
            and self._outside(owner.value.id) is np
        ):
            reduceat = function.attr == "reduceat" and isinstance(getattr(np, owner.attr, None), np.ufunc)
            self._copied = self._copied or reduceat
            return reduceat and position < 2
        return False

    def _looks(self, name: str, position: int) -> bool:
        function = getattr(np, name, None)
        if isinstance(function, np.ufunc):
            return position < function.nin
        self._copied = self._copied or name in COPYING
        return position < LOOKING.get(name, 0)

    def _outside(self, name: str) -> Any:
        """Return what a name means outside of the function; nothing if it is a name of its own."""
        if name in self._locals:
            return None
        return self._scope.get(name, getattr(builtins, name, None))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of functions within it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)
