"""What the user says: arrays, kernels, accesses and range mappers.

Before: geometry/.  After: graph/.  Knows no device.
"""

from __future__ import annotations

from .array import hooks
from .assign import assign
from .numpy_protocol import array_function, array_ufunc
from .value import element

hooks.assign = assign
hooks.element = element
hooks.ufunc = array_ufunc
hooks.function = array_function
