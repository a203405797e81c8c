// complete: recommendations and what-if, predictions with intervals, errors by support, coverage.
import { html, useState } from "../vendor/preact-htm.js";
import { useGet, usePost } from "../core/api.js";
import { counted, number, share } from "../core/format.js";
import { change } from "../core/place.js";
import { Bars, Lines } from "../parts/chart.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Choice, Empty } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

export function CompleteRoom({ model, data, view, asked, can }) {
  if (view === "predict") return html`<${Predict} model=${model} asked=${asked} />`;
  if (view === "errors") return html`<${Errors} model=${model} />`;
  if (view === "coverage") return html`<${Coverage} model=${model} />`;
  if (view === "similar") return html`<${Alike} model=${model} asked=${asked} />`;
  if (view === "map") return html`<${Places} model=${model} data=${data} asked=${asked} />`;
  return html`<${Recommend} model=${model} asked=${asked} can=${can} />`;
}

const words = (model) => ({ rows: "row", columns: "column", values: "value", ...model.names });

/** Ratings changed or added, kept in the address as column~value, in pairs joined by "|"; "x" takes one away. */
function changes(text) {
  return (text ?? "").split("|").filter(Boolean).map((pair) => {
    const cut = pair.lastIndexOf("~");
    const value = pair.slice(cut + 1);
    return { column: pair.slice(0, cut), value: value === "x" ? null : Number(value) };
  });
}
const written = (list) => list.map(({ column, value }) => `${column}~${value === null ? "x" : value}`).join("|");

function Recommend({ model, asked, can }) {
  const names = words(model);
  // an id may be the number 0
  const row = asked.someone ? null : asked.row ?? model.first_row, ratings = changes(asked.what);
  const [why, setWhy] = useState(null);
  const body = { file: model.file, row: row ?? null, ratings: ratings.length ? ratings : null, n: 15, by: asked.by ?? "auto", exclude_seen: asked.seen !== "1", min_support: Number(asked.support ?? 0) };
  const list = usePost(row != null || ratings.some((one) => one.value !== null) ? "complete/recommend" : null, body);
  const own = useGet(row != null ? "complete/row" : null, { file: model.file, id: row, first: 0, count: 100 });
  const set = (column, value) => {
    const rest = ratings.filter((one) => one.column !== String(column));
    change({ what: written(value === undefined ? rest : [...rest, { column: String(column), value }]) || null });
  };
  return html`<${Card} title=${`For which ${names.rows}?`}>
      <div class="tools"><${Search} model=${model.file} side="rows" label=${`${names.rows}, by id or title`} placeholder="search" value=${row ?? ""} onPick=${(found) => { setWhy(null); change({ row: found.id, someone: null, what: null }); }} />
        ${row != null && html`<button type="button" class="quiet" onClick=${() => change({ row: null, someone: 1, what: null })}>someone new instead</button>`}
        <${Choice} label="ranked by" value=${asked.by ?? "auto"} options=${[["auto", "best for lists"], ["prediction", "prediction"]]} onChoose=${(key) => change({ by: key === "auto" ? null : key })} />
        <label class="inline"><input type="checkbox" checked=${asked.seen === "1"} onChange=${(event) => change({ seen: event.currentTarget.checked ? 1 : null })} />also what is known already</label></div>
    <//>
    <div class="two">
      <${Known} model=${model} names=${names} own=${own} ratings=${ratings} row=${row} onSet=${set} can=${can} />
      <${Card} title="Recommended" aside=${list.value && html`<span class="faint small" role="status">${number(list.value.milliseconds, 2)} ms${ratings.length ? " · with your changes" : ""}</span>`}>
        ${row == null && !ratings.length ? html`<${Empty} title="Nobody is chosen">Pick a ${names.rows}, or rate a few ${names.columns}s as someone new; the list follows at once.<//>` : html`<${Answer} of=${list} lines=${8}>${(got) => html`<${List} got=${got} names=${names} chosen=${why} onWhy=${can.has("why") ? setWhy : null} />`}<//>`}
      <//>
    </div>
    ${why !== null && (row != null || ratings.length > 0) && html`<${Why} model=${model} row=${row} ratings=${ratings} column=${why} names=${names} />`}`;
}

function Known({ model, names, own, ratings, row, onSet, can }) {
  const entries = own.value?.entries ?? [];
  const byColumn = new Map(ratings.map((one) => [one.column, one.value]));
  const added = ratings.filter((one) => one.value !== null && !entries.some((entry) => String(entry.id) === one.column));
  const range = entries.map((entry) => entry.value).concat(added.map((one) => one.value));
  const line = (id, title, value, was, predicted) => html`<tr key=${id} class=${was !== undefined && value !== was ? "changed" : was === undefined ? "changed" : ""}><th scope="row">${title ?? id}</th><td class="n faint">${predicted === undefined ? "" : number(predicted, 3)}</td>
    <td class="n">${can.has("whatif") ? html`<input class="rating" type="number" step="any" aria-label=${`${names.values} of ${title ?? id}`} value=${value ?? ""} placeholder="none" onChange=${(event) => onSet(id, event.currentTarget.value === "" ? null : Number(event.currentTarget.value))} />` : number(value)}</td>
    <td>${(was === undefined || value !== was) && html`<button type="button" class="quiet small-button" onClick=${() => onSet(id, undefined)}>undo</button>`}</td></tr>`;
  return html`<${Card} title="What is known, and what if" aside=${ratings.length > 0 && html`<button type="button" class="quiet small-button" onClick=${() => change({ what: null })}>undo all</button>`}>
    ${can.has("whatif") && html`<${Search} model=${model.file} side="columns" label=${`add a ${names.columns}`} placeholder=${`search a ${names.columns}`} clear=${true} onPick=${(found) => onSet(found.id, middle(range))} />`}
    ${own.value && html`<p class="small soft">${counted(own.value.observations, "entry", "entries")}, mean ${number(own.value.mean, 3)}. Change a number, and the list beside it changes.</p>`}
    ${own.error && html`<p class="bad small">${own.error.message}</p>`}
    ${(added.length > 0 || entries.length > 0) && html`<div class="scroll" tabindex="0" role="region" aria-label="known entries"><table class="plain"><caption class="hidden-words">known entries</caption><thead><tr><th scope="col">${names.columns}</th><th scope="col" class="n">predicted</th><th scope="col" class="n">${names.values}</th><th scope="col"><span class="hidden-words">undo</span></th></tr></thead>
      <tbody>${added.map((one) => line(one.column, null, one.value))}${entries.map((entry) => line(entry.id, entry.title, byColumn.has(String(entry.id)) ? byColumn.get(String(entry.id)) : entry.value, entry.value, entry.predicted))}</tbody></table></div>`}
    ${row == null && !added.length && html`<p class="small faint">Add some ${names.columns}s to see what would be recommended to someone new.</p>`}<//>`;
}

/** Where a new rating starts: the largest that was seen, since people add what they like. */
function middle(values) {
  return values.length ? Math.max(...values) : 5;
}

function List({ got, names, chosen, onWhy }) {
  const known = got.list.flatMap((one) => [one.low, one.high, one.score]).filter((value) => typeof value === "number");
  const least = Math.min(...known), span = Math.max(...known) - least || 1;
  const at = (value) => `${(100 * (value - least)) / span}%`;
  return html`<ol class="ranked">${got.list.map((one) => html`<li key=${one.column} class=${chosen === one.column ? "on" : ""}>
    <span class="rank">${one.rank}</span><span class="what"><span>${one.title ?? one.column}</span><span class="faint small">${one.observations !== null && one.observations !== undefined ? `${number(one.observations)} entries` : ""}${one.low !== null && one.low !== undefined ? ` · ${number(one.low, 3)} to ${number(one.high, 3)}` : ""}</span></span>
    <${Step} before=${one.before} rank=${one.rank} />
    <span class="n score">${number(one.score, 3)}<span class="span-box" aria-hidden="true">${typeof one.low === "number" && html`<span class="span-line" style=${{ left: at(one.low), width: `calc(${at(one.high)} - ${at(one.low)})` }}></span>`}<span class="span-dot" style=${{ left: at(one.score) }}></span></span></span>
    ${onWhy && html`<button type="button" class="quiet small-button" aria-pressed=${chosen === one.column} aria-label=${`why ${one.title ?? one.column}`} onClick=${() => onWhy(one.column)}>why</button>`}</li>`)}</ol>
    <p class="small faint">ranked by ${got.by}</p>`;
}

function Step({ before, rank }) {
  if (before === undefined || before === null || before === rank) return html`<span class="step"></span>`;
  return html`<span class="step ${before > rank ? "good" : "bad"}" title=${`was number ${before}`}>${before > rank ? "↑" : "↓"}${Math.abs(before - rank)}<span class="hidden-words"> places</span></span>`;
}

function Why({ model, row, ratings, column, names }) {
  const answer = usePost("complete/why", { file: model.file, row: row ?? null, column, ratings: ratings.length ? ratings : null, n: 10 });
  return html`<${Card} title=${`Why ${column}?`}><${Answer} of=${answer}>${(got) => html`
    <p class="small soft">prediction ${number(got.prediction, 3)}${got.base !== null && got.base !== undefined ? `, of which ${number(got.base, 3)} before anything the ${names.rows} did` : ""}</p>
    <${Bars} label="what speaks for it and against it" head=${[names.columns, "share"]} items=${got.shares.map((one) => ({ name: one.title ?? one.column, note: one.value === null || one.value === undefined ? "" : `given ${number(one.value)}`, value: one.share, key: one.column }))} />
    ${got.words?.length > 0 && html`<details><summary>in words</summary><ul class="small soft">${got.words.map((line, i) => html`<li key=${i}>${line}</li>`)}</ul></details>`}`}<//><//>`;
}

function Predict({ model, asked }) {
  const row = asked.row ?? model.first_row;
  const names = words(model);
  const columns = (asked.columns ?? "").split("|").filter(Boolean);
  const answer = usePost(row != null && columns.length ? "complete/predict" : null, { file: model.file, rows: [row], columns, level: Number(asked.level ?? 0.9) });
  return html`<${Card} title="Which cells?"><div class="tools">
      <${Search} model=${model.file} side="rows" label=${`${names.rows}, by id or title`} placeholder="search" value=${row ?? ""} onPick=${(found) => change({ row: found.id })} />
      <${Search} model=${model.file} side="columns" label=${`add a ${names.columns}`} placeholder="search" clear=${true} onPick=${(found) => change({ columns: [...new Set([...columns, String(found.id)])].join("|") })} />
      <${Choice} label="interval" value=${asked.level ?? "0.9"} options=${[["0.5", "50 %"], ["0.9", "90 %"], ["0.99", "99 %"]]} onChoose=${(key) => change({ level: key === "0.9" ? null : key })} />
      ${columns.length > 0 && html`<button type="button" class="quiet" onClick=${() => change({ columns: null })}>clear</button>`}</div><//>
    <${Card} title="Predictions">${row == null || !columns.length ? html`<${Empty} title="No cell is chosen">Pick a ${names.rows} and one or more ${names.columns}s.<//>`
      : html`<${Answer} of=${answer}>${(got) => html`<${Ranges} cells=${got.cells} names=${names} onDrop=${(id) => change({ columns: columns.filter((one) => one !== String(id)).join("|") || null })} /><p class="small faint">${got.interval}</p>`}<//>`}<//>`;
}

/** Predictions on one scale, with their intervals and what was seen. */
function Ranges({ cells, names, onDrop }) {
  const all = cells.flatMap((cell) => [cell.low, cell.high, cell.prediction, cell.value]).filter((value) => typeof value === "number");
  const low = Math.min(...all), high = Math.max(...all), pad = 0.05 * (high - low || 1);
  const at = (value) => `${(100 * (value - low + pad)) / (high - low + 2 * pad)}%`;
  return html`<div class="wide" tabindex="0" role="region" aria-label="predictions"><table class="plain ranges"><caption class="hidden-words">predictions</caption><thead><tr><th scope="col">${names.columns}</th><th scope="col" class="n">prediction</th><th scope="col" class="n">interval</th><th scope="col"><span class="hidden-words">picture</span></th><th scope="col" class="n">seen</th><th scope="col"><span class="hidden-words">remove</span></th></tr></thead>
    <tbody>${cells.map((cell) => html`<tr key=${cell.column}><th scope="row">${cell.title ?? cell.column}</th><td class="n strong">${number(cell.prediction, 3)}</td><td class="n soft">${cell.low === null || cell.low === undefined ? "–" : `${number(cell.low, 3)} to ${number(cell.high, 3)}`}</td>
      <td class="span-cell" aria-hidden="true"><span class="span-box">${cell.low !== null && cell.low !== undefined && html`<span class="span-line" style=${{ left: at(cell.low), width: `calc(${at(cell.high)} - ${at(cell.low)})` }}></span>`}<span class="span-dot" style=${{ left: at(cell.prediction) }}></span>${typeof cell.value === "number" && html`<span class="span-seen" style=${{ left: at(cell.value) }}></span>`}</span></td>
      <td class="n">${number(cell.value)}</td><td><button type="button" class="quiet small-button" aria-label=${`remove ${cell.title ?? cell.column}`} onClick=${() => onDrop(cell.column)}>×</button></td></tr>`)}</tbody></table></div>`;
}

function Places({ model, data, asked }) {
  const sides = model.sides ?? ["rows"], side = sides.includes(asked.side) ? asked.side : sides.includes("columns") ? "columns" : sides[0], names = words(model);
  const at = asked.pick === undefined ? null : Number(asked.pick);
  const near = useGet(at !== null ? "model/neighbours" : null, { file: model.file, data, side, at, n: 12 });
  return html`${sides.length > 1 && html`<${Choice} label="map of" value=${side} options=${sides.map((one) => [one, `${names[one]}s`])} onChoose=${(key) => change({ side: key, pick: null, v: null, lasso: null })} />`}
    <${RowMap} key=${side} model=${model} data=${data} side=${side} asked=${asked} axes=${model.axes?.[side] ?? []} colours=${model.colour?.[side] ?? []} labelled=${true} picked=${at === null ? [] : [at]} onPick=${(next) => change({ pick: next })}>
    ${at !== null && html`<${Card} title=${near.value ? `Like ${near.value.of.title ?? near.value.of.id}` : "Alike"}><${Answer} of=${near}>${(got) => html`<${Bars} label="most alike" head=${["name", "cosine"]} items=${got.neighbours.map((one) => ({ name: one.title ?? one.id, value: one.score, key: one.at, onPick: () => change({ pick: one.at }) }))} />`}<//><//>`}<//>`;
}

function Alike({ model, asked }) {
  const names = words(model), side = asked.side === "rows" ? "rows" : "columns";
  const answer = useGet(asked.like ? "complete/similar" : null, { file: model.file, side, id: asked.like, n: 20 });
  return html`<${Card} title="Alike"><div class="tools"><${Choice} label="among" value=${side} options=${[["columns", `${names.columns}s`], ["rows", `${names.rows}s`]]} onChoose=${(key) => change({ side: key, like: null })} />
      <${Search} key=${side} model=${model.file} side=${side} label=${`${names[side]}, by id or title`} placeholder="search" value=${asked.like ?? ""} onPick=${(found) => change({ like: found.id })} /></div>
    ${!asked.like ? html`<${Empty} title="Nothing is chosen">Search a ${names[side]} to see what is most like it.<//>`
      : html`<${Answer} of=${answer} lines=${8}>${(got) => html`<${Bars} label="most alike" head=${["name", got.by ?? "score"]} items=${got.neighbours.map((one) => ({ name: one.title ?? one.id, key: one.at, value: one.score, onPick: () => change({ like: one.id }) }))} />${got.by && html`<p class="small faint">by ${got.by}</p>`}`}<//>`}<//>`;
}

function Errors({ model }) {
  const names = words(model);
  const answer = useGet("complete/support", { file: model.file });
  const table = (bins, what) => html`<${Card} title=${`By entries of a ${what}`}><${Lines} label=${`error by entries of a ${what}`} height=${200} whole=${true} lines=${[{ points: bins.map((bin, i) => [i + 1, bin.rmse]) }, { points: bins.map((bin, i) => [i + 1, bin.mae]), soft: true }]} marks=${answer.value.baseline?.rmse ? [{ name: "baseline", y: answer.value.baseline.rmse }] : []} xName="bin" yName="rmse, and mean absolute error below" />
    <div class="wide" tabindex="0" role="region" aria-label=${`errors by entries of a ${what}`}><table class="plain"><caption class="hidden-words">errors by number of entries of a ${what}</caption><thead><tr><th scope="col">entries of the ${what}</th><th scope="col" class="n">looked at</th><th scope="col" class="n">rmse</th><th scope="col" class="n">mae</th></tr></thead><tbody>
    ${bins.map((bin) => html`<tr key=${bin.from}><th scope="row">${number(bin.from)} to ${number(bin.to)}</th><td class="n">${number(bin.entries)}</td><td class="n">${number(bin.rmse)}</td><td class="n">${number(bin.mae)}</td></tr>`)}</tbody></table></div><//>`;
  return html`<${Answer} of=${answer} waiting="measuring">${(got) => html`<div class="stack"><${Card} title="Errors by support"><p class="soft small">${got.meaning}</p><dl class="figures"><div><dt>rmse</dt><dd>${number(got.all?.rmse)}</dd></div><div><dt>mean absolute</dt><dd>${number(got.all?.mae)}</dd></div><div><dt>baseline rmse</dt><dd>${number(got.baseline?.rmse)}</dd></div><div><dt>entries</dt><dd>${number(got.all?.entries)}</dd></div></dl><//>
    <div class="two">${table(got.rows, names.rows)}${table(got.columns, names.columns)}</div></div>`}<//>`;
}

function Coverage({ model }) {
  const names = words(model);
  const answer = useGet("complete/coverage", { file: model.file, n: 10 });
  return html`<${Card} title="What the lists reach"><${Answer} of=${answer} waiting="making lists">${(got) => html`<p class="soft small">${got.meaning}</p>
    <dl class="figures"><div><dt>in some list</dt><dd>${share(got.share)}</dd></div><div><dt>${names.columns}s</dt><dd>${number(got.listed)} of ${number(got.columns)}</dd></div><div><dt>lists looked at</dt><dd>${number(got.rows)}</dd></div><div><dt>concentration</dt><dd>${number(got.concentration, 3)}</dd></div></dl>
    <h3 class="under">By popularity, tenth by tenth</h3>
    <${Bars} label="share of the places in lists by tenth of popularity" head=${["entries", "share of lists"]} format=${(value) => share(value)} items=${got.popular.map((one, i) => ({ key: i, name: `${number(one.from)} to ${number(one.to)} entries`, note: `${number(one.listed)} of ${number(one.columns)} listed`, value: one.share_of_lists }))} />`}<//><//>`;
}
