"use strict";
(() => {
  const { byId, el, table, lazily, options, chart, copied } = Dom;
  const data = JSON.parse(byId("data").textContent);
  const everything = data.methods.map((_, m) => m);
  let visible = [...everything];
  const count = (n) => Dom.number(n);

  function theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const set = (to) => {
      document.documentElement.dataset.theme = to ? "dark" : "light";
      byId("theme").setAttribute("aria-pressed", to);
      byId("theme").textContent = to ? "Light" : "Dark";
      byId("theme").setAttribute("aria-label", to ? "Switch to the light theme" : "Switch to the dark theme");
    };
    set(dark.matches);
    dark.addEventListener("change", () => set(dark.matches));
    byId("theme").addEventListener("click", () => set(document.documentElement.dataset.theme !== "dark"));
  }

  function summary() {
    byId("title").textContent = `${data.title}: certified predictions`;
    const source = data.sources[0], method = data.methods[source.headline];
    const budget = source.middle, bare = data.undefended[source.undefended];
    const plain = data.methods.find((other) => other.source === 0 && other.election === data.baseline);
    const tile = (question, big, ...text) => el("div", { class: "tile" }, el("h2", {}, question), el("p", { class: "big" }, big), ...text.map((words) => el("p", {}, ...[words].flat())));
    const firm = (value) => el("span", { class: "firm" }, Charts.percent(value)); // not broken before its sign
    const samples = source.n_train === null || data.unit.name === "sources" ? "" : ` of ${count(source.n_train)} training samples`;
    const clean = Charts.at(data, method, 0);
    const tiles = [
      tile("Accuracy", Charts.percent(clean), `of ${count(source.n_inputs)} test inputs are predicted correctly by ${method.label}.`,
        bare ? [el("strong", {}, "Undefended: ", firm(share(bare))), ", one model trained on all samples."] : ""),
      tile("Certified accuracy", Charts.percent(Charts.at(data, method, budget)), `are predicted correctly and certified against any ${Charts.edits(budget)}${samples}.`,
        bare ? [el("strong", {}, "Undefended: nothing is proven"), ", and ", firm(share(bare)), " without an attack."] : "")];
    const rows = data.budgets.includes(budget) ? Charts.classRows(data, 0, budget, "index").map((row) => ({ ...row, share: row.shares.find((x) => x.m === source.headline).share })) : [];
    const worst = d3.least(rows, (row) => row.share);
    if (rows.length > 1) tiles.push(tile("Least certified class", Charts.percent(worst.share), [`at ${Charts.edits(budget)}: class ${Charts.short(worst.name, 40)}, with ${count(worst.size)} test inputs. `, el("a", { href: "#by-class" }, "All classes")],
      worst.bare !== null ? [el("strong", {}, "Undefended: ", firm(worst.bare)), " without an attack."] : ""));
    if (Charts.improvements(data, [source.headline]).length) {
      const more = 100 * (Charts.at(data, method, budget) - Charts.at(data, plain, budget));
      tiles.push(tile("Over plurality", `${Charts.signed(more)} points`, `of certified accuracy at ${Charts.edits(budget)}, compared with plurality (${plain.label}) of the same ${count(source.n_members)} members.`));
    }
    tiles.push(tile("Single inputs", `${count(data.samples[source.sample].n)} inputs`, ["with their elections: ", el("a", { href: "#explorer" }, "replay the attack"), " that flips a prediction."]));
    byId("summary").replaceChildren(...tiles);
    byId("bare-note").hidden = data.undefended.length > 0;
    hints(byId("hint"), source.headline, budget);
  }
  const share = (model) => model.correct / model.n_inputs;

  // Show a warning about classes without certified inputs, with the method's certified accuracy over all inputs.
  function hints(place, m, budget) {
    const text = data.methods[m].hints[data.budgets.indexOf(budget)] ?? "";
    place.hidden = !text;
    place.textContent = text;
  }

  function legend() {
    const bare = data.undefended.map((model) => el("span", { class: "fixed" }, Charts.legendRing(), el("span", {}, el("strong", {}, model.label),
      el("small", {}, `one model trained on all samples; clean ${Charts.percent(share(model))}, nothing proven`))));
    byId("legend").replaceChildren(...bare, ...data.methods.map((method, m) => {
      const button = el("button", { type: "button", "aria-pressed": "true", onclick: () => {
        const on = !visible.includes(m);
        if (!on && visible.length === 1) return; // one curve stays
        visible = everything.filter((other) => (other === m ? on : visible.includes(other)));
        button.setAttribute("aria-pressed", on);
        certified();
      } }, Charts.legendMark(m, method), el("span", {}, el("strong", {}, method.label), el("small", {}, `${method.description}; clean ${Charts.percent(Charts.at(data, method, 0))}`)));
      return button;
    }));
  }

  function certified() {
    const budget = Number(byId("budget").value);
    const words = (b) => visible.map((m) => `${data.methods[m].label} ${Charts.percent(Charts.at(data, data.methods[m], b))}`).join(", ");
    const bare = data.undefended.map((model) => `${model.label}: ${Charts.percent(share(model))} without an attack, nothing proven. `).join("");
    chart(byId("curves"), `Certified accuracy by number of ${Charts.noun}s. ${bare}${data.budgets.map((b) => `At ${Charts.edits(b)}: ${words(b)}`).join(". ")}.`,
      (width) => Charts.curves(data, visible, width, budget));
    const { different: pairs, same } = Charts.pairs(data, visible);
    byId("same").textContent = same.length ? `With two classes, all elections elect the same class: ${same.map(({ method, plain }) => `${method.label} has the curve of ${plain.label}`).join(", ")}.` : "";
    byId("improvement").hidden = byId("improvement-intro").hidden = byId("improvement-intro").previousElementSibling.hidden = pairs.length === 0;
    if (pairs.length) chart(byId("improvement"), `Improvement over plurality in percentage points. ${pairs.map(({ method, plain }) =>
      `${method.label}: ${data.budgets.map((b) => `${Charts.signed(100 * (Charts.at(data, method, b) - Charts.at(data, plain, b)))} at ${Charts.edits(b)}`).join(", ")}`).join(". ")}.`,
      (width) => Charts.improvement(data, visible, width));
    byId("budget-out").textContent = budget;
    byId("readout").replaceChildren(...data.undefended.map((model) => el("span", {}, `${model.label}: `, el("strong", {}, budget === 0 ? Charts.percent(share(model)) : "nothing proven"))), ...visible.map((m) => el("span", {}, `${data.methods[m].label}: `, el("strong", {}, Charts.percent(Charts.at(data, data.methods[m], budget))))));
  }

  function curvesTable() {
    const last = Charts.reach(data.methods), step = Math.max(1, Math.ceil(last / 200));
    const pairs = Charts.improvements(data, everything);
    const head = [`${Charts.noun}s`, ...data.undefended.map((model) => `${model.label}, %`), ...data.methods.map((method) => `${method.label}, %`), ...pairs.map(({ method }) => `${method.label} over plurality`)];
    const rows = () => d3.range(0, last + 1, step).map((b) => [b, ...data.undefended.map((model) => (b === 0 ? (100 * share(model)).toFixed(2) : "–")), ...data.methods.map((method) => (100 * Charts.at(data, method, b)).toFixed(2)),
      ...pairs.map(({ method, plain }) => Charts.signed(100 * (Charts.at(data, method, b) - Charts.at(data, plain, b))))]);
    lazily(byId("curves-table"), () => table(head, rows()));
    byId("paper-note").replaceChildren(...data.sources.filter((source) => source.paper).map((source) => el("p", { class: "note" }, source.paper)));
  }

  const head = ["method", "clean", ...data.budgets.filter((b) => b > 0)];
  const columns = [0, ...data.budgets.filter((b) => b > 0)];
  const cells = data.methods.map((method) => columns.map((b) => 100 * Charts.at(data, method, b)));

  function numbers() {
    // A star marks the best of the methods with the same test inputs.
    const testSets = data.methods.map((method) => { const { data: print, dataset, n_inputs } = data.sources[method.source]; return `${print ?? dataset} ${n_inputs}`; });
    const rivals = data.methods.map((_, m) => cells.filter((__, other) => testSets[other] === testSets[m]));
    const rows = data.methods.map((method, m) => [method.label, ...cells[m].map((value, j) =>
      el("td", value > 0 && rivals[m].length > 1 && value === Math.max(...rivals[m].map((row) => row[j])) ? { class: "best" } : {}, value.toFixed(2)))]);
    const bare = data.undefended.map((model) => [model.label, (100 * share(model)).toFixed(2), ...columns.slice(1).map(() => "")]);
    const dashed = bare.map((row) => row.map((cell, j) => (j > 1 ? el("td", { class: "none" }, "–") : cell)));
    byId("numbers").replaceChildren(table(head.map((name, j) => (j > 1 ? Charts.edits(name) : name)), [...dashed, ...rows], false));
    byId("dashes").hidden = bare.length === 0;
    const titles = head.map((name, j) => (j > 1 && Charts.noun !== "edit" ? `${Charts.edits(name)}${Charts.caveat}` : name));
    const text = (separator, quote) => [titles, ...bare, ...data.methods.map((method, m) => [method.label, ...cells[m].map((value) => value.toFixed(2))])]
      .map((row) => row.map(quote).join(separator)).join("\n") + "\n";
    // A name that starts like a formula must not become one in a spreadsheet.
    const plain = (cell) => (/^[=+\-@\t\r]/.test(String(cell)) ? `'${cell}` : String(cell));
    const quoted = (cell) => (/[",\n\r]/.test(plain(cell)) ? `"${plain(cell).replaceAll('"', '""')}"` : plain(cell));
    byId("download").addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([text(",", quoted)], { type: "text/csv" }));
      el("a", { href: url, download: "certified-accuracy.csv" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
    byId("copy").addEventListener("click", async () => {
      const done = await copied(text("\t", (cell) => plain(cell).replaceAll(/[\t\n\r]/g, " ")));
      byId("copied").textContent = done ? "Copied." : "The browser denied access to the clipboard: select the table instead.";
    });
  }

  function radii() {
    const method = data.methods[Number(byId("radii-method").value)];
    const bins = Charts.binned(method), n = data.sources[method.source].n_inputs;
    const words = `Histogram of radii for ${method.label}: median ${method.median}, largest ${bins.at(-1).to}; ${count(method.certified[1] ?? 0)} of ${count(n)} inputs have a radius of at least 1.`;
    chart(byId("histogram"), words, (width) => Charts.histogram(method, width));
    byId("histogram-table").replaceChildren(table(["radius", "correct predictions", "wrong predictions"],
      bins.map((bin) => [bin.from === bin.to ? bin.from : `${bin.from} to ${bin.to}`, bin.right, bin.wrong])));
  }

  function classes() {
    const s = Number(byId("class-source").value), budget = Number(byId("class-budget").value), order = byId("class-order").value;
    const rows = Charts.classRows(data, s, budget, order), bare = rows[0].bare !== null;
    const words = `Certified accuracy at ${Charts.edits(budget)} by class: ${rows.map((row) => `${row.name} ${row.shares.map((x) => Charts.percent(x.share)).join(" and ")}${bare ? `, undefended ${Charts.percent(row.bare)}` : ""}`).join("; ")}`;
    byId("class-legend").replaceChildren(...(bare ? [el("span", {}, Charts.legendRing(), "undefended, without an attack")] : []),
      ...rows[0].shares.map(({ m, label }) => el("span", {}, Charts.legendMark(m, data.methods[m], false), label)));
    hints(byId("class-hint"), data.sources[s].headline, budget);
    chart(byId("classes"), words, (width) => Charts.classes(data, s, budget, order, width));
    byId("classes-table").replaceChildren(table(["class", "inputs", ...(bare ? ["undefended, %"] : []), ...rows[0].shares.map((x) => `${x.label}, %`)],
      rows.map((row) => [row.name, row.size, ...(bare ? [(100 * row.bare).toFixed(1)] : []), ...row.shares.map((x) => (100 * x.share).toFixed(1))])));
  }

  function members() {
    const source = data.sources[Number(byId("m-source").value)], { accuracy, sizes, seconds, constant } = source.members;
    byId("m-constant").textContent = constant;
    byId("m-constant").hidden = !constant;
    const kinds = [["Accuracy", "accuracy, % →", accuracy.map((a) => 100 * a), (x) => `${x.toFixed(1)} %`],
      ["Training samples", "samples →", sizes, (x) => count(x)], ["Training time", "seconds →", seconds, Charts.duration]];
    byId("member-charts").replaceChildren(...kinds.map(([title, , values]) => el("div", {}, el("h3", {}, title), values ? el("div", { class: "chart" }) : el("p", { class: "note" }, "Not recorded."), el("p", { class: "note" }))));
    kinds.forEach(([title, label, all, format], j) => {
      if (!all) return;
      const values = all.filter((value) => value !== null), unknown = all.length - values.length;
      const place = byId("member-charts").children[j];
      if (d3.min(values) === d3.max(values)) { // a chart with one bar says nothing
        place.replaceChildren(place.firstElementChild, el("p", { class: "note" }, `${format(values[0])} for each of the ${count(values.length)} members.`));
        return;
      }
      const words = `From ${format(d3.min(values))} to ${format(d3.max(values))}, median ${format(d3.median(values))}${j === 2 ? `, total ${format(d3.sum(values))}` : ""}.${unknown ? ` Not recorded for ${unknown} member${unknown === 1 ? "" : "s"}.` : ""}`;
      place.lastElementChild.textContent = words;
      chart(place.children[1], `${title} of ${values.length} members. ${words}`, (width) => Charts.spread(values, label, width, format));
    });
    lazily(byId("members-table"), () => table(["member", "accuracy, %", "samples", "seconds"],
      accuracy.map((a, m) => [m, (100 * a).toFixed(2), sizes ? sizes[m] : "", seconds?.[m] ?? ""])));
  }

  function words() {
    const several = data.sources.length > 1;
    byId("guarantees").replaceChildren(...data.sources.flatMap((source) => [several ? el("h3", {}, source.name) : null, ...source.guarantee.map((text) => el("p", {}, text)), ...target(source.target)].filter((node) => node !== null)));
    byId("origins").replaceChildren(...data.sources.map((source) => el("div", {}, el("h3", {}, source.name),
      facts([["Members", `${count(source.n_members)} on ${count(source.n_buckets)} buckets (k = ${source.n_partitions}, d = ${source.d}, ${source.n_seeds} model${source.n_seeds > 1 ? "s" : ""} per member)`], ...source.facts]),
      ...commands("Reproduce with", source.made), ...commands("Check with", source.checked))));
  }

  function target(about) {
    if (!about) return [];
    const numbers = el("div", { class: "scroll" });
    numbers.append(table(about.head, about.rows));
    return [el("h3", {}, about.title), el("p", {}, about.text), numbers];
  }

  function facts(rows) {
    const node = table(null, rows);
    node.classList.add("facts");
    return node;
  }

  function commands(title, lines) {
    return lines.length ? [el("p", { class: "note" }, `${title}:`), el("pre", { tabindex: 0 }, el("code", {}, lines.join("\n")))] : [];
  }

  theme();
  summary();
  legend();
  byId("budget").max = Charts.reach(data.methods);
  byId("budget").value = data.sources[0].middle;
  byId("budget").addEventListener("input", certified);
  certified();
  curvesTable();
  numbers();
  options(byId("radii-method"), data.methods.map((method, m) => [m, method.label]), data.sources[0].headline);
  byId("radii-method").addEventListener("change", radii);
  radii();
  options(byId("class-budget"), data.budgets.map((b) => [b, b]), data.sources[0].middle);
  for (const id of ["class-source", "m-source"]) options(byId(id), data.sources.map((source, s) => [s, source.name]), 0);
  for (const id of ["class-source-label", "m-source-label"]) byId(id).hidden = data.sources.length === 1;
  for (const id of ["class-budget", "class-source", "class-order"]) byId(id).addEventListener("change", classes);
  classes();
  byId("m-source").addEventListener("change", members);
  members();
  words();
  Explorer.start(data).catch(() => {
    byId("x-count").textContent = "The single inputs cannot be unpacked: this needs a browser of 2023 or later.";
  });
})();
