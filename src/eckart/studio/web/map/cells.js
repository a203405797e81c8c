// Points sorted into the cells of a grid, so that a window, a lasso or a place touches only the points near it.
const SIDE = 256; // 65,536 cells: about 15 points each at 1 M, and a table of starts that stays in the cache

const THIN_ABOVE = 1500000, THIN_TO = 750000; // a sample that is drawn in about 20 ms

/** xy interleaved; NaN has no place and is left out. Counting sort: two passes, linear. */
export function sorted(xy) {
  const n = xy.length / 2;
  let [left, right, bottom, top] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i < 2 * n; i += 2) {
    const x = xy[i], y = xy[i + 1];
    if (!(x - x === 0 && y - y === 0)) continue; // NaN and infinity
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < bottom) bottom = y;
    if (y > top) top = y;
  }
  if (!(left <= right)) [left, right, bottom, top] = [0, 1, 0, 1];
  const perX = SIDE / Math.max(right - left, 1e-30), perY = SIDE / Math.max(top - bottom, 1e-30);
  const starts = new Uint32Array(SIDE * SIDE + 1);
  const cellOf = new Uint16Array(n);
  let placed = 0;
  for (let i = 0; i < n; i += 1) {
    const x = xy[2 * i], y = xy[2 * i + 1];
    if (!(x - x === 0 && y - y === 0)) continue;
    const c = Math.min(SIDE - 1, ((x - left) * perX) | 0), r = Math.min(SIDE - 1, ((y - bottom) * perY) | 0);
    const cell = r * SIDE + c;
    cellOf[i] = cell;
    starts[cell + 1] += 1;
    placed += 1;
  }
  for (let cell = 0; cell < SIDE * SIDE; cell += 1) starts[cell + 1] += starts[cell];
  const next = starts.slice(0, SIDE * SIDE);
  const order = new Uint32Array(placed), sorted = new Float32Array(2 * placed);
  for (let i = 0; i < n; i += 1) {
    const x = xy[2 * i], y = xy[2 * i + 1];
    if (!(x - x === 0 && y - y === 0)) continue;
    const at = next[cellOf[i]]++;
    order[at] = i;
    sorted[2 * at] = x;
    sorted[2 * at + 1] = y;
  }
  const cells = { n, placed, xy: sorted, order, starts, left, right, bottom, top, perX, perY, every: 1 };
  return { ...cells, thin: placed > THIN_ABOVE ? thinned(cells, Math.ceil(placed / THIN_TO)) : null };
}

/** Every so many-th point of the sorted ones: a sample of each cell, side by side in memory, for views that move. */
function thinned(cells, every) {
  const count = Math.ceil(cells.placed / every), xy = new Float32Array(2 * count);
  for (let i = 0; i < count; i += 1) {
    xy[2 * i] = cells.xy[2 * i * every];
    xy[2 * i + 1] = cells.xy[2 * i * every + 1];
  }
  return { ...cells, xy, starts: cells.starts.map((start) => Math.ceil(start / every)), every };
}

/** Runs [from, to) of sorted points whose cells meet a window; `count` is how many points they hold. */
export function runs(cells, x0, x1, y0, y1) {
  const c0 = bound((x0 - cells.left) * cells.perX), c1 = bound((x1 - cells.left) * cells.perX);
  const r0 = bound((y0 - cells.bottom) * cells.perY), r1 = bound((y1 - cells.bottom) * cells.perY);
  const found = [];
  let count = 0;
  if (x1 < cells.left || x0 > cells.right || y1 < cells.bottom || y0 > cells.top) return { found, count };
  if (c0 === 0 && c1 === SIDE - 1) {
    const from = cells.starts[r0 * SIDE], to = cells.starts[(r1 + 1) * SIDE];
    return { found: [from, to], count: to - from };
  }
  for (let r = r0; r <= r1; r += 1) {
    const from = cells.starts[r * SIDE + c0], to = cells.starts[r * SIDE + c1 + 1];
    if (to > from) {
      found.push(from, to);
      count += to - from;
    }
  }
  return { found, count };
}

function bound(cell) {
  return Math.max(0, Math.min(SIDE - 1, Math.floor(cell)));
}

/** The middle part of the points, without the few far ones: quantiles of a sample on both axes, {left, right, bottom, top}. */
export function bulk(cells, share = 0.002) {
  const step = Math.max(1, Math.floor(cells.placed / 20000)); // 20,000 points settle these quantiles to 0.1 % of the rows
  const xs = [], ys = [];
  for (let i = 0; i < cells.placed; i += step) {
    xs.push(cells.xy[2 * i]);
    ys.push(cells.xy[2 * i + 1]);
  }
  if (!xs.length) return { left: 0, right: 1, bottom: 0, top: 1 };
  const range = (values, low, high) => {
    values.sort((a, b) => a - b);
    const a = values[Math.floor(share * (values.length - 1))], b = values[Math.ceil((1 - share) * (values.length - 1))];
    const pad = 0.12 * (b - a || Math.abs(a) || 1);
    return (high - low) < 1.6 * (b - a) ? [low - 0.5 * pad, high + 0.5 * pad] : [a - pad, b + pad];
  };
  const [left, right] = range(xs, cells.left, cells.right);
  const [bottom, top] = range(ys, cells.bottom, cells.top);
  return { left, right, bottom, top };
}

/** Positions (of the caller's order) inside a polygon of data coordinates, by the even-odd rule; increasing. */
export function inside(cells, polygon) {
  const px = polygon.map((p) => p[0]), py = polygon.map((p) => p[1]);
  const x0 = Math.min(...px), x1 = Math.max(...px), y0 = Math.min(...py), y1 = Math.max(...py);
  const { found, count } = runs(cells, x0, x1, y0, y1);
  const out = new Uint32Array(count);
  let kept = 0;
  for (let f = 0; f < found.length; f += 2) {
    for (let i = found[f]; i < found[f + 1]; i += 1) {
      const x = cells.xy[2 * i], y = cells.xy[2 * i + 1];
      if (x < x0 || x > x1 || y < y0 || y > y1) continue;
      let within = false;
      for (let a = 0, b = px.length - 1; a < px.length; b = a, a += 1) {
        if (py[a] > y !== py[b] > y && x < ((px[b] - px[a]) * (y - py[a])) / (py[b] - py[a]) + px[a]) within = !within;
      }
      if (within) out[kept++] = cells.order[i];
    }
  }
  return out.slice(0, kept).sort();
}

/** The point nearest to a place, where a unit of x and y is so many pixels; at most `reach` pixels away; -1 for none. */
export function nearest(cells, x, y, perX, perY, reach) {
  const { found } = runs(cells, x - reach / perX, x + reach / perX, y - reach / perY, y + reach / perY);
  let best = reach * reach, at = -1;
  for (let f = 0; f < found.length; f += 2) {
    for (let i = found[f]; i < found[f + 1]; i += 1) {
      const dx = (cells.xy[2 * i] - x) * perX, dy = (cells.xy[2 * i + 1] - y) * perY;
      const distance = dx * dx + dy * dy;
      if (distance < best) {
        best = distance;
        at = cells.order[i];
      }
    }
  }
  return at;
}
