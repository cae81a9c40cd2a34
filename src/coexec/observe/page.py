"""One page with several pictures in tabs.

Before: svg.py.  After: graphs.py.  Self-contained: no network, no script from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .svg import esc

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
