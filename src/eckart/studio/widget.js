// The page of the studio inside a notebook: its files come from Python, its questions go to Python, as messages of the widget.
// Modules are joined by blob addresses, since a notebook has no place to serve them from; the page lives in a frame of its own.

function joined(from, name) {
  const parts = from.split("/").slice(0, -1);
  for (const part of name.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}

/** A function from the path of a module to the address of its text, with everything it imports linked first. */
function linker(files, made) {
  return function link(path) {
    if (!(path in made)) {
      if (!(path in files)) throw new Error(`the studio's page has no file ${path}`);
      const text = files[path]
        .replace(/((?:from|import)\s*)"(\.{1,2}\/[^"]+)"/g, (_, head, name) => `${head}"${link(joined(path, name))}"`)
        .replace(/new URL\("(\.{1,2}\/[^"]+)",\s*import\.meta\.url\)/g, (_, name) => `"${link(joined(path, name))}"`);
      made[path] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    }
    return made[path];
  };
}

/** fetch, by messages: a question has a number, and its answer the same. */
function relay(model, window) {
  const waiting = new Map();
  let last = 0;
  const take = (message, buffers) => {
    const found = waiting.get(message?.id);
    if (message?.kind !== "answer" || !found) return;
    waiting.delete(message.id);
    const view = buffers?.[0];
    const bytes = view && message.status !== 204 ? new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength) : null;
    found(new window.Response(bytes && bytes.slice(), { status: message.status, headers: message.headers }));
  };
  model.on("msg:custom", take);
  const ask = (place, { method = "GET", body = null, signal } = {}) =>
    new Promise((resolve, reject) => {
      const id = (last += 1);
      waiting.set(id, resolve);
      signal?.addEventListener("abort", () => {
        waiting.delete(id);
        reject(new window.DOMException("given up", "AbortError"));
      });
      model.send({ kind: "ask", id, method, place: String(place), body });
    });
  return { ask, end: () => model.off("msg:custom", take) };
}

/** A stream of events that never speaks: in a notebook nothing runs beside the page. */
class Silent {
  addEventListener() {}
  removeEventListener() {}
  close() {}
}

/** Links of the page change its place without a step in the history, which belongs to the notebook. */
function stay(event, window) {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link) return;
  event.preventDefault();
  window.history.replaceState(null, "", link.getAttribute("href"));
  window.dispatchEvent(new window.HashChangeEvent("hashchange"));
}

/** Write the page into a frame; a function that takes its questions off the model again. */
function fill(frame, model, place, made) {
  const window = frame.contentWindow, page = frame.contentDocument, files = model.get("files");
  const { ask, end } = relay(model, window);
  page.open();
  page.write('<!doctype html><html lang="en"><head><meta charset="utf-8"><title>eckart</title></head><body><div id="app"></div></body></html>');
  page.close();
  window.fetch = ask;
  window.EventSource = Silent;
  window.history.replaceState(null, "", place);
  window.history.pushState = window.history.replaceState;
  page.addEventListener("click", (event) => stay(event, window));
  for (const [path, text] of Object.entries(files)) {
    if (path.endsWith(".css")) page.head.append(Object.assign(page.createElement("style"), { textContent: text }));
  }
  page.head.append(Object.assign(page.createElement("style"), { textContent: model.get("page_style") }));
  page.body.append(Object.assign(page.createElement("script"), { type: "module", src: linker(files, made)("app.js") }));
  return end;
}

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "eckart studio";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 0; display: block;`;
  const made = {};
  let end = () => {};
  // A frame has a page only once its cell is in the document, and loses it when the cell is moved; each time the browser then loads an empty one.
  frame.addEventListener("load", () => {
    if (frame.contentDocument.getElementById("app")) return;
    end();
    end = fill(frame, model, model.get("place"), made);
  });
  el.append(frame);
  return () => {
    end();
    frame.remove();
    Object.values(made).forEach((address) => URL.revokeObjectURL(address));
  };
}

export default { render };
