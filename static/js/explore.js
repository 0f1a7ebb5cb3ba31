// The explore page: links that swap, where focus goes afterwards, the filters on a narrow screen, the category tree.
// Every listener is on the document, because Back replaces the whole body.
(() => {
  const byId = (id) => document.getElementById(id);
  let then;

  // --- links ------------------------------------------------------------------------------------------------------
  // One listener for all links: hx-get would also handle clicks with a modifier, and does not prevent links in SVG.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-swap]");
    if (!link || !byId("explorer") || event.defaultPrevented) return;
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    then = afterwards(link);
    htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#explorer", swap: "morph show:none" });
  });

  // --- focus ------------------------------------------------------------------------------------------------------
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
    return undefined;
  }
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id !== "explorer") return;
    then?.();
    then = undefined;
    document.querySelectorAll("details.branch[open]").forEach(fetchLevel);
  });

  // --- filters on a narrow screen ---------------------------------------------------------------------------------
  // The sidebar is a dialog that the style sheet lays out as a column; only a narrow screen ever opens it as one.
  const wide = matchMedia("(min-width: 1024px)");
  document.addEventListener("click", (event) => {
    const filters = byId("filters");
    if (event.target.closest?.("[data-open-filters]")) {
      filters.removeAttribute("role");
      filters.setAttribute("aria-label", "Filters");
      byId("filters-fold").open = true;
      filters.showModal();
    } else if (event.target.closest?.("[data-close-filters]") || (event.target === filters && filters.open)) {
      filters.close();
    }
  });
  document.addEventListener("close", (event) => {
    if (event.target.id !== "filters") return;
    event.target.setAttribute("role", "none");
    event.target.removeAttribute("aria-label");
  }, true);
  wide.addEventListener("change", () => { if (wide.matches) byId("filters")?.close(); });

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
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details.branch") && event.target.open) fetchLevel(event.target);
  }, true);
  const failedLevel = (event) => {
    const branch = event.detail.target?.closest?.("details.branch");
    if (branch) fetched.delete(branch);
  };
  document.addEventListener("htmx:responseError", failedLevel);
  document.addEventListener("htmx:sendError", failedLevel);
  // Until the level arrives, its old rows stay in place but are disabled: their counts and ticks are stale.
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE || !old.matches("details.branch[open] > ul")) return undefined;
    const branch = old.parentElement;
    if (!fetched.has(branch) || !fresh.parentElement.dataset.children) return undefined;
    fetched.delete(branch);
    old.querySelectorAll("input").forEach((input) => { input.disabled = true; });
    return false;
  };

  // --- dates typed by hand --------------------------------------------------------------------------------------------
  // A date field fires a change for every digit of the year: wait until it loses focus, or for Enter.
  const typed = new WeakSet();
  const isDate = (element) => element.matches?.("#date-from, #date-to");
  document.addEventListener("keydown", (event) => {
    if (!isDate(event.target)) return;
    if (event.key !== "Enter") typed.add(event.target);
    else if (typed.delete(event.target)) {
      event.preventDefault();
      event.target.dispatchEvent(new Event("change", { bubbles: true }));
    }
  });
  document.addEventListener("change", (event) => {
    if (!isDate(event.target)) return;
    if (typed.has(event.target)) event.stopPropagation();
    // Explicit dates override a span up to now.
    else document.querySelectorAll('input[type="hidden"][name="since"]').forEach((input) => input.remove());
  }, true);
  document.addEventListener("focusout", (event) => {
    const field = event.target;
    if (isDate(field) && typed.delete(field) && field.value !== field.defaultValue) {
      field.dispatchEvent(new Event("change", { bubbles: true }));
    }
  });

  // A field of a separate form requests nothing until that form is submitted.
  document.addEventListener("change", (event) => {
    if (event.target.form?.matches(".why-not")) event.stopPropagation();
  }, true);

  // A field shows the requested time in the reader's time zone; an unchanged field sends the original value.
  document.addEventListener("htmx:configRequest", ({ detail: { formData } }) => {
    for (const field of document.querySelectorAll("#date-from, #date-to")) {
      if (formData.has(field.name) && field.value === field.defaultValue) formData.set(field.name, field.dataset.asked);
    }
  });

  // --- a time zone that the server does not know yet ---------------------------------------------------------------------
  document.addEventListener("DOMContentLoaded", () => {
    if (!("zoneChanged" in document.documentElement.dataset) || !byId("explorer")) return;
    const here = location.pathname + location.search;
    htmx.ajax("GET", here, { source: byId("explorer-head"), target: "#explorer", swap: "morph show:none" });
  });
})();
