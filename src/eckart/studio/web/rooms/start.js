// Start: what is in the folder, what has been fitted, and a place to drop a file.
import { html, useRef, useState } from "../vendor/preact-htm.js";
import { upload } from "../core/api.js";
import { bytes, counted, number } from "../core/format.js";
import { address, go } from "../core/place.js";
import { Card, Empty, Words } from "../parts/ui.js";
import { JobRows } from "./jobs.js";

export function StartRoom({ folder, jobs, onUploaded }) {
  const models = folder.files.filter((one) => one.kind === "model");
  const data = folder.files.filter((one) => ["data", "folder-of-images", "folder-of-texts"].includes(one.kind));
  return html`<div class="start">
    <header class="room-head"><div><h1>${folder.folder}</h1><p class="soft">${counted(data.length, "data file")}, ${counted(models.length, "model")}. Everything here stays on this machine.</p></div></header>
    <${Drop} onUploaded=${onUploaded} />
    <div class="two">
      <${Card} title="Models" aside=${html`<span class="faint small">look at what was found</span>`}>
        ${models.length ? html`<ul class="rows">${models.map((one) => html`<li key=${one.file}><a class="row-link" href=${address(["model", one.file])}><strong>${one.file.replace(/\.safetensors$/, "")}</strong><span class="faint small">${one.data ? `of ${one.data} · ` : ""}${bytes(one.bytes)} · ${ago(one.changed)}</span></a></li>`)}</ul>`
          : html`<${Empty} title="No model yet">Choose a data file and run one of the four verbs on it.<//>`}
      <//>
      <${Card} title="Data" aside=${html`<span class="faint small">look inside, pick a verb, run it</span>`}>
        ${data.length ? html`<ul class="rows">${data.map((one) => html`<li key=${one.file}><a class="row-link" href=${address(["data", one.file])}><strong>${one.file}</strong><span class="faint small">${one.kind === "data" ? bytes(one.bytes) : one.kind.replaceAll("-", " ")} · ${ago(one.changed)}</span></a></li>`)}</ul>`
          : html`<${Empty} title="No data yet">Drop a file above: .csv, .parquet, .npy, .jsonl, text and more.<//>`}
      <//>
    </div>
    ${folder.more > 0 && html`<p class="faint small">${number(folder.more)} more files are not listed.</p>`}
    ${jobs.length > 0 && html`<${Card} title="Jobs" aside=${html`<a class="small" href="#/jobs">all jobs</a>`}><${JobRows} jobs=${jobs.slice(0, 5)} /><//>`}
  </div>`;
}

function Drop({ onUploaded }) {
  const input = useRef(null);
  const [state, set] = useState({ over: false, busy: null, error: null });
  const take = async (file) => {
    if (!file) return;
    set({ over: false, busy: file.name, error: null });
    try {
      const { file: stored } = await upload(file);
      await onUploaded();
      set({ over: false, busy: null, error: null });
      go(["data", stored]);
    } catch (error) {
      set({ over: false, busy: null, error });
    }
  };
  const over = (event) => { event.preventDefault(); if (!state.over) set({ ...state, over: true }); };
  return html`<div class="drop ${state.over ? "over" : ""}" onDragOver=${over} onDragLeave=${() => set({ ...state, over: false })} onDrop=${(event) => { event.preventDefault(); take(event.dataTransfer.files[0]); }}>
    <div><strong>${state.busy ? `Taking in ${state.busy}…` : "Drop a file here"}</strong><p class="soft small">A table, an array, texts, ratings. It is copied into this folder and nowhere else.</p></div>
    <button type="button" class="button main" disabled=${Boolean(state.busy)} onClick=${() => input.current.click()}>Choose a file</button>
    <input ref=${input} type="file" class="hidden-words" tabindex="-1" aria-label="file to take into the folder" onChange=${(event) => take(event.currentTarget.files[0])} />
    ${state.error && html`<${Words} kind="bad">${state.error.message}<//>`}
  </div>`;
}

function ago(changed) {
  const passed = Date.now() / 1000 - changed;
  if (passed < 90) return "just now";
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 129600) return `${Math.round(passed / 3600)} h ago`;
  return new Date(1000 * changed).toISOString().slice(0, 10);
}
