// embed: the map of words with labels that change with the zoom, neighbours, analogies, the odd one out.
import { html, useState } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { number } from "../core/format.js";
import { change } from "../core/place.js";
import { Bars } from "../parts/chart.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Empty, Words } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

export function EmbedRoom({ model, data, view, asked }) {
  if (view === "questions") return html`<${Analogy} model=${model} asked=${asked} /><${Odd} model=${model} asked=${asked} />`;
  const side = model.sides?.[0] ?? "words";
  const at = asked.pick === undefined ? null : Number(asked.pick);
  const near = useGet(at !== null ? "model/neighbours" : null, { file: model.file, side, at, n: 15 });
  const picked = at === null ? [] : [at, ...(near.value?.neighbours ?? []).slice(0, 8).map((one) => one.at)];
  return html`<${Card}><${Search} model=${model.file} side=${side} label="find a word" placeholder="type a word" value=${near.value?.of.id ?? ""} onPick=${(found) => change({ pick: found.at })} /><//>
    <${RowMap} model=${model} data=${data} side=${side} asked=${asked} axes=${model.axes?.[side] ?? []} colours=${model.colour?.[side] ?? []} labelled=${true} picked=${picked} onPick=${(next) => change({ pick: next })} height="tall">
    <${Card} title=${near.value ? `Nearest to ${near.value.of.id}` : "Neighbours"} aside=${near.value && html`<span class="faint small">${number(near.value.milliseconds, 2)} ms, all words compared</span>`}>
      ${at === null ? html`<${Empty} title="No word is picked">Click a point or search a word.<//>` : html`<${Answer} of=${near} lines=${8}>${(got) => html`<${Bars} label=${`words nearest to ${got.of.id}`} head=${["word", "cosine"]} items=${got.neighbours.map((one) => ({ name: one.title ?? one.id, key: one.at, value: one.score, onPick: () => change({ pick: one.at }) }))} />`}<//>`}<//><//>`;
}

function Analogy({ model, asked }) {
  const [typed, setTyped] = useState({ a: asked.a ?? "", b: asked.b ?? "", c: asked.c ?? "" });
  const asks = asked.a && asked.b && asked.c;
  const answer = useGet(asks ? "embed/analogy" : null, { file: model.file, a: asked.a, b: asked.b, c: asked.c, n: 10 });
  const field = (key, label) => html`<label class="field"><span>${label}</span><input type="text" spellcheck=${false} value=${typed[key]} onInput=${(event) => setTyped({ ...typed, [key]: event.currentTarget.value.trim() })} /></label>`;
  return html`<${Card} title="Analogy" aside=${answer.value && html`<span class="faint small">${number(answer.value.milliseconds, 2)} ms</span>`}>
    <form class="tools" onSubmit=${(event) => { event.preventDefault(); change(typed); }}>${field("a", "word a")}<span class="between">is to</span>${field("b", "word b")}<span class="between">as</span>${field("c", "word c")}<span class="between">is to …</span><button type="submit" class="button main">Ask</button></form>
    ${asks ? html`<${Answer} of=${answer}>${(got) => html`<${Bars} label="answers" head=${["word", "cosine"]} items=${got.answers.map((one) => ({ name: one.id, value: one.score }))} />`}<//>` : html`<p class="small faint">Such as france, paris, italy.</p>`}<//>`;
}

function Odd({ model, asked }) {
  const [text, setText] = useState((asked.odd ?? "").replaceAll("|", " "));
  const list = (asked.odd ?? "").split("|").filter(Boolean);
  const answer = useGet(list.length > 2 ? "embed/odd" : null, { file: model.file, words: list });
  return html`<${Card} title="The odd one out"><form class="tools" onSubmit=${(event) => { event.preventDefault(); change({ odd: text.split(/[\s,]+/).filter(Boolean).join("|") }); }}>
      <label class="field grow"><span>three words or more</span><input type="text" spellcheck=${false} value=${text} placeholder="monday tuesday friday paris" onInput=${(event) => setText(event.currentTarget.value)} /></label><button type="submit" class="button main">Ask</button></form>
    ${list.length > 0 && list.length < 3 && html`<${Words}>Give three words or more.<//>`}
    ${list.length > 2 && html`<${Answer} of=${answer}>${(got) => html`<p><strong>${got.odd}</strong> <span class="soft">is the odd one out</span></p><${Bars} label="cosine of each word with the middle of all" head=${["word", "cosine"]} items=${got.scores.map((one) => ({ name: one.id, value: one.score }))} />`}<//>`}<//>`;
}

