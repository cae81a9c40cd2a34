"""Watch a body on torch for calls that are known to mean something else in NumPy, whatever values come out.

Before: handover.py.  After: check.py.  Values alone would not tell: half of an even integer is the same in any type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .handover import numpy_dtype

_ARITHMETIC = (
    "add sub subtract mul multiply div divide true_divide pow floor_divide remainder maximum minimum "
    "__radd__ rsub __rsub__ __rmul__ __rdiv__ __rtruediv__ __rpow__ __rfloordiv__ __rmod__"
)
ARITHMETIC = frozenset(_ARITHMETIC.split())
SPREADS = frozenset(("std", "var", "std_mean", "var_mean"))
NARROW = (torch.float32, torch.complex64)


class Watch(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed everywhere
    """Sees every torch call of the calling thread; `trap` says what NumPy would have done otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.trap = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        if not self.trap:
            self.trap = _trap(getattr(func, "__name__", ""), args, options, result)
        return result


def _trap(name: str, args: tuple[Any, ...], options: dict[str, Any], result: Any) -> str:
    if name in SPREADS and not {"correction", "unbiased"} & options.keys():
        return f"{name}() of a tensor divides by n - 1, NumPy's by n; use xp.{name}"
    if name == "median":
        return "median() of a tensor is the lower of two middle values, NumPy's their mean"
    if not isinstance(result, torch.Tensor) or result.dtype not in NARROW or "dtype" in options:
        return ""
    if any(isinstance(arg, torch.dtype) for arg in args):
        return ""
    operands = list(_operands(args))
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if tensors and all(tensor.dtype in (torch.int32, torch.int64) for tensor in tensors):
        return f"{name} of {tensors[0].dtype} gives {result.dtype} on torch, NumPy computes it in double precision"
    if name in ARITHMETIC and tensors:
        wanted = np.result_type(*[numpy_dtype(x.dtype) if isinstance(x, torch.Tensor) else x for x in operands])
        if wanted != numpy_dtype(result.dtype):
            return f"{name} gives {numpy_dtype(result.dtype)} on torch and {wanted} on NumPy"
    return ""


def _operands(args: tuple[Any, ...]) -> Iterator[Any]:
    return (arg for arg in args if isinstance(arg, torch.Tensor | int | float | complex))
