"""Build wheels with a compiled core: mypyc translates the modules that every task goes through, where there is a C compiler.

Before: nothing.  After: hatchling, which calls the hook; `make compiled`, which runs this file.  Knows no module by what it does.

COEXEC_COMPILE=0 (the default) does not compile; auto compiles if there is a C compiler, and makes a pure wheel if that fails; 1
compiles or fails. Editable installs are never compiled: `make compiled` puts the extensions beside the sources instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # `make compiled` needs no hatchling
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
COMPILED = (
    "geometry/*.py", "graph/*.py", "schedule/*.py", "lower/*.py", "execute/engine.py", "execute/executor.py",
    "execute/virtual.py", "execute/hand_over.py", "execute/inline_calls.py", "cluster/everywhere.py",
)  # fmt: skip
"""The core, below src/coexec. A test sees to it that mypyc can take each of them (tests/test_compilable.py)."""
INTERPRETED = ("__init__.py", "graph/call.py", "graph/command.py", "graph/failure.py", "schedule/events.py")
"""What stays as it is: packages; what looks at the frames of its callers, of which compiled functions have none (call.py);
plain data whose fields name classes that are only there for the type checker (command.py, events.py); and what makes classes
while it runs, for which compiled functions are no methods (failure.py)."""
NEEDS = ["mypy>=1.18", "setuptools>=70"]
"""mypyc comes with mypy; setuptools calls the C compiler."""
SETUP = """
import sys
from setuptools import setup
from mypyc.build import mypycify

files = sys.argv.pop().split(",")
# One C file per module: a single one takes gigabytes of memory. Level 1: level 3 takes three times as long, and gains nothing.
extensions = mypycify(["--config-file", "pyproject.toml", *files], opt_level="1", debug_level="0", multi_file=True, group_name="coexec_core")
setup(name="coexec-core", packages=[], ext_modules=extensions)
"""


def modules(package: Path) -> list[Path]:
    """Return the files of the core."""
    found = sorted({path for pattern in COMPILED for path in package.glob(pattern)})
    return [path for path in found if not path.relative_to(package).as_posix().endswith(INTERPRETED)]


def asked() -> str:
    """Return what COEXEC_COMPILE says: 0, 1 or auto."""
    said = os.environ.get("COEXEC_COMPILE", "").strip() or "0"
    if said not in ("0", "1", "auto"):
        raise SystemExit(f"COEXEC_COMPILE={said!r} must be 0, 1 or auto")
    return said


def has_compiler() -> bool:
    """Tell whether there is a C compiler."""
    return any(shutil.which(name) for name in (*os.environ.get("CC", "cc").split()[:1], "gcc", "clang"))


def compile_core(root: Path) -> Path:
    """Compile the core of the sources below `root` in a copy; return the folder that has the extensions where they belong.

    The same sources are compiled once: pip asks for a wheel's metadata first, and then for the wheel.
    """
    files = modules(root / "src" / "coexec")
    contents = sha256("".join([sys.version, SETUP, *[path.read_text(encoding="utf-8") for path in files]]).encode())
    made = root / "build" / f"core-{contents.hexdigest()[:16]}"
    if not made.exists():
        with tempfile.TemporaryDirectory(prefix="coexec-core-") as folder:
            extensions = _compile(root, Path(folder), files)
            partly = made.with_suffix(".part")
            shutil.rmtree(partly, ignore_errors=True)
            for path in extensions:
                target = partly / path.relative_to(Path(folder) / "src")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
            partly.rename(made)
    return made


def _compile(root: Path, folder: Path, files: list[Path]) -> list[Path]:
    """Compile files below `root` in a copy in `folder`; return the extensions, below `folder`/src."""
    source = folder / "src"
    shutil.copytree(root / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd"))
    shutil.copy(root / "pyproject.toml", source)
    script = folder / "build_core.py"
    script.write_text(SETUP, encoding="utf-8")
    names = ",".join(path.relative_to(root / "src").as_posix() for path in files)
    command = [sys.executable, str(script), "build_ext", "--inplace", f"-j{os.cpu_count() or 1}", names]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise RuntimeError("\n".join(lines[-20:]))
    found = [path for path in source.rglob("*") if path.suffix in (".so", ".pyd")]
    return [path for path in found if "build" not in path.relative_to(source).parts]


class CompileHook(BuildHookInterface):  # type: ignore[misc, valid-type, unused-ignore]  # hatchling may not be there
    """Adds the compiled core to a wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs; nothing where nothing is compiled."""
        return NEEDS if asked() == "1" or (asked() == "auto" and has_compiler()) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and let the wheel have the extensions."""
        said = asked()
        if said == "0" or version == "editable" or (said == "auto" and not has_compiler()):
            return
        try:
            made = compile_core(Path(self.root))
        except (RuntimeError, OSError) as error:
            if said == "1":
                raise SystemExit(f"the core cannot be compiled: {error}") from error
            self.app.display_warning(
                f"the core cannot be compiled, so the wheel is pure Python: {str(error).splitlines()[-1]}"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in made.rglob("*.*"):
            build_data["force_include"][str(path)] = path.relative_to(made).as_posix()


def main() -> None:
    """Compile the core in place: the extensions come to lie beside the sources."""
    made = compile_core(ROOT)
    for path in made.rglob("*.*"):
        target = ROOT / "src" / path.relative_to(made)
        shutil.copy(path, target)
        sys.stdout.write(f"{target.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
