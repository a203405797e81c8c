// Questions to the server. Answers are JSON or, for bulk numbers, raw buffers with a description in a header; errors are problems in words.
import { useEffect, useRef, useState } from "../vendor/preact-htm.js";

export class Problem extends Error {
  constructor(detail, status) {
    super(detail);
    this.status = status;
  }
}

/** Take the token that the shell put behind # of the first address to the server once; afterwards a cookie answers for this browser. */
export async function startSession() {
  const given = new URLSearchParams(location.hash.replace(/^#/, ""));
  const token = given.get("token");
  if (!token) return null;
  const file = given.get("file");
  history.replaceState(null, "", location.pathname);
  await post("session", { token });
  return file;
}

export function url(path, asked = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  const text = query.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

async function answered(request) {
  let response;
  try {
    response = await request;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The studio does not answer. It may have been closed in the shell; start it again there and reload this page.", 0);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401) {
    throw new Problem("This browser has no key to the studio any more. Open the address that the shell printed when the studio started.", 401);
  }
  throw new Problem(problem.detail ?? problem.title ?? `The studio answered with status ${response.status}.`, response.status);
}

async function content(response) {
  if (response.status === 204) return null;
  if ((response.headers.get("content-type") ?? "").startsWith("application/octet-stream")) {
    const about = response.headers.get("x-eckart");
    return { about: about ? JSON.parse(decodeURIComponent(about)) : {}, buffer: await response.arrayBuffer() };
  }
  return response.json();
}

export async function get(path, asked, signal) {
  return content(await answered(fetch(url(path, asked), { signal })));
}

export async function post(path, body, signal) {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
  return content(await answered(fetch(`/api/${path}`, request)));
}

export async function remove(path) {
  return content(await answered(fetch(`/api/${path}`, { method: "DELETE" })));
}

export async function upload(file) {
  const request = { method: "POST", headers: { "content-type": "application/octet-stream" }, body: file };
  return content(await answered(fetch(url("upload", { name: file.name }), request)));
}

/** An attachment that a POST answers with, saved by the browser. */
export async function save(path, body, name) {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await answered(fetch(`/api/${path}`, request));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await response.blob()), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/**
 * The answer to a question while it stays the same: {value, error, busy}. The last answer stays on the page until the next is there.
 * `ask` is a function of an AbortSignal, or null for no question; `key` says when it is another one.
 */
export function useAnswer(ask, key) {
  const [state, set] = useState({ value: null, error: null, busy: Boolean(ask), key: null });
  const last = useRef(0);
  useEffect(() => {
    if (!ask) {
      set({ value: null, error: null, busy: false, key });
      return undefined;
    }
    const stop = new AbortController();
    const turn = (last.current += 1);
    set((before) => ({ ...before, busy: true, error: null }));
    ask(stop.signal).then(
      (value) => turn === last.current && set({ value, error: null, busy: false, key }),
      (error) => turn === last.current && error.name !== "AbortError" && set({ value: null, error, busy: false, key }),
    );
    return () => stop.abort();
  }, [key]);
  return { ...state, busy: Boolean(ask) && (state.busy || state.key !== key) }; // in the first picture of another question its answer is not there yet
}

export function useGet(path, asked) {
  return useAnswer(path ? (signal) => get(path, asked, signal) : null, path ? url(path, asked) : "");
}

export function usePost(path, body) {
  return useAnswer(path ? (signal) => post(path, body, signal) : null, path ? `${path} ${JSON.stringify(body)}` : "");
}
