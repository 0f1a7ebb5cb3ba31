// The brush on the histogram: dragging, touching or the two sliders select a range of bars and set the date fields.
// Without this script the bars are links and the date fields still work.
const plotOf = (element) => element.closest?.("#plot");
const barsOf = (plot) => [...plot.querySelectorAll("[data-bar]")];
const countOf = (bar) => Number((bar?.dataset.count ?? "0").replaceAll(/[,+]/g, ""));
let drag;
let swallowClick = false;

function indexAt(plot, x) {
  const { left, width } = plot.getBoundingClientRect();
  const count = Number(plot.dataset.last) + 1;
  return Math.max(0, Math.min(count - 1, Math.floor(((x - left) / width) * count)));
}

// A finger is wider than a bar: take the nearest bar that is not empty.
function nearestFilled(bars, index) {
  for (const step of [0, 1, -1, 2, -2]) if (countOf(bars[index + step])) return index + step;
  return index;
}

function draw(plot, first, last) {
  const bars = barsOf(plot);
  const slot = 100 / bars.length;
  const chosen = plot.querySelector("[data-chosen]");
  chosen.setAttribute("x", `${first * slot}%`);
  chosen.setAttribute("width", `${(last - first + 1) * slot}%`);
  for (const [end, index] of [
    ["from", first],
    ["to", last],
  ]) {
    const handle = document.getElementById(`handle-${end}`);
    handle.classList.remove("idle");
    handle.setAttribute("aria-valuenow", index);
    handle.setAttribute("aria-valuetext", bars[index].dataset.label);
  }
  placeHandles();
  const total = bars.slice(first, last + 1).reduce((sum, bar) => sum + countOf(bar), 0);
  const label =
    first === last ? bars[first].dataset.label : `${bars[first].dataset.label} – ${bars[last].dataset.label}`;
  const bubble = plot.querySelector("[data-bubble]");
  bubble.hidden = false;
  bubble.textContent = `${label}: ${total.toLocaleString("en")}${"atLeast" in plot.dataset ? "+" : ""}`;
  const middle = ((first + last + 1) / 2) * slot;
  bubble.style.left = `${Math.max(0, Math.min(100, middle))}%`;
  bubble.style.translate = `${-Math.max(0, Math.min(100, middle))}% 0`;
}

// The policy of the pages allows scripts to set a style, but no style attributes.
function placeHandles() {
  for (const handle of document.querySelectorAll("#plot [role=slider]")) {
    const bars = Number(handle.getAttribute("aria-valuemax")) + 1;
    const index = Number(handle.getAttribute("aria-valuenow")) + (handle.dataset.end === "to");
    handle.style.left = `${(100 * index) / bars}%`;
  }
}
placeHandles();
document.addEventListener("htmx:afterSwap", placeHandles);
document.addEventListener("htmx:historyRestore", placeHandles);

const ends = () =>
  ["from", "to"].map((end) => Number(document.getElementById(`handle-${end}`).getAttribute("aria-valuenow")));

function remember(plot) {
  const parts = [...plot.querySelectorAll("[data-chosen], [role=slider]")];
  const names = ["class", "x", "width", "aria-valuenow", "aria-valuetext"];
  const kept = parts.flatMap((part) => names.map((name) => [part, name, part.getAttribute(name)]));
  return () => {
    plot.querySelector("[data-bubble]").hidden = true;
    for (const [part, name, value] of kept) {
      if (value === null) part.removeAttribute(name);
      else part.setAttribute(name, value);
    }
    placeHandles();
  };
}

function commit(plot, first, last) {
  const bars = barsOf(plot);
  plot.querySelector("[data-bubble]").hidden = true;
  const [from, to] = ["date-from", "date-to"].map((id) => document.getElementById(id));
  for (const [field, value] of [
    [from, bars[first].dataset.first],
    [to, bars[last].dataset.last],
  ]) {
    field.type = value.includes("T") ? "datetime-local" : "date";
    field.value = value;
  }
  to.dispatchEvent(new Event("change", { bubbles: true }));
}

// --- pointer ------------------------------------------------------------------------------------------------------
document.addEventListener("pointerdown", (event) => {
  const plot = plotOf(event.target);
  swallowClick = false;
  if (!plot || event.button || !event.isPrimary || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const handle = event.target.closest("[role=slider]");
  const [first, last] = ends();
  const at = indexAt(plot, event.clientX);
  const anchor = handle ? (handle.dataset.end === "from" ? last : first) : at;
  drag = {
    plot,
    anchor,
    at,
    x: event.clientX,
    moved: false,
    restore: remember(plot),
    touch: event.pointerType === "touch",
  };
});
document.addEventListener("pointermove", (event) => {
  if (!drag || !event.isPrimary) return;
  if (!drag.moved && Math.abs(event.clientX - drag.x) < 5) return;
  if (!drag.moved) drag.plot.setPointerCapture(event.pointerId);
  drag.moved = true;
  drag.at = indexAt(drag.plot, event.clientX);
  draw(drag.plot, Math.min(drag.anchor, drag.at), Math.max(drag.anchor, drag.at));
});
document.addEventListener("pointerup", (event) => {
  if (!drag || !event.isPrimary) return;
  const { plot, anchor, at, moved, touch } = drag;
  const onHandle = event.target.closest?.("[role=slider]");
  drag = undefined;
  if (moved) {
    swallowClick = true;
    commit(plot, Math.min(anchor, at), Math.max(anchor, at));
  } else if (touch && !onHandle) {
    const bar = nearestFilled(barsOf(plot), at);
    swallowClick = true;
    if (countOf(barsOf(plot)[bar])) commit(plot, bar, bar);
  }
});
const cancel = () => {
  drag?.restore();
  drag = undefined;
};
document.addEventListener("pointercancel", cancel);
document.addEventListener("dragstart", (event) => {
  if (plotOf(event.target)) event.preventDefault();
});
document.addEventListener(
  "click",
  (event) => {
    if (!swallowClick || !plotOf(event.target)) return;
    swallowClick = false;
    event.preventDefault();
    event.stopPropagation();
  },
  true,
);

// --- keyboard -----------------------------------------------------------------------------------------------------
let before;
const steps = {
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
  PageUp: 10,
  PageDown: -10,
  Home: -Infinity,
  End: Infinity,
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && drag) return cancel();
  const handle = event.target.closest?.("#plot [role=slider]");
  if (!handle) return undefined;
  const plot = plotOf(handle);
  const [first, last] = ends();
  if (event.key === "Enter") {
    event.preventDefault();
    before = undefined;
    return commit(plot, first, last);
  }
  if (event.key === "Escape") {
    before?.();
    before = undefined;
    return undefined;
  }
  if (!(event.key in steps)) return undefined;
  event.preventDefault();
  before ??= remember(plot);
  const most = Number(plot.dataset.last);
  const move = (index, low, high) => Math.max(low, Math.min(high, index + steps[event.key]));
  return handle.dataset.end === "from"
    ? draw(plot, move(first, 0, last), last)
    : draw(plot, first, move(last, first, most));
});
document.addEventListener("focusout", (event) => {
  if (!event.target.closest?.("#plot [role=slider]") || plotOf(event.relatedTarget ?? document.body)) return;
  // Move unapplied handles back to the range of the results.
  before?.();
  before = undefined;
});
document.addEventListener("htmx:afterSettle", () => {
  before = undefined;
});
