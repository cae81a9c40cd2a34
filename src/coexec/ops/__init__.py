"""Ready-made operations, each a kernel with tuned variants.

Before: program/kernel.py.  After: the package's own namespace.  Knows no device.
"""

from .conv2d import conv2d
from .matmul import matmul

__all__ = ["conv2d", "matmul"]
