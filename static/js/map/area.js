// The corners of an area that a reader draws around memories.
export const cornersOf = (text) =>
  text
    .split("_")
    .slice(1)
    .map((corner) => corner.split(".").map(Number));

// As the server decides it: an odd number of edges is on the right.
export function contains(corners, x, y) {
  let odd = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i, i += 1) {
    let [ax, ay] = corners[j],
      [bx, by] = corners[i];
    if (ay > by) [ax, ay, bx, by] = [bx, by, ax, ay];
    if (ay <= y && y < by && (x - ax) * (by - ay) < (bx - ax) * (y - ay)) odd = !odd;
  }
  return odd;
}

// The corner that leaves the outline most nearly as it is goes first, until few enough are left.
export function simplified(corners, most, unit) {
  const kept = corners
    .map(([x, y]) => [Math.round(x), Math.round(y)])
    .filter(([x, y], n, all) => n === 0 || x !== all[n - 1][0] || y !== all[n - 1][1]);
  const cost = (n) => {
    const [a, b, c] = [kept[(n + kept.length - 1) % kept.length], kept[n], kept[(n + 1) % kept.length]];
    return Math.abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]));
  };
  const slight = (3 / unit) ** 2;
  while (kept.length > 3) {
    let least = Infinity,
      which = 0;
    for (let n = 0; n < kept.length; n += 1) {
      const here = cost(n);
      if (here < least) [least, which] = [here, n];
    }
    if (kept.length <= most && least > slight) break;
    kept.splice(which, 1);
  }
  return kept;
}
