// The explore page: links that swap, where focus goes afterwards, rows that stay in place, parts that are fetched when
// they are opened, only and exclude, the filters on a narrow screen, the category tree.
import { keepInMorph } from "./swap.js";

const byId = (id) => document.getElementById(id);
let then;
let held;

// --- links ------------------------------------------------------------------------------------------------------
// Not by hx-get, which would also handle clicks with a modifier, and does not prevent links in SVG.
function followLink(event) {
  const link = event.target.closest?.("a[data-swap]");
  if (!link || !byId("explorer") || event.defaultPrevented) return;
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  then = afterwards(link);
  held = link.dataset.row && { id: link.dataset.row };
  htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#explorer", swap: "morph show:none" });
}

// --- focus ------------------------------------------------------------------------------------------------------
// A swap may reuse an element for another control: focus goes back to the control of the same id, or to the total.
function afterwards(link) {
  if (link.matches("[data-chip]")) {
    const place = [...document.querySelectorAll("[data-chip]")].indexOf(link);
    return () => {
      const chips = document.querySelectorAll(".chip [data-chip]");
      (chips[Math.min(place, chips.length - 1)] ?? byId("total")).focus({ preventScroll: true });
    };
  }
  if (link.matches("[data-to-top]")) {
    return () => {
      window.scrollTo({ top: 0 });
      byId("total").focus({ preventScroll: true });
    };
  }
  const id = link.dataset.row ?? link.id;
  return () => ((id && byId(id)) || byId("total")).focus({ preventScroll: true });
}
function finishSwap({ detail }) {
  if (detail.target?.id !== "explorer") return;
  then?.();
  then = undefined;
  document.querySelectorAll("details.branch[open]").forEach(fetchLevel);
  document.querySelectorAll("details[data-missing][open]").forEach(fetchPart);
}

// --- parts that are fetched when they are opened ----------------------------------------------------------------
// Each request names what is open, so that its answer includes it.
function nameOpenParts({ detail: { headers } }) {
  headers["X-Open"] = [...document.querySelectorAll("#explorer details[open][id]")].map(({ id }) => id).join(" ");
}
function fetchPart(part) {
  const here = location.pathname + location.search;
  const place = `#${CSS.escape(part.id)}`;
  // A swap aborts it, since its answer would be of the slice before; during a swap it waits for the next settling.
  part.setAttribute("hx-sync", "body:drop");
  htmx.ajax("GET", here, { source: part, target: place, select: place, swap: "morph show:none" });
}
function fetchOpened({ target }) {
  if (!target.open) return;
  if (target.matches("#explorer details[data-missing]")) fetchPart(target);
  if (target.matches("details.branch")) fetchLevel(target);
}

// --- only and exclude -------------------------------------------------------------------------------------------
// One pair of links for the row under the pointer and one for the row with the focus, instead of a pair in each row.
// A finger has no pointer: there each row of the dialog gets its link to exclude.
const actsOf = () => {
  const acts = document.createElement("span");
  acts.className = "acts made";
  for (const name of ["only", "not"]) {
    const link = document.createElement("a");
    link.className = name;
    link.dataset.swap = "";
    link.textContent = name === "only" ? "only" : "−";
    acts.append(link);
  }
  const curate = document.createElement("a");
  curate.className = "curate";
  acts.prepend(curate);
  return acts;
};
const made = { pointer: actsOf(), focus: actsOf() };

function offer(row, acts) {
  const box = row.querySelector("input[type=checkbox]");
  if (!box || box.name.startsWith("-") || box.name === "has") {
    acts.remove();
    return;
  }
  const [curate, only, not] = acts.children;
  const absent = box.name === "no";
  const key = absent ? box.value : box.name;
  const label = box.parentElement.textContent.trim();
  const facet = row.closest(".facet").querySelector("legend").textContent.toLowerCase();
  const asked = [...new URLSearchParams(location.search)].filter(([name]) => !["page", "sel"].includes(name));
  const without = asked.filter(([name, value]) => name !== box.name || value !== box.value);
  const unchosen = asked.filter(
    ([name, value]) => ![key, `-${key}`].includes(name) && !(["has", "no"].includes(name) && value === key),
  );
  const to = (pairs, ...more) => `${location.pathname}?${new URLSearchParams([...pairs, more])}`;
  const { curate: curates } = byId("explorer").dataset;
  curate.hidden = absent || !curates || !["category", "concept", "entity", "tag"].includes(key);
  curate.href = `${curates}?${new URLSearchParams({ kind: key, name: box.value })}`;
  curate.title = `Curate ${label}`;
  curate.setAttribute("aria-label", curate.title);
  only.hidden = absent;
  only.href = to(unchosen, key, box.value);
  only.setAttribute("aria-label", `Only ${label}`);
  not.href = absent ? to(without, "has", key) : to(without, `-${key}`, box.value);
  not.title = absent ? `Only with a value: ${facet}` : `Exclude ${facet} ${label}`;
  not.setAttribute("aria-label", not.title);
  only.dataset.row = not.dataset.row = box.id;
  if (acts.parentElement !== row) row.append(acts);
}
function offerToPointer({ target, pointerType }) {
  const row = pointerType === "mouse" && target.closest?.("#filters .value");
  if (row && !row.querySelector(".acts")) offer(row, made.pointer);
}
function offerToFocus({ target }) {
  const row = target.matches?.("#filters .value input") && target.closest(".value");
  if (!row || row.contains(made.focus)) return;
  if (row.contains(made.pointer)) made.pointer.remove();
  if (!row.querySelector(".acts")) offer(row, made.focus);
}
function offerEach() {
  if (!matchMedia("(hover: none)").matches || !byId("filters")?.open) return;
  for (const row of document.querySelectorAll("#filters .value")) if (!row.querySelector(".acts")) offer(row, actsOf());
}
function offerAgain() {
  for (const acts of document.querySelectorAll("#filters .acts.made")) offer(acts.closest(".value"), acts);
  offerEach();
}

// --- a row stays where it is ------------------------------------------------------------------------------------
// What is above a ticked row may grow or shrink. The sidebar is scrolled by the difference; where it cannot scroll as
// far, the panel of the row keeps a distance.
const topOf = (id) => byId(id)?.getBoundingClientRect().top;
function holdRow({ target }) {
  held = target.closest?.("#filters") && { id: target.id };
}
function measureRow() {
  if (held) held.top = topOf(held.id);
}
function putRowBack() {
  const filters = byId("filters");
  const moved = () => topOf(held.id) - held.top;
  if (!held || !filters || Number.isNaN(moved())) return;
  filters.scrollTop += moved();
  const panel = byId(held.id).closest(".facet");
  if (moved() < -0.5) panel.style.marginTop = `${(parseFloat(panel.style.marginTop) || 0) - moved()}px`;
  if (moved() > 0.5) {
    filters.firstElementChild.style.paddingBottom = `${moved()}px`;
    filters.scrollTop += moved();
  }
}

// --- menus: closed by Escape and by a click elsewhere -------------------------------------------------------------
const openMenus = () => [...document.querySelectorAll("#explorer :is(.take-out, .dates-fold, .column-choice)[open]")];
function closeOtherMenus({ target }) {
  for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
}
function leaveMenu(event) {
  const menu = event.key === "Escape" && openMenus().find((one) => one.contains(event.target));
  if (!menu) return;
  event.preventDefault();
  menu.open = false;
  menu.querySelector("summary").focus();
}

// --- filters on a narrow screen ---------------------------------------------------------------------------------
// The sidebar is a dialog that the style sheet lays out as a column; only a narrow screen ever opens it as one.
const wide = matchMedia("(min-width: 1024px)");
function showFilters(event) {
  const filters = byId("filters");
  if (event.target.closest?.("[data-open-filters]")) {
    filters.removeAttribute("role");
    filters.setAttribute("aria-label", "Filters");
    byId("filters-fold").open = true;
    filters.showModal();
    offerEach();
  } else if (event.target.closest?.("[data-close-filters]") || (event.target === filters && filters.open)) {
    filters.close();
  }
}
function hideFilters({ target }) {
  if (target.id !== "filters") return;
  target.setAttribute("role", "none");
  target.removeAttribute("aria-label");
}
wide.addEventListener("change", () => {
  if (wide.matches) byId("filters")?.close();
});

// --- the category tree --------------------------------------------------------------------------------------------
// A missing level is fetched when it is opened, and again after each swap while it stays open.
const fetched = new WeakMap();
function fetchLevel(branch) {
  const address = branch.dataset.children;
  if (!address || fetched.get(branch) === address) return;
  fetched.set(branch, address);
  const list = branch.querySelector("ul");
  htmx.ajax("GET", address, { source: branch, target: `#${list.id}`, swap: "innerHTML show:none" });
}
function forgetFailedLevel({ detail }) {
  fetched.delete(detail.target?.closest?.("details.branch"));
}
// Until the level arrives, its old rows stay in place but are disabled: their counts and ticks are stale.
keepInMorph((old, fresh) => {
  if (!old.matches("details.branch[open] > ul")) return false;
  const branch = old.parentElement;
  if (!fetched.has(branch) || !fresh.parentElement.dataset.children) return false;
  fetched.delete(branch);
  old.querySelectorAll("input").forEach((input) => {
    input.disabled = true;
  });
  return true;
});

// --- dates typed by hand --------------------------------------------------------------------------------------------
// A date field fires a change for every digit of the year: wait until it loses focus, or for Enter.
const typed = new WeakSet();
const isDate = (element) => element.matches?.("#date-from, #date-to");
function enterDate(event) {
  if (!isDate(event.target)) return;
  if (event.key !== "Enter") typed.add(event.target);
  else if (typed.delete(event.target)) {
    event.preventDefault();
    event.target.dispatchEvent(new Event("change", { bubbles: true }));
  }
}
function waitForDate(event) {
  if (!isDate(event.target)) return;
  if (typed.has(event.target)) event.stopPropagation();
  // Explicit dates override a span up to now.
  else document.querySelectorAll('input[type="hidden"][name="since"]').forEach((input) => input.remove());
}
function leaveDate({ target: field }) {
  if (isDate(field) && typed.delete(field) && field.value !== field.defaultValue) {
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
}

// A field of a separate form requests nothing until that form is submitted.
function waitForForm(event) {
  if (event.target.form?.matches(".why-not, .save-form")) event.stopPropagation();
}

// A field shows the requested time in the reader's time zone; an unchanged field sends the original value.
function sendDatesAsAsked({ detail: { formData } }) {
  for (const field of document.querySelectorAll("#date-from, #date-to")) {
    if (formData.has(field.name) && field.value === field.defaultValue) formData.set(field.name, field.dataset.asked);
  }
}

// --- the history of what is typed -----------------------------------------------------------------------------------
// The first search of a run of typing is an entry of its own, which the following ones replace. The run ends with Enter
// and wherever the address becomes another.
let run;
const address = () => location.pathname + location.search;
function markFirstTyping({ detail: { headers } }) {
  if (headers["X-Typing"] && run !== address()) headers["X-Typing"] = "first";
}
function followTyping({ detail: { requestConfig, history } }) {
  const begins = history.type === "push" || run === address();
  run = requestConfig.headers["X-Typing"] && begins ? history.path : undefined;
}
function endTyping() {
  run = undefined;
}

// --- a time zone that the server does not know yet ------------------------------------------------------------------
function askAgain() {
  if (byId("explorer"))
    htmx.ajax("GET", address(), { source: byId("explorer-head"), target: "#explorer", swap: "morph show:none" });
}

// The first filter that the words of the text may mean.
function takeOffer(event) {
  const first = event.altKey && event.key === "Enter" && document.querySelector("#explorer [data-offer]");
  if (!first) return;
  event.preventDefault();
  endTyping();
  first.click();
}

// --- one listener for each event --------------------------------------------------------------------------------------
// On the document, because Back replaces the whole body. These events do not bubble, or are stopped on their way up.
const CAPTURED = ["change", "close", "submit", "toggle"];
const STEPS = {
  change: [holdRow, waitForDate, waitForForm],
  click: [followLink, closeOtherMenus, showFilters],
  close: [hideFilters],
  focusin: [offerToFocus],
  focusout: [leaveDate],
  "htmx:afterSettle": [finishSwap, offerAgain],
  "htmx:afterSwap": [putRowBack],
  "htmx:beforeHistoryUpdate": [followTyping],
  "htmx:beforeSwap": [measureRow],
  "htmx:configRequest": [nameOpenParts, sendDatesAsAsked, markFirstTyping],
  "htmx:responseError": [forgetFailedLevel],
  "htmx:sendError": [forgetFailedLevel],
  keydown: [leaveMenu, enterDate, takeOffer],
  pointerover: [offerToPointer],
  submit: [endTyping],
  toggle: [fetchOpened],
  "zone-changed": [askAgain],
};
for (const [name, steps] of Object.entries(STEPS)) {
  document.addEventListener(name, (event) => steps.forEach((step) => step(event)), CAPTURED.includes(name));
}
// Back and Forward have scrolled positions of their own.
addEventListener(
  "popstate",
  () => {
    held = undefined;
    endTyping();
  },
  true,
);
