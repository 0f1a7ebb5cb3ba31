// The density of the points of a tile.
import { GRID } from "./tile.js";

// The density of a tile as an image, in the colour that most points of a square have, and lines of equal density.
export function fieldOf(tile, colours) {
  if (tile.field) return tile.field;
  const size = tile.isGrid ? GRID : 160,
    planes = [];
  for (let g = 0; g < colours.length; g += 1) planes.push(new Float32Array(size * size));
  for (let i = 0; i < tile.length; i += 1) {
    const x = tile.isGrid ? tile.xs[i] : Math.min(size - 1, (((tile.xs[i] - tile.left) / tile.side) * size) | 0);
    const y = tile.isGrid ? tile.ys[i] : Math.min(size - 1, (((tile.ys[i] - tile.top) / tile.side) * size) | 0);
    planes[tile.groups[i]][y * size + x] += tile.counts ? tile.counts[i] : 1;
  }
  const smooth = planes.map((plane) => blurred(plane, size, tile.isGrid ? 2 : 4));
  const sum = new Float32Array(size * size);
  for (const plane of smooth) for (let i = 0; i < sum.length; i += 1) sum[i] += plane[i];
  // The scale is that of the densest squares: a map of thousands and one of a million look alike.
  const ordered = sum.filter((n) => n > 0.05).sort();
  const dense = ordered[Math.floor(ordered.length * 0.9)] || 1;
  const image = document.createElement("canvas");
  image.width = image.height = size;
  const pen = image.getContext("2d"),
    data = pen.createImageData(size, size);
  for (let i = 0; i < sum.length; i += 1) {
    if (sum[i] < dense * 0.004) continue;
    let weight = 1e-9,
      red = 0,
      green = 0,
      blue = 0;
    for (let g = 0; g < colours.length; g += 1) {
      const w = smooth[g][i] ** 1.6;
      weight += w;
      red += colours[g][0] * w;
      green += colours[g][1] * w;
      blue += colours[g][2] * w;
    }
    data.data[4 * i] = red / weight;
    data.data[4 * i + 1] = green / weight;
    data.data[4 * i + 2] = blue / weight;
    data.data[4 * i + 3] = 215 * (1 - Math.exp((-1.6 * sum[i]) / dense));
  }
  pen.putImageData(data, 0, 0);
  tile.field = { image, size, lines: [0.12, 0.4, 0.9].map((share) => contour(sum, size, dense * share)) };
  return tile.field;
}
function blurred(plane, size, passes) {
  let from = plane;
  for (let pass = 0; pass < 2 * passes; pass += 1) {
    const to = new Float32Array(from.length),
      step = pass % 2 ? size : 1;
    for (let y = 0; y < size; y += 1)
      for (let x = 0; x < size; x += 1) {
        const i = y * size + x,
          edge = step === 1 ? x : y;
        const before = edge > 0 ? from[i - step] : 0,
          after = edge < size - 1 ? from[i + step] : 0;
        to[i] = (before + 2 * from[i] + after) / 4;
      }
    from = to;
  }
  return from;
}
function contour(sum, size, level) {
  const path = new Path2D();
  for (let y = 0; y < size - 1; y += 1)
    for (let x = 0; x < size - 1; x += 1) {
      const i = y * size + x,
        a = sum[i],
        b = sum[i + 1],
        c = sum[i + size + 1],
        d = sum[i + size];
      const above = (a > level) + (b > level) + (c > level) + (d > level);
      if (above === 0 || above === 4) continue;
      const cuts = [];
      if (a > level !== b > level) cuts.push(x + (level - a) / (b - a), y);
      if (b > level !== c > level) cuts.push(x + 1, y + (level - b) / (c - b));
      if (d > level !== c > level) cuts.push(x + (level - d) / (c - d), y + 1);
      if (a > level !== d > level) cuts.push(x, y + (level - a) / (d - a));
      for (let k = 0; k + 3 < cuts.length; k += 4) {
        path.moveTo(cuts[k], cuts[k + 1]);
        path.lineTo(cuts[k + 2], cuts[k + 3]);
      }
    }
  return path;
}
