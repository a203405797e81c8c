// Beside every picture: the certificate, how the fit went, what was chosen and why, and the same by Python and by the shell.
import { html } from "../vendor/preact-htm.js";
import { number, seconds } from "../core/format.js";
import { Lines } from "./chart.js";
import { Card, Copy } from "./ui.js";

const KINDS = {
  global: "no better answer exists",
  stationary: "no better answer is nearby",
  statistical: "true up to chance, with the limits below",
};

export function Verdict({ certificate, short = false }) {
  if (!certificate) return null;
  return html`<span class="verdict ${certificate.holds ? "holds" : "fails"}"><span aria-hidden="true">${certificate.holds ? "✓" : "✕"}</span>${short ? "" : "certificate "}${certificate.holds ? "holds" : "does not hold"}</span>`;
}

export function Evidence({ model }) {
  const { certificate, trace, plan } = model;
  return html`<aside class="evidence" aria-label="evidence and how to repeat it">
    <${Certificate} certificate=${certificate} />
    ${trace && trace.values.length > 1 && html`<${Card} title="How the fit went" aside=${html`<span class="faint small">${trace.values.length} steps${trace.seconds?.length ? `, ${seconds(trace.seconds[trace.seconds.length - 1])}` : ""}</span>`}>
      <${Lines} height=${140} steep=${true} label="course of the fit" lines=${[{ points: trace.values.map((value, i) => [i + 1, value]) }]} xName="step" yName=${trace.quantity ?? "objective"} />
      <p class="small soft">${trace.reason}${trace.note ? ` ${trace.note}` : ""}</p><//>`}
    ${plan && Object.keys(plan).length > 0 && html`<${Card} title="What was chosen, and why"><dl class="pairs">
      ${Object.entries(plan).map(([name, value]) => html`<div key=${name}><dt>${name.replaceAll("_", " ")}</dt><dd><${Value} value=${value} /></dd></div>`)}</dl><//>`}
    <${Repeat} python=${model.python} shell=${model.shell} />
  </aside>`;
}

/** A value of any shape: numbers short, records as lines. */
function Value({ value }) {
  if (Array.isArray(value)) return value.map((one) => (typeof one === "object" ? JSON.stringify(one) : number(one, 5))).join(", ");
  if (value === null || typeof value !== "object") return number(value, 5);
  return html`<ul>${Object.entries(value).map(([name, one]) => html`<li key=${name}><span class="faint">${name.replaceAll("_", " ")}</span> ${typeof one === "object" && one !== null && !Array.isArray(one) ? Object.entries(one).map(([key, inner]) => `${key} ${number(inner, 5)}`).join(", ") : html`<${Value} value=${one} />`}</li>`)}</ul>`;
}

export function Certificate({ certificate }) {
  return html`<${Card} title="Certificate" aside=${html`<${Verdict} certificate=${certificate} short=${true} />`}>
    <p class="small soft"><span class="kind">${certificate.kind}</span>${KINDS[certificate.kind] ? `: ${certificate.holds ? "" : "had it held, "}${KINDS[certificate.kind]}` : ""}</p>
    <p class="small">${certificate.problem}</p>
    ${!certificate.holds && html`<p class="small bad">${certificate.reason}</p>`}
    <ul class="checks">${certificate.checks.map((check) => html`<li key=${check.name} class=${check.passed ? "" : "failed"}>
      <span class="tick-mark" aria-hidden="true">${check.passed ? "✓" : "✕"}</span><div><span class="check-name">${check.name.replaceAll("_", " ")}</span> <span class="n">${number(check.value, 3)} ≤ ${number(check.limit, 3)}</span><span class="hidden-words">${check.passed ? "passed" : "failed"}</span><p class="faint small">${check.meaning}</p></div></li>`)}</ul>
    ${Object.keys(certificate.facts ?? {}).length > 0 && html`<details><summary>measured besides</summary><dl class="pairs">${Object.entries(certificate.facts).map(([name, value]) => html`<div key=${name}><dt>${name.replaceAll("_", " ")}</dt><dd><${Value} value=${value} /></dd></div>`)}</dl></details>`}
    ${(certificate.notes ?? []).map((note) => html`<p key=${note} class="small faint">${note}</p>`)}
  <//>`;
}

export function Repeat({ python, shell }) {
  if (!python && !shell) return null;
  return html`<${Card} title="The same without the studio">
    ${python && html`<div class="code"><div class="code-head"><span>Python</span><${Copy} text=${python} words="Copy as Python" /></div><pre tabindex="0" aria-label="Python"><code>${python}</code></pre></div>`}
    ${shell && html`<div class="code"><div class="code-head"><span>Shell</span><${Copy} text=${shell} words="Copy as shell" /></div><pre tabindex="0" aria-label="shell"><code>${shell}</code></pre></div>`}
  <//>`;
}
