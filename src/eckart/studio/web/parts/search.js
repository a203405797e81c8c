// One field that finds a row, a column or a word by id or title: a combobox after the ARIA pattern, answers by the server.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { number } from "../core/format.js";
import { useName, useSlow } from "./ui.js";

export function Search({ model, data, side, label, placeholder, onPick, value = "", clear = false }) {
  const [text, setText] = useState(null);
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const name = useName("search");
  const asked = useSlow(text ?? "");
  const answer = useGet(open ? "model/search" : null, { file: model, data, side, text: asked, n: 12 });
  const found = answer.value?.found ?? [];
  const fresh = open && !answer.busy && asked === (text ?? "");
  const [eager, setEager] = useState(false); // Enter was pressed before the answer to what was typed
  const pick = (item) => {
    if (!item) return;
    setText(clear ? "" : null);
    setOpen(false);
    onPick(item);
  };
  useEffect(() => setActive(0), [answer.value]); // the list is another one
  useEffect(() => {
    if (!eager || !fresh) return;
    setEager(false);
    pick(found[0]);
  }, [eager, fresh]);
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      setActive((active + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter" && open) {
      event.preventDefault();
      if (fresh) pick(found[active]);
      else setEager(true);
    } else if (event.key === "Escape") {
      setOpen(false);
      setText(null);
      setEager(false);
    }
  };
  return html`<div class="search"><label class="field" for=${name}><span>${label}</span></label>
    <input id=${name} type="search" role="combobox" autocomplete="off" spellcheck=${false} aria-expanded=${open} aria-controls=${`${name}-list`} aria-autocomplete="list"
      aria-activedescendant=${open && found.length ? `${name}-${active}` : undefined} placeholder=${placeholder} value=${text ?? value}
      onInput=${(event) => { setText(event.currentTarget.value); setOpen(true); setActive(0); setEager(false); }}
      onFocus=${(event) => { event.currentTarget.select(); setOpen(true); setActive(0); }} onBlur=${() => setTimeout(() => setOpen(false), 150)} onKeyDown=${key} />
    ${open && html`<ul class="found" id=${`${name}-list`} role="listbox" aria-label=${label}>
      ${found.map((item, i) => html`<li key=${item.at} id=${`${name}-${i}`} role="option" aria-selected=${i === active} onMouseDown=${() => pick(item)} onMouseMove=${() => setActive(i)}>
        <span class="found-name">${item.title ?? item.id}</span>${item.title && item.title !== item.id && html`<span class="faint small">${item.id}</span>`}
        ${(item.observations ?? item.count) !== undefined && (item.observations ?? item.count) !== null && html`<span class="faint small n">${number(item.observations ?? item.count)}</span>`}</li>`)}
      ${!answer.busy && !found.length && html`<li class="faint none" role="option" aria-disabled="true" aria-selected="false">${answer.error ? answer.error.message : "nothing found"}</li>`}
    </ul>`}
  </div>`;
}
