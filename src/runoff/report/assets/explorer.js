"use strict";
// The explorer: choose a run, an election and an input, which `Election` shows. The address contains all three, for
// links: #input=212&run=2&election=runoff, where runs are numbered from 1.
const Explorer = (() => {
  const { byId, el, options, unpacked } = Dom;
  const samples = new Map(); // unpacked on first use
  let data, s, source, method, inputs = [], current = null, listed = [];

  async function start(given) {
    data = given;
    byId("x-source-label").hidden = data.sources.length === 1;
    options(byId("x-source"), data.sources.map((other, j) => [j, other.name]), 0);
    byId("x-source").addEventListener("change", async () => { await chooseSource(Number(byId("x-source").value)); list(true); remember(); });
    byId("x-election").addEventListener("change", () => { method = Number(byId("x-election").value); list(true); remember(); });
    for (const id of ["x-class", "x-right", "x-sort"]) byId(id).addEventListener("change", () => list());
    for (const id of ["x-min", "x-max"]) byId(id).addEventListener("input", () => list());
    byId("x-list").addEventListener("keydown", keys);
    window.addEventListener("hashchange", () => open(new URLSearchParams(location.hash.slice(1))));
    await chooseSource(0);
    current = inputs.find((input) => input.i === data.opened) ?? bestExample();
    list(true);
    await open(new URLSearchParams(location.hash.slice(1)));
  }

  // Runs with the same test inputs share a sample, and the input that is open stays open.
  async function chooseSource(to, election = data.methods[method]?.election) {
    const before = source?.sample;
    [s, source] = [to, data.sources[to]];
    byId("x-source").value = s;
    if (!samples.has(source.sample)) samples.set(source.sample, await unpacked(`sample-${source.sample}`));
    const methods = data.methods.map((other, m) => [m, other]).filter(([, other]) => other.source === s);
    method = (methods.find(([, other]) => other.election === election) ?? [source.headline])[0];
    options(byId("x-election"), methods.map(([m, other]) => [m, `${other.election_label} (${other.name})`]), method);
    byId("sample-how").textContent = [data.samples[source.sample].how, ...source.notes.map((note) => `${note}.`)].join(" ");
    if (source.sample === before) return;
    inputs = samples.get(source.sample);
    const labels = [...new Set(inputs.map((input) => input.label))].sort((a, b) => a - b);
    options(byId("x-class"), [["", "all classes"], ...labels.map((c) => [c, source.classes[c]])], "");
    current = bestExample();
  }

  const election = (input) => input.elections[method];
  const isRight = (input) => election(input).prediction === input.label;
  const name = (c) => source.classes[c];
  const split = (input) => new Set(Object.values(input.elections).map((other) => other.prediction)).size > 1;

  // `stay` keeps the open input, even if the filters exclude it.
  function list(stay = false) {
    const label = byId("x-class").value, right = byId("x-right").value, sort = byId("x-sort").value;
    const least = byId("x-min").value === "" ? 0 : Number(byId("x-min").value);
    const most = byId("x-max").value === "" ? Infinity : Number(byId("x-max").value);
    listed = inputs.filter((input) => (label === "" || input.label === Number(label))
      && (right === "" || (right === "split" ? split(input) : (right === "right") === isRight(input)))
      && election(input).radius >= least && election(input).radius <= most);
    if (sort !== "index") listed.sort((a, b) => (sort === "low" ? 1 : -1) * (election(a).radius - election(b).radius) || a.i - b.i);
    byId("x-list").replaceChildren(...listed.map(item));
    if (!listed.includes(current) && !(stay && current)) current = listed[0] ?? null;
    byId("x-count").textContent = listed.length === 0 ? "No input matches: widen the filters."
      : `${Dom.number(listed.length)} input${listed.length === 1 ? "" : "s"}`;
    if (current && !listed.includes(current)) byId("x-count").append(` Input ${current.i} is shown, but does not match the filters.`);
    show();
  }

  // The initial choice: a correct prediction whose radius the second round increases most.
  function bestExample() {
    const own = (input) => Object.entries(input.elections).filter(([m]) => data.methods[m].source === s).map(([, other]) => other.radius);
    const gain = (input) => election(input).radius - Math.min(...own(input));
    return d3.greatest(inputs.filter((input) => isRight(input) && election(input).attack), gain) ?? inputs[0];
  }

  function item(input) {
    const result = election(input), right = isRight(input);
    const picture = input.picture ? el("img", { src: input.picture, alt: "" }) : null;
    const button = el("button", { type: "button", onclick: () => pick(input) }, picture,
      el("span", { class: "what" },
        el("span", {}, right ? `✓ ${name(result.prediction)}` : `✗ ${name(result.prediction)}, not ${name(input.label)}`),
        el("small", {}, `#${input.i} · radius ${result.radius}`)));
    button.input = input;
    return el("li", {}, button);
  }

  function pick(input) {
    current = input;
    show();
    remember();
  }

  // The list is one stop of the Tab key; arrows, Page Up, Page Down, Home and End move within it.
  function keys(event) {
    const buttons = [...byId("x-list").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1,
      PageDown: Math.min(buttons.length - 1, at + 10), PageUp: Math.max(0, at - 10) }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (buttons[to]) { buttons[to].focus({ preventScroll: true }); pick(buttons[to].input); }
  }

  // Scroll the list to a button without scrolling the page.
  function scrollToButton(button) {
    const place = byId("x-list"), outer = place.getBoundingClientRect(), inner = button.getBoundingClientRect();
    if (inner.top < outer.top || inner.bottom > outer.bottom) place.scrollTop += inner.top - outer.top - 80;
    if (inner.left < outer.left || inner.right > outer.right) place.scrollLeft += inner.left - outer.left - 80;
  }

  function show() {
    const buttons = [...byId("x-list").querySelectorAll("button")];
    const chosen = buttons.find((button) => button.input === current);
    for (const button of buttons) {
      button.setAttribute("aria-current", button === chosen);
      button.tabIndex = button === (chosen ?? buttons[0]) ? 0 : -1;
    }
    if (chosen) scrollToButton(chosen);
    Election.show(data, source, method, current, { address, choose });
  }

  // Show the open input with another method.
  async function choose(m) {
    await chooseSource(data.methods[m].source, data.methods[m].election);
    list(true);
    remember();
    byId("x-compare")?.querySelector("[aria-current] button")?.focus();
  }

  const address = () => `#input=${current.i}&run=${s + 1}&election=${data.methods[method].election}`;

  function remember() {
    if (!current) return;
    try { history.replaceState(null, "", address()); } catch { /* a browser that forbids it for files */ }
  }

  // Show the input that an address names. Addresses without an input are left to the browser.
  async function open(parameters) {
    if (!parameters.has("input")) return;
    const run = Number(parameters.get("run") ?? 1) - 1;
    if (data.sources[run]) await chooseSource(run, parameters.get("election") ?? undefined);
    for (const id of ["x-class", "x-right", "x-min", "x-max"]) byId(id).value = "";
    const found = inputs.find((input) => String(input.i) === parameters.get("input"));
    if (found) current = found;
    list(true);
    if (!found) byId("x-count").textContent = `Input ${parameters.get("input")} is not among the ${inputs.length} inputs of this page; runoff report --input ${parameters.get("input")} includes it.`;
    byId("explorer").scrollIntoView({ behavior: "instant" });
  }

  return { start };
})();
