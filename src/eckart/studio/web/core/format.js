// Numbers as people read them.
const whole = new Intl.NumberFormat("en");

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e12) return whole.format(value + 0).replace("-", "−");
  const size = Math.abs(value);
  if (size >= 10 ** digits && size < 1e7) return whole.format(Math.round(value)).replace("-", "−");
  const text = size < 1e-3 || size >= 1e7 ? exponent(value, digits) : trimmed(value.toPrecision(digits));
  return text.replace(/^-/, "−");
}

/** A number out of the data: 2015 may be a year, so that whole numbers of four digits have no comma. */
export function datum(value, digits = 4) {
  return Number.isInteger(value) && Math.abs(value) < 1e4 ? String(value).replace("-", "−") : number(value, digits);
}

function trimmed(text) {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

function exponent(value, digits) {
  const [head, power] = value.toExponential(Math.max(0, digits - 2)).split("e");
  return `${trimmed(head)}e${power.replace("+", "")}`;
}

export function share(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 90) return `${value.toFixed(1)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[at]}`;
}

/** "1 row", "2 rows". */
export function counted(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
