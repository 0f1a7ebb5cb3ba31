// The map of meaning: points or density on a canvas, names of regions, the card of a memory, an area drawn around some.
// The server sends tiles: all points of a tile, or a grid of counts where there are too many. Deeper tiles are fetched
// as the reader comes nearer. A swap of the page leaves the canvas alone; the addresses in #map say what to draw.
import { keepInMorph } from "./swap.js";
import { contains, cornersOf, simplified } from "./map/area.js";
import { fieldOf } from "./map/field.js";
import { SIDE, extent, indexed, readTile } from "./map/tile.js";

const GROUPS = 7;
const DEEPEST = 8;
const FAR = 2.2;
const NEAREST = 60;
const byId = (id) => document.getElementById(id);
const state = {
  // The element, its drawing, and the address of the tiles that it shows.
  map: undefined,
  canvas: undefined,
  ink: undefined,
  address: undefined,
  tiles: new Map(),
  // The memories of the root by their place, where it has all points.
  index: undefined,
  // What is in sight: the part of the plane with points, and how it is brought to the window.
  view: { zoom: 1, x: SIDE / 2, y: SIDE / 2 },
  bounds: undefined,
  width: 0,
  height: 0,
  unit: 1,
  stretch: 1,
  frame: undefined,
  colours: [],
  sprites: [],
  // The area that is chosen, and the one that is being drawn.
  area: [],
  lassoing: false,
  drawn: [],
  // The memory under the pointer, and the card that is fetched for it.
  hovered: undefined,
  wanted: undefined,
  cards: new Map(),
  resting: undefined,
  // Fingers and buttons that are down.
  pointers: new Map(),
  pressed: undefined,
  pinch: undefined,
};

// A swap leaves the drawing alone.
keepInMorph((old, fresh) => ["map-drawing", "zoom"].includes(old.id) && old.id === fresh.id);

// --- tiles --------------------------------------------------------------------------------------------------------
const keyOf = (z, x, y) => `${z}.${x}.${y}`;

async function fetchTile(z, column, row) {
  const key = keyOf(z, column, row),
    from = state.address;
  if (state.tiles.has(key)) return;
  state.tiles.set(key, undefined);
  try {
    const reply = await fetch(`${from}&z=${z}&x=${column}&y=${row}`);
    if (!reply.ok) throw new Error(String(reply.status));
    const tile = readTile(await reply.arrayBuffer(), z, column, row);
    if (from !== state.address) return;
    state.tiles.set(key, tile);
    if (z === 0) begin(tile);
    draw();
  } catch {
    if (from !== state.address) return;
    state.tiles.delete(key);
    note("The map could not be loaded. Try again by changing the zoom.");
  }
}

function begin(root) {
  const missing = root.all - root.total;
  note(missing > 0 ? `${missing.toLocaleString("en")} of ${root.all.toLocaleString("en")} have no place yet.` : "");
  widen(root);
  state.index = root.isGrid ? undefined : indexed(root);
}

// The window shows the part of the plane with points. It grows with what later queries find and never shrinks, so that
// nothing moves while a reader narrows a query.
function widen(root) {
  if (!root.length) return;
  const here = extent(root),
    was = state.bounds,
    scale = state.unit;
  const wider = was && {
    left: Math.min(was.left, here.left),
    top: Math.min(was.top, here.top),
    right: Math.max(was.right, here.right),
    bottom: Math.max(was.bottom, here.bottom),
  };
  if (was && Object.keys(was).every((side) => was[side] === wider[side])) return;
  state.bounds = wider ?? here;
  if (state.view.zoom === 1) whole();
  else {
    fit();
    state.view.zoom = Math.min(NEAREST, (state.view.zoom * scale) / state.unit);
  }
}
// The tiles to draw: the root if it has all points, else those of the zoom that are in sight, with what there is
// above them where they are missing.
function inSight() {
  const root = state.tiles.get(keyOf(0, 0, 0));
  if (!root) return [];
  if (!root.isGrid) return [root];
  const z = Math.min(DEEPEST, Math.max(0, Math.floor(Math.log2((state.unit * SIDE) / 1400)) + 1));
  const side = SIDE / 2 ** z,
    last = 2 ** z - 1;
  const [left, top] = placeAt(0, 0),
    [right, bottom] = placeAt(state.width, state.height);
  const between = (value) => Math.max(0, Math.min(last, Math.floor(value / side)));
  const found = new Set();
  for (let column = between(left); column <= between(right); column += 1) {
    for (let row = between(top); row <= between(bottom); row += 1) {
      let [a, b, c] = [z, column, row],
        tile = state.tiles.get(keyOf(a, b, c));
      while (!tile && a > 0) {
        [a, b, c] = [a - 1, b >> 1, c >> 1];
        tile = state.tiles.get(keyOf(a, b, c));
      }
      if (tile) found.add(tile);
      // A tile above that has all its points needs none below.
      if (tile?.isGrid && tile.z < z) fetchTile(tile.z + 1, column >> (z - tile.z - 1), row >> (z - tile.z - 1));
    }
  }
  return [...found].sort((one, other) => one.z - other.z);
}

// --- from the plane to the window and back --------------------------------------------------------------------------
const at = (x, y) => [
  (x - state.view.x) * state.unit * state.stretch + state.width / 2,
  (y - state.view.y) * state.unit + state.height / 2,
];
const placeAt = (px, py) => [
  (px - state.width / 2) / state.unit / state.stretch + state.view.x,
  (py - state.height / 2) / state.unit + state.view.y,
];

function fit() {
  // On a phone the controls have a row of their own below.
  ({ clientWidth: state.width, clientHeight: state.height } = byId("map-drawing"));
  const { left, top, right, bottom } = state.bounds ?? { left: 0, top: 0, right: SIDE, bottom: SIDE };
  // A wide window is used by drawing the plane wider than high, and a phone by the opposite.
  state.stretch = Math.min(1.6, Math.max(0.7, (state.width / state.height) * ((bottom - top) / (right - left))));
  state.unit =
    Math.min(state.width / (right - left) / state.stretch, (state.height - 30) / (bottom - top)) * state.view.zoom;
}
function whole() {
  const { left, top, right, bottom } = state.bounds ?? { left: 0, top: 0, right: SIDE, bottom: SIDE };
  Object.assign(state.view, { zoom: 1, x: (left + right) / 2, y: (top + bottom) / 2 });
}
function zoomBy(factor, px = state.width / 2, py = state.height / 2) {
  if (!factor) whole();
  else {
    const [x, y] = placeAt(px, py);
    state.view.zoom = Math.max(1, Math.min(NEAREST, state.view.zoom * factor));
    fit();
    const [nx, ny] = placeAt(px, py);
    state.view.x += x - nx;
    state.view.y += y - ny;
    if (state.view.zoom === 1) whole();
  }
  hide();
  draw();
}
function moveBy(px, py) {
  state.view.x = Math.max(0, Math.min(SIDE, state.view.x - px / state.unit / state.stretch));
  state.view.y = Math.max(0, Math.min(SIDE, state.view.y - py / state.unit));
  draw();
}

// --- drawing --------------------------------------------------------------------------------------------------------
function paint() {
  // A colour of the palette is one for light and one for dark until an element has it.
  const swatch = document.createElement("i");
  state.map.append(swatch);
  state.colours = Array.from({ length: GROUPS }, (_, n) => {
    swatch.style.color = `var(--m${n})`;
    return getComputedStyle(swatch)
      .color.match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
  });
  swatch.remove();
  state.sprites = state.colours.map((rgb) => {
    const dot = document.createElement("canvas");
    dot.width = dot.height = 16;
    const dots = dot.getContext("2d");
    dots.fillStyle = `rgb(${rgb.join(" ")})`;
    dots.beginPath();
    dots.arc(8, 8, 7.5, 0, 7);
    dots.fill();
    return dot;
  });
  for (const tile of state.tiles.values()) if (tile) tile.field = undefined;
}

function draw() {
  state.frame ??= requestAnimationFrame(() => {
    state.frame = undefined;
    if (state.map?.isConnected) drawNow();
  });
}
function drawNow() {
  fit();
  if (!state.width || !state.height) return;
  const scale = Math.min(2, devicePixelRatio || 1);
  if (
    state.canvas.width !== Math.round(state.width * scale) ||
    state.canvas.height !== Math.round(state.height * scale)
  ) {
    state.canvas.width = Math.round(state.width * scale);
    state.canvas.height = Math.round(state.height * scale);
  }
  state.ink.setTransform(scale, 0, 0, scale, 0, 0);
  state.ink.clearRect(0, 0, state.width, state.height);
  const look = state.map.dataset.look,
    seen = inSight();
  const isFar = look === "density" || (look === "auto" && state.view.zoom < FAR);
  for (const tile of seen) {
    if (tile.isGrid || isFar) drawField(tile, look === "density" || tile.isGrid ? 1 : 0.5);
  }
  if (look !== "density") for (const tile of seen) if (!tile.isGrid) drawPoints(tile);
  state.ink.globalAlpha = 1;
  drawOutline();
  placeNames();
  const root = state.tiles.get(keyOf(0, 0, 0));
  if (root) byId("map-drawing").dataset.drawn = root.total;
  byId("zoom").querySelector("output").textContent = `${Math.round(state.view.zoom * 100)} %`;
}
function drawField(tile, strength) {
  const { ink, unit, stretch } = state;
  const { image, size, lines } = fieldOf(tile, state.colours);
  const [left, top] = at(tile.left, tile.top),
    wide = tile.side * unit * stretch,
    high = tile.side * unit;
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
  ink.strokeStyle = getComputedStyle(state.map).color;
  ink.lineWidth = (0.8 * size) / wide;
  lines.forEach((path, n) => {
    ink.globalAlpha = 0.1 + 0.05 * n;
    ink.stroke(path);
  });
  ink.restore();
}
function drawPoints(tile) {
  const { height, ink, sprites, stretch, unit, view, width } = state;
  if (tile.z) {
    const [left, top] = at(tile.left, tile.top);
    ink.clearRect(left, top, tile.side * unit * stretch, tile.side * unit);
  }
  const fewer = Math.max(1, Math.min(4, Math.sqrt(4000 / (tile.length + 1))));
  const size = Math.max(1.7, Math.min(9, 1.7 * Math.sqrt(view.zoom))) * fewer;
  const inside = state.area.length ? (tile.caught ??= caughtBy(tile)) : undefined;
  // In eight rounds, so that no colour covers all others.
  for (let part = 0; part < 8; part += 1) {
    for (let i = part; i < tile.length; i += 8) {
      const px = (tile.xs[i] - view.x) * unit * stretch + width / 2,
        py = (tile.ys[i] - view.y) * unit + height / 2;
      if (px < -6 || py < -6 || px > width + 6 || py > height + 6) continue;
      const isIn = !inside || inside[i],
        big = inside?.[i] ? size * 1.3 : size;
      ink.globalAlpha = isIn ? (inside ? 1 : 0.72) : 0.14;
      ink.drawImage(sprites[tile.groups[i]], px - big / 2, py - big / 2, big, big);
    }
  }
}

// --- names ----------------------------------------------------------------------------------------------------------
// The largest first; one that would touch another waits until the reader comes nearer.
function placeNames() {
  const parts = ["#inside", "#zoom", "#key"]
    .map((name) => state.map.querySelector(name))
    .filter((part) => part?.offsetWidth);
  const taken = parts.map((part) => [
    part.offsetLeft,
    part.offsetTop,
    part.offsetLeft + part.offsetWidth,
    part.offsetTop + part.offsetHeight,
  ]);
  for (const place of document.querySelectorAll("#places .place")) {
    const [x, y] = at(Number(place.dataset.x), Number(place.dataset.y));
    const wide = place.offsetWidth,
      high = place.offsetHeight;
    const box = [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2];
    const clash =
      box[0] < 4 ||
      box[2] > state.width - 4 ||
      box[1] < 2 ||
      box[3] > state.height - 2 ||
      taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
    place.classList.toggle("off", clash);
    if (!clash) taken.push(box);
    place.style.left = `${x - wide / 2}px`;
    place.style.top = `${y - high / 2}px`;
  }
}

// --- the area -------------------------------------------------------------------------------------------------------
function caughtBy(tile) {
  const caught = new Uint8Array(tile.length);
  for (let i = 0; i < tile.length; i += 1) caught[i] = contains(state.area, tile.xs[i], tile.ys[i]) ? 1 : 0;
  return caught;
}
function drawOutline() {
  const outline = state.drawn.length ? state.drawn : state.area;
  state.map.querySelector(".lasso").setAttribute(
    "points",
    outline
      .map(([x, y]) =>
        at(x, y)
          .map((n) => n.toFixed(1))
          .join(","),
      )
      .join(" "),
  );
}
function choose(corners) {
  const kept = simplified(corners, 48, state.unit).map((corner) =>
    corner.map((n) => Math.max(0, Math.min(SIDE - 1, n))),
  );
  if (kept.length < 3) return;
  const asked = new URLSearchParams(location.search);
  asked.delete("page");
  asked.set("area", [state.map.dataset.layout, ...kept.map(([x, y]) => `${x}.${y}`)].join("_"));
  htmx.ajax("GET", `${location.pathname}?${asked}`, {
    source: state.map,
    target: "#explorer",
    swap: "morph show:none",
  });
}
function setLasso(on) {
  state.lassoing = on;
  state.drawn = [];
  state.map.classList.toggle("lassoing", on);
  byId("zoom").querySelector("[data-lasso]").setAttribute("aria-pressed", String(on));
  note(on ? "Draw around memories. Esc ends it." : "");
  hide();
  draw();
}

// --- the memory under the pointer -------------------------------------------------------------------------------------
function nearest(px, py) {
  const reach = 9,
    [left, top] = placeAt(px - reach, py - reach),
    [right, bottom] = placeAt(px + reach, py + reach);
  let best,
    least = reach ** 2;
  const look = (tile, i) => {
    const [x, y] = at(tile.xs[i], tile.ys[i]),
      apart = (x - px) ** 2 + (y - py) ** 2;
    if (apart < least) [least, best] = [apart, [tile.xs[i], tile.ys[i]]];
  };
  if (state.map.dataset.look === "density") return undefined;
  for (const tile of inSight()) {
    if (tile.isGrid) continue;
    if (tile.z === 0 && state.index) {
      for (let column = Math.max(0, left >> 9); column <= Math.min(127, right >> 9); column += 1) {
        for (let row = Math.max(0, top >> 9); row <= Math.min(127, bottom >> 9); row += 1) {
          for (const i of state.index.get(column * 128 + row) ?? []) look(tile, i);
        }
      }
    } else for (let i = 0; i < tile.length; i += 1) look(tile, i);
  }
  return best;
}
const card = () => state.map.querySelector(".hover-card");
function hide() {
  state.hovered = state.wanted = undefined;
  if (!state.map) return;
  card().hidden = true;
  card().classList.remove("held");
  state.map.querySelector(".found").style.visibility = "hidden";
  state.map.classList.remove("aiming");
}
async function show(place, { hold = false } = {}) {
  const [x, y] = place,
    from = state.map.dataset.at,
    key = `${from} ${x} ${y}`;
  if (!state.cards.has(key)) {
    state.wanted = key;
    const reply = await fetch(`${from}&x=${x}&y=${y}`).catch(() => undefined);
    if (!reply?.ok) return;
    state.cards.set(key, await reply.text());
    if (state.wanted !== key) return;
  }
  const box = card(),
    [px, py] = at(x, y),
    found = state.map.querySelector(".found");
  // The server escapes the texts of memories.
  box.innerHTML = state.cards.get(key);
  box.hidden = false;
  box.classList.toggle("held", hold);
  const below = py + 18 + box.offsetHeight < state.height - 30;
  box.style.left = `${Math.max(8, Math.min(px + 18, state.width - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(8, below ? py + 18 : py - 18 - box.offsetHeight)}px`;
  found.setAttribute("cx", px);
  found.setAttribute("cy", py);
  found.style.visibility = "visible";
}

function note(text) {
  const output = state.map.querySelector(".map-note");
  output.textContent = text;
  output.hidden = !text;
}

// --- pointer ----------------------------------------------------------------------------------------------------------
const onControl = (target) => target.closest?.("a, button, .map-card, .key, .map-nothing");
const local = (event) => {
  const box = state.map.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
document.addEventListener("pointerdown", (event) => {
  if (!state.map?.contains(event.target) || onControl(event.target) || event.button) return;
  state.pointers.set(event.pointerId, local(event));
  state.map.setPointerCapture(event.pointerId);
  if (state.pointers.size === 2) {
    state.pinch = gap();
    state.pressed = undefined;
    state.drawn = [];
    return;
  }
  const [x, y] = local(event);
  state.pressed = { x, y, moved: false, lasso: state.lassoing || event.shiftKey };
  if (state.pressed.lasso) state.drawn = [placeAt(x, y)];
});
const gap = () => {
  const [[ax, ay], [bx, by]] = [...state.pointers.values()];
  return { apart: Math.hypot(ax - bx, ay - by), x: (ax + bx) / 2, y: (ay + by) / 2 };
};
document.addEventListener("pointermove", (event) => {
  if (!state.map?.isConnected) return;
  const [x, y] = local(event);
  if (state.pointers.has(event.pointerId)) state.pointers.set(event.pointerId, [x, y]);
  if (state.pinch && state.pointers.size === 2) {
    const now = gap();
    moveBy(now.x - state.pinch.x, now.y - state.pinch.y);
    zoomBy(now.apart / (state.pinch.apart || 1), now.x, now.y);
    state.pinch = now;
    return;
  }
  if (state.pressed) {
    if (!state.pressed.moved && Math.hypot(x - state.pressed.x, y - state.pressed.y) < 4) return;
    if (!state.pressed.moved) hide();
    state.pressed.moved = true;
    if (state.pressed.lasso) {
      state.drawn.push(placeAt(x, y));
      drawOutline();
    } else {
      state.map.classList.add("panning");
      moveBy(event.movementX, event.movementY);
    }
    return;
  }
  if (event.pointerType !== "mouse" || state.lassoing || card().classList.contains("held")) return;
  const place = state.map.contains(event.target) && !onControl(event.target) ? nearest(x, y) : undefined;
  const key = place?.join();
  if (key === state.hovered) return;
  clearTimeout(state.resting);
  hide();
  state.hovered = key;
  if (!place) return;
  state.map.classList.add("aiming");
  state.resting = setTimeout(() => show(place), 60);
});
const released = (event) => {
  if (!state.pointers.delete(event.pointerId)) return;
  if (state.pointers.size < 2) state.pinch = undefined;
  state.map.classList.remove("panning");
  const was = state.pressed;
  state.pressed = undefined;
  if (!was || event.type === "pointercancel") {
    state.drawn = [];
    return;
  }
  if (was.lasso && was.moved) {
    const corners = state.drawn;
    setLasso(false);
    state.drawn = corners;
    draw();
    choose(corners);
  } else if (!was.moved) {
    state.drawn = [];
    const place = nearest(was.x, was.y);
    hide();
    if (place) show(place, { hold: true });
    state.hovered = place?.join();
  }
};
document.addEventListener("pointerup", released);
document.addEventListener("pointercancel", released);
document.addEventListener("dblclick", (event) => {
  if (state.map?.contains(event.target) && !onControl(event.target)) zoomBy(2, ...local(event));
});
document.addEventListener(
  "wheel",
  (event) => {
    if (!state.map?.contains(event.target) || event.target.closest(".map-card")) return;
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 400), ...local(event));
  },
  { passive: false },
);

// --- keyboard and buttons -----------------------------------------------------------------------------------------------
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#zoom button");
  if (!button || !state.map) return;
  if ("lasso" in button.dataset) setLasso(!state.lassoing);
  else zoomBy(Number(button.dataset.zoom));
});
const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
document.addEventListener("keydown", (event) => {
  if (!state.map?.isConnected) return;
  if (event.key === "Escape" && (state.lassoing || state.drawn.length || !card().hidden)) {
    state.pressed = undefined;
    setLasso(false);
    return;
  }
  if (document.activeElement !== state.map || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in steps) moveBy(...steps[event.key]);
  else if (event.key === "+" || event.key === "=") zoomBy(1.5);
  else if (event.key === "-") zoomBy(1 / 1.5);
  else if (event.key === "0") zoomBy(0);
  else if (event.key === "l") setLasso(!state.lassoing);
  else return;
  event.preventDefault();
});

// --- the page -------------------------------------------------------------------------------------------------------------
const resized = new ResizeObserver(draw);
function follow() {
  const now = byId("map");
  if (!now) {
    // What is still fetched for the map is not shown any more.
    clearTimeout(state.resting);
    state.map = state.address = state.wanted = state.pressed = state.pinch = undefined;
    state.pointers.clear();
    return;
  }
  if (now !== state.map || state.canvas !== now.querySelector("canvas")) {
    state.map = now;
    state.canvas = state.map.querySelector("canvas");
    state.ink = state.canvas.getContext("2d");
    state.address = state.bounds = undefined;
    resized.disconnect();
    resized.observe(state.map);
    paint();
  }
  hide();
  state.drawn = [];
  state.map.classList.toggle("lassoing", state.lassoing);
  state.area = state.map.dataset.area ? cornersOf(state.map.dataset.area) : [];
  for (const tile of state.tiles.values()) if (tile) tile.caught = undefined;
  if (state.address !== state.map.dataset.tiles) {
    const isFirst = !state.address;
    state.address = state.map.dataset.tiles;
    state.tiles = new Map();
    state.index = undefined;
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
  if (!state.map?.isConnected) return;
  paint();
  draw();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
follow();
