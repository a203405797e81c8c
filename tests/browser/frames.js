async (steps) => {
  const frames = [], keep = (event) => frames.push(event.detail); document.addEventListener('frame', keep);
  const canvas = document.querySelector('canvas.over'), box = canvas.getBoundingClientRect(); canvas.setPointerCapture = () => {};
  const send = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {
    clientX: box.left + x, clientY: box.top + y, button: 0, pointerId: 7, bubbles: true}));
  const next = () => new Promise((done) => requestAnimationFrame(done));
  const moved = (some) => some.filter((frame) => frame.moving).map((frame) => frame.total);
  send('pointerdown', 300, 200);
  for (let i = 0; i < steps; i += 1) { send('pointermove', 300 + 2 * i, 200 + i); await next(); }
  send('pointerup', 300 + 2 * steps, 200 + steps);
  const panned = moved(frames), count = frames.length;
  for (let i = 0; i < steps; i += 1) {
    const wheel = {deltaY: i < steps / 2 ? -90 : 90, clientX: box.left + 300, clientY: box.top + 200, bubbles: true, cancelable: true};
    canvas.dispatchEvent(new WheelEvent('wheel', wheel));
    await next();
  }
  document.removeEventListener('frame', keep);
  return {panned, zoomed: moved(frames.slice(count))};
}
