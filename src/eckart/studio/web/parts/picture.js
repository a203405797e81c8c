// Numbers as a grey or signed picture, drawn on a small canvas and enlarged without smoothing.
import { html, useEffect, useRef } from "../vendor/preact-htm.js";
import { along, DIVERGING } from "../core/colours.js";
import { useTheme } from "../core/theme.js";

/** values: height x width (x 3 for colours), in rows. signed: zero is grey, below blue, above orange. range: [low, high] shared by pictures to compare. */
export function Picture({ values, height, width, signed = false, range, label, size = 96 }) {
  const canvas = useRef(null);
  const turn = useTheme();
  useEffect(() => {
    const pen = canvas.current.getContext("2d"), image = pen.createImageData(width, height), depth = Math.max(1, Math.round(values.length / (height * width)));
    const finite = values.filter((value) => value !== null);
    const most = Math.max(1e-300, ...finite.map(Math.abs));
    const [low, high] = range ?? [Math.min(...finite), Math.max(...finite)];
    for (let i = 0; i < height * width; i += 1) {
      for (let c = 0; c < 3; c += 1) {
        const value = depth === 3 ? values[3 * i + c] : values[i];
        const unit = signed ? (value / most + 1) / 2 : (value - low) / (high - low || 1);
        image.data[4 * i + c] = value === null ? 128 : signed && depth === 1 ? along(DIVERGING, unit)[c] : 255 * Math.max(0, Math.min(1, unit));
      }
      image.data[4 * i + 3] = 255;
    }
    pen.putImageData(image, 0, 0);
  }, [values, signed, range?.[0], range?.[1], turn]);
  return html`<canvas ref=${canvas} class="picture" width=${width} height=${height} role="img" aria-label=${label} style=${{ width: `${size}px`, aspectRatio: `${width} / ${height}` }}></canvas>`;
}
