// A picture of points by sums in typed arrays: it needs no GPU, and its cost is a write a point.
// Many points: each pixel counts what falls on it (and adds up the colours); the count becomes opacity on a logarithmic scale.
// Few points: anti-aliased discs, one over the other.
import { runs } from "./cells.js";

const DISCS_UP_TO = 6000; // beyond, discs cover one another on a usual screen and hide where the points are dense
const PAIRS_UP_TO = 150000; // 2 x 2 pixels each, so that thin clouds stay visible
const IN_MOTION = 22; // milliseconds a picture may take while the view moves: then a part of the points is drawn, and all of them when it rests
const FAINTEST = 0.3; // opacity of one point alone: still visible on paper

const room = { sums: new Uint32Array(0), perPoint: 2e-5 }; // perPoint: milliseconds a point, learned from the pictures drawn

/** view: {x, y: data at the middle, perX, perY: pixels a unit}; colours: {codes, table} or null, in sorted order; chosen: Uint8Array in sorted order or null. */
export function draw(cells, view, width, height, { colours, chosen, ramp, dim, moving }, pixels) {
  const x0 = view.x - width / 2 / view.perX, x1 = view.x + width / 2 / view.perX;
  const y0 = view.y - height / 2 / view.perY, y1 = view.y + height / 2 / view.perY;
  const { found: all, count } = runs(cells, x0, x1, y0, y1);
  const affordable = IN_MOTION / room.perPoint;
  const thin = moving && cells.thin !== null && count > affordable;
  const from = thin ? cells.thin : cells;
  const found = thin ? runs(from, x0, x1, y0, y1).found : all;
  pixels.fill(0);
  const place = { ax: view.perX, bx: -x0 * view.perX, ay: -view.perY, by: y1 * view.perY, width, height, found };
  if (count <= DISCS_UP_TO) discs(cells, place, { colours, chosen, ramp, dim, radius: radiusFor(count), opacity: count > 1500 ? 0.7 : 0.82 }, pixels);
  else {
    const step = moving ? Math.max(1, Math.ceil(count / from.every / affordable)) : 1, began = performance.now();
    density(from, place, { colours, chosen, ramp, dim, twice: count <= PAIRS_UP_TO, step }, pixels);
    const drawn = count / from.every / step;
    if (drawn > 200000) room.perPoint += 0.2 * ((performance.now() - began) / drawn - room.perPoint); // smaller counts measure the pixels, not the points
  }
  return count;
}

function radiusFor(count) {
  return count > 1500 ? 2.6 : count > 300 ? 3.6 : 4.6;
}

function density(cells, { ax, bx, ay, by, width, height, found }, { colours, chosen, ramp, dim, twice, step }, pixels) {
  const lanes = colours ? 5 : 2; // all, chosen, red, green, blue
  const size = width * height * lanes;
  if (room.sums.length < size) room.sums = new Uint32Array(size);
  const sums = room.sums.length === size ? room.sums : room.sums.subarray(0, size);
  sums.fill(0);
  const { xy, every } = cells;
  const codes = colours?.codes, table = colours?.table;
  for (let f = 0; f < found.length; f += 2) {
    for (let i = found[f], to = found[f + 1]; i < to; i += step) {
      const px = ax * xy[2 * i] + bx, py = ay * xy[2 * i + 1] + by;
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const at = ((py | 0) * width + (px | 0)) * lanes;
      add(sums, at, i * every, chosen, codes, table);
      if (twice) {
        const right = px + 1 < width, below = py + 1 < height;
        if (right) add(sums, at + lanes, i * every, chosen, codes, table);
        if (below) add(sums, at + width * lanes, i * every, chosen, codes, table);
        if (right && below) add(sums, at + (width + 1) * lanes, i * every, chosen, codes, table);
      }
    }
  }
  tone(sums, lanes, width * height, { colours, chosen, ramp, dim }, pixels);
}

function add(sums, at, i, chosen, codes, table) {
  sums[at] += 1;
  if (chosen !== null && chosen[i] === 0) return;
  sums[at + 1] += 1;
  if (codes !== undefined) {
    const c = 3 * codes[i];
    sums[at + 2] += table[c];
    sums[at + 3] += table[c + 1];
    sums[at + 4] += table[c + 2];
  }
}

function tone(sums, lanes, count, { colours, chosen, ramp, dim }, pixels) {
  let most = 1;
  for (let p = 0, at = 0; p < count; p += 1, at += lanes) if (sums[at] > most) most = sums[at];
  // Logarithms of small counts by a table: most pixels hold few points.
  const scale = 1 / Math.log1p(most);
  const level = new Float32Array(Math.min(most + 1, 4096));
  for (let c = 0; c < level.length; c += 1) level[c] = Math.log1p(c) * scale;
  const steps = ramp.length / 3 - 1;
  for (let p = 0, at = 0, to = 0; p < count; p += 1, at += lanes, to += 4) {
    const all = sums[at];
    if (all === 0) continue;
    const some = sums[at + 1];
    const t = level[all] ?? Math.log1p(all) * scale;
    if (some === 0) {
      pixels[to] = dim[0];
      pixels[to + 1] = dim[1];
      pixels[to + 2] = dim[2];
      pixels[to + 3] = 255 * (0.12 + 0.3 * t);
    } else if (colours) {
      pixels[to] = sums[at + 2] / some;
      pixels[to + 1] = sums[at + 3] / some;
      pixels[to + 2] = sums[at + 4] / some;
      pixels[to + 3] = 255 * (FAINTEST + 0.1 + (0.9 - FAINTEST) * t);
    } else {
      const c = 3 * Math.round(t * steps);
      pixels[to] = ramp[c];
      pixels[to + 1] = ramp[c + 1];
      pixels[to + 2] = ramp[c + 2];
      pixels[to + 3] = 255 * (FAINTEST + (1 - FAINTEST) * Math.min(1, 2 * t));
    }
  }
}

function discs(cells, place, { colours, chosen, ramp, dim, radius, opacity }, pixels) {
  const stamp = stampOf(radius);
  const plain = ramp.subarray(3 * ((ramp.length / 3) >> 1), 3 * ((ramp.length / 3) >> 1) + 3);
  // What is not chosen lies below what is.
  for (const turn of chosen ? [0, 1] : [1]) {
    for (let f = 0; f < place.found.length; f += 2) {
      for (let i = place.found[f]; i < place.found[f + 1]; i += 1) {
        if (chosen && chosen[i] !== turn) continue;
        const colour = turn === 0 ? dim : colours ? colours.table.subarray(3 * colours.codes[i], 3 * colours.codes[i] + 3) : plain;
        put(stamp, place.ax * cells.xy[2 * i] + place.bx, place.ay * cells.xy[2 * i + 1] + place.by, colour, turn === 0 ? 0.3 : opacity, place, pixels);
      }
    }
  }
}

/** Coverage of a disc by pixels around its middle. */
function stampOf(radius) {
  const half = Math.ceil(radius), side = 2 * half + 1;
  const cover = new Float32Array(side * side);
  for (let r = 0; r < side; r += 1) {
    for (let c = 0; c < side; c += 1) cover[r * side + c] = Math.max(0, Math.min(1, radius + 0.5 - Math.hypot(r - half, c - half)));
  }
  return { half, side, cover };
}

function put({ half, side, cover }, x, y, colour, opacity, { width, height }, pixels) {
  const left = Math.round(x) - half, top = Math.round(y) - half;
  if (left + side < 0 || top + side < 0 || left >= width || top >= height) return;
  for (let r = Math.max(0, -top); r < side && top + r < height; r += 1) {
    for (let c = Math.max(0, -left); c < side && left + c < width; c += 1) {
      const a = opacity * cover[r * side + c];
      if (a === 0) continue;
      const to = 4 * ((top + r) * width + left + c);
      const below = (pixels[to + 3] / 255) * (1 - a), sum = a + below;
      pixels[to] = (a * colour[0] + below * pixels[to]) / sum;
      pixels[to + 1] = (a * colour[1] + below * pixels[to + 1]) / sum;
      pixels[to + 2] = (a * colour[2] + below * pixels[to + 2]) / sum;
      pixels[to + 3] = 255 * sum;
    }
  }
}
