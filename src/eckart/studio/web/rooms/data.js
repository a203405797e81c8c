// A data file: what is in it, which verb suits it and why, the options with their defaults, what it will cost, and the run.
import { html, useRef, useState } from "../vendor/preact-htm.js";
import { get, post, useGet } from "../core/api.js";
import { bytes, counted, datum, number, seconds, share } from "../core/format.js";
import { change, go } from "../core/place.js";
import { LongTable } from "../parts/table.js";
import { Answer, Card, Copy, Meter, useName, Words } from "../parts/ui.js";

export function DataRoom({ file, asked, onStarted }) {
  const answer = useGet("data", { file });
  return html`<${Answer} of=${answer} lines=${6} waiting=${`reading ${file}`}>${(data) => html`<${Inside} data=${data} asked=${asked} onStarted=${onStarted} />`}<//>`;
}

function Inside({ data, asked, onStarted }) {
  const best = data.verbs.find((one) => one.best) ?? data.verbs[0];
  const verb = data.verbs.find((one) => one.verb === asked.verb) ?? best;
  const missing = data.gaps_total?.cells ? data.gaps_total.missing / data.gaps_total.cells : 0;
  return html`<div class="room">
    <header class="room-head"><div><p class="kicker">data</p><h1>${data.file}</h1>
      <p class="soft">${[data.kind, data.rows !== null && data.rows !== undefined ? counted(data.rows, data.kind === "texts" ? "document" : "row") : null, data.columns?.length ? counted(data.columns.length, "column") : null, bytes(data.bytes), missing ? `${share(missing)} of the cells are empty` : null, data.image ? `images of ${data.image.height} × ${data.image.width}` : null].filter(Boolean).join(" · ")}</p></div></header>
    <div class="two wide-left">
      <div class="stack">
        ${data.columns?.length > 0 && html`<${Columns} data=${data} />`}
        ${data.documents && html`<${Card} title="Documents"><ul class="documents">${data.documents.examples.map((one) => html`<li key=${one.id}><span class="faint small">${one.id}</span><p>${one.text}</p></li>`)}</ul><//>`}
        ${data.kind !== "texts" && data.columns?.length > 0 && html`<${Rows} data=${data} asked=${asked} />`}
      </div>
      <div class="stack">
        <${Card} title="What to ask of it">
          <ul class="verbs">${data.verbs.map((one) => html`<li key=${one.verb}><button type="button" class="verb ${one.verb === verb?.verb ? "on" : ""}" aria-pressed=${one.verb === verb?.verb} disabled=${!one.suited} onClick=${() => change({ verb: one.verb })}>
            <strong>${one.verb}</strong>${one.best && html`<span class="tag">suits best</span>`}<span class="small soft">${one.reason}</span></button></li>`)}</ul>
        <//>
        ${verb?.suited && html`<${Form} key=${verb.verb} verb=${verb} file=${data.file} columns=${(data.columns ?? []).map((one) => one.name)} onStarted=${onStarted} />`}
      </div>
    </div></div>`;
}

function Columns({ data }) {
  const looked = data.gaps_from || data.rows || 1;
  const many = data.columns.length;
  const [all, setAll] = useState(false);
  const shown = all ? data.columns.slice(0, 500) : data.columns.slice(0, 12);
  return html`<${Card} title="Columns" aside=${html`<span class="faint small">from ${counted(looked, "row")}</span>`}>
    <div class="wide" tabindex="0" role="region" aria-label="columns"><table class="plain"><caption class="hidden-words">columns of ${data.file}</caption><thead><tr><th scope="col">name</th><th scope="col">kind</th><th scope="col">gaps</th><th scope="col" class="n">least</th><th scope="col" class="n">mean</th><th scope="col" class="n">most</th><th scope="col">such as</th></tr></thead>
    <tbody>${shown.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td><span class="tag plain-tag">${one.kind}</span></td>
      <td class="nowrap"><${Meter} value=${one.gaps} of=${looked} /> <span class=${one.gaps ? "" : "faint"}>${one.gaps ? share(one.gaps / looked) : "none"}</span></td>
      <td class="n">${datum(one.least)}</td><td class="n">${datum(one.mean)}</td><td class="n">${datum(one.most)}</td>
      <td class="soft small"><span class="clamp">${one.odd ? html`<span class="bad">“${one.odd}” among numbers</span> ` : ""}${(one.examples ?? []).join(", ")}</span></td></tr>`)}</tbody></table></div>
    ${many > 12 && html`<button type="button" class="quiet small-button" onClick=${() => setAll(!all)}>${all ? "fewer" : `all ${number(many)} columns`}</button>`}<//>`;
}

function Rows({ data, asked }) {
  const sort = asked.sort ? { column: asked.sort, down: asked.down === "1" } : null;
  const page = async (first, count, signal) => {
    const got = await get("data/rows", { file: data.file, first, count, sort: sort?.column, down: sort?.down ? 1 : undefined }, signal);
    return { total: got.rows_total, columns: got.columns, rows: got.rows, at: null };
  };
  const turn = (column) => change(sort?.column !== column ? { sort: column, down: null } : sort.down ? { sort: null, down: null } : { sort: column, down: 1 });
  return html`<${Card} title="Rows"><${LongTable} page=${page} what=${`${data.file} ${asked.sort} ${asked.down}`} label=${`rows of ${data.file}`} sort=${sort} onSort=${turn} /><//>`;
}

function Form({ verb, file, columns, onStarted }) {
  const form = useGet(`verbs/${verb.verb}`);
  const [options, setOptions] = useState(verb.options ?? {});
  const [name, setName] = useState("");
  const [plan, setPlan] = useState({ busy: false, value: null, error: null });
  const [run, setRun] = useState({ busy: false, error: null });
  const stop = useRef(null);
  const set = (option, value) => {
    const next = { ...options };
    if (value === "" || value === null || value === option.default) delete next[option.name];
    else next[option.name] = value;
    setOptions(next);
    setPlan({ busy: false, value: null, error: null });
  };
  const ask = async () => {
    stop.current = new AbortController();
    setPlan({ busy: true, value: null, error: null });
    try {
      setPlan({ busy: false, value: await post("plan", { verb: verb.verb, file, options }, stop.current.signal), error: null });
    } catch (error) {
      setPlan({ busy: false, value: null, error: error.name === "AbortError" ? null : error });
    }
  };
  const start = async () => {
    setRun({ busy: true, error: null });
    try {
      const job = await post("jobs", { verb: verb.verb, file, options, ...(name ? { name } : {}) });
      onStarted?.();
      go(["jobs", job.id]);
    } catch (error) {
      setRun({ busy: false, error });
    }
  };
  return html`<${Card} title=${`Options of ${verb.verb}`}><${Answer} of=${form}>${(shape) => {
    const common = shape.options.filter((one) => one.common || one.name in (verb.options ?? {}));
    const rest = shape.options.filter((one) => !common.includes(one));
    const groups = [...new Set(rest.map((one) => one.group ?? "Other"))];
    return html`<p class="small soft">${shape.about}</p>
      <div class="options">${common.map((one) => html`<${Option} key=${one.name} option=${one} value=${options[one.name]} columns=${columns} onSet=${set} />`)}</div>
      ${groups.map((group) => html`<details key=${group} class="more"><summary>${group} <span class="faint small">${counted(rest.filter((one) => (one.group ?? "Other") === group).length, "option")}</span></summary>
        <div class="options">${rest.filter((one) => (one.group ?? "Other") === group).map((one) => html`<${Option} key=${one.name} option=${one} value=${options[one.name]} columns=${columns} onSet=${set} />`)}</div></details>`)}
      <label class="field"><span>Name of the result</span><input type="text" value=${name} placeholder="chosen for you" onInput=${(event) => setName(event.currentTarget.value)} /></label>
      <div class="acts"><button type="button" class="button main" disabled=${run.busy} onClick=${start}>Run</button>
        ${plan.busy ? html`<button type="button" class="button" onClick=${() => stop.current.abort()}>Stop measuring</button>` : html`<button type="button" class="button" onClick=${ask}>Plan first</button>`}</div>
      ${plan.busy && html`<p class="small soft" role="status">measuring a part of the work…</p>`}
      ${(plan.error ?? run.error) && html`<${Words} kind="bad">${(plan.error ?? run.error).message}<//>`}
      ${plan.value && html`<${Plan} plan=${plan.value} />`}`;
  }}<//><//>`;
}

function Plan({ plan }) {
  return html`<div class="plan" role="status"><dl class="figures"><div><dt>time</dt><dd>${seconds(plan.seconds)}</dd></div><div><dt>memory</dt><dd>${bytes(plan.memory)}</dd></div></dl>
    <p class="small soft">${plan.words}</p>
    ${Object.keys(plan.choices ?? {}).length > 0 && html`<dl class="pairs">${Object.entries(plan.choices).map(([key, value]) => html`<div key=${key}><dt>${key.replaceAll("_", " ")}</dt><dd>${typeof value === "object" ? JSON.stringify(value) : String(value)}</dd></div>`)}</dl>`}
    <div class="code"><div class="code-head"><span>Shell</span><${Copy} text=${plan.shell} words="Copy as shell" /></div><pre tabindex="0" aria-label="shell"><code>${plan.shell}</code></pre></div></div>`;
}

/** Options whose value is a column of the data: its names are offered. */
const COLUMN_OPTIONS = new Set(["rows", "columns", "values", "index", "labels", "text"]);

function Option({ option, value, columns, onSet }) {
  const list = useName("columns"), name = useName("option"), help = `${name}-help`;
  const offered = COLUMN_OPTIONS.has(option.name) && columns.length > 0 && columns.length <= 1000;
  const usual = option.default_in_words ?? (option.default === null || option.default === undefined ? "" : String(option.default));
  const label = option.name.replaceAll("_", " ");
  if (option.kind === "switch") {
    return html`<div class="option switch"><input id=${name} aria-describedby=${help} type="checkbox" checked=${value ?? option.default ?? false} onChange=${(event) => onSet(option, event.currentTarget.checked)} /><span><label for=${name} class="option-name">${label}</label><span id=${help} class="small faint">${option.help}</span></span></div>`;
  }
  const field = option.choices
    ? html`<select id=${name} aria-describedby=${help} value=${value ?? ""} onChange=${(event) => onSet(option, event.currentTarget.value)}><option value="">${usual ? `${usual} (default)` : "default"}</option>${option.choices.map((one) => html`<option key=${one} value=${one} selected=${one === value}>${one}</option>`)}</select>`
    : html`<input id=${name} aria-describedby=${help} type="text" inputmode=${["number", "whole"].includes(option.kind) ? "decimal" : undefined} list=${offered ? list : undefined} value=${value ?? ""} placeholder=${usual} onInput=${(event) => onSet(option, typed(option, event.currentTarget.value))} />${offered && html`<datalist id=${list}>${columns.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>`}`;
  return html`<div class="option"><label for=${name} class="option-name">${label}</label>${field}<span id=${help} class="small faint">${option.help}</span></div>`;
}

/** What was typed, as a number where the option is one and it reads as one; the server says what is wrong with the rest. */
function typed(option, text) {
  if (!["number", "whole"].includes(option.kind) || text.trim() === "") return text;
  return Number.isFinite(Number(text)) ? Number(text) : text;
}
