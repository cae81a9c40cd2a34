"""The task, command and instruction graph of a run: as Graphviz text, as SVG, and as one page with tabs.

Before: observe/trace.py, observe/pictures/nodes.py, observe/pictures/layout.py.  After: cli/trace.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..trace import Trace
from .layout import GraphLayout, layered
from .nodes import LEVELS, Arrow, Graph, Node, graph
from .svg import colours, count_text, document, esc, fit, seconds_text, text_width

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--ink:#1f2328;--dim:#656d76;--line:#d0d7de;--on:#0969da}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--ink:#e6edf3;--dim:#8d96a0;--line:#30363d;--on:#4493f8}}
*{box-sizing:border-box}html,body{height:100%}
body{margin:0;display:flex;flex-direction:column;background:var(--bg);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
header{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center;padding:10px 20px;border-bottom:1px solid var(--line)}
h1{font-size:16px;margin:0}header p{margin:0;color:var(--dim)}
nav{display:flex;gap:4px;margin-left:auto}
button{font:inherit;color:inherit;background:none;border:1px solid transparent;border-radius:6px;padding:3px 12px;cursor:pointer}
button:hover{border-color:var(--line)}button[aria-selected=true]{border-color:var(--on);color:var(--on);font-weight:600}
main{flex:1;overflow:auto;padding:12px}main>div[hidden]{display:none}main svg{display:block;margin:0 auto}
"""

_SCRIPT = """
const tabs=[...document.querySelectorAll('[role=tab]')],panes=[...document.querySelectorAll('[role=tabpanel]')];
function show(id){tabs.forEach(t=>t.setAttribute('aria-selected',t.dataset.tab===id));
panes.forEach(p=>p.hidden=p.id!==id);}
tabs.forEach(t=>t.onclick=()=>{show(t.dataset.tab);history.replaceState(null,'','#'+t.dataset.tab);});
let scale=1;const zoom=f=>{scale=f?Math.min(4,Math.max(.1,scale*f)):1;document.querySelectorAll('main svg').forEach(s=>{
const [,,w,h]=s.getAttribute('viewBox').split(' ').map(Number);s.setAttribute('width',w*scale);s.setAttribute('height',h*scale);});};
document.querySelectorAll('[data-zoom]').forEach(b=>b.onclick=()=>zoom(Number(b.dataset.zoom)));
document.querySelector('main').addEventListener('wheel',e=>{if(e.ctrlKey){e.preventDefault();zoom(e.deltaY<0?1.15:1/1.15);}},
{passive:false});
show(panes.some(p=>p.id===location.hash.slice(1))?location.hash.slice(1):panes[0].id);
"""


class Tab(NamedTuple):
    """One picture of a page."""

    id: str
    label: str
    svg: str


def tabbed_page(title: str, subtitle: str, tabs: Sequence[Tab]) -> str:
    """Return one self-contained HTML page that shows one of several pictures at a time."""
    buttons = "".join(
        f'<button role="tab" data-tab="{tab.id}" aria-selected="{str(tab is tabs[0]).lower()}" '
        f'aria-controls="{tab.id}">{esc(tab.label)}</button>'
        for tab in tabs
    )
    panes = "".join(
        f'<div role="tabpanel" id="{tab.id}"{"" if tab is tabs[0] else " hidden"}>{tab.svg}</div>' for tab in tabs
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{esc(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<header><h1>{esc(title)}</h1><p>{esc(subtitle)}</p>"
        f'<nav role="tablist">{buttons}</nav><div><button data-zoom="0.8" aria-label="smaller">&minus;</button>'
        '<button data-zoom="0" aria-label="original size">1:1</button>'
        '<button data-zoom="1.25" aria-label="larger">+</button></div></header>'
        f"<main>{panes}</main><script>{_SCRIPT}</script></body></html>\n"
    )


MOST = 400
"""A picture shows at most so many nodes; Graphviz text has them all."""
_ROW, _FONT = 40.0, 11.0


def graph_dot(trace: Trace, level: str) -> str:
    """Return the whole graph of a level as Graphviz text, clustered by device."""
    nodes, arrows = graph(trace, level)
    colour = colours(device for node in nodes for device in node.devices)
    names = {node.id: node.name for node in nodes}
    clusters: dict[str, list[str]] = {}
    for node in nodes:
        fill = colour[node.devices[0]] if node.devices else "#8c959f"
        text = _dot(f"{node.name} {node.label}", node.detail)
        place = ", ".join(node.devices)
        clusters.setdefault(place, []).append(f'{node.name} [label="{text}", color="{fill}"];')
    lines = [f"digraph {level}s {{", "  rankdir=TB; node [shape=box, style=rounded, fontname=Helvetica, fontsize=10];"]
    for number, (place, texts) in enumerate(sorted(clusters.items())):
        if place:
            lines.append(f'  subgraph cluster_{number} {{ label="{_dot(place)}"; color="#d0d7de"; fontname=Helvetica;')
            lines += [f"    {text}" for text in texts]
            lines.append("  }")
        else:
            lines += [f"  {text}" for text in texts]
    for a, b, solid in arrows:
        lines.append(f"  {names[a]} -> {names[b]}{'' if solid else ' [style=dashed]'};")
    return "\n".join([*lines, "}", ""])


def _dot(*lines: str) -> str:
    """Return lines as the inside of a Graphviz string."""
    texts = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines if line)
    return "\\n".join(texts)


def graph_svg(trace: Trace, level: str, most: int = MOST) -> str:
    """Return a picture of the graph of a level; only the first `most` nodes, and it says what is missing."""
    whole = graph(trace, level)
    nodes = sorted(whole.nodes, key=lambda node: node.id)[:most]
    shown = {node.id for node in nodes}
    arrows = [arrow for arrow in whole.arrows if arrow.source in shown and arrow.target in shown]
    widths = {node.id: _width(node) for node in nodes}
    plan = layered(widths, [(a.source, a.target) for a in arrows], row=_ROW)
    colour = colours(device for node in nodes for device in node.devices)
    title = f"{count_text(len(whole.nodes), level)}, {count_text(len(whole.arrows), 'dependency')}"
    head, top = _head(title, _left_out(level, whole, Graph(nodes, arrows)), colour, any(not a.solid for a in arrows))
    wide = max(plan.width + 40, 460.0)
    body = [_ARROW.replace("ID", level), *head, f'<g transform="translate({(wide - plan.width) / 2:.1f} {top:g})">']
    body += [_edge(plan, arrow, level) for arrow in arrows if (arrow.source, arrow.target) in plan.edges]
    body += [_box_svg(node, *plan.nodes[node.id], widths[node.id], colour) for node in nodes]
    return document(round(wide), round(top + plan.height + 24), [*body, "</g>"], title)


def _left_out(level: str, whole: Graph, part: Graph) -> str:
    if len(part.nodes) == len(whole.nodes):
        return ""
    first, last = part.nodes[0].name, part.nodes[-1].name
    missing = count_text(len(whole.nodes) - len(part.nodes), level)
    edges = len(whole.arrows) - len(part.arrows)
    return f"Only {first} to {last}: {missing} and {count_text(edges, 'dependency')} are left out. The Graphviz text has all."


_ARROW = (
    '<defs><marker id="tip-ID" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 .6L8 4L0 7.4z"/></marker></defs>'
)


def _width(node: Node) -> float:
    text = max(text_width(f"{node.name} {node.label}", _FONT) + 4, text_width(node.detail, 9.5))
    return min(230.0, max(76.0, text + 24))


def _head(title: str, note: str, colour: dict[str, str], dashed: bool) -> tuple[list[str], float]:
    """Return title, note and legend, and how high they are."""
    parts = [f'<text class="ink" x="20" y="30" font-size="16" font-weight="600">{esc(title)}</text>']
    y = 50.0
    if note:
        parts.append(f'<text class="warn" x="20" y="{y:g}" font-size="11.5">{esc(note)}</text>')
        y += 20
    x = 20.0
    for device, fill in colour.items():
        parts.append(f'<rect x="{x:.1f}" y="{y - 9:g}" width="12" height="10" rx="2" fill="{fill}"/>')
        parts.append(f'<text class="dim" x="{x + 17:.1f}" y="{y:g}" font-size="11">{esc(device)}</text>')
        x += 17 + text_width(device, 11) + 16
    if dashed:
        for label, dash in (("needs", ""), ("after", ' stroke-dasharray="4 3"')):
            parts.append(f'<path class="edge" d="M{x:.1f} {y - 4:g}h20"{dash}/>')
            parts.append(f'<text class="dim" x="{x + 26:.1f}" y="{y:g}" font-size="11">{label}</text>')
            x += 26 + text_width(label, 11) + 16
    return parts, y + 24


def _edge(plan: GraphLayout, arrow: Arrow, level: str) -> str:
    """Return an edge as one smooth curve through its points."""
    points = plan.edges[arrow.source, arrow.target]
    (x, y), *rest = points
    y += _ROW / 2
    path = f"M{x:.1f} {y:.1f}"
    for number, (to_x, middle) in enumerate(rest, start=1):
        last = number == len(rest)
        to_y = middle - (_ROW / 2 + 1 if last else _ROW / 2)
        bend = (y + to_y) / 2
        path += f"C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {to_y:.1f}"
        if not last:
            to_y = middle + _ROW / 2
            path += f"V{to_y:.1f}"
        x, y = to_x, to_y
    dash = "" if arrow.solid else ' stroke-dasharray="4 3"'
    return f'<path class="edge" d="{path}"{dash} marker-end="url(#tip-{level})"/>'


def _box_svg(node: Node, x: float, y: float, width: float, colour: dict[str, str]) -> str:
    """Return a node: a box with a stripe per device, its id and its name."""
    left, top = x - width / 2, y - _ROW / 2
    parts = [f"<g><title>{esc(node.title)}</title>"]
    parts.append(f'<rect class="node" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_ROW:g}" rx="5"/>')
    tall = (_ROW - 8) / max(1, len(node.devices))
    for i, device in enumerate(node.devices):
        place = f'x="{left + 4:.1f}" y="{top + 4 + i * tall:.1f}" width="5" height="{tall:.1f}"'
        parts.append(f'<rect {place} rx="1.5" fill="{colour[device]}"/>')
    label = fit(node.label, width - 26 - text_width(node.name, _FONT), _FONT)
    at = y - 3 if node.detail else y + 4
    parts.append(
        f'<text class="ink" x="{left + 15:.1f}" y="{at:.1f}" font-size="{_FONT:g}">'
        f'<tspan font-weight="600">{esc(node.name)}</tspan> {esc(label)}</text>'
    )
    if node.detail:
        detail = esc(fit(node.detail, width - 20, 9.5))
        parts.append(f'<text class="dim" x="{left + 15:.1f}" y="{y + 12:.1f}" font-size="9.5">{detail}</text>')
    return "".join(parts) + "</g>"


def graph_html(trace: Trace) -> str:
    """Return one self-contained HTML page with the task, command and instruction graph in tabs."""
    name = trace.path.replace("\\", "/").rpartition("/")[2] or "run"
    start, stop = trace.window
    counts = {"task": len(trace.tasks), "command": len(trace.commands), "instruction": len(trace.instructions)}
    tabs = [Tab(level, f"{level.capitalize()}s {counts[level]:,}", graph_svg(trace, level)) for level in LEVELS]
    return tabbed_page(name, seconds_text(stop - start), tabs)
