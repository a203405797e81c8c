// The two canvases of a map: below the picture that the worker makes, above it axes, labels, rings, ellipses and the lasso.
import { isDark, rgb } from "../core/colours.js";
import { datum, number } from "../core/format.js";
import { token } from "../core/theme.js";

const REST = 140; // milliseconds without a move after which the full picture is drawn and the address follows
const STOPS = { light: ["#b4c3f1", "#6d88dc", "#3557c8", "#22398c", "#101f56"], dark: ["#3a4d8c", "#5f7fd6", "#93aeff", "#c4d2ff", "#f3f6ff"] };

export class Drawing {
  /** tell: {onView(view), onFrame({ms, total, count}), onReady(facts), onError()}. */
  constructor(base, over, aspect, tell) {
    Object.assign(this, { base, over, aspect, tell, view: null, fit: null, facts: null, waiting: new Map(), turn: 0, flying: false, dirty: false, moving: false });
    this.marks = { labels: [], ellipses: [], picked: [], hover: null, lasso: null };
    this.worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      this.waiting.get(data.id)?.(data);
      this.waiting.delete(data.id);
    };
    this.worker.onerror = () => this.tell.onError();
    this.theme();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.worker.terminate();
  }

  ask(kind, message = {}, given = []) {
    const id = (this.turn += 1);
    this.worker.postMessage({ id, kind, ...message }, given);
    return new Promise((resolve) => this.waiting.set(id, resolve));
  }

  theme() {
    const dark = isDark();
    const stops = (dark ? STOPS.dark : STOPS.light).map(rgb);
    this.ramp = new Uint8Array(64 * 3);
    for (let i = 0; i < 64; i += 1) {
      const at = (i / 63) * (stops.length - 1), s = Math.min(stops.length - 2, Math.floor(at));
      for (let c = 0; c < 3; c += 1) this.ramp[3 * i + c] = stops[s][c] + (stops[s + 1][c] - stops[s][c]) * (at - s);
    }
    this.dim = dark ? [120, 128, 140] : [150, 156, 165];
    this.colours = { ink: token("ink"), faint: token("faint"), line: token("line"), paper: token("raised"), accent: token("accent") };
    this.request();
  }

  async points(xy, view) {
    this.xy = xy;
    this.facts = null;
    const copy = xy.slice().buffer;
    const facts = await this.ask("points", { xy: copy }, [copy]);
    if (this.closed || this.xy !== xy) return;
    this.facts = facts;
    this.view = view;
    this.refit();
    this.tell.onReady(facts);
  }

  colour(codes, table) {
    this.ask("colour", { codes, table });
    this.request();
  }

  choose(at) {
    this.ask("choose", { at });
    this.request();
  }

  mark(some) {
    Object.assign(this.marks, some);
    if (!this.flying) this.paint();
  }

  resize(width, height) {
    const density = Math.min(2, window.devicePixelRatio || 1);
    this.width = Math.max(1, Math.round(width * density));
    this.height = Math.max(1, Math.round(height * density));
    this.density = density;
    this.refit();
  }

  refit() {
    if (!this.facts || !this.width) return;
    const { left, right, bottom, top } = this.facts.bulk;
    let perX = this.width / (right - left), perY = this.height / (top - bottom);
    if (this.aspect === "equal") perX = perY = Math.min(perX, perY);
    this.fit = { x: (left + right) / 2, y: (bottom + top) / 2, perX, perY };
    this.request();
  }

  /** What is seen: {x, y: the middle, perX, perY: device pixels a unit}. */
  seen() {
    const { x, y, k } = this.view ?? { ...this.fit, k: 1 };
    return { x, y, perX: this.fit.perX * k, perY: this.fit.perY * k };
  }

  window() {
    const { x, y, perX, perY } = this.seen();
    return { left: x - this.width / 2 / perX, right: x + this.width / 2 / perX, bottom: y - this.height / 2 / perY, top: y + this.height / 2 / perY };
  }

  /** CSS pixels to data, and back. */
  data(px, py) {
    const { x, y, perX, perY } = this.seen();
    return [x + (px * this.density - this.width / 2) / perX, y - (py * this.density - this.height / 2) / perY];
  }

  pan(dx, dy) {
    const { x, y, perX, perY } = this.seen();
    this.look({ x: x - (dx * this.density) / perX, y: y + (dy * this.density) / perY, k: this.view?.k ?? 1 });
  }

  zoom(by, px = this.width / this.density / 2, py = this.height / this.density / 2) {
    const [x, y] = this.data(px, py), now = this.view ?? { x: this.fit.x, y: this.fit.y, k: 1 };
    const k = Math.min(5000, Math.max(0.2, now.k * by)), shrink = now.k / k;
    this.look({ x: x + (now.x - x) * shrink, y: y + (now.y - y) * shrink, k });
  }

  look(view, quiet = false) {
    if (!this.fit) return;
    this.view = view;
    this.moving = !quiet;
    this.request();
    if (quiet) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.moving = false;
      this.request();
      this.tell.onView(this.view);
    }, REST);
  }

  async request() {
    if (!this.fit || !this.facts || this.closed) return;
    this.dirty = true;
    if (this.flying) return;
    this.flying = true;
    while (this.dirty && !this.closed) {
      this.dirty = false;
      const began = performance.now();
      const buffer = this.spare;
      this.spare = null;
      const frame = await this.ask("draw", { view: this.seen(), width: this.width, height: this.height, ramp: this.ramp, dim: this.dim, moving: this.moving, buffer }, buffer ? [buffer] : []);
      if (this.closed) return;
      if (!frame.nothing) this.show(frame, began);
    }
    this.flying = false;
  }

  show(frame, began) {
    if (this.base.width !== frame.width || this.base.height !== frame.height) {
      for (const canvas of [this.base, this.over]) Object.assign(canvas, { width: frame.width, height: frame.height });
    }
    this.base.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(frame.buffer), frame.width, frame.height), 0, 0);
    this.spare = frame.buffer;
    this.drawn = frame.view;
    this.paint();
    this.tell.onFrame({ ms: frame.ms, total: performance.now() - began, count: frame.count, moving: this.moving });
  }

  /** The upper canvas, in the view of the picture below. */
  paint() {
    if (!this.drawn) return;
    const pen = this.over.getContext("2d"), { width, height } = this.over, d = this.density, v = this.drawn;
    const to = (x, y) => [width / 2 + (x - v.x) * v.perX, height / 2 - (y - v.y) * v.perY];
    pen.clearRect(0, 0, width, height);
    this.axes(pen, to, v);
    for (const e of this.marks.ellipses) {
      const [cx, cy] = to(e.cx, e.cy);
      pen.strokeStyle = e.colour;
      pen.lineWidth = 2 * d;
      pen.beginPath();
      for (let i = 0; i <= 72; i += 1) {
        const t = (2 * Math.PI * i) / 72, a = e.rx * Math.cos(t), b = e.ry * Math.sin(t);
        const [px, py] = to(e.cx + a * Math.cos(e.angle) - b * Math.sin(e.angle), e.cy + a * Math.sin(e.angle) + b * Math.cos(e.angle));
        if (i === 0) pen.moveTo(px, py);
        else pen.lineTo(px, py);
      }
      pen.stroke();
      this.text(pen, e.name, cx, cy, { bold: true, colour: e.colour, middle: true });
    }
    this.names(pen, to);
    for (const at of this.marks.picked) this.ring(pen, to, at, 7 * d);
    if (this.marks.hover !== null) this.ring(pen, to, this.marks.hover, 5 * d);
    if (this.marks.lasso?.length > 1) {
      pen.beginPath();
      this.marks.lasso.forEach(([x, y], i) => (i ? pen.lineTo(...to(x, y)) : pen.moveTo(...to(x, y))));
      pen.closePath();
      pen.globalAlpha = 0.12;
      pen.fillStyle = this.colours.accent;
      pen.fill();
      pen.globalAlpha = 1;
      pen.strokeStyle = this.colours.accent;
      pen.lineWidth = 1.5 * d;
      pen.stroke();
    }
  }

  ring(pen, to, at, radius) {
    const [px, py] = to(this.xy[2 * at], this.xy[2 * at + 1]);
    pen.beginPath();
    pen.arc(px, py, radius, 0, 2 * Math.PI);
    pen.lineWidth = 4 * this.density;
    pen.strokeStyle = this.colours.paper;
    pen.stroke();
    pen.lineWidth = 2 * this.density;
    pen.strokeStyle = this.colours.accent;
    pen.stroke();
  }

  /** Labels in the order of their weight; one that would cover another is left out. */
  names(pen, to) {
    const taken = [], d = this.density;
    for (const label of this.marks.labels) {
      const [px, py] = to(label.x, label.y);
      const size = label.strong ? 13 : 11.5;
      pen.font = `${label.strong ? 600 : 500} ${size * d}px system-ui, sans-serif`;
      const half = pen.measureText(label.name).width / 2 + 3 * d;
      const box = [px - half, py - 16 * d, px + half, py + 3 * d];
      if (box[0] < 0 || box[1] < 0 || box[2] > this.width || box[3] > this.height) continue;
      if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) continue;
      taken.push(box);
      this.text(pen, label.name, px, py - 5 * d, { bold: label.strong, size, middle: false, colour: label.colour });
    }
  }

  text(pen, words, px, py, { bold = false, size = 12, colour = this.colours.ink, middle = false } = {}) {
    pen.font = `${bold ? 600 : 500} ${size * this.density}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = middle ? "middle" : "alphabetic";
    pen.lineJoin = "round";
    pen.lineWidth = 3.5 * this.density;
    pen.strokeStyle = this.colours.paper;
    pen.strokeText(words, px, py);
    pen.fillStyle = colour;
    pen.fillText(words, px, py);
  }

  axes(pen, to, v) {
    const d = this.density, { width, height } = this.over;
    pen.lineWidth = d;
    pen.strokeStyle = this.colours.line;
    pen.fillStyle = this.colours.faint;
    pen.font = `${11 * d}px system-ui, sans-serif`;
    const [zx, zy] = to(0, 0);
    pen.beginPath();
    pen.moveTo(Math.round(zx) + 0.5, 0);
    pen.lineTo(Math.round(zx) + 0.5, height);
    pen.moveTo(0, Math.round(zy) + 0.5);
    pen.lineTo(width, Math.round(zy) + 0.5);
    pen.stroke();
    pen.textBaseline = "alphabetic";
    pen.textAlign = "center";
    for (const x of ticks(v.x - width / 2 / v.perX, v.x + width / 2 / v.perX, width / d / 110)) {
      const [px] = to(x, 0);
      if (px > 40 * d && px < width - 20 * d) pen.fillText(datum(x), px, height - 6 * d);
    }
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const y of ticks(v.y - height / 2 / v.perY, v.y + height / 2 / v.perY, height / d / 90)) {
      const [, py] = to(0, y);
      if (py > 12 * d && py < height - 24 * d) pen.fillText(datum(y), 6 * d, py);
    }
  }
}

/** About `count` round numbers from low to high. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) found.push(Math.abs(i * step) < step * 1e-9 ? 0 : Number((i * step).toPrecision(12)));
  return found;
}
