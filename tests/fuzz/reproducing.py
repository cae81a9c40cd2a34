"""A program as a script that stands alone: paste it into a file, run it, see it fail."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import numpy as np

from .kernels import KERNELS, along_rows, behind, crosswise, pairs
from .mixes import MIXES
from .program import Program
from .running import Look, expected

SHORT = 64  # elements that are written out
BODIES = {"ring": along_rows, "edged": along_rows, "folded": along_rows, "padded": along_rows, "inner1": along_rows,
          "lagging": behind, "cross_ring": crosswise, "cross_edge": crosswise, "inner2": crosswise}  # fmt: skip


def reproducer(program: Program, signature: str, said: str = "") -> str:
    """Return the script of a program."""
    sources = program.sources()
    text = "\n".join(sources)
    used = [name for name in KERNELS if re.search(rf"\b{name}\b", text)]
    head = [
        f"# {signature}; mix {program.mix!r}, seed {program.seed}; {', '.join(program.kinds())}",
        *[f"#   {line}" for line in said.splitlines()[:20]],
        "import numpy as np",
        "",
        "import coexec as cx",
    ]
    helpers = []
    if "nonsense(" in text:
        helpers.append("from tests.fuzz.nonsense import nonsense  # run this in the repository's folder")
    if re.search(r"\bcluster\(", _opening(program)):
        helpers.append("from tests.clusters import cluster  # run this in the repository's folder")
    if "closed_gate(" in text:
        helpers.append("from tests.holding import closed_gate, pass_gate  # run this in the repository's folder")
    if "log)" in text:
        helpers.append("log = []")
    bodies = [_with_looks(program, source) for source in sources]
    if program.marked:
        helpers.append(LOST_TEXT)
    if program.rough:
        helpers.append(CLOSE_TEXT)
    kernels = [_kernel(name) for name in used]
    return "\n".join([*head, *helpers, "", *kernels, "", _main(program, bodies), ""])


LOST_TEXT = """

def lost(array):
    try:
        print("this should raise:", np.asarray(array))
    except (cx.TaskFailed, cx.TaskCancelled):
        return
    raise SystemExit(1)
"""
CLOSE_TEXT = """

def assert_close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4 * np.abs(wanted).max(initial=0) + 1e-13)
"""


def _opening(program: Program) -> str:
    """Return how the runtime is opened."""
    options = dict(program.options)
    if isinstance(nodes := options.get("platform"), int):
        options |= {"platform": f"cluster({nodes}, {2 if nodes < 3 else 1})", "ranks": nodes}
    elif "platform" in options and not isinstance(options["platform"], str):
        options["platform"] = "cluster(1, 2)"
    texts = [f"{k}={v if isinstance(v, str) and v.startswith('cluster') else repr(v)}" for k, v in options.items()]
    return f"cx.Runtime({', '.join(texts)}, store='off')"


def _main(program: Program, bodies: list[str]) -> str:
    inside = bodies[0]
    if len(bodies) > 1:
        functions = [f"def thread{i}():\n{textwrap.indent(body, '    ')}\n" for i, body in enumerate(bodies)]
        names = ", ".join(f"pool.submit(thread{i})" for i in range(len(bodies)))
        inside = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            f"with ThreadPoolExecutor() as pool:\n    for done in [{names}]:\n        done.result()"
        )
        if MIXES[program.mix].default:
            devices = program.options["devices"]
            return "\n".join([f'import os\nos.environ["COEXEC_DEVICES"] = "{devices}"', *functions, inside])
        return "\n".join([*functions, f"with {_opening(program)}:\n{textwrap.indent(inside, '    ')}"])
    return f"with {_opening(program)}:\n{textwrap.indent(inside, '    ')}"


def _kernel(name: str) -> str:
    """Return the definition of a kernel, as written."""
    kernel = KERNELS[name]
    text = inspect.getsource(kernel.function)
    if name == "add_pairs":
        text = inspect.getsource(pairs) + "\n\n" + text
    if name in BODIES:
        accesses = ", ".join(f"{p.name}={_access(p.access)}" for p in kernel.array_params)
        split = kernel.split if len(kernel.split) > 1 else kernel.split[0]
        text = f"{text}\n{name} = cx.kernel(split={split}, {accesses})({kernel.function.__name__})\n"
    sources = [f'{name}.opencl("{v.source}")\n' for v in kernel.variants if v.kind == "opencl" and not v.made]
    return "\n".join([text, *sources])


def _access(access: Any) -> str:
    mapper = access.mapper
    if not hasattr(mapper, "border"):
        return f"cx.{access.mode}"
    widths = list(mapper.widths) if mapper.per_axis else mapper.widths[0][0]
    return f"cx.{access.mode}(cx.halo({widths}, border={mapper.border!r}, shape={mapper.shape!r}))"


def _with_looks(program: Program, source: str) -> str:
    """Return the source with each look written as an assertion of what NumPy has there."""
    looks = iter(expected(program, source)[0])
    lines = []
    for line in source.splitlines():
        found = re.fullmatch(r"look\((.*)\)", line)
        lines.append(_look(program, found[1], next(looks)) if found else line)
    return "\n".join(lines)


def _look(program: Program, what: str, wanted: Look) -> str:
    if wanted.marks is not None and wanted.marks.any():
        return f"lost({what})" if (wanted.marks == 1).any() else f"# {what} may be lost, or not"
    values = np.asarray(wanted.values)
    check = "assert_close" if program.rough else "np.testing.assert_array_equal"
    if not MIXES[program.mix].values:
        return f"assert {what}.shape == {values.shape}"
    if values.size <= SHORT:
        return f"{check}(np.asarray({what}), {_literal(values)})"
    step = max(1, values.size // 40)
    return f"{check}(np.asarray({what}).ravel()[::{step}], {_literal(values.ravel()[::step])})"


def _literal(values: Any) -> str:
    if not values.size:
        return f"np.zeros({values.shape}, np.{values.dtype})"
    text = np.array2string(values, separator=", ", threshold=10**6, floatmode="unique", max_line_width=10**6)
    text = re.sub(r"\n\s*", " ", text).replace("nan", "np.nan").replace("inf", "np.inf")
    return f"np.array({text}, dtype=np.{values.dtype})" if values.dtype != bool else f"np.array({text})"
