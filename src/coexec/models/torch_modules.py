"""Torch modules as ONNX models, by torch's own exporter.

Before: models/onnx_types.py.  After: models/model.py.  torch is imported when it is used.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
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
    try:
        with quietly():
            program = torch.export.export(module, arguments)
            return torch.onnx.export(program, dynamo=True, verbose=False).model
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"torch cannot export {type(module).__name__}: {first}") from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep what torch's exporter says to itself: pages of graphs, of which the error has the one line that matters."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "torch.export", "onnxscript")]
    levels = [log.level for log in logs]
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            for log in logs:
                log.setLevel(logging.ERROR)
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
