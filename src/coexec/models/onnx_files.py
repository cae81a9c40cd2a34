"""ONNX files and what must hold of them: complete, valid, with their data beside them, of an opset that is read.

Before: models/onnx_types.py.  After: models/onnx_simplifying.py.  ONNX files are data: nothing in them is run.

The `onnx` package parses and checks them; onnx-ir holds them, and reads the data that lies in files of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .onnx_types import needs

OLDEST = 9
"""The oldest opset that is read: before it, broadcasting had other rules."""
LISTED = 40
"""Operators, types or sizes that an error lists."""


def load_onnx(path: str | Path) -> Any:
    """Return a checked model of onnx-ir with its external data, which must lie beside it."""
    file = Path(path)
    proto = parse_onnx(file)
    try:
        model = needs("onnx_ir").from_proto(proto)
    except Exception as error:
        raise ModelError(f"{file} is no valid ONNX model: {first_line(error)}") from error
    if take_external_data(model, file):
        proto = needs("onnx_ir").to_proto(model)
    check_onnx(proto, str(file))
    return model


def parse_onnx(file: Path) -> Any:
    """Return a file as the `onnx` package's model, without its external data."""
    if not file.is_file():
        raise ModelError(f"there is no file {file}; give the path of an .onnx file")
    try:
        proto = needs("onnx").load(str(file), load_external_data=False)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{file} cannot be read as ONNX: {first_line(error)}; is it complete?") from error
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{file} is no ONNX model: it has no graph; is it complete?")
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


# External data --------------------------------------------------------------------------------------------------------------


def take_external_data(model: Any, file: Path) -> bool:
    """Read the tensors that lie in files of their own, in the model's folder or below it; tell whether there were any.

    All are checked before the first is read.
    """
    ir = needs("onnx_ir")
    folder = file.resolve().parent
    found = [tensor for tensor in _tensors(model) if isinstance(tensor, ir.ExternalTensor)]
    for tensor in found:
        _check_external(tensor, file, folder)
        tensor.base_dir = str(folder)
    if not found:
        return False
    try:
        ir.external_data.load_to_model(model)
        for node in _nodes(model):  # onnx-ir loads initializers; tensors of attributes are loaded here
            for attribute in list(node.attributes.values()):
                if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                    (loaded,) = ir.external_data.convert_tensors_from_external([attribute.value])
                    node.attributes[attribute.name] = ir.AttrTensor(attribute.name, loaded)
    except Exception as error:
        raise ModelError(f"{file}: its external data cannot be read: {first_line(error)}") from error
    return True


def _check_external(tensor: Any, file: Path, folder: Path) -> None:
    """Raise ModelError unless a tensor's data is in the model's folder, and complete."""
    location = str(tensor.location)
    target = (folder / location).resolve()
    if not location or Path(location).is_absolute() or folder not in target.parents:
        raise ModelError(
            f"{file}: the data of {tensor.name!r} is said to be in {location!r}, outside the model's folder; "
            "only files in that folder are read"
        )
    if not target.is_file():
        raise ModelError(f"{file}: the data of {tensor.name!r} is missing: there is no file {target.name} beside it")
    offset, size = int(tensor.offset or 0), target.stat().st_size
    length = int(tensor.length or tensor.nbytes)
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"{file}: {target.name} has {size} bytes, and {tensor.name!r} needs {offset + length}; is it complete?"
        )


def _nodes(model: Any) -> Iterator[Any]:
    """Yield all nodes of a model, those of branches and functions included."""
    traversal = needs("onnx_ir").traversal
    yield from traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from traversal.RecursiveGraphIterator(function)


def _tensors(model: Any) -> Iterator[Any]:
    """Yield all constant tensors of a model, those of branches and functions included."""
    kinds = needs("onnx_ir").AttributeType
    graphs = [*model.graphs(), *(graph for function in model.functions.values() for graph in function.subgraphs())]
    for graph in graphs:
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
    for node in _nodes(model):
        for attribute in node.attributes.values():
            if attribute.type == kinds.TENSOR and not attribute.is_ref():
                yield attribute.value
            elif attribute.type == kinds.TENSORS and not attribute.is_ref():
                yield from attribute.value


# Versions and texts ---------------------------------------------------------------------------------------------------------


def opset_of(model: Any) -> int:
    """Return the opset of a model; raise if it is too old. What has not changed since then is as good as new."""
    found = next((int(model.opset_imports[d]) for d in ("", "ai.onnx") if d in model.opset_imports), None)
    if found is None:
        raise ModelError("the model imports no ONNX operators; it needs an opset_import of the default domain")
    if found >= OLDEST:
        return found
    changed = sorted({node.op_type for node in model.graph if _changed(node.op_type, found)})
    if changed:
        raise ModelError(
            f"the model has opset {found}, and {OLDEST} is the oldest that is read; {listed(changed, 5)} had another "
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
