"""ONNX files and what must hold of them: complete, valid, with their data beside them, of an opset that is read.

Before: models/onnx_types.py.  After: models/onnx_reading.py.  ONNX files are data: nothing in them is run.

Functions are inlined and branches with known conditions taken by onnxscript's optimiser, if a file has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .onnx_types import needs

OLDEST = 9
"""The oldest opset that is read: before it, broadcasting had other rules."""
LISTED = 40
"""Operators, types or sizes that an error lists."""


def load_onnx(path: str | Path) -> Any:
    """Return a checked model with its external data, which must lie beside it."""
    onnx = needs("onnx")
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"there is no file {file}; give the path of an .onnx file")
    try:
        proto = onnx.load(str(file), load_external_data=False)
    except Exception as error:
        raise ModelError(f"{file} cannot be read as ONNX: {first_line(error)}; is it complete?") from error
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{file} is no ONNX model: it has no graph; is it complete?")
    take_external_data(proto, file)
    check_onnx(proto, str(file))
    return proto


def check_onnx(proto: Any, what: str) -> None:
    """Raise ModelError unless the `onnx` package accepts a model."""
    onnx = needs("onnx")
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{what} is no valid ONNX model: {first_line(error)}") from error
    except ValueError as error:  # larger than a message of its format may be: what is inside was checked on its way
        if "2GB" not in str(error) and "2 GiB" not in str(error):
            raise ModelError(f"{what} cannot be checked: {first_line(error)}") from error


def take_external_data(proto: Any, file: Path) -> None:
    """Read the tensors that lie in files of their own, in the model's folder or below it."""
    onnx = needs("onnx")
    folder = file.resolve().parent
    for tensor in _external_tensors(proto):
        given = {entry.key: entry.value for entry in tensor.external_data}
        location = given.get("location", "")
        target = (folder / location).resolve()
        if not location or Path(location).is_absolute() or folder not in target.parents:
            raise ModelError(
                f"{file}: the data of {tensor.name!r} is said to be in {location!r}, outside the model's folder; "
                "only files in that folder are read"
            )
        if not target.is_file():
            raise ModelError(
                f"{file}: the data of {tensor.name!r} is missing: there is no file {target.name} beside it"
            )
        offset, size = int(given.get("offset", 0) or 0), target.stat().st_size
        length = int(given.get("length", 0) or size - offset)
        if offset < 0 or length < 0 or offset + length > size:
            raise ModelError(
                f"{file}: {target.name} has {size} bytes, and {tensor.name!r} needs {offset + length}; is it complete?"
            )
    try:
        onnx.external_data_helper.load_external_data_for_model(proto, str(folder))
    except Exception as error:
        raise ModelError(f"{file}: its external data cannot be read: {first_line(error)}") from error


def _external_tensors(proto: Any) -> list[Any]:
    onnx = needs("onnx")
    found = [t for t in proto.graph.initializer if onnx.external_data_helper.uses_external_data(t)]
    for node in proto.graph.node:
        for attribute in node.attribute:
            tensors = [attribute.t] if attribute.HasField("t") else list(attribute.tensors)
            found += [t for t in tensors if onnx.external_data_helper.uses_external_data(t)]
    return found


def inlined(proto: Any) -> Any:
    """Return a model without functions of its own, and with known branches taken, if it has any."""
    branches = any(a.HasField("g") or a.graphs for node in proto.graph.node for a in node.attribute)
    if not proto.functions and not branches:
        return proto
    try:
        optimizer = needs("onnxscript.optimizer")
        return optimizer.optimize(proto, num_iterations=2)
    except ModelError:
        return proto  # without the optimiser, what it would have removed is reported as not supported
    except Exception as error:
        raise ModelError(f"the functions or branches of the model cannot be simplified: {first_line(error)}") from error


def opset_of(proto: Any) -> int:
    """Return the opset of a model; raise if it is too old. What has not changed since then is as good as new."""
    found = [int(entry.version) for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not found:
        raise ModelError("the model imports no ONNX operators; it needs an opset_import of the default domain")
    if found[0] >= OLDEST:
        return found[0]
    changed = sorted({node.op_type for node in proto.graph.node if _changed(node.op_type, found[0])})
    if changed:
        raise ModelError(
            f"the model has opset {found[0]}, and {OLDEST} is the oldest that is read; {listed(changed, 5)} had another "
            "meaning before it. Convert the model with onnx.version_converter.convert_version"
        )
    return OLDEST


def _changed(kind: str, opset: int) -> bool:
    """Tell whether an operator means something else in an old opset than in the oldest that is read."""
    defs = needs("onnx").defs
    try:
        return bool(defs.get_schema(kind, OLDEST, "").since_version > opset)
    except defs.SchemaError:
        return False


def first_line(error: Exception) -> str:
    """Return the first line of an error that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def listed(names: Sequence[str], most: int = LISTED) -> str:
    """Return names for an error, not too many of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
