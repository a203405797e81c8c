// explain, topics: what they are about, where they stand, who speaks of them; names and merges that stay in the model file.
import { html, useState } from "../vendor/preact-htm.js";
import { post, useGet } from "../core/api.js";
import { classColour } from "../core/colours.js";
import { counted, number, share } from "../core/format.js";
import { address, change } from "../core/place.js";
import { useTheme } from "../core/theme.js";
import { Bars } from "../parts/chart.js";
import { Search } from "../parts/search.js";
import { Answer, Card, Dot, Slider, useSize, useSlow, Words } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

/** The words that tell a topic from the others; where none do, its frequent ones. */
const telling = (topic, count) => (topic.telling?.length ? topic.telling : topic.words).slice(0, count).map((one) => one.word).join(", ");

export const topicName = (topic) => topic.name ?? `Topic ${topic.number}`;

export function TopicsRoom({ model, data, view, asked }) {
  useTheme();
  const [kept, setKept] = useState(null);
  const answer = useGet("topics", { file: model.file, words: 10 });
  const all = kept ?? answer.value;
  if (view === "map") {
    return html`<${RowMap} model=${model} data=${data} asked=${asked} axes=${model.axes?.rows ?? []} colours=${model.colour?.rows ?? []} usual=${{ by: (model.colour?.rows ?? []).find((name) => name === "topic") }} words=${all && Object.fromEntries(all.topics.filter((one) => !one.name).map((one) => [one.number, telling(one, 3)]))}
      picked=${asked.pick === undefined ? [] : [Number(asked.pick)]} onPick=${(at) => change({ pick: at })} />
      ${asked.pick !== undefined && all && html`<${Document} model=${model} data=${data} at=${asked.pick} topics=${all.topics} />`}`;
  }
  return html`<${Answer} of=${all ? { value: all } : answer} lines=${8}>${(got) => (view === "documents"
    ? html`<${Documents} model=${model} data=${data} asked=${asked} topics=${got.topics} />`
    : html`<${Topics} model=${model} data=${data} asked=${asked} got=${got} onKept=${setKept} />`)}<//>`;
}

function Topics({ model, data, asked, got, onKept }) {
  const chosen = got.topics.find((one) => String(one.number) === asked.topic) ?? got.topics[0];
  const [marked, setMarked] = useState([]);
  const [error, setError] = useState(null);
  const keep = async (what, body) => {
    try {
      setError(null);
      onKept(await post(`topics/${what}`, { file: model.file, ...body }));
      setMarked([]);
    } catch (problem) {
      setError(problem);
    }
  };
  const mark = (number) => setMarked(marked.includes(number) ? marked.filter((one) => one !== number) : [...marked, number]);
  return html`<${Plane} got=${got} chosen=${chosen} model=${model} asked=${asked} /><div class="two topics">
    <${Card} title=${counted(got.topics.length, got.kind === "parts" ? "part" : "topic")} aside=${marked.length > 1 && html`<button type="button" class="button small-button" onClick=${() => keep("merge", { numbers: marked })}>Merge ${marked.length}</button>`}>
      ${error && html`<${Words} kind="bad">${error.message}<//>`}
      <ul class="topic-list">${got.topics.map((one) => html`<li key=${one.number} class=${one === chosen ? "on" : ""}>
        <label class="inline"><input type="checkbox" checked=${marked.includes(one.number)} onChange=${() => mark(one.number)} /><span class="hidden-words">mark ${topicName(one)} for merging</span></label>
        <a href=${address(["model", model.file, "topics"], { ...asked, topic: one.number })} aria-current=${one === chosen ? "true" : undefined}><span class="topic-head"><${Dot} colour=${classColour(one.number - 1)} /><strong>${topicName(one)}</strong><span class="n faint small">${share(one.share)}</span></span>
        <span class="small soft">${telling(one, 7)}</span></a></li>`)}</ul>
      <p class="small faint">Mark two or more to merge them. Names and merges are kept in the model file; a merge can be undone.</p><//>
    <div class="stack">
      <${One} key=${`${chosen.number} ${chosen.name}`} model=${model} data=${data} topic=${chosen} onRename=${(name) => keep("rename", { number: chosen.number, name })} onSplit=${() => keep("split", { number: chosen.number })} />
    </div></div>`;
}

/** Names of bubbles where they do not cover one another: in the middle, else above or below, else none; a line has 16 pixels, a letter about 7. */
function spread(bubbles, height) {
  const taken = [];
  return bubbles.map((bubble) => {
    const half = 3.5 * bubble.name.length;
    const free = (below) => bubble.y + below > 12 && bubble.y + below < height - 4 && taken.every((box) => Math.abs(box.x - bubble.x) > box.half + half || Math.abs(box.y - bubble.y - below) > 15);
    const below = [5, bubble.r + 14, -bubble.r - 4, bubble.r + 30, -bubble.r - 20].find(free) ?? null;
    if (below === null) return { ...bubble, below };
    taken.push({ x: bubble.x, y: bubble.y + below, half });
    return { ...bubble, below };
  });
}

/** Topics on a plane: near ones use similar words, large ones are spoken of more. */
function Plane({ got, chosen, model, asked }) {
  const [box, { width: wide }] = useSize();
  const placed = got.topics.filter((one) => one.x !== null && one.x !== undefined);
  if (placed.length < 2) return null;
  const height = 250, width = Math.max(240, wide), padX = 60, padY = 34;
  const range = (key) => [Math.min(...placed.map((one) => one[key])), Math.max(...placed.map((one) => one[key]))];
  const [x0, x1] = range("x"), [y0, y1] = range("y");
  const scale = Math.min((width - 2 * padX) / (x1 - x0 || 1), (height - 2 * padY) / (y1 - y0 || 1));
  const px = (x) => width / 2 + (x - (x0 + x1) / 2) * scale, py = (y) => height / 2 - (y - (y0 + y1) / 2) * scale;
  const most = Math.max(...placed.map((one) => one.share));
  const small = Math.min(1, Math.sqrt(10 / placed.length)); // more than ten would lie on one another
  const bubbles = spread([...placed].sort((a, b) => b.share - a.share).map((one) => ({ one, x: px(one.x), y: py(one.y), r: small * (6 + 22 * Math.sqrt(one.share / most)), name: one.name ?? telling(one, 1) })), height);
  return html`<${Card} title="Map of topics" aside=${got.kept !== null && got.kept !== undefined && html`<span class="faint small">the plane keeps ${share(got.kept, 0)} of the distances</span>`}>
    <div ref=${box}><svg class="plane" width=${width} height=${height} role="group" aria-label="topics on a plane">
      ${bubbles.map(({ one, x, y, r, name, below }) => html`<a key=${one.number} href=${address(["model", model.file, "topics"], { ...asked, topic: one.number })} aria-label=${`${name}, ${topicName(one)}, ${share(one.share)}`}>
        <circle class=${one === chosen ? "bubble on" : "bubble"} cx=${x} cy=${y} r=${r} style=${{ fill: classColour(one.number - 1) }} />
        ${below !== null && html`<text x=${x} y=${y + below} text-anchor="middle">${name}</text>`}</a>`)}
    </svg></div><//>`;
}

function One({ model, data, topic, onRename, onSplit }) {
  const [name, setName] = useState(topic.name ?? "");
  const [balance, setBalance] = useState(0.6);
  const slow = useSlow(balance);
  const words = useGet("topics/words", { file: model.file, number: topic.number, n: 20, balance: slow });
  const documents = useGet(data ? "topics/documents" : null, { file: model.file, data, number: topic.number, n: 8 });
  const colour = classColour(topic.number - 1);
  return html`<${Card} title=${topicName(topic)} aside=${topic.members?.length > 1 && html`<button type="button" class="quiet small-button" onClick=${onSplit}>split ${topic.members.join(" + ")} again</button>`}>
      <form class="tools" onSubmit=${(event) => { event.preventDefault(); onRename(name.trim() || null); }}><label class="field"><span>name</span><input type="text" value=${name} placeholder=${`Topic ${topic.number}`} onInput=${(event) => setName(event.currentTarget.value)} /></label><button type="submit" class="button">Keep the name</button></form>
      <${Slider} label="frequent or telling words" min=${0} max=${1} step=${0.1} value=${balance} onChange=${setBalance} shown=${(value) => (value > 0.75 ? "frequent" : value < 0.35 ? "telling" : "between")} />
      <${Answer} of=${words} lines=${8}>${(got) => html`<${Bars} label=${`words of ${topicName(topic)}`} head=${["word", "probability"]} format=${(value) => share(value, 2)} items=${got.words.map((one) => ({ name: one.word, value: one.p, colour, note: one.lift > 1 ? `${number(one.lift, 2)} × usual` : "" }))} />`}<//><//>
    ${data && html`<${Card} title="Documents that speak of it most"><${Answer} of=${documents}>${(got) => html`<ul class="documents">${got.documents.map((one) => html`<li key=${one.at}><a href=${address(["model", model.file, "documents"], { data, pick: one.at })}>${one.id ?? one.at}</a> <span class="faint small">${share(one.share, 0)}</span><p>${one.excerpt}</p></li>`)}</ul>`}<//><//>`}`;
}

function Documents({ model, data, asked, topics }) {
  const at = asked.pick ?? "0";
  return html`<${Card} title="Pick a document"><div class="tools"><${Search} model=${model.file} data=${data} side="rows" label="document, by its id" placeholder="type an id" onPick=${(found) => change({ pick: found.at })} />
      <button type="button" class="button" disabled=${Number(at) <= 0} onClick=${() => change({ pick: Number(at) - 1 })}>Previous</button><button type="button" class="button" onClick=${() => change({ pick: Number(at) + 1 })}>Next</button></div><//>
    <${Document} model=${model} data=${data} at=${at} topics=${topics} />`;
}

/** An id for a heading: where texts have no ids of their own they are their own ids, and stand below in full. */
const short = (id) => (String(id).length > 60 ? `${String(id).slice(0, 57)}…` : id);

/** A document with each word in the colour of its topic; a topic can be pointed at in the legend. */
function Document({ model, data, at, topics }) {
  const answer = useGet("topics/document", { file: model.file, data, at });
  const [only, setOnly] = useState(null);
  const named = new Map(topics.flatMap((one) => (one.members?.length ? one.members : [one.number]).map((member) => [member, one])));
  const owner = (number) => named.get(number)?.number ?? number;
  return html`<${Card} title=${answer.value ? `Document ${short(answer.value.id ?? at)}` : "Document"}><${Answer} of=${answer} lines=${6}>${(got) => html`
    <ul class="shares">${got.shares.slice(0, 6).map((one) => html`<li key=${one.number}><button type="button" class="chip" aria-pressed=${only === owner(one.number)} onClick=${() => setOnly(only === owner(one.number) ? null : owner(one.number))}><${Dot} colour=${classColour(owner(one.number) - 1)} />${one.name ?? `Topic ${one.number}`} <span class="faint">${share(one.share, 0)}</span></button></li>`)}</ul>
    <p class="reading">${got.text.map((run, i) => (run.number ? html`<span key=${i} class=${only !== null && only !== owner(run.number) ? "coloured off" : "coloured"} title=${named.get(run.number) ? topicName(named.get(run.number)) : `Topic ${run.number}`} style=${{ borderColor: classColour(owner(run.number) - 1), background: `color-mix(in srgb, ${classColour(owner(run.number) - 1)} ${Math.round(8 + 22 * (run.p ?? 0.5))}%, transparent)` }}>${run.text}</span>` : run.text))}</p>
    ${got.truncated && html`<p class="small faint">The text is longer; this is its beginning.</p>`}`}<//><//>`;
}

