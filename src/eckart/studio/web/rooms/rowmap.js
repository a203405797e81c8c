// A map of the rows (or words) of a model with what belongs to it: axes, colour, legend, lasso, table of the selection, export. The address holds all of it.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact-htm.js";
import { get, post, save, useGet } from "../core/api.js";
import { classColour, css, NOTHING, rampColour } from "../core/colours.js";
import { datum, number } from "../core/format.js";
import { change } from "../core/place.js";
import { useTheme } from "../core/theme.js";
import { MapView } from "../map/map.js";
import { LongTable } from "../parts/table.js";
import { Card, Dot, Empty, Select, Words } from "../parts/ui.js";

export function usePoints(asked) {
  const answer = useGet(asked ? "model/map" : null, asked);
  const points = useMemo(() => (answer.value ? new Float32Array(answer.value.buffer) : null), [answer.value]);
  return { points, about: answer.value?.about, error: answer.error };
}

/** Values of a colour as codes; numbers between their inner quantiles, so that one far value does not take all the colours. */
export function useColour(asked) {
  const answer = useGet(asked?.by ? "model/colour" : null, asked ?? {});
  const colour = useMemo(() => {
    if (!answer.value || !asked?.by) return null;
    const values = new Float32Array(answer.value.buffer), about = answer.value.about, codes = new Uint8Array(values.length);
    if (about.kind === "category") {
      // Components, topics and parts keep the colour of their number, as in every other picture of them.
      const numbered = /^(component|topic|part)$/.test(asked.by) && about.categories.every((one) => /\d+$/.test(one.name));
      const categories = about.categories.map((one, i) => ({ ...one, code: numbered ? (Number(/\d+$/.exec(one.name)[0]) - 1) % NOTHING : i }));
      for (let i = 0; i < values.length; i += 1) codes[i] = Number.isNaN(values[i]) ? NOTHING : categories[values[i]].code;
      return { codes, kind: "classes", about: { ...about, categories: numbered ? [...categories].sort((a, b) => a.code - b.code) : categories } };
    }
    const low = about.inner_low ?? about.low ?? 0, high = about.inner_high ?? about.high ?? 1;
    const scale = (NOTHING - 1) / (high - low || 1);
    for (let i = 0; i < values.length; i += 1) codes[i] = Number.isNaN(values[i]) ? NOTHING : Math.max(0, Math.min(NOTHING - 1, (values[i] - low) * scale));
    return { codes, kind: "ramp", about: { ...about, low, high } };
  }, [answer.value, asked?.by]);
  return { colour, error: answer.error };
}

export function Legend({ colour, by, words }) {
  useTheme();
  if (!colour) return null;
  if (colour.kind === "ramp") {
    const stops = Array.from({ length: 9 }, (_, i) => css(rampColour(i / 8))).join(", ");
    return html`<div class="legend"><span class="small soft">${by}</span><span class="n small">≤ ${datum(colour.about.low)}</span><span class="ramp" aria-hidden="true" style=${{ background: `linear-gradient(90deg, ${stops})` }}></span><span class="n small">≥ ${datum(colour.about.high)}</span></div>`;
  }
  return html`<ul class="legend" aria-label=${`colours of ${by}`}>${colour.about.categories.map((one) => html`<li key=${one.name}><${Dot} colour=${classColour(one.code)} />${one.name}${words?.[one.code + 1] && by === "topic" ? html` <span class="soft small">${words[one.code + 1]}</span>` : ""} <span class="faint small">${number(one.count)}</span></li>`)}</ul>`;
}

export const shownPolygon = (polygon) => (polygon ? polygon.map((corner) => corner.join(",")).join(";") : null);

export function usePolygon(text) {
  return useMemo(() => (text ? text.split(";").map((corner) => corner.split(",").map(Number)) : null), [text]);
}

export function useView(text) {
  return useMemo(() => {
    const [x, y, k] = (text ?? "").split(",").map(Number);
    return text && [x, y, k].every(Number.isFinite) && k > 0 ? { x, y, k } : null;
  }, [text]);
}

export const keepView = (view, name = "v") => change({ [name]: view ? [view.x, view.y, view.k].map((value) => Number(value.toPrecision(6))).join(",") : null }, { replace: true });

/** Names of points, asked for once each. */
export function useNames(file, data, side) {
  const known = useRef(new Map());
  useEffect(() => { known.current = new Map(); }, [file, data, side]);
  return async (at) => {
    if (!known.current.has(at)) {
      const { names, titles } = await get("model/names", { file, data, side, at });
      known.current.set(at, String(titles?.[0] ?? names[0]));
    }
    return known.current.get(at);
  };
}

/** Labels of the window, asked for when the map rests. */
export function useLabels(asked, wanted) {
  const [window, setWindow] = useState(null);
  const answer = useGet(wanted && window ? "model/labels" : null, { ...asked, ...window, n: 70 });
  return { labels: answer.value?.labels ?? null, onWindow: setWindow };
}

export function RowMap({ model, data, side = "rows", asked, axes, aspect, colours, ellipses, onPick, picked, usual = {}, labelled = false, height, more, words, children }) {
  const x = asked.x ?? usual.x ?? axes[0]?.key, y = asked.y ?? usual.y ?? axes[Math.min(1, axes.length - 1)]?.key;
  const by = asked.by === "" || asked.by === "none" ? null : asked.by ?? usual.by ?? null;
  const where = { file: model.file, data, side, x, y };
  const { points, about, error } = usePoints(where);
  const { colour, error: colourError } = useColour({ file: model.file, data, side, by });
  const [selection, setSelection] = useState(null);
  const polygon = usePolygon(asked.lasso), view = useView(asked.v);
  const nameOf = useNames(model.file, data, side);
  const { labels, onWindow } = useLabels(where, labelled);
  const fits = colour && points && colour.codes.length === points.length / 2;
  if (error) return html`<${Words} kind="bad" title="No map">${error.message}<//>`;
  return html`<${Card} className="map-card">
    <div class="tools">
      ${axes.length > 1 && html`<${Select} label="across" value=${x} options=${axes.map((one) => [one.key, one.name])} onChoose=${(key) => change({ x: key, v: null, lasso: null })} />
      <${Select} label="up" value=${y} options=${axes.map((one) => [one.key, one.name])} onChoose=${(key) => change({ y: key, v: null, lasso: null })} />`}
      ${colours.length > 0 && html`<${Select} label="colour" value=${by ?? "none"} options=${[["none", "density"], ...colours.map((name) => [name, name.replace(/^component:/, "component ")])]} onChoose=${(key) => change({ by: key })} />`}
      ${more}
    </div>
    ${colourError && html`<p class="small bad">${colourError.message}</p>`}
    <${MapView} points=${points} aspect=${aspect} colour=${fits ? colour : null} selection=${selection} polygon=${polygon} onPolygon=${(corners) => change({ lasso: shownPolygon(corners) })} onSelected=${setSelection}
      picked=${picked} onPick=${onPick} nameOf=${nameOf} labels=${labels} onWindow=${onWindow} ellipses=${ellipses} view=${view} onView=${keepView} tall=${height === "tall"}
      label=${`map of ${side}: ${about?.x.name ?? ""} across, ${about?.y.name ?? ""} up`} axes=${about && { x: about.x.name, y: about.y.name }} />
    ${fits && html`<${Legend} colour=${colour} by=${by} words=${words} />`}
  <//>
  ${!polygon && children}<${Selected} where=${where} polygon=${polygon} selection=${selection} onPick=${onPick} picked=${picked?.[0]} />${polygon && children}`;
}

/** The rows inside the lasso: a table of any length, and all of it as a file. */
export function Selected({ where, polygon, selection, onPick, picked }) {
  const [sort, setSort] = useState(null);
  const [error, setError] = useState(null);
  const body = { ...where, polygon };
  const page = (first, count, signal) => post("model/table", { ...body, first, count, sort: sort?.column ?? null, down: sort?.down ?? false }, signal);
  const turn = (column) => setSort(sort?.column !== column ? { column, down: false } : sort.down ? null : { column, down: true });
  const write = () => save("model/export", body, "selection.csv").catch(setError);
  return html`<${Card} title="Selection" aside=${polygon && html`<span class="row"><button type="button" class="button small-button" onClick=${write}>Export as CSV</button><button type="button" class="quiet small-button" onClick=${() => change({ lasso: null })}>clear</button></span>`}>
    ${error && html`<${Words} kind="bad">${error.message}<//>`}
    ${!polygon ? html`<${Empty} title="Nothing is selected">Draw around points with the lasso, or hold shift and drag. The rows appear here as a table that can be sorted and exported.<//>`
      : selection && selection.length === 0 ? html`<${Empty} title="No point inside">The lasso holds no points.<//>`
      : html`<${LongTable} page=${page} what=${`${JSON.stringify(body)} ${sort?.column} ${sort?.down}`} label="selected rows" sort=${sort} onSort=${turn} onPick=${onPick} picked=${picked} />`}
  <//>`;
}

