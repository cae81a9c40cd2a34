"""Where the applications come from: examples/ of the checkout, or its copy in an installed coexec.

Before: nothing.  After: the applications.  The benchmark has no kernel of its own: what is shown is what is measured.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parents[2]  # src/coexec, or site-packages/coexec


def folder() -> Path:
    """Return the folder of the examples. An installed coexec has them inside."""
    inside = PACKAGE / "examples"
    return inside if inside.is_dir() else PACKAGE.parents[1] / "examples"


@cache
def load(name: str) -> ModuleType:
    """Return an example as a module, without running its main()."""
    path = folder() / f"{name}.py"
    spec = spec_from_file_location(f"coexec_examples_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no example {path}; install coexec from a wheel or work in a checkout")
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # examples import their neighbours, as scripts do
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
