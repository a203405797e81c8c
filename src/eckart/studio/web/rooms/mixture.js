// explain, mixtures: the rows on any two columns with the ellipses of the components, and what each component is like.
import { html, useMemo } from "../vendor/preact-htm.js";
import { useGet } from "../core/api.js";
import { classColour } from "../core/colours.js";
import { number, share } from "../core/format.js";
import { change } from "../core/place.js";
import { useTheme } from "../core/theme.js";
import { Bars } from "../parts/chart.js";
import { Answer, Card, Choice, Dot } from "../parts/ui.js";
import { RowMap } from "./rowmap.js";

export function MixtureRoom({ model, data, view, asked }) {
  const turn = useTheme();
  const axes = model.axes?.rows ?? [];
  const x = asked.x ?? axes[0]?.key, y = asked.y ?? axes[Math.min(1, axes.length - 1)]?.key, level = asked.level ?? "0.9";
  const answer = useGet("mixture", { file: model.file, x, y, level });
  const ellipses = useMemo(() => (answer.value?.components ?? []).filter((one) => one.ellipse).map((one) => ({ ...one.ellipse, name: String(one.number), colour: classColour(one.number - 1) })), [answer.value, turn]);
  if (view === "components") return html`<${Components} answer=${answer} />`;
  const at = asked.pick === undefined ? null : Number(asked.pick);
  return html`<${RowMap} model=${model} data=${data} asked=${asked} axes=${axes} aspect="free" colours=${model.colour?.rows ?? []} usual=${{ by: (model.colour?.rows ?? []).includes("component") ? "component" : undefined }} ellipses=${ellipses} picked=${at === null ? [] : [at]} onPick=${(next) => change({ pick: next })}
      more=${html`<${Choice} label="ellipses hold" value=${level} options=${[["0.5", "50 %"], ["0.9", "90 %"], ["0.99", "99 %"]]} onChoose=${(key) => change({ level: key })} />`}>
      ${at !== null && html`<${Row} model=${model} data=${data} at=${at} />`}<//>`;
}

function Row({ model, data, at }) {
  const answer = useGet("mixture/row", { file: model.file, data, at });
  return html`<${Card} title=${answer.value ? `Row ${answer.value.id ?? at}` : "Row"}><${Answer} of=${answer}>${(got) => html`<${Bars} label="shares of the components" head=${["component", "share"]} format=${(value) => share(value)} items=${got.shares.map((one) => ({ name: `component ${one.number}`, value: one.share, colour: classColour(one.number - 1) }))} /><p class="small faint">log density ${number(got.density)}</p>`}<//><//>`;
}

function Components({ answer }) {
  return html`<${Answer} of=${answer}>${(got) => html`<div class="tiles">${got.components.map((one) => html`<${Card} key=${one.number} title=${html`<${Dot} colour=${classColour(one.number - 1)} /> Component ${one.number}`} aside=${html`<span class="n soft">${share(one.share)}</span>`}>
    <table class="plain"><caption class="hidden-words">component ${one.number}</caption><thead><tr><th scope="col">column</th><th scope="col" class="n">mean</th></tr></thead><tbody>${one.means.map((mean) => html`<tr key=${mean.column}><th scope="row">${mean.column}</th><td class="n">${typeof mean.value === "number" ? number(mean.value) : String(mean.value)}</td></tr>`)}</tbody></table><//>`)}</div>`}<//>`;
}
