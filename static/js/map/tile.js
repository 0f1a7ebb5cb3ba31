// A tile as the server sends it: all points of a part of the plane, or a grid of counts where there are too many.
export const SIDE = 65536;
export const GRID = 256;

export function readTile(buffer, z, column, row) {
  const [isGrid, length, total, all] = new Uint32Array(buffer, 0, 6);
  const xs = new Float32Array(length),
    ys = new Float32Array(length);
  const steps = new Uint16Array(buffer, 24, length),
    rows = new Uint16Array(buffer, 24 + 2 * length, length);
  const counts = isGrid ? new Uint32Array(buffer.slice(24 + 4 * length, 24 + 8 * length)) : undefined;
  const groups = new Uint8Array(buffer, 24 + (isGrid ? 8 : 4) * length, length);
  for (let i = 0, x = 0; i < length; i += 1) {
    x = (x + steps[i]) & 65535;
    xs[i] = x;
    ys[i] = rows[i];
  }
  const side = SIDE / 2 ** z;
  return {
    z,
    left: column * side,
    top: row * side,
    side,
    isGrid: Boolean(isGrid),
    length,
    total,
    all,
    xs,
    ys,
    counts,
    groups,
  };
}

// The part of the plane that has points, with a margin.
export function extent(root) {
  const scale = root.isGrid ? SIDE / GRID : 1;
  let left = SIDE,
    top = SIDE,
    right = 0,
    bottom = 0;
  for (let i = 0; i < root.length; i += 1) {
    left = Math.min(left, root.xs[i] * scale);
    right = Math.max(right, root.xs[i] * scale);
    top = Math.min(top, root.ys[i] * scale);
    bottom = Math.max(bottom, root.ys[i] * scale);
  }
  const pad = 0.04 * SIDE;
  return { left: left - pad, top: top - pad, right: right + pad, bottom: bottom + pad };
}

// The points by squares of 512, to find the nearest.
export function indexed(root) {
  const buckets = new Map();
  for (let i = 0; i < root.length; i += 1) {
    const key = (root.xs[i] >> 9) * 128 + (root.ys[i] >> 9);
    (buckets.get(key) ?? buckets.set(key, []).get(key)).push(i);
  }
  return buckets;
}
