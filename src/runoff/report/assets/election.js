"use strict";
// One input: its election, every method's prediction, and the cheapest attack step by step.
const Election = (() => {
  const { byId, el, table, chart, copied } = Dom;
  let data, source, method, current, step, link, timer = null;

  const election = (input) => expanded(input.elections[method]);

  // Expand the steps that `_packing.py` abbreviates: 0 stands for the usual value.
  function expanded(result) {
    let after = [result.prediction, result.runner_up];
    if (Array.isArray(result.attack?.steps[0])) result.attack.steps = result.attack.steps.map(([bucket, members, firsts, finalists, rounds]) => {
      after = finalists || after;
      return { bucket, members: members || [bucket], firsts, after, rounds };
    });
    return result;
  }

  const name = (c) => source.classes[c];

  const firstChoices = () => current.firsts[data.methods[method].source];

  function show(given, of, m, input, links) {
    pause();
    [data, source, method, current, step, link] = [given, of, m, input, 0, links];
    const place = byId("x-detail");
    if (!current) { place.replaceChildren(el("p", {}, "Choose an input.")); return; }
    const result = election(current), right = result.prediction === current.label;
    place.replaceChildren(
      el("div", { class: "seen" }, appearance(), el("div", { class: "facts" },
        el("h3", {}, `Input ${current.i}: ${name(result.prediction)}`),
        el("p", {}, el("span", { class: `tag ${right ? "right" : "wrong"}` }, right ? "✓ correct" : `✗ wrong: the class is ${name(current.label)}`)),
        el("p", {}, el("strong", {}, `Radius ${result.radius}`), ` with ${data.methods[method].election_label}: ${result.radius ? `${Charts.edits(result.radius)} provably cannot change it${Charts.caveat}` : "nothing is proven"}`),
        linkPart())),
      comparePart(), el("p", { class: "explain" }, result.explain), targetsPart(result), attackPart(result),
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
    if (current.text) return el("blockquote", { class: "features", tabindex: 0 }, current.text);
    if (current.features) return el("div", { class: "features", tabindex: 0 }, table(null, current.features));
    return null;
  }

  function linkPart() {
    const message = el("span", { class: "note", role: "status" });
    return el("p", { class: "buttons" }, el("button", { type: "button", class: "small", id: "x-link", onclick: async () => {
      const address = location.href.split("#")[0] + link.address();
      message.textContent = await copied(address) ? "Copied." : address;
    } }, "Copy link to this input"), message);
  }

  // The same input with every method of every run that has it, after the undefended models.
  function comparePart() {
    const mark = (c) => `${c === current.label ? "✓" : "✗"} ${name(c)}`;
    const models = new Map(Object.entries(current.undefended).map(([s, c]) => [data.sources[s].undefended, c]));
    const rows = [...models].map(([u, c]) => [data.undefended[u].label, mark(c), "nothing proven"]);
    for (const [m, other] of Object.entries(current.elections)) {
      const button = el("button", { type: "button", class: "plainlink", onclick: () => link.choose(Number(m)) }, data.methods[m].label);
      rows.push([el("th", { scope: "row" }, button), mark(other.prediction), other.radius]);
    }
    if (rows.length < 2) return null;
    const node = table(["method", "prediction", "radius"], rows);
    node.id = "x-compare";
    Object.keys(current.elections).forEach((m, j) => { if (Number(m) === method) node.tBodies[0].rows[models.size + j].setAttribute("aria-current", "true"); });
    return el("div", { class: "scroll compare" }, node);
  }

  // An attacker who wants one particular class needs at least as many edits.
  function targetsPart(result) {
    if (!result.to.length) return null;
    const words = ([c, radius]) => (radius >= source.n_buckets ? `nothing can make this ${name(c)}${Charts.caveat}` : radius === 0 ? `one ${Charts.noun} might make this ${name(c)}`
      : `no ${radius === 1 ? `single ${Charts.noun}` : Charts.edits(radius)} can make this ${name(c)}${Charts.caveat}`);
    return el("p", { class: "targets" }, el("strong", {}, "Against a particular class: "), `${result.to.map(words).join("; ")}.`);
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
    const firsts = [...firstChoices()], taken = new Set(), rounds = result.rounds.map((bars) => new Map(bars));
    for (const move of (result.attack?.steps ?? []).slice(0, step)) {
      move.members.forEach((m, j) => { firsts[m] = move.firsts[j]; taken.add(m); });
      move.rounds.forEach((changes, r) => changes.forEach(([c, n]) => (n === null ? rounds[r].delete(c) : rounds[r].set(c, (rounds[r].get(c) ?? 0) + n))));
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
    const n = firstChoices().length, steps = result.attack?.steps ?? [];
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
    if (step === 0) { status.replaceChildren(`Before the attack: ${name(now.first)} wins, ${score}.`, el("span", { class: "screen" }, " Press Step.")); return; }
    const move = steps[step - 1], who = move.members.length === 0 ? "no further member" : members(move.members);
    const did = `Step ${step} of ${last}: one ${Charts.noun} in bucket ${move.bucket} compromises ${who}. `;
    const exact = last === result.radius + 1;
    status.textContent = did + (flipped
      ? `Now ${name(now.first)} wins, ${score}. ${Charts.edits(last)} can flip the prediction${result.radius > 0 ? `, ${result.radius} provably cannot${Charts.caveat}` : ""}${exact ? ": the radius is exact." : ". Whether fewer can is not known."}`
      : `${name(now.first)} still wins, ${score}.`);
  }

  function members(indices) {
    if (indices.length === 1) return `member ${indices[0]}`;
    const first = indices.slice(0, 6).join(", ");
    return indices.length > 6 ? `${indices.length} members (${first}, …)` : `members ${first}`;
  }

  return { show };
})();
