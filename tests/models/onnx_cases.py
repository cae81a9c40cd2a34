"""The `onnx` package's own tests of single operators, as models with inputs and expected results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import numpy as np

from coexec.models.operators.table import OPERATORS, STATIC

CALLED = {"ReduceLogSumExp": "reduce_log_sum_exp", "HardSwish": "hardswish", "PRelu": "prelu"}


class NodeCase(NamedTuple):
    """One model of one operator, with what goes in and what must come out."""

    name: str
    model: Any
    inputs: dict[str, Any]
    outputs: list[Any]
    rtol: float
    atol: float

    @property
    def node(self) -> Any:
        """Its operator."""
        return self.model.graph.node[0]

    @property
    def foreign(self) -> str:
        """The first type that NumPy does not have, or ""."""
        for value in (*self.inputs.values(), *self.outputs):
            if not isinstance(value, np.ndarray):
                return type(value).__name__
            if value.dtype.kind not in "biufc" or value.dtype.type.__module__ != "numpy":
                return str(value.dtype)
        return ""

    def fixed(self) -> dict[str, Any]:
        """Return the inputs that decide about shapes."""
        names = {self.node.input[p] for p in STATIC.get(self.node.op_type, ()) if p < len(self.node.input)}
        return {name: value for name, value in self.inputs.items() if name in names}


def node_cases(kinds: set[str]) -> Iterator[NodeCase]:
    """Yield the tests of some operators. Only their modules are loaded: each computes its expectations on import."""
    import onnx.backend.test.case.node as folder

    wanted = {_plain(kind) for kind in kinds} | {_plain(CALLED.get(kind, kind)) for kind in kinds}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in iter_modules(folder.__path__):
            if _plain(module.name) in wanted or any(_plain(module.name).startswith(w) for w in ("pool",)):
                import_module(f"{folder.__name__}.{module.name}")
    seen = set()
    for case in folder._NodeTestCases:
        model = case.model
        if case.name in seen or len(model.graph.node) != 1 or model.graph.node[0].op_type not in kinds:
            continue
        seen.add(case.name)
        assert model.graph.node[0].op_type in OPERATORS
        names = [value.name for value in model.graph.input]
        for given, expected in case.data_sets:
            inputs = dict(zip(names, map(_array, given), strict=True))
            yield NodeCase(case.name, model, inputs, list(map(_array, expected)), case.rtol, case.atol)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
