// The worker of a map: holds the points, answers with pictures, lassos and nearest points, so that the page itself never waits.
import { bulk, inside, nearest, sorted } from "./cells.js";
import { draw } from "./raster.js";

let cells = null;
let colours = null;
let chosen = null;

const answers = {
  points({ xy }) {
    const began = performance.now();
    cells = sorted(new Float32Array(xy));
    colours = null;
    chosen = null;
    return { n: cells.n, placed: cells.placed, bulk: bulk(cells), all: { left: cells.left, right: cells.right, bottom: cells.bottom, top: cells.top }, ms: performance.now() - began };
  },
  colour({ codes, table }) {
    if (!codes) {
      colours = null;
      return {};
    }
    const mine = new Uint8Array(cells.placed);
    for (let i = 0; i < mine.length; i += 1) mine[i] = codes[cells.order[i]];
    colours = { codes: mine, table };
    return {};
  },
  choose({ at }) {
    if (!at) {
      chosen = null;
      return {};
    }
    const marks = new Uint8Array(cells.n);
    for (let i = 0; i < at.length; i += 1) marks[at[i]] = 1;
    chosen = new Uint8Array(cells.placed);
    for (let i = 0; i < chosen.length; i += 1) chosen[i] = marks[cells.order[i]];
    return {};
  },
  draw({ view, width, height, buffer, ramp, dim, moving }) {
    const began = performance.now();
    const need = 4 * width * height;
    const pixels = new Uint8ClampedArray(buffer && buffer.byteLength === need ? buffer : new ArrayBuffer(need));
    const count = draw(cells, view, width, height, { colours, chosen, ramp, dim, moving }, pixels);
    return { buffer: pixels.buffer, width, height, view, count, ms: performance.now() - began };
  },
  inside({ polygon }) {
    return { at: inside(cells, polygon) };
  },
  nearest({ x, y, perX, perY, reach }) {
    return { at: nearest(cells, x, y, perX, perY, reach) };
  },
};

onmessage = ({ data }) => {
  if (!cells && data.kind !== "points") {
    postMessage({ id: data.id, kind: data.kind, nothing: true });
    return;
  }
  const answer = answers[data.kind](data);
  const given = answer.buffer ? [answer.buffer] : answer.at?.buffer ? [answer.at.buffer] : [];
  postMessage({ id: data.id, kind: data.kind, ...answer }, given);
};
