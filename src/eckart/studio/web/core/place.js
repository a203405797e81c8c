// Where the page is: the part of the address behind # holds the whole state, so that an address can be kept and sent.
// "#/model/digits.safetensors/map?x=0&y=1" is {path: ["model", "digits.safetensors", "map"], asked: {x: "0", y: "1"}}.
import { useEffect, useState } from "../vendor/preact-htm.js";

export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), asked: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export function address(path, asked = {}) {
  const kept = Object.entries(asked).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Change some of the state where we are. Small steps (panning, typing) replace the entry of the history, choices add one. */
export function change(some, { replace = false } = {}) {
  const { path, asked } = parse(location.hash);
  const next = address(path, { ...asked, ...some });
  if (next === location.hash) return;
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function go(path, asked) {
  location.hash = address(path, asked);
}

export function usePlace() {
  const [place, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const follow = () => set(parse(location.hash));
    window.addEventListener("hashchange", follow);
    window.addEventListener("popstate", follow);
    return () => {
      window.removeEventListener("hashchange", follow);
      window.removeEventListener("popstate", follow);
    };
  }, []);
  return place;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a stray % in an address typed by hand
  }
}
