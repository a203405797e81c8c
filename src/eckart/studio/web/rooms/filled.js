// complete, tables of several kinds and time series: what was filled in, how sure that is, and what speaks for it.
import { html } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { datum, number, share } from "../core/format.js";
import { address, change } from "../core/place.js";
import { Bars, Lines } from "../parts/chart.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Choice } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

export function TableRoom({ model, data, view, asked }) {
  const at = asked.pick === undefined ? null : Number(asked.pick);
  if (view === "columns") return html`<${Columns} model=${model} />`;
  if (view === "row") return html`<${Card} title="Pick a row"><${Search} model=${model.file} data=${data} side="rows" label="row, by its id" placeholder="type an id" onPick=${(found) => change({ pick: found.at, why: null })} /><//>
    <${Cells} model=${model} data=${data} at=${at ?? 0} asked=${asked} />`;
  return html`<${RowMap} model=${model} data=${data} asked=${asked} axes=${model.axes?.rows ?? []} colours=${model.colour?.rows ?? []} picked=${at === null ? [] : [at]} onPick=${(next) => change({ pick: next, why: null })}>
    ${at !== null && html`<${Cells} model=${model} data=${data} at=${at} asked=${asked} />`}<//>`;
}

function Columns({ model }) {
  const answer = useGet("table", { file: model.file });
  return html`<${Card} title="Columns"><${Answer} of=${answer} lines=${6}>${(got) => html`<p class="soft small">${got.meaning}</p>
    <div class="wide" tabindex="0" role="region" aria-label="columns"><table class="plain"><caption class="hidden-words">columns of the table</caption><thead><tr><th scope="col">column</th><th scope="col">kind</th><th scope="col">loss</th><th scope="col" class="n">error</th><th scope="col" class="n">factors alone</th><th scope="col" class="n">mean or commonest</th></tr></thead>
    <tbody>${got.columns.map((one) => html`<tr key=${one.column}><th scope="row">${one.column}</th><td>${one.kind}${one.levels.length > 0 && html` <span class="faint small">${one.levels.slice(0, 6).join(", ")}${one.levels.length > 6 ? ", …" : ""}</span>`}</td><td>${one.loss}</td>
      <td class="n ${one.error !== null && one.error < one.error_plain ? "strong" : ""}">${number(one.error, 3)}</td><td class="n">${number(one.error_factors, 3)}</td><td class="n">${number(one.error_plain, 3)}</td></tr>`)}</tbody></table></div>
    ${got.aside.length > 0 && html`<h3 class="under">Left aside</h3><dl class="pairs">${got.aside.map((one) => html`<div key=${one.column}><dt>${one.column}</dt><dd>${one.reason}</dd></div>`)}</dl>`}`}<//><//>`;
}

/** How sure a cell is filled, in words. */
function sure(cell) {
  if (cell.uncertainty === null) return "–";
  return cell.chance ? `${share(1 - cell.uncertainty)} sure` : `± ${number(cell.uncertainty, 3)}`;
}

const shown = (value) => (typeof value === "number" ? datum(value, 5) : value === null || value === undefined ? "–" : String(value));

function Cells({ model, data, at, asked }) {
  const answer = useGet("table/row", { file: model.file, data, at });
  return html`<${Card} title=${answer.value ? `Row ${answer.value.id ?? at}` : "Row"} aside=${answer.value && html`<span class="faint small">${answer.value.gaps === 1 ? "1 cell is filled in" : `${answer.value.gaps} cells are filled in`}</span>`}><${Answer} of=${answer} lines=${6}>${(got) => html`
    <div class="wide" tabindex="0" role="region" aria-label="cells of the row"><table class="plain"><caption class="hidden-words">cells of the row</caption><thead><tr><th scope="col">column</th><th scope="col" class="n">in the data</th><th scope="col" class="n">filled in</th><th scope="col" class="n">how sure</th></tr></thead>
    <tbody>${got.cells.map((one) => html`<tr key=${one.column}><th scope="row">${one.explained ? html`<button type="button" class="link" onClick=${() => change({ why: one.column })}>${one.column}</button>` : one.column}</th><td class="n">${shown(one.value)}</td><td class="n strong">${one.gap ? shown(one.filled) : ""}</td><td class="n soft">${one.gap ? sure(one) : ""}</td></tr>`)}</tbody></table></div>
    <p class="small faint">± is one standard deviation of the error. Pick a column to see what speaks for its cell.</p>`}<//><//>
    ${asked.why && html`<${Why} model=${model} data=${data} at=${at} column=${asked.why} />`}`;
}

function Why({ model, data, at, column }) {
  const answer = useGet("table/why", { file: model.file, data, at, column });
  return html`<${Card} title=${`Why ${column}?`}><${Answer} of=${answer}>${(got) => html`<p class="soft small">The other cells of the row make one expect ${shown(got.value)}.</p>
    <${Bars} label="what the other columns say" head=${["column", "share"]} items=${[{ name: "(base)", value: got.base }, ...got.shares.slice(0, 15).map((one) => ({ name: one.column, value: one.share }))]} />`}<//><//>`;
}

export function SeriesRoom({ model, view, asked }) {
  return view === "list" ? html`<${List} model=${model} />` : html`<${One} model=${model} asked=${asked} />`;
}

function One({ model, asked }) {
  const at = Number(asked.pick ?? 0), level = asked.level ?? "0.9";
  const answer = useGet("series/row", { file: model.file, at, level });
  return html`<${Card} title="Which series?"><div class="tools"><${Search} model=${model.file} side="rows" label="series, by its id" placeholder="type an id" onPick=${(found) => change({ pick: found.at })} />
      <${Choice} label="interval" value=${level} options=${[["0.5", "50 %"], ["0.9", "90 %"], ["0.99", "99 %"]]} onChoose=${(key) => change({ level: key === "0.9" ? null : key })} /></div><//>
    <${Card} title=${answer.value ? `Series ${answer.value.id ?? at}` : "Series"}><${Answer} of=${answer} lines=${6}>${(got) => html`<${Curves} got=${got} />`}<//><//>`;
}

function Curves({ got }) {
  const points = (values, first) => values.map((value, i) => [first + i, value ?? NaN]);
  const end = got.first + got.times.length, ahead = got.ahead ?? { mean: [], low: [], high: [], times: [] };
  const joined = (seen, later) => [...points(seen, got.first), ...points(later, end)];
  const gaps = got.times.map((time, i) => ({ time, i })).filter(({ i }) => got.seen[i] === null);
  const lines = [
    { name: "expected", points: joined(got.expected, ahead.mean) },
    { name: "low", points: joined(got.low, ahead.low), soft: true },
    { name: "high", points: joined(got.high, ahead.high), soft: true },
    { name: "seen", points: points(got.seen, got.first), colour: "var(--ink)" },
  ];
  return html`<${Lines} label="the series" height=${280} lines=${lines} xName="time, by position" yName=${`seen (dark), expected, and its ${share(Number(got.level))} interval (dashed)`} />
    <p class="small faint">${number(gaps.length)} of ${number(got.times.length)} times are filled in${ahead.mean.length ? `; the last ${ahead.mean.length} are a forecast` : ""}.</p>
    <details><summary>the cells that are filled in</summary><div class="wide" tabindex="0" role="region" aria-label="filled cells"><table class="plain"><caption class="hidden-words">filled cells</caption><thead><tr><th scope="col">time</th><th scope="col" class="n">expected</th><th scope="col" class="n">from</th><th scope="col" class="n">to</th></tr></thead><tbody>
    ${gaps.slice(0, 200).map(({ time, i }) => html`<tr key=${i}><th scope="row">${String(time)}</th><td class="n">${number(got.expected[i])}</td><td class="n">${number(got.low[i])}</td><td class="n">${number(got.high[i])}</td></tr>`)}
    ${ahead.times.map((time, i) => html`<tr key=${`ahead${i}`}><th scope="row">${String(time)} <span class="faint small">forecast</span></th><td class="n">${number(ahead.mean[i])}</td><td class="n">${number(ahead.low[i])}</td><td class="n">${number(ahead.high[i])}</td></tr>`)}</tbody></table></div></details>`;
}

function List({ model }) {
  const answer = useGet("series", { file: model.file });
  return html`<${Card} title="Series"><${Answer} of=${answer} lines=${6}>${(got) => html`<p class="soft small">${number(got.series_total)} series of ${number(got.times)} times${got.period > 1 ? `, with a period of ${got.period}` : ", without a period"}.</p>
    <div class="wide" tabindex="0" role="region" aria-label="series"><table class="plain"><caption class="hidden-words">series</caption><thead><tr><th scope="col">series</th><th scope="col" class="n">seen</th><th scope="col" class="n">noise</th></tr></thead>
    <tbody>${got.series.slice(0, 500).map((one) => html`<tr key=${one.at}><th scope="row"><a href=${address(["model", model.file, "series"], { pick: one.at })}>${one.id}</a></th><td class="n">${share(one.seen / got.times)}</td><td class="n">${number(one.noise, 3)}</td></tr>`)}</tbody></table></div>`}<//><//>`;
}
