// Colours of data. Classes: a set that stays apart for colour-blind eyes (after Okabe and Ito), then others, twenty in all, the most that a legend lists; numbers: a dark-to-light ramp
// of steady lightness, blue to yellow, whose ends differ for every kind of colour vision.
export const CLASSES = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a4fbf", "#6b7280", "#a3362e", "#3f7d20", "#e69f00", "#1f4e79",
    "#c2185b", "#00838f", "#8d6e00", "#5d4037", "#9575cd", "#26a69a", "#d81b1b", "#7b8f3a"],
  dark: ["#56a8e8", "#f08a4b", "#3cc79a", "#e6a0c8", "#e3bd4e", "#9fd8ff", "#b79bf0", "#a6afbb", "#ee8b80", "#93cf6b", "#ffc04d", "#7fa9dd",
    "#ff7fb0", "#4dd0e1", "#d4c36a", "#c8a494", "#d1b3ff", "#80e0d0", "#ff8a80", "#c5d48a"],
};
export const RAMP = ["#00204d", "#17366f", "#3c4d6e", "#575c6d", "#707173", "#8a8779", "#a69d75", "#c4b56c", "#e4cf5b", "#ffea46"];
// The ramp on a dark page starts where it can be seen.
const FIRST_ON_DARK = 0.28;
const LAST_ON_LIGHT = 0.9;
/** Below and above zero: blue, grey, orange. */
export const DIVERGING = ["#0b5a99", "#5b93c5", "#a9bfd3", "#c9c9c9", "#dfb795", "#d68446", "#b34e00"];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

export function along(stops, t) {
  const at = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(at));
  const [a, b] = [rgb(stops[i]), rgb(stops[i + 1])];
  return a.map((value, c) => Math.round(value + (b[c] - value) * (at - i)));
}

export function classColour(index, dark = isDark()) {
  const set = dark ? CLASSES.dark : CLASSES.light;
  return set[index % set.length];
}

export function rampColour(t, dark = isDark()) {
  return along(RAMP, dark ? FIRST_ON_DARK + (1 - FIRST_ON_DARK) * t : LAST_ON_LIGHT * t);
}

export function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/** The code of a value that is missing. */
export const NOTHING = 255;

/** Colours for codes 0..254 (the classes in turn, or the ramp) and a grey for what is missing. */
export function lookup(kind, dark = isDark()) {
  const table = new Uint8Array(256 * 3);
  for (let code = 0; code < NOTHING; code += 1) {
    table.set(kind === "classes" ? rgb(classColour(code, dark)) : rampColour(code / (NOTHING - 1), dark), 3 * code);
  }
  table.set(dark ? [92, 100, 112] : [190, 194, 200], 3 * NOTHING);
  return table;
}
