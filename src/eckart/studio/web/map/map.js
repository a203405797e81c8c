// A map of points as a component: drag to move, wheel or pinch to zoom, lasso (or shift) to select, click to pick; the same by keys and buttons.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { lookup } from "../core/colours.js";
import { counted, number } from "../core/format.js";
import { useTheme } from "../core/theme.js";
import { useName, useSize } from "../parts/ui.js";
import { Drawing } from "./drawing.js";

/**
 * points: Float32Array, interleaved. colour: {codes: Uint8Array, kind: "classes" | "ramp"} or null. selection: Uint32Array or null.
 * polygon: the lasso in data coordinates, or null; onSelected(at): the points inside it, whenever points or polygon are other ones.
 * view: {x, y, k} or null for all. nameOf(at): a promise of the words of a point. onWindow(window): the view rests there.
 */
export function MapView({ points, aspect = "equal", colour, selection, polygon, onPolygon, onSelected, picked, onPick, nameOf, labels, ellipses, view, onView, onWindow, label, axes, tall }) {
  const base = useRef(null), over = useRef(null), drawing = useRef(null), drag = useRef(null);
  const [box, size] = useSize();
  const [lasso, setLasso] = useState(false);
  const [tip, setTip] = useState(null);
  const [seen, setSeen] = useState(null);
  const [broken, setBroken] = useState(false);
  const turn = useTheme();
  const help = useName("map-help");
  const latest = useRef({});
  latest.current = { onView, onWindow, nameOf, onSelected };

  useEffect(() => {
    const mine = new Drawing(base.current, over.current, aspect, {
      onView: (next) => { latest.current.onView?.(next); latest.current.onWindow?.(mine.window()); },
      onFrame: (frame) => { setSeen((before) => (frame.moving || before === frame.count ? before : frame.count)); base.current?.dispatchEvent(new CustomEvent("frame", { detail: frame, bubbles: true })); },
      onError: () => setBroken(true),
      onReady: () => latest.current.onWindow?.(mine.window()),
    });
    drawing.current = mine;
    const wheel = (event) => {
      event.preventDefault();
      const bounds = over.current.getBoundingClientRect();
      mine.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), event.clientX - bounds.left, event.clientY - bounds.top);
    };
    over.current.addEventListener("wheel", wheel, { passive: false });
    return () => mine.close();
  }, [aspect]);
  useEffect(() => { if (size.width) drawing.current.resize(size.width, size.height); }, [size.width, size.height, aspect]);
  useEffect(() => { if (points) drawing.current.points(points, view ?? null); }, [points, aspect]);
  useEffect(() => { drawing.current.theme(); }, [turn]);
  useEffect(() => { if (points) drawing.current.colour(colour?.codes ?? null, colour ? lookup(colour.kind) : null); }, [colour, points, turn, aspect]);
  useEffect(() => { if (points) drawing.current.choose(selection ?? null); }, [selection, points, aspect]);
  useEffect(() => {
    if (!points || !onSelected) return;
    if (!polygon) { latest.current.onSelected(null); return; }
    drawing.current.ask("inside", { polygon }).then((found) => !found.nothing && latest.current.onSelected(found.at));
  }, [polygon, points, aspect]);
  useEffect(() => { drawing.current.mark({ labels: labels ?? [], ellipses: ellipses ?? [], picked: (picked ?? []).filter((at) => points && at >= 0 && 2 * at < points.length) }); }, [labels, ellipses, picked, points, turn]);
  useEffect(() => {
    const mine = drawing.current, now = mine.view;
    if ((view === null || view === undefined) && now === null) return;
    if (view && now && view.x === now.x && view.y === now.y && view.k === now.k) return;
    if (!mine.moving) { mine.look(view ?? null, true); if (mine.facts && mine.fit) latest.current.onWindow?.(mine.window()); }
  }, [view?.x, view?.y, view?.k]);

  const place = (event) => {
    const bounds = over.current.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  };
  const down = (event) => {
    if (event.button !== 0 || !points) return;
    over.current.setPointerCapture(event.pointerId);
    const at = place(event);
    const fingers = drag.current?.fingers ?? new Map();
    fingers.set(event.pointerId, at);
    drag.current = { kind: (lasso || event.shiftKey) && onPolygon ? "lasso" : "pan", start: at, last: at, far: false, path: [drawing.current.data(...at)], fingers };
    setTip(null);
  };
  const move = (event) => {
    const at = place(event), now = drag.current, mine = drawing.current;
    if (!now) {
      hover(at);
      return;
    }
    if (now.fingers.size === 2) {
      const before = [...now.fingers.values()], mid = [(before[0][0] + before[1][0]) / 2, (before[0][1] + before[1][1]) / 2];
      now.fingers.set(event.pointerId, at);
      const after = [...now.fingers.values()];
      mine.zoom(Math.hypot(after[0][0] - after[1][0], after[0][1] - after[1][1]) / Math.max(1, Math.hypot(before[0][0] - before[1][0], before[0][1] - before[1][1])), ...mid);
      now.far = true;
      return;
    }
    now.far ||= Math.hypot(at[0] - now.start[0], at[1] - now.start[1]) > 4;
    if (now.kind === "lasso") {
      now.path.push(mine.data(...at));
      mine.mark({ lasso: now.path });
    } else if (now.far) mine.pan(at[0] - now.last[0], at[1] - now.last[1]);
    now.last = at;
  };
  const up = async (event) => {
    const now = drag.current, mine = drawing.current;
    if (!now) return;
    now.fingers.delete(event.pointerId);
    if (now.fingers.size) return;
    drag.current = null;
    if (now.kind === "lasso") {
      mine.mark({ lasso: null });
      if (now.path.length > 3) onPolygon(simpler(now.path));
      setLasso(false);
    } else if (!now.far && event.type === "pointerup") {
      const found = await near(place(event), 14);
      if (found >= 0) onPick?.(found);
      else if (selection) onPolygon?.(null);
    }
  };
  const near = async (at, reach) => {
    const mine = drawing.current;
    if (!mine.fit) return -1;
    const [x, y] = mine.data(...at), { perX, perY } = mine.seen();
    return (await mine.ask("nearest", { x, y, perX, perY, reach: reach * mine.density })).at;
  };
  const asking = useRef({ busy: false, at: -1 });
  const hover = async (at) => {
    if (asking.current.busy) return;
    asking.current.busy = true;
    const found = await near(at, 9);
    asking.current.busy = false;
    if (drag.current) return;
    if (found !== asking.current.at) drawing.current.mark({ hover: found >= 0 ? found : null });
    asking.current.at = found;
    if (found < 0) { setTip(null); return; }
    const words = latest.current.nameOf ? await latest.current.nameOf(found).catch(() => null) : null;
    if (asking.current.at === found && words) setTip({ x: at[0], y: at[1], words });
  };
  const leave = () => { asking.current.at = -1; drawing.current.mark({ hover: null }); setTip(null); };
  const keys = (event) => {
    const mine = drawing.current, step = 60;
    const acts = {
      ArrowLeft: () => mine.pan(step, 0), ArrowRight: () => mine.pan(-step, 0), ArrowUp: () => mine.pan(0, step), ArrowDown: () => mine.pan(0, -step),
      "+": () => mine.zoom(1.4), "=": () => mine.zoom(1.4), "-": () => mine.zoom(1 / 1.4), 0: () => mine.look(null), Escape: () => onPolygon?.(null),
    };
    if (!acts[event.key] || !mine.fit) return;
    event.preventDefault();
    acts[event.key]();
  };
  const chooseAll = () => {
    const { left, right, bottom, top } = drawing.current.window();
    onPolygon([[left, bottom], [right, bottom], [right, top], [left, top]]);
  };
  return html`<figure class="map ${tall ? "tall" : ""}">
    <div class="map-box" ref=${box}>
      <canvas ref=${base} aria-hidden="true"></canvas>
      <canvas ref=${over} class=${lasso ? "over lassoing" : "over"} tabindex="0" role="img" aria-label=${label} aria-describedby=${help}
        onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${up} onPointerLeave=${leave} onKeyDown=${keys}
        onDblClick=${(event) => drawing.current.zoom(2, ...place(event))}></canvas>
      ${tip && html`<div class="tip" style=${{ left: `${Math.min(tip.x + 12, size.width - 160)}px`, top: `${Math.max(4, tip.y - 34)}px` }}>${tip.words}</div>`}
      <div class="map-tools" role="group" aria-label="map tools">
        ${onPolygon && html`<button type="button" class="icon-button" aria-pressed=${lasso} title="draw around points to select them (or hold shift)" aria-label="lasso" onClick=${() => setLasso(!lasso)}><${Icon} name="lasso" /></button>`}
        ${onPolygon && html`<button type="button" class="icon-button" title="select everything in view" aria-label="select everything in view" onClick=${chooseAll}><${Icon} name="frame" /></button>`}
        <button type="button" class="icon-button" title="nearer" aria-label="zoom in" onClick=${() => drawing.current.zoom(1.6)}><${Icon} name="plus" /></button>
        <button type="button" class="icon-button" title="farther" aria-label="zoom out" onClick=${() => drawing.current.zoom(1 / 1.6)}><${Icon} name="minus" /></button>
        <button type="button" class="icon-button" title="the whole map" aria-label="whole map" onClick=${() => drawing.current.look(null)}><${Icon} name="home" /></button>
      </div>
      ${broken && html`<div class="map-wait bad" role="alert">The map cannot be drawn: this browser did not start its worker, or ran out of memory. Reload the page to try again.</div>`}
      ${!points && html`<div class="map-wait" role="status">reading the points…</div>`}
    </div>
    <figcaption class="map-caption"><span>${axes && html`<span class="axis">→ ${axes.x}</span><span class="axis">↑ ${axes.y}</span>`}</span>
      <span class="faint">${seen !== null && points && `${counted(seen, "point")} in view`}${selection ? ` · ${number(selection.length)} selected` : ""}</span></figcaption>
    <span id=${help} class="hidden-words">Arrow keys move the map, plus and minus zoom, 0 shows all, escape clears the selection. The table below lists what is selected.</span>
  </figure>`;
}

const CORNERS = 48; // of a lasso that is kept in the address

/** A path with at most so many corners, as short numbers. */
function simpler(path) {
  const step = Math.max(1, path.length / CORNERS), kept = [];
  for (let i = 0; i < path.length; i += step) kept.push(path[Math.floor(i)].map((value) => Number(value.toPrecision(6))));
  return kept;
}

const PATHS = {
  lasso: "M4 9c0-3 3-5 6.500-5S17 6 17 9s-3 4.500-6.500 4.500c-2.500 0-4.500.5-4.500 2S7.500 18 7 20M6 14c-1.300-1-2-2.700-2-5",
  frame: "M4 8V4h4M16 4h4v4M20 16v4h-4M8 20H4v-4M9 9h6v6H9z",
  plus: "M12 5v14M5 12h14", minus: "M5 12h14", home: "M4 11l8-7 8 7M6 10v10h12V10",
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 24 24" width="18" height="18" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
