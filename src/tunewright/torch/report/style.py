"""Style and script of the page of a compile report."""

PAGE = """
:root{color-scheme:light dark;--ink:light-dark(#1b1f24,#e4e7ec);--soft:light-dark(#59636e,#9aa4b2)}
:root{--line:light-dark(#d8dee4,#2d323b);--wash:light-dark(#f6f8fa,#22262e);--sheet:light-dark(#fff,#1b1e24)}
body{margin:0;background:var(--sheet);color:var(--ink);font:15px/1.55 system-ui,sans-serif}
main{margin:0 auto;max-width:64em;padding:2.2em 1.5em 5em}h1{font-size:30px;margin:0}
"""
"""Colors, by the names that the dashboard has for them, and width of a standalone page."""

STYLE = """
.journey{
h2{font-size:20px;margin:2.6em 0 .2em}
h2 small{color:var(--soft);font-weight:400}p{max-width:46em;margin:.4em 0 1em}.pale{color:var(--soft)}
code,pre,.mono{font:12.5px/1.5 ui-monospace,monospace}
.river{display:flex;gap:6px;margin:1.6em 0 1em}
.river div{flex:1;background:var(--wash);border-radius:8px;padding:.7em .8em;position:relative}
.river b{display:block;font-size:26px;line-height:1.15}
.river span{color:var(--soft);font-size:13px;display:block;line-height:1.35}
.river div+div:before{content:"\\203A";position:absolute;left:-7px;top:8px;color:var(--soft);font-size:20px}
.time{display:flex;height:34px;border-radius:8px;overflow:hidden;margin:.5em 0}
.time div{color:#fff;font-weight:600;text-align:center;line-height:34px;min-width:2px;overflow:hidden}
.chip{display:inline-block;min-width:1.1em;padding:0 .42em;margin:1px 2px;border-radius:9px;color:#fff}
.chip{font:600 12px/18px system-ui,sans-serif;text-align:center}
.op{display:inline-block;padding:0 .5em;margin:2px;border-radius:5px;border:1.5px solid;background:var(--sheet)}
.op{font:12.5px/20px ui-monospace,monospace}.free{border-color:var(--line);color:var(--soft)}
table{border-collapse:collapse;width:100%}caption{position:absolute;clip-path:inset(50%);white-space:nowrap}
td,th{padding:.3em .7em .3em 0;vertical-align:top;text-align:left;border-top:1px solid var(--line)}
th{color:var(--soft);font-weight:500;border:0;font-size:13px}th.num{text-align:right}
td.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.source{background:var(--wash);border-radius:8px;padding:.6em 1em;overflow:auto}.source table{width:auto}
.source td{border:0;padding:0 .7em 0 0;white-space:pre}
.box{border:2px solid;border-radius:9px;padding:.45em .7em;margin:.45em 0;display:flex;gap:.7em}
.box{align-items:center}.gauges{white-space:nowrap}
.box div{flex:1}.loops{color:var(--soft);font-size:13px;white-space:nowrap}
details{margin:.5em 0;border-left:4px solid var(--line);padding-left:.8em}summary{cursor:pointer;padding:.2em 0}
.side{display:grid;grid-template-columns:minmax(15em,2fr) 5fr;gap:1em}
.side pre{margin:0;max-height:26em;overflow:auto;background:var(--wash);padding:.7em;border-radius:6px}
.gauge{background:var(--line);border-radius:5px;height:12px;width:9em;overflow:hidden}
.gauge{display:inline-block;vertical-align:middle}.gauge div{height:100%}
svg{width:100%;max-width:760px;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg [fill="#fff"]{fill:#fff}.rule{stroke:var(--line)}
.roof{margin-top:1.5em}.roof polyline{fill:none;stroke:var(--soft);stroke-width:1.5}
&.dim .hue{opacity:.18}.hue{transition:opacity .15s}.note{background:var(--wash);padding:.5em .9em;border-radius:6px}
}
"""
"""Style of the report itself, also inside the dashboard."""

SCRIPT = """
const kernel=e=>(e.getAttribute('class').match(/(?:^| )(k\\d+)(?: |$)/)||[])[1];
const all=document.querySelector('.journey');
const hue=[...all.querySelectorAll('[class*="k"]')].filter(kernel);
hue.forEach(e=>{e.classList.add('hue');
e.onmouseenter=()=>{all.classList.add('dim');hue.forEach(o=>o.style.opacity=kernel(o)==kernel(e)?1:'')};
e.onmouseleave=()=>{all.classList.remove('dim');hue.forEach(o=>o.style.opacity='')}});
"""
