// The frame of the page: the bar, the folder at the left, and the room that the address names.
import { html, render, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, startSession } from "./core/api.js";
import { isDark } from "./core/colours.js";
import { address, go, usePlace } from "./core/place.js";
import { setTheme, startTheme, useTheme } from "./core/theme.js";
import { Words } from "./parts/ui.js";
import { DataRoom } from "./rooms/data.js";
import { JobRoom, JobsRoom } from "./rooms/jobs.js";
import { ModelRoom } from "./rooms/model.js";
import { StartRoom } from "./rooms/start.js";

/** Files and jobs, kept fresh by the server's events. */
function useFolder() {
  const [folder, setFolder] = useState({ value: null, error: null });
  const [jobs, setJobs] = useState([]);
  const readFolder = () => get("folder").then((value) => setFolder({ value, error: null }), (error) => setFolder({ value: null, error }));
  const readJobs = () => get("jobs").then((answer) => setJobs(answer.jobs), () => {});
  useEffect(() => {
    readFolder();
    readJobs();
    const stream = new EventSource("/api/events");
    stream.addEventListener("folder", readFolder);
    const renew = () => { readJobs(); readFolder(); };
    for (const name of ["job", "done", "stopped", "failed"]) stream.addEventListener(name, renew);
    stream.addEventListener("phase", (event) => {
      const some = JSON.parse(event.data);
      setJobs((all) => all.map((job) => (job.id === some.id ? { ...job, ...some } : job)));
    });
    const leave = () => stream.close();
    window.addEventListener("pagehide", leave);
    return () => { window.removeEventListener("pagehide", leave); stream.close(); };
  }, []);
  return { folder, jobs, readFolder, readJobs };
}

function App({ opened }) {
  const place = usePlace();
  const { folder, jobs, readFolder, readJobs } = useFolder();
  const [menu, setMenu] = useState(false);
  const main = useRef(null);
  const [kind, file, view] = place.path;
  useEffect(() => {
    const first = opened ?? folder.value?.open;
    if (!folder.value || place.path.length || !first || sessionStorage.getItem("opened") === first) return;
    sessionStorage.setItem("opened", first);
    const found = folder.value.files.find((one) => one.file === first);
    if (found) go([found.kind === "model" || found.kind === "vectors" ? "model" : "data", first]);
  }, [folder.value]);
  useEffect(() => {
    setMenu(false);
    window.scrollTo(0, 0);
    document.title = file ? `${file} · eckart studio` : "eckart studio";
  }, [kind, file]);
  const files = folder.value?.files ?? [];
  let room;
  if (folder.error) room = html`<${Words} kind="bad" title="The folder cannot be read">${folder.error.message}<//>`;
  else if (!folder.value) room = html`<div class="waiting" role="status"><span class="hidden-words">loading</span><span class="bone"></span><span class="bone"></span></div>`;
  else if (kind === "model" && file) room = html`<${ModelRoom} key=${file} file=${file} view=${view} asked=${place.asked} files=${files} />`;
  else if (kind === "data" && file) room = html`<${DataRoom} key=${file} file=${file} asked=${place.asked} onStarted=${readJobs} />`;
  else if (kind === "jobs" && file) room = html`<${JobRoom} key=${file} id=${file} onChange=${() => { readJobs(); readFolder(); }} />`;
  else if (kind === "jobs") room = html`<${JobsRoom} jobs=${jobs} onChange=${readJobs} />`;
  else room = html`<${StartRoom} folder=${folder.value} jobs=${jobs} onUploaded=${readFolder} />`;
  return html`<div class="shell">
    <${Bar} folder=${folder.value} jobs=${jobs} menu=${menu} onMenu=${() => setMenu(!menu)} />
    <${Side} files=${files} place=${place} open=${menu} />
    <main class="page" id="main-content" tabindex="-1" ref=${main}>${room}</main>
  </div>`;
}

function Bar({ folder, jobs, menu, onMenu }) {
  useTheme();
  const running = jobs.filter((job) => ["waiting", "running", "stopping"].includes(job.state)).length;
  const dark = isDark();
  return html`<header class="bar">
    <button type="button" class="icon-button menu-button" aria-label="files and models" aria-expanded=${menu} onClick=${onMenu}>☰</button>
    <a class="brand" href="#/"><img src="/web/icon.svg" alt="" />eckart <span>studio</span></a>
    ${folder && html`<span class="where" title=${folder.folder}>${folder.folder}</span>`}
    <span class="push"></span>
    <a class="quiet" href="#/jobs">Jobs${running ? html`<span class="count">${running}<span class="hidden-words"> running</span></span>` : ""}</a>
    <button type="button" class="icon-button" aria-label=${dark ? "use light colours" : "use dark colours"} title=${dark ? "light" : "dark"} onClick=${() => setTheme(dark ? "light" : "dark")}>
      <svg viewBox="0 0 24 24" width="18" height="18" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" aria-hidden="true">${dark ? html`<g><circle cx="12" cy="12" r="4" /><path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600l1.400 1.400M17 17l1.400 1.400M5.600 18.400L7 17M17 7l1.400-1.400" /></g>` : html`<path d="M20 14.500A8 8 0 0 1 9.500 4 8 8 0 1 0 20 14.500z" />`}</svg>
    </button>
  </header>`;
}

function Side({ files, place, open }) {
  const link = (kind, one) => html`<li key=${one.file}><a href=${address([kind, one.file])} title=${one.file} aria-current=${place.path[0] === kind && place.path[1] === one.file ? "page" : undefined}>
    <span class="name">${kind === "model" ? one.file.replace(/\.safetensors$/, "") : one.file}</span>${one.verb && html`<span class="kind">${one.verb}</span>`}</a></li>`;
  const models = files.filter((one) => one.kind === "model");
  const data = files.filter((one) => ["data", "folder-of-images", "folder-of-texts"].includes(one.kind));
  const reports = files.filter((one) => one.kind === "report");
  return html`<nav class="side ${open ? "open" : ""}" aria-label="files of the folder">
    <ul><li><a href="#/" aria-current=${place.path.length ? undefined : "page"}><span class="name">Start</span></a></li></ul>
    ${models.length > 0 && html`<h2>Models</h2><ul>${models.map((one) => link("model", one))}</ul>`}
    ${data.length > 0 && html`<h2>Data</h2><ul>${data.map((one) => link("data", one))}</ul>`}
    ${reports.length > 0 && html`<h2>Reports</h2><ul>${reports.map((one) => html`<li key=${one.file}><a href=${`/api/report?file=${encodeURIComponent(one.file)}`} target="_blank" rel="noopener"><span class="name">${one.file}</span><span class="kind" aria-hidden="true">↗</span></a></li>`)}</ul>`}
  </nav>`;
}

startTheme();
const app = document.getElementById("app");
startSession().then(
  (opened) => render(html`<${App} opened=${opened} />`, app),
  (error) => render(html`<main class="page"><${Words} kind="bad" title="The studio did not open">${error.message}<//></main>`, app),
);
