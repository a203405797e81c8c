"use strict";
// Everything here is an addition: without it the page shows the same pictures and tables.
function element(tag, options, parent) {
  const made = Object.assign(document.createElement(tag), options);
  if (parent) parent.append(made);
  return made;
}

function number(text) {
  const found = parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(found) ? null : found;
}

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((cell, at) => {
    if (!cell.textContent) return;
    cell.className = "sorts";
    cell.tabIndex = 0;
    let up = true;
    const sort = () => {
      const key = (row) => (row.cells[at] ? row.cells[at].textContent : "");
      const order = (a, b) => {
        const [x, y] = [number(key(a)), number(key(b))];
        if (x !== null && y !== null) return x - y;
        return key(a).localeCompare(key(b));
      };
      const rows = [...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
      up = !up;
      body.append(...rows);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "descending" : "ascending");
    };
    cell.addEventListener("click", sort);
    cell.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

for (const box of document.querySelectorAll(".search")) {
  const field = element("input", { type: "search", placeholder: "search this table", ariaLabel: "search this table" });
  box.prepend(field);
  field.addEventListener("input", () => {
    const word = field.value.toLowerCase();
    for (const row of box.querySelector("tbody").rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  });
}

for (const figure of document.querySelectorAll("figure[data-marks]")) {
  const marks = JSON.parse(figure.dataset.marks);
  const frame = figure.querySelector(".frame");
  const pane = frame.querySelector(".pane");
  const tip = element("div", { className: "tip", hidden: true }, frame);
  let scale = 1, left = 0, top = 0, drag = null;
  const place = () => {
    const box = frame.getBoundingClientRect();
    left = Math.min(0, Math.max(box.width * (1 - scale), left));
    top = Math.min(0, Math.max(box.height * (1 - scale), top));
    pane.style.transform = `translate(${left}px,${top}px) scale(${scale})`;
    frame.classList.toggle("near", scale > 1);
  };
  const zoom = (by, x, y) => {
    const next = Math.min(16, Math.max(1, scale * by));
    left = x - ((x - left) * next) / scale;
    top = y - ((y - top) * next) / scale;
    scale = next;
    place();
  };
  const tools = element("div", { className: "tools" });
  frame.after(tools);
  const middle = (by) => () => zoom(by, frame.clientWidth / 2, frame.clientHeight / 2);
  element("button", { textContent: "+", title: "nearer", ariaLabel: "nearer" }, tools).addEventListener("click", middle(2));
  element("button", { textContent: "−", title: "farther", ariaLabel: "farther" }, tools).addEventListener("click", middle(0.5));
  if (marks.some((mark) => mark[2].includes(":"))) {
    const field = element("input", { type: "search", placeholder: "find a point", ariaLabel: "find a point by name" }, tools);
    field.addEventListener("input", () => {
      for (const dot of pane.querySelectorAll(".dot")) dot.remove();
      const word = field.value.toLowerCase();
      if (!word) return;
      for (const mark of marks.filter((mark) => mark[2].toLowerCase().includes(word)).slice(0, 200)) {
        const dot = element("div", { className: "dot", title: mark[2] }, pane);
        dot.style.left = `${100 * mark[0]}%`;
        dot.style.top = `${100 * mark[1]}%`;
      }
    });
  }
  frame.addEventListener("dblclick", (event) => {
    const box = frame.getBoundingClientRect();
    zoom(2, event.clientX - box.left, event.clientY - box.top);
  });
  frame.addEventListener("pointerdown", (event) => { if (scale > 1) { drag = [event.clientX - left, event.clientY - top]; event.preventDefault(); } });
  window.addEventListener("pointerup", () => { drag = null; });
  frame.addEventListener("pointerleave", () => { tip.hidden = true; });
  frame.addEventListener("pointermove", (event) => {
    if (drag) { left = event.clientX - drag[0]; top = event.clientY - drag[1]; place(); return; }
    const box = frame.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = null, nearest = 14 * 14;
    for (const mark of marks) {
      const dx = left + scale * mark[0] * box.width - x, dy = top + scale * mark[1] * box.height - y;
      if (dx * dx + dy * dy < nearest) { nearest = dx * dx + dy * dy; best = mark; }
    }
    tip.hidden = !best;
    if (!best) return;
    tip.textContent = best[2];
    tip.style.left = `${Math.min(x + 12, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.max(0, y - 28)}px`;
  });
}
