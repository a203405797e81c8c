// Jobs: what is running and what has run; one of them with its phases, its live curve, stop and resume.
import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { get, post, remove } from "../core/api.js";
import { number, seconds } from "../core/format.js";
import { address, go } from "../core/place.js";
import { Lines } from "../parts/chart.js";
import { Verdict } from "../parts/evidence.js";
import { Card, Copy, Empty, Words } from "../parts/ui.js";

const STATES = { waiting: "waiting", running: "running", stopping: "stopping", done: "done", stopped: "stopped", failed: "failed" };

export function JobsRoom({ jobs, onChange }) {
  return html`<div class="room"><header class="room-head"><div><h1>Jobs</h1><p class="soft">Results are ordinary model files and reports in the folder; the shell reads them too.</p></div></header>
    ${jobs.length ? html`<${Card}><${JobRows} jobs=${jobs} onChange=${onChange} /><//>` : html`<${Empty} title="Nothing has been run here yet">Open a data file, pick a verb and run it.<//>`}</div>`;
}

export function JobRows({ jobs, onChange }) {
  const forget = async (job) => { await remove(`jobs/${job.id}`).catch(() => {}); onChange?.(); };
  return html`<div class="wide" tabindex="0" role="region" aria-label="jobs"><table class="plain"><caption class="hidden-words">jobs, newest first</caption>
    <thead><tr><th scope="col">job</th><th scope="col">state</th><th scope="col">phase</th><th scope="col" class="n">time</th><th scope="col">result</th>${onChange && html`<th scope="col"><span class="hidden-words">forget</span></th>`}</tr></thead>
    <tbody>${jobs.map((job) => html`<tr key=${job.id}>
      <th scope="row"><a href=${address(["jobs", job.id])}>${job.verb} ${job.file}</a></th>
      <td><span class="state ${job.state}">${STATES[job.state] ?? job.state}</span></td>
      <td class="soft">${job.state === "running" ? job.phase : job.error ? html`<span class="bad clamp" title=${job.error}>${job.error}</span>` : ""}${job.state === "running" && job.total ? ` ${number(job.done)}/${number(job.total)}` : ""}</td>
      <td class="n">${seconds(job.seconds)}</td>
      <td>${job.model ? html`<a href=${address(["model", job.model])}>${job.model}</a>` : ""}</td>
      ${onChange && html`<td>${!["waiting", "running", "stopping"].includes(job.state) && html`<button type="button" class="quiet small-button" aria-label=${`forget job ${job.verb} ${job.file}`} onClick=${() => forget(job)}>forget</button>`}</td>`}
    </tr>`)}</tbody></table></div>`;
}

/** A job followed by its events. */
function useJob(id, turn) {
  const [job, set] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    get(`jobs/${id}`).then(set, setError);
    const stream = new EventSource(`/api/jobs/${encodeURIComponent(id)}/events`);
    const whole = (event) => set((before) => ({ phases: before?.phases, since: before?.since, ...JSON.parse(event.data) }));
    stream.addEventListener("job", whole);
    stream.addEventListener("phase", (event) => set((before) => before && passed(before, JSON.parse(event.data))));
    stream.addEventListener("objective", (event) => {
      const some = JSON.parse(event.data);
      set((before) => {
        if (!before) return before;
        const again = some.fit !== undefined && some.fit !== (before.fit ?? some.fit);
        return { ...before, fit: some.fit ?? before.fit, quantity: some.quantity ?? before.quantity, curve: [...(again ? [] : before.curve ?? []), ...some.points] };
      });
    });
    stream.addEventListener("note", (event) => set((before) => before && { ...before, notes: [...before.notes, JSON.parse(event.data).text] }));
    stream.addEventListener("say", (event) => {
      const { name, words } = JSON.parse(event.data);
      set((before) => before && { ...before, summary: [...(before.summary ?? []), [name, words]] });
    });
    for (const name of ["done", "stopped", "failed"]) stream.addEventListener(name, (event) => { whole(event); stream.close(); });
    return () => stream.close();
  }, [id, turn]);
  return { job, error, set };
}

/** A job with news of its phase; phases that ended are kept with the time they took. */
function passed(job, news) {
  const next = { ...job, ...news };
  if (!news.phase || news.phase === job.phase) return next;
  const since = job.since ?? 0;
  return { ...next, since: news.seconds, phases: job.phase ? [...(job.phases ?? []), [job.phase, Math.max(0, news.seconds - since)]] : job.phases };
}

export function JobRoom({ id, onChange }) {
  const [turn, setTurn] = useState(0);
  const { job, error, set } = useJob(id, turn);
  const [problem, setProblem] = useState(null);
  const [now, setNow] = useState(Date.now());
  const live = job && ["waiting", "running", "stopping"].includes(job.state);
  useEffect(() => {
    if (!live) { onChange?.(); return undefined; }
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [live]);
  if (error) return html`<${Words} kind="bad" title="No such job">${error.message}<//>`;
  if (!job) return html`<div class="waiting" role="status"><span class="hidden-words">loading</span><span class="bone"></span></div>`;
  const act = async (what) => {
    try {
      setProblem(null);
      set(await post(`jobs/${id}/${what}`, {}));
      if (what === "resume") setTurn(turn + 1);
      onChange?.();
    } catch (found) {
      setProblem(found);
    }
  };
  const forget = async () => { await remove(`jobs/${id}`).catch(setProblem); onChange?.(); go(["jobs"]); };
  const passed = live ? Math.max(job.seconds ?? 0, now / 1000 - job.began) : job.seconds;
  const share = job.total ? Math.min(1, job.done / job.total) : null;
  return html`<div class="room">
    <header class="room-head"><div><p class="kicker">${job.verb}</p><h1>${job.file}</h1><p class="soft"><span class="state ${job.state}">${STATES[job.state]}</span> · ${seconds(passed)}</p></div>
      <div class="room-acts">${job.can_stop && live && html`<button type="button" class="button" disabled=${job.state === "stopping"} onClick=${() => act("stop")}>${job.state === "stopping" ? "Stopping…" : "Stop"}</button>`}
        ${job.can_resume && !live && html`<button type="button" class="button" onClick=${() => act("resume")}>Resume</button>`}
        ${job.report && html`<a class="button" href=${`/api/report?file=${encodeURIComponent(job.report)}`} target="_blank" rel="noopener">Report ↗</a>`}
        ${job.model && html`<a class="button main" href=${address(["model", job.model])}>Open the model</a>`}
        ${!live && html`<button type="button" class="quiet" onClick=${forget}>Forget</button>`}</div></header>
    ${problem && html`<${Words} kind="bad">${problem.message}<//>`}
    ${job.error && html`<${Words} kind="bad" title="The job failed">${job.error}<//>`}
    <div class="two wide-left">
      <div class="stack">
        <${Card} title=${live ? job.phase || "starting" : "Course"} aside=${html`<span class="faint small" role="status">${share !== null && live ? `${number(job.done)} of ${number(job.total)}` : ""}</span>`}>
          ${live && html`<div class="progress" role="progressbar" aria-label=${job.phase || "starting"} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${share === null ? undefined : Math.round(100 * share)}><span class=${share === null ? "unknown" : ""} style=${share === null ? {} : { width: `${100 * share}%` }}></span></div>`}
          ${job.phases?.length > 0 && html`<ol class="phases" aria-label="phases that are done">${job.phases.map(([name, took], i) => html`<li key=${i}>${name} <span class="faint">${seconds(took)}</span></li>`)}</ol>`}
          <${Lines} label="objective" steep=${true} height=${260} lines=${[{ points: (job.curve ?? []).map(([step, value]) => [step, value]) }]} xName="step" yName=${job.quantity ?? "objective"} />
        <//>
        ${job.notes?.length > 0 && html`<${Card} title="Notes"><ul class="notes">${job.notes.map((note, i) => html`<li key=${i}>${note}</li>`)}</ul><//>`}
      </div>
      <div class="stack">
        ${job.certificate && html`<${Card} title="Certificate" aside=${html`<${Verdict} certificate=${job.certificate} />`}><p class="small soft">${job.certificate.kind}${job.certificate.reason ? `: ${job.certificate.reason}` : ""}</p><//>`}
        ${job.summary?.length > 0 && html`<${Card} title="In words"><dl class="pairs">${job.summary.map(([name, words], i) => html`<div key=${i}><dt>${name}</dt><dd>${words}</dd></div>`)}</dl><//>`}
        <${Card} title="The same in the shell"><div class="code"><div class="code-head"><span>Shell</span><${Copy} text=${job.shell} words="Copy as shell" /></div><pre tabindex="0" aria-label="shell"><code>${job.shell}</code></pre></div><//>
      </div>
    </div></div>`;
}
