"""Bodies compiled: a NumPy body is traced, written as LLVM or OpenCL C, and compared with NumPy before it is used.

Before: program/.  After: whoever runs bodies.  A library of its own: knows no runtime, no planner and no device.
"""

from __future__ import annotations

from .compiled import Compiled, compile_body
from .compiler import Compiler
from .cuda import CudaForm, cuda_form
from .forms import Forms, State
from .opencl import OpenClForm, opencl_form
from .refused import Declined

__all__ = [
    "Compiled",
    "Compiler",
    "CudaForm",
    "Declined",
    "Forms",
    "OpenClForm",
    "State",
    "compile_body",
    "cuda_form",
    "opencl_form",
]
