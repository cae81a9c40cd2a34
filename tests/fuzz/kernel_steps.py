"""Steps that call kernels: of every kind, on views that may overlap, under every policy."""

from __future__ import annotations

import numpy as np

from .drawing import Draw, Refused
from .kernels import KERNELS

POLICIES = ("static", "dynamic", "auto", "even")


def _call(draw: Draw, name: str) -> str:
    """Return a kernel with options for the call; raise Refused if no device of the mix runs it."""
    kernel = KERNELS[name]
    opencl = any(variant.kind == "opencl" and not variant.made for variant in kernel.variants)  # others come and go
    if draw.opencl_only and not opencl:
        raise Refused
    options = []
    if draw.devices and draw.chance(0.6):
        named = draw.devices if opencl else ",".join(d for d in draw.devices.split(",") if "opencl" not in d)
        alone = draw.rng.choice(named.split(",")) if named and draw.chance(0.2) else named
        options += [f'devices="{alone}"'] if alone else []
    if draw.chance(0.6):
        options.append(f'policy="{draw.rng.choice(POLICIES)}"')
    if draw.chance(0.1):
        options.append("split=False")
    elif draw.chance(0.05) and kernel.split and not kernel.reduces:
        options.append("oversubscribe=3")
    return f"{name}.using({', '.join(options)})" if options else name


def _numbers(draw: Draw, *texts: str) -> None:
    """Refuse what the kernels are not written for: complex numbers and booleans, and types that differ."""
    types = {draw.value(text).dtype for text in texts}
    if len(types) > 1 or types.pop().kind not in "fi":
        raise Refused


def _pair(draw: Draw) -> tuple[str, str]:
    for _ in range(6):
        target, source = draw.pair(same=True)
        if draw.value(target).dtype == draw.value(source).dtype and draw.value(target).dtype.kind in "fi":
            return target, source
    raise Refused


def elementwise(draw: Draw) -> str:
    """Call a kernel on two views of one shape."""
    target, source = _pair(draw)
    ndim = draw.value(target).ndim
    names = ["shifted", "in_fours", "weighted", "whole"]
    if ndim in (1, 2):
        names += [f"axpy{ndim}", f"double{ndim}"] * 4
    name = draw.rng.choice(names)
    call = _call(draw, name)
    match name:
        case "axpy1" | "axpy2":
            return f"{call}({draw.rng.randrange(1, 4)}, {source}, {target})"
        case "shifted":
            return f"{call}({source}, {target}, {draw.rng.randrange(3)})"
    return f"{call}({source}, {target})"


def both_ways(draw: Draw) -> str:
    """Call a kernel that writes both of its arguments, or reads one after it wrote the other."""
    target, source = _pair(draw)
    name = draw.rng.choice(("exchange", "read_back"))
    return f"{_call(draw, name)}({source}, {target})"


def by_value(draw: Draw) -> str:
    """Call a kernel with a number, or with an element or a total that is not computed yet."""
    target = draw.view(draw.pick([n for n in draw.arrays(kinds="fi") if draw.names[n].ndim]), keep=True)
    ndim = draw.value(target).ndim
    if ndim > 2:
        raise Refused
    values = [str(draw.rng.randrange(4))]
    if draw.value(target).size:
        other = draw.view(
            draw.pick([n for n in draw.arrays(kinds="i") if draw.names[n].ndim] or [target.split("[")[0]])
        )
        if draw.value(other).dtype == draw.value(target).dtype and draw.value(other).size:
            values += [f"{other}.sum()", f"{other}.max()"]
    return f"{_call(draw, f'mirror{ndim}')}({target}, {draw.rng.choice(values)})"


def functional(draw: Draw) -> str:
    """Call a kernel that returns a new array."""
    source = draw.view(keep=True)
    _numbers(draw, source)
    if not draw.value(source).ndim:
        raise Refused
    return f"{draw.fresh()} = {_call(draw, 'tripled')}({source})"


def mapped(draw: Draw) -> str:
    """Call a kernel that reads more, or less, than its own rows."""
    target, source = _pair(draw)
    ndim, rows = draw.value(target).ndim, len(draw.value(target))
    names = ["spread", "add_first", "dealt"] + (["column_sums", "row_sums"] * 3 if ndim == 2 else [])
    name = draw.rng.choice(names)
    call = _call(draw, name)
    if not draw.value(target).size:
        raise Refused
    if name == "dealt":
        return f"{call}({source}, {target}, {draw.rng.randint(1, 5)})"
    if draw.chance(0.15) and rows > 1:
        half = rows // 2
        return f"{_call(draw, 'add_pairs')}({source}[:{2 * half}], {target}[:{half}])"
    return f"{call}({source}, {target})"


def stencil(draw: Draw) -> str:
    """Call a stencil with some border."""
    target, source = _pair(draw)
    ndim = draw.value(target).ndim
    if min(draw.value(target).shape) < 3:
        raise Refused
    names = ["ring", "edged", "folded", "padded", "lagging", "highest_near"]
    names += ["inner1"] * 3 if ndim == 1 else []
    names += ["cross_ring", "cross_edge", "inner2", "inner2"] if ndim == 2 else []
    name = draw.rng.choice(names)
    return f"{_call(draw, name)}({source}, {target})"


def reduction(draw: Draw) -> str:
    """Reduce into an array by a kernel: into all of it, or into a view."""
    source = draw.view(keep=True)
    _numbers(draw, source)
    if not draw.value(source).ndim:
        raise Refused
    name = draw.rng.choice(("add_up", "add_up_afresh", "peak", "lowest", "count_rests"))
    names = [n for n in draw.arrays(kinds="fi") if draw.names[n].dtype == draw.value(source).dtype and n not in source]
    target = draw.view(draw.pick(names), keep=True)
    value = draw.value(target)
    if name == "count_rests" and (value.ndim != 1 or not value.size):
        raise Refused
    if value.size > 50 or not value.size or (name == "peak" and not draw.value(source).size):
        raise Refused
    return f"{_call(draw, name)}({source}, {target})"


def write_down(draw: Draw) -> str:
    """Note a sum by a host task: in program order."""
    source = draw.view()
    if draw.value(source).dtype.kind not in "fi" or draw.big:
        raise Refused
    return f"note({source}, log)"


def nonsense(draw: Draw) -> str:
    """Let every model believe in some absurd speed: divisions become as uneven as can be."""
    return f"nonsense({draw.rng.randrange(1 << 20)})"


# Trouble ----------------------------------------------------------------------------------------------------------------


def fail(draw: Draw) -> str:
    """Let a kernel fail on a view, strided or not."""
    view = draw.view(draw.pick([n for n in draw.arrays() if draw.names[n].ndim]), keep=True)
    if not draw.value(view).size:
        raise Refused
    return f"{draw.rng.choice(('fail', 'fail', 'fail_in_parts'))}({view})"


def heal(draw: Draw) -> str:
    """Overwrite what was lost: by the same view, by rows, or all of it."""
    lost = [n for n in draw.arrays() if draw.names[n].marks.any()]
    name = draw.pick(lost)
    failed = [s.text for s in draw.steps if s.kind == "fail" and f"({name}[" in s.text]
    view = failed[-1].partition("(")[2][:-1] if failed and draw.chance(0.7) else name
    value = np.asarray(draw.value(view).values)
    source = draw.rng.choice(("7", f"np.arange({value.size}).reshape({value.shape}) % 3"))
    return f"{view}[...] = {source}" if view == name or draw.chance(0.5) else f"{view} = {source}"


def hold(draw: Draw, gate: str) -> str:
    """Begin a block in which a task is held in mid-body: everything submitted meanwhile meets it there."""
    view = draw.view(draw.pick([n for n in draw.arrays(kinds="fi") if draw.names[n].ndim]), keep=True)
    return f'held({view}, "{gate}")'


def cancel(draw: Draw) -> str:
    """Take a call back that may have begun."""
    view = draw.view(draw.pick([n for n in draw.arrays(kinds="fi") if draw.names[n].ndim in (1, 2)]), keep=True)
    return f"mirror{draw.value(view).ndim}({view}, 4).cancel()"
