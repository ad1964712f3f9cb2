"""Diffs of a program after each step of a schedule, as text and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from html import escape
from typing import NamedTuple

CONTEXT_LINES = 3
"""Context lines around a change."""

_STYLE = """
body{margin:0;font:14px/1.45 system-ui,sans-serif;display:flex;height:100vh;color:#1b1f24;background:#fff}
nav{width:22em;overflow:auto;border-right:1px solid #d0d7de;padding:.8em;box-sizing:border-box}
nav h1{font-size:1em;margin:.2em .4em .8em}
nav a{display:flex;justify-content:space-between;padding:.25em .5em;border-radius:5px}
nav a{color:inherit;text-decoration:none}
nav a:hover{background:#f2f4f7}nav a.on{background:#ddeeff}
nav small{color:#59636e;font-variant-numeric:tabular-nums}
main{flex:1;overflow:auto;padding:1em}section{display:none}section.on{display:block}
h2{font-size:1em;margin:.2em 0}
pre{font:12.5px/1.4 ui-monospace,monospace;margin:.6em 0;white-space:pre;tab-size:2}
.script{background:#f6f8fa;padding:.6em;border-radius:5px;overflow:auto}
.add{background:#e3f7e8}.cut{background:#ffebe9}.at{color:#59636e}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}nav{border-color:#30363d}
nav a:hover{background:#161b22}nav a.on{background:#1f3a5f}.script{background:#161b22}
.add{background:#12351f}.cut{background:#4a1b1f}nav small,.at{color:#9198a1}}
"""
_SCRIPT = """
const links=[...document.querySelectorAll('nav a')],parts=[...document.querySelectorAll('section')];
function show(i){links.forEach((l,j)=>l.classList.toggle('on',i==j));
parts.forEach((p,j)=>p.classList.toggle('on',i==j));
links[i].scrollIntoView({block:'nearest'})}
let at=0;links.forEach((l,i)=>l.onclick=e=>{e.preventDefault();show(at=i)});
onkeydown=e=>{if(e.key=='ArrowDown'||e.key=='j')show(at=Math.min(at+1,links.length-1));
if(e.key=='ArrowUp'||e.key=='k')show(at=Math.max(at-1,0))};show(0);
"""


class StepSnapshot(NamedTuple):
    """A program after a step: the name of the step, its script, and the program."""

    name: str
    script: str
    code: str


def diff_lines(before: str, after: str) -> list[str]:
    """Returns the diff of two programs, with a few lines of context."""
    lines = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT_LINES)
    return list(lines)[2:]


def diff_size(lines: Sequence[str]) -> str:
    """Returns the size of a diff: `+12 -3`, or `=` for none."""
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} -{removed}" if added or removed else "="


def page(title: str, stages: Sequence[StepSnapshot]) -> str:
    """Returns a self-contained HTML page: steps on the left, code on the right, arrow keys to navigate."""
    links, parts = [], []
    for i, stage in enumerate(stages):
        lines = diff_lines(stages[i - 1].code, stage.code) if i else [f" {line}" for line in stage.code.splitlines()]
        diff = "\n".join(map(_color_line, lines)) or '<span class="at">nothing changed</span>'
        script = f'<pre class="script">{escape(stage.script)}</pre>' if stage.script else ""
        whole = f"<details><summary>the whole program</summary><pre>{escape(stage.code)}</pre></details>" if i else ""
        links.append(f'<a href="#">{escape(stage.name)}<small>{diff_size(lines) if i else ""}</small></a>')
        parts.append(f"<section><h2>{escape(stage.name)}</h2>{script}<pre>{diff}</pre>{whole}</section>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f"<nav><h1>{escape(title)}</h1>{''.join(links)}</nav><main>{''.join(parts)}</main>"
        f"<script>{_SCRIPT}</script></html>\n"
    )


def _color_line(line: str) -> str:
    kind = {"+": "add", "-": "cut", "@": "at"}.get(line[:1], "")
    return f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line)
