"use strict";
// DOM helpers: nodes whose text is never parsed as HTML, and charts that follow the width of their container.
const Dom = (() => {
  const byId = (id) => document.getElementById(id);

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function table(head, rows, plain = true) {
    const line = (cells, tag) => el("tr", {}, ...cells.map((cell, j) => (cell instanceof Node ? cell
      : el(tag === "th" || j === 0 ? "th" : "td", tag === "th" ? { scope: "col" } : j === 0 ? { scope: "row" } : {}, String(cell)))));
    const body = el("tbody", {}, ...rows.map((row) => line(row, "td")));
    return el("table", plain ? { class: "plain" } : {}, head ? el("thead", {}, line(head, "th")) : null, body);
  }

  function options(select, pairs, chosen) {
    select.replaceChildren(...pairs.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text)));
  }

  const watched = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.clientWidth !== target.drawnWidth) paint(target);
  });
  function paint(place) {
    place.drawnWidth = place.clientWidth;
    if (place.drawnWidth) place.replaceChildren(place.draw(place.drawnWidth));
  }
  // `draw` makes a chart of a given width; `label` describes it in words.
  function chart(place, label, draw) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    place.draw = draw;
    paint(place);
    watched.observe(place);
  }

  return { byId, el, table, options, chart };
})();

// The explorer: choose an input, inspect its election, and replay the cheapest attack.
const Explorer = (() => {
  const { byId, el, table, options, chart } = Dom;
  let data, source, method, inputs, current, step, timer = null;

  function start(given) {
    data = given;
    byId("x-source-label").hidden = data.sources.length === 1;
    options(byId("x-source"), data.sources.map((s, j) => [j, s.name]), 0);
    byId("x-source").addEventListener("change", chooseSource);
    byId("x-election").addEventListener("change", () => { method = Number(byId("x-election").value); list(); });
    for (const id of ["x-class", "x-right", "x-sort"]) byId(id).addEventListener("change", list);
    for (const id of ["x-min", "x-max"]) byId(id).addEventListener("input", list);
    byId("x-list").addEventListener("keydown", keys);
    chooseSource();
  }

  function chooseSource() {
    const s = Number(byId("x-source").value);
    source = data.sources[s];
    method = source.headline;
    const methods = data.methods.map((other, m) => [m, other]).filter(([, other]) => other.source === s);
    options(byId("x-election"), methods.map(([m, other]) => [m, `${other.election_label} (${other.name})`]), method);
    const labels = [...new Set(source.sample.inputs.map((input) => input.label))].sort((a, b) => a - b);
    options(byId("x-class"), [["", "all classes"], ...labels.map((c) => [c, source.classes[c]])], "");
    byId("sample-how").textContent = [source.sample.how, ...source.notes.map((note) => `${note}.`)].join(" ");
    current = null;
    list();
  }

  const election = (input) => input.elections[method];
  const isRight = (input) => election(input).prediction === input.label;
  const name = (c) => source.classes[c];

  function list() {
    const label = byId("x-class").value, right = byId("x-right").value, sort = byId("x-sort").value;
    const least = byId("x-min").value === "" ? 0 : Number(byId("x-min").value);
    const most = byId("x-max").value === "" ? Infinity : Number(byId("x-max").value);
    inputs = source.sample.inputs.filter((input) => (label === "" || input.label === Number(label))
      && (right === "" || (right === "right") === isRight(input))
      && election(input).radius >= least && election(input).radius <= most);
    if (sort !== "index") inputs.sort((a, b) => (sort === "low" ? 1 : -1) * (election(a).radius - election(b).radius) || a.i - b.i);
    byId("x-count").textContent = inputs.length === 0 ? "No input matches: widen the filters."
      : `${inputs.length.toLocaleString("en")} input${inputs.length === 1 ? "" : "s"}`;
    byId("x-list").replaceChildren(...inputs.map(item));
    if (!inputs.includes(current)) current = (current === null ? bestExample() : null) ?? inputs[0] ?? null;
    show();
  }

  // The initial choice: a correct prediction whose radius the second round increases most.
  function bestExample() {
    const gain = (input) => election(input).radius - Math.min(...Object.values(input.elections).map((other) => other.radius));
    return d3.greatest(inputs.filter((input) => isRight(input) && election(input).attack), gain);
  }

  function item(input) {
    const result = election(input), right = isRight(input);
    const picture = input.picture ? el("img", { src: input.picture, alt: "" }) : null;
    const button = el("button", { type: "button", onclick: () => { current = input; show(); } }, picture,
      el("span", { class: "what" },
        el("span", {}, right ? `✓ ${name(result.prediction)}` : `✗ ${name(result.prediction)}, not ${name(input.label)}`),
        el("small", {}, `#${input.i} · radius ${result.radius}`)));
    button.input = input;
    return el("li", {}, button);
  }

  function keys(event) {
    const moves = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const buttons = [...byId("x-list").querySelectorAll("button")];
    const next = buttons[buttons.findIndex((b) => b.input === current) + moves[event.key]];
    if (next) { next.click(); next.focus(); }
  }

  // Scroll the list to a button without scrolling the page.
  function scrollToButton(button) {
    const place = byId("x-list"), outer = place.getBoundingClientRect(), inner = button.getBoundingClientRect();
    if (inner.top < outer.top || inner.bottom > outer.bottom) place.scrollTop += inner.top - outer.top - 80;
    if (inner.left < outer.left || inner.right > outer.right) place.scrollLeft += inner.left - outer.left - 80;
  }

  function show() {
    pause();
    step = 0;
    for (const button of byId("x-list").querySelectorAll("button")) {
      button.setAttribute("aria-current", button.input === current);
      if (button.input === current) scrollToButton(button);
    }
    const place = byId("x-detail");
    if (!current) { place.replaceChildren(el("p", {}, "Choose an input.")); return; }
    const result = election(current), right = isRight(current);
    const others = Object.entries(current.elections).filter(([m]) => Number(m) !== method)
      .map(([m, other]) => `${data.methods[m].election_label}: ${name(other.prediction)}, radius ${other.radius}`);
    place.replaceChildren(
      el("div", { class: "seen" }, appearance(), el("div", { class: "facts" },
        el("h3", {}, `Input ${current.i}: ${name(result.prediction)}`),
        el("p", {}, el("span", { class: `tag ${right ? "right" : "wrong"}` }, right ? "✓ correct" : `✗ wrong: the class is ${name(current.label)}`)),
        el("p", {}, el("strong", {}, `Radius ${result.radius}`), ` with ${data.methods[method].election_label}`,
          others.length ? `; ${others.join("; ")}` : ""))),
      el("p", { class: "explain" }, result.explain), attackPart(result),
      el("div", { class: "rounds" },
        ...data.methods[method].rounds.map(({ title, caption, half }, r) => el("div", {},
          el("h4", {}, `${title} `, el("small", {}, half ? caption : `${caption}; dotted: before the attack`)),
          el("div", { class: "chart", id: `x-round${r + 1}` })))),
      el("div", { class: "votes" }, el("h4", {}, "Members ", el("small", {}, "one square each, by first choice")),
        el("div", { class: "grid", id: "x-grid", role: "img" }), el("div", { class: "keys", id: "x-keys" })));
    draw();
  }

  function appearance() {
    if (current.picture) return el("img", { src: current.picture, alt: `Input ${current.i}, of class ${name(current.label)}` });
    if (current.text) return el("blockquote", { class: "features" }, current.text);
    if (current.features) return el("div", { class: "features", tabindex: 0 }, table(null, current.features));
    return null;
  }

  function attackPart(result) {
    if (!result.attack) return el("p", {}, `No number of ${Charts.noun}s can change this prediction.`);
    const n = result.attack.steps.length;
    const slider = el("input", { type: "range", min: 0, max: n, value: 0, id: "x-step", "aria-label": "Step of the attack", oninput: () => { pause(); go(Number(slider.value)); } });
    return el("div", { class: "attack" }, el("h4", {}, `The cheapest attack found: ${Charts.edits(n)}`),
      el("div", { class: "buttons" },
        el("button", { type: "button", id: "x-reset", onclick: () => { pause(); go(0); } }, "Start over"),
        el("button", { type: "button", id: "x-back", onclick: () => { pause(); go(step - 1); } }, "Back"),
        el("button", { type: "button", id: "x-next", class: "main", onclick: () => { pause(); go(step + 1); } }, "Step"),
        el("button", { type: "button", id: "x-play", onclick: play }, "Play")),
      slider, el("p", { class: "status", id: "x-status", role: "status" }));
  }

  function go(to) {
    step = Math.max(0, Math.min(election(current).attack.steps.length, to));
    draw();
  }

  function play() {
    if (timer) { pause(); return; }
    const n = election(current).attack.steps.length;
    if (step === n) go(0);
    byId("x-play").textContent = "Pause";
    timer = setInterval(() => { go(step + 1); if (step === n) pause(); }, Math.max(120, Math.min(900, 8000 / n)));
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    if (byId("x-play")) byId("x-play").textContent = "Play";
  }

  // First choices, compromised members and the bars of each round after `step` steps.
  function standing(result) {
    const firsts = [...current.firsts], taken = new Set(), rounds = result.rounds.map((bars) => new Map(bars));
    for (const move of (result.attack?.steps ?? []).slice(0, step)) {
      move.members.forEach((m, j) => { firsts[m] = move.firsts[j]; taken.add(m); });
      move.rounds.forEach((changes, r) => changes.forEach(([c, n]) => (n === null ? rounds[r].delete(c) : rounds[r].set(c, n))));
    }
    const [first, second] = step ? result.attack.steps[step - 1].after : [result.prediction, result.runner_up];
    return { firsts, taken, rounds, first, second };
  }
  const tally = (firsts) => firsts.reduce((votes, c) => votes.set(c, (votes.get(c) ?? 0) + 1), new Map());

  function draw() {
    const result = election(current), now = standing(result), steps = result.attack?.steps ?? [];
    const rival = steps.length ? steps.at(-1).after[0] : null; // the winner after the attack
    const kind = (c) => (c === result.prediction ? "win" : c === result.runner_up ? "run" : c === rival ? "third" : "other");
    data.methods[method].rounds.forEach((round, r) => drawRound(round, r, result, now, rival, kind));
    grid(result, now, kind, rival);
    const last = now.rounds.at(-1);
    if (steps.length) showStatus(result, now, steps, [last.get(now.first) ?? 0, last.get(now.second) ?? 0]);
  }

  function drawRound({ title, caption, half }, r, result, now, rival, kind) {
    const n = current.firsts.length, steps = result.attack?.steps ?? [];
    const before = new Map(result.rounds[r]), bars = now.rounds[r], place = byId(`x-round${r + 1}`);
    const label = (rows) => `${title}, ${caption}, ${n} members: ${rows.map((row) => `${row.name} has ${row.n}`).join(", ")}`;
    if (half) { // two classes compete for a majority of the members
      const rows = [...bars].sort(([a], [b]) => (b === result.prediction) - (a === result.prediction) || a - b)
        .map(([c, count]) => ({ key: c, name: name(c), n: count, was: count, kind: kind(c) }));
      chart(place, label(rows), (width) => Charts.bars(rows, n, n / 2, width));
      return;
    }
    // Bars keep their order from before the attack, so that they do not move.
    const changed = steps.flatMap((move) => move.rounds[r].map(([c]) => c));
    const all = [...new Set([result.prediction, result.runner_up, ...(rival === null ? [] : [rival]), ...before.keys(), ...changed])]
      .sort((a, b) => (before.get(b) ?? 0) - (before.get(a) ?? 0) || a - b);
    const main = all.filter((c, j) => j < 8 || kind(c) !== "other"), rest = all.filter((c) => !main.includes(c));
    const rows = main.map((c) => ({ key: c, name: name(c), n: bars.get(c) ?? 0, was: before.get(c) ?? 0, kind: kind(c) }));
    if (rest.length) rows.push({ key: -1, name: `${rest.length} others`, n: d3.sum(rest, (c) => bars.get(c) ?? 0), was: d3.sum(rest, (c) => before.get(c) ?? 0), kind: "other" });
    const most = Math.max(...rows.flatMap((row) => [row.n, row.was]), ...steps.length ? [n / 2] : []);
    chart(place, label(rows), (width) => Charts.bars(rows, most, null, width));
  }

  function grid(result, now, kind, rival) {
    const ranked = data.methods[method].reads_rankings, n = now.firsts.length;
    const cells = now.firsts.map((c, m) => {
      const above = ranked && result.above[m] === "1" && !now.taken.has(m), taken = now.taken.has(m);
      return el("span", { class: `cell ${kind(c)}${above ? " above" : ""}${taken ? " taken" : ""}`,
        title: `member ${m}${taken ? ", compromised" : ""}: ${name(c)} first${ranked ? `; ranks ${name(result.prediction)} ${above ? "above" : "below"} ${name(result.runner_up)}` : ""}` });
    });
    byId("x-grid").style.setProperty("--cell", n > 600 ? "10px" : n > 200 ? "13px" : "20px");
    byId("x-grid").setAttribute("aria-label", `${n} members, ${now.taken.size} of them compromised. First choices: ${[...tally(now.firsts)].map(([c, count]) => `${name(c)} has ${count}`).join(", ")}`);
    byId("x-grid").replaceChildren(...cells);
    const key = (classes, text) => el("span", {}, el("span", { class: `cell ${classes}`, style: "--cell:16px" }), text);
    byId("x-keys").replaceChildren(key("win", name(result.prediction)), key("run", name(result.runner_up)),
      ...(rival !== null && kind(rival) === "third" ? [key("third", name(rival))] : []), key("other", "another class"),
      ...(ranked ? [key("other above", `ranks ${name(result.prediction)} above ${name(result.runner_up)}`)] : []), key("other taken", "compromised"));
  }

  function showStatus(result, now, steps, [ours, theirs]) {
    const last = steps.length, status = byId("x-status");
    byId("x-step").value = step;
    byId("x-back").disabled = byId("x-reset").disabled = step === 0;
    byId("x-next").disabled = step === last;
    const score = `${ours} to ${theirs} against ${name(now.second)}${ours === theirs ? " (ties go to the lower class index)" : ""}`;
    const flipped = now.first !== result.prediction;
    status.classList.toggle("flipped", flipped);
    if (step === 0) { status.textContent = `Before the attack: ${name(now.first)} wins, ${score}. Press Step.`; return; }
    const move = steps[step - 1], who = move.members.length === 0 ? "no further member" : members(move.members);
    const did = `Step ${step} of ${last}: one ${Charts.noun} in bucket ${move.bucket} compromises ${who}. `;
    const exact = last === result.radius + 1;
    status.textContent = did + (flipped
      ? `Now ${name(now.first)} wins, ${score}. ${Charts.edits(last)} can flip the prediction${result.radius > 0 ? `, ${result.radius} provably cannot` : ""}${exact ? ": the radius is exact." : ". Whether fewer can is open."}`
      : `${name(now.first)} still wins, ${score}.`);
  }

  function members(indices) {
    if (indices.length === 1) return `member ${indices[0]}`;
    const first = indices.slice(0, 6).join(", ");
    return indices.length > 6 ? `${indices.length} members (${first}, …)` : `members ${first}`;
  }

  return { start };
})();
