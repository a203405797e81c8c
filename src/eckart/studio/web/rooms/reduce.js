// reduce: the map of rows, components and what they are made of, one row rebuilt from k components, and rows that do not fit.
import { html, useState } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { DIVERGING } from "../core/colours.js";
import { datum, number, share } from "../core/format.js";
import { address, change, go } from "../core/place.js";
import { Bars, Lines } from "../parts/chart.js";
import { Picture } from "../parts/picture.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Empty, Select, Slider, useSlow } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

export function ReduceRoom({ model, data, view, asked, can }) {
  if (view === "components") return html`<${Components} model=${model} asked=${asked} />`;
  if (view === "row") return html`<${Row} model=${model} data=${data} asked=${asked} />`;
  if (view === "outliers") return html`<${Outliers} model=${model} data=${data} />`;
  const at = asked.pick === undefined ? null : Number(asked.pick);
  return html`<${RowMap} model=${model} data=${data} asked=${asked} axes=${model.axes?.rows ?? []} colours=${model.colour?.rows ?? []} usual=${{ by: firstClass(model) }}
      picked=${at === null ? [] : [at]} onPick=${(next) => change({ pick: next })}>
      ${at !== null && can.has("reconstruct") && html`<${Rebuilt} model=${model} data=${data} at=${at} asked=${asked} link=${true} />`}<//>`;
}

/** A column of the data that is no component: what people want to see on a map first. */
function firstClass(model) {
  return (model.colour?.rows ?? []).find((name) => /class|label|kind|species|digit|category|target/i.test(name) && !name.startsWith("component:"));
}

function Components({ model, asked }) {
  const chosen = Number(asked.number ?? 1);
  const answer = useGet("reduce/components", { file: model.file });
  const loadings = useGet("reduce/loadings", { file: model.file, number: chosen, n: 40 });
  return html`<${Card} title="How much each component keeps"><${Answer} of=${answer}>${({ components, total }) => html`
      ${components.some((one) => one.cumulative !== null) && html`<${Lines} label="share of the variance kept" height=${200} whole=${true} lines=${[{ points: components.map((one) => [one.number, 100 * one.cumulative]) }, { points: components.map((one) => [one.number, 100 * one.share]), soft: true }]} xName="components" yName="% of the variance: together, and each" />`}
      <p class="small faint">total variance ${number(total)}</p>`}<//><//>
    <${Card} title=${`Component ${chosen}`} aside=${html`<${Answer} of=${answer} lines=${1}>${({ components }) => html`<${Select} label="component" hideLabel=${true} value=${String(chosen)} options=${components.map((one) => [String(one.number), `component ${one.number}${one.share === null ? "" : ` · ${share(one.share)}`}`])} onChoose=${(key) => change({ number: key })} />`}<//>`}>
      <${Answer} of=${loadings}>${(got) => html`<div class="beside">
        ${got.image && html`<figure><${Picture} values=${got.image.values} height=${got.image.height} width=${got.image.width} signed=${true} size=${220} label=${`component ${chosen} as a picture`} /><figcaption class="small faint">blue below zero, orange above</figcaption></figure>`}
        <${Bars} label=${`loadings of component ${chosen}`} head=${["column", "loading"]} items=${got.loadings.slice(0, 20).map((one) => ({ name: one.column, value: one.value, colour: one.value < 0 ? DIVERGING[1] : DIVERGING[5] }))} /></div>`}<//><//>
    ${model.images && html`<${Gallery} model=${model} chosen=${chosen} />`}`;
}

/** Many components as pictures. */
function Gallery({ model, chosen }) {
  const count = Math.min(24, model.components);
  return html`<${Card} title="Components as pictures"><ul class="gallery">${Array.from({ length: count }, (_, i) => html`<li key=${i}><button type="button" class="tile ${i + 1 === chosen ? "on" : ""}" aria-pressed=${i + 1 === chosen} aria-label=${`component ${i + 1}`} onClick=${() => change({ number: i + 1 })}><${Thumb} model=${model} number=${i + 1} /><span class="small">${i + 1}</span></button></li>`)}</ul><//>`;
}

function Thumb({ model, number: which }) {
  const answer = useGet("reduce/loadings", { file: model.file, number: which, n: 1 });
  const image = answer.value?.image;
  return image ? html`<${Picture} values=${image.values} height=${image.height} width=${image.width} signed=${true} size=${64} label=${`component ${which}`} />` : html`<span class="bone square"></span>`;
}

function Row({ model, data, asked }) {
  const at = Number(asked.pick ?? 0);
  return html`<${Card} title="Pick a row"><${Search} model=${model.file} data=${data} side="rows" label="row, by its id" placeholder="type an id" onPick=${(found) => change({ pick: found.at })} />
      <p class="small faint">Or click a point on the <a href=${address(["model", model.file, "map"], asked)}>map</a>.</p><//>
    <${Rebuilt} model=${model} data=${data} at=${at} asked=${asked} />`;
}

/** A row as it is and as k components say it is. */
function Rebuilt({ model, data, at, asked, link = false }) {
  const [k, setK] = useState(Number(asked.k ?? model.components));
  const slow = useSlow(k, 60);
  const answer = useGet("reduce/row", { file: model.file, data, at, k: slow });
  const choose = (value) => { setK(value); change({ k: value }, { replace: true }); };
  return html`<${Card} title=${answer.value ? `Row ${answer.value.id ?? at}` : "Row"} aside=${link && html`<a class="small" href=${address(["model", model.file, "row"], { data: asked.data, pick: at, k })}>on its own page</a>`}>
    <${Slider} label="components used" value=${k} min=${0} max=${model.components} onChange=${choose} />
    <${Answer} of=${answer}>${(got) => html`<${Compared} got=${got} k=${slow} />`}<//>
    ${answer.value && html`<${Near} model=${model} data=${data} at=${at} />`}<//>`;
}

function Compared({ got, k }) {
  const curve = html`<${Lines} label="error of the row by number of components" height=${150} whole=${true} lines=${[{ points: got.errors.map((value, i) => [i, value]) }]} xName="components" yName="root mean square error" />`;
  if (got.image) {
    const range = got.values.reduce(([low, high], value) => (value === null ? [low, high] : [Math.min(low, value), Math.max(high, value)]), [Infinity, -Infinity]);
    const difference = got.values.map((value, i) => (value === null ? null : value - got.reconstruction[i]));
    const shape = { height: got.image.height, width: got.image.width, size: 168 };
    return html`<div class="pictures"><figure><${Picture} values=${got.values} ...${shape} range=${range} label="the row" /><figcaption>the row</figcaption></figure>
      <figure><${Picture} values=${got.reconstruction} ...${shape} range=${range} label=${`rebuilt from ${k} components`} /><figcaption>from ${k} components</figcaption></figure>
      <figure><${Picture} values=${difference} ...${shape} signed=${true} label="difference" /><figcaption>difference, rms ${number(got.error, 3)}</figcaption></figure></div>${curve}`;
  }
  const rows = got.columns.map((name, i) => ({ name, value: got.values[i], rebuilt: got.reconstruction[i] })).slice(0, 60);
  return html`<p class="small soft">root mean square error ${number(got.error)}${got.columns_total > got.columns.length ? `; the ${got.columns.length} of ${number(got.columns_total)} columns that differ most` : ""}</p>${curve}
    <div class="wide" tabindex="0" role="region" aria-label="values"><table class="plain"><caption class="hidden-words">the row and its reconstruction</caption><thead><tr><th scope="col">column</th><th scope="col" class="n">value</th><th scope="col" class="n">rebuilt</th><th scope="col" class="n">difference</th></tr></thead>
    <tbody>${rows.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td class="n">${datum(one.value)}</td><td class="n">${number(one.rebuilt)}</td><td class="n">${one.value === null ? "–" : number(one.value - one.rebuilt, 3)}</td></tr>`)}</tbody></table></div>`;
}

function Near({ model, data, at }) {
  const answer = useGet("model/neighbours", { file: model.file, data, side: "rows", at, n: 8 });
  return html`<h3 class="under">Nearest rows</h3><${Answer} of=${answer}>${(got) => html`<ul class="chips">${got.neighbours.map((one) => html`<li key=${one.at}><button type="button" class="chip" onClick=${() => change({ pick: one.at })}>${one.title ?? one.id ?? one.at} <span class="faint">${number(-one.score, 3)}</span></button></li>`)}</ul>`}<//>`;
}

function Outliers({ model, data }) {
  const answer = useGet("reduce/outliers", { file: model.file, data, n: 50 });
  return html`<${Card} title="Rows that do not fit"><${Answer} of=${answer}>${(got) => (got.outliers.length ? html`<p class="soft small">${got.meaning}</p>
    <div class="wide" tabindex="0" role="region" aria-label="outliers"><table class="plain"><caption class="hidden-words">rows that fit worst</caption><thead><tr><th scope="col">row</th><th scope="col" class="n">off the subspace</th><th scope="col" class="n">far out within it</th><th scope="col" class="n">score</th></tr></thead>
    <tbody>${got.outliers.map((one) => html`<tr key=${one.at}><th scope="row"><button type="button" class="link" onClick=${() => go(["model", model.file, "row"], { data, pick: one.at })}>${one.id ?? one.at}</button></th>
      <td class="n ${one.residual > got.limits.residual ? "strong" : ""}">${number(one.residual, 3)}</td><td class="n ${one.inside > got.limits.inside ? "strong" : ""}">${number(one.inside, 3)}</td><td class="n">${number(one.score, 3)}</td></tr>`)}</tbody></table></div>
    <p class="faint small">usual up to ${number(got.limits.residual, 3)} and ${number(got.limits.inside, 3)}; beyond it in bold${got.beyond === undefined ? "" : `: ${number(got.beyond)} rows in all`}</p>` : html`<${Empty} title="None">Every row is as near as usual.<//>`)}<//><//>`;
}
