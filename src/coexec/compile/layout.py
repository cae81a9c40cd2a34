"""How NumPy would hold a value in memory: that decides the order of its additions, and which of its loops it takes.

Before: compile/graph.py.  After: compile/calling.py, compile/folds.py.  Pure.
"""

from __future__ import annotations

from .graph import Apply, Constant, Convert, Counting, Draw, Expr, Fold, Gather, Read, Scalar, View
from .host import equal_sizes


def in_order(node: Expr) -> bool:
    """Tell whether NumPy would hold a value in memory with its last axis innermost and no axis reversed."""
    if isinstance(node, View):
        axes = [line.axis for line in node.axes if line.axis is not None]
        return axes == sorted(axes) and all(line.step > 0 for line in node.axes) and in_order(node.arg)
    if isinstance(node, Constant | Scalar | Read | Counting):
        return True
    if isinstance(node, Gather) and node.axis:
        return False  # NumPy has the chosen axis outermost in memory
    if isinstance(node, Fold) and node.free:
        return True  # a product of matrices, or something of which no order matters
    return all(in_order(arg) for arg in node.args)


def is_fresh(node: Expr) -> bool:
    """Tell whether NumPy would have computed a value into memory of its own, without gaps."""
    return isinstance(node, Apply | Convert | Fold | Counting | Gather | Draw) or (
        isinstance(node, Read) and not node.buffer.parameter
    )


def regular(node: Expr) -> bool:
    """Tell whether a row of a value lies in memory element by element, as NumPy's quickest loops want it."""
    if not node.shape:
        return True
    if not in_order(node):
        return False
    if not isinstance(node, View):
        return True
    if equal_sizes(node.shape[-1], 1):
        return False
    last = node.axes[-1] if node.axes else None
    return (
        last is not None
        and last.step == 1
        and last.axis == len(node.shape) - 1
        and not equal_sizes(node.arg.shape[-1], 1)
    )
