// Curves and bars, drawn as SVG in the colours of the page.
import { html, useState } from "../vendor/preact-htm.js";
import { datum, number } from "../core/format.js";
import { ticks } from "../map/drawing.js";
import { useName, useSize } from "./ui.js";

const ROOM = { left: 52, right: 14, top: 10, bottom: 30 };
const STEEP = 6; // times the spread of the rest: then the rest would be a flat line
const MOST_POINTS = 1200; // more than pixels in a row: each column of pixels keeps its least and its most

/** The values that a curve is scaled by: where a steep start would flatten all the rest, only what comes after it. */
function settled(points) {
  const later = points.slice(Math.ceil(0.05 * points.length)).map((p) => p[1]).filter(Number.isFinite), all = points.map((p) => p[1]).filter(Number.isFinite);
  if (later.length < 5) return all;
  const spread = (values) => values.reduce((high, value) => Math.max(high, value), -Infinity) - values.reduce((low, value) => Math.min(low, value), Infinity);
  return spread(all) > STEEP * spread(later) && spread(later) > 0 ? later : all;
}

/** points: [[x, y], ...] in order of x; several lines share the axes. steep: a start far off the rest may leave the picture. */
export function Lines({ lines, xName, yName, label, height = 180, whole = false, steep = false, marks = [] }) {
  const [box, size] = useSize();
  const frame = useName("chart");
  const [at, setAt] = useState(null);
  const all = lines.flatMap((line) => line.points).filter(([, y]) => Number.isFinite(y));
  const width = Math.max(160, size.width);
  if (!all.length) return html`<div ref=${box} class="chart-empty faint small">nothing measured yet</div>`;
  const extent = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  let [x0, x1] = extent(all.map((p) => p[0]));
  const scaled = steep ? lines.flatMap((line) => settled(line.points)) : all.map((p) => p[1]);
  let [y0, y1] = extent([...scaled, ...marks.map((m) => m.y)]);
  const cut = scaled.length < all.length;
  if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
  if (whole) y0 = Math.min(0, y0);
  const pad = 0.06 * (y1 - y0 || Math.abs(y1) || 1);
  [y0, y1] = [whole && y0 === 0 ? 0 : y0 - pad, y1 + pad];
  const px = (x) => ROOM.left + ((x - x0) / (x1 - x0)) * (width - ROOM.left - ROOM.right);
  const py = (y) => height - ROOM.bottom - ((y - y0) / (y1 - y0)) * (height - ROOM.top - ROOM.bottom);
  const move = (event) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const x = x0 + ((event.clientX - bounds.left - ROOM.left) / (width - ROOM.left - ROOM.right)) * (x1 - x0);
    const near = lines[0].points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));
    setAt(near);
  };
  return html`<div ref=${box} class="chart"><svg width=${width} height=${height} role="img" aria-label=${`${label}: ${number(all[0][1])} at ${number(all[0][0])}, ${number(all[all.length - 1][1])} at ${number(all[all.length - 1][0])}`}
      onMouseMove=${move} onMouseLeave=${() => setAt(null)}>
    <clipPath id=${frame}><rect x=${ROOM.left - 3} y="0" width=${width - ROOM.left - ROOM.right + 6} height=${height - ROOM.bottom + 3} /></clipPath>
    ${ticks(y0, y1, height / 48).map((y) => html`<g key=${`y${y}`}><line class="grid" x1=${ROOM.left} x2=${width - ROOM.right} y1=${py(y)} y2=${py(y)} /><text class="tick" x=${ROOM.left - 8} y=${py(y) + 4} text-anchor="end">${number(y, 3 + Math.max(0, Math.ceil(Math.log10(Math.abs(y) / (y1 - y0) || 1))))}</text></g>`)}
    ${ticks(x0, x1, width / 90).filter((x) => Number.isInteger(x) || x1 - x0 < 3).map((x) => html`<text key=${`x${x}`} class="tick" x=${px(x)} y=${height - 12} text-anchor="middle">${datum(x)}</text>`)}
    ${marks.map((m) => html`<g key=${m.name}><line class="mark" x1=${ROOM.left} x2=${width - ROOM.right} y1=${py(m.y)} y2=${py(m.y)} /><text class="tick" x=${width - ROOM.right} y=${py(m.y) - 4} text-anchor="end">${m.name}</text></g>`)}
    ${lines.map((line, i) => html`<path key=${line.name ?? i} class="line ${line.soft ? "soft-line" : ""}" d=${path(thin(line.points, width), px, py)} clip-path=${`url(#${frame})`} style=${line.colour ? { stroke: line.colour } : {}} />`)}
    ${lines.filter((line) => line.points.length <= 40).map((line) => line.points.map(([x, y]) => Number.isFinite(y) && y >= y0 && y <= y1 && html`<circle class="knot" cx=${px(x)} cy=${py(y)} r="2.4" style=${line.colour ? { fill: line.colour } : {}} />`))}
    ${at && html`<g><line class="cursor" x1=${px(at[0])} x2=${px(at[0])} y1=${ROOM.top} y2=${height - ROOM.bottom} /><circle class="knot" cx=${px(at[0])} cy=${py(at[1])} r="3.5" /></g>`}
  </svg><div class="chart-foot small"><span class="faint">${xName} → ${yName}${cut ? "; the first steps lie outside" : ""}</span><span>${at ? `${number(at[0])}: ${number(at[1], 6)}` : ""}</span></div></div>`;
}

function path(points, px, py) {
  let pen = false, words = "";
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) { pen = false; continue; }
    words += `${pen ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
    pen = true;
  }
  return words;
}

function thin(points, width) {
  if (points.length <= MOST_POINTS) return points;
  const bin = Math.ceil(points.length / Math.min(width, MOST_POINTS / 2)), kept = [];
  for (let i = 0; i < points.length; i += bin) {
    const part = points.slice(i, i + bin);
    const low = part.reduce((a, b) => (b[1] < a[1] ? b : a)), high = part.reduce((a, b) => (b[1] > a[1] ? b : a));
    kept.push(...(low[0] < high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

/** Names with a bar and a number each; below zero the bar goes to the left. items: [{name, value, note, colour, onPick}]. */
export function Bars({ items, label, head = ["", ""], digits = 3, format = (value) => number(value, digits) }) {
  const most = Math.max(1e-300, ...items.map((item) => Math.abs(item.value)));
  const signed = items.some((item) => item.value < 0);
  return html`<table class="bars"><caption class="hidden-words">${label}</caption><thead class="hidden-words"><tr><th scope="col">${head[0]}</th><th scope="col">bar</th><th scope="col">${head[1]}</th></tr></thead><tbody>
    ${items.map((item, i) => html`<tr key=${item.key ?? item.name ?? i}><th scope="row">${item.onPick ? html`<button type="button" class="link" onClick=${item.onPick}>${item.name}</button>` : item.name}${item.note && html`<span class="faint small"> ${item.note}</span>`}</th>
      <td class="bar-cell" aria-hidden="true"><span class="track ${signed ? "signed" : ""}"><span class=${item.value < 0 ? "under" : ""} style=${{ width: `${((signed ? 50 : 100) * Math.abs(item.value)) / most}%`, ...(item.colour ? { background: item.colour } : {}) }}></span></span></td>
      <td class="n">${format(item.value)}</td></tr>`)}
  </tbody></table>`;
}
