// Fields that are completed over the whole vocabulary, with the number of memories of each name: a list below the field
// (data-complete names the kind, or data-kind-from the field that has it), and for data-many a list of names instead of
// lines of text. With data-sends the form is sent once a name is chosen. Without scripts they are plain fields.
const API = document.documentElement.dataset.api;
const WAIT = 150;
const SHOWN = 8;
// Names are counted by the server, the most frequent first; those that begin with the text come first in the list.
const ASKED = 40;
let made = 0;

const element = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const memories = (count) => `${count.toLocaleString("en")} ${count === 1 ? "memory" : "memories"}`;

async function offersOf(field, text, signal) {
  const kind = document.getElementById(field.dataset.kindFrom)?.value ?? field.dataset.complete;
  const wanted = new URLSearchParams(
    kind === "memory"
      ? { q: text, page_size: SHOWN, ...(field.dataset.project ? { project: field.dataset.project } : {}) }
      : { search: text, page_size: ASKED, ...(field.closest("[data-of-sample]") ? {} : { without_sample: 1 }) },
  );
  const reply = await fetch(`${API}${kind === "memory" ? "search" : `facets/${kind}`}?${wanted}`, { signal });
  if (!reply.ok) return [];
  const data = await reply.json();
  if (kind !== "memory") {
    const begins = ({ label }) => Number(label.toLowerCase().startsWith(text.toLowerCase()));
    return data.values
      .filter(({ count }) => count)
      .sort((a, b) => begins(b) - begins(a))
      .slice(0, SHOWN)
      .map(({ value, label, count }) => ({ value, label, note: memories(count) }));
  }
  return data.memories
    .filter(({ id }) => String(id) !== field.dataset.not)
    .map(({ id, title, created_at: day }) => ({ value: `#${id}`, label: title, note: `#${id} · ${day.slice(0, 10)}` }));
}

// `offer` finds what is listed below the input; `pick` takes what was chosen.
export function attachOffers(input, field, pick, offer = (text, signal) => offersOf(field, text, signal)) {
  const list = element("ul", { class: "offers", role: "listbox", id: `offers-${(made += 1)}`, hidden: "" });
  list.setAttribute("aria-label", field.getAttribute("aria-label") ?? field.labels?.[0]?.textContent ?? "Suggestions");
  for (const [key, value] of Object.entries({
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    autocomplete: "off",
    spellcheck: "false",
  }))
    input.setAttribute(key, value);
  const box = element("span", { class: "completed" });
  input.replaceWith(box);
  box.append(input, list);
  let active = -1;
  let waiting;
  let asking;

  const close = () => {
    clearTimeout(waiting);
    asking?.abort();
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const move = (to) => {
    const options = [...list.children];
    if (!options.length) return;
    active = (to + options.length) % options.length;
    options.forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    input.setAttribute("aria-activedescendant", options[active].id);
    options[active].scrollIntoView({ block: "nearest" });
  };
  const take = (option) => {
    pick(option.dataset.value, option.dataset.label);
    close();
  };
  async function ask() {
    asking?.abort();
    asking = new AbortController();
    try {
      const offers = await offer(input.value.trim(), asking.signal);
      list.replaceChildren(
        ...offers.map(({ value, label, note }, at) =>
          element(
            "li",
            {
              role: "option",
              id: `${list.id}-${at}`,
              "aria-selected": "false",
              "data-value": value,
              "data-label": label,
            },
            element("span", {}, label),
            element("small", {}, note),
          ),
        ),
      );
      active = -1;
      list.hidden = !offers.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, WAIT);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) ask();
      else move(active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1));
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      event.stopImmediatePropagation();
      take(list.children[active]);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
  list.addEventListener("mousedown", (event) => event.preventDefault());
  list.addEventListener("click", ({ target }) => {
    const option = target.closest("[role=option]");
    if (option) take(option);
  });
  input.addEventListener("blur", close);
  // Nothing is offered after it was submitted.
  input.form?.addEventListener("submit", close);
  close.ask = ask;
  return close;
}

function single(field) {
  attachOffers(field, field, (value) => {
    field.value = value;
    field.dispatchEvent(new Event("change", { bubbles: true }));
    if ("sends" in field.dataset) field.form.requestSubmit();
  });
}

function many(field) {
  const names = field.value
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const labels = new Map();
  const input = element("input", { type: "text", class: "adding", id: field.id });
  const title = field.labels?.[0]?.textContent.trim() ?? field.getAttribute("aria-label") ?? "name";
  const frame = element("div", { class: "names" }, input);
  const original = new Set(names);
  // Names are written with commas between them. One that has a comma itself is chosen from the list, or quoted.
  const mayQuote = !["tag", "memory"].includes(field.dataset.complete);
  const sends = field.form.querySelector("[type=submit], button:not([type])")?.textContent.trim();
  const hint = element(
    "p",
    { class: "names-hint", id: `hint-${made + 1}` },
    `Enter or a comma adds a name${sends ? `, Enter again is “${sends}”` : ""}.` +
      (mayQuote ? " A name with a comma in it is written in quotes." : ""),
  );
  input.setAttribute("aria-describedby", [field.getAttribute("aria-describedby"), hint.id].filter(Boolean).join(" "));
  const hasFocus = field.autofocus || document.activeElement === field;
  field.removeAttribute("id");
  field.hidden = true;
  field.after(frame, hint);

  const show = () => {
    field.value = names.join("\n");
    frame.querySelectorAll(".name").forEach((old) => old.remove());
    frame.prepend(
      ...names.map((name) => {
        const label = labels.get(name) ?? name;
        const remove = element("button", { type: "button", "aria-label": `Remove ${label}` }, "×");
        remove.addEventListener("click", () => {
          names.splice(names.indexOf(name), 1);
          show();
          input.focus();
        });
        return element("span", { class: original.has(name) ? "name" : "name new" }, label, remove);
      }),
    );
  };
  const add = (name, label) => {
    const text = name
      .trim()
      .replace(/^"([^"]*)"?$/, "$1")
      .replace(/[\s,]+$/, "");
    if (text && !names.includes(text)) names.push(text);
    if (text && label) labels.set(text, label);
    input.value = "";
    show();
  };
  const close = attachOffers(input, field, add);
  input.setAttribute("aria-label", title);
  input.addEventListener("input", () => {
    const quoted = mayQuote && input.value.match(/^\s*"([^"]*)("\s*,)?/);
    if (quoted?.[2]) add(quoted[1]);
    else if (!quoted && input.value.includes(",")) {
      const parts = input.value.split(",");
      const last = parts.pop();
      parts.forEach((part) => add(part));
      input.value = last;
    }
    if (!input.value.trim()) close();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && input.value.trim()) {
      event.preventDefault();
      add(input.value);
      close();
    } else if (event.key === "Backspace" && !input.value && names.length) {
      names.pop();
      show();
    }
  });
  // What was typed and not yet added counts.
  field.form.addEventListener("submit", () => {
    if (input.value.trim()) add(input.value);
  });
  frame.addEventListener("click", (event) => {
    if (event.target === frame) input.focus();
  });
  show();
  if (hasFocus) input.focus();
}

const enhance = (root) => {
  for (const field of root.querySelectorAll("[data-complete]:not([data-completed])")) {
    field.dataset.completed = "";
    if ("many" in field.dataset) many(field);
    else single(field);
  }
};
document.addEventListener("DOMContentLoaded", () => enhance(document));
document.addEventListener("htmx:afterSettle", () => enhance(document));
