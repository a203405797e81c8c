// A table of any length: only the rows in sight are in the page; pages of rows are asked for as they come near.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { datum, number } from "../core/format.js";

const ROW = 30;
const PAGE = 200;
const SCROLLBAR = 16; // room for a bar below wide tables
const TALLEST = 8000000; // pixels: browsers stop near 17 M, so very long tables are scrolled by proportion

/**
 * page(first, count, signal) answers {total, columns, rows, at}; `what` says when the rows are other ones. onPick(at, row) makes rows buttons.
 * Sorting is done by the server: sort {column, down}, onSort(column).
 */
export function LongTable({ page, what, label, onPick, picked, sort, onSort, height = 330 }) {
  const frame = useRef(null);
  const [top, setTop] = useState(0);
  const [state, set] = useState({ total: null, columns: [], pages: new Map(), error: null });
  const live = useRef(null);
  useEffect(() => {
    live.current = { asked: new Set(), stop: new AbortController(), what };
    set({ total: null, columns: [], pages: new Map(), error: null });
    if (frame.current) frame.current.scrollTop = 0;
    setTop(0);
    need(0);
    return () => live.current.stop.abort();
  }, [what]);
  const need = (number) => {
    const mine = live.current;
    if (mine.asked.has(number)) return;
    mine.asked.add(number);
    page(number * PAGE, PAGE, mine.stop.signal).then(
      (got) => mine === live.current && set((before) => ({ total: got.total, columns: got.columns, pages: kept(before.pages, number, got), error: null })),
      (error) => {
        mine.asked.delete(number);
        if (mine === live.current && error.name !== "AbortError") set((before) => ({ ...before, error }));
      },
    );
  };
  const total = state.total ?? 0;
  const shown = Math.floor(height / ROW) - 1; // and one line for the head
  const tall = Math.min(TALLEST, total * ROW), room = Math.max(1, tall - shown * ROW), last = Math.max(0, total - shown);
  const first = Math.min(last, tall < total * ROW ? Math.round((top / room) * last) : Math.round(top / ROW));
  useEffect(() => {
    if (state.total === null) return;
    for (const number of new Set([first, first + shown].map((row) => Math.floor(Math.min(row, total - 1) / PAGE)))) if (number >= 0) need(number);
  }, [first, state.total, what]);
  const rows = [];
  for (let i = first; i < Math.min(total, first + shown); i += 1) {
    const got = state.pages.get(Math.floor(i / PAGE));
    rows.push({ i, cells: got?.rows[i % PAGE], at: got?.at?.[i % PAGE] ?? i });
  }
  const numeric = state.columns.map((_, c) => rows.some(({ cells }) => typeof cells?.[c] === "number"));
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: shown - 1, PageUp: 1 - shown, Home: -total, End: total }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(last, first + step));
    frame.current.scrollTop = step === total ? tall : tall < total * ROW ? (to / Math.max(1, last)) * room : to * ROW;
  };
  return html`<div class="long-table" ref=${frame} style=${{ height: `${Math.min(height, Math.max(3, total + 1) * ROW + SCROLLBAR)}px` }} tabindex="0" role="region" aria-label=${label} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${key}>
    ${state.error && html`<div class="words bad" role="alert">${state.error.message}</div>`}
    <div class="long-space" style=${{ height: `${tall + ROW + SCROLLBAR}px` }}>
      <table aria-rowcount=${total + 1}><caption class="hidden-words">${label}, ${number(total)} rows</caption>
        <thead><tr aria-rowindex="1">${state.columns.map((name, c) => html`<th key=${name} scope="col" class=${numeric[c] ? "n" : ""} aria-sort=${sort?.column === name ? (sort.down ? "descending" : "ascending") : undefined}>
          ${onSort ? html`<button type="button" class="link" onClick=${() => onSort(name)}>${name}${sort?.column === name ? (sort.down ? " ↓" : " ↑") : ""}</button>` : name}</th>`)}</tr></thead>
        <tbody>${rows.map(({ i, cells, at }) => html`<tr key=${i} aria-rowindex=${i + 2} class=${picked !== undefined && picked === at ? "picked" : ""}>
          ${(cells ?? state.columns.map(() => "…")).map((cell, c) => html`<td key=${c} class=${numeric[c] ? "n" : ""}>${c === 0 && onPick && cells ? html`<button type="button" class="link" onClick=${() => onPick(at, cells)}>${shownCell(cell)}</button>` : shownCell(cell)}</td>`)}</tr>`)}</tbody>
      </table></div>
  </div>`;
}

function shownCell(cell) {
  if (cell === null || cell === undefined) return html`<span class="faint">–</span>`;
  return typeof cell === "number" ? datum(cell, 5) : String(cell);
}

/** The pages near the last one asked for; far ones are let go, so that scrolling through a million rows keeps memory flat. */
function kept(pages, number, got) {
  const next = new Map([...pages].filter(([key]) => Math.abs(key - number) < 12));
  next.set(number, got);
  return next;
}
