"""Steps in NumPy's language: in place, new arrays, assignments, reductions, joins, elements, views kept for later."""

from __future__ import annotations

import numpy as np

from .drawing import Draw, Refused
from .marked import Marked

SHAPES: tuple[tuple[int, ...], ...] = (
    (1,), (2,), (7,), (8,), (12,), (16,), (3, 4), (4, 4), (8, 3), (5, 5), (1, 6), (6, 1), (12, 2), (2, 3, 4), (3, 3, 3), (0, 3), (),
)  # fmt: skip
BIG: tuple[tuple[int, ...], ...] = ((60_000,), (300_000,), (250, 240), (300, 300), (700, 300))
TYPES = ("np.float64",) * 5 + ("np.int64",) * 3 + ("np.float32",) * 2 + ("np.int32", "np.uint8", "bool", "complex")


def new(draw: Draw) -> str:
    """Make an array."""
    rng, name = draw.rng, draw.fresh()
    shape = rng.choice(BIG if draw.big and draw.chance(0.7) else SHAPES)
    dtype = rng.choice(("np.float64", "np.float64", "np.int64") if draw.marked else TYPES)
    if draw.rough and dtype in ("bool", "np.uint8", "complex", "np.int32"):
        dtype = "np.float64"
    size = int(np.prod(shape))
    values = f"(np.arange({size}) * {rng.choice((1, 3, 5, 7))} % {rng.choice((2, 5, 11, 31))})"
    if shape != (size,):
        values += f".reshape({shape})"
    match rng.randrange(8):
        case 0:
            return f"{name} = cx.zeros({shape}, {dtype})"
        case 1:
            return f"{name} = cx.full({shape}, {rng.randrange(1, 5)}, {dtype})"
        case 2:
            return f"{name} = cx.ones({shape}, {dtype})"
        case 3:
            return f"{name} = cx.asarray({values}.astype({dtype}))"
    return f"{name} = cx.array({values}.astype({dtype}))"


def in_place(draw: Draw) -> str:
    """Change a view by another that may overlap it: `a[1:] += a[:-1]`."""
    target, source = draw.pair()
    operator = draw.rng.choice(("+", "*", "/") if draw.rough else ("+", "-", "*", "+", "|", "^"))
    if operator == "/":
        source = f"(1 + np.abs({source}))"
    if draw.chance(0.15):
        source = str(draw.rng.randrange(1, 4))
    if ".T" in target:
        return f"np.add({target}, {source}, out={target})"
    return f"{target} {operator}= {source}"


EXACT = (
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "bitwise_or",
    "bitwise_xor",
    "greater",
    "not_equal",
    "equal",
)
COMPARING = ("greater", "not_equal", "equal")
ROUGH = ("add", "multiply", "maximum", "hypot", "arctan2")


def with_out(draw: Draw) -> str:
    """Compute into an array that may be an operand, or overlap one."""
    first, second = draw.pair()
    function = draw.rng.choice(ROUGH if draw.rough else EXACT)
    out = first
    if draw.chance(0.4):
        out = draw.view()
        if draw.value(out).shape != np.broadcast_shapes(draw.value(first).shape, draw.value(second).shape):
            out = first
    casting = ', casting="unsafe"' if draw.chance(0.2) and function in ("add", "maximum") else ""
    where = ""
    alike = len({draw.value(text).dtype for text in (first, second, out)}) == 1 and function not in COMPARING
    if draw.chance(0.15) and not draw.marked and alike and draw.value(first).dtype.kind != "c":
        where = f", where={first} > {second}"  # with a cast as well, NumPy changes what the mask leaves out
    if casting and draw.value(out).dtype.kind in "ub":
        return f"np.copyto({out}, np.abs({first}) % 2, casting='unsafe')"
    return f"np.{function}({first}, {second}, out={out}{casting}{where})"


UNARY = (
    "-{x}",
    "abs({x})",
    "np.square({x})",
    "np.sign({x})",
    "{x} + 1",
    "2 - {x}",
    "{x} % 5",
    "{x}.copy()",
    "{x} > 1",
    "+{x}",
)
ROUGH_UNARY = (
    "np.sqrt(np.abs({x}))",
    "np.exp(-np.abs({x}))",
    "np.tanh({x})",
    "{x} / 3",
    "np.log1p(np.abs({x}))",
    "{x} * 0.1",
)
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "np.maximum({x}, {y})", "np.where({x} > {y}, {x}, {y})", "{x} + {y} * 2 - {x}",
    "({x} + 1) * ({y} - 2)", "{x} == {y}", "np.minimum({y}, {x}) + {x}",
)  # fmt: skip
ROUGH_BINARY = (
    "{x} + {y}",
    "{x} * {y}",
    "{x} / (1 + np.abs({y}))",
    "np.hypot({x}, {y})",
    "np.sqrt({x} * {x} + {y} * {y}) + {x}",
)


def compute(draw: Draw) -> str:
    """Make an array from others, by an expression."""
    x, y = draw.pair()
    one, two = (ROUGH_UNARY, ROUGH_BINARY) if draw.rough else (UNARY, BINARY)
    text = draw.rng.choice(one if draw.chance(0.4) else two).format(x=x, y=y)
    return f"{_result(draw)} = {text}"


def _result(draw: Draw) -> str:
    """Return a name to bind a result to: now and then one that is in use, whose array is dropped."""
    names = draw.variables()
    return draw.rng.choice(names) if len(names) > 5 or (len(names) > 2 and draw.chance(0.2)) else draw.fresh()


def cast(draw: Draw) -> str:
    """Make an array of another type, from numbers that every type holds."""
    x = draw.view()
    if draw.value(x).dtype.kind == "c":
        return f"{_result(draw)} = np.abs({x}) > 1"
    return f"{_result(draw)} = (abs({x}) % 3).astype({draw.rng.choice(TYPES)})"


def clip(draw: Draw) -> str:
    """Clip, also by numbers that the type does not have."""
    x = draw.view()
    low, high = draw.rng.choice(((-3, 2), (0, 3), (1, 1), ("None", 2), (-1, "None")))
    into = f", out={x}" if draw.chance(0.5) else ""
    return f"{'' if into else _result(draw) + ' = '}np.clip({x}, {low}, {high}{into})"


def assign(draw: Draw) -> str:
    """Assign a view, a number or a plain array."""
    target, source = draw.pair()
    match draw.rng.randrange(6):
        case 0:
            source = str(draw.rng.randrange(5))
        case 1:
            value = draw.value(target)
            source = f"np.arange({value.size}).reshape({value.shape}) % 4"
        case 2 if not draw.marked:
            return (
                f"np.copyto({target}, {source}, casting='unsafe')"
                if not _narrowing(draw, target, source)
                else f"{target}[...] = 1"
            )
    if not source[0].isdigit() and _narrowing(draw, target, source):
        source = f"abs({source}) % 2" if "np." not in source else source
    return f"{target} = {source}" if target.endswith("]") and draw.chance(0.7) else f"{target}[...] = {source}"


def _narrowing(draw: Draw, target: str, source: str) -> bool:
    """Tell whether numbers might not fit: then a cast gives what the machine likes."""
    try:
        return not np.can_cast(draw.value(source).dtype, draw.value(target).dtype, "safe")
    except Exception as error:
        raise Refused from error


REDUCTIONS = ("sum", "max", "min", "any", "all", "count_nonzero", "argmax", "argmin", "sum", "prod")


def reduce(draw: Draw) -> str:
    """Reduce along some axes, into a new array or into a given one."""
    x = draw.view()
    value = draw.value(x)
    name = draw.rng.choice(("mean", "sum", "var", "std") if draw.rough else REDUCTIONS)
    if name == "prod":
        x = f"({x} > 0)" if value.dtype.kind != "c" else f"({x} != 0)"
    axes = [None, *range(value.ndim)]
    if value.ndim > 1 and "arg" not in name:
        axes.append((0, 1))
    axis = draw.rng.choice(axes)
    options = [f"axis={axis}"] if axis is not None else []
    if draw.chance(0.2):
        options.append("keepdims=True")
    shape = np.sum(np.zeros(value.shape), axis=axis, keepdims="keepdims=True" in options).shape
    outs = [n for n in draw.arrays(kinds="fi") if draw.names[n].shape == shape and n not in x]
    if outs and draw.chance(0.3) and name in ("sum", "max", "min") and not draw.marked:
        options.append(f"out={draw.rng.choice(outs)}")
        return f"np.{name}({', '.join([x, *options])})"
    return f"{_result(draw)} = np.{name}({', '.join([x, *options])})"


def join(draw: Draw) -> str:
    """Make an array from parts."""
    x, y = draw.pair(same=True)
    texts = [
        f"np.concatenate([{x}, {y}])", f"np.stack([{x}, {y}])", f"np.roll({x}, {draw.rng.randrange(-3, 4)}, axis=0)",
        f"np.vstack([{x}, {y}])", f"np.tile({x}, 2)", f"np.concatenate([{x}, {x}, {y}], axis=-1)", f"np.hstack([{y}, {x}])",
    ]  # fmt: skip
    if draw.value(x).size > 40 and not draw.big:
        texts = texts[2:3]
    return f"{_result(draw)} = {draw.rng.choice(texts)}"


def product(draw: Draw) -> str:
    """Multiply matrices and vectors."""
    x, y = draw.view(), draw.view()
    shapes = draw.value(x).shape, draw.value(y).shape
    if not all(0 < len(s) < 3 and max(s, default=0) <= 300 for s in shapes) or min(*shapes[0], *shapes[1]) == 0:
        raise Refused
    if draw.value(x).dtype.kind in "bc" or draw.value(y).dtype.kind in "bc":
        raise Refused
    text = f"{x} @ {y}" if shapes[0][-1] == shapes[1][0] else f"{x} @ {y}.T" if shapes[0][-1] == shapes[1][-1] else ""
    if not text:
        text = f"np.multiply.outer({x}, {y})" if len(shapes[0]) == len(shapes[1]) == 1 else f"{x} @ {x}.T"
    return f"{_result(draw)} = {text}"


def keep_view(draw: Draw) -> str:
    """Keep a view for later: what is written through it is seen in its array, and the other way round."""
    name = draw.pick([n for n in draw.arrays() if draw.names[n].ndim])
    view = draw.view(name)
    choices = [
        view,
        f"{name}[::-1]",
        f"np.flip({name}, 0)",
        f"{name}.T",
        f"np.expand_dims({name}, 0)",
        f"{name}[..., None]",
    ]
    if isinstance(draw.value(view), np.ndarray | Marked):
        return f"{draw.fresh()} = {draw.rng.choice(choices)}"
    raise Refused


def drop(draw: Draw) -> str:
    """Drop an array, used or not."""
    names = draw.variables()
    if len(names) < 3:
        raise Refused
    return f"del {draw.pick(names)}"


# Elements ---------------------------------------------------------------------------------------------------------------


def _element(draw: Draw) -> str:
    name = draw.pick([n for n in draw.arrays() if draw.names[n].ndim and draw.names[n].size])
    return f"{name}[{', '.join(str(draw.rng.randrange(-n, n)) for n in draw.names[name].shape)}]"


def swap(draw: Draw) -> str:
    """Swap two elements as everybody does."""
    one = _element(draw)
    name = one.split("[")[0]
    other = f"{name}[{', '.join(str(draw.rng.randrange(n)) for n in draw.names[name].shape)}]"
    return f"{one}, {other} = {other}, {one}"


def element(draw: Draw) -> str:
    """Take an element as a value, then change where it came from."""
    one, name = _element(draw), draw.fresh()
    match draw.rng.randrange(4):
        case 0:
            return f"{name} = {one}\n{one} = {draw.rng.randrange(5)}"
        case 1:
            return f"{name} = {one}\n{name} += {_element(draw)}"
        case 2:
            return f"{name} = {one} + {_element(draw)}"
    return f"{one} += {_element(draw)}"


def element_view(draw: Draw) -> str:
    """Change one element through its view."""
    one = _element(draw)
    live = one[:-1] + ", ...]"
    return draw.rng.choice(
        (f"{live}[...] = 2", f"{live} += 1", f"np.add({live}, 2, out={live})", f"{draw.fresh()} = {live}")
    )


def total(draw: Draw) -> str:
    """Keep a total under two names, and go on with one of them: numbers do not change in NumPy."""
    one, two = draw.fresh(), draw.fresh()
    return f"{one} = {draw.view()}.sum()\n{two} = {one}\n{one} += 1"


def swap_rows(draw: Draw) -> str:
    """Swap two rows by way of a copy, as everybody must."""
    name = draw.pick([n for n in draw.arrays() if draw.names[n].ndim > 1 and draw.names[n].shape[0]])
    i, j = (draw.rng.randrange(draw.names[name].shape[0]) for _ in range(2))
    held = draw.fresh()
    return f"{held} = {name}[{i}].copy()\n{name}[{i}] = {name}[{j}]\n{name}[{j}] = {held}"


def read(draw: Draw) -> str:
    """Wait for some elements in the middle of the program."""
    view = draw.view()
    texts = [f"np.asarray({view})", "cx.wait()", "cx.flush()"]
    if draw.value(view).size == 1 and draw.value(view).dtype.kind != "c":
        texts += [f"float({view}.sum())"] * 3
    return draw.rng.choice(texts)
