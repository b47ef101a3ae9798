"use strict";
// DOM helpers: nodes whose text is never parsed as HTML, and charts that follow the width of their container.
const Dom = (() => {
  const number = new Intl.NumberFormat("en").format; // much faster than toLocaleString
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

  // Build a long table when its details element is opened.
  function lazily(place, make) {
    const details = place.closest("details"), fill = () => { if (details.open) place.replaceChildren(make()); };
    details.ontoggle = fill;
    fill();
  }

  const watched = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.clientWidth !== target.drawnWidth) paint(target);
  });
  function paint(place) {
    place.drawnWidth = place.clientWidth;
    if (place.drawnWidth) place.replaceChildren(place.draw(place.drawnWidth));
  }
  // `draw` returns a chart of a given width; `label` describes it for screen readers.
  function chart(place, label, draw) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
    place.draw = draw;
    paint(place);
    watched.observe(place);
  }

  // Return the JSON of a script element that Python compressed with zlib.
  async function unpacked(id) {
    const text = atob(byId(id).textContent), bytes = new Uint8Array(text.length);
    for (let j = 0; j < bytes.length; j += 1) bytes[j] = text.charCodeAt(j);
    const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter();
    const read = new Response(stream.readable).json();
    await Promise.all([writer.write(bytes), writer.close()]);
    return read;
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = el("textarea", { style: "position:fixed;opacity:0" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  return { byId, el, table, lazily, number, options, chart, unpacked, copied };
})();
