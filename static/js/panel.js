// A result beside the list: opened from its title, stepped through, closed. The address carries it as `sel`. On a narrow
// screen, and with a modifier, a title leads to the page of the memory.
const byId = (id) => document.getElementById(id);
const wide = matchMedia("(min-width: 1024px)");
const open = () => document.querySelector("#panel .panel-body")?.dataset.sel;
const rowOf = (id) => byId(`hit-${id}`);
let closed;

function load(address) {
  // Its place is there at once, so that nothing moves when the answer comes.
  byId("panel").classList.add("opening");
  htmx.ajax("GET", address, { source: byId("panel"), target: "#panel", swap: "innerHTML show:none" });
}

function withPanel(id) {
  const parameters = new URLSearchParams(location.search);
  parameters.delete("sel");
  if (id) parameters.set("sel", id);
  return `${location.pathname}?${parameters}`;
}

function mark() {
  const id = open();
  for (const row of document.querySelectorAll("#hits .hit.open")) row.classList.remove("open");
  if (id) rowOf(id)?.classList.add("open");
  return id;
}

function close() {
  closed = open();
  load(byId("panel").querySelector("[data-close]").getAttribute("href"));
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)
    return;
  const link = event.target.closest?.("a");
  if (!link || !byId("panel")) return;
  if (link.matches("#hits .hit :is(h2, .title) a") && wide.matches && link.closest(".hit").id.startsWith("hit-")) {
    event.preventDefault();
    load(withPanel(link.closest(".hit").id.slice(4)));
  } else if (link.matches("#panel a[data-panel]")) {
    event.preventDefault();
    if (link.matches("[data-close]")) close();
    else load(link.getAttribute("href"));
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !open() || event.defaultPrevented || document.querySelector("dialog[open]:modal"))
    return;
  // What is typed in the panel is not thrown away by a key.
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  event.preventDefault();
  close();
});

document.addEventListener("htmx:afterSettle", ({ detail }) => {
  const id = detail.target?.id;
  if (id === "panel") {
    byId("panel").classList.remove("opening");
    const shown = mark();
    byId("panel").scrollTop = 0;
    if (shown) {
      rowOf(shown)?.scrollIntoView({ block: "nearest" });
      byId("panel-title").focus({ preventScroll: true });
    } else {
      (rowOf(closed)?.querySelector(":is(h2, .title) a") ?? byId("total")).focus({ preventScroll: true });
    }
  } else if (id === "explorer") {
    // Another slice: the address no longer names the memory.
    if (!new URLSearchParams(location.search).has("sel")) byId("panel")?.replaceChildren();
    mark();
  }
});
for (const failed of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(failed, ({ detail }) => detail.target?.classList.remove("opening"));
}
document.addEventListener("DOMContentLoaded", mark);
document.addEventListener("htmx:historyRestore", mark);
