// Shared by all swaps of a part of the page: what a morph leaves alone, the busy state, announcing the count, errors.
// --- a morph: pages register here what it leaves as it is -------------------------------------------------------------
const keepers = [];
// `keeps(old, fresh)` says whether the element `old` stays instead of becoming `fresh`.
export function keepInMorph(keeps) {
  keepers.push(keeps);
}
Object.assign(Idiomorph.defaults.callbacks, {
  beforeNodeMorphed: (old, fresh) =>
    !(old.nodeType === Node.ELEMENT_NODE && keepers.some((keeps) => keeps(old, fresh))),
  // It also copies attributes: keep what the reader closed or opened.
  beforeAttributeUpdated: (name, node) => {
    if (name === "open" && node.matches("details, dialog")) return false;
    // What is typed meanwhile is kept, and the caret where it is.
    if (name === "value" && node.id === "values-search" && node === document.activeElement) return false;
    return !((name === "role" || name === "aria-label") && node.id === "filters");
  },
  // Links that a script put into a row are in no answer.
  beforeNodeRemoved: (node) => !(node.nodeType === Node.ELEMENT_NODE && node.matches(".acts.made")),
});

// --- busy -------------------------------------------------------------------------------------------------------
let underWay = 0;
document.addEventListener("htmx:beforeRequest", (event) => {
  underWay += 1;
  event.detail.target.setAttribute("aria-busy", "true");
  document.documentElement.classList.add("busy");
});
const rest = (event) => {
  underWay = Math.max(0, underWay - 1);
  if (underWay) return;
  document.querySelectorAll("[aria-busy]").forEach((element) => element.removeAttribute("aria-busy"));
  event.detail.target?.removeAttribute("aria-busy");
  document.documentElement.classList.remove("busy");
};
document.addEventListener("htmx:afterRequest", rest);
// The elements that Back took away do not tell when their requests end.
document.addEventListener("htmx:historyRestore", (event) => {
  underWay = 0;
  rest(event);
});

// --- announcing the count ---------------------------------------------------------------------------------------
let saying;
document.addEventListener("htmx:afterSettle", () => {
  const text = document.querySelector("[data-status]")?.dataset.status;
  clearTimeout(saying);
  if (text)
    saying = setTimeout(() => {
      document.getElementById("status").textContent = text;
    }, 500);
});

// --- errors: keep the old results and offer a retry ------------------------------------------------------------
let failed;
const complain = (text) => (event) => {
  const { requestConfig, pathInfo, target } = event.detail;
  if (requestConfig?.verb !== "get") return;
  failed = { path: pathInfo.finalRequestPath, target: `#${target.id}` };
  const toast = document.getElementById("toast");
  toast.querySelector("[data-toast-text]").textContent = text(event.detail.xhr);
  toast.hidden = false;
};
// The heading of the page says whether the database is away or the server has too much to do.
const heading = (html) => new DOMParser().parseFromString(html, "text/html").querySelector("h1")?.textContent.trim();
document.addEventListener(
  "htmx:responseError",
  complain(
    (xhr) => (xhr.status === 503 && heading(xhr.responseText)) || `The server could not answer (${xhr.status}).`,
  ),
);
document.addEventListener(
  "htmx:sendError",
  complain(() => "The server cannot be reached."),
);
document.addEventListener(
  "htmx:timeout",
  complain(() => "The server took too long."),
);
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.shouldSwap) document.getElementById("toast").hidden = true;
});
document.addEventListener("click", (event) => {
  const toast = document.getElementById("toast");
  if (event.target.closest?.("[data-dismiss]")) toast.hidden = true;
  const retry = event.target.closest?.("[data-retry]");
  if (!retry || !failed) return;
  toast.hidden = true;
  htmx.ajax("GET", failed.path, { source: retry, target: failed.target, swap: "morph show:none" });
});
