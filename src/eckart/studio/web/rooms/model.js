// A model: its title, the room of its verb, and the evidence beside it.
import { html } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { address, change } from "../core/place.js";
import { Evidence, Verdict } from "../parts/evidence.js";
import { Answer, Card, Select, Tabs, Words } from "../parts/ui.js";
import { CompleteRoom } from "./complete.js";
import { CompareRoom } from "./compare.js";
import { EmbedRoom } from "./embed.js";
import { SeriesRoom, TableRoom } from "./filled.js";
import { MixtureRoom } from "./mixture.js";
import { PartsRoom } from "./parts.js";
import { ReduceRoom } from "./reduce.js";
import { TopicsRoom } from "./topics.js";

const ROOMS = {
  reduce: [ReduceRoom, [["map", "Map"], ["components", "Components"], ["row", "One row"], ["outliers", "Outliers"]]],
  network: [ReduceRoom, [["map", "Map"], ["components", "Components"], ["row", "One row"], ["outliers", "Outliers"]]],
  complete: [CompleteRoom, [["recommend", "Recommend and what-if"], ["predict", "Predict"], ["map", "Map"], ["similar", "Alike"], ["errors", "Errors by support"], ["coverage", "Coverage"]]],
  topics: [TopicsRoom, [["topics", "Topics"], ["documents", "Documents"], ["map", "Map of documents"]]],
  mixture: [MixtureRoom, [["map", "Map"], ["components", "Components"]]],
  parts: [PartsRoom, [["parts", "Parts"], ["topics", "As topics"], ["row", "One row"], ["map", "Map"]]],
  table: [TableRoom, [["columns", "Columns"], ["row", "One row"], ["map", "Map of rows"]]],
  series: [SeriesRoom, [["series", "Series"], ["list", "All series"]]],
  embed: [EmbedRoom, [["map", "Map and neighbours"], ["questions", "Analogies"], ["compare", "Two models"]]],
};

/** What a view needs of the model's abilities; what is absent here is always offered. */
const NEEDS = { components: "loadings", columns: "columns", series: "series", list: "series", row: ["reconstruct", "cells"], outliers: "outliers", recommend: "recommend", predict: "predict", similar: "similar", errors: "support", coverage: "coverage", documents: "documents", compare: "neighbours", questions: "analogy", topics: "topics", parts: "parts" };

export function ModelRoom({ file, view, asked, files }) {
  const answer = useGet("model", { file, data: asked.data });
  return html`<${Answer} of=${answer} lines=${6} waiting=${`opening ${file}`}>${(model) => html`<${Inside} model=${model} view=${view} asked=${asked} files=${files} />`}<//>`;
}

function Inside({ model, view, asked, files }) {
  const [Room, all] = ROOMS[model.room] ?? [null, []];
  const data = asked.data ?? model.data ?? undefined;
  const can = new Set(model.can ?? []);
  const tabs = all.filter(([key]) => !(key === "topics" && model.room === "parts" && (model.images || !can.has("documents")))).filter(([key]) => (key === "components" && model.room === "mixture") || (key === "map" ? can.has("map") : !NEEDS[key] || [NEEDS[key]].flat().some((one) => can.has(one))));
  const chosen = tabs.some(([key]) => key === view) ? view : tabs[0]?.[0];
  return html`<div class="room">
    <header class="room-head"><div><p class="kicker">${model.verb} · ${model.class}</p><h1>${model.file.replace(/\.safetensors$/, "")}</h1><p class="soft">${model.title}</p></div>
      <div class="room-acts"><${Verdict} certificate=${model.certificate} />${model.job && html`<a class="button small-button" href=${address(["jobs", model.job])}>Its job</a>`}<a class="button small-button" href=${`/api/download?file=${encodeURIComponent(model.file)}`}>Download</a></div></header>
    <${Fitted} model=${model} data=${data} />
    ${model.data_differs && html`<${Words} kind="bad" title="The data differ">${model.data_differs}.<//>`}
    ${model.map_refused && all.some(([key]) => key === "map") && !can.has("map") && html`<${Words}>There is no map: ${model.map_refused}<//>`}
    ${tabs.length > 1 && html`<${Tabs} label="views of the model" tabs=${tabs} chosen=${chosen} path=${["model", model.file]} />`}
    <div class="with-evidence">
      <div class="stack fade">${Room && chosen ? (chosen === "compare" ? html`<${CompareRoom} model=${model} asked=${asked} files=${files} />` : html`<${Room} key=${chosen} model=${model} data=${data} view=${chosen} asked=${asked} can=${can} />`) : html`<${Facts} model=${model} />`}</div>
      <${Evidence} model=${model} />
    </div></div>`;
}

/** Which file the rows come from, where the model does not know it for sure. */
function Fitted({ model, data }) {
  const options = [...new Set([model.data, ...(model.data_candidates ?? [])].filter(Boolean))];
  if (!model.can || model.data_sure || !options.length) return null;
  return html`<div class="fitted"><${Select} label="rows are read from" value=${data ?? ""} options=${[...(data ? [] : [["", "choose a file"]]), ...options.map((one) => [one, one])]} onChoose=${(one) => change({ data: one, pick: null, lasso: null, v: null })} />
    <p class="small faint">The model file does not say which file it was fitted to; this one has the same columns.</p></div>`;
}

function Facts({ model }) {
  return html`<${Card} title="This model"><dl class="pairs">${(model.facts ?? []).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${!model.can?.length && html`<${Words}>To look at its rows, put the file it was fitted to into this folder.<//>`}<//>`;
}
