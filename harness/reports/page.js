"use strict";
/* Draws the run from the JSON in #run. Every chart shares one time axis, one crosshair, one tooltip. */
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const page = document.getElementById("page"), tip = document.getElementById("tip");
  const NS = "http://www.w3.org/2000/svg";
  const begin = run.from, end = Math.max(run.duration, begin + 0.001);
  const T = run.traffic, faults = run.faults.filter(f => f.skipped === null);
  const isNarrow = () => page.clientWidth < 640;
  const brokerIds = run.brokers.map(b => b.id);
  const brokerColor = id => id < 0 || !brokerIds.includes(id) ? "var(--b8)" : `var(--b${brokerIds.indexOf(id) % 7 + 1})`;

  // ---- small tools
  const el = (tag, attrs = {}, ...kids) => {
    const node = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs)) k === "class" ? node.className = v : node.setAttribute(k, v);
    node.append(...kids.filter(k => k !== null && k !== undefined));
    return node;
  };
  const s = (tag, attrs = {}, text) => {
    const node = document.createElementNS(NS, tag);
    for (const [k, v] of Object.entries(attrs)) node.setAttribute(k, v);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const count = n => n === null || n === undefined ? "–" : Number(n).toLocaleString("en-US");
  const short = n => n >= 1e6 ? +(n / 1e6).toPrecision(3) + "M" : n >= 1e3 ? +(n / 1e3).toPrecision(3) + "k" : String(+(+n).toPrecision(3));
  const ms = (v, digits = 3) => v === null || v === undefined ? "–" : v >= 1000 ? +(v / 1000).toPrecision(digits) + " s" : +v.toPrecision(digits) + " ms";
  const sec = t => (t < 100 ? t.toFixed(2) : t.toFixed(1)) + " s";
  const cap = w => w.charAt(0).toUpperCase() + w.slice(1);
  const at = (rows, t) => { let found = null; for (const r of rows) { if (r.t > t) break; found = r; } return found; };
  const spanAt = (rows, t) => rows.findLast(r => r.s <= t && t < r.e) || null;
  const niceStep = raw => { const p = 10 ** Math.floor(Math.log10(raw)); return [1, 2, 5, 10].map(k => k * p).find(k => k >= raw - 1e-12); };

  // ---- words: each has a sentence below, and shows it where it is used
  const WORDS = new Map(run.words);
  const anchor = w => "word-" + w.replace(/[^A-Za-z0-9]+/g, "-");
  function word(name, label = name) {
    if (!WORDS.has(name)) return label;
    const link = el("a", { class: "word", href: "#" + anchor(name), title: WORDS.get(name) }, label);
    link.addEventListener("click", () => { sheet.close(); document.getElementById("words").open = true; });
    return link;
  }
  // The text of a kind ends with its name in brackets, which is the link.
  function kindText(k) {
    const tail = `(${k.name})`;
    return k.text.endsWith(tail) ? [k.text.slice(0, -tail.length) + "(", word(k.name), ")"] : [k.text];
  }
  function wordList() {
    if (!run.words.length) return;
    const box = card("Words on this page");
    const list = el("dl", {}, ...run.words.flatMap(([name, text]) => [el("dt", { id: anchor(name) }, name), el("dd", {}, text)]));
    box.append(el("details", { id: "words" }, el("summary", {}, `${run.words.length} words, each in a sentence`), list));
  }

  // ---- head
  const V = run.verdict, status = V ? V.status : "unknown";
  const ICON = {
    valid: "M3 8.5l3.2 3.2L13 5", invalid: "M4 4l8 8M12 4l-8 8", unknown: "M5.6 6a2.4 2.4 0 1 1 3.5 2.2c-.7.4-1.1.8-1.1 1.6M8 12.4v.1",
  };
  function head() {
    const icon = s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" });
    icon.append(s("path", { d: ICON[status] || ICON.unknown, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" }));
    const named = V && V.guarantees.length ? V.guarantees.flatMap((g, k) => k ? [", ", word(g)] : [word(g)]) : ["no guarantee named"];
    const promise = V ? [...named, V.guarantee_reason ? ` (${V.guarantee_reason})` : ""] : ["No verdict was written for this run."];
    page.append(el("div", { class: "head" },
      el("div", {}, el("div", { class: "brand" }, "Harrow run"), el("h1", {}, run.title), ...run.planted.map((bug) => el("p", { class: "planted" }, `PLANTED BUG ${bug}`)), el("p", { class: "promise" }, ...promise)),
      el("div", { class: `badge ${status}` }, icon, V ? status.toUpperCase() : "NOT JUDGED")));
    const C = run.counts, worst = V && V.kinds.length ? V.kinds[0] : null, others = V ? V.kinds.length - 1 : 0;
    const tiles = [
      [word("acknowledged", "Acknowledged"), count(C.acknowledged)],
      [word("delivered", "Delivered"), count(C.delivered)],
      [word("unacknowledged", "Unacknowledged"), count(C.unacknowledged)],
      [word("anomaly", "Anomalies"), worst ? count(worst.count) : V ? "0" : "–", worst ? worst.name + (others ? `, +${others} kind${others > 1 ? "s" : ""}` : "") : ""],
      [word("fault", "Faults"), count(faults.length)],
      [word("election", "Elections"), count(run.elections), run.controller_elections > 1 ? `+${run.controller_elections - 1} controller` : ""],
      [word("p50 and p99", "Latency p50 · p99"), T.p50_all === null ? "–" : `${ms(T.p50_all, 2)} · ${ms(T.p99_all, 2)}`],
      ["Duration", run.empty ? "–" : sec(end)],
    ];
    summary();
    page.append(el("div", { class: "tiles" }, ...tiles.map(([k, v, more]) =>
      el("div", { class: "tile" }, el("div", { class: "k" }, k), el("div", { class: v.length > 12 ? "v long" : "v" }, v, more ? el("small", {}, more) : null)))));
    const line = el("p", { class: "repeat" });
    if (run.seed !== null) line.append("Seed ", el("code", {}, run.seed));
    if (run.security) line.append(" Clients by ", el("code", {}, run.security));
    if (run.command) {
      const copy = el("button", { type: "button" }, "Copy");
      copy.onclick = async () => { try { await navigator.clipboard.writeText(run.command); copy.textContent = "Copied"; } catch { copy.textContent = "Select it by hand"; } };
      line.append(" Repeat with ", el("code", {}, run.command), copy);
    }
    if (line.childNodes.length) page.append(line);
  }

  // What was found, in words: the worst kind first, each with its cause. The operations come below the charts.
  function summary() {
    if (!V || !(V.kinds.length || V.reasons.length)) return;
    const box = el("section", { class: `card found ${status}` });
    const kind = (into, k) => {
      into.append(el("p", { class: k.allowed ? "kind allowed" : "kind" }, ...kindText(k), k.allowed ? el("small", {}, ` allowed by ${V.guarantees.join(", ")}`) : null));
      for (const c of k.causes) into.append(el("p", { class: "cause" }, el("small", {}, "cause: "), c));
    };
    const most = 8, folded = V.kinds.slice(most);
    V.kinds.slice(0, most).forEach(k => kind(box, k));
    if (folded.length) {
      const more = el("details", {}, el("summary", {}, `${folded.length} more kind${folded.length > 1 ? "s" : ""} of anomaly`));
      folded.forEach(k => kind(more, k));
      box.append(more);
    }
    for (const r of V.reasons) box.append(el("p", { class: "kind unknown" }, el("small", {}, "could not be judged: "), r));
    if (V.reasons_hidden) box.append(el("p", { class: "hint" }, `${count(V.reasons_hidden)} more reasons in verdict.json; the page has the first ${V.reasons.length}`));
    page.append(box);
  }
  const CELLS = [["what", "What happened"], ["where", "Where"], ["id", "Record id"], ["key", "Key"], ["value", "Value"], ["client", "Client"], ["more", "More"]];
  function anomalyBox(a) {
    const offsets = a.offsets.length ? ` · offset${a.offsets.length > 1 ? "s" : ""} ${a.offsets.join(", ")}${a.offsets_hidden ? ` and ${count(a.offsets_hidden)} more` : ""}` : "";
    const when = a.t === null ? "" : ` · ${sec(a.t)}`, many = a.records > 1 ? ` · ${count(a.records)} records` : "";
    const item = el("div", { class: "anomaly" }, el("h3", {}, word(a.name), ` in ${a.place}${offsets}${many}${when}`), el("p", {}, a.explanation));
    const cells = CELLS.filter(([k]) => a.operations.some(o => o[k]));
    if (cells.length) item.append(el("div", { class: "scroll" }, el("table", { class: "operations" }, el("tr", {}, ...cells.map(([, title]) => el("th", {}, title))),
      ...a.operations.map(o => el("tr", {}, ...cells.map(([k, title]) => el("td", { class: k === "what" ? "what" : `mono ${k}`, "data-title": o[k] ? title : "" }, o[k])))))));
    if (a.operations_hidden) item.append(el("p", {}, `${count(a.operations_hidden)} more operations in verdict.json`));
    return item;
  }
  function anomalies() {
    if (!V || !(V.anomalies.length || V.notes.length)) return;
    const box = card(V.anomalies.length ? "Anomalies and their operations" : "Notes", V.anomalies.some(a => a.t !== null && (a.place === "cluster" || run.partitions.some(p => p.name === a.place))) ? "the marks on the lanes above open these" : "");
    // One example of each kind; the others are folded, because the summary says what they have in common.
    const seen = new Set(), folded = [];
    for (const a of V.anomalies) { if (seen.has(a.name)) folded.push(a); else { seen.add(a.name); box.append(anomalyBox(a)); } }
    if (folded.length) {
      const more = el("details", {}, el("summary", {}, `${count(folded.length)} more example${folded.length > 1 ? "s" : ""}; this page has at most ${V.anomalies_each} of each kind`));
      more.addEventListener("toggle", () => { if (more.childNodes.length === 1) more.append(...folded.map(anomalyBox)); });
      box.append(more);
    }
    if (V.anomalies_hidden) box.append(el("p", { class: "hint" }, `${count(V.anomalies_hidden)} more examples in verdict.json, which has the first of each kind and partition`));
    if (V.notes.length) box.append(el("details", V.anomalies.length ? {} : { open: "" }, el("summary", {}, `${V.notes.length} note${V.notes.length > 1 ? "s" : ""}`), el("ul", { class: "reasons" }, ...V.notes.map(n => el("li", {}, n)), V.notes_hidden ? el("li", { class: "hint" }, `${count(V.notes_hidden)} more in verdict.json`) : null)));
  }
  // A mark stands for all anomalies of a lane within a few pixels; a click or the return key shows their operations.
  const sheet = el("dialog", { class: "sheet" });
  sheet.addEventListener("click", e => { if (e.target === sheet) sheet.close(); });
  function openSheet(found) {
    leave();
    const close = el("button", { type: "button" }, "Close");
    close.onclick = () => sheet.close();
    sheet.replaceChildren(el("div", { class: "inner" }, el("header", {}, el("h2", {}, found.length > 1 ? `${count(found.length)} anomalies` : "Anomaly"), close), ...found.map(anomalyBox)));
    sheet.showModal();
  }
  const markedAt = place => V ? V.anomalies.filter(a => a.place === place && a.t !== null).sort((a, b) => a.t - b.t) : [];
  const MARKS_H = 20, MARK_APART = 60;  // a mark has its own row, and its number ends before the next mark
  function anomalyMarks(c, place, y) {
    const groups = [];
    for (const a of markedAt(place)) {
      const last = groups.at(-1);
      if (last && c.x(a.t) - c.x(last[0].t) < MARK_APART) last.push(a); else groups.push([a]);
    }
    for (const g of groups) {
      const x = c.x(g[0].t), names = [...new Set(g.map(a => a.name))].join(", ");
      const mark = s("g", { class: "mark", tabindex: 0, role: "button", "aria-label": `${names} in ${place} at ${sec(g[0].t)}` });
      mark.append(s("circle", { cx: x, cy: y, r: 12, fill: "transparent" }), s("path", { d: `M${x} ${y - 8}l8 8l-8 8l-8 -8z` }));
      const left = x + 30 > c.width;
      if (g.length > 1) mark.append(s("text", { x: x + (left ? -11 : 11), y: y + 4, "text-anchor": left ? "end" : "start", class: "num" }, `×${g.length}`));
      mark.append(s("title", {}, `${names}: click to see the operations`));
      mark.addEventListener("click", () => openSheet(g));
      mark.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); openSheet(g); } });
      c.svg.append(mark);
    }
  }

  function card(title, hint, legend) {
    const header = el("header", {}, el("h2", {}, title), hint ? el("span", { class: "hint" }, hint) : null);
    if (legend) header.append(el("span", { class: "legend" }, ...legend.map(([name, color, kind]) =>
      el("span", {}, el("i", { class: kind || "", style: `background:${color}` }), name))));
    const box = el("section", { class: "card" }, header);
    page.append(box);
    return box;
  }

  // ---- charts: one frame for all
  const charts = [];
  function chart(box, height, draw, describe, label) {
    const holder = el("div", { class: "chart" }), svg = s("svg", { role: "img", "aria-label": label });
    holder.append(svg); box.append(holder);
    const one = { svg, height, draw, describe, cross: null };
    charts.push(one);
    const move = e => {
      const box_ = svg.getBoundingClientRect(), t = begin + (e.clientX - box_.left - one.x0) / (one.x1 - one.x0) * (end - begin);
      t < begin || t > end ? leave() : point(one, t, e.clientX, e.clientY, e.clientY - box_.top);
    };
    svg.addEventListener("pointermove", move); svg.addEventListener("pointerdown", move); svg.addEventListener("pointerleave", leave);
  }
  function leave() { tip.hidden = true; for (const c of charts) if (c.cross) c.cross.style.display = "none"; }
  function point(one, t, px, py, y) {
    for (const c of charts) { const x = c.x(t); c.cross.setAttribute("x1", x); c.cross.setAttribute("x2", x); c.cross.style.display = ""; }
    const rows = [...one.describe(t, y, one), ...faults.filter(f => f.s <= t && t <= f.e).map(f => ["var(--fault-edge)", f.label, where(f)])];
    tip.replaceChildren(el("div", { class: "t" }, sec(t)), ...rows.map(([color, name, value]) =>
      el("div", { class: "r" }, el("i", { style: `background:${color || "transparent"}` }), el("span", {}, name), el("b", {}, String(value)))));
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(8, px + 16 + w > innerWidth ? px - w - 16 : px + 16) + "px";
    tip.style.top = Math.max(8, Math.min(py + 14, innerHeight - h - 8)) + "px";
  }
  const where = f => f.nodes.length ? `broker ${f.nodes.join(", ")}` : f.beside || "";
  function layout() {
    const narrow = isNarrow();
    for (const c of charts) {
      const width = c.svg.parentNode.clientWidth, height = typeof c.height === "function" ? c.height(narrow) : c.height;
      c.svg.setAttribute("viewBox", `0 0 ${width} ${height}`); c.svg.style.height = height + "px"; c.svg.replaceChildren();
      c.x0 = narrow ? 40 : 132; c.x1 = width - (narrow ? 4 : 12); c.narrow = narrow; c.width = width; c.h = height;
      c.x = t => c.x0 + Math.min(Math.max((t - begin) / (end - begin), 0), 1) * (c.x1 - c.x0);
      c.draw(c);
      c.cross = s("line", { class: "cross", y1: c.top ?? 0, y2: c.bottom ?? height, style: "display:none" });
      c.svg.append(c.cross);
    }
  }
  function timeAxis(c, y, labels = true) {
    const room = (c.x1 - c.x0) / (c.narrow ? 64 : 90), step = niceStep((end - begin) / Math.max(room, 2)), first = Math.ceil(begin / step - 1e-9);
    for (let k = first; k * step <= end + 1e-9; k++) {
      const x = c.x(k * step);
      c.svg.append(s("line", { x1: x, x2: x, y1: c.top, y2: y, stroke: "var(--line-2)" }));
      if (labels) c.svg.append(s("text", { x, y: y + 15, "text-anchor": x > c.x1 - 14 ? "end" : "middle", class: "num" }, +(k * step).toPrecision(6) + (k === first ? " s" : "")));
    }
    c.svg.append(s("line", { x1: c.x0, x2: c.x1, y1: y, y2: y, stroke: "var(--line)" }));
  }
  function shade(c, y0, y1) {
    for (const f of faults) {
      const x = c.x(f.s), w = Math.max(c.x(f.e) - x, 1.5);
      c.svg.append(s("rect", { x, y: y0, width: w, height: y1 - y0, fill: "var(--fault)" }));
      c.svg.append(s("line", { x1: x, x2: x, y1: y0, y2: y1, stroke: "var(--fault-edge)", "stroke-opacity": .55, "stroke-dasharray": "2 3" }));
    }
  }
  const rows = [];  // fault chips packed into rows
  function packChips(c) {
    rows.length = 0;
    const placed = [], most = c.narrow ? 3 : 5, room = 6;
    for (const f of faults) {
      const brief = c.narrow || faults.length > 16 ? f.kind : f.label;
      const text = brief + (f.nodes.length ? ` → ${f.nodes.join(",")}` : brief === f.kind && f.beside ? ` → ${f.beside}` : "");
      const w = Math.min(text.length * 6.2 + 14, c.x1 - c.x0), x = Math.max(c.x0, Math.min(c.x(f.s), c.x1 - w));
      let row = rows.findIndex(last => last + room <= x);
      if (row < 0) { if (rows.length >= most) { placed.hidden = (placed.hidden || 0) + 1; continue; } row = rows.length; rows.push(0); }
      rows[row] = x + w;
      placed.push({ x, w, row, text });
    }
    return placed;
  }
  function chips(c, placed) {
    if (placed.hidden) {
      const text = s("text", { x: c.x0 - 8, y: 12, "text-anchor": "end", class: "sub" }, c.narrow ? `+${placed.hidden}` : `+${placed.hidden} without name`);
      text.append(s("title", {}, `${placed.hidden} more faults have a band without a name: see the table of faults`));
      c.svg.append(text);
    }
    for (const p of placed) {
      c.svg.append(s("rect", { x: p.x, y: p.row * 20, width: p.w, height: 17, rx: 5, fill: "var(--fault-chip)" }));
      c.svg.append(s("text", { x: p.x + 7, y: p.row * 20 + 12, class: "chip" }, p.text));
    }
  }
  function yAxis(c, ticks, y, format) {
    for (const v of ticks) {
      c.svg.append(s("line", { x1: c.x0, x2: c.x1, y1: y(v), y2: y(v), stroke: "var(--line-2)" }));
      c.svg.append(s("text", { x: c.x0 - 8, y: y(v) + 3.5, "text-anchor": "end", class: "num" }, format(v)));
    }
  }
  function path(c, values, y, attrs, gaps) {
    let d = "", open = false;
    values.forEach((v, k) => {
      if (v === null && gaps) { open = false; return; }
      const x = c.x((k + .5) * T.dt);
      d += `${open ? "L" : "M"}${x.toFixed(1)} ${y(v).toFixed(1)}`; open = true;
    });
    if (d) c.svg.append(s("path", { d, fill: "none", "stroke-width": 1.6, "stroke-linejoin": "round", "stroke-linecap": "round", ...attrs }));
    // A value between two gaps is no line: it is a point.
    if (gaps) values.forEach((v, k) => {
      if (v !== null && (values[k - 1] ?? null) === null && (values[k + 1] ?? null) === null) c.svg.append(s("circle", { cx: c.x((k + .5) * T.dt).toFixed(1), cy: y(v).toFixed(1), r: 2, fill: attrs.stroke }));
    });
  }
  const bucket = t => Math.min(Math.floor(t / T.dt), T.acked.length - 1);

  function throughput() {
    const origin = { tap: "from the brokers' taps", history: "as the clients recorded it", none: "" };
    const source = T.source === "none" ? "" : "records per second, " + origin[T.source] + (T.delivered_source !== T.source && T.delivered_source !== "none" ? `; delivered: ${origin[T.delivered_source]}` : "");
    const box = card("Throughput", source, T.source === "none" ? null : [["acknowledged", "var(--acked)"], ["delivered", "var(--delivered)"], ["failed", "var(--failed)"], ["fault", "var(--fault-edge)", "box"]]);
    if (T.source === "none") { box.append(el("p", { class: "empty" }, "No operations were recorded: neither histories nor taps lie in the run folder.")); }
    if (T.source === "none" && !faults.length) return;
    // A burst after an outage must not flatten everything else: it is cut off and said in figures.
    const busy = [...T.acked, ...T.delivered].filter(v => v > 0).sort((a, b) => a - b);
    const usual = busy.length ? busy[Math.floor(busy.length * .97)] : 1, highest = Math.max(...T.acked, ...T.delivered, ...T.failed, 1);
    const peak = highest > usual * 2.5 ? usual * 1.3 : highest;
    chart(box, narrow => (T.source === "none" ? 60 : narrow ? 220 : 250) + Math.min(faults.length, narrow ? 3 : 5) * 8, c => {
      const placed = packChips(c);
      c.top = rows.length * 20 + 6; c.bottom = c.h - 22;
      shade(c, c.top, c.bottom); timeAxis(c, c.bottom); chips(c, placed);
      if (T.source === "none") return;
      const step = niceStep(peak / 4), most = Math.ceil(peak / step) * step;
      const y = v => c.bottom - Math.min(v / most, 1) * (c.bottom - c.top - 10);
      yAxis(c, Array.from({ length: Math.round(most / step) + 1 }, (_, k) => k * step), y, short);
      const area = T.acked.map((v, k) => `${c.x((k + .5) * T.dt).toFixed(1)} ${y(v).toFixed(1)}`).join("L");
      c.svg.append(s("path", { d: `M${c.x(T.dt / 2)} ${c.bottom}L${area}L${c.x((T.acked.length - .5) * T.dt)} ${c.bottom}Z`, fill: "var(--acked-fill)" }));
      path(c, T.delivered, y, { stroke: "var(--delivered)" });
      path(c, T.acked, y, { stroke: "var(--acked)" });
      let last = -1e9;
      T.acked.forEach((v, k) => {
        const most_ = Math.max(v, T.delivered[k]), x = c.x((k + .5) * T.dt);
        if (most_ <= most) return;
        c.svg.append(s("path", { d: `M${x - 4} ${c.top + 8}l4 -7l4 7z`, fill: v > most ? "var(--acked)" : "var(--delivered)" }));
        if (x - last > 60) { c.svg.append(s("text", { x: x + (x > c.x1 - 50 ? -8 : 8), y: c.top + 8, "text-anchor": x > c.x1 - 50 ? "end" : "start", class: "num" }, short(most_) + "/s")); last = x; }
      });
      T.failed.forEach((v, k) => { if (v > 0) { const x = c.x((k + .5) * T.dt); c.svg.append(s("line", { x1: x, x2: x, y1: c.bottom, y2: Math.min(y(v), c.bottom - 4), stroke: "var(--failed)", "stroke-width": 2 })); } });
    }, t => T.source === "none" ? [] : [["var(--acked)", "acknowledged", short(T.acked[bucket(t)]) + "/s"], ["var(--delivered)", "delivered", short(T.delivered[bucket(t)]) + "/s"],
      ...(T.failed[bucket(t)] ? [["var(--failed)", "failed", short(T.failed[bucket(t)]) + "/s"]] : [])],
    `Records per second over ${sec(end)}, ${faults.length} faults shaded`);
  }

  function latency() {
    const known = [...T.p50, ...T.p99].filter(v => v !== null);
    if (!known.length) return;
    const box = card("Latency", T.source === "tap" ? "request received to response sent, log scale" : "send to acknowledgement, log scale", [["p50", "var(--p50)"], ["p99", "var(--p99)"]]);
    let low = Math.floor(Math.log10(Math.min(...known))), high = Math.ceil(Math.log10(Math.max(...known)));
    if (high === low) high++;
    chart(box, narrow => narrow ? 160 : 180, c => {
      c.top = 6; c.bottom = c.h - 22;
      shade(c, c.top, c.bottom); timeAxis(c, c.bottom);
      const y = v => c.bottom - (Math.log10(v) - low) / (high - low) * (c.bottom - c.top);
      yAxis(c, Array.from({ length: high - low + 1 }, (_, k) => 10 ** (low + k)), y, ms);
      path(c, T.p99, y, { stroke: "var(--p99)" }, true); path(c, T.p50, y, { stroke: "var(--p50)" }, true);
    }, t => [["var(--p50)", "p50", ms(T.p50[bucket(t)])], ["var(--p99)", "p99", ms(T.p99[bucket(t)])]], "Latency quantiles over time");
  }

  // ---- lanes
  function laneLabel(c, y, h, name, sub) {
    if (c.narrow) { c.svg.append(s("text", { x: 0, y: y - 4, class: "lane" }, name + (sub ? ` · ${sub}` : ""))); return; }
    const fits = Math.floor((c.x0 - 14) / 6.6), shown = name.length > fits ? "…" + name.slice(-(fits - 1)) : name;
    const text = s("text", { x: 0, y: y + h / 2 + (sub ? -2 : 4), class: "lane" }, shown);
    text.append(s("title", {}, name)); c.svg.append(text);
    if (sub) c.svg.append(s("text", { x: 0, y: y + h / 2 + 12, class: "sub" }, sub));
  }
  function bar(c, from, to, y, h, fill, text, extra = {}) {
    if (to <= begin) return 0;
    const x = c.x(from), w = Math.max(c.x(to) - x, 1.5);
    c.svg.append(s("rect", { x, y, width: Math.max(w - 1, 1), height: h, rx: Math.min(3, w / 3), fill, ...extra }));
    if (text && w > text.length * 6 + 8) c.svg.append(s("text", { x: x + 6, y: y + h / 2 + 3.8, class: "solid" }, text));
    return w;
  }
  const STATE = { up: "var(--up)", starting: "var(--starting)", dead: "var(--dead)", paused: "var(--paused)", isolated: "var(--isolated)", slow: "var(--slow)" };
  const MARK = { "broker.session-expired": "var(--paused)", "failpoint.fired": "var(--fault-edge)", "task.failed": "var(--failed)", "log.failed": "var(--failed)" };

  function cluster() {
    const used = new Set([...run.brokers, ...run.beside].flatMap(b => b.spans.map(p => p.state)));
    const box = card("Cluster", run.beside.length ? "and what stands beside it" : null, Object.keys(STATE).filter(k => used.has(k)).map(k => [k, STATE[k], "box"]));
    if (!run.brokers.length) box.append(el("p", { class: "empty" }, "No broker left a trace."));
    if (!run.brokers.length && !run.beside.length) return;
    const lanes = run.brokers.length, pitch = narrow => narrow ? 40 : 30;
    const marksH = markedAt("cluster").length ? MARKS_H : 0;
    const besideTop = c => (lanes + 1) * c.step + marksH;
    chart(box, narrow => (lanes + 1 + run.beside.length) * pitch(narrow) + marksH + 34, c => {
      const step = pitch(c.narrow), pad = c.narrow ? 18 : 6, h = 18;
      c.top = 2; c.bottom = c.h - 22; c.step = step;
      shade(c, c.top, c.bottom); timeAxis(c, c.bottom);
      run.brokers.forEach((b, k) => {
        const y = k * step + pad;
        if (!c.narrow) c.svg.append(s("rect", { x: 0, y: y + 4, width: 10, height: 10, rx: 3, fill: brokerColor(b.id) }));
        c.narrow ? laneLabel(c, y, h, `Broker ${b.id}`) : c.svg.append(s("text", { x: 17, y: y + 13, class: "lane" }, `Broker ${b.id}`));
        for (const p of b.spans) {
          const quiet = p.state === "up" || p.state === "starting";
          bar(c, p.s, p.e, p.state === "up" || p.state === "starting" || p.state === "dead" ? y : y + 3, p.state === "paused" || p.state === "isolated" ? h - 6 : h, STATE[p.state], quiet ? "" : p.state);
        }
        for (const m of b.marks) if (MARK[m.kind] && m.t >= begin) c.svg.append(s("circle", { cx: c.x(m.t), cy: y + h / 2, r: 3.5, fill: MARK[m.kind], stroke: "var(--card)", "stroke-width": 1.5 }));
      });
      const y = lanes * step + pad;
      laneLabel(c, y, h, "Controller");
      for (const p of run.controller) bar(c, p.s, p.e, y, h, brokerColor(p.broker), `${p.broker} · epoch ${p.epoch}`);
      anomalyMarks(c, "cluster", y + h + 1 + MARKS_H / 2);
      if (!run.controller.length) c.svg.append(s("text", { x: c.x0 + 4, y: y + 13 }, "no controller election was traced"));
      run.beside.forEach((b, n) => {
        const y = besideTop(c) + n * step + pad;
        laneLabel(c, y, h, b.name, b.kind);
        c.svg.append(s("rect", { x: c.x0, y: y + h / 2 - 2, width: c.x1 - c.x0, height: 4, fill: "var(--line)" }));
        for (const p of b.spans) bar(c, p.s, p.e, y, h, STATE[p.state], p.text);
        for (const m of b.marks) if (m.t >= begin) c.svg.append(s("circle", { cx: c.x(m.t), cy: y + h / 2, r: 3.5, fill: "var(--fault-edge)", stroke: "var(--card)", "stroke-width": 1.5 }));
      });
    }, (t, y, c) => {
      const k = Math.floor(y / c.step), near = (end - begin) / (c.x1 - c.x0) * 6;
      const beside = run.beside[Math.floor((y - besideTop(c)) / c.step)];
      if (beside) {
        const p = spanAt(beside.spans, t);
        return [["", `${beside.kind} ${beside.name}`, p ? p.text : "no fault"], ...beside.marks.filter(m => Math.abs(m.t - t) < near).slice(0, 6).map(m => ["", m.text, sec(m.t)])];
      }
      if (k >= lanes) { const p = spanAt(run.controller, t); return [[p && brokerColor(p.broker), "controller", p ? `broker ${p.broker}, epoch ${p.epoch}` : "nobody"]]; }
      const b = run.brokers[k]; if (!b) return [];
      const p = spanAt(b.spans, t);
      return [[brokerColor(b.id), `broker ${b.id}`, p ? p.state : "not started"], ...b.marks.filter(m => Math.abs(m.t - t) < near).slice(0, 6).map(m => ["", m.text, sec(m.t)])];
    }, "State of each broker, who is controller, and the faults of what stands beside the brokers over time");
  }

  function partitions() {
    const dropped = run.partitions.reduce((n, p) => n + p.dropped, 0);
    const hint = [run.partitions_hidden ? `${run.partitions_hidden} with fewer elections not shown, of ${run.partitions.length + run.partitions_hidden}` : "", dropped ? `${count(dropped)} later changes of leaders and ISRs not shown` : "", run.internal_partitions ? `${run.internal_partitions} internal ones not shown` : ""].filter(Boolean).join(" · ");
    const box = card("Partitions", hint, run.partitions.length ? [...brokerIds.slice(0, 8).map(id => [`broker ${id}`, brokerColor(id), "box"]), ["high watermark", "var(--hw)"], ...(run.partitions.some(p => markedAt(p.name).length) ? [["anomaly", "var(--invalid)", "gem"]] : [])] : null);
    if (!run.partitions.length) { box.append(el("p", { class: "empty" }, "No partition was traced.")); return; }
    const strips = Math.max(...run.partitions.map(p => new Set(p.isr.flatMap(r => r.isr)).size), 1), isrH = strips * 5;
    const marksH = run.partitions.some(p => p.marks.length || markedAt(p.name).length) ? MARKS_H : 0;
    const tall = narrow => 18 + marksH + 4 + isrH + 4 + 24 + (narrow ? 30 : 16);
    chart(box, narrow => run.partitions.length * tall(narrow) + 28, c => {
      const pitch = tall(c.narrow), pad = c.narrow ? 20 : 6;
      c.top = 2; c.bottom = c.h - 22; c.step = pitch;
      shade(c, c.top, c.bottom); timeAxis(c, c.bottom);
      run.partitions.forEach((p, k) => {
        const y = k * pitch + pad;
        if (k) c.svg.append(s("line", { x1: 0, x2: c.x1, y1: k * pitch - 2, y2: k * pitch - 2, stroke: "var(--line)" }));
        const changes = p.elections;
        laneLabel(c, y, 18, p.name, changes ? `${changes} election${changes > 1 ? "s" : ""}` : "");
        c.svg.append(s("rect", { x: c.x(p.leaders.length ? p.leaders[0].s : 0), y: y + 7, width: Math.max(c.x(end) - c.x(p.leaders.length ? p.leaders[0].s : 0), 0), height: 4, fill: "var(--line)" }));
        for (const l of p.leaders) {
          const w = c.x(l.e) - c.x(l.s);
          bar(c, l.s, l.e, y, 18, brokerColor(l.leader), w > 96 ? `${l.leader} · epoch ${l.epoch}` : w > 34 ? `e${l.epoch}` : "");
        }
        isrStrips(c, p, y + 22 + marksH, isrH);
        highWatermark(c, p, y + 22 + marksH + isrH + 4, 24);
        for (const m of p.marks) if (m.t >= begin) { const x = c.x(m.t); c.svg.append(s("path", { d: `M${x - 4} ${y + 25}h8l-4 -6z`, fill: "var(--failed)" })); }
        anomalyMarks(c, p.name, y + 19 + MARKS_H / 2);
      });
    }, (t, y, c) => {
      const p = run.partitions[Math.floor(y / c.step)]; if (!p) return [];
      const l = spanAt(p.leaders, t), r = at(p.isr, t); let h = null;
      for (const [ht, hv] of p.hw) { if (ht > t) break; h = hv; }
      const near = (end - begin) / (c.x1 - c.x0) * 6;
      return [["", p.name, ""], [l && brokerColor(l.leader), "leader", l ? `${l.leader}, epoch ${l.epoch}` : "nobody"], ["", "in sync", r ? `${r.isr.length} of ${new Set(p.isr.flatMap(i => i.isr)).size} (${r.isr.join(", ")})` : "–"],
        ["var(--hw)", "high watermark", count(h)], ...p.marks.filter(m => Math.abs(m.t - t) < near).map(m => ["var(--failed)", `broker ${m.broker}`, m.text])];
    }, "Leader, in-sync replicas and high watermark of each partition over time");
  }
  function sideLabel(c, y, text, name) {
    const label = s("text", { x: c.x0 - 8, y, "text-anchor": "end", class: "sub num" }, text);
    label.append(s("title", {}, `${name}: ${WORDS.get(name)}`)); c.svg.append(label);
  }
  function isrStrips(c, p, y, h) {
    const members = [...new Set(p.isr.flatMap(r => r.isr))].sort((a, b) => a - b), each = h / Math.max(members.length, 1);
    members.forEach((id, k) => {
      let since = null;
      const flush = until => { if (since !== null) c.svg.append(s("rect", { x: c.x(since), y: y + k * each, width: Math.max(c.x(until) - c.x(since), 1), height: Math.max(each - 1.5, 1.5), fill: brokerColor(id), "fill-opacity": .75 })); since = null; };
      for (const r of p.isr) { const has = r.isr.includes(id); if (has && since === null) since = r.t; if (!has) flush(r.t); }
      flush(end);
    });
    if (!c.narrow) sideLabel(c, y + h / 2 + 3.5, "ISR", "ISR");
  }
  function highWatermark(c, p, y, h) {
    if (!p.hw.length) return;
    const most = Math.max(...p.hw.map(r => r[1]), 1), Y = v => y + h - v / most * (h - 2);
    let d = `M${c.x(p.hw[0][0]).toFixed(1)} ${Y(p.hw[0][1]).toFixed(1)}`;
    for (const [t, v] of p.hw.slice(1)) d += `H${c.x(t).toFixed(1)}V${Y(v).toFixed(1)}`;
    d += `H${c.x(end)}`;
    c.svg.append(s("path", { d, fill: "none", stroke: "var(--hw)", "stroke-width": 1.3 }));
    if (!c.narrow) sideLabel(c, y + h / 2 + 3.5, "HW " + short(most), "high watermark");
  }

  function faultTable() {
    if (!run.faults.length) return;
    const box = card("Faults", run.faults_hidden ? `${run.faults_hidden} more in faults.jsonl` : "");
    box.append(el("div", { class: "scroll" }, el("table", {}, el("tr", {}, ...["Fault", "Where", "Injected", "Took effect", "Healed", "Evidence"].map(h => el("th", {}, h))),
      ...run.faults.map(f => el("tr", {}, el("td", {}, f.label), el("td", { class: f.nodes.length ? "num" : "" }, where(f) || "–"), el("td", { class: "num" }, sec(f.s)),
        el("td", { class: "num" }, f.skipped !== null ? "skipped" : f.effect === null ? "no" : `+${Math.round((f.effect - f.s) * 1000)} ms`),
        el("td", { class: "num" }, f.skipped !== null ? "–" : f.healed ? sec(f.e) : "not yet"), el("td", { class: "evidence" }, f.skipped ?? f.evidence))))));
  }

  // What each client did at each fault: the longest standstill first, beside it how long the cluster itself could not serve.
  function progressTable() {
    const rows = V && V.progress ? V.progress : [];
    if (!rows.length) return;
    const box = card("Progress of clients at each fault", "longest standstill first; all rows are in verdict.json");
    const titles = ["Fault", "Client", "Partition", "Without progress", "First progress after healing", "Cluster could not serve", "Stood still although it could", "Why"];
    const s1 = v => v === null ? "–" : v.toFixed(1) + " s";
    box.append(el("div", { class: "scroll" }, el("table", { class: "progress" }, el("tr", {}, ...titles.map(h => el("th", {}, h))),
      ...rows.map(r => el("tr", {}, el("td", {}, r.fault ? `${r.fault}: ${r.label}` : "none"), el("td", {}, `${r.kind} ${r.client}`), el("td", {}, r.partition || "–"),
        el("td", { class: "num" }, s1(r.without_progress_s)), el("td", { class: "num" }, r.recovered ? s1(r.recovered_s) : "never"),
        el("td", { class: "num" }, s1(r.cluster_could_not_serve_s)), el("td", { class: "num" }, s1(r.stalled_s)), el("td", {}, r.why))))));
  }

  head(); throughput(); latency(); cluster(); partitions(); anomalies(); progressTable(); faultTable(); wordList(); page.append(sheet);
  page.append(el("footer", {}, "Times are seconds since the start of the test. ", begin > 0 ? `The charts begin at ${sec(begin)}: before that nothing was sent and no fault was injected. ` : "", "Drawn by Harrow from ", el("span", { class: "mono" }, run.folder)));
  layout();
  let width = page.clientWidth;
  new ResizeObserver(() => { if (page.clientWidth !== width) { width = page.clientWidth; leave(); layout(); } }).observe(page);
})();
