// Ticked hits of the explore page. They stay ticked on other pages of the result and under other filters, until they are
// edited or given up.
// The longest address that every server takes has about this many numbers.
const MOST = 200;
const MOST_MERGED = 20;
// They are remembered while they are edited: an address that ends in #chosen, as that of a change that was undone or
// given up, ticks them again.
const KEPT = "chosen-memories";
const byId = (id) => document.getElementById(id);
const ticks = () => [...document.querySelectorAll("#hits .tick")];
const chosen = new Set();
let before;

function show() {
  const form = byId("act");
  if (!form) return;
  const here = new Set();
  for (const tick of ticks()) {
    here.add(tick.value);
    tick.checked = chosen.has(tick.value);
    tick.closest(".hit").classList.toggle("picked", tick.checked);
  }
  for (const old of form.querySelectorAll("input.elsewhere")) old.remove();
  const elsewhere = [...chosen].filter((id) => !here.has(id));
  for (const id of elsewhere) {
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "memory", value: id, className: "elsewhere" });
    form.append(field);
  }
  const takesAll = byId("take-all")?.checked ?? false;
  const isFull = chosen.size >= MOST ? ", no more at once" : "";
  const others = elsewhere.length ? `, ${elsewhere.length} of them not on this page` : "";
  byId("chosen-count").textContent = takesAll ? "" : `${chosen.size} chosen${others}${isFull}`;
  form.querySelector("[value=merge]").disabled = takesAll || chosen.size < 2 || chosen.size > MOST_MERGED;
  form.classList.toggle("shown", takesAll || chosen.size > 0);
  for (const tick of ticks()) tick.disabled = chosen.size >= MOST && !tick.checked;
}

function tell() {
  const count = byId("chosen-count")?.textContent;
  byId("status").textContent = count || "All results are chosen";
}

function put(tick, isChosen) {
  if (isChosen && chosen.size < MOST) chosen.add(tick.value);
  else if (!isChosen) chosen.delete(tick.value);
}

document.addEventListener("click", (event) => {
  const tick = event.target.closest?.("#hits .tick");
  if (tick && event.shiftKey && before) {
    const all = ticks();
    const ends = [all.findIndex(({ value }) => value === before), all.indexOf(tick)].sort((a, b) => a - b);
    if (ends[0] >= 0) for (const between of all.slice(ends[0], ends[1] + 1)) put(between, tick.checked);
  }
  if (tick) before = tick.value;
  if (event.target.closest?.("[data-choose-none]")) {
    chosen.clear();
    const all = byId("take-all");
    if (all) all.checked = false;
    show();
    tell();
    (document.querySelector("#hits .hit :is(h2, .title) a") ?? byId("total")).focus({ preventScroll: true });
  }
});
// In the capturing phase: the explorer must not take a tick for a filter.
document.addEventListener(
  "change",
  (event) => {
    const { target } = event;
    if (target.form?.id !== "act") return;
    event.stopPropagation();
    if (target.matches(".tick")) put(target, target.checked);
    show();
    tell();
  },
  true,
);
document.addEventListener("htmx:afterSettle", ({ detail }) => {
  if (detail.target?.id === "explorer") show();
});
document.addEventListener("submit", ({ target }) => {
  if (target.id === "act") sessionStorage.setItem(KEPT, JSON.stringify([...chosen]));
});
// The browser may restore ticks when it comes back to a page.
window.addEventListener("pageshow", () => {
  if (location.hash === "#chosen" && byId("act")) {
    for (const id of JSON.parse(sessionStorage.getItem(KEPT) ?? "[]")) chosen.add(id);
    history.replaceState(history.state, "", location.pathname + location.search);
  }
  for (const tick of ticks()) if (tick.checked) chosen.add(tick.value);
  show();
});
