// The search box: filters are completed while they are typed (tag:clock), a query is edited as text, recent searches are
// offered, and a pill says how many memories are new.
import { attachOffers } from "./complete.js";

const byId = (id) => document.getElementById(id);
const API = document.documentElement.dataset.api;
const RECENT = "recent-searches";
const MOST_RECENT = 8;
const EVERY = 30_000;
const SHOWN = 8;
// Parameters of the page alone, which the API does not take.
const PRESENTATION = ["v", "view", "column", "colour", "look", "split"];
// The last word of the box, if it is a filter that can be completed.
const TOKEN = /(^|\s)(-?)(project|type|category|tag|concept|entity|author|agent|source|state|is):("?)([^"]*)$/;
const BARE = /^[^\s"]*$/;
let submitted;

const recent = () => {
  try {
    const stored = JSON.parse(localStorage.getItem(RECENT) ?? "[]");
    return Array.isArray(stored) ? stored.filter((text) => typeof text === "string") : [];
  } catch {
    return [];
  }
};
const written = (value) => (BARE.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`);

// The present slice without the facet that is typed, since its choices are alternatives.
function slice(key) {
  const wanted = new URLSearchParams(location.search);
  for (const name of ["q", "page", "page_size", "offset", "sel", "sort", "bucket", key, `-${key}`, ...PRESENTATION]) {
    wanted.delete(name);
  }
  return wanted;
}

async function offers(text, signal) {
  const box = byId("q");
  if (!text) return recent().map((one) => ({ value: one, label: one, note: "recent" }));
  const token = box.value.slice(0, box.selectionEnd).match(TOKEN);
  if (!token) return [];
  const [, , sign, name, quote, start] = token;
  if (!quote && /\s/.test(start)) return [];
  const key = name === "is" ? "state" : name;
  const wanted = slice(key);
  wanted.set("search", start);
  wanted.set("page_size", SHOWN);
  const reply = await fetch(`${API}facets/${key}?${wanted}`, { signal });
  if (!reply.ok) return [];
  const { values } = await reply.json();
  return values
    .filter(({ count }) => count)
    .map(({ value, label, count }) => ({
      value: `${sign}${name}:${written(value)} `,
      label,
      note: `${sign}${count.toLocaleString("en")}`,
    }));
}

function pick(value) {
  const box = byId("q");
  if (!box.value.trim()) {
    box.value = value;
    box.dataset.whole = "";
    box.form.requestSubmit();
    return;
  }
  const before = box.value.slice(0, box.selectionEnd).replace(TOKEN, (found, space) => `${space}${value}`);
  const after = box.value.slice(box.selectionEnd).trimStart();
  box.value = before + after;
  box.setSelectionRange(before.length, before.length);
}

function enhance() {
  const box = byId("q");
  if (!box || !byId("explorer") || box.closest(".completed")) return;
  const close = attachOffers(box, box, pick, offers);
  box.addEventListener("focus", () => {
    if (!box.value) close.ask();
  });
}

// --- a query as text ----------------------------------------------------------------------------------------------
function edit() {
  const box = byId("q");
  box.value = `${byId("explorer").dataset.asText} `;
  // The text has every filter: those of the page are not sent with it.
  box.dataset.whole = "";
  box.focus();
  box.setSelectionRange(box.value.length, box.value.length);
}
document.addEventListener("click", (event) => {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (!event.target.closest?.("[data-edit-text]") || !byId("explorer")) return;
  event.preventDefault();
  edit();
});
document.addEventListener("input", ({ target }) => {
  if (target.id === "q") submitted = undefined;
});
document.addEventListener(
  "submit",
  ({ target }) => {
    if (target.id === "explore-form") submitted = byId("q").value;
  },
  true,
);
// Nothing is searched for while the whole query is edited, nor again after it was submitted. At this event, since a
// request that comes later would already have taken the place of the one that was submitted.
document.addEventListener("htmx:confirm", (event) => {
  const { target: box } = event;
  if (box.id === "q" && ("whole" in box.dataset || box.value === submitted)) event.preventDefault();
});
document.addEventListener("htmx:configRequest", ({ detail: { elt, formData } }) => {
  if (elt.id !== "explore-form" || !("whole" in byId("q").dataset)) return;
  for (const name of [...formData.keys()]) if (!["q", ...PRESENTATION].includes(name)) formData.delete(name);
});

// --- after each change: the text of the slice is in the box, and is remembered --------------------------------------
function settled(typing) {
  const box = byId("q");
  const explorer = byId("explorer");
  if (!box || !explorer) return;
  if (!typing) {
    delete box.dataset.whole;
    box.value = explorer.dataset.text;
    submitted = box.value;
    const text = explorer.dataset.asText;
    if (explorer.dataset.text && text.length <= 500) {
      localStorage.setItem(
        RECENT,
        JSON.stringify([text, ...recent().filter((one) => one !== text)].slice(0, MOST_RECENT)),
      );
    }
  }
  byId("new-pill")?.remove();
}
document.addEventListener("htmx:afterSettle", ({ detail }) => {
  if (detail.target?.id !== "explorer") return;
  // By the clock of the server, which has seconds: the next one, so that no change is announced that is shown already.
  const answered = Date.parse(detail.xhr.getResponseHeader("Date") ?? "");
  const stage = document.querySelector(".stage");
  if (answered && stage) stage.dataset.shown = new Date(answered + 1000).toISOString();
  settled(Boolean(detail.requestConfig?.headers["X-Typing"]));
});

// --- how many are new -----------------------------------------------------------------------------------------------
async function look() {
  // The map has none: its points come and go with what it shows.
  const stage = document.querySelector(".stage");
  const wanted = new URLSearchParams(location.search);
  if (!stage || document.visibilityState !== "visible" || wanted.has("updated_since")) return;
  for (const name of ["sel", "page", "offset", ...PRESENTATION]) wanted.delete(name);
  const since = stage.dataset.shown;
  wanted.set("updated_since", since);
  wanted.set("page_size", 1);
  const reply = await fetch(`${API}search?${wanted}`).catch(() => undefined);
  if (!reply?.ok || stage.dataset.shown !== since) return;
  const { total } = await reply.json();
  if (!total) return;
  let pill = byId("new-pill");
  if (!pill) {
    pill = document.createElement("div");
    pill.id = "new-pill";
    pill.className = "new-pill";
    const link = document.createElement("a");
    link.dataset.swap = "";
    pill.append(link);
    byId("explorer-head").after(pill);
  }
  const text = `${total.toLocaleString("en")} new or changed: show`;
  pill.firstChild.href = location.pathname + location.search;
  if (pill.firstChild.textContent === text) return;
  pill.firstChild.textContent = text;
  byId("status").textContent = text;
}
setInterval(look, EVERY);
document.addEventListener("visibilitychange", look);

document.addEventListener("DOMContentLoaded", () => {
  enhance();
  settled(false);
});
document.addEventListener("htmx:historyRestore", () => {
  enhance();
  settled(false);
});
