"""The tree is the pipeline: a stage imports earlier stages only, and no module imports itself in a circle."""

from __future__ import annotations

import ast

from tests.repository import imported, imports, modules

LAYERS = [
    "_version",
    "errors",
    "files",
    "origin",
    "config",
    "geometry",
    "saving",
    "machine",
    "program",
    "compile",
    "graph",
    "predict",
    "plan",
    "cluster",
    "lower",
    "schedule",
    "backend",
    "execute",
    "observe",
    "testing",
    "notebook",
    "process",
    "opening",
    "assembly",
    "pump",
    "straight",
    "straight_queue",
    "straight_known",
    "homes",
    "driver",
    "joined",
    "ranked",
    "runtime",
    "in_front",
    "ops",
    "calibrate",
    "joules",
    "stream",
    "models",
    "coexec",  # the package itself: the public names, which benchmarks and commands use as users do
    "bench",
    "cli",
    "__main__",
]
RANK = {layer: rank for rank, layer in enumerate(LAYERS)}

Imports = dict[str, dict[str, int]]


def layer(module: str) -> str:
    """Return the stage a module belongs to."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] or package


def against_the_flow(graph: Imports) -> list[str]:
    """Name each import of a later stage."""
    return [
        f"{module}:{line} imports {target}"
        for module, targets in sorted(graph.items())
        for target, line in targets.items()
        if RANK[layer(target)] > RANK[layer(module)]
    ]


def circles(graph: Imports) -> list[list[str]]:
    """Return the groups of modules that reach each other: peel off what imports nothing left, keep the rest."""
    left = {module: set(targets) - {module} for module, targets in graph.items()}
    while free := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in free}
    while unused := left.keys() - set().union(*left.values(), set()):
        left = {module: targets for module, targets in left.items() if module not in unused}
    return [sorted(left)] if left else []


def parse(module: str, source: str, *known: str) -> Imports:
    return {module: dict(imported(module, ast.parse(source), is_package=False, known=frozenset(known)))}


def test_every_module_belongs_to_a_stage() -> None:
    assert {layer(module) for module in modules()} <= set(LAYERS)


def test_no_stage_imports_a_later_one() -> None:
    assert against_the_flow(imports()) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circles(imports()) == []


def test_an_import_against_the_flow_is_named() -> None:
    graph = parse("coexec.graph.task", "from ..plan.policies import Policy", "coexec.plan.policies")
    assert against_the_flow(graph) == ["coexec.graph.task:1 imports coexec.plan.policies"]
    assert against_the_flow(parse("coexec.plan.policies", "from ..graph import task", "coexec.graph.task")) == []


def test_an_import_inside_a_function_counts_and_one_for_the_type_checker_does_not() -> None:
    late = "def f():\n    from ..execute import lanes\n"
    assert against_the_flow(parse("coexec.lower.state", late, "coexec.execute")) != []
    typed = "if TYPE_CHECKING:\n    from ..execute import lanes\n"
    assert against_the_flow(parse("coexec.lower.state", typed, "coexec.execute")) == []


def test_a_circle_is_found_and_a_chain_is_not() -> None:
    assert circles({"a": {"b": 1}, "b": {"c": 1}, "c": {"a": 1}, "d": {"a": 1}}) == [["a", "b", "c"]]
    assert circles({"a": {"b": 1}, "b": {"c": 1}, "c": {}}) == []
