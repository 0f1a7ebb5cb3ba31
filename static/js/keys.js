// Single-key shortcuts: inactive while the reader types, and they can be turned off.
const key = "shortcuts";
const enabled = () => localStorage.getItem(key) !== "off";
const isTyping = (element) =>
  element.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable], [role=slider]");

function step(by) {
  // Skip results that are grouped under another until the group is open.
  const links = [...document.querySelectorAll("#hits .hit :is(h2, .title) a")].filter(
    (link) => link.checkVisibility?.() ?? true,
  );
  const at = links.findIndex((link) => link.closest(".hit").contains(document.activeElement));
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  next?.focus({ preventScroll: true });
  next?.closest(".hit").scrollIntoView({ block: "nearest" });
}

// Tab stops at the title of a result and at its tick, and at the tick of a value on the page of all of them; the arrow
// keys go from there through the other links of the row.
const ROW = "#hits .hit, #values .value";
const TITLE = ":is(h2, .title) a";
function thinOut() {
  for (const part of document.querySelectorAll(`:is(${ROW}) :is(a, summary)`))
    if (!part.matches(TITLE)) part.tabIndex = -1;
}
document.addEventListener("DOMContentLoaded", thinOut);
document.addEventListener("htmx:afterSettle", thinOut);
document.addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const row = by && event.target.closest?.(ROW);
  if (!row || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const parts = [...row.querySelectorAll("a, summary, input[type=checkbox]")].filter(
    (part) => part.checkVisibility?.() ?? true,
  );
  const next = parts[parts.indexOf(document.activeElement) + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
});

// After a "g", the next key goes to a page of the menu.
const SECONDS = 1.5;
let going = 0;
function go(event) {
  const began = going;
  going = 0;
  if (event.timeStamp - began > SECONDS * 1000) return false;
  const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
  if (!link) return false;
  event.preventDefault();
  link.click();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.id === "q" && !event.target.value) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !enabled()) return;
  if (document.querySelector("dialog[open]:modal")) return;
  if (going && go(event)) return;
  // Keys that a page defines take precedence over the common keys.
  const own = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (own) {
    event.preventDefault();
    if (!event.repeat) own.click();
    return;
  }
  const actions = {
    "/": () => {
      const box = document.getElementById("q");
      box?.focus();
      box?.select();
    },
    j: () => step(1),
    k: () => step(-1),
    a: () => document.querySelector("#act.shown [name=do], .values-foot [formaction]")?.focus(),
    x: () => document.activeElement?.closest(".hit")?.querySelector(".tick")?.click(),
    g: () => {
      going = event.timeStamp;
    },
    "?": () => document.getElementById("shortcuts").showModal(),
  };
  if (!(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
});
document.addEventListener("click", (event) => {
  if (event.target.closest?.("[data-open-shortcuts]")) {
    document.getElementById("shortcuts-on").checked = enabled();
    document.getElementById("shortcuts").showModal();
  }
  if (event.target.id === "shortcuts") event.target.close();
});
document.addEventListener("change", (event) => {
  if (event.target.id === "shortcuts-on") localStorage.setItem(key, event.target.checked ? "on" : "off");
});
