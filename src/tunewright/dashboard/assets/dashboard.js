/* The script of all pages. It runs from the head, so that the theme is there before the first paint. */
"use strict";
(() => {
  const root = document.documentElement;
  const redraws = new Set(); // what is drawn in colours that a theme changes
  const drawings = new Map(); // Plotly's, by where they are
  const repaint = () => [...redraws, ...drawings.values()].forEach((again) => again());

  /* -- light and dark --------------------------------------------------------------------------------------------- */
  const THEMES = { auto: "as the system says", light: "light", dark: "dark" };
  let theme = "auto";
  try { theme = localStorage.getItem("tunewright-theme") || "auto"; } catch { /* nothing is kept here */ }
  const dress = () => { if (theme in THEMES && theme !== "auto") root.dataset.theme = theme; else delete root.dataset.theme; };
  dress();

  function themeButton() {
    const button = document.getElementById("theme");
    if (!button) return;
    const say = () => {
      button.textContent = `Theme: ${theme}`;
      button.setAttribute("aria-label", `Theme: ${THEMES[theme] || theme}`);
    };
    say();
    button.addEventListener("click", () => {
      const names = Object.keys(THEMES);
      theme = names[(names.indexOf(theme) + 1) % names.length];
      try { localStorage.setItem("tunewright-theme", theme); } catch { /* as above */ }
      dress();
      say();
      repaint();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  /* -- small tools: elements whose text is text, numbers in words, data, Plotly ------------------------------------- */
  function h(name, attributes, ...inside) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...inside.flat().filter((part) => part !== null && part !== undefined));
    return made;
  }
  const digits = (value) => Number(value.toPrecision(3)).toString();
  function seconds(value) {
    if (value === null || value === undefined) return "failed";
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) if (value >= size) return `${digits(value / size)} ${unit}`;
    return `${digits(value / 1e-9)} ns`;
  }
  const percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)} %` : `${digits(100 * share)} %`);
  const count = (number) => number.toLocaleString("en");
  const middle = (sorted) => (sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null);
  const level = (share) => Math.round(15 * Math.min(Math.max(share, 0), 1));
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // for Plotly
  function resolved(name) { // a colour as it is in this theme
    const probe = h("i", { hidden: true });
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }
  function levels() {
    return Array.from({ length: 16 }, (_, number) => {
      const probe = h("i", { "data-level": number });
      document.body.append(probe);
      const found = getComputedStyle(probe).backgroundColor;
      probe.remove();
      return found;
    });
  }

  const single = () => "single" in document.body.dataset;
  async function load(address) {
    const inside = document.querySelector(`script[data-path="${CSS.escape(address)}"]`);
    if (inside) return checked(JSON.parse(inside.textContent));
    if (single()) throw new Error("This is not in the file; `tunewright report` says how to have more in it.");
    const answer = await fetch(address, { headers: { Accept: "application/json" } });
    return checked(await answer.json());
  }
  function checked(data) {
    if (data.error) throw new Error(data.error);
    return data;
  }

  let plotly = null;
  function plotting() {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    const from = document.body.dataset.plotly;
    if (!from) return Promise.reject(new Error("Charts need Plotly where the page is made: pip install 'tunewright[plot]'"));
    plotly ||= new Promise((done, failed) => {
      document.head.append(h("script", { src: from, onload: () => done(window.Plotly), onerror: () => failed(new Error("Plotly did not load")) }));
    });
    return plotly;
  }
  async function draw(place, make) {
    try {
      const Plotly = await plotting();
      const again = () => {
        const [traces, layout] = make();
        const ink = resolved("--soft"), line = resolved("--line");
        const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
        const whole = {
          paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, size: 11, family: "system-ui, sans-serif" },
          margin: { l: 46, r: 8, t: 8, b: 32 }, showlegend: false, hoverlabel: { align: "left" }, ...layout,
          xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
        };
        Plotly.react(place, traces, whole, { displayModeBar: false, responsive: true });
      };
      again();
      drawings.set(place, again);
    } catch (error) {
      place.replaceChildren(h("p", { class: "empty" }, error.message));
    }
  }

  const tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
  function hint(event, text) {
    tip.textContent = text;
    tip.hidden = !text;
    if (!text) return;
    const { x, y } = event.type === "focus" ? event.target.getBoundingClientRect() : { x: event.clientX, y: event.clientY };
    tip.style.left = `${Math.min(x + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(y + 16, innerHeight - tip.offsetHeight - 8)}px`;
  }
  let chosen = 0;
  function choose(label, options, value, changed) {
    const id = `choice-${++chosen}`;
    const list = h("select", { id, onchange: (event) => changed(event.target.value) }, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
    return h("div", {}, h("label", { for: id }, label), list);
  }
  function canvas(label) {
    const made = h("canvas", { role: "img", "aria-label": label });
    made.pen = () => { // a pen in CSS pixels, on paper as fine as the screen
      const { width, height } = made.getBoundingClientRect();
      made.width = width * devicePixelRatio;
      made.height = height * devicePixelRatio;
      const pen = made.getContext("2d");
      pen.scale(devicePixelRatio, devicePixelRatio);
      pen.font = "11px system-ui, sans-serif";
      return [pen, width, height];
    };
    return made;
  }

  /* -- a space in columns ------------------------------------------------------------------------------------------- */
  class Space {
    constructor(data) {
      this.data = data;
      this.knobs = data.knobs;
      this.size = data.seconds.length;
      this.best = data.best;
    }
    rows(fixed) {
      const found = [];
      for (let row = 0; row < this.size; row++) {
        let fits = true;
        for (const [knob, code] of fixed) if (this.data.codes[knob][row] !== code) { fits = false; break; }
        if (fits) found.push(row);
      }
      return found;
    }
    share(row) { return this.data.seconds[row] === null ? 0 : this.best / this.data.seconds[row]; }
    said(row) {
      return this.knobs.map((knob, k) => [knob, this.data.codes[k][row]]).filter(([knob, code]) => code >= 0 && knob.values.length > 1)
        .map(([knob, code]) => `${knob.name}=${knob.values[code]}`).join(" ");
    }
    outcome(row) {
      const took = this.data.seconds[row];
      return took === null ? this.data.reasons[this.data.failed[row]] : `${seconds(took)}, ${percent(this.share(row))} of the best`;
    }
    cells(x, y, rows) { // by the values of two knobs: the best row, how many there are and how many failed
      const cells = new Map();
      for (const row of rows) {
        const a = this.data.codes[x][row], b = this.data.codes[y][row];
        if (a < 0 || b < 0) continue;
        const key = `${a},${b}`;
        let cell = cells.get(key);
        if (!cell) cells.set(key, cell = { best: null, rows: 0, failed: 0, why: null });
        cell.rows++;
        const took = this.data.seconds[row];
        if (took === null) { cell.failed++; cell.why ??= row; } else if (cell.best === null || took < this.data.seconds[cell.best]) cell.best = row;
      }
      return cells;
    }
    slice(knob, rows) { // by the values of one knob: the best and the median
      const times = this.knobs[knob].values.map(() => []);
      for (const row of rows) {
        const code = this.data.codes[knob][row], took = this.data.seconds[row];
        if (code >= 0 && took !== null) times[code].push(took);
      }
      times.forEach((some) => some.sort((a, b) => a - b));
      return { best: times.map((some) => some[0] ?? null), middle: times.map(middle) };
    }
    telling() { // the knobs by how much their values differ
      const every = this.rows(new Map());
      const spread = (knob) => {
        const known = this.slice(knob, every).middle.filter((one) => one !== null);
        return known.length > 1 ? Math.max(...known) / Math.min(...known) : 0;
      };
      return this.knobs.map((_, k) => [spread(k), k]).sort((a, b) => b[0] - a[0]).map(([, k]) => k);
    }
  }

  /* -- the explorer -------------------------------------------------------------------------------------------------- */
  async function explorer(place) {
    let space = new Space(await load(place.dataset.from));
    const varied = space.telling().filter((k) => space.knobs[k].values.length > 1);
    if (varied.length < 2) {
      place.replaceChildren(h("p", { class: "empty" }, "Fewer than two knobs were varied here; there is no heat map to draw."));
      return;
    }
    const state = { x: varied[0], y: varied[1], fixed: new Map(), says: "share", cell: null, brushes: new Map() };
    for (const [name, value] of Object.entries(space.data.fixed)) { // as the address says
      const knob = space.knobs.findIndex((one) => one.name === name);
      const code = knob < 0 ? -1 : space.knobs[knob].values.findIndex((one) => String(one) === value);
      if (code >= 0) state.fixed.set(knob, code);
    }
    [state.x, state.y] = [...varied.filter((k) => !state.fixed.has(k)), ...varied];
    const controls = h("div", { class: "controls", role: "group", "aria-label": "What the heat map shows" });
    const summary = h("p", { class: "about", role: "status" }), grid = h("div", { class: "grid heat scroll" });
    const side = h("div", { class: "side", "aria-live": "polite" });
    const legend = h("p", { class: "legend" }, "0 %", h("span", { "aria-hidden": "true" }, Array.from({ length: 16 }, (_, n) => h("i", { "data-level": n }))), "100 % of the best speed · ★ what was decided · hatched: all failed");
    const slices = h("div", { class: "charts slices" }), rare = h("div", { class: "plot" });
    const parallel = h("div", { class: "wide parallel" });
    place.replaceChildren(controls, summary, h("div", { class: "two" }, h("div", {}, grid, legend), side),
      h("h2", {}, "Slices"), h("p", { class: "about" }, "Best (solid) and median (dotted) time for each value of a knob, among the configs above."), slices,
      h("h2", {}, "Parallel coordinates"), h("p", { class: "about" }, "A line is a config, bright if fast. Drag along an axis to keep a range, click it to let go; the lists above do the same for one value."), parallel,
      h("h2", {}, "How rare good configs are"), h("div", { class: "wide" }, rare));

    async function fix(knob, code) {
      if (code === null) state.fixed.delete(knob); else state.fixed.set(knob, code);
      if (!space.data.whole && !single()) { // a browser got a part; which one depends on what is fixed
        const asked = [...state.fixed].map(([k, c]) => `&fix.${encodeURIComponent(space.knobs[k].name)}=${encodeURIComponent(space.knobs[k].values[c])}`);
        space = new Space(await load(place.dataset.from.split("&fix.")[0] + asked.join("")));
      }
      state.cell = null;
      show();
    }
    function axes(x, y) {
      if (x === y) [x, y] = [state.y, state.x];
      [state.x, state.y, state.cell] = [x, y, null];
      state.fixed.delete(x);
      state.fixed.delete(y);
      show();
    }
    function control() {
      const named = varied.map((k) => [k, space.knobs[k].name]);
      controls.replaceChildren(
        choose("Across", named, state.x, (value) => axes(Number(value), state.y)),
        choose("Down", named, state.y, (value) => axes(state.x, Number(value))),
        choose("Cells say", [["share", "share of the best"], ["time", "time"]], state.says, (value) => { state.says = value; show(); }),
        ...varied.filter((k) => k !== state.x && k !== state.y).map((k) => {
          const options = [["", "best of all"], ...space.knobs[k].values.map((value, code) => [code, `= ${value}`])];
          const made = choose(space.knobs[k].name, options, state.fixed.get(k) ?? "", (value) => fix(k, value === "" ? null : Number(value)));
          if (state.fixed.has(k)) made.lastChild.classList.add("set");
          return made;
        }),
        h("button", { type: "button", onclick: () => { state.fixed.clear(); state.brushes.clear(); fix(state.x, null); } }, "Let all go"));
    }
    function heat(rows) {
      const { x, y } = state, cells = space.cells(x, y, rows), chosen = space.data.chosen;
      const head = h("tr", {}, h("th", { scope: "col" }, `${space.knobs[y].name} \\ ${space.knobs[x].name}`), space.knobs[x].values.map((value) => h("th", { scope: "col" }, String(value))));
      const lines = space.knobs[y].values.map((value, b) => h("tr", {}, h("th", { scope: "row" }, String(value)), space.knobs[x].values.map((_, a) => cell(a, b))));
      function cell(a, b) {
        const found = cells.get(`${a},${b}`);
        if (!found) return h("td", { class: "none" }, "");
        const row = found.best ?? found.why, where = `${space.knobs[x].name}=${space.knobs[x].values[a]} ${space.knobs[y].name}=${space.knobs[y].values[b]}`;
        const text = found.best === null ? "failed" : state.says === "share" ? percent(space.share(row)) : seconds(space.data.seconds[row]);
        const hover = `${space.said(row)}\n${space.outcome(row)}\n${count(found.rows)} configs here, ${count(found.failed)} failed`;
        const kind = [found.best === null ? "failed" : "", chosen && chosen[x] === a && chosen[y] === b ? "chosen" : "", state.cell === `${a},${b}` ? "on" : ""].join(" ").trim();
        const button = h("button", { type: "button", "data-cell": `${a},${b}`, "aria-label": `${where}: ${text}`, "aria-pressed": String(state.cell === `${a},${b}`), onclick: () => { state.cell = `${a},${b}`; show(`${a},${b}`); },
          onmousemove: (event) => hint(event, hover), onmouseleave: (event) => hint(event, ""), onfocus: (event) => hint(event, hover), onblur: (event) => hint(event, "") }, text);
        return h("td", { class: kind || null, "data-level": found.best === null ? null : level(space.share(row)) }, button);
      }
      grid.replaceChildren(h("table", {}, h("caption", {}, `Best of ${space.knobs[x].name} by ${space.knobs[y].name}`), h("thead", {}, head), h("tbody", {}, lines)));
    }
    function beside(rows) {
      const { x, y, cell } = state;
      const here = cell === null ? rows : rows.filter((row) => `${space.data.codes[x][row]},${space.data.codes[y][row]}` === cell);
      const working = here.filter((row) => space.data.seconds[row] !== null).sort((a, b) => space.data.seconds[a] - space.data.seconds[b]);
      const why = new Map();
      here.filter((row) => space.data.seconds[row] === null).forEach((row) => why.set(space.data.reasons[space.data.failed[row]], (why.get(space.data.reasons[space.data.failed[row]]) || 0) + 1));
      const [a, b] = cell === null ? [] : cell.split(",").map(Number);
      const title = cell === null ? "The best of these" : `${space.knobs[x].name}=${space.knobs[x].values[a]}, ${space.knobs[y].name}=${space.knobs[y].values[b]}`;
      const list = h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, ["config", "time", "of best"].map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, working.slice(0, 10).map((row) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, space.said(row))), h("td", { class: "n" }, seconds(space.data.seconds[row])), h("td", { class: "n" }, percent(space.share(row)))))));
      const failures = why.size ? [h("h3", {}, "Why others failed"), h("ul", {}, [...why].sort((p, q) => q[1] - p[1]).slice(0, 8).map(([text, times]) => h("li", {}, `${count(times)} × ${text}`)))] : [];
      const narrow = cell === null ? null : h("button", { type: "button", "data-narrow": "", onclick: () => {
        const others = varied.filter((k) => k !== x && k !== y && !state.fixed.has(k));
        if (others.length < 2) return;
        [state.x, state.y] = others;
        state.fixed.set(x, a);
        fix(y, b);
      } }, "Fix both, and show two other knobs");
      side.replaceChildren(h("h3", {}, title), h("p", { class: "about" }, `${count(here.length)} configs, ${count(here.length - working.length)} failed`), narrow || "", list, ...failures);
    }
    function sliced(rows) {
      varied.forEach((k, place) => {
        const knob = space.knobs[k];
        if (!slices.children[place]) slices.append(h("figure", {}, h("figcaption", {}, knob.name), h("div", { class: "plot" })));
        const plot = slices.children[place].lastChild;
        const found = space.slice(k, rows), x = knob.values.map(plain);
        draw(plot, () => [[
          { x, y: found.middle, mode: "lines+markers", line: { dash: "dot", width: 1.5, color: resolved("--soft") }, hovertemplate: `${plain(knob.name)}=%{x}<br>median %{y:.4s}s<extra></extra>` },
          { x, y: found.best, mode: "lines+markers", line: { width: 2, color: resolved("--accent") }, hovertemplate: `${plain(knob.name)}=%{x}<br>best %{y:.4s}s<extra></extra>` },
        ], { xaxis: { type: "category" }, yaxis: { type: "log", tickformat: ".2s", ticksuffix: "s", nticks: 4 } }]);
      });
    }
    function show(focused) {
      const rows = space.rows(state.fixed), within = space.data.within;
      const part = space.data.whole ? "" : ` ${count(space.size)} of ${count(space.data.configs)} configs are here: the best of each pair of values, and others at random.`;
      const read = space.data.read < space.data.total ? ` The first ${count(space.data.read)} of ${count(space.data.total)} trials were looked at.` : "";
      summary.textContent = `${count(rows.length)} of ${count(space.data.configs)} configs match. The best takes ${seconds(space.best)}; ${count(within["5"])} (${percent(within["5"] / space.data.configs)}) are within 5 % of it.${part}${read}`;
      control();
      heat(rows);
      beside(rows);
      sliced(rows);
      coordinates(parallel, space, varied, rows, state.brushes);
      rarity(rare, space);
      if (focused) grid.querySelector(`[data-cell="${focused}"]`)?.focus();
    }
    show();
  }

  function rarity(place, space) {
    const times = space.data.seconds.filter((one) => one !== null).sort((a, b) => a - b);
    const step = Math.max(1, Math.floor(times.length / 500)), x = [], y = [];
    times.forEach((took, rank) => { if (rank < 50 || rank % step === 0) { x.push(took / space.best); y.push((rank + 1) / times.length); } });
    draw(place, () => [[{ x, y, mode: "lines", line: { width: 2, color: resolved("--accent"), shape: "hv" }, hovertemplate: "%{y:.2%} take at most %{x:.3f} times the best<extra></extra>" }],
      { xaxis: { type: "log", title: { text: "time over the best" }, tickformat: ".3~g" }, yaxis: { type: "log", title: { text: "share of the configs that work" }, tickformat: ".2~%" }, margin: { l: 60, r: 10, t: 8, b: 44 } }]);
  }

  function coordinates(place, space, varied, rows, brushes) {
    const paper = canvas(`Parallel coordinates of ${count(rows.length)} configs over ${varied.length} knobs and time`);
    place.replaceChildren(paper);
    const times = space.data.seconds, slowest = Math.max(...rows.slice(0, 50000).map((row) => times[row] ?? 0), space.best);
    const axes = [...varied.map((k) => ({ k, name: space.knobs[k].name, at: (row) => { const n = space.knobs[k].values.length - 1; return n ? space.data.codes[k][row] / n : 0.5; } })),
      { k: "time", name: "time", at: (row) => (slowest > space.best ? Math.log(times[row] / space.best) / Math.log(slowest / space.best) : 0) }];
    const working = rows.filter((row) => times[row] !== null).sort((a, b) => times[b] - times[a]);
    const step = Math.max(1, Math.floor(working.length / 2000));
    const lines = working.filter((_, place) => place % step === 0 || place > working.length - 500);
    const pad = { x: 50, y: 34 };
    let painting = 0;
    function paint() {
      const [pen, width, height] = paper.pen();
      if (!width) return;
      const left = (n) => pad.x + (n * (width - 2 * pad.x)) / (axes.length - 1), down = (share) => height - pad.y - share * (height - 2 * pad.y);
      const inks = levels(), kept = (row) => axes.every((axis) => { const brush = brushes.get(axis.k); return !brush || (axis.at(row) >= brush[0] && axis.at(row) <= brush[1]); });
      const path = (row) => { pen.beginPath(); axes.forEach((axis, n) => pen.lineTo(left(n), down(axis.at(row)))); pen.stroke(); };
      const shown = lines.filter(kept);
      if (brushes.size) { pen.strokeStyle = resolved("--line"); pen.globalAlpha = 0.25; lines.forEach(path); }
      pen.globalAlpha = 0.5;
      shown.forEach((row) => { pen.strokeStyle = inks[level(space.share(row))]; path(row); });
      pen.globalAlpha = 1;
      pen.textAlign = "center";
      axes.forEach((axis, n) => {
        pen.strokeStyle = resolved("--soft");
        pen.beginPath(); pen.moveTo(left(n), pad.y); pen.lineTo(left(n), height - pad.y); pen.stroke();
        const brush = brushes.get(axis.k);
        if (brush) { pen.fillStyle = resolved("--accent"); pen.globalAlpha = 0.3; pen.fillRect(left(n) - 6, down(brush[1]), 12, down(brush[0]) - down(brush[1])); pen.globalAlpha = 1; }
        pen.fillStyle = resolved("--ink");
        pen.fillText(axis.name.slice(0, 18), left(n), 12);
        pen.fillStyle = resolved("--soft");
        const values = axis.k === "time" ? [seconds(space.best), seconds(slowest)] : [space.knobs[axis.k].values[0], space.knobs[axis.k].values.at(-1)];
        pen.fillText(String(values[0]).slice(0, 14), left(n), height - 8);
        pen.fillText(String(values[1]).slice(0, 14), left(n), pad.y - 6);
      });
      paper.setAttribute("aria-label", `Parallel coordinates: ${count(shown.length)} lines of ${count(working.length)} configs that work`);
    }
    const soon = () => { cancelAnimationFrame(painting); painting = requestAnimationFrame(paint); };
    let began = null;
    const spot = (event) => {
      const box = paper.getBoundingClientRect(), n = Math.round(((event.clientX - box.x - pad.x) / (box.width - 2 * pad.x)) * (axes.length - 1));
      return [axes[Math.min(Math.max(n, 0), axes.length - 1)], Math.min(Math.max((box.height - pad.y - (event.clientY - box.y)) / (box.height - 2 * pad.y), 0), 1)];
    };
    paper.addEventListener("pointerdown", (event) => { began = spot(event); paper.setPointerCapture(event.pointerId); });
    paper.addEventListener("pointermove", (event) => {
      if (!began) return;
      const share = spot(event)[1];
      if (Math.abs(share - began[1]) > 0.02) brushes.set(began[0].k, [Math.min(share, began[1]) - 0.01, Math.max(share, began[1]) + 0.01]);
      soon();
    });
    paper.addEventListener("pointerup", (event) => { if (began && Math.abs(spot(event)[1] - began[1]) <= 0.02) brushes.delete(began[0].k); began = null; soon(); });
    new ResizeObserver(soon).observe(paper);
    if (place.again) redraws.delete(place.again);
    redraws.add(place.again = soon);
  }

  /* -- strategies side by side ---------------------------------------------------------------------------------------- */
  async function searches(place) {
    const space = new Space(await load(place.dataset.journal)), found = await load(place.dataset.from);
    const order = space.telling(), most = Math.max(...found.traces.map((trace) => trace.rows.length));
    const state = { step: most, x: order[0], y: order[1] ?? order[0], timer: null };
    const curves = found.traces.map((trace) => { let best = Infinity; return trace.rows.map((row) => (best = Math.min(best, space.data.seconds[row] ?? Infinity))); });
    const inks = ["--soft", "--warn", "--good", "--accent"];
    const slider = h("input", { type: "range", min: 1, max: most, value: most, "aria-label": "Evaluations", oninput: () => { stop(); state.step = Number(slider.value); show(); } });
    const said = h("output", { "aria-live": "off" }), play = h("button", { type: "button", onclick: () => (state.timer ? stop() : start()) }, "Play");
    const plot = h("div", { class: "plot" }), charts = h("div", { class: "charts" }), controls = h("div", { class: "controls" });
    const cards = found.traces.map((trace) => {
      const paper = canvas(trace.name), figure = h("p", { class: "figure" }), text = h("p", { class: "about" });
      return { trace, paper, figure, text, box: h("figure", {}, h("figcaption", {}, h("strong", {}, trace.name)), figure, paper, text) };
    });
    charts.append(...cards.map((card) => card.box));
    place.replaceChildren(h("div", { class: "stepper" }, play, slider, said), controls, charts, h("h2", {}, "Best so far"), h("div", { class: "wide" }, plot));
    const stop = () => { clearInterval(state.timer); state.timer = null; play.textContent = "Play"; };
    const start = () => {
      if (state.step >= most) state.step = 0;
      play.textContent = "Pause";
      state.timer = setInterval(() => { state.step++; slider.value = state.step; show(); if (state.step >= most) stop(); }, 120);
    };
    const cells = () => space.cells(state.x, state.y, space.rows(new Map()));
    function paint(card, background) {
      const [pen, width, height] = card.paper.pen(), across = space.knobs[state.x].values.length, downs = space.knobs[state.y].values.length;
      if (!width) return;
      const wide = width / across, tall = height / downs, colours = levels();
      pen.globalAlpha = 0.3;
      for (const [key, cell] of background) {
        const [a, b] = key.split(",").map(Number);
        pen.fillStyle = cell.best === null ? resolved("--line") : colours[level(space.share(cell.best))];
        pen.fillRect(a * wide, b * tall, wide + 0.5, tall + 0.5);
      }
      pen.globalAlpha = 1;
      let best = null;
      card.trace.rows.slice(0, state.step).forEach((row, n) => {
        const a = space.data.codes[state.x][row], b = space.data.codes[state.y][row];
        const px = (a + 0.2 + 0.6 * ((n * 0.618) % 1)) * wide, py = (b + 0.2 + 0.6 * ((n * 0.755) % 1)) * tall;
        pen.fillStyle = space.data.seconds[row] === null ? resolved("--bad") : colours[level(space.share(row))];
        pen.strokeStyle = resolved("--ink");
        pen.lineWidth = 0.7;
        pen.beginPath(); pen.arc(px, py, 3.6, 0, 7); pen.fill(); pen.stroke();
        if (space.data.seconds[row] !== null && (best === null || space.data.seconds[row] < best[2])) best = [px, py, space.data.seconds[row]];
      });
      if (best) { pen.lineWidth = 2; pen.strokeStyle = resolved("--ink"); pen.beginPath(); pen.arc(best[0], best[1], 8, 0, 7); pen.stroke(); }
    }
    function show() {
      said.textContent = `${state.step} of ${most} evaluations`;
      slider.setAttribute("aria-valuetext", said.textContent);
      const background = cells();
      cards.forEach((card, n) => {
        const step = Math.min(state.step, card.trace.rows.length), best = step ? curves[n][step - 1] : Infinity;
        const tried = card.trace.rows.slice(0, step), failed = tried.filter((row) => space.data.seconds[row] === null).length;
        card.figure.textContent = Number.isFinite(best) ? `${percent(space.best / best)} of the best` : "nothing works yet";
        card.text.textContent = `${Number.isFinite(best) ? seconds(best) : "-"} after ${step}; ${failed} failed`;
        card.paper.setAttribute("aria-label", `${card.trace.name}: ${card.text.textContent}`);
        paint(card, background);
      });
      draw(plot, () => [found.traces.map((trace, n) => ({ x: trace.rows.map((_, i) => i + 1), y: curves[n].map((best) => (Number.isFinite(best) ? space.best / best : null)), name: trace.name, mode: "lines", line: { shape: "hv", width: 2, color: resolved(inks[n % 4]), dash: ["dot", "dash", "dashdot", "solid"][n % 4] }, hovertemplate: `${plain(trace.name)}: %{y:.1%} after %{x}<extra></extra>` })),
        { showlegend: true, legend: { orientation: "h", y: 1.12 }, xaxis: { title: { text: "evaluations" } }, yaxis: { title: { text: "share of the best speed" }, tickformat: ".0%" }, margin: { l: 60, r: 10, t: 30, b: 44 },
          shapes: [{ type: "line", x0: state.step, x1: state.step, yref: "paper", y0: 0, y1: 1, line: { color: resolved("--soft"), width: 1 } }] }]);
    }
    const named = order.map((k) => [k, space.knobs[k].name]);
    controls.append(choose("Across", named, state.x, (value) => { state.x = Number(value); show(); }), choose("Down", named, state.y, (value) => { state.y = Number(value); show(); }),
      h("p", { class: "about" }, "Cells are as bright as their best config; dots are what was tried, the ring the best so far."));
    redraws.add(show);
    new ResizeObserver(show).observe(charts);
    show();
  }

  /* -- a race ---------------------------------------------------------------------------------------------------------- */
  async function race(place) {
    const data = JSON.parse(place.querySelector("script").textContent);
    const rounds = h("div", { class: "plot tall" }), ends = h("div", { class: "plot tall" });
    place.replaceChildren(h("div", { class: "two" }, h("div", { class: "wide" }, h("figcaption", {}, "Round by round: time over the leader's (dots), its centre so far (lines); × left the race"), rounds),
      h("div", { class: "wide" }, h("figcaption", {}, "At the end, with intervals; differences within the band are too small to matter"), ends)));
    const marks = { tickvals: data.marks, ticktext: data.labels, zeroline: false };
    const ink = (track) => resolved(track.leads ? "--ink" : track.left === null ? "--accent" : "--warn");
    const band = (along) => ({ type: "rect", layer: "below", line: { width: 0 }, fillcolor: resolved("--accent"), opacity: 0.12, ...(along === "y" ? { xref: "paper", x0: 0, x1: 1, y0: data.band[0], y1: data.band[1] } : { yref: "paper", y0: 0, y1: 1, x0: data.band[0], x1: data.band[1] }) });
    draw(rounds, () => [data.tracks.flatMap((track) => {
      const hovertemplate = `${plain(track.name)}<br>${plain(track.said)}<br>round %{x}<extra></extra>`;
      const line = { x: track.rounds, y: track.centres, mode: "lines", line: { color: ink(track), width: track.leads ? 3 : 1.6 }, hovertemplate };
      const dots = { x: track.rounds, y: track.ratios, mode: "markers", marker: { color: ink(track), size: 4, opacity: 0.35 }, hovertemplate };
      const gone = track.left === null ? [] : [{ x: track.rounds.slice(-1), y: track.centres.slice(-1), mode: "markers", marker: { symbol: "x", size: 8, color: ink(track) }, hovertemplate }];
      return track.leads ? [line] : [dots, line, ...gone];
    }), { xaxis: { type: "log", title: { text: "round" }, tickvals: [1, 2, 3, 4, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1000], ticktext: ["1", "2", "3", "4", "6", "10", "15", "20", "30", "50", "100", "200", "500", "1000"] }, yaxis: marks, shapes: [band("y")], margin: { l: 60, r: 10, t: 10, b: 44 } }]);
    draw(ends, () => [data.tracks.map((track, n) => ({ x: [track.end], y: [n + 1], mode: "markers", marker: { color: ink(track), size: 9, symbol: track.bounds ? "circle" : "circle-open" },
      error_x: track.bounds ? { type: "data", symmetric: false, array: [track.bounds[1] - track.end], arrayminus: [track.end - track.bounds[0]], width: 0, color: ink(track) } : undefined, hovertemplate: `${plain(track.name)}<br>${plain(track.said)}<extra></extra>` })),
    { xaxis: marks, yaxis: { range: [data.tracks.length + 0.6, 0.4], title: { text: "place" }, dtick: data.tracks.length > 20 ? 5 : 1, zeroline: false }, shapes: [band("x")], margin: { l: 50, r: 10, t: 10, b: 44 } }]);
  }

  /* -- steps of a schedule ----------------------------------------------------------------------------------------------- */
  function steps(place) {
    const buttons = [...place.querySelectorAll("button[data-step]")], sheets = [...place.querySelectorAll("section[data-step]")];
    let at = 0;
    const show = (number) => {
      at = Math.min(Math.max(number, 0), buttons.length - 1);
      buttons.forEach((button, n) => (n === at ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current")));
      sheets.forEach((sheet, n) => { sheet.hidden = n !== at; });
      buttons[at].scrollIntoView({ block: "nearest" });
    };
    buttons.forEach((button, n) => button.addEventListener("click", () => show(n)));
    document.addEventListener("keydown", (event) => {
      if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || !place.offsetParent) return;
      if (event.key === "j") show(at + 1);
      if (event.key === "k") show(at - 1);
    });
    show(0);
  }

  /* -- the journey of a model: whatever belongs to the kernel one points at ------------------------------------------ */
  function journey(place) {
    const kernel = (one) => (one.getAttribute("class").match(/(?:^| )(k\d+)(?: |$)/) || [])[1];
    const coloured = [...place.querySelectorAll('[class*="k"]')].filter(kernel);
    for (const one of coloured) {
      one.classList.add("hue");
      one.addEventListener("mouseenter", () => {
        place.classList.add("dim");
        coloured.forEach((other) => { other.style.opacity = kernel(other) === kernel(one) ? 1 : ""; });
      });
      one.addEventListener("mouseleave", () => {
        place.classList.remove("dim");
        coloured.forEach((other) => { other.style.opacity = ""; });
      });
    }
  }

  /* -- what happens now ------------------------------------------------------------------------------------------------- */
  function live(place) {
    const list = h("ol", {}), most = 50, events = new EventSource(place.dataset.events);
    for (const name of ["started", "tried", "decided", "missed"]) {
      events.addEventListener(name, (message) => {
        const told = JSON.parse(message.data);
        if (!list.isConnected) place.replaceChildren(list);
        list.prepend(h("li", {}, h("time", {}, new Date().toLocaleTimeString("en-GB")), " ", h("strong", {}, name), ` ${told.kernel || ""} `, told.config ? h("code", {}, told.config) : "", ` ${told.said || (told.seconds ? seconds(told.seconds) : "")}`));
        while (list.children.length > most) list.lastChild.remove();
      });
    }
  }

  /* -- start ----------------------------------------------------------------------------------------------------------------- */
  const KINDS = { explorer, searches, race, steps, journey, live };
  function enliven(part) {
    for (const place of part.querySelectorAll("[data-kind]")) {
      if (place.dataset.alive) continue;
      place.dataset.alive = "yes";
      Promise.resolve().then(() => KINDS[place.dataset.kind](place)).then(() => { place.dataset.alive = "done"; }, (error) => {
        place.dataset.alive = "failed";
        place.replaceChildren(h("p", { class: "empty" }, error.message));
      });
    }
  }
  function route() { // in one file, the part that the address names is shown
    const asked = location.hash.slice(1) || "/", parts = [...document.querySelectorAll("section[data-path]")];
    const found = parts.find((part) => part.dataset.path === asked);
    parts.forEach((part) => { part.hidden = part !== found; });
    let lost = document.getElementById("lost");
    if (!lost) document.querySelector("footer").before(lost = h("main", { id: "lost" }, h("h1", {}, "Not in this file"), h("p", { class: "empty" }, "A report holds the largest journals and the first kernels; `tunewright report --help` says how to have more, and `tunewright service run` shows all.")));
    lost.hidden = Boolean(found);
    const room = asked.split("?")[0];
    document.querySelectorAll("header nav a").forEach((way) => (way.getAttribute("href") === `#${room}` ? way.setAttribute("aria-current", "page") : way.removeAttribute("aria-current")));
    if (!found) return;
    document.title = `${found.querySelector("h1").textContent} · Tunewright`;
    scrollTo(0, 0);
    enliven(found);
  }
  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(tip);
    themeButton();
    if (single()) { addEventListener("hashchange", route); route(); } else enliven(document);
  });
})();
