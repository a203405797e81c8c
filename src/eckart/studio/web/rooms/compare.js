// Two models side by side with one selection: what is chosen or picked on one map is shown on the other, and where their neighbours differ.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { get, post, useGet, usePost } from "../core/api.js";
import { number, share } from "../core/format.js";
import { change } from "../core/place.js";
import { MapView } from "../map/map.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Empty, Select, Words } from "../parts/ui.js";
import { keepView, shownPolygon, useLabels, useNames, usePoints, usePolygon, useView } from "./rowmap.js";

const MOST_MATCHED = 50000; // positions sent to find their like in the other model

export function CompareRoom({ model, asked, files }) {
  const others = files.filter((one) => one.kind === "model" && one.file !== model.file);
  const other = useGet(asked.other ? "model" : null, { file: asked.other });
  const side = model.sides?.[0] ?? "words";
  const fits = other.value && (other.value.sides ?? []).includes(side);
  return html`<${Card}><div class="tools"><${Select} label="beside" value=${asked.other ?? ""} options=${[["", "choose a model"], ...others.map((one) => [one.file, one.file])]} onChoose=${(file) => change({ other: file, v2: null })} />
      <${Search} model=${model.file} side=${side} label="find a word in both" placeholder="type a word" value=${asked.word ?? ""} onPick=${(found) => change({ word: found.id, pick: found.at })} /></div><//>
    ${!asked.other ? html`<${Empty} title="One model is open">Choose a second one. A lasso or a word on one map is then shown on both.<//>`
      : other.error ? html`<${Words} kind="bad">${other.error.message}<//>`
      : other.value && !fits ? html`<${Words}>${other.value.file} has no map of ${side}.<//>`
      : html`<${Answer} of=${other} lines=${6}>${(value) => html`<${Both} model=${model} other=${value} side=${side} asked=${asked} />`}<//>`}`;
}

function Both({ model, other, side, asked }) {
  const [left, setLeft] = useState(null);
  const [right, setRight] = useState(null);
  const polygon = usePolygon(asked.lasso), polygon2 = usePolygon(asked.lasso2);
  const at = asked.pick === undefined ? null : Number(asked.pick);
  const there = usePost(at === null ? null : "compare/match", { file: model.file, other: other.file, side, at: [at] });
  // The selection of one side, found on the other by name.
  const match = (from, to, chosen, set) => {
    if (!chosen) { set(null); return; }
    post("compare/match", { file: from.file, other: to.file, side, at: [...chosen.slice(0, MOST_MATCHED)] }).then((got) => set(Uint32Array.from(got.at.filter((one) => one !== null))), () => set(null));
  };
  const onLeft = (chosen) => { if (polygon2) return; setLeft(chosen); match(model, other, chosen, setRight); };
  const onRight = (chosen) => { if (!polygon2) return; setRight(chosen); match(other, model, chosen, setLeft); };
  useEffect(() => { if (polygon2 === null && polygon === null) { setLeft(null); setRight(null); } }, [polygon, polygon2]);
  const pickThere = async (found) => {
    const got = await post("compare/match", { file: other.file, other: model.file, side, at: [found] });
    if (got.at[0] !== null) change({ pick: got.at[0], word: null });
  };
  return html`<div class="two">
      <${One} model=${model} side=${side} polygon=${polygon} name="lasso" view="v" asked=${asked} selection=${left} onSelected=${onLeft} picked=${at === null ? [] : [at]} onPick=${(found) => change({ pick: found, word: null })} />
      <${One} model=${other} side=${side} polygon=${polygon2} name="lasso2" view="v2" asked=${asked} selection=${right} onSelected=${onRight} picked=${there.value && there.value.at[0] !== null ? there.value.at : []} onPick=${pickThere} />
    </div>
    ${at !== null && html`<${Neighbours} model=${model} other=${other} side=${side} at=${at} />`}
    <${Moved} model=${model} other=${other} side=${side} />`;
}

function One({ model, side, polygon, name, view, asked, selection, onSelected, picked, onPick }) {
  const axes = model.axes?.[side] ?? [];
  const where = { file: model.file, side, x: axes[0]?.key, y: axes[1]?.key };
  const { points, about, error } = usePoints(where);
  const { labels, onWindow } = useLabels(where, true);
  const nameOf = useNames(model.file, undefined, side);
  const seen = useView(asked[view]);
  const other = name === "lasso" ? "lasso2" : "lasso";
  if (error) return html`<${Words} kind="bad">${error.message}<//>`;
  return html`<${Card} title=${model.file.replace(/\.safetensors$/, "")} className="map-card"><${MapView} points=${points} selection=${selection} polygon=${polygon} onPolygon=${(corners) => change({ [name]: shownPolygon(corners), [other]: null })} onSelected=${onSelected} picked=${picked} onPick=${onPick}
    nameOf=${nameOf} labels=${labels} onWindow=${onWindow} view=${seen} onView=${(next) => keepView(next, view)} label=${`map of ${model.file}`} axes=${about && { x: about.x.name, y: about.y.name }} /><//>`;
}

function Neighbours({ model, other, side, at }) {
  const of = useGet("model/names", { file: model.file, side, at });
  const id = of.value?.names[0];
  const answer = useGet(id === undefined ? null : "compare/neighbours", { file: model.file, other: other.file, side, id, n: 12 });
  return html`<${Card} title=${id === undefined ? "Neighbours" : `Nearest to ${id}`} aside=${answer.value && html`<span class="soft small">${share(answer.value.overlap, 0)} shared</span>`}><${Answer} of=${answer}>${(got) => {
    const shared = new Set(got.shared.map(String));
    const list = (items, file) => html`<div><h3>${file}</h3><ol class="near">${items.map((one) => html`<li key=${one.at ?? one.id} class=${shared.has(String(one.id)) ? "shared" : ""}>${one.title ?? one.id} <span class="n faint">${number(one.score, 3)}</span></li>`)}</ol></div>`;
    return html`<div class="two">${list(got.left, model.file)}${list(got.right, other.file)}</div>`;
  }}<//><//>`;
}

function Moved({ model, other, side }) {
  const answer = useGet("compare/moved", { file: model.file, other: other.file, side, n: 20 });
  const find = async (id) => {
    const got = await fetchAt(model.file, side, id);
    if (got !== null) change({ pick: got, word: id });
  };
  const chips = (items) => html`<ul class="chips">${items.map((one) => html`<li key=${one.id}><button type="button" class="chip" onClick=${() => find(one.id)}>${one.id} <span class="faint">${share(one.overlap, 0)}</span></button></li>`)}</ul>`;
  return html`<${Card} title="Where the two differ"><${Answer} of=${answer} waiting="comparing neighbours">${(got) => html`<h3>Neighbours differ most</h3>${chips(got.moved)}<h3 class="under">Neighbours agree most</h3>${chips(got.stable)}<p class="small faint">share of neighbours in common, among ${number(got.looked_at)} frequent words</p>`}<//><//>`;
}

async function fetchAt(file, side, id) {
  const got = await get("model/search", { file, side, text: id, n: 1 });
  return got.found[0]?.at ?? null;
}
