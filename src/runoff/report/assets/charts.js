"use strict";
// Charts, each a function from data and a width to a node. Text from data is passed to Plot or textContent only.
const Charts = (() => {
  // One fewer than colours, so that all pairs differ; none resembles the crosses of the paper.
  const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye", "hexagon"];
  const color = (m) => `var(--m${m % 8})`;
  const symbol = (m) => SYMBOLS[m % SYMBOLS.length];
  const dash = (method) => (method.dashes.length ? method.dashes.map((length) => 1.75 * length).join(" ") : null);
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const noun = document.documentElement.dataset.noun || "edit"; // the unit of edits: edit, source or changed label
  const edits = (n) => `${Dom.number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const caveat = document.documentElement.dataset.caveat || ""; // what radii do not cover, in brackets
  const axis = `${document.documentElement.dataset.axis || "edits"} →`;
  const duration = (s) => {
    const minutes = Math.round(s / 60);
    return s < 100 ? `${s.toPrecision(3)} s` : minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  };
  // Cut in the middle: names that start alike ("speed limit 30") often differ at their end.
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1 - (most >> 1))}…${text.slice(-(most >> 1))}` : text);
  // The hexagon as Plot draws it.
  const HEXAGON = { draw(context, size) {
    const r = Math.sqrt(size / Math.PI), x = (r * Math.sqrt(3)) / 2;
    [[0, r], [x, r / 2], [x, -r / 2], [0, -r], [-x, -r / 2], [-x, r / 2]].forEach(([a, b], j) => (j ? context.lineTo(a, b) : context.moveTo(a, b)));
    context.closePath();
  } };
  const ring = { stroke: "var(--ink)", strokeWidth: 2, fill: "var(--card)", r: 5 }; // an undefended model
  const grid = { stroke: "var(--line)", strokeOpacity: 1 };
  const tip = { fill: "var(--card)", stroke: "var(--muted)", fontSize: 13, lineHeight: 1.25 };
  const base = (width, height, more) => ({ width, height, style: { fontSize: "13px", overflow: "visible" }, ...more });

  function at(data, method, budget) {
    return (method.curve[budget] ?? 0) / data.sources[method.source].n_inputs;
  }

  function legendMark(m, method, line = true) {
    const svg = d3.create("svg").attr("width", 34).attr("height", 14).attr("aria-hidden", "true");
    if (line) svg.append("line").attr("x1", 0).attr("x2", 34).attr("y1", 7).attr("y2", 7)
      .attr("stroke", color(m)).attr("stroke-width", 2.5).attr("stroke-dasharray", dash(method));
    const shape = { circle: d3.symbolCircle, square: d3.symbolSquare, triangle: d3.symbolTriangle, diamond: d3.symbolDiamond,
      star: d3.symbolStar, wye: d3.symbolWye, hexagon: HEXAGON }[symbol(m)];
    svg.append("path").attr("transform", "translate(17,7)").attr("d", d3.symbol(shape, 60)()).attr("fill", color(m));
    return svg.node();
  }

  function legendRing() {
    const svg = d3.create("svg").attr("width", 34).attr("height", 14).attr("aria-hidden", "true");
    svg.append("circle").attr("cx", 17).attr("cy", 7).attr("r", 5).attr("fill", "var(--card)").attr("stroke", "var(--ink)").attr("stroke-width", 2);
    return svg.node();
  }

  // One more than the largest budget at which any input is certified.
  const reach = (methods) => Math.max(1, ...methods.map((method) => method.curve.findLastIndex((n) => n > 0) + 1));

  function curves(data, visible, width, budget) {
    const methods = visible.map((m) => data.methods[m]);
    const last = Math.max(reach(methods), ...methods.flatMap((method) => method.paper.map((mark) => mark.budget)));
    const points = [], printed = [];
    const marks = [Plot.gridY({ ...grid, ticks: 5 }), Plot.ruleY([0], { stroke: "var(--muted)" })];
    if (budget !== null) marks.push(Plot.ruleX([budget], { stroke: "var(--muted)", strokeDasharray: "2 3" }));
    for (const m of visible) {
      const method = data.methods[m];
      const values = d3.range(last + 1).map((b) => ({ b, y: 100 * at(data, method, b), m }));
      const budgets = new Set([...data.budgets, 0]);
      marks.push(Plot.line(values, { x: "b", y: "y", stroke: color(m), strokeWidth: 2.2, strokeDasharray: dash(method) }));
      marks.push(Plot.dot(values.filter((p) => budgets.has(p.b)), { x: "b", y: "y", fill: color(m), symbol: symbol(m), r: 4.2 }));
      for (const p of values) points.push({ ...p, text: `${method.label}\n${edits(p.b)}: ${p.y.toFixed(1)} %` +
        `\n${Dom.number(method.curve[p.b] ?? 0)} of ${Dom.number(data.sources[method.source].n_inputs)} inputs` });
      for (const mark of method.paper) printed.push({ b: mark.budget, y: mark.percent, m,
        text: `${method.name} in the paper (table ${mark.table.slice(1)})\n${edits(mark.budget)}: ${mark.percent.toFixed(2)} %` });
    }
    marks.push(Plot.dot(printed, { x: "b", y: "y", stroke: (p) => color(p.m), symbol: "times", r: 5, strokeWidth: 2.5 }));
    const bare = data.undefended.map((model) => ({ b: 0, y: 100 * model.correct / model.n_inputs, label: model.label }))
      .map((p) => ({ ...p, text: `${p.label}\n${edits(0)}: ${p.y.toFixed(1)} %\nbeyond, nothing is proven` }));
    marks.push(Plot.dot(bare, { x: "b", y: "y", ...ring }));
    marks.push(Plot.tip([...points, ...bare, ...printed], Plot.pointerX({ x: "b", y: "y", title: "text", ...tip })));
    return Plot.plot(base(width, Math.min(420, Math.max(260, width * 0.5)), {
      marginLeft: 46, marginBottom: 42, marginRight: 14, marginTop: 24,
      x: { label: axis, domain: [0, last], ticks: Math.min(last, Math.max(3, Math.floor(width / 70))), tickFormat: whole },
      y: { label: "↑ certified accuracy, %", domain: [0, 100], ticks: 5 }, marks }));
  }
  const whole = (x) => (Number.isInteger(x) ? String(x) : "");

  // Methods with plurality of the same members. Of two classes, all elections elect the same one: `same` are those pairs.
  function pairs(data, visible) {
    const found = { different: [], same: [] };
    for (const m of visible) {
      const method = data.methods[m];
      const plain = data.methods.find((other) => other.source === method.source && other.election === data.baseline);
      if (method.election === data.baseline || !plain) continue;
      const equal = data.sources[method.source].n_classes === 2
        && d3.range(reach([method, plain]) + 1).every((b) => at(data, method, b) === at(data, plain, b));
      (equal ? found.same : found.different).push({ m, method, plain });
    }
    return found;
  }
  const improvements = (data, visible) => pairs(data, visible).different;

  function improvement(data, visible, width) {
    const pairs = improvements(data, visible);
    const last = reach(pairs.flatMap(({ method, plain }) => [method, plain]));
    const points = [], marks = [Plot.gridY({ ...grid, ticks: 4 }), Plot.ruleY([0], { stroke: "var(--muted)" })];
    for (const { m, method, plain } of pairs) {
      const values = d3.range(last + 1).map((b) => ({ b, y: 100 * (at(data, method, b) - at(data, plain, b)), m }));
      for (const p of values) points.push({ ...p, text: `${method.label} over ${plain.label}\n${edits(p.b)}: ${signed(p.y)} points` });
      marks.push(Plot.areaY(values, { x: "b", y: "y", fill: color(m), fillOpacity: 0.12 }));
      marks.push(Plot.line(values, { x: "b", y: "y", stroke: color(m), strokeWidth: 2.2 }));
      marks.push(Plot.dot(values.filter((p) => data.budgets.includes(p.b)), { x: "b", y: "y", fill: color(m), symbol: symbol(m), r: 4.2 }));
      const before = new Map(plain.paper.map((mark) => [mark.budget, mark.percent]));
      const near = method.paper.filter((mark) => before.has(mark.budget) && mark.budget <= last)
        .map((mark) => ({ b: mark.budget, y: mark.percent - before.get(mark.budget), text: `the paper, ${method.name}\n${edits(mark.budget)}: ${signed(mark.percent - before.get(mark.budget))} points` }));
      marks.push(Plot.dot(near, { x: "b", y: "y", stroke: color(m), symbol: "times", r: 5, strokeWidth: 2.5 }));
      points.push(...near);
    }
    marks.push(Plot.tip(points, Plot.pointerX({ x: "b", y: "y", title: "text", ...tip })));
    return Plot.plot(base(width, 190, { marginLeft: 46, marginBottom: 42, marginRight: 14, marginTop: 24,
      x: { label: axis, domain: [0, last], ticks: Math.min(last, Math.max(3, Math.floor(width / 70))), tickFormat: whole },
      y: { label: "↑ percentage points", ticks: 4, nice: true, ...(points.every((p) => p.y === 0) ? { domain: [-1, 1] } : {}) }, marks }));
  }
  const signed = (x) => `${x >= 0 ? "+" : "−"}${Math.abs(x).toFixed(1)}`;

  // Radii of correct and wrong predictions in bins of integer width.
  function binned(method) {
    const { right, wrong } = method.radii;
    const last = Math.max(right.findLastIndex((n) => n > 0), wrong.findLastIndex((n) => n > 0));
    const step = Math.max(1, Math.ceil((last + 1) / 40));
    return d3.range(0, last + 1, step).map((from) => ({ from, to: Math.min(last, from + step - 1),
      right: d3.sum(right.slice(from, from + step)), wrong: d3.sum(wrong.slice(from, from + step)) }));
  }

  function histogram(method, width) {
    const bins = binned(method), rows = [];
    for (const bin of bins) {
      const name = bin.from === bin.to ? `radius ${bin.from}` : `radius ${bin.from} to ${bin.to}`;
      const text = `${name}\n${bin.right} correct, ${bin.wrong} wrong`;
      rows.push({ ...bin, kind: "correct prediction", n: bin.right, text }, { ...bin, kind: "wrong prediction", n: bin.wrong, text });
    }
    return Plot.plot(base(width, 260, { marginLeft: 46, marginBottom: 42, marginTop: 24,
      x: { label: "radius →", tickFormat: whole }, y: { label: "↑ inputs", grid: false, tickFormat: "~s" },
      color: { domain: ["correct prediction", "wrong prediction"], range: ["var(--win)", "var(--wrong)"], legend: true },
      marks: [Plot.gridY(grid),
        Plot.rectY(rows, { x1: (r) => r.from - 0.45, x2: (r) => r.to + 0.45, y: "n", fill: "kind" }),
        Plot.ruleY([0], { stroke: "var(--muted)" }),
        Plot.tip(bins, Plot.pointerX({ x: (b) => (b.from + b.to) / 2, y: (b) => b.right + b.wrong,
          title: (b) => rows.find((r) => r.from === b.from).text, ...tip }))] }));
  }

  function classRows(data, s, budget, order) {
    const source = data.sources[s], j = data.budgets.indexOf(budget);
    const methods = data.methods.map((method, m) => ({ method, m })).filter(({ method }) => method.source === s);
    const bare = data.undefended[source.undefended];
    const rows = d3.range(source.n_classes).filter((c) => source.class_sizes[c] > 0).map((c) => ({ c, name: source.classes[c],
      bare: bare ? bare.per_class[c] / source.class_sizes[c] : null,
      size: source.class_sizes[c], shares: methods.map(({ method, m }) => ({ m, label: method.label, share: method.per_class[c][j] / source.class_sizes[c] })) }));
    if (order === "worst") rows.sort((a, b) => d3.max(a.shares, (x) => x.share) - d3.max(b.shares, (x) => x.share));
    return rows;
  }

  function classes(data, s, budget, order, width) {
    const rows = classRows(data, s, budget, order), most = width < 560 ? 13 : 26;
    const points = rows.flatMap((row) => row.shares.map((x) => ({ ...x, c: row.c, y: 100 * x.share,
      text: `${short(row.name, 40)}\n${x.label}, ${edits(budget)}: ${percent(x.share)}\nof ${row.size} inputs` })));
    for (const row of rows) if (row.bare !== null) points.push({ c: row.c, y: 100 * row.bare, text: `${short(row.name, 40)}\nundefended, without an attack: ${percent(row.bare)}\nof ${row.size} inputs` });
    const names = new Map(rows.map((row) => [row.c, row.name]));
    const longest = d3.max(rows, (row) => Math.min(most, row.name.length));
    const marks = [Plot.gridX(grid),
      Plot.dot(rows.filter((row) => row.bare !== null), { x: (row) => 100 * row.bare, y: "c", ...ring }),
      Plot.ruleY(rows, { y: "c", x1: (row) => 100 * d3.min(row.shares, (x) => x.share), x2: (row) => 100 * d3.max(row.shares, (x) => x.share), stroke: "var(--muted)", strokeWidth: 1.5 })];
    const methods = rows[0].shares.map((x) => x.m); // slightly offset, so that equal values do not overlap
    methods.forEach((m, j) => marks.push(Plot.dot(points.filter((p) => p.m === m), { x: "y", y: "c", dy: 5 * (j - (methods.length - 1) / 2),
      fill: color(m), symbol: symbol(m), r: 4.5 })));
    marks.push(Plot.tip(points, Plot.pointer({ x: "y", y: "c", title: "text", ...tip })));
    return Plot.plot(base(width, 24 * rows.length + 66, { marginLeft: 18 + 7.4 * longest, marginBottom: 42, marginTop: 10, marginRight: 18,
      x: { label: `certified accuracy at ${edits(budget)}, % →`, domain: [0, 100], ticks: Math.max(3, Math.min(10, Math.floor(width / 80))) },
      y: { type: "band", label: null, domain: rows.map((row) => row.c), tickFormat: (c) => short(names.get(c), most), tickSize: 0 }, marks }));
  }

  function spread(values, label, width, format) {
    const rows = values.map((value, member) => ({ value, member }));
    return Plot.plot(base(width, 180, { marginLeft: 40, marginBottom: 40, marginTop: 22, x: { label, nice: true, ticks: 5 },
      y: { label: "↑ members", ticks: 4 },
      marks: [Plot.gridY(grid),
        Plot.rectY(rows, Plot.binX({ y: "count" }, { x: "value", fill: "var(--win)", inset: 0.7, thresholds: Math.min(16, Math.max(4, values.length)) })),
        Plot.ruleY([0], { stroke: "var(--muted)" }),
        Plot.ruleX([d3.median(values)], { stroke: "var(--ink)", strokeDasharray: "3 3" }),
        Plot.tip(rows, Plot.pointerX(Plot.binX({ y: "count", title: (bin) => `${bin.length} members\n${format(d3.min(bin, (r) => r.value))} to ${format(d3.max(bin, (r) => r.value))}` },
          { x: "value", thresholds: Math.min(16, Math.max(4, values.length)), ...tip })))] }));
  }

  // Bars of one round: rows of {name, n, was, kind}; `line` is the position of the majority, or null.
  function bars(rows, most, line, width) {
    const longest = d3.max(rows, (row) => Math.min(16, row.name.length)) ?? 1;
    const fills = { win: "var(--win)", run: "var(--run)", third: "var(--third)", other: "var(--other)" };
    const at = (row) => row.key;
    const names = new Map(rows.map((row) => [row.key, row.name]));
    const marks = [Plot.barX(rows, { x: "n", y: at, fill: (row) => fills[row.kind], insetTop: 2, insetBottom: 2 }),
      Plot.tickX(rows.filter((row) => row.was !== row.n), { x: "was", y: at, stroke: "var(--ink)", strokeWidth: 1.5, strokeDasharray: "2 2" }),
      Plot.text(rows, { x: "n", y: at, text: (row) => String(row.n), dx: 6, textAnchor: "start", fill: "var(--ink)", stroke: "var(--card)", strokeWidth: 5, fontWeight: 600 }),
      Plot.ruleX([0], { stroke: "var(--muted)" })];
    if (line !== null) marks.splice(1, 0, Plot.ruleX([line], { stroke: "var(--bad)", strokeDasharray: "4 3" })); // below the numbers
    return Plot.plot(base(width, 24 * rows.length + 34, { marginLeft: 16 + 7.4 * longest, marginRight: 34, marginTop: 4, marginBottom: 26,
      x: { domain: [0, Math.max(1, most)], label: null, ticks: Math.min(5, most), tickFormat: whole },
      y: { type: "band", label: null, domain: rows.map(at), tickFormat: (key) => short(names.get(key), 16), tickSize: 0 }, marks }));
  }

  return { SYMBOLS, color, symbol, percent, noun, edits, caveat, duration, signed, short, at, reach, legendMark, legendRing, curves, pairs, improvements, improvement, binned, histogram, classRows, classes, spread, bars };
})();
