"""A plan of a model as one self-contained page: the mapping, its timeline, and what it is compared with.

Before: plan/plan.py, observe/pictures/svg.py.  After: cli/models.py.  Knows plans as data; no script, nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..observe.pictures.svg import PALETTE, esc, seconds_text
from ..plan.plan import Part, Plan

WIDTH, ROW = 1000.0, 26.0
LEAST_LEFT, LETTER = 90.0, 7.5
"""Room for the names of accelerators at the left: at least, and for each letter."""
TICKS = 4
"""Intervals of the time axis."""
VALUES = {"latency": "latency", "throughput": "time between results", "energy": "energy"}
COMPUTE, EXCHANGE, MOVING = PALETTE[0], PALETTE[3], PALETTE[5]
STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;padding:0 1em;max-width:1060px;color:#222;background:#fff}
h1{font-size:20px}h2{font-size:16px;margin-top:2em}table{border-collapse:collapse;width:100%}
td,th{padding:2px 8px;border-bottom:1px solid #ddd;text-align:left;font-variant-numeric:tabular-nums;white-space:nowrap}
.wide{overflow-x:auto}.wide svg{min-width:800px}th[colspan]{white-space:normal}tr.own td{font-weight:bold}
td.n,th.n{text-align:right}td.on{background:#e4eefc}svg text{font:12px system-ui,sans-serif;fill:#222}
.key span{display:inline-block;width:1em;height:1em;margin:0 .4em 0 1.2em;vertical-align:-2px}
"""


def model_page(plan: Plan) -> str:
    """Return the page of a plan of a model."""
    devices = sorted({part.device for layer in layers(plan) for part in layer.parts}, key=_by_number)
    title = esc(f"{plan.name}: {plan.objective}")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>',
        f"<body><h1>{title}</h1><p>{esc(plan.why)}</p>",
        "<h2>Compared with</h2>", *_comparison(plan),
        "<h2>Timeline of one input</h2>", _key(), *_timeline(plan, devices),
        "<h2>Mapping</h2>", *_mapping(plan, devices), "</body></html>",
    ]  # fmt: skip
    return "\n".join(parts)


def layers(plan: Plan) -> list[Plan]:
    """Return the layers of a plan in order."""
    return [layer for group in plan.children for layer in group.children]


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.partition(":")
    return kind, int(number) if number.isdigit() else 0


def _comparison(plan: Plan) -> Iterator[str]:
    value = VALUES.get(plan.objective, plan.objective)
    yield f'<div class="wide"><table class="compared"><tr><th>mapping</th><th class="n">{value}</th><th class="n">this plan takes</th></tr>'
    own = plan.joules if plan.objective == "energy" else plan.seconds
    for name, its in plan.considered.items():
        less = less_text(own, its) if own is not None and its else ""
        yield f'<tr><td>{esc(name)}</td><td class="n">{_value(plan, its)}</td><td class="n">{less}</td></tr>'
    if own is not None:
        yield f'<tr class="own"><td>this plan</td><td class="n">{_value(plan, own)}</td><td></td></tr>'
    yield "</table></div>"


def _value(plan: Plan, value: float) -> str:
    return f"{value:.4g} J" if plan.objective == "energy" else seconds_text(value)


def less_text(own: float, other: float) -> str:
    """Return how much less, or more, one value is than another."""
    return f"{1 - own / other:.1%} less" if own <= other else f"{own / other - 1:.1%} more"


def _key() -> str:
    colours = ((COMPUTE, "computing"), (EXCHANGE, "exchange within a layer"), (MOVING, "moving values to it"))
    return f'<p class="key">{"".join(f"<span style=background:{c}></span>{name}" for c, name in colours)}</p>'


def _timeline(plan: Plan, devices: list[str]) -> Iterator[str]:
    """Yield the picture: a row for each accelerator, a bar for each layer it takes part in, at its time."""
    total = max((part.finish_s or 0.0 for layer in layers(plan) for part in layer.parts), default=0.0) or 1.0
    left = max([LEAST_LEFT, *[LETTER * len(name) + 10 for name in devices]])
    scale = (WIDTH - left - 10) / total
    height = ROW * len(devices) + 30
    yield f'<div class="wide"><svg class="timeline" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="100%" role="img">'
    for row, name in enumerate(devices):
        yield f'<text x="0" y="{ROW * row + 17:.1f}">{esc(name)}</text>'
    for tick in range(TICKS + 1):
        x = left + scale * total * tick / TICKS
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 24:.0f}" stroke="#ddd"/>'
        anchor = "start" if not tick else "end" if tick == TICKS else "middle"
        text = seconds_text(total * tick / TICKS) if tick else "0"
        yield f'<text x="{x:.1f}" y="{height - 6:.0f}" text-anchor="{anchor}">{text}</text>'
    for layer in layers(plan):
        for part in layer.parts:
            yield from _bar(layer, part, left, scale, ROW * devices.index(part.device))
    yield "</svg></div>"


def _bar(layer: Plan, part: Part, left: float, scale: float, y: float) -> Iterator[str]:
    at = max(0.0, (part.finish_s or 0.0) - part.input_s - (part.compute_s or 0.0) - part.output_s)
    for seconds, colour in ((part.input_s, MOVING), (part.compute_s or 0.0, COMPUTE), (part.output_s, EXCHANGE)):
        if seconds:
            label = f"{layer.name} on {part.device}, from {seconds_text(at)}: {layer.why}"
            yield (
                f'<rect x="{left + at * scale:.2f}" y="{y + 3:.1f}" width="{max(seconds * scale, 0.2):.2f}" '
                f'height="{ROW - 6:.1f}" fill="{colour}"><title>{esc(label)}</title></rect>'
            )
        at += seconds


def _mapping(plan: Plan, devices: list[str]) -> Iterator[str]:
    heads = "".join(f"<th>{esc(name)}</th>" for name in devices)
    yield f'<div class="wide"><table class="mapping"><tr><th>layer</th><th>sharding</th><th class="n">time</th>{heads}</tr>'
    for group in plan.children:
        yield f'<tr><th colspan="{3 + len(devices)}">{esc(f"{group.name}: {group.why}")}</th></tr>'
        for layer in group.children:
            shares = {part.device: part.share for part in layer.parts}
            cells = "".join(f'<td class="on">{shares[n]:.1%}</td>' if n in shares else "<td></td>" for n in devices)
            took = seconds_text(layer.seconds or 0.0)
            yield f'<tr><td>{esc(layer.name)}</td><td>{esc(layer.policy)}</td><td class="n">{took}</td>{cells}</tr>'
    yield "</table></div>"
