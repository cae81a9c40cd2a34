"""All operators that can be run, by ONNX's names.

Before: the other modules of this folder.  After: models/running.py, models/onnx_files.py.  Knows names only.
"""

from __future__ import annotations

from . import along, layout, resize
from .along import ALONG
from .calls import Run
from .elementwise import ELEMENTWISE
from .layout import LAYOUT
from .products import PRODUCTS
from .recurrent import RECURRENT
from .resize import RESIZE
from .windows import WINDOWS

OPERATORS: dict[str, Run] = ELEMENTWISE | LAYOUT | ALONG | PRODUCTS | RECURRENT | RESIZE | WINDOWS
"""How each operator is run."""
STATIC: dict[str, tuple[int, ...]] = layout.STATIC | along.STATIC | resize.STATIC
"""Operands that must be constants, since shapes depend on them."""
FOLDED = frozenset({"Shape", "Size", "Constant", "ConstantOfShape", "Range", "EyeLike", "NonZero"})
"""Operators that are worked out when a model is read: arithmetic of shapes."""
