// The small things every room is made of.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { address, change } from "../core/place.js";

let counter = 0;
export function useName(prefix) {
  const name = useRef(null);
  if (name.current === null) name.current = `${prefix}-${(counter += 1)}`;
  return name.current;
}

export function Card({ title, aside, children, className = "", quiet = false }) {
  const id = useName("card");
  return html`<section class="card ${quiet ? "flat" : ""} ${className}" aria-labelledby=${title ? id : undefined}>
    ${title && html`<header class="card-head"><h2 id=${id}>${title}</h2>${aside && html`<div class="card-aside">${aside}</div>`}</header>`}
    ${children}
  </section>`;
}

/** What an answer looks like before it is there, and when it is a problem; `children` is a function of the value. */
export function Answer({ of, children, lines = 3, waiting }) {
  if (of.error) return html`<${Words} kind="bad" title="That did not work">${of.error.message}<//>`;
  if (of.value === null || of.value === undefined) {
    if (!of.busy) return null;
    return html`<div class="waiting" role="status"><span class="hidden-words">${waiting ?? "loading"}</span>
      ${Array.from({ length: lines }, (_, i) => html`<span class="bone" key=${i}></span>`)}</div>`;
  }
  return html`<div class=${of.busy ? "flow stale" : "flow"} aria-busy=${of.busy}>${children(of.value)}</div>`;
}

export function Words({ kind = "note", title, children }) {
  return html`<div class="words ${kind}" role=${kind === "bad" ? "alert" : undefined}>${title && html`<strong>${title}</strong>`}<div>${children}</div></div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h3>${title}</h3><p>${children}</p></div>`;
}

/** Views of a room as tabs; the chosen one stands in the address. Arrows move between them. */
export function Tabs({ label, tabs, chosen, path }) {
  const list = useRef(null);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...list.current.querySelectorAll("a")];
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  };
  return html`<nav class="tabs" aria-label=${label} ref=${list} onKeyDown=${move}>
    ${tabs.map(([key, name]) => html`<a key=${key} href=${address([...path, key])} aria-current=${key === chosen ? "page" : undefined}>${name}</a>`)}
  </nav>`;
}

/** A few choices side by side. */
export function Choice({ label, options, value, onChoose, hideLabel = false }) {
  const name = useName("choice");
  return html`<fieldset class="choice"><legend class=${hideLabel ? "hidden-words" : ""}>${label}</legend><div class="choice-row">
    ${options.map(([key, words]) => html`<label key=${key} class=${key === value ? "on" : ""}>
      <input type="radio" name=${name} checked=${key === value} onChange=${() => onChoose(key)} />${words}</label>`)}
  </div></fieldset>`;
}

export function Select({ label, value, options, onChoose, hideLabel = false }) {
  const name = useName("select");
  return html`<div class="field"><label for=${name} class=${hideLabel ? "hidden-words" : ""}>${label}</label>
    <select id=${name} value=${value ?? ""} onChange=${(event) => onChoose(event.currentTarget.value)}>
      ${options.map(([key, words]) => html`<option key=${key} value=${key} selected=${key === (value ?? "")}>${words}</option>`)}
    </select></div>`;
}

export function Copy({ text, words }) {
  const [state, set] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set("copied");
    } catch {
      set("select the text and copy it by hand: this browser does not allow it");
    }
    setTimeout(() => set(""), 2500);
  };
  return html`<button class="button small-button" type="button" onClick=${copy}>${state === "copied" ? "Copied" : words}</button>
    <span role="status" class="hidden-words">${state}</span>`;
}

/** A text that is asked for after a pause in the typing. */
export function useSlow(value, wait = 180) {
  const [slow, set] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => set(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return slow;
}

/** A number in a range, in the address after a pause. */
export function Slider({ label, value, min, max, step = 1, onChange, shown = String }) {
  return html`<label class="slider"><span>${label}</span>
    <input type="range" min=${min} max=${max} step=${step} value=${value} onInput=${(event) => onChange(Number(event.currentTarget.value))} />
    <output>${shown(value)}</output></label>`;
}

export function useSize() {
  const box = useRef(null);
  const [size, set] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      set((before) => (before.width === width && before.height === height ? before : { width, height }));
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, size];
}

export function Dot({ colour }) {
  return html`<span class="dot" style=${{ background: colour }} aria-hidden="true"></span>`;
}

/** A share as a bar behind its number. */
export function Meter({ value, of = 1, colour }) {
  return html`<span class="meter" aria-hidden="true"><span style=${{ width: `${Math.max(0, Math.min(100, (100 * value) / of))}%`, background: colour }}></span></span>`;
}

export { change };
