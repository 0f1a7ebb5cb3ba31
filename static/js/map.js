// The map of meaning: points or density on a canvas, names of regions, the card of a memory, an area drawn around some.
// The server sends tiles: all points of a tile, or a grid of counts where there are too many. Deeper tiles are fetched
// as the reader comes nearer. A swap of the page leaves the canvas alone; the addresses in #map say what to draw.
(() => {
  const SIDE = 65536, GRID = 256, GROUPS = 7, DEEPEST = 8;
  const FAR = 2.2, NEAREST = 60;
  const byId = (id) => document.getElementById(id);
  const view = { zoom: 1, x: SIDE / 2, y: SIDE / 2 };
  let map, canvas, ink, tiles = new Map(), address, width = 0, height = 0, unit = 1, stretch = 1, bounds;
  let colours = [], sprites = [], area = [], lassoing = false, drawn = [], hovered, wanted, frame;

  // --- a swap leaves the drawing alone ------------------------------------------------------------------------------
  const callbacks = Idiomorph.defaults.callbacks;
  const others = callbacks.beforeNodeMorphed;
  callbacks.beforeNodeMorphed = (old, fresh) =>
    (["map-drawing", "zoom"].includes(old.id) && old.id === fresh.id ? false : others?.(old, fresh));

  // --- tiles --------------------------------------------------------------------------------------------------------
  const keyOf = (z, x, y) => `${z}.${x}.${y}`;

  function read(buffer, z, column, row) {
    const [isGrid, length, total, all] = new Uint32Array(buffer, 0, 6);
    const xs = new Float32Array(length), ys = new Float32Array(length);
    const steps = new Uint16Array(buffer, 24, length), rows = new Uint16Array(buffer, 24 + 2 * length, length);
    const counts = isGrid ? new Uint32Array(buffer.slice(24 + 4 * length, 24 + 8 * length)) : undefined;
    const groups = new Uint8Array(buffer, 24 + (isGrid ? 8 : 4) * length, length);
    for (let i = 0, x = 0; i < length; i += 1) {
      x = (x + steps[i]) & 65535;
      xs[i] = x;
      ys[i] = rows[i];
    }
    const side = SIDE / 2 ** z;
    return { z, left: column * side, top: row * side, side, isGrid: Boolean(isGrid), length, total, all, xs, ys, counts, groups };
  }

  async function fetchTile(z, column, row) {
    const key = keyOf(z, column, row), from = address;
    if (tiles.has(key)) return;
    tiles.set(key, undefined);
    try {
      const reply = await fetch(`${from}&z=${z}&x=${column}&y=${row}`);
      if (!reply.ok) throw new Error(String(reply.status));
      const tile = read(await reply.arrayBuffer(), z, column, row);
      if (from !== address) return;
      tiles.set(key, tile);
      if (z === 0) begin(tile);
      draw();
    } catch {
      if (from !== address) return;
      tiles.delete(key);
      note("The map could not be loaded. Try again by changing the zoom.");
    }
  }

  function begin(root) {
    const missing = root.all - root.total;
    note(missing > 0 ? `${missing.toLocaleString("en")} of ${root.all.toLocaleString("en")} have no place yet.` : "");
    widen(root);
    index = root.isGrid ? undefined : indexed(root);
  }

  // The window shows the part of the plane with points. It grows with what later queries find and never shrinks, so that
  // nothing moves while a reader narrows a query.
  function widen(root) {
    if (!root.length) return;
    const here = extent(root), was = bounds, scale = unit;
    const wider = was && { left: Math.min(was.left, here.left), top: Math.min(was.top, here.top),
      right: Math.max(was.right, here.right), bottom: Math.max(was.bottom, here.bottom) };
    if (was && Object.keys(was).every((side) => was[side] === wider[side])) return;
    bounds = wider ?? here;
    if (view.zoom === 1) whole();
    else {
      fit();
      view.zoom = Math.min(NEAREST, (view.zoom * scale) / unit);
    }
  }
  function extent(root) {
    const scale = root.isGrid ? SIDE / GRID : 1;
    let left = SIDE, top = SIDE, right = 0, bottom = 0;
    for (let i = 0; i < root.length; i += 1) {
      left = Math.min(left, root.xs[i] * scale);
      right = Math.max(right, root.xs[i] * scale);
      top = Math.min(top, root.ys[i] * scale);
      bottom = Math.max(bottom, root.ys[i] * scale);
    }
    const pad = 0.04 * SIDE;
    return { left: left - pad, top: top - pad, right: right + pad, bottom: bottom + pad };
  }

  // The tiles to draw: the root if it has all points, else those of the zoom that are in sight, with what there is
  // above them where they are missing.
  function inSight() {
    const root = tiles.get(keyOf(0, 0, 0));
    if (!root) return [];
    if (!root.isGrid) return [root];
    const z = Math.min(DEEPEST, Math.max(0, Math.floor(Math.log2((unit * SIDE) / 1400)) + 1));
    const side = SIDE / 2 ** z, last = 2 ** z - 1;
    const [left, top] = placeAt(0, 0), [right, bottom] = placeAt(width, height);
    const between = (value) => Math.max(0, Math.min(last, Math.floor(value / side)));
    const found = new Set();
    for (let column = between(left); column <= between(right); column += 1) {
      for (let row = between(top); row <= between(bottom); row += 1) {
        let [a, b, c] = [z, column, row], tile = tiles.get(keyOf(a, b, c));
        while (!tile && a > 0) {
          [a, b, c] = [a - 1, b >> 1, c >> 1];
          tile = tiles.get(keyOf(a, b, c));
        }
        if (tile) found.add(tile);
        // A tile above that has all its points needs none below.
        if (tile?.isGrid && tile.z < z) fetchTile(tile.z + 1, column >> (z - tile.z - 1), row >> (z - tile.z - 1));
      }
    }
    return [...found].sort((one, other) => one.z - other.z);
  }

  // --- from the plane to the window and back --------------------------------------------------------------------------
  const at = (x, y) => [(x - view.x) * unit * stretch + width / 2, (y - view.y) * unit + height / 2];
  const placeAt = (px, py) => [(px - width / 2) / unit / stretch + view.x, (py - height / 2) / unit + view.y];

  function fit() {
    // On a phone the controls have a row of their own below.
    ({ clientWidth: width, clientHeight: height } = byId("map-drawing"));
    const { left, top, right, bottom } = bounds ?? { left: 0, top: 0, right: SIDE, bottom: SIDE };
    // A wide window is used by drawing the plane wider than high, and a phone by the opposite.
    stretch = Math.min(1.6, Math.max(0.7, (width / height) * ((bottom - top) / (right - left))));
    unit = Math.min(width / (right - left) / stretch, (height - 30) / (bottom - top)) * view.zoom;
  }
  function whole() {
    const { left, top, right, bottom } = bounds ?? { left: 0, top: 0, right: SIDE, bottom: SIDE };
    Object.assign(view, { zoom: 1, x: (left + right) / 2, y: (top + bottom) / 2 });
  }
  function zoomBy(factor, px = width / 2, py = height / 2) {
    if (!factor) whole();
    else {
      const [x, y] = placeAt(px, py);
      view.zoom = Math.max(1, Math.min(NEAREST, view.zoom * factor));
      fit();
      const [nx, ny] = placeAt(px, py);
      view.x += x - nx;
      view.y += y - ny;
      if (view.zoom === 1) whole();
    }
    hide();
    draw();
  }
  function moveBy(px, py) {
    view.x = Math.max(0, Math.min(SIDE, view.x - px / unit / stretch));
    view.y = Math.max(0, Math.min(SIDE, view.y - py / unit));
    draw();
  }

  // --- drawing --------------------------------------------------------------------------------------------------------
  function paint() {
    const style = getComputedStyle(map);
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    colours = Array.from({ length: GROUPS }, (_, n) => {
      pen.fillStyle = style.getPropertyValue(`--m${n}`).trim() || "#888";
      pen.fillRect(0, 0, 1, 1);
      return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    });
    sprites = colours.map((rgb) => {
      const dot = document.createElement("canvas");
      dot.width = dot.height = 16;
      const dots = dot.getContext("2d");
      dots.fillStyle = `rgb(${rgb.join(" ")})`;
      dots.beginPath();
      dots.arc(8, 8, 7.5, 0, 7);
      dots.fill();
      return dot;
    });
    for (const tile of tiles.values()) if (tile) tile.field = undefined;
  }

  // The density of a tile as an image, in the colour that most points of a square have, and lines of equal density.
  function fieldOf(tile) {
    if (tile.field) return tile.field;
    const size = tile.isGrid ? GRID : 160, planes = [];
    for (let g = 0; g < GROUPS; g += 1) planes.push(new Float32Array(size * size));
    for (let i = 0; i < tile.length; i += 1) {
      const x = tile.isGrid ? tile.xs[i] : Math.min(size - 1, ((tile.xs[i] - tile.left) / tile.side) * size | 0);
      const y = tile.isGrid ? tile.ys[i] : Math.min(size - 1, ((tile.ys[i] - tile.top) / tile.side) * size | 0);
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
    const pen = image.getContext("2d"), data = pen.createImageData(size, size);
    for (let i = 0; i < sum.length; i += 1) {
      if (sum[i] < dense * 0.004) continue;
      let weight = 1e-9, red = 0, green = 0, blue = 0;
      for (let g = 0; g < GROUPS; g += 1) {
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
      const to = new Float32Array(from.length), step = pass % 2 ? size : 1;
      for (let y = 0; y < size; y += 1) for (let x = 0; x < size; x += 1) {
        const i = y * size + x, edge = step === 1 ? x : y;
        const before = edge > 0 ? from[i - step] : 0, after = edge < size - 1 ? from[i + step] : 0;
        to[i] = (before + 2 * from[i] + after) / 4;
      }
      from = to;
    }
    return from;
  }
  function contour(sum, size, level) {
    const path = new Path2D();
    for (let y = 0; y < size - 1; y += 1) for (let x = 0; x < size - 1; x += 1) {
      const i = y * size + x, a = sum[i], b = sum[i + 1], c = sum[i + size + 1], d = sum[i + size];
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

  function draw() {
    frame ??= requestAnimationFrame(() => {
      frame = undefined;
      if (map?.isConnected) drawNow();
    });
  }
  function drawNow() {
    fit();
    if (!width || !height) return;
    const scale = Math.min(2, devicePixelRatio || 1);
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    ink.setTransform(scale, 0, 0, scale, 0, 0);
    ink.clearRect(0, 0, width, height);
    const look = map.dataset.look, seen = inSight();
    const isFar = look === "density" || (look === "auto" && view.zoom < FAR);
    for (const tile of seen) {
      if (tile.isGrid || isFar) drawField(tile, look === "density" || tile.isGrid ? 1 : 0.5);
    }
    if (look !== "density") for (const tile of seen) if (!tile.isGrid) drawPoints(tile);
    ink.globalAlpha = 1;
    drawOutline();
    placeNames();
    const root = tiles.get(keyOf(0, 0, 0));
    if (root) byId("map-drawing").dataset.drawn = root.total;
    byId("zoom").querySelector("output").textContent = `${Math.round(view.zoom * 100)} %`;
  }
  function drawField(tile, strength) {
    const { image, size, lines } = fieldOf(tile);
    const [left, top] = at(tile.left, tile.top), wide = tile.side * unit * stretch, high = tile.side * unit;
    ink.save();
    ink.beginPath();
    ink.rect(left, top, wide, high);
    ink.clip();
    // A deeper tile replaces what was drawn of the one above.
    if (tile.z) ink.clearRect(left, top, wide, high);
    ink.globalAlpha = strength;
    ink.imageSmoothingQuality = "high";
    ink.drawImage(image, left, top, wide, high);
    ink.translate(left + wide / size / 2, top + high / size / 2);
    ink.scale(wide / size, high / size);
    ink.strokeStyle = getComputedStyle(map).color;
    ink.lineWidth = (0.8 * size) / wide;
    lines.forEach((path, n) => {
      ink.globalAlpha = 0.1 + 0.05 * n;
      ink.stroke(path);
    });
    ink.restore();
  }
  function drawPoints(tile) {
    if (tile.z) {
      const [left, top] = at(tile.left, tile.top);
      ink.clearRect(left, top, tile.side * unit * stretch, tile.side * unit);
    }
    const fewer = Math.max(1, Math.min(4, Math.sqrt(4000 / (tile.length + 1))));
    const size = Math.max(1.7, Math.min(9, 1.7 * Math.sqrt(view.zoom))) * fewer;
    const inside = area.length ? (tile.caught ??= caughtBy(tile)) : undefined;
    // In eight rounds, so that no colour covers all others.
    for (let part = 0; part < 8; part += 1) {
      for (let i = part; i < tile.length; i += 8) {
        const px = (tile.xs[i] - view.x) * unit * stretch + width / 2, py = (tile.ys[i] - view.y) * unit + height / 2;
        if (px < -6 || py < -6 || px > width + 6 || py > height + 6) continue;
        const isIn = !inside || inside[i], big = inside?.[i] ? size * 1.3 : size;
        ink.globalAlpha = isIn ? (inside ? 1 : 0.72) : 0.14;
        ink.drawImage(sprites[tile.groups[i]], px - big / 2, py - big / 2, big, big);
      }
    }
  }

  // --- names ----------------------------------------------------------------------------------------------------------
  // The largest first; one that would touch another waits until the reader comes nearer.
  function placeNames() {
    const parts = ["#inside", "#zoom", "#key"].map((name) => map.querySelector(name)).filter((part) => part?.offsetWidth);
    const taken = parts.map((part) => [part.offsetLeft, part.offsetTop, part.offsetLeft + part.offsetWidth, part.offsetTop + part.offsetHeight]);
    for (const place of document.querySelectorAll("#places .place")) {
      const [x, y] = at(Number(place.dataset.x), Number(place.dataset.y));
      const wide = place.offsetWidth, high = place.offsetHeight;
      const box = [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2];
      const clash = box[0] < 4 || box[2] > width - 4 || box[1] < 2 || box[3] > height - 2
        || taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
      place.classList.toggle("off", clash);
      if (!clash) taken.push(box);
      place.style.left = `${x - wide / 2}px`;
      place.style.top = `${y - high / 2}px`;
    }
  }

  // --- the area -------------------------------------------------------------------------------------------------------
  const cornersOf = (text) => text.split("_").slice(1).map((corner) => corner.split(".").map(Number));

  // As the server decides it: an odd number of edges is on the right.
  function contains(corners, x, y) {
    let odd = false;
    for (let i = 0, j = corners.length - 1; i < corners.length; j = i, i += 1) {
      let [ax, ay] = corners[j], [bx, by] = corners[i];
      if (ay > by) [ax, ay, bx, by] = [bx, by, ax, ay];
      if (ay <= y && y < by && (x - ax) * (by - ay) < (bx - ax) * (y - ay)) odd = !odd;
    }
    return odd;
  }
  function caughtBy(tile) {
    const caught = new Uint8Array(tile.length);
    for (let i = 0; i < tile.length; i += 1) caught[i] = contains(area, tile.xs[i], tile.ys[i]) ? 1 : 0;
    return caught;
  }
  function drawOutline() {
    const outline = drawn.length ? drawn : area;
    map.querySelector(".lasso").setAttribute("points", outline.map(([x, y]) => at(x, y).map((n) => n.toFixed(1)).join(",")).join(" "));
  }
  // The corner that leaves the outline most nearly as it is goes first, until few enough are left.
  function simplified(corners, most) {
    const kept = corners.map(([x, y]) => [Math.round(x), Math.round(y)])
      .filter(([x, y], n, all) => n === 0 || x !== all[n - 1][0] || y !== all[n - 1][1]);
    const cost = (n) => {
      const [a, b, c] = [kept[(n + kept.length - 1) % kept.length], kept[n], kept[(n + 1) % kept.length]];
      return Math.abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]));
    };
    const slight = (3 / unit) ** 2;
    while (kept.length > 3) {
      let least = Infinity, which = 0;
      for (let n = 0; n < kept.length; n += 1) {
        const here = cost(n);
        if (here < least) [least, which] = [here, n];
      }
      if (kept.length <= most && least > slight) break;
      kept.splice(which, 1);
    }
    return kept;
  }
  function choose(corners) {
    const kept = simplified(corners, 48).map((corner) => corner.map((n) => Math.max(0, Math.min(SIDE - 1, n))));
    if (kept.length < 3) return;
    const asked = new URLSearchParams(location.search);
    asked.delete("page");
    asked.set("area", [map.dataset.layout, ...kept.map(([x, y]) => `${x}.${y}`)].join("_"));
    htmx.ajax("GET", `${location.pathname}?${asked}`, { source: map, target: "#explorer", swap: "morph show:none" });
  }
  function setLasso(on) {
    lassoing = on;
    drawn = [];
    map.classList.toggle("lassoing", on);
    byId("zoom").querySelector("[data-lasso]").setAttribute("aria-pressed", String(on));
    note(on ? "Draw around memories. Esc ends it." : "");
    hide();
    draw();
  }

  // --- the memory under the pointer -------------------------------------------------------------------------------------
  let index;
  const cards = new Map();
  function indexed(root) {
    const buckets = new Map();
    for (let i = 0; i < root.length; i += 1) {
      const key = (root.xs[i] >> 9) * 128 + (root.ys[i] >> 9);
      (buckets.get(key) ?? buckets.set(key, []).get(key)).push(i);
    }
    return buckets;
  }
  function nearest(px, py) {
    const reach = 9, [left, top] = placeAt(px - reach, py - reach), [right, bottom] = placeAt(px + reach, py + reach);
    let best, least = reach ** 2;
    const look = (tile, i) => {
      const [x, y] = at(tile.xs[i], tile.ys[i]), apart = (x - px) ** 2 + (y - py) ** 2;
      if (apart < least) [least, best] = [apart, [tile.xs[i], tile.ys[i]]];
    };
    if (map.dataset.look === "density") return undefined;
    for (const tile of inSight()) {
      if (tile.isGrid) continue;
      if (tile.z === 0 && index) {
        for (let column = Math.max(0, left >> 9); column <= Math.min(127, right >> 9); column += 1) {
          for (let row = Math.max(0, top >> 9); row <= Math.min(127, bottom >> 9); row += 1) {
            for (const i of index.get(column * 128 + row) ?? []) look(tile, i);
          }
        }
      } else for (let i = 0; i < tile.length; i += 1) look(tile, i);
    }
    return best;
  }
  const card = () => map.querySelector(".hover-card");
  function hide() {
    hovered = wanted = undefined;
    if (!map) return;
    card().hidden = true;
    card().classList.remove("held");
    map.querySelector(".found").style.visibility = "hidden";
    map.classList.remove("aiming");
  }
  async function show(place, { hold = false } = {}) {
    const [x, y] = place, from = map.dataset.at, key = `${from} ${x} ${y}`;
    if (!cards.has(key)) {
      wanted = key;
      const reply = await fetch(`${from}&x=${x}&y=${y}`).catch(() => undefined);
      if (!reply?.ok) return;
      cards.set(key, await reply.text());
      if (wanted !== key) return;
    }
    const box = card(), [px, py] = at(x, y), found = map.querySelector(".found");
    // The server escapes the texts of memories.
    box.innerHTML = cards.get(key);
    box.hidden = false;
    box.classList.toggle("held", hold);
    const below = py + 18 + box.offsetHeight < height - 30;
    box.style.left = `${Math.max(8, Math.min(px + 18, width - box.offsetWidth - 8))}px`;
    box.style.top = `${Math.max(8, below ? py + 18 : py - 18 - box.offsetHeight)}px`;
    found.setAttribute("cx", px);
    found.setAttribute("cy", py);
    found.style.visibility = "visible";
  }

  function note(text) {
    const output = map.querySelector(".map-note");
    output.textContent = text;
    output.hidden = !text;
  }

  // --- pointer ----------------------------------------------------------------------------------------------------------
  const pointers = new Map();
  let pressed, pinch, resting;
  const onControl = (target) => target.closest?.("a, button, .map-card, .key, .map-nothing");
  const local = (event) => {
    const box = map.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  document.addEventListener("pointerdown", (event) => {
    if (!map?.contains(event.target) || onControl(event.target) || event.button) return;
    pointers.set(event.pointerId, local(event));
    map.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      pinch = gap();
      pressed = undefined;
      drawn = [];
      return;
    }
    const [x, y] = local(event);
    pressed = { x, y, moved: false, lasso: lassoing || event.shiftKey };
    if (pressed.lasso) drawn = [placeAt(x, y)];
  });
  const gap = () => {
    const [[ax, ay], [bx, by]] = [...pointers.values()];
    return { apart: Math.hypot(ax - bx, ay - by), x: (ax + bx) / 2, y: (ay + by) / 2 };
  };
  document.addEventListener("pointermove", (event) => {
    if (!map?.isConnected) return;
    const [x, y] = local(event);
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, [x, y]);
    if (pinch && pointers.size === 2) {
      const now = gap();
      moveBy(now.x - pinch.x, now.y - pinch.y);
      zoomBy(now.apart / (pinch.apart || 1), now.x, now.y);
      pinch = now;
      return;
    }
    if (pressed) {
      if (!pressed.moved && Math.hypot(x - pressed.x, y - pressed.y) < 4) return;
      if (!pressed.moved) hide();
      pressed.moved = true;
      if (pressed.lasso) {
        drawn.push(placeAt(x, y));
        drawOutline();
      } else {
        map.classList.add("panning");
        moveBy(event.movementX, event.movementY);
      }
      return;
    }
    if (event.pointerType !== "mouse" || lassoing || card().classList.contains("held")) return;
    const place = map.contains(event.target) && !onControl(event.target) ? nearest(x, y) : undefined;
    const key = place?.join();
    if (key === hovered) return;
    clearTimeout(resting);
    hide();
    hovered = key;
    if (!place) return;
    map.classList.add("aiming");
    resting = setTimeout(() => show(place), 60);
  });
  const released = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (pointers.size < 2) pinch = undefined;
    map.classList.remove("panning");
    const was = pressed;
    pressed = undefined;
    if (!was || event.type === "pointercancel") {
      drawn = [];
      return;
    }
    if (was.lasso && was.moved) {
      const corners = drawn;
      setLasso(false);
      drawn = corners;
      draw();
      choose(corners);
    } else if (!was.moved) {
      drawn = [];
      const place = nearest(was.x, was.y);
      hide();
      if (place) show(place, { hold: true });
      hovered = place?.join();
    }
  };
  document.addEventListener("pointerup", released);
  document.addEventListener("pointercancel", released);
  document.addEventListener("dblclick", (event) => {
    if (map?.contains(event.target) && !onControl(event.target)) zoomBy(2, ...local(event));
  });
  document.addEventListener("wheel", (event) => {
    if (!map?.contains(event.target) || event.target.closest(".map-card")) return;
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 400), ...local(event));
  }, { passive: false });

  // --- keyboard and buttons -----------------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("#zoom button");
    if (!button || !map) return;
    if ("lasso" in button.dataset) setLasso(!lassoing);
    else zoomBy(Number(button.dataset.zoom));
  });
  const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  document.addEventListener("keydown", (event) => {
    if (!map?.isConnected) return;
    if (event.key === "Escape" && (lassoing || drawn.length || !card().hidden)) {
      pressed = undefined;
      setLasso(false);
      return;
    }
    if (document.activeElement !== map || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) moveBy(...steps[event.key]);
    else if (event.key === "+" || event.key === "=") zoomBy(1.5);
    else if (event.key === "-") zoomBy(1 / 1.5);
    else if (event.key === "0") zoomBy(0);
    else if (event.key === "l") setLasso(!lassoing);
    else return;
    event.preventDefault();
  });

  // --- the page -------------------------------------------------------------------------------------------------------------
  const resized = new ResizeObserver(draw);
  function follow() {
    const now = byId("map");
    if (!now) {
      // What is still fetched for the map is not shown any more.
      clearTimeout(resting);
      map = address = wanted = pressed = pinch = undefined;
      pointers.clear();
      return;
    }
    if (now !== map || canvas !== now.querySelector("canvas")) {
      map = now;
      canvas = map.querySelector("canvas");
      ink = canvas.getContext("2d");
      address = bounds = undefined;
      resized.disconnect();
      resized.observe(map);
      paint();
    }
    hide();
    drawn = [];
    map.classList.toggle("lassoing", lassoing);
    area = map.dataset.area ? cornersOf(map.dataset.area) : [];
    for (const tile of tiles.values()) if (tile) tile.caught = undefined;
    if (address !== map.dataset.tiles) {
      const isFirst = !address;
      address = map.dataset.tiles;
      tiles = new Map();
      index = undefined;
      fetchTile(0, 0, 0).then(() => {
        if (isFirst) whole();
        draw();
      });
    }
    draw();
  }
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id === "explorer" || event.detail.target === document.body) follow();
  });
  document.addEventListener("htmx:historyRestore", follow);
  const repaint = () => {
    if (!map?.isConnected) return;
    paint();
    draw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  follow();
})();
