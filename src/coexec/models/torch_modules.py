"""Torch modules as ONNX models, by torch's own exporter.

Before: models/onnx_types.py.  After: models/model.py.  torch is imported when it is used.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

from ..errors import ModelError
from .onnx_types import needs


def exported(module: Any, example: Any) -> Any:
    """Return a torch module as a model of onnx-ir. It is exported as it stands: call `module.eval()` first."""
    try:
        import torch
    except ImportError as error:
        raise ModelError("cx.Model.from_torch needs torch: pip install 'coexec[torch]'") from error
    needs("onnxscript")
    arguments = tuple(example) if isinstance(example, tuple | list) else (example,)
    if getattr(module, "training", False):
        raise ModelError(f"{type(module).__name__} is in training mode; call module.eval() before it is exported")
    level = logging.getLogger("torch.onnx").level
    try:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.export.export(module, arguments)
            return torch.onnx.export(program, dynamo=True, verbose=False).model
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"torch cannot export {type(module).__name__}: {first}") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
