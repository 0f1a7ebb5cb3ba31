// The explore page: links that swap, where focus goes afterwards, rows that stay in place, parts that are fetched when
// they are opened, only and exclude, the filters on a narrow screen, the category tree.
// Every listener is on the document, because Back replaces the whole body.
(() => {
  const byId = (id) => document.getElementById(id);
  let then;
  let held;

  // --- links ------------------------------------------------------------------------------------------------------
  // One listener for all links: hx-get would also handle clicks with a modifier, and does not prevent links in SVG.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-swap]");
    if (!link || !byId("explorer") || event.defaultPrevented) return;
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    then = afterwards(link);
    held = link.dataset.row && { id: link.dataset.row };
    htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#explorer", swap: "morph show:none" });
  });

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
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id !== "explorer") return;
    then?.();
    then = undefined;
    document.querySelectorAll("details.branch[open]").forEach(fetchLevel);
    document.querySelectorAll("details[data-missing][open]").forEach(fetchPart);
  });

  // --- parts that are fetched when they are opened ----------------------------------------------------------------
  // Each request names what is open, so that its answer includes it.
  document.addEventListener("htmx:configRequest", ({ detail: { headers } }) => {
    headers["X-Open"] = [...document.querySelectorAll("#explorer details[open][id]")].map(({ id }) => id).join(" ");
  });
  function fetchPart(part) {
    const here = location.pathname + location.search;
    const place = `#${CSS.escape(part.id)}`;
    // A swap aborts it, since its answer would be of the slice before; during a swap it waits for the next settling.
    part.setAttribute("hx-sync", "body:drop");
    htmx.ajax("GET", here, { source: part, target: place, select: place, swap: "morph show:none" });
  }
  document.addEventListener("toggle", ({ target }) => {
    if (target.matches?.("#explorer details[data-missing]") && target.open) fetchPart(target);
  }, true);

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
    const unchosen = asked.filter(([name, value]) => ![key, `-${key}`].includes(name)
      && !(["has", "no"].includes(name) && value === key));
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
  document.addEventListener("pointerover", ({ target, pointerType }) => {
    const row = pointerType === "mouse" && target.closest?.("#filters .value");
    if (row && !row.querySelector(".acts")) offer(row, made.pointer);
  });
  document.addEventListener("focusin", ({ target }) => {
    const row = target.matches?.("#filters .value input") && target.closest(".value");
    if (!row || row.contains(made.focus)) return;
    if (row.contains(made.pointer)) made.pointer.remove();
    if (!row.querySelector(".acts")) offer(row, made.focus);
  });
  const rowsOf = () => [...document.querySelectorAll("#filters .value")];
  const offerEach = () => {
    if (!matchMedia("(hover: none)").matches || !byId("filters").open) return;
    for (const row of rowsOf()) if (!row.querySelector(".acts")) offer(row, actsOf());
  };
  document.addEventListener("htmx:afterSettle", () => {
    for (const acts of document.querySelectorAll("#filters .acts.made")) offer(acts.closest(".value"), acts);
    if (byId("filters")) offerEach();
  });

  // --- a row stays where it is ------------------------------------------------------------------------------------
  // What is above a ticked row may grow or shrink. The sidebar is scrolled by the difference; where it cannot scroll as
  // far, the panel of the row keeps a distance.
  const topOf = (id) => byId(id)?.getBoundingClientRect().top;
  document.addEventListener("change", ({ target }) => {
    held = target.closest?.("#filters") && { id: target.id };
  }, true);
  // Back and Forward have scrolled positions of their own.
  addEventListener("popstate", () => { held = undefined; }, true);
  document.addEventListener("htmx:beforeSwap", () => {
    if (held) held.top = topOf(held.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
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
  });

  // --- menus: closed by Escape and by a click elsewhere -------------------------------------------------------------
  const openMenus = () => [...document.querySelectorAll("#explorer :is(.take-out, .dates-fold, .column-choice)[open]")];
  document.addEventListener("click", ({ target }) => {
    for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && openMenus().find((one) => one.contains(event.target));
    if (!menu) return;
    event.preventDefault();
    menu.open = false;
    menu.querySelector("summary").focus();
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
      offerEach();
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
    if (event.target.form?.matches(".why-not, .save-form")) event.stopPropagation();
  }, true);

  // A field shows the requested time in the reader's time zone; an unchanged field sends the original value.
  document.addEventListener("htmx:configRequest", ({ detail: { formData } }) => {
    for (const field of document.querySelectorAll("#date-from, #date-to")) {
      if (formData.has(field.name) && field.value === field.defaultValue) formData.set(field.name, field.dataset.asked);
    }
  });

  // --- the history of what is typed -----------------------------------------------------------------------------------
  // The first search of a run of typing is an entry of its own, which the following ones replace. The run ends with Enter
  // and wherever the address becomes another.
  let run;
  const address = () => location.pathname + location.search;
  document.addEventListener("htmx:configRequest", ({ detail: { headers } }) => {
    if (headers["X-Typing"] && run !== address()) headers["X-Typing"] = "first";
  });
  document.addEventListener("htmx:beforeHistoryUpdate", ({ detail: { requestConfig, history } }) => {
    const begins = history.type === "push" || run === address();
    run = requestConfig.headers["X-Typing"] && begins ? history.path : undefined;
  });
  for (const end of ["submit", "popstate"]) addEventListener(end, () => { run = undefined; }, true);

  // --- a time zone that the server does not know yet ---------------------------------------------------------------------
  document.addEventListener("zone-changed", () => {
    if (!byId("explorer")) return;
    const here = location.pathname + location.search;
    htmx.ajax("GET", here, { source: byId("explorer-head"), target: "#explorer", swap: "morph show:none" });
  });
})();
