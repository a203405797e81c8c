// explain, parts: what non-negative rows are added up from, as pictures where rows are images.
import { html } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { share } from "../core/format.js";
import { change } from "../core/place.js";
import { Bars } from "../parts/chart.js";
import { Picture } from "../parts/picture.js";
import { Answer, Card } from "../parts/ui.js";
import { ReduceRoom } from "./reduce.js";
import { TopicsRoom } from "./topics.js";

export function PartsRoom({ model, data, view, asked, can }) {
  if (view === "topics") return html`<${TopicsRoom} model=${model} data=${data} view="topics" asked=${asked} />`;
  if (view === "map" || view === "row") return html`<${ReduceRoom} model=${model} data=${data} view=${view} asked=${asked} can=${can} />`;
  return html`<${Parts} model=${model} asked=${asked} />`;
}

function Parts({ model, asked }) {
  const answer = useGet("parts", { file: model.file, n: 20 });
  return html`<${Answer} of=${answer} lines=${6}>${(got) => {
    const chosen = got.parts.find((one) => String(one.number) === asked.part) ?? got.parts[0];
    return html`<div class="stack"><${Card} title="Parts" aside=${html`<span class="faint small">in the order of their share</span>`}>
      <ul class="gallery">${got.parts.map((one) => html`<li key=${one.number}><button type="button" class="tile ${one === chosen ? "on" : ""}" aria-pressed=${one === chosen} aria-label=${`part ${one.number}, ${share(one.share)}`} onClick=${() => change({ part: one.number })}>
        ${got.image && one.values ? html`<${Picture} values=${one.values} height=${got.image.height} width=${got.image.width} size=${76} label=${`part ${one.number}`} />` : html`<span class="tile-words small">${one.columns.slice(0, 3).map((column) => column.column).join(", ")}</span>`}
        <span class="small">${one.number} <span class="faint">${share(one.share)}</span></span></button></li>`)}</ul><//>
      <${Card} title=${`Part ${chosen.number}`} aside=${html`<span class="soft">${share(chosen.share)}</span>`}><div class="beside">${got.image && chosen.values && html`<${Picture} values=${chosen.values} height=${got.image.height} width=${got.image.width} size=${220} label=${`part ${chosen.number}, enlarged`} />`}
        <${Bars} label=${`columns of part ${chosen.number}`} head=${["column", "weight"]} items=${chosen.columns.slice(0, 15).map((one) => ({ name: one.column, value: one.value }))} /></div><//></div>`;
  }}<//>`;
}
