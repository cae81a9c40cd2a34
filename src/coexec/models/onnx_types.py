"""ONNX's types and attributes as Python's and NumPy's; and the packages that files need.

Before: errors.py.  After: models/onnx_files.py, models/onnx_annotations.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ModelError


def needs(package: str) -> Any:
    """Return a package of the extra `onnx`; raise with the way to install it if it is missing."""
    from importlib import import_module

    try:
        if package == "onnx":
            import_module("onnx.external_data_helper")
            import_module("onnx.shape_inference")
        return import_module(package)
    except ImportError as error:
        raise ModelError(
            f"ONNX files need the package {package.partition('.')[0]}: pip install 'coexec[onnx]'"
        ) from error


def plain_dtype(dtype: np.dtype[Any]) -> bool:
    """Tell whether a type is one of NumPy's own numbers."""
    return dtype.kind in "biufc" and dtype.type.__module__ == "numpy"


def static_shape(kind: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor type, or None if a size is open."""
    if not kind.HasField("shape") or not all(d.HasField("dim_value") for d in kind.shape.dim):
        return None
    return tuple(int(d.dim_value) for d in kind.shape.dim)


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node as numbers, texts, tuples and NumPy arrays. Graphs are left out."""
    from onnx import AttributeProto, helper, numpy_helper

    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            continue
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, list | tuple) or (hasattr(value, "__iter__") and not isinstance(value, str | bytes)):
            value = tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value)
        found[attribute.name] = value
    return found
