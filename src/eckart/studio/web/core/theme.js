// Light, dark, or as the system says; kept for this browser.
import { useEffect, useState } from "../vendor/preact-htm.js";

const KEY = "eckart-studio-theme";
const listeners = new Set();

export function startTheme() {
  const kept = localStorage.getItem(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}

export function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem(KEY, name);
  tell();
}

function tell() {
  for (const listener of listeners) listener();
}

/** A number that changes with the theme: what is drawn on a canvas is drawn again. */
export function useTheme() {
  const [turn, set] = useState(0);
  useEffect(() => {
    const listener = () => set((value) => value + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return turn;
}

export function token(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
